//! Finds an installed Rust toolchain that can build for a target, and a linker for it.
//!
//! A toolchain will do when the target is installed in it (`rustup target add`), or when it has the
//! library's source, from which cargo then builds `core`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The oldest compiler Kiln builds with, as `(major, minor)`.
const OLDEST: (u32, u32) = (1, 95);

/// LLD versions looked for as `ld.lld-N`, the newest first.
const LLD_VERSIONS: std::ops::RangeInclusive<u32> = 14..=30;

/// No toolchain or linker for a target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolchainError {
    /// No toolchain has the target or the source to build it.
    #[error(
        "no installed Rust toolchain can build for {target} (looked at {looked_at}); \
         run `rustup target add {target}`"
    )]
    NoTarget {
        /// The target triple.
        target: String,
        /// The toolchains that were looked at and why each will not do.
        looked_at: String,
    },
    /// No linker for the target.
    #[error("no linker for {target}: {advice}")]
    NoLinker {
        /// The target triple.
        target: String,
        /// What was looked for, and how to get it.
        advice: String,
    },
}

/// A way to build for one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    name: String,
    sysroot: PathBuf,
    target: String,
    build_std: bool,
    linker: Option<PathBuf>,
}

impl Toolchain {
    /// Looks through the active toolchain and those rustup knows: first for one with the target
    /// installed, then for one with the library's source.
    ///
    /// # Errors
    ///
    /// [`ToolchainError`], with the command that installs what is missing.
    pub fn find(target: &str) -> Result<Self, ToolchainError> {
        Self::find_among(target, &installed())
    }

    /// A toolchain for programs of this computer.
    ///
    /// # Errors
    ///
    /// [`ToolchainError`].
    pub fn host() -> Result<Self, ToolchainError> {
        let version = output(Command::new("rustc").arg("-vV")).unwrap_or_default();
        Self::find(version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or("this computer"))
    }

    fn find_among(target: &str, candidates: &[(String, PathBuf)]) -> Result<Self, ToolchainError> {
        let mut too_old = Vec::new();
        for build_std in [false, true] {
            for (name, sysroot) in candidates {
                let has = if build_std { has_source(sysroot) } else { has_target(sysroot, target) };
                if !has || too_old.contains(&name) {
                    continue;
                }
                if release(sysroot).is_none_or(|found| found < OLDEST) {
                    too_old.push(name);
                    continue;
                }
                return Ok(Self {
                    name: name.clone(),
                    sysroot: sysroot.clone(),
                    target: target.to_owned(),
                    build_std,
                    linker: linker_for(target, sysroot, candidates)?,
                });
            }
        }
        let looked_at: Vec<String> = candidates
            .iter()
            .map(|(name, _)| {
                if too_old.contains(&name) {
                    format!("{name}: older than {}.{}", OLDEST.0, OLDEST.1)
                } else {
                    format!("{name}: has neither the target nor the library source")
                }
            })
            .collect();
        Err(ToolchainError::NoTarget {
            target: target.to_owned(),
            looked_at: if looked_at.is_empty() {
                "PATH and rustup, and found none".to_owned()
            } else {
                looked_at.join("; ")
            },
        })
    }

    /// The target triple it builds for.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Whether `core` is built from source, which takes a minute once per target.
    pub fn builds_core(&self) -> bool {
        self.build_std
    }

    /// A line for people: toolchain and where `core` comes from.
    pub fn describe(&self) -> String {
        let core = if self.build_std { "built from source" } else { "installed" };
        format!("toolchain {} for {} (core {core})", self.name, self.target)
    }

    /// `cargo SUBCOMMAND` for the target, apart from the settings of a cargo this process may have
    /// been started by. `rustc_flags` reach every crate; two builds with the same flags share
    /// their work.
    pub fn cargo(&self, subcommand: &str, rustc_flags: &[&str]) -> Command {
        let own = self.sysroot.join("bin").join(program("cargo"));
        let mut command = Command::new(if own.is_file() { own } else { "cargo".into() });
        for (name, _) in env::vars_os() {
            if steers_a_build(&name.to_string_lossy()) {
                command.env_remove(name);
            }
        }
        command.arg(subcommand).args(["--target", &self.target]);
        command.env("RUSTC", self.sysroot.join("bin").join(program("rustc")));
        if self.build_std {
            // The option is not stable, yet building `core` is all it is used for; the variable
            // makes a stable cargo accept it.
            command.env("RUSTC_BOOTSTRAP", "1").arg("-Zbuild-std=core");
        }
        if let Some(linker) = &self.linker {
            let triple = self.target.to_uppercase().replace(['-', '.'], "_");
            command.env(format!("CARGO_TARGET_{triple}_LINKER"), linker);
        }
        // Set even when empty: it outranks flags in a user's cargo configuration.
        command.env("CARGO_ENCODED_RUSTFLAGS", rustc_flags.join("\x1f"));
        command
    }
}

/// Whether a variable changes what cargo builds or where. Network settings and the like stay.
fn steers_a_build(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "CARGO",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_INCREMENTAL",
        "RUSTC",
        "RUSTC_BOOTSTRAP",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "RUSTDOC",
        "RUSTDOCFLAGS",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
    ];
    const PREFIXES: [&str; 4] = ["CARGO_BUILD_", "CARGO_PROFILE_", "CARGO_TARGET_", "CARGO_UNSTABLE_"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Name and sysroot of every toolchain: the active one, then stable ones, then the others.
fn installed() -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    if let Some(sysroot) = output(Command::new("rustc").args(["--print", "sysroot"])) {
        found.push(("active".to_owned(), PathBuf::from(sysroot.trim())));
    }
    let rustup =
        env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(|| env::home_dir().map(|home| home.join(".rustup")));
    let mut linked: Vec<(String, PathBuf)> = rustup
        .and_then(|home| fs::read_dir(home.join("toolchains")).ok())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect();
    linked.sort_by_key(|(name, _)| (!name.starts_with("stable"), name.clone()));
    for (name, path) in linked {
        let same = |other: &Path| match (fs::canonicalize(other), fs::canonicalize(&path)) {
            (Ok(a), Ok(b)) => a == b,
            _ => false,
        };
        match found.iter_mut().find(|(_, other)| same(other)) {
            Some(active) => active.0 = name,
            None => found.push((name, path)),
        }
    }
    found
}

fn has_target(sysroot: &Path, target: &str) -> bool {
    fs::read_dir(sysroot.join("lib/rustlib").join(target).join("lib"))
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
}

fn has_source(sysroot: &Path) -> bool {
    sysroot.join("lib/rustlib/src/rust/library/core/Cargo.toml").is_file()
}

/// The version of a toolchain's compiler.
fn release(sysroot: &Path) -> Option<(u32, u32)> {
    let text = output(Command::new(sysroot.join("bin").join(program("rustc"))).arg("-vV"))?;
    parse_release(&text)
}

fn parse_release(verbose_version: &str) -> Option<(u32, u32)> {
    let release = verbose_version.lines().find_map(|line| line.strip_prefix("release: "))?;
    let mut numbers = release.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The linker of a target; `None` where rustc's own choice is right, which is on the target itself.
fn linker_for(
    target: &str,
    sysroot: &Path,
    candidates: &[(String, PathBuf)],
) -> Result<Option<PathBuf>, ToolchainError> {
    let found = if target.contains("-none") {
        bare_metal_linker(sysroot, candidates)
    } else if let Some(prefix) = foreign_linux(target) {
        cross_linker(&prefix)
    } else {
        return Ok(None);
    };
    found.map(Some).map_err(|advice| ToolchainError::NoLinker { target: target.to_owned(), advice })
}

/// LLD, which knows every target. The error is what to do about its absence.
fn bare_metal_linker(sysroot: &Path, candidates: &[(String, PathBuf)]) -> Result<PathBuf, String> {
    let others = candidates.iter().map(|(_, other)| other.as_path());
    let bundled = [sysroot].into_iter().chain(others).flat_map(bundled_linkers);
    let versioned = LLD_VERSIONS.rev().map(|version| format!("ld.lld-{version}"));
    let in_path = ["rust-lld".to_owned(), "ld.lld".to_owned()].into_iter().chain(versioned);
    // rustc knows how to speak to each of them by its name.
    bundled.filter(|path| path.is_file()).chain(in_path.filter_map(|name| which::which(name).ok())).next().ok_or_else(
        || {
            "found neither rust-lld nor ld.lld; install LLD (Debian and Ubuntu: `apt-get install lld`, \
             Fedora: `dnf install lld`, macOS: `brew install lld`)"
                .to_owned()
        },
    )
}

/// What the programs of a cross compiler for Linux begin with: `aarch64-linux-gnu`. `None` where the target
/// is another system or this computer's own.
fn foreign_linux(target: &str) -> Option<String> {
    let (cpu, system) = target.split_once("-unknown-linux-")?;
    let own = cpu == env::consts::ARCH && env::consts::OS == "linux";
    (!own).then(|| format!("{cpu}-linux-{system}"))
}

/// The C compiler of a system, which links against its C library. The error is what to do about its
/// absence.
fn cross_linker(prefix: &str) -> Result<PathBuf, String> {
    let name = format!("{prefix}-gcc");
    which::which(&name).map_err(|_| {
        format!(
            "{name} is not in PATH; install the cross compiler and its C library (Debian and Ubuntu: \
             `apt-get install gcc-{prefix}`), or build on a computer of that kind"
        )
    })
}

/// Where a toolchain from rustup keeps its LLD.
fn bundled_linkers(sysroot: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(sysroot.join("lib/rustlib"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin").join(program("rust-lld")))
}

fn program(name: &str) -> String {
    format!("{name}{}", env::consts::EXE_SUFFIX)
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_itself_is_always_a_target() {
        let host = output(Command::new("rustc").args(["--print", "host-tuple"])).unwrap();
        let found = Toolchain::find(host.trim()).unwrap();
        assert_eq!(Toolchain::host().unwrap(), found);
        assert!(!found.builds_core());
        assert!(found.describe().contains(host.trim()), "{}", found.describe());
    }

    #[test]
    fn a_missing_target_gets_the_command_that_installs_it() {
        let empty = tempfile::tempdir().unwrap();
        let candidates = [("bare".to_owned(), empty.path().to_owned())];
        let error = Toolchain::find_among("thumbv6m-none-eabi", &candidates).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("`rustup target add thumbv6m-none-eabi`"), "{message}");
        assert!(message.contains("bare: has neither"), "{message}");
    }

    #[test]
    fn a_toolchain_whose_compiler_does_not_run_is_passed_over() {
        let fake = tempfile::tempdir().unwrap();
        let library = fake.path().join("lib/rustlib/src/rust/library/core");
        fs::create_dir_all(&library).unwrap();
        fs::write(library.join("Cargo.toml"), "").unwrap();
        let candidates = [("fake".to_owned(), fake.path().to_owned())];
        let error = Toolchain::find_among("thumbv6m-none-eabi", &candidates).unwrap_err();
        assert!(error.to_string().contains("fake: older than 1.95"), "{error}");
    }

    #[test]
    fn a_system_is_foreign_by_its_cpu_too() {
        let own = format!("{}-unknown-linux-gnu", env::consts::ARCH);
        assert_eq!(foreign_linux(&own).is_none(), cfg!(target_os = "linux"));
        assert_eq!(foreign_linux("mips-unknown-linux-gnu").as_deref(), Some("mips-linux-gnu"));
        assert_eq!(foreign_linux("thumbv6m-none-eabi"), None);
        let error = linker_for("mips-unknown-linux-gnu", Path::new("/none"), &[]).unwrap_err().to_string();
        assert!(error.contains("mips-linux-gnu-gcc is not in PATH"), "{error}");
    }

    #[test]
    fn releases_are_read_from_the_compiler() {
        assert_eq!(parse_release("rustc 1.96.0\nrelease: 1.96.0\n"), Some((1, 96)));
        assert_eq!(parse_release("release: 1.99.0-nightly"), Some((1, 99)));
        assert_eq!(parse_release("release: next"), None);
        assert_eq!(parse_release(""), None);
    }

    #[test]
    fn variables_that_steer_a_build_are_told_from_those_that_reach_the_registry() {
        for name in ["RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_PROFILE_RELEASE_PANIC"] {
            assert!(steers_a_build(name), "{name}");
        }
        for name in ["PATH", "CARGO_HOME", "CARGO_NET_OFFLINE", "HTTPS_PROXY"] {
            assert!(!steers_a_build(name), "{name}");
        }
    }
}
