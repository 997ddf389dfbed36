//! Tells the linker where memory is, and in which order its scripts come.

fn main() {
    let directory = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::rustc-link-search={directory}");
    println!("cargo::rerun-if-changed=memory.x");
    println!("cargo::rerun-if-changed=boot2.x");
    // Sections lie where the scripts say, without gaps up to the next page.
    println!("cargo::rustc-link-arg-bins=--nmagic");
    // References stay in the ELF file, so that Kiln can prove what its part of the firmware never calls.
    println!("cargo::rustc-link-arg-bins=--emit-relocs");
    println!("cargo::rustc-link-arg-bins=-Tlink.x");
    println!("cargo::rustc-link-arg-bins=-Tboot2.x");
}
