//! The vectors of x86-64 CPUs: for each its register, its width, the rows of a tile, and the intrinsics.

use core::arch::x86_64::*;

use crate::vector::Vector;
use crate::wide::Wide;

/// Eight ones and eight zeros: eight words from `8 - n` on have the first `n` set.
static FIRST: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// What takes more than one intrinsic, or takes its operands in another order, each named after what the macro below
/// makes of it. Safe to call where the CPU has the instructions, as everything here.
mod of_eight {
    use super::*;

    #[inline(always)]
    unsafe fn first(n: usize) -> __m256i {
        let from = FIRST.as_ptr().wrapping_add(8usize.wrapping_sub(n.min(8)));
        // SAFETY: eight words from the eighth or an earlier one.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    pub(super) unsafe fn load_part(from: *const f32, n: usize) -> __m256 {
        // SAFETY: the caller's promise for the first `n`; lanes that are off touch no memory.
        unsafe { _mm256_maskload_ps(from, first(n)) }
    }

    #[inline(always)]
    pub(super) unsafe fn store_part(to: *mut f32, n: usize, value: __m256) {
        // SAFETY: as above.
        unsafe { _mm256_maskstore_ps(to, first(n), value) }
    }

    #[inline(always)]
    pub(super) unsafe fn above(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the CPU has it; so below.
        unsafe { _mm256_cmp_ps::<_CMP_GT_OQ>(a, b) }
    }

    #[inline(always)]
    pub(super) unsafe fn equal(a: __m256, b: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b) }
    }

    #[inline(always)]
    pub(super) unsafe fn select(condition: __m256, then: __m256, other: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_blendv_ps(other, then, condition) }
    }

    #[inline(always)]
    pub(super) unsafe fn rounded(a: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }

    #[inline(always)]
    pub(super) unsafe fn floor(a: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_floor_ps(a) }
    }

    #[inline(always)]
    pub(super) unsafe fn bits(a: __m256) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_castps_si256(a) }
    }

    #[inline(always)]
    pub(super) unsafe fn of_bits(a: __m256i) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_castsi256_ps(a) }
    }
}

/// See [`of_eight`].
mod of_sixteen {
    use super::*;

    #[inline(always)]
    fn first(n: usize) -> __mmask16 {
        1u32.wrapping_shl(n.min(16) as u32).wrapping_sub(1) as __mmask16
    }

    #[inline(always)]
    pub(super) unsafe fn load_part(from: *const f32, n: usize) -> __m512 {
        // SAFETY: the caller's promise for the first `n`; lanes that are off touch no memory.
        unsafe { _mm512_maskz_loadu_ps(first(n), from) }
    }

    #[inline(always)]
    pub(super) unsafe fn store_part(to: *mut f32, n: usize, value: __m512) {
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_ps(to, first(n), value) }
    }

    #[inline(always)]
    pub(super) unsafe fn above(a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: the CPU has it; so below.
        unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b) }
    }

    #[inline(always)]
    pub(super) unsafe fn equal(a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: as above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b) }
    }

    #[inline(always)]
    pub(super) unsafe fn select(condition: __mmask16, then: __m512, other: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_mask_blend_ps(condition, other, then) }
    }

    #[inline(always)]
    pub(super) unsafe fn rounded(a: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }

    #[inline(always)]
    pub(super) unsafe fn floor(a: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a) }
    }

    #[inline(always)]
    pub(super) unsafe fn bits(a: __m512) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_castps_si512(a) }
    }

    #[inline(always)]
    pub(super) unsafe fn of_bits(a: __m512i) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_castsi512_ps(a) }
    }
}

macro_rules! vector {
    ($(#[$doc:meta])* $name:ident($register:ty) $lanes:literal by $rows:literal, $mask:ty, $more:ident;
     $zero:ident $load:ident $splat:ident $multiply_add:ident $add:ident $min:ident $max:ident $store:ident;
     $sub:ident $mul:ident $div:ident $sqrt:ident $set1:ident $and:ident $or:ident $xor:ident $and_not:ident $iadd:ident
     $isub:ident $shift:ident $to_int:ident $to_float:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name(pub(crate) $register);

        impl Vector for $name {
            const LANES: usize = $lanes;
            const ROWS: usize = $rows;
            type Mask = $mask;

            #[inline(always)]
            unsafe fn zero() -> $name {
                // SAFETY: the caller's promise, here and below, that the CPU has these instructions.
                $name(unsafe { $zero() })
            }

            #[inline(always)]
            unsafe fn load(from: *const f32) -> $name {
                // SAFETY: the caller's promise that the elements can be read; any alignment will do.
                $name(unsafe { $load(from) })
            }

            #[inline(always)]
            unsafe fn load_part(from: *const f32, n: usize) -> $name {
                // SAFETY: the caller's promise that the first `n` can be read; the others are not touched.
                $name(unsafe { $more::load_part(from, n) })
            }

            #[inline(always)]
            unsafe fn splat(value: f32) -> $name {
                // SAFETY: as in `zero`.
                $name(unsafe { $splat(value) })
            }

            #[inline(always)]
            unsafe fn multiply_add(self, a: $name, b: $name) -> $name {
                // SAFETY: as in `zero`.
                $name(unsafe { $multiply_add(a.0, b.0, self.0) })
            }

            #[inline(always)]
            unsafe fn plus(self, other: $name) -> $name {
                // SAFETY: as in `zero`.
                $name(unsafe { $add(self.0, other.0) })
            }

            #[inline(always)]
            unsafe fn clamp(self, low: $name, high: $name) -> $name {
                // Where one operand is not a number, the second one is the result.
                // SAFETY: as in `zero`.
                $name(unsafe { $min(high.0, $max(low.0, self.0)) })
            }

            #[inline(always)]
            unsafe fn above(self, other: $name) -> $mask {
                // SAFETY: as in `zero`.
                unsafe { $more::above(self.0, other.0) }
            }

            #[inline(always)]
            unsafe fn equal(self, other: $name) -> $mask {
                // SAFETY: as in `zero`.
                unsafe { $more::equal(self.0, other.0) }
            }

            #[inline(always)]
            unsafe fn select(condition: $mask, then: $name, other: $name) -> $name {
                // SAFETY: as in `zero`.
                $name(unsafe { $more::select(condition, then.0, other.0) })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: the caller's promise that the elements can be written.
                unsafe { $store(to, self.0) };
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut f32, n: usize) {
                // SAFETY: the caller's promise that the first `n` can be written; lanes that are off touch no memory.
                unsafe { $more::store_part(to, n, self.0) };
            }

            #[inline(always)]
            fn prefetch(at: *const f32) {
                // SAFETY: a hint, which SSE has and no address makes fail.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
            }
        }

        impl Wide for $name {
            #[inline(always)]
            unsafe fn minus(self, other: $name) -> $name {
                // SAFETY: the caller's promise, here and below, that the CPU has these instructions.
                $name(unsafe { $sub(self.0, other.0) })
            }

            #[inline(always)]
            unsafe fn times(self, other: $name) -> $name {
                // SAFETY: as above.
                $name(unsafe { $mul(self.0, other.0) })
            }

            #[inline(always)]
            unsafe fn over(self, other: $name) -> $name {
                // SAFETY: as above.
                $name(unsafe { $div(self.0, other.0) })
            }

            #[inline(always)]
            unsafe fn root(self) -> $name {
                // SAFETY: as above.
                $name(unsafe { $sqrt(self.0) })
            }

            #[inline(always)]
            unsafe fn rounded(self) -> $name {
                // SAFETY: as above.
                $name(unsafe { $more::rounded(self.0) })
            }

            #[inline(always)]
            unsafe fn floor(self) -> $name {
                // SAFETY: as above.
                $name(unsafe { $more::floor(self.0) })
            }

            #[inline(always)]
            unsafe fn negated(self) -> $name {
                // SAFETY: as above.
                $name(unsafe { $more::of_bits($xor($more::bits(self.0), $set1(i32::MIN))) })
            }

            #[inline(always)]
            unsafe fn magnitude(self) -> $name {
                // SAFETY: as above.
                $name(unsafe { $more::of_bits($and_not($set1(i32::MIN), $more::bits(self.0))) })
            }

            #[inline(always)]
            unsafe fn with_sign_of(self, other: $name) -> $name {
                // SAFETY: as above.
                unsafe {
                    let sign = $set1(i32::MIN);
                    let size = $and_not(sign, $more::bits(self.0));
                    $name($more::of_bits($or(size, $and(sign, $more::bits(other.0)))))
                }
            }

            #[inline(always)]
            unsafe fn two_to(self) -> $name {
                // SAFETY: as above.
                $name(unsafe { $more::of_bits($shift::<23>($iadd($to_int(self.0), $set1(127)))) })
            }

            #[inline(always)]
            unsafe fn split(self) -> ($name, $name) {
                const EXPONENT: i32 = 0xff80_0000u32 as i32;
                // SAFETY: as above.
                unsafe {
                    let bits = $more::bits(self.0);
                    let exponent = $and($isub(bits, $set1((2.0f32 / 3.0).to_bits() as i32)), $set1(EXPONENT));
                    let whole = $mul($to_float(exponent), $splat(1.0 / 8_388_608.0));
                    ($name($more::of_bits($isub(bits, exponent))), $name(whole))
                }
            }
        }
    };
}

vector! {
    /// AVX2 with FMA: 12 of 16 registers are sums.
    Avx2(__m256) 8 by 6, __m256, of_eight;
    _mm256_setzero_ps _mm256_loadu_ps _mm256_set1_ps _mm256_fmadd_ps _mm256_add_ps _mm256_min_ps _mm256_max_ps
    _mm256_storeu_ps;
    _mm256_sub_ps _mm256_mul_ps _mm256_div_ps _mm256_sqrt_ps _mm256_set1_epi32 _mm256_and_si256 _mm256_or_si256
    _mm256_xor_si256 _mm256_andnot_si256 _mm256_add_epi32 _mm256_sub_epi32 _mm256_slli_epi32 _mm256_cvtps_epi32
    _mm256_cvtepi32_ps
}
vector! {
    /// AVX-512: 24 of 32 registers are sums.
    Avx512(__m512) 16 by 12, __mmask16, of_sixteen;
    _mm512_setzero_ps _mm512_loadu_ps _mm512_set1_ps _mm512_fmadd_ps _mm512_add_ps _mm512_min_ps _mm512_max_ps
    _mm512_storeu_ps;
    _mm512_sub_ps _mm512_mul_ps _mm512_div_ps _mm512_sqrt_ps _mm512_set1_epi32 _mm512_and_si512 _mm512_or_si512
    _mm512_xor_si512 _mm512_andnot_si512 _mm512_add_epi32 _mm512_sub_epi32 _mm512_slli_epi32 _mm512_cvtps_epi32
    _mm512_cvtepi32_ps
}
