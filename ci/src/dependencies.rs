//! Nothing that is linked into firmware may depend on a host crate.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Crates that firmware links.
const DEVICE: [&str; 8] =
    ["kiln-core", "kiln-ops", "kiln-kernels", "kiln-model", "kiln-device", "kiln-cortex-m", "kiln-riscv", "kiln-linux"];

/// Crates outside the workspace that device crates may use, directly or not. A new one is a decision
/// to be taken here, not something that creeps in.
const ALLOWED: [&str; 38] = [
    "bare-metal",
    "bitfield",
    "bitflags",
    "cortex-m",
    "cortex-m-rt",
    "cortex-m-rt-macros",
    "critical-section",
    "defmt",
    "defmt-macros",
    "defmt-parser",
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
    "thiserror",
    "thiserror-impl",
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
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
}

/// Who depends on whom, with what is optional and not in use left out.
#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
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
    let names: BTreeMap<&str, &str> = metadata.packages.iter().map(|p| (p.id.as_str(), p.name.as_str())).collect();
    let name = |id: &str| names.get(id).copied().with_context(|| format!("cargo metadata has no package {id}"));
    let mut graph: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in &metadata.resolve.nodes {
        let edges = graph.entry(name(&node.id)?).or_default();
        // Development dependencies have kind "dev"; build scripts run on the host.
        for dependency in node.deps.iter().filter(|d| d.dep_kinds.iter().any(|k| k.kind.is_none())) {
            edges.insert(name(&dependency.pkg)?);
        }
    }
    for krate in DEVICE {
        if !graph.contains_key(krate) {
            bail!("there is no crate {krate} in the workspace: correct the list of device crates");
        }
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
