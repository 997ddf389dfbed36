//! A Cargo workspace of generated crates and a program that uses them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::{env, fs};

use kiln_codegen::model_crate::ModelCrate;
use kiln_core::TargetId;
use kiln_planner::graph::Graph;
use kiln_planner::{Options, Planned, plan};

/// Crates and the program, written but not built.
pub(crate) struct Workspace {
    directory: tempfile::TempDir,
    members: Vec<String>,
}

impl Workspace {
    pub(crate) fn new() -> Workspace {
        Workspace { directory: tempfile::tempdir().unwrap(), members: Vec::new() }
    }

    /// Adds the crate of a graph, planned for a microcontroller, and gives the plan.
    pub(crate) fn add(&mut self, graph: &Graph) -> Planned {
        let planned = plan(graph, &Options::for_target(TargetId::ARMV7EM)).unwrap();
        self.add_planned(graph, &planned);
        planned
    }

    /// Adds the crate of a graph that was planned.
    pub(crate) fn add_planned(&mut self, graph: &Graph, planned: &Planned) {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let model = ModelCrate { graph, planned, board: "mps2-an386", sources: &sources };
        model.write(&self.directory.path().join(model.package())).unwrap();
        self.members.push(model.package());
    }

    /// Writes the manifests, and a program that depends on every crate.
    pub(crate) fn write(&self, main: &str) {
        let root = self.directory.path();
        let members: Vec<String> = self.members.iter().map(|name| format!("{name:?}, ")).collect();
        let manifest = format!("[workspace]\nresolver = \"3\"\nmembers = [{}\"program\"]\n", members.concat());
        fs::write(root.join("Cargo.toml"), manifest).unwrap();
        let dependencies: Vec<String> =
            self.members.iter().map(|name| format!("{name} = {{ path = \"../{name}\" }}\n")).collect();
        let manifest =
            format!("[package]\nname = \"program\"\nedition = \"2024\"\n\n[dependencies]\n{}", dependencies.concat());
        fs::create_dir_all(root.join("program/src")).unwrap();
        fs::write(root.join("program/Cargo.toml"), manifest).unwrap();
        fs::write(root.join("program/src/main.rs"), main).unwrap();
        // The versions that this build uses, so that nothing is downloaded.
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
        fs::copy(lock, root.join("Cargo.lock")).unwrap();
        // Users' settings are the default ones, not this repository's.
        fs::write(root.join("rustfmt.toml"), "").unwrap();
    }

    /// Writes a file beside the program's `main.rs`.
    pub(crate) fn write_source(&self, path: &str, bytes: &[u8]) {
        let path = self.directory.path().join("program/src").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Runs cargo in the workspace and gives what it put out; built files are kept between runs.
    pub(crate) fn cargo(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo {}:\n{errors}", args.join(" "));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs cargo, which must fail, and gives what it says.
    pub(crate) fn refused(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(!output.status.success(), "cargo {} went well", args.join(" "));
        String::from_utf8(output.stderr).unwrap()
    }

    fn output(&self, args: &[&str]) -> Output {
        // The programs of all workspaces are called the same and lie in one directory: one at a time.
        static BUILT: Mutex<()> = Mutex::new(());
        let _alone = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        let target: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("model-crates");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(args).current_dir(self.directory.path()).env("CARGO_TARGET_DIR", target);
        cargo.env("CARGO_NET_OFFLINE", "true").env_remove("RUSTFLAGS").output().unwrap()
    }

    /// Formats nothing, but fails where rustfmt would change the generated crates.
    pub(crate) fn check_format(&self, names: &[&str]) {
        for name in names {
            let path = self.directory.path().join(name).join("src/lib.rs");
            let ran = Command::new("rustfmt").args(["--check", "--edition", "2024"]).arg(path).output();
            match ran {
                Err(error) => println!("skipped: no rustfmt ({error})"),
                Ok(output) => {
                    assert!(output.status.success(), "{name}:\n{}", String::from_utf8_lossy(&output.stdout));
                }
            }
        }
    }
}
