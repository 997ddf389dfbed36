//! Nothing that is linked into firmware may depend on a host crate.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Crates that firmware links.
const DEVICE: [&str; 7] =
    ["kiln-core", "kiln-ops", "kiln-kernels", "kiln-device", "kiln-cortex-m", "kiln-riscv", "kiln-linux"];

/// Crates outside the workspace that device crates may use, directly or not. A new one is a decision
/// to be taken here, not something that creeps in.
const ALLOWED: [&str; 32] = [
    "bare-metal",
    "bitfield",
    "cortex-m",
    "cortex-m-rt",
    "cortex-m-rt-macros",
    "critical-section",
    "embedded-hal",
    "libc",
    "libm",
    "nb",
    "pastey",
    "proc-macro2",
    "quote",
    "riscv",
    "riscv-macros",
    "riscv-rt",
    "riscv-target-parser",
    "riscv-types",
    "rustc_version",
    "semver",
    "semver-parser",
    "serde",
    "serde_core",
    "serde_derive",
    "syn",
    "unicode-ident",
    "vcell",
    "version_check",
    "void",
    "volatile-register",
    "zerocopy",
    "zerocopy-derive",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

/// Walks the normal dependencies of every device crate.
pub fn run() -> Result<()> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .current_dir(crate::root())
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    let mut graph: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &metadata.packages {
        // Development dependencies have kind "dev"; build scripts run on the host.
        let normal = package.dependencies.iter().filter(|d| d.kind.is_none());
        graph.entry(&package.name).or_default().extend(normal.map(|d| d.name.as_str()));
    }
    for krate in DEVICE {
        let all = reachable(&graph, krate);
        let bad: Vec<&str> = all.iter().copied().filter(|d| !DEVICE.contains(d) && !ALLOWED.contains(d)).collect();
        if !bad.is_empty() {
            bail!("{krate} may be linked into firmware but depends on {}", bad.join(", "));
        }
        println!("{krate}: {} dependencies, all allowed in firmware", all.len());
    }
    Ok(())
}

fn reachable<'a>(graph: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![from];
    while let Some(name) = todo.pop() {
        for &next in graph.get(name).into_iter().flatten() {
            if seen.insert(next) {
                todo.push(next);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reached_through_others_counts() {
        let edge = |to: &'static str| BTreeSet::from([to]);
        let graph = BTreeMap::from([("a", edge("b")), ("b", edge("c")), ("c", edge("a")), ("d", edge("e"))]);
        assert_eq!(reachable(&graph, "a"), BTreeSet::from(["a", "b", "c"]));
    }
}
