//! Runs firmware on an emulated board.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, io, thread};

use kiln_boards::{Board, Run};
use kiln_device::Exit;
use kiln_device::replay::{DUMP_FILE, INPUT_FILE, OUTPUT_FILE};
use wait_timeout::ChildExt;

use crate::dump::{DumpError, StepRecord, parse_dump};

/// How long a run may take where nothing else is asked for.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// An emulated run that did not come to its proper end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulateError {
    /// The board is not emulated.
    #[error("board {board} is not emulated: its `[run]` kind is neither `qemu` nor `qemu-user`")]
    NotEmulated {
        /// The board.
        board: String,
    },
    /// The emulator is not installed.
    #[error("board {board} needs {binary}, which is not in PATH; {}", how_to_install(binary))]
    NoEmulator {
        /// The board.
        board: String,
        /// The program.
        binary: String,
    },
    /// The emulator could not be started or watched.
    #[error("cannot run {binary}: {source}")]
    Start {
        /// The program.
        binary: String,
        /// Why.
        source: io::Error,
    },
    /// A file of the run could not be read or written.
    #[error("cannot use {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The firmware did not end in time.
    #[error(
        "{} did not end on board {board} within {} s; it was stopped{}",
        .elf.display(), .timeout.as_secs_f32(), printed(output)
    )]
    Timeout {
        /// The board.
        board: String,
        /// The firmware.
        elf: PathBuf,
        /// The time it had.
        timeout: Duration,
        /// What emulator and firmware printed.
        output: String,
    },
    /// The firmware or the emulator ended with an error.
    #[error(
        "{} ended on board {board} with {}{}",
        .elf.display(), status_meaning(*status), printed(output)
    )]
    Failed {
        /// The board.
        board: String,
        /// The firmware.
        elf: PathBuf,
        /// The exit status; none where a signal ended the emulator.
        status: Option<i32>,
        /// What emulator and firmware printed.
        output: String,
    },
    /// The firmware wrote records that cannot be read.
    #[error("the step records of {} cannot be read: {source}", .elf.display())]
    Dump {
        /// The firmware.
        elf: PathBuf,
        /// Why.
        source: DumpError,
    },
}

fn how_to_install(binary: &str) -> String {
    if !binary.starts_with("qemu-system-") {
        return "install it (Debian and Ubuntu: `apt-get install qemu-user`, Fedora: `dnf install qemu-user`; \
                it runs on Linux only)"
            .to_owned();
    }
    let system = binary.strip_prefix("qemu-system-").unwrap_or("misc");
    let (debian, fedora) = match system {
        "arm" | "aarch64" => ("qemu-system-arm", format!("qemu-system-{system}")),
        _ => ("qemu-system-misc", format!("qemu-system-{system}")),
    };
    format!(
        "install it (Debian and Ubuntu: `apt-get install {debian}`, Fedora: `dnf install {fedora}`, \
         macOS: `brew install qemu`)"
    )
}

fn status_meaning(status: Option<i32>) -> String {
    let Some(status) = status else {
        return "a signal".to_owned();
    };
    match Exit::from_status(status) {
        Some(exit) => format!("status {status}: {}", exit.meaning()),
        None => format!("status {status}, an error of the emulator itself"),
    }
}

fn printed(output: &str) -> String {
    match output.trim_end() {
        "" => String::new(),
        text => format!("; it printed:\n{text}"),
    }
}

/// A run of firmware on an emulated board.
#[derive(Clone, Debug)]
pub struct Emulation<'a> {
    /// The board; its `[run]` table must say `qemu` or `qemu-user`.
    pub board: &'a Board,
    /// The firmware, an ELF file.
    pub elf: &'a Path,
    /// The directory the firmware's files are in.
    pub directory: &'a Path,
    /// How long it may take: [`DEFAULT_TIMEOUT`] for want of better.
    pub timeout: Duration,
    /// Further arguments for the emulator, such as plugins.
    pub arguments: &'a [String],
}

/// The files a replay left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The outputs of every case, one after another.
    pub outputs: Vec<u8>,
    /// What each step of each case wrote, where the firmware was built to tell; else empty.
    pub steps: Vec<StepRecord>,
}

impl<'a> Emulation<'a> {
    /// A run with the default timeout and no further arguments.
    pub fn new(board: &'a Board, elf: &'a Path, directory: &'a Path) -> Self {
        Self { board, elf, directory, timeout: DEFAULT_TIMEOUT, arguments: &[] }
    }

    /// Runs the firmware to its end and returns what emulator and firmware printed.
    ///
    /// # Errors
    ///
    /// [`EmulateError`]; a status other than 0 is an error.
    pub fn run(&self) -> Result<String, EmulateError> {
        let board = || self.board.name.clone();
        let elf = || self.elf.to_owned();
        let (Run::Qemu { binary, .. } | Run::QemuUser { binary, .. }) = &self.board.run else {
            return Err(EmulateError::NotEmulated { board: board() });
        };
        let program =
            which::which(binary).map_err(|_| EmulateError::NoEmulator { board: board(), binary: binary.clone() })?;
        let kernel = std::path::absolute(self.elf)
            .and_then(|path| path.metadata().map(|_| path))
            .map_err(|source| EmulateError::File { path: elf(), source })?;
        let start = |source| EmulateError::Start { binary: binary.clone(), source };

        let mut child = self
            .command(&program, &kernel)
            .current_dir(self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(start)?;
        // Read while it runs: a full pipe would stop it.
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let status = match child.wait_timeout(self.timeout).map_err(start)? {
            Some(status) => Some(status),
            None => {
                // It may have ended by itself meanwhile, which is as good.
                let _ = child.kill();
                let _ = child.wait();
                None
            }
        };
        let output = [stdout, stderr].map(|reader| reader.join().unwrap_or_default()).concat();
        match status {
            None => Err(EmulateError::Timeout { board: board(), elf: elf(), timeout: self.timeout, output }),
            Some(status) if status.success() => Ok(output),
            Some(status) => Err(EmulateError::Failed { board: board(), elf: elf(), status: status.code(), output }),
        }
    }

    /// The emulator with its arguments.
    fn command(&self, program: &Path, elf: &Path) -> Command {
        let mut command = Command::new(program);
        match &self.board.run {
            Run::QemuUser { sysroot, .. } => {
                command.args(["-L", sysroot]).args(self.arguments);
            }
            Run::Qemu { machine, args, .. } => {
                command
                    .args(["-M", machine, "-display", "none", "-monitor", "none", "-serial", "none"])
                    .args(["-semihosting-config", "enable=on,target=native"])
                    .args(args)
                    .args(self.arguments)
                    .arg("-kernel");
            }
            // Refused before.
            _ => {}
        }
        command.arg(elf);
        command
    }

    /// Runs replay firmware over `cases`, the inputs of every case one after another, and returns
    /// what it wrote. The files stay in the directory.
    ///
    /// # Errors
    ///
    /// [`EmulateError`].
    pub fn replay(&self, cases: &[u8]) -> Result<Replayed, EmulateError> {
        let file = |name: &std::ffi::CStr| self.directory.join(name.to_string_lossy().as_ref());
        let [input, output, dump] = [INPUT_FILE, OUTPUT_FILE, DUMP_FILE].map(file);
        let failed = |path: &Path| {
            let path = path.to_owned();
            |source| EmulateError::File { path, source }
        };
        // What an earlier run left must not pass for the work of this one.
        for stale in [&output, &dump] {
            match fs::remove_file(stale) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(stale)(source));
                }
                _ => {}
            }
        }
        fs::write(&input, cases).map_err(failed(&input))?;
        self.run()?;
        let outputs = fs::read(&output).map_err(failed(&output))?;
        let steps = if dump.exists() {
            let bytes = fs::read(&dump).map_err(failed(&dump))?;
            let unreadable = |source| EmulateError::Dump { elf: self.elf.to_owned(), source };
            parse_dump(&bytes).map_err(unreadable)?
        } else {
            Vec::new()
        };
        Ok(Replayed { outputs, steps })
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is worth showing.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
