//! The most floating-point operations a core does: independent multiply-adds over registers.

use std::time::Instant;

/// Multiply-adds of one measurement for each of [`CHAINS`] registers.
const STEPS: u64 = 4_000_000;
/// Registers that are summed in, enough to hide the latency of each.
const CHAINS: u64 = 12;

/// The best of several measurements, for each width: GFLOP/s.
pub fn measure() -> Vec<(&'static str, f64)> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            // SAFETY: the CPU has these instructions.
            found.push(("AVX2 and FMA", best(8, || unsafe { avx2() })));
        }
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has these instructions.
            found.push(("AVX-512", best(16, || unsafe { avx512() })));
        }
    }
    found
}

fn best(lanes: u64, mut run: impl FnMut()) -> f64 {
    let times = (0..20).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    (2 * lanes * CHAINS * STEPS) as f64 / times.fold(f64::INFINITY, f64::min) / 1e9
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
