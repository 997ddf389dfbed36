//! Says which extensions the target's CPUs have that the compiler does not tell: `kiln_dsp`, packed multiplication of
//! Armv7E-M and Armv8-M mainline, `kiln_fpu`, floating point of single precision beside it, which the triple names, and `kiln_mve`, the
//! vectors of Armv8.1-M. On Armv8-M packed multiplication and vectors are optional, so that the assembler has to be told too. Armv8.1-M has
//! no triple of its own: its firmware is built for Armv8-M, and only its plans name rows with vectors. And `kiln_armv6m`, a CPU whose
//! products have 32 bits, `kiln_armv7m`, one without the extension, and `kiln_rv32im`, RISC-V of 32 bits that multiplies.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(kiln_dsp)");
    println!("cargo::rustc-check-cfg=cfg(kiln_dsp_optional)");
    println!("cargo::rustc-check-cfg=cfg(kiln_armv6m)");
    println!("cargo::rustc-check-cfg=cfg(kiln_fpu)");
    println!("cargo::rustc-check-cfg=cfg(kiln_mve)");
    println!("cargo::rustc-check-cfg=cfg(kiln_armv7m)");
    println!("cargo::rustc-check-cfg=cfg(kiln_rv32im)");
    let target = std::env::var("TARGET").unwrap_or_default();
    let optional = target.starts_with("thumbv8m.main-");
    if optional {
        println!("cargo::rustc-cfg=kiln_dsp_optional");
    }
    // Vectors are in the registers of floating point.
    if target == "thumbv8m.main-none-eabihf" {
        println!("cargo::rustc-cfg=kiln_mve");
    }
    if optional || target.starts_with("thumbv7em-") {
        println!("cargo::rustc-cfg=kiln_dsp");
        if target.ends_with("-eabihf") {
            println!("cargo::rustc-cfg=kiln_fpu");
        }
    }
    if target.starts_with("thumbv6m-") {
        println!("cargo::rustc-cfg=kiln_armv6m");
    }
    if target.starts_with("thumbv7m-") {
        println!("cargo::rustc-cfg=kiln_armv7m");
    }
    if target.starts_with("riscv32im") {
        println!("cargo::rustc-cfg=kiln_rv32im");
    }
}
