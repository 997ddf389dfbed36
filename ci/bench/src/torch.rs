//! PyTorch in a process of its own that waits for its turn.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};

/// The process.
pub struct Torch {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// What it says it is.
    pub version: String,
}

impl Torch {
    /// Starts `/usr/bin/python3`, Debian's, whose package is `python3-torch`.
    pub fn start() -> Result<Torch> {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", include_str!("torch.py")]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("/usr/bin/python3 does not start: install python3-torch")?;
        let to = process.stdin.take().context("a pipe")?;
        let from = BufReader::new(process.stdout.take().context("a pipe")?);
        let mut torch = Torch { process, to, from, version: String::new() };
        torch.version = torch.line()?;
        Ok(torch)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        anyhow::ensure!(!line.is_empty(), "PyTorch's process ended: see what it wrote");
        Ok(line.trim().to_owned())
    }

    /// Runs a workload once and gives its seconds.
    pub fn run(&mut self, threads: usize, kind: &str, size: usize) -> Result<f64> {
        writeln!(self.to, "{threads} {kind} {size}")?;
        Ok(self.line()?.parse()?)
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
