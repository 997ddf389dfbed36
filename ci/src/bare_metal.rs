//! `kiln-core`, `kiln-ops` and `kiln-kernels` build for bare metal without `alloc`, and without a warning, which every user would see.
//!
//! The proof is the compiler's: a static library without a global allocator does not build if any
//! crate below it links `alloc`. That this check can fail is checked by planting one that does.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use kiln_codegen::toolchain::Toolchain;

/// A CPU without atomics by compare-and-swap and division, one that has all of Arm's extensions, and one that is no Arm.
const TARGETS: [&str; 3] = ["thumbv6m-none-eabi", "thumbv8m.main-none-eabihf", "riscv32imc-unknown-none-elf"];

const MANIFEST: &str = r#"[package]
name = "no-alloc-proof"
version = "0.1.0"
edition = "2024"

[lib]
crate-type = ["staticlib"]

[dependencies]
kiln-core = { path = "ROOT/core" }
kiln-ops = { path = "ROOT/core/ops" }
kiln-kernels = { path = "ROOT/kernels" }
PLANT_DEPENDENCY
[workspace]

[profile.dev]
panic = "abort"
"#;

const LIB: &str = r#"#![no_std]
pub use {kiln_core, kiln_kernels, kiln_ops};
PLANT_USE
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
"#;

/// Builds the proof for every target, and once with `alloc` planted, which must fail.
pub fn run() -> Result<()> {
    for target in TARGETS {
        let toolchain = Toolchain::find(target)?;
        build(&toolchain, false).with_context(|| format!("building for {target}"))?;
        println!("{target}: core, ops and kernels build without alloc ({})", toolchain.describe());
    }
    let toolchain = Toolchain::find(TARGETS[0])?;
    match build(&toolchain, true) {
        Ok(()) => bail!("a planted `extern crate alloc` went unnoticed: this check proves nothing"),
        Err(error) => {
            let text = format!("{error:#}");
            // With core alone built from source there is no alloc to be found; with an installed
            // target there is, but no allocator for it.
            if !text.contains("no global memory allocator found") && !text.contains("can't find crate for `alloc`") {
                bail!("the planted alloc failed for another reason: {text}");
            }
        }
    }
    println!("{}: a planted `extern crate alloc` is refused", TARGETS[0]);
    Ok(())
}

fn build(toolchain: &Toolchain, plant: bool) -> Result<()> {
    let root = crate::root();
    let directory = tempfile::tempdir()?;
    let source = directory.path().join("src");
    fs::create_dir_all(&source)?;
    let manifest = MANIFEST.replace("ROOT", &root.display().to_string());
    let (dependency, planted) = if plant {
        let krate = directory.path().join("plant");
        write_plant(&krate)?;
        ("plant = { path = \"plant\" }", "pub use plant;")
    } else {
        ("", "")
    };
    fs::write(directory.path().join("Cargo.toml"), manifest.replace("PLANT_DEPENDENCY", dependency))?;
    fs::write(source.join("lib.rs"), LIB.replace("PLANT_USE", planted))?;
    fs::copy(root.join("Cargo.lock"), directory.path().join("Cargo.lock"))?;
    let output = toolchain
        .cargo("build", &["-Dwarnings"])
        .args(["--color", "never", "--target-dir"])
        .arg(root.join("target/bare-metal"))
        .current_dir(directory.path())
        .output()
        .context("running cargo")?;
    if output.status.success() {
        return Ok(());
    }
    bail!("{}", String::from_utf8_lossy(&output.stderr))
}

fn write_plant(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory.join("src"))?;
    let manifest = "[package]\nname = \"plant\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    fs::write(directory.join("Cargo.toml"), manifest)?;
    let lib = "#![no_std]\nextern crate alloc;\npub fn grow(v: &mut alloc::vec::Vec<u8>) { v.push(1); }\n";
    fs::write(directory.join("src/lib.rs"), lib)?;
    Ok(())
}
