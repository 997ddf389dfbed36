//! Says which extensions the target's CPUs have that the compiler does not tell: `kiln_dsp`, packed multiplication of
//! Armv7E-M and Armv8-M mainline. On the latter it is optional, so that the assembler has to be told too. And `kiln_armv6m`, a CPU
//! whose products have 32 bits.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(kiln_dsp)");
    println!("cargo::rustc-check-cfg=cfg(kiln_dsp_optional)");
    println!("cargo::rustc-check-cfg=cfg(kiln_armv6m)");
    let target = std::env::var("TARGET").unwrap_or_default();
    let optional = target.starts_with("thumbv8m.main-");
    if optional {
        println!("cargo::rustc-cfg=kiln_dsp_optional");
    }
    if optional || target.starts_with("thumbv7em-") {
        println!("cargo::rustc-cfg=kiln_dsp");
    }
    if target.starts_with("thumbv6m-") {
        println!("cargo::rustc-cfg=kiln_armv6m");
    }
}
