//! The running computer as a board.

use crate::{Isa, IsaFamily, IsaFeature};

/// The target triple this crate was built for.
pub(crate) const TARGET: &str = env!("KILN_BOARDS_TARGET");

/// The instruction set of the CPU this is running on.
pub(crate) fn isa() -> Isa {
    Isa { family: family(), features: features() }
}

fn family() -> IsaFamily {
    if cfg!(target_arch = "x86_64") {
        IsaFamily::X86_64
    } else if cfg!(target_arch = "aarch64") {
        IsaFamily::Aarch64
    } else {
        IsaFamily::Portable
    }
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<IsaFeature> {
    // SSE2 is part of every x86-64 CPU, so there always is a floating-point unit.
    let mut found = vec![IsaFeature::Fpu];
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        found.push(IsaFeature::Avx2);
    }
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
    {
        found.push(IsaFeature::Avx512);
        if is_x86_feature_detected!("avx512vnni") {
            found.push(IsaFeature::Avx512Vnni);
        }
    }
    found
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<IsaFeature> {
    let mut found = vec![IsaFeature::Fpu, IsaFeature::Neon];
    if std::arch::is_aarch64_feature_detected!("dotprod") {
        found.push(IsaFeature::Dotprod);
    }
    if std::arch::is_aarch64_feature_detected!("i8mm") {
        found.push(IsaFeature::I8mm);
    }
    found
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<IsaFeature> {
    Vec::new()
}
