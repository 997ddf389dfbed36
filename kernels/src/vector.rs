//! Vectors of float32: one algorithm, compiled for each width that a CPU has.
//!
//! A row that is written over [`Vector`] has a portable body over [`Plain`], and on x86-64 hosts one that takes
//! the widest vectors of the CPU it runs on (`native!`). The wide ones multiply and add with one rounding, and in
//! the same order whatever their width, so AVX2 and AVX-512 give the same bits.

/// A vector register of float32.
#[allow(dead_code, reason = "some are for rows of hosts alone")]
pub(crate) trait Vector: Copy {
    /// Its elements.
    const LANES: usize;
    /// Rows of a tile of products whose sums, two vectors a row, stay in registers.
    const ROWS: usize;
    /// A truth for each lane.
    type Mask: Copy;

    /// Zeros.
    ///
    /// # Safety
    ///
    /// The CPU has these vectors; so for every function here.
    unsafe fn zero() -> Self;
    /// The elements at `from`, at any alignment of theirs.
    ///
    /// # Safety
    ///
    /// They can be read.
    unsafe fn load(from: *const f32) -> Self;
    /// The first `n` elements at `from`, and zeros.
    ///
    /// # Safety
    ///
    /// These `n` can be read; no other is.
    unsafe fn load_part(from: *const f32, n: usize) -> Self;
    /// `value` in every lane.
    ///
    /// # Safety
    ///
    /// As for [`Vector::zero`].
    unsafe fn splat(value: f32) -> Self;
    /// `self + a * b`.
    ///
    /// # Safety
    ///
    /// As for [`Vector::zero`].
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self;
    /// `self + other`.
    ///
    /// # Safety
    ///
    /// As for [`Vector::zero`].
    unsafe fn plus(self, other: Self) -> Self;
    /// At least `low` and at most `high`; what is not a number stays so.
    ///
    /// # Safety
    ///
    /// As for [`Vector::zero`].
    unsafe fn clamp(self, low: Self, high: Self) -> Self;
    /// Where `self` is larger than `other`; nothing that is not a number is or has.
    ///
    /// # Safety
    ///
    /// As for [`Vector::zero`].
    unsafe fn above(self, other: Self) -> Self::Mask;
    /// Where `self` equals `other`.
    ///
    /// # Safety
    ///
    /// As for [`Vector::zero`].
    unsafe fn equal(self, other: Self) -> Self::Mask;
    /// `then` where `condition` is true, elsewhere `other`.
    ///
    /// # Safety
    ///
    /// As for [`Vector::zero`].
    unsafe fn select(condition: Self::Mask, then: Self, other: Self) -> Self;
    /// Writes the elements to `to`.
    ///
    /// # Safety
    ///
    /// They can be written.
    unsafe fn store(self, to: *mut f32);
    /// Writes the first `n` elements to `to`.
    ///
    /// # Safety
    ///
    /// These `n` can be written; no other is.
    unsafe fn store_part(self, to: *mut f32, n: usize);
    /// Says that the line of memory at `at` is wanted soon; any address will do.
    #[inline(always)]
    fn prefetch(at: *const f32) {
        let _ = at;
    }
}

/// Vectors that any CPU can imitate.
#[derive(Clone, Copy)]
pub(crate) struct Plain([f32; 4]);

impl Plain {
    #[inline(always)]
    fn zip(self, other: Plain, f: impl Fn(f32, f32) -> f32) -> Plain {
        let mut result = self;
        for (a, b) in result.0.iter_mut().zip(other.0) {
            *a = f(*a, b);
        }
        result
    }
}

impl Vector for Plain {
    const LANES: usize = 4;
    const ROWS: usize = 4;
    type Mask = [bool; 4];

    #[inline(always)]
    unsafe fn zero() -> Plain {
        Plain([0.0; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Plain {
        // SAFETY: the caller's promise.
        Plain(unsafe { from.cast::<[f32; 4]>().read() })
    }

    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> Plain {
        let mut lanes = [0.0; 4];
        for (i, lane) in lanes.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise.
            *lane = unsafe { from.wrapping_add(i).read() };
        }
        Plain(lanes)
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Plain {
        Plain([value; 4])
    }

    #[inline(always)]
    unsafe fn multiply_add(self, a: Plain, b: Plain) -> Plain {
        self.zip(a.zip(b, |a, b| a * b), |sum, product| sum + product)
    }

    #[inline(always)]
    unsafe fn plus(self, other: Plain) -> Plain {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn clamp(self, low: Plain, high: Plain) -> Plain {
        let above = self.zip(low, |x, low| if x < low { low } else { x });
        above.zip(high, |x, high| if x > high { high } else { x })
    }

    #[inline(always)]
    unsafe fn above(self, other: Plain) -> [bool; 4] {
        let ([a, b, c, d], [p, q, r, s]) = (self.0, other.0);
        [a > p, b > q, c > r, d > s]
    }

    #[inline(always)]
    unsafe fn equal(self, other: Plain) -> [bool; 4] {
        let ([a, b, c, d], [p, q, r, s]) = (self.0, other.0);
        [a == p, b == q, c == r, d == s]
    }

    #[inline(always)]
    unsafe fn select(condition: [bool; 4], then: Plain, other: Plain) -> Plain {
        let mut result = other;
        for ((lane, then), condition) in result.0.iter_mut().zip(then.0).zip(condition) {
            *lane = if condition { then } else { *lane };
        }
        result
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 4]>().write(self.0) };
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize) {
        for (i, lane) in self.0.into_iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { to.wrapping_add(i).write(lane) };
        }
    }
}

#[cfg(all(feature = "host", target_arch = "x86_64"))]
pub(crate) use crate::vector_x86_64::{Avx2, Avx512};

/// The native row of a portable one: a body over the widest vectors that the CPU at hand has, or where it has none of
/// them `plain`. It runs on every x86-64 CPU, so a session may list it anywhere.
#[cfg(feature = "host")]
macro_rules! native {
    ($row:expr, $check:expr, $body:ident) => {
        crate::vector::native!($row, $check, $body, $body::<crate::vector::Plain>)
    };
    ($row:expr, $check:expr, $body:ident, $plain:expr) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2(call: &kiln_core::Call<'_>) {
                // SAFETY: the caller's promise; the CPU has AVX2 and FMA where this is called.
                unsafe { $body::<crate::vector::Avx2>(call) }
            }
            #[target_feature(enable = "avx2,fma,avx512f")]
            unsafe fn avx512(call: &kiln_core::Call<'_>) {
                // SAFETY: the caller's promise; the CPU has AVX-512 where this is called.
                unsafe { $body::<crate::vector::Avx512>(call) }
            }
            unsafe fn widest(call: &kiln_core::Call<'_>) {
                // SAFETY: the caller's promise is the body's; the CPU has what was found.
                unsafe {
                    match crate::vector::Width::found() {
                        crate::vector::Width::Avx512 => avx512(call),
                        crate::vector::Width::Avx2 => avx2(call),
                        crate::vector::Width::Plain => $plain(call),
                    }
                }
            }
            // SAFETY: the check is the portable row's, and the body too, but for the vectors.
            Some(unsafe { kiln_core::Row::new($row.number(), $row.align(), $row.over_read(), $check, widest) })
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            None
        }
    }};
}

#[cfg(feature = "host")]
pub(crate) use native;

/// The widest vectors of an x86-64 CPU.
#[derive(Clone, Copy)]
#[cfg(all(feature = "host", target_arch = "x86_64"))]
pub(crate) enum Width {
    /// None of those below.
    Plain,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512.
    Avx512,
}

#[cfg(all(feature = "host", target_arch = "x86_64"))]
impl Width {
    /// What the CPU at hand has; it is asked once. `KILN_WIDEST=avx2` or `plain` in the environment makes it less, so
    /// that all bodies can be tested on one CPU.
    pub(crate) fn found() -> Width {
        static FOUND: std::sync::OnceLock<Width> = std::sync::OnceLock::new();
        *FOUND.get_or_init(|| {
            use std::arch::is_x86_feature_detected;
            let most = std::env::var("KILN_WIDEST").unwrap_or_default();
            if most == "plain" || !is_x86_feature_detected!("avx2") || !is_x86_feature_detected!("fma") {
                Width::Plain
            } else if most == "avx2" || !is_x86_feature_detected!("avx512f") {
                Width::Avx2
            } else {
                Width::Avx512
            }
        })
    }
}
