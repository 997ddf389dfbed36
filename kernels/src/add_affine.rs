//! int8 sum as one expression, `(a * x + b * y + offset) >> shift`.
//!
//! The reference scales both operands, then their sum, and rounds each time. There are 65,536 pairs of operands: planning goes
//! through all of them and takes this row only where factors of so many bits give every one of them its very value.
//!
//! Windows, rows and walk are those of the plain sum.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::add::{fits, for_each};
use crate::blocks::Blocks;
use crate::dsp::ssat8;

/// The parameters of [`ADD_AFFINE_S8`], 44 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AddAffineParameters {
    /// Rows.
    pub blocks: Blocks,
    /// Bytes from one row to the next: of the first operand, of the second, of the sum.
    pub pitches: [u32; 3],
    /// What each operand is multiplied by.
    pub factors: [i32; 2],
    /// What is added: zero points, and half of what is divided by.
    pub offset: i32,
    /// Bits that are shifted out.
    pub shift: u32,
    /// The smallest output.
    pub low: i32,
    /// The largest output.
    pub high: i32,
}

/// int8 sum.
pub const ADD_AFFINE_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(17, 1, 0, check, run) };

fn check(call: &Call<'_>) -> bool {
    call.parameters::<AddAffineParameters>().is_some_and(|p| fits(call, &p.blocks, &p.pitches, 1))
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<AddAffineParameters>() else { return };
    let ([a, b], offset, shift) = (p.factors, p.offset, p.shift);
    let sum = |x: i8, y: i8| {
        let first = (x as i32).wrapping_mul(a).wrapping_add(offset);
        (y as i32).wrapping_mul(b).wrapping_add(first).wrapping_shr(shift)
    };
    // SAFETY: `check` proved that the rows fit.
    unsafe {
        if p.low == -128 && p.high == 127 {
            for_each(call, &p.blocks, &p.pitches, |x: i8, y: i8| ssat8(sum(x, y)) as i8);
        } else {
            let (low, high) = (p.low, p.high);
            for_each(call, &p.blocks, &p.pitches, |x: i8, y: i8| sum(x, y).max(low).min(high) as i8);
        }
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use super::*;
    use crate::add::AddS8Parameters;
    use crate::add::host::parameters_s8;
    use crate::table::{Direction, Kernel};
    use crate::{lowering, requantize};

    pub(crate) const ADD_AFFINE_S8: Kernel = Kernel {
        number: super::ADD_AFFINE_S8.number(),
        name: "add_affine_s8",
        row_name: "ADD_AFFINE_S8",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| parameters_s8(operation).is_some_and(|(p, _)| affine(&p).is_some()),
        prepare: |operation, emit| {
            let call = parameters_s8(operation).and_then(|(p, rows)| Some((affine(&p)?, rows)));
            lowering::emit_call(emit, 2, call)
        },
        lag: |operation, input, _| parameters_s8(operation).filter(|_| input < 2).map(|_| 0),
        portable: super::ADD_AFFINE_S8,
        native: None,
        work: None,
    };

    /// How far from the nearest factors others are tried.
    const BESIDE: i64 = 2;
    /// Shifts below the largest possible one that are tried.
    const SHIFTS: u32 = 4;

    /// The expression that gives what the reference gives, for every pair of operands.
    fn affine(p: &AddS8Parameters) -> Option<AddAffineParameters> {
        let real = |multiplier: i32, shift: i32| multiplier as f64 / (1u64 << 31) as f64 * 2f64.powi(shift);
        let whole = real(p.y.multiplier, p.y.shift) * (1u32 << 20) as f64;
        let ratios = [&p.a, &p.b].map(|s| real(s.multiplier, s.shift) * whole);
        // The reference rounds to `scaled` before it adds.
        let scaled = |scaling: &crate::add::Scaling| {
            let mut values = [0i32; 256];
            for (value, x) in values.iter_mut().zip(-128i32..) {
                let shifted = x.wrapping_sub(scaling.zero).wrapping_shl(20);
                *value = requantize::scale(shifted, scaling.multiplier, scaling.shift);
            }
            values
        };
        let (a, b) = (scaled(&p.a), scaled(&p.b));
        let wanted = |i: usize, j: usize| {
            let sum = requantize::scale(a[i].wrapping_add(b[j]), p.y.multiplier, p.y.shift);
            i32::from(requantize::narrow(sum, p.y.zero, p.low, p.high))
        };
        // Most sums stay within 32 bits; `offset` makes sure of it.
        let room = 128.0 * (ratios[0].abs() + ratios[1].abs()) + 256.0;
        let largest = (0..=24u32).rev().find(|&k| room * 2f64.powi(k as i32) < 2f64.powi(31))?;
        (largest.saturating_sub(SHIFTS)..=largest).rev().find_map(|shift| {
            let nearest = ratios.map(|ratio| (ratio * 2f64.powi(shift as i32) + 0.5) as i64);
            let mut tried = (-BESIDE..=BESIDE).flat_map(|a| (-BESIDE..=BESIDE).map(move |b| [a, b]));
            // The nearest ones first: mostly they will do.
            core::iter::once([0, 0]).chain(&mut tried).find_map(|beside| {
                let factors = [nearest[0] + beside[0], nearest[1] + beside[1]];
                let offset = offset(p, factors, shift, &wanted)?;
                let factors = [i32::try_from(factors[0]).ok()?, i32::try_from(factors[1]).ok()?];
                let AddS8Parameters { blocks, pitches, low, high, .. } = *p;
                Some(AddAffineParameters { blocks, pitches, factors, offset, shift, low, high })
            })
        })
    }

    /// An offset with which all pairs come out as wanted, if there is one: each of them bounds it.
    fn offset(p: &AddS8Parameters, factors: [i64; 2], shift: u32, wanted: &dyn Fn(usize, usize) -> i32) -> Option<i32> {
        let (mut least, mut most) = (i64::from(i32::MIN), i64::from(i32::MAX));
        let (mut lowest, mut highest) = (0i64, 0i64);
        for (i, x) in (-128i64..128).enumerate() {
            for (j, y) in (-128i64..128).enumerate() {
                let want = wanted(i, j);
                let product = x * factors[0] + y * factors[1];
                (lowest, highest) = (lowest.min(product), highest.max(product));
                // What is clamped may be farther out.
                if want > p.low {
                    least = least.max((i64::from(want) << shift) - product);
                }
                if want < p.high {
                    most = most.min(((i64::from(want) + 1) << shift) - 1 - product);
                }
                if least > most {
                    return None;
                }
            }
        }
        let offset = i32::try_from((least + most) / 2).ok()?;
        // No sum may wrap.
        let fits = |product: i64| i32::try_from(product + i64::from(offset)).is_ok();
        (fits(lowest) && fits(highest)).then_some(offset)
    }
}
