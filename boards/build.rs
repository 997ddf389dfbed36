//! Embeds every board file of this directory, so that adding a board is adding one file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // The directory itself is watched, so that a new file triggers a rebuild as well.
    println!("cargo::rerun-if-changed={}", root.display());

    let mut files: Vec<PathBuf> = fs::read_dir(&root)
        .expect("the crate's own directory is readable")
        .map(|entry| entry.expect("the crate's own directory is readable").path())
        .filter(|path| is_board_file(path))
        .collect();
    // Directory order differs between file systems; the list of boards must not.
    files.sort();

    let mut list = String::from("&[\n");
    for file in &files {
        let stem = file.file_stem().expect("a .toml file has a stem").to_string_lossy();
        let path = file.to_str().expect("board file names are UTF-8");
        writeln!(list, "    ({stem:?}, include_str!({path:?})),").expect("a String accepts text");
    }
    list.push(']');
    fs::write(out.join("boards.rs"), list).expect("OUT_DIR is writable");

    let target = env::var("TARGET").expect("cargo sets it");
    println!("cargo::rustc-env=KILN_BOARDS_TARGET={target}");
}

fn is_board_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
        && path.file_name().is_some_and(|name| name != "Cargo.toml")
}
