//! The most floating-point operations a core does: independent multiply-adds over registers.

/// Multiply-adds of one measurement for each of [`CHAINS`] registers.
const STEPS: u64 = 400_000;
/// Registers that are summed in, enough to hide the latency of each.
const CHAINS: u64 = 12;

/// For each width that the CPU has its name, floating-point operations, and the function that does them.
pub fn contestants() -> Vec<(&'static str, f64, fn())> {
    let mut found: Vec<(&'static str, f64, fn())> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let flops = |lanes: u64| (2 * lanes * CHAINS * STEPS) as f64;
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            // SAFETY: the CPU has these instructions.
            found.push(("peak AVX2", flops(8), || unsafe { avx2() }));
        }
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has these instructions.
            found.push(("peak AVX-512", flops(16), || unsafe { avx512() }));
        }
    }
    found
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2() {
    use std::arch::x86_64::*;
    let (a, b) = std::hint::black_box((_mm256_set1_ps(0.999), _mm256_set1_ps(1e-3)));
    let mut sums = [_mm256_setzero_ps(); CHAINS as usize];
    for _ in 0..STEPS {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, a, b);
        }
    }
    std::hint::black_box(sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512() {
    use std::arch::x86_64::*;
    let (a, b) = std::hint::black_box((_mm512_set1_ps(0.999), _mm512_set1_ps(1e-3)));
    let mut sums = [_mm512_setzero_ps(); CHAINS as usize];
    for _ in 0..STEPS {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, a, b);
        }
    }
    std::hint::black_box(sums);
}
