//! The arithmetic of `map`'s interpreter over the vectors of hosts.
//!
//! Registers are whole vectors, so only what is read from inputs has a rest, which is loaded as far as it goes: a
//! lane's result is the same wherever it lies.

use core::marker::PhantomData;

use kiln_ops::Function;

use crate::lanes::{Arithmetic, F32, Lanes};
use crate::wide::{self, Wide};

/// Like [`F32`], over vectors; what needs a mathematical library comes from [`crate::wide`], as far as it is there.
pub(crate) struct WideF32<V, const MATH: bool>(PhantomData<V>);

/// The elements at `x`, of which `left` can be read, if that is less than a vector's.
///
/// # Safety
///
/// They can be read; the CPU has these vectors.
#[inline(always)]
unsafe fn load<V: Wide>(x: *const f32, left: usize) -> V {
    // SAFETY: the caller's promise.
    unsafe { if left >= V::LANES { V::load(x) } else { V::load_part(x, left) } }
}

/// A truth as a number.
///
/// # Safety
///
/// The CPU has these vectors.
#[inline(always)]
unsafe fn truth<V: Wide>(mask: V::Mask) -> V {
    // SAFETY: the caller's promise.
    unsafe { V::select(mask, V::splat(1.0), V::zero()) }
}

impl<V: Wide, const MATH: bool> Arithmetic for WideF32<V, MATH> {
    type Element = f32;
    const ZERO: f32 = 0.0;

    fn from_byte(byte: u8) -> f32 {
        byte as f32
    }

    fn is_true(x: f32) -> bool {
        x != 0.0
    }

    fn from_bits(bits: u32) -> f32 {
        f32::from_bits(bits)
    }

    fn arity(code: u8) -> Option<usize> {
        F32::<MATH>::arity(code)
    }

    #[inline(always)]
    unsafe fn apply(code: u8, to: &mut Lanes<f32>, n: usize, x: [*const f32; 3]) {
        // SAFETY: the caller's promise, for as many operands as the function has. The CPU has these vectors wherever
        // a row over them runs.
        unsafe {
            let [a, b, c] = x;
            let (zero, one) = (V::zero(), V::splat(1.0));
            let count = n.min(to.len());
            // A register's size is a multiple of every vector's.
            let first = to.as_mut_ptr();
            // The arms of a `match` over codes, each a loop. Closures over vectors would not be inlined: they lack the
            // instructions that pass them.
            macro_rules! arms {
                ($($name:ident [$($operand:ident $lane:ident),*] $e:expr;)*) => {
                    match code {
                        $(code if code == Function::$name as u8 => {
                            let mut i = 0usize;
                            while i < count {
                                $(let $lane: V = load($operand.wrapping_add(i), count.wrapping_sub(i));)*
                                let result: V = $e;
                                result.store(first.wrapping_add(i));
                                i = i.wrapping_add(V::LANES);
                            }
                        })*
                        _ if MATH => crate::lanes::math(code, to, n, x),
                        _ => {}
                    }
                };
            }
            arms! {
                Neg [a p] p.negated();
                Abs [a p] p.magnitude();
                Sign [a p] V::select(p.above(zero), one, V::select(zero.above(p), V::splat(-1.0), p));
                Sqrt [a p] p.root();
                Floor [a p] p.floor();
                Not [a p] truth(p.equal(zero));
                Add [a p, b q] p.plus(q);
                Sub [a p, b q] p.minus(q);
                Mul [a p, b q] p.times(q);
                Div [a p, b q] p.over(q);
                // What is not a number equals nothing, and stays.
                Min [a p, b q] V::select(p.above(q), q, V::select(q.equal(q), p, q));
                Max [a p, b q] V::select(q.above(p), q, V::select(q.equal(q), p, q));
                Equal [a p, b q] truth(p.equal(q));
                Less [a p, b q] truth(q.above(p));
                LessEqual [a p, b q] V::select(q.above(p), one, truth(p.equal(q)));
                And [a p, b q] V::select(p.equal(zero), zero, V::select(q.equal(zero), zero, one));
                Or [a p, b q] V::select(p.equal(zero), V::select(q.equal(zero), zero, one), one);
                Select [a p, b q, c r] V::select(p.equal(zero), r, q);
                Exp [a p] if MATH { wide::exp(p) } else { p };
                Log [a p] if MATH { wide::log(p) } else { p };
                Tanh [a p] if MATH { wide::tanh(p) } else { p };
                Sigmoid [a p] if MATH { wide::sigmoid(p) } else { p };
                Erf [a p] if MATH { wide::erf(p) } else { p };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::LANES;
    use crate::vector::{Avx2, Avx512};

    #[repr(align(64))]
    struct Register(Lanes<f32>);

    fn check<V: Wide>(apply: unsafe fn(u8, &mut Lanes<f32>, usize, [*const f32; 3])) {
        // Numbers over many magnitudes, from all three places on.
        let number = |i: usize| ((i * 37 % 101) as f32 - 50.0) * 2f32.powi((i % 23) as i32 - 12);
        let memory: Vec<f32> = (0..LANES + 64).map(number).collect();
        let codes = (0..64).filter(|&code| WideF32::<V, true>::arity(code).is_some());
        for code in codes {
            for offset in 0..17 {
                let x = [0, 7, 19].map(|more| memory[offset + more..].as_ptr());
                let mut whole = Register([0.0; LANES]);
                // SAFETY: the caller saw that the CPU has these vectors; so many elements lie behind each.
                unsafe { apply(code, &mut whole.0, LANES, x) };
                for n in [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 63, 100, LANES - 1] {
                    for skip in [0, 1, 5] {
                        let mut part = Register([0.0; LANES]);
                        let n = n.min(LANES - skip);
                        // SAFETY: as above.
                        unsafe { apply(code, &mut part.0, n, x.map(|x| x.wrapping_add(skip))) };
                        let (got, want) = (&part.0[..n], &whole.0[skip..skip + n]);
                        let same = got.iter().zip(want).all(|(a, b)| a.to_bits() == b.to_bits());
                        assert!(same, "function {code}: {n} from {skip} on at {offset}");
                    }
                }
            }
        }
    }

    #[target_feature(enable = "avx2,fma")]
    unsafe fn eight(code: u8, to: &mut Lanes<f32>, n: usize, x: [*const f32; 3]) {
        // SAFETY: the caller's promise.
        unsafe { WideF32::<Avx2, true>::apply(code, to, n, x) }
    }

    #[target_feature(enable = "avx2,fma,avx512f")]
    unsafe fn sixteen(code: u8, to: &mut Lanes<f32>, n: usize, x: [*const f32; 3]) {
        // SAFETY: the caller's promise.
        unsafe { WideF32::<Avx512, true>::apply(code, to, n, x) }
    }

    /// Whether it lies in a whole vector or in a rest, and at any alignment.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has none of these vectors")]
    fn an_element_is_the_same_wherever_it_lies() {
        use std::arch::is_x86_feature_detected;
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            check::<Avx2>(eight);
            if is_x86_feature_detected!("avx512f") {
                check::<Avx512>(sixteen);
            }
        }
    }
}
