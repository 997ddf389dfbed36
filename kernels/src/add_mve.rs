//! int8 sum as one expression, four elements at a time, for CPUs with MVE.
//!
//! Parameters, windows, rows and walk are those of [`ADD_AFFINE_S8`](crate::add_affine::ADD_AFFINE_S8); four elements of both operands
//! are read before four are written.

use kiln_core::{Call, Row};

use crate::add::fits;
use crate::add_affine::AddAffineParameters;
use crate::vectors;

/// int8 sum.
pub const ADD_MVE_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(21, 1, 0, check, run) };

fn check(call: &Call<'_>) -> bool {
    call.parameters::<AddAffineParameters>().is_some_and(|p| fits(call, &p.blocks, &p.pitches, 1))
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<AddAffineParameters>() else { return };
    let [pitch_a, pitch_b, pitch_y] = p.pitches;
    for row in call.rows.begin..call.rows.end {
        let a = vectors::start(call.input(0), row, pitch_a);
        let b = vectors::start(call.input(1), row, pitch_b);
        let y = vectors::start(call.output(0), row, pitch_y);
        // SAFETY: `check` proved that the elements of a row lie inside the windows.
        unsafe { sum(a, b, y, p, p.blocks.elements(row) as usize) };
    }
}

/// The sum of `n` elements.
///
/// # Safety
///
/// They can be read and written.
#[cfg(not(kiln_mve))]
unsafe fn sum(a: *const u8, b: *const u8, y: *mut u8, p: &AddAffineParameters, n: usize) {
    for i in 0..n {
        // SAFETY: one of the `n` elements.
        unsafe {
            let x = |of: *const u8, factor: i32| (of.wrapping_add(i).read() as i8 as i32).wrapping_mul(factor);
            let sum = x(a, p.factors[0]).wrapping_add(p.offset).wrapping_add(x(b, p.factors[1]));
            y.wrapping_add(i).write(sum.wrapping_shr(p.shift).max(p.low).min(p.high) as u8);
        }
    }
}

/// As above, nine instructions for four elements.
#[cfg(kiln_mve)]
#[inline(never)]
unsafe fn sum(a: *const u8, b: *const u8, y: *mut u8, p: &AddAffineParameters, n: usize) {
    // SAFETY: the caller's promise. The registers that a compiler may want back are pushed and popped.
    unsafe {
        core::arch::asm!(
            crate::mve::extension!(),
            "push {{r4, r5}}",
            "vpush {{d8-d9}}",
            "ldr r4, [r3, #36]",
            "vdup.32 q3, r4",
            "ldr r4, [r3, #40]",
            "vdup.32 q4, r4",
            "ldr r4, [r3, #20]",
            "vdup.32 q2, r4",
            "add r3, r3, #24",
            "ldm r3, {{r3, r4, r5}}",
            "rsb r5, r5, #0",
            "wlstp.32 lr, r12, 2f",
            "3:",
            "vldrb.s32 q0, [r0], #4",
            "vldrb.s32 q1, [r1], #4",
            "vmlas.s32 q0, q2, r4",
            "vmla.s32 q0, q1, r3",
            "vshl.s32 q0, r5",
            "vmax.s32 q0, q0, q3",
            "vmin.s32 q0, q0, q4",
            "vstrb.32 q0, [r2], #4",
            "letp lr, 3b",
            "2:",
            "vpop {{d8-d9}}",
            "pop {{r4, r5}}",
            inout("r0") a => _,
            inout("r1") b => _,
            inout("r2") y => _,
            inout("r3") p => _,
            inout("r12") n => _,
            out("lr") _,
        );
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use crate::add_affine::host::ADD_AFFINE_S8;
    use crate::table::Kernel;

    pub(crate) const ADD_MVE_S8: Kernel = Kernel {
        number: super::ADD_MVE_S8.number(),
        name: "add_mve_s8",
        row_name: "ADD_MVE_S8",
        targets: crate::mve::TARGETS,
        portable: super::ADD_MVE_S8,
        ..ADD_AFFINE_S8
    };
}
