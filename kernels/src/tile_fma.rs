//! Sums of float32 products for CPUs with a single-precision FPU that multiplies and adds in one instruction: three windows, or one, by
//! four channels at a time.
//!
//! Windows are read where they lie, run by run; the weights of four channels for a tap lie side by side. A sum begins with the bias and
//! goes along the taps, whichever windows are computed together, and a product and its addition round once, so that an output's bits
//! depend on nothing else, nor on the CPU. In channels that fours leave over they round twice.

use crate::arithmetic::Epilogue;

/// Windows computed together.
pub(crate) const POSITIONS: usize = 3;
/// Channels computed together.
pub(crate) const CHANNELS: usize = 4;

/// Windows and what they are multiplied by. A body changes what it has gone through. All windows have the same form: lines of runs of
/// elements.
#[repr(C)]
pub(crate) struct Tile {
    /// Where the windows begin; a body that computes one takes the first.
    pub(crate) x: [*const f32; POSITIONS],
    /// The weights of the first tap of the next four channels.
    pub(crate) weights: *const f32,
    /// What their sums start from.
    pub(crate) bias: *const f32,
    /// Lines of a window: at least 1 of three windows, of one perhaps none.
    pub(crate) lines: usize,
    /// Bytes of a channel's weights between two lines, for taps that are padding.
    pub(crate) skip: usize,
    /// Runs of a line, at least 1.
    pub(crate) runs: usize,
    /// Elements of a run, at least 1.
    pub(crate) length: usize,
    /// Bytes from the end of a run to the next.
    pub(crate) gap: usize,
    /// Bytes from where one more run would be to the next line.
    pub(crate) line_gap: usize,
    /// Where the outputs of each window go.
    pub(crate) outputs: [*mut f32; POSITIONS],
    /// Fours of channels, at least 1.
    pub(crate) fours: usize,
    /// Bytes of a channel's weights: a fourth of what lies between two fours.
    pub(crate) pitch: usize,
    /// For channels that are their own input channels, bytes from one four's inputs, bias and outputs to the next's.
    pub(crate) step: usize,
}

impl Tile {
    /// A window of one run of so many elements.
    #[inline(always)]
    pub(crate) fn new(length: usize) -> Tile {
        let (x, outputs) = ([core::ptr::null(); POSITIONS], [core::ptr::null_mut(); POSITIONS]);
        let (weights, bias, pitch) = (core::ptr::null(), core::ptr::null(), length.wrapping_mul(4));
        let (lines, runs, skip, gap, line_gap, fours, step) = (1, 1, 0, 0, 0, 0, 0);
        Tile { x, weights, bias, lines, skip, runs, length, gap, line_gap, outputs, fours, pitch, step }
    }
}

/// `sum` plus the products of a window at `x` of the tile's form and of a channel's weights, `step` elements apart.
///
/// # Safety
///
/// The window can be read, and a weight for each of its taps.
#[inline(always)]
unsafe fn dot(
    tile: &Tile,
    mut sum: f32,
    mut x: *const f32,
    (mut w, step): (*const f32, usize),
    add: impl Fn(f32, f32, f32) -> f32,
) -> f32 {
    for _ in 0..tile.lines {
        for _ in 0..tile.runs {
            for _ in 0..tile.length {
                // SAFETY: an element of the window, and its weight.
                sum = unsafe { add(x.read(), w.read(), sum) };
                x = x.wrapping_add(1);
                w = w.wrapping_add(step);
            }
            x = x.wrapping_byte_add(tile.gap);
        }
        x = x.wrapping_byte_add(tile.line_gap);
        w = w.wrapping_byte_add(tile.skip.wrapping_mul(step));
    }
    sum
}

/// What the FPU computes for channel `channel` of the next four of a window at `x`.
///
/// # Safety
///
/// As above; there is a bias for the channel.
#[cfg(not(kiln_fpu))]
#[inline(always)]
unsafe fn fused(tile: &Tile, x: *const f32, channel: usize) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let bias = tile.bias.wrapping_add(channel).read();
        dot(tile, bias, x, (tile.weights.wrapping_add(channel), CHANNELS), libm::fmaf)
    }
}

/// Computes fours of channels of three windows, and leaves weights, bias and outputs behind them.
///
/// # Safety
///
/// The windows can be read; `weights` has 16 bytes for each tap and each four, `bias` 16 a four; the outputs can be written. All are aligned to 4
/// bytes. No count is 0.
#[inline(always)]
pub(crate) unsafe fn three(tile: &mut Tile) {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(kiln_fpu)]
        assembly::three(tile);
        #[cfg(not(kiln_fpu))]
        products::<POSITIONS>(tile);
    }
}

/// The same of the first window.
///
/// # Safety
///
/// As above, but there may be no lines.
#[inline(always)]
pub(crate) unsafe fn one(tile: &mut Tile) {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(kiln_fpu)]
        assembly::one(tile);
        #[cfg(not(kiln_fpu))]
        products::<1>(tile);
    }
}

/// The body of both.
///
/// # Safety
///
/// As above.
#[cfg(not(kiln_fpu))]
unsafe fn products<const N: usize>(tile: &mut Tile) {
    for _ in 0..tile.fours {
        let mut sums = [[0.0; CHANNELS]; N];
        for (x, sums) in tile.x.iter().zip(&mut sums) {
            for (channel, sum) in sums.iter_mut().enumerate() {
                // SAFETY: a channel of the four, and a window: as the caller promises.
                *sum = unsafe { fused(tile, *x, channel) };
            }
        }
        for (output, sums) in tile.outputs.iter_mut().zip(sums) {
            // SAFETY: the four's outputs.
            unsafe { output.cast::<[f32; CHANNELS]>().write(sums) };
            *output = output.wrapping_add(CHANNELS);
        }
        tile.bias = tile.bias.wrapping_add(CHANNELS);
        tile.weights = tile.weights.wrapping_byte_add(tile.pitch.wrapping_mul(CHANNELS));
    }
}

/// Computes fours of channels of the first window that are their own input channels, each `tile.step` bytes from the one before, and
/// leaves all but the window's form behind them.
///
/// # Safety
///
/// As for [`one`], but runs have one element, with three more behind it.
#[cfg(kiln_fpu)]
#[inline(always)]
pub(crate) unsafe fn own(tile: &mut Tile) {
    // SAFETY: the caller's promise.
    unsafe { assembly::own(tile) }
}

/// As above.
#[cfg(not(kiln_fpu))]
pub(crate) unsafe fn own(tile: &mut Tile) {
    for _ in 0..tile.fours {
        let ([x, ..], [output, ..]) = (tile.x, tile.outputs);
        let mut sums = [0.0; CHANNELS];
        for (channel, sum) in sums.iter_mut().enumerate() {
            // SAFETY: a channel of the four and of the window.
            *sum = unsafe { fused(tile, x.wrapping_add(channel), channel) };
        }
        // SAFETY: the four's outputs.
        unsafe { output.cast::<[f32; CHANNELS]>().write(sums) };
        let ([x, ..], [output, ..]) = (&mut tile.x, &mut tile.outputs);
        *x = x.wrapping_byte_add(tile.step);
        *output = output.wrapping_byte_add(tile.step);
        tile.bias = tile.bias.wrapping_byte_add(tile.step);
        tile.weights = tile.weights.wrapping_byte_add(tile.pitch.wrapping_mul(CHANNELS));
    }
}

/// Computes one channel of one window of the tile's form.
///
/// # Safety
///
/// As for [`one`], of a channel whose weights lie behind one another.
#[inline(never)]
pub(crate) unsafe fn single(tile: &Tile, bias: *const f32, x: *const f32, weights: *const f32, output: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe { output.write(dot(tile, bias.read(), x, (weights, 1), |x, w, sum| sum + x * w)) };
}

/// Clamps `n` outputs behind one another.
///
/// # Safety
///
/// They can be read and written.
#[inline(never)]
pub(crate) unsafe fn bound(epilogue: &Epilogue, output: *mut f32, n: usize) {
    #[cfg(kiln_fpu)]
    let (output, n) = {
        let fours = n / CHANNELS;
        // SAFETY: the caller's promise.
        unsafe {
            if fours > 0 && epilogue.low != f32::NEG_INFINITY.to_bits() as i32 {
                assembly::raise(output, fours, epilogue.low);
            }
            if fours > 0 && epilogue.high != f32::INFINITY.to_bits() as i32 {
                assembly::lower(output, fours, epilogue.high);
            }
        }
        (output.wrapping_add(fours.wrapping_mul(CHANNELS)), n & (CHANNELS - 1))
    };
    // SAFETY: what is left of the outputs.
    unsafe { epilogue.bound(output, n) };
}

#[cfg(kiln_fpu)]
mod assembly {
    //! The compiler does not allow these targets' assembly to name floating-point registers. As functions of their own the bodies use
    //! those that any call may change, s0 to s15, and keep others.

    use core::arch::asm;

    use super::Tile;

    // What bodies find by its place.
    const _: () = assert!(core::mem::offset_of!(Tile, outputs) == 44 && core::mem::offset_of!(Tile, step) == 64);

    /// What the elements of three windows add for a tap: sums in s0 to s11.
    macro_rules! tap {
        ($x0:literal, $x1:literal, $x2:literal, $w0:literal, $w1:literal, $w2:literal, $w3:literal) => {
            concat!(
                four!("s0", "s1", "s2", "s3", $x0, $w0, $w1, $w2, $w3),
                four!("s4", "s5", "s6", "s7", $x1, $w0, $w1, $w2, $w3),
                four!("s8", "s9", "s10", "s11", $x2, $w0, $w1, $w2, $w3),
            )
        };
    }

    /// One element times four channels' weights.
    macro_rules! four {
        ($s0:literal, $s1:literal, $s2:literal, $s3:literal,
         $x:literal, $w0:literal, $w1:literal, $w2:literal, $w3:literal) => {
            concat!(fma!($s0, $x, $w0), fma!($s1, $x, $w1), fma!($s2, $x, $w2), fma!($s3, $x, $w3),)
        };
    }

    macro_rules! fma {
        ($sum:literal, $x:literal, $w:literal) => {
            concat!("vfma.f32 ", $sum, ", ", $x, ", ", $w, "\n")
        };
    }

    /// A body: what is done with the first sums, with four elements of a run, with one, what moves the windows by r9 at a run's end
    /// and by r10 at a line's, and what writes the outputs, whose pointers lr has the place of. The tile is in r12; windows in r0 to r2,
    /// weights in r3, lines in r5, runs in r11, elements in r4.
    macro_rules! body {
        ($sums:expr, $quad:expr, $element:expr, $run:expr, $line:expr, $outputs:expr) => {
            concat!(
                "push {{r4, r5, r6, r7, r8, r9, r10, r11}}
                mov r12, r0
                1:
                ldm r12, {{r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10}}
                vldmia r4!, {{s0-s3}}
                str r4, [r12, #16]
                ",
                $sums,
                "2:
                mov r11, r7
                3:
                lsrs r4, r8, #2
                beq 5f
                4:
                ",
                $quad,
                "subs r4, r4, #1
                bne 4b
                5:
                ands r4, r8, #3
                beq 7f
                6:
                ",
                $element,
                "subs r4, r4, #1
                bne 6b
                7:
                ",
                $run,
                "subs r11, r11, #1
                bne 3b
                add r3, r3, r6, lsl #2
                ",
                $line,
                "subs r5, r5, #1
                bne 2b
                8:
                ldr r3, [r12, #12]
                ldrd r4, r5, [r12, #56]
                add r3, r3, r5, lsl #2
                str r3, [r12, #12]
                add lr, r12, #44
                ",
                $outputs,
                "subs r4, r4, #1
                str r4, [r12, #56]
                bne 1b
                ",
            )
        };
    }

    /// 55 instructions for the 48 products of four elements.
    #[inline(never)]
    pub(super) unsafe extern "C" fn three(tile: *mut Tile) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                "vpush {{d8, d9, d10, d11, d12, d13, d14, d15}}",
                body!(
                    "vmov.f32 s4, s0
                    vmov.f32 s5, s1
                    vmov.f32 s6, s2
                    vmov.f32 s7, s3
                    vmov.f32 s8, s0
                    vmov.f32 s9, s1
                    vmov.f32 s10, s2
                    vmov.f32 s11, s3
                    ",
                    concat!(
                        "vldmia r0!, {{s12-s15}}
                        vldmia r1!, {{s16-s19}}
                        vldmia r2!, {{s20-s23}}
                        vldmia r3!, {{s24-s31}}
                        ",
                        tap!("s12", "s16", "s20", "s24", "s25", "s26", "s27"),
                        tap!("s13", "s17", "s21", "s28", "s29", "s30", "s31"),
                        "vldmia r3!, {{s24-s31}}\n",
                        tap!("s14", "s18", "s22", "s24", "s25", "s26", "s27"),
                        tap!("s15", "s19", "s23", "s28", "s29", "s30", "s31"),
                    ),
                    concat!(
                        "vldmia r0!, {{s12}}
                        vldmia r1!, {{s16}}
                        vldmia r2!, {{s20}}
                        vldmia r3!, {{s24-s27}}
                        ",
                        tap!("s12", "s16", "s20", "s24", "s25", "s26", "s27"),
                    ),
                    "add r0, r0, r9
                    add r1, r1, r9
                    add r2, r2, r9
                    ",
                    "add r0, r0, r10
                    add r1, r1, r10
                    add r2, r2, r10
                    ",
                    "ldm lr, {{r0, r1, r2}}
                    vstmia r0!, {{s0-s3}}
                    vstmia r1!, {{s4-s7}}
                    vstmia r2!, {{s8-s11}}
                    stm lr, {{r0, r1, r2}}
                    "
                ),
                "pop {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                "vpop {{d8, d9, d10, d11, d12, d13, d14, d15}}",
                inout("r0") tile => _,
                clobber_abi("C"),
            );
        }
    }

    /// 21 instructions for the 16 products of four elements.
    #[inline(never)]
    pub(super) unsafe extern "C" fn one(tile: *mut Tile) {
        // SAFETY: as above.
        unsafe {
            asm!(
                body!(
                    "cmp r5, #0
                    beq 8f
                    ",
                    concat!(
                        "vldmia r0!, {{s4-s7}}
                        vldmia r3!, {{s8-s15}}
                        ",
                        four!("s0", "s1", "s2", "s3", "s4", "s8", "s9", "s10", "s11"),
                        four!("s0", "s1", "s2", "s3", "s5", "s12", "s13", "s14", "s15"),
                        "vldmia r3!, {{s8-s15}}\n",
                        four!("s0", "s1", "s2", "s3", "s6", "s8", "s9", "s10", "s11"),
                        four!("s0", "s1", "s2", "s3", "s7", "s12", "s13", "s14", "s15"),
                    ),
                    concat!(
                        "vldmia r0!, {{s4}}
                        vldmia r3!, {{s8-s11}}
                        ",
                        four!("s0", "s1", "s2", "s3", "s4", "s8", "s9", "s10", "s11"),
                    ),
                    "add r0, r0, r9\n",
                    "add r0, r0, r10\n",
                    "ldr r0, [lr]
                    vstmia r0!, {{s0-s3}}
                    str r0, [lr]
                    "
                ),
                "pop {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                inout("r0") tile => _,
                clobber_abi("C"),
            );
        }
    }

    /// 9 instructions for the 4 products of a tap. What the tile says of windows other than the first is not read; the step is
    /// in r1.
    #[inline(never)]
    pub(super) unsafe extern "C" fn own(tile: *mut Tile) {
        // SAFETY: as above.
        unsafe {
            asm!(
                "push {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                "mov r12, r0",
                "1:",
                "ldm r12, {{r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10}}",
                "ldr r1, [r12, #64]",
                "vldmia r4, {{s0-s3}}",
                "add r4, r4, r1",
                "str r4, [r12, #16]",
                "add r4, r0, r1",
                "str r4, [r12]",
                // Of the elements of a tap, the window's form counts one.
                "sub r9, r9, #12",
                "cmp r5, #0",
                "beq 4f",
                "2:",
                "mov r11, r7",
                "3:",
                "vldmia r0!, {{s4-s7}}",
                "vldmia r3!, {{s8-s11}}",
                "add r0, r0, r9",
                "vfma.f32 s0, s4, s8",
                "vfma.f32 s1, s5, s9",
                "vfma.f32 s2, s6, s10",
                "vfma.f32 s3, s7, s11",
                "subs r11, r11, #1",
                "bne 3b",
                "add r3, r3, r6, lsl #2",
                "add r0, r0, r10",
                "subs r5, r5, #1",
                "bne 2b",
                "4:",
                "ldr r3, [r12, #12]",
                "ldrd r4, r5, [r12, #56]",
                "add r3, r3, r5, lsl #2",
                "str r3, [r12, #12]",
                "ldr r0, [r12, #44]",
                "vstmia r0, {{s0-s3}}",
                "add r0, r0, r1",
                "str r0, [r12, #44]",
                "subs r4, r4, #1",
                "str r4, [r12, #56]",
                "bne 1b",
                "pop {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                inout("r0") tile => _,
                clobber_abi("C"),
            );
        }
    }

    /// A number that is beyond s4 becomes that; what is not a number is not beyond it.
    macro_rules! limit {
        ($x:literal, $beyond:literal) => {
            concat!(
                "vcmp.f32 ",
                $x,
                ", s4\n",
                "vmrs APSR_nzcv, fpscr\n",
                "it ",
                $beyond,
                "\n",
                "vmov",
                $beyond,
                ".f32 ",
                $x,
                ", s4\n",
            )
        };
    }

    /// Limits fours of outputs, at least one, at one side.
    macro_rules! limits {
        ($(#[$doc:meta])* $name:ident, $beyond:literal) => {
            $(#[$doc])*
            #[inline(never)]
            pub(super) unsafe extern "C" fn $name(output: *mut f32, fours: usize, limit: i32) {
                // SAFETY: as above.
                unsafe {
                    asm!(
                        "vmov s4, r2",
                        "1:",
                        "vldmia r0, {{s0-s3}}",
                        limit!("s0", $beyond),
                        limit!("s1", $beyond),
                        limit!("s2", $beyond),
                        limit!("s3", $beyond),
                        "vstmia r0!, {{s0-s3}}",
                        "subs r1, r1, #1",
                        "bne 1b",
                        inout("r0") output => _,
                        inout("r1") fours => _,
                        inout("r2") limit => _,
                        clobber_abi("C"),
                    );
                }
            }
        };
    }

    limits! {
        /// Makes what is less than the limit the limit.
        raise, "mi"
    }
    limits! {
        /// Makes what is greater than the limit the limit.
        lower, "gt"
    }
}

/// What planning packs.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::TargetId;
    use kiln_ops::OpError;

    use super::CHANNELS;
    use crate::table::{Emit, Operation};

    /// CPUs that may have an FPU for single precision.
    pub(crate) const TARGETS: &[TargetId] = &[TargetId::ARMV7EM, TargetId::ARMV8M, TargetId::ARMV81M];

    /// Whether an operation has four outputs or more whose weights are known, one output after another.
    pub(crate) fn suits(operation: &Operation<'_>) -> bool {
        let weights = operation.inputs.get(1);
        weights.is_some_and(|w| w.data.is_some() && w.ty.shape.dim(0) as usize >= CHANNELS)
    }

    /// Emits the input, the weights of [`suits`] by four outputs, what is left over of them as it lies, and the bias.
    pub(crate) fn emit(operation: &Operation<'_>, emit: &mut dyn Emit) -> Result<(), OpError> {
        let w = operation.inputs.get(1).ok_or(OpError::Inputs(2, 3, operation.inputs.len()))?;
        let data = w.data.ok_or(OpError::Quantization("packed weights must be constant"))?;
        let outputs = w.ty.shape.dim(0) as usize;
        let bytes = data.len().checked_div(outputs).unwrap_or(0);
        emit.input(0);
        emit.constant("weights", data.len(), &mut |packed| {
            let fours = outputs / CHANNELS * CHANNELS * bytes;
            for (number, to) in packed.chunks_exact_mut(4).enumerate() {
                let mut from = 4 * number;
                if from < fours {
                    let (four, within) = (from / (CHANNELS * bytes), from % (CHANNELS * bytes) / 4);
                    from = (four * CHANNELS + within % CHANNELS) * bytes + within / CHANNELS * 4;
                }
                to.copy_from_slice(data.get(from..from + 4).unwrap_or(&[0; 4]));
            }
        });
        if operation.inputs.len() > 2 {
            emit.input(2);
        } else {
            emit.constant("bias", 4 * outputs, &mut |bias| bias.fill(0));
        }
        Ok(())
    }
}
