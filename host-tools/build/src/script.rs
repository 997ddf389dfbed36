//! What a build script calls.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use kiln_boards::Board;
use kiln_codegen::fit::{options_for, shortages};
use kiln_codegen::model_crate::{ModelCrate, identifier};
use kiln_planner::Options;

use crate::BuildError;
use crate::model_file::ModelFile;

/// Variable that names the board, where the build script does not.
pub const BOARD_VARIABLE: &str = "KILN_BOARD";

/// A model to be planned by a build script.
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `compile` is called"]
pub struct Model {
    path: PathBuf,
    name: Option<String>,
    board: Option<String>,
    shared_arena: bool,
}

/// A model that was planned, and what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// What `include_model!` calls it.
    pub name: String,
    /// The board it was planned for.
    pub board: String,
    /// Bytes of RAM it works in.
    pub ram_bytes: u64,
    /// Bytes of the plan with its constants, in flash.
    pub plan_bytes: u64,
}

/// What cargo tells a build script.
struct Surroundings {
    out: PathBuf,
    target: String,
    host: String,
    board: Option<String>,
}

impl Model {
    /// A model file, `.tflite` or `.kiln` with its graph; its path is relative to the package.
    pub fn new(path: impl Into<PathBuf>) -> Model {
        Model { path: path.into(), name: None, board: None, shared_arena: false }
    }

    /// What the module is called; by default, what the file is called, or its folder where that is `model`; or what a
    /// `.kiln` file calls the model.
    pub fn name(mut self, name: impl Into<String>) -> Model {
        self.name = Some(name.into());
        self
    }

    /// The board to plan for: a name from `kiln boards`, or the path of a board's `.toml` file, relative to the package.
    ///
    /// Without this the variable `KILN_BOARD` names it; without either, what is built for this computer is planned for
    /// it, and anything else is an error that lists the boards of the target. A board that is named is kept whatever is
    /// built for: its plan also runs on this computer, so that `cargo test` runs what the board gets, byte for byte.
    pub fn board(mut self, board: impl Into<String>) -> Model {
        self.board = Some(board.into());
        self
    }

    /// Keeps the model's state apart from its arena, which models that take turns share: the module then has `Parked`, as a
    /// crate from `kiln compile --shared-arena` does.
    pub fn shared_arena(mut self) -> Model {
        self.shared_arena = true;
        self
    }

    /// Plans the model and writes it to where `include_model!` finds it. On an error, cargo shows its message and the
    /// build ends.
    pub fn compile(self) {
        if let Err(error) = self.try_compile() {
            for line in error.to_string().lines() {
                println!("cargo::error={line}");
            }
            std::process::exit(1);
        }
    }

    /// The same, for a build script that does something else about errors, or wants to know what the model needs.
    ///
    /// # Errors
    ///
    /// [`BuildError`]; cargo has been told then when to run the script again.
    pub fn try_compile(self) -> Result<Compiled, BuildError> {
        let variable = |name| env::var(name).map_err(|_| BuildError::NoCargo(name));
        println!("cargo::rerun-if-env-changed={BOARD_VARIABLE}");
        println!("cargo::rerun-if-changed={}", self.path.display());
        let compiled = self.compile_in(&Surroundings {
            out: env::var_os("OUT_DIR").ok_or(BuildError::NoCargo("OUT_DIR"))?.into(),
            target: variable("TARGET")?,
            host: variable("HOST")?,
            board: env::var(BOARD_VARIABLE).ok().filter(|name| !name.is_empty()),
        })?;
        Ok(compiled)
    }

    fn compile_in(&self, around: &Surroundings) -> Result<Compiled, BuildError> {
        let board = self.find_board(around)?;
        let file = ModelFile::read(&self.path)?;
        let mut graph = file.graph()?;
        let name = self.name.as_ref().unwrap_or(&file.name);
        let instead = identifier(name);
        if self.name.is_some() && instead != *name {
            return Err(BuildError::Name { name: name.clone(), instead });
        }
        graph.name = instead;
        let options = Options { shared_arena: self.shared_arena, ..options_for(&board) };
        let planned = file.plan(&graph, &options)?;
        let short = shortages(&planned, &board);
        if !short.is_empty() {
            return Err(BuildError::DoesNotFit { model: self.path.clone(), board: board.name, short });
        }
        // The crates a manifest would name; a module has none.
        let sources = Path::new("");
        let text = ModelCrate { graph: &graph, planned: &planned, board: &board.name, sources }.module();
        let directory = around.out.join(&graph.name);
        write(&directory.join("plan.bin"), &planned.bytes)?;
        write(&directory.join("model.rs"), text.as_bytes())?;
        Ok(Compiled {
            name: graph.name,
            board: board.name,
            ram_bytes: planned.ram_bytes,
            plan_bytes: planned.bytes.len() as u64,
        })
    }

    fn find_board(&self, around: &Surroundings) -> Result<Board, BuildError> {
        let Some(named) = self.board.as_ref().or(around.board.as_ref()) else {
            if around.target == around.host {
                return Ok(Board::load("host")?);
            }
            let of_target = |board: &Board| board.target == around.target;
            let boards = Board::all()?.into_iter().filter(of_target).map(|board| board.name).collect();
            return Err(BuildError::NoBoard { model: self.path.clone(), boards });
        };
        if Path::new(named).extension().is_some_and(|extension| extension == "toml") {
            println!("cargo::rerun-if-changed={named}");
        }
        Ok(Board::load(named)?)
    }
}

/// Writes a file of the build's own, unless it is as it should be: cargo would build anew what includes it.
fn write(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    let written = match fs::read(path) {
        Ok(old) if old == bytes => Ok(()),
        _ => path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, bytes)),
    };
    written.map_err(|source: io::Error| BuildError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sine/model/model.kiln");

    fn around(out: &Path, target: &str, board: Option<&str>) -> Surroundings {
        Surroundings {
            out: out.to_owned(),
            target: target.into(),
            host: "x86_64-unknown-linux-gnu".into(),
            board: board.map(str::to_owned),
        }
    }

    fn message(model: &Model, target: &str, board: Option<&str>) -> String {
        let out = tempfile::tempdir().unwrap();
        let message = model.compile_in(&around(out.path(), target, board)).unwrap_err().to_string();
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "something was written");
        message
    }

    #[test]
    fn the_module_is_the_crate_without_what_a_crate_has() {
        let out = tempfile::tempdir().unwrap();
        let done = Model::new(SINE)
            .name("wave")
            .board("mps2-an386")
            .compile_in(&around(out.path(), "thumbv7em-none-eabihf", Some("no such board")))
            .unwrap();
        assert_eq!((done.name.as_str(), done.board.as_str(), done.ram_bytes), ("wave", "mps2-an386", 28));
        let plan = fs::read(out.path().join("wave/plan.bin")).unwrap();
        assert_eq!(plan.len() as u64, done.plan_bytes);

        let file = ModelFile::read(Path::new(SINE)).unwrap();
        let mut graph = file.graph().unwrap();
        graph.name = "wave".into();
        let planned = file
            .plan(&graph, &Options::for_target(kiln_codegen::target_of(&Board::load("mps2-an386").unwrap())))
            .unwrap();
        let krate = ModelCrate { graph: &graph, planned: &planned, board: "mps2-an386", sources: Path::new("/kiln") };
        let krate = krate.files().unwrap();
        assert!(plan == krate.plan);
        let module = fs::read_to_string(out.path().join("wave/model.rs")).unwrap();
        // `include!` takes no attributes on the whole.
        assert!(!module.contains("#![") && !module.contains("//!"), "{module}");
        let items = |text: &str| text[text.find("use kiln_core::{").unwrap()..].to_owned();
        assert_eq!(items(&module), items(&krate.lib));
    }

    #[test]
    fn the_board_is_named_or_known() {
        let [arm, host] = ["thumbv7em-none-eabihf", "x86_64-unknown-linux-gnu"];
        let model = Model::new(SINE).name("sine");
        let out = tempfile::tempdir().unwrap();
        let board = |target, board| model.compile_in(&around(out.path(), target, board)).unwrap().board;
        assert_eq!(board(host, None), "host");
        assert_eq!(board(arm, Some("microbit")), "microbit");
        let message = message(&model, arm, None);
        assert!(
            message.contains("set KILN_BOARD=NAME; boards of this target: ") && message.contains("mps2-an386"),
            "{message}"
        );
        assert!(!message.contains("microbit"), "{message}");
    }

    #[test]
    fn errors_name_what_is_wrong_and_leave_nothing() {
        let arm = "thumbv7em-none-eabihf";
        let missing = Model::new("no/such.tflite").board("mps2-an386");
        assert_eq!(message(&missing, arm, None), "no/such.tflite: there is no such file");
        let named = Model::new(SINE).name("my model").board("mps2-an386");
        assert!(message(&named, arm, None).contains("try `my_model`"));
        let unknown = Model::new(SINE).board("mps2-an387");
        assert!(message(&unknown, arm, None).contains("mps2-an386"));
        let directory = tempfile::tempdir().unwrap();
        let tiny = directory.path().join("tiny.toml");
        let board = include_str!("../../../boards/mps2-an386.toml");
        fs::write(&tiny, board.replacen("bytes = 0x40_0000", "bytes = 2000", 1)).unwrap();
        // The plan of 1,337 bytes alone would: code counts too, as `kiln plan` counts it.
        let tight = Model::new(SINE).board(tiny.to_str().unwrap());
        let message = message(&tight, arm, None);
        assert!(message.contains("flash region CODE: ") && message.contains("needed, 2000 available"), "{message}");
    }

    #[test]
    fn what_is_the_same_is_not_written_again() {
        let out = tempfile::tempdir().unwrap();
        let compile = |board| {
            Model::new(SINE).name("sine").board(board).compile_in(&around(out.path(), "riscv", None)).unwrap();
            let paths = ["sine/model.rs", "sine/plan.bin"].map(|name| out.path().join(name));
            paths.map(|path| (fs::metadata(&path).unwrap().modified().unwrap(), path))
        };
        for (_, path) in compile("mps2-an386") {
            let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
            fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
        }
        let [one, two] = [compile("mps2-an386"), compile("microbit")];
        assert!(one.iter().zip(&two).all(|(same, changed)| same.0 < changed.0));
    }
}
