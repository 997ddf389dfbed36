//! Says which extensions the target's CPUs have that the compiler does not tell: `kiln_dsp`, packed multiplication of
//! Armv7E-M and Armv8-M mainline. On the latter it is optional, so that the assembler has to be told too.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(kiln_dsp)");
    println!("cargo::rustc-check-cfg=cfg(kiln_dsp_optional)");
    let target = std::env::var("TARGET").unwrap_or_default();
    let optional = target.starts_with("thumbv8m.main-");
    if optional {
        println!("cargo::rustc-cfg=kiln_dsp_optional");
    }
    if optional || target.starts_with("thumbv7em-") {
        println!("cargo::rustc-cfg=kiln_dsp");
    }
}
