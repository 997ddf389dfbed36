//! What sums of products need to know of a dtype: int8 with an int32 sum, or float32.

use kiln_core::Window;
use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::requantize;

/// How a sum becomes an output, 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Epilogue {
    /// The input's zero point, which padded taps read; 0 for float32.
    pub input_zero: i32,
    /// The output's zero point; 0 for float32.
    pub output_zero: i32,
    /// The smallest output; for float32 the bits of a float.
    pub low: i32,
    /// The largest output; for float32 the bits of a float.
    pub high: i32,
}

impl Epilogue {
    /// Whether its bounds are narrower than int8, to which rows that scale by several saturate by themselves.
    #[inline(always)]
    pub(crate) fn clamps(&self) -> bool {
        self.low > -128 || self.high < 127
    }

    /// Whether float32 outputs have bounds.
    #[inline(always)]
    pub(crate) fn bounds(&self) -> bool {
        self.low != f32::NEG_INFINITY.to_bits() as i32 || self.high != f32::INFINITY.to_bits() as i32
    }

    /// Clamps `n` float32 outputs behind one another.
    ///
    /// # Safety
    ///
    /// They can be read and written.
    #[inline(always)]
    pub(crate) unsafe fn bound(&self, output: *mut f32, n: usize) {
        let (low, high) = (f32::from_bits(self.low as u32), f32::from_bits(self.high as u32));
        for o in 0..n {
            let at = output.wrapping_add(o);
            // SAFETY: one of the outputs.
            unsafe { at.write(clamp(at.read(), low, high)) };
        }
    }

    /// Clamps `n` int8 outputs behind one another.
    ///
    /// # Safety
    ///
    /// They can be read and written.
    #[inline(always)]
    pub(crate) unsafe fn clamp(&self, output: *mut u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.clamp_pixels(output, 1, 0, n) };
    }

    /// Clamps `n` int8 outputs at each of these places, some of which may be the same: to clamp twice changes nothing.
    ///
    /// # Safety
    ///
    /// As for [`Epilogue::clamp`], for each place.
    #[inline(never)]
    pub(crate) unsafe fn clamp_at(&self, places: &[*mut u8], n: usize) {
        for &place in places {
            // SAFETY: the caller's promise.
            unsafe { self.clamp(place, n) };
        }
    }

    /// Clamps `n` int8 outputs of each of so many pixels, `pitch` bytes apart.
    ///
    /// # Safety
    ///
    /// As for [`Epilogue::clamp`], for each pixel.
    #[inline(never)]
    pub(crate) unsafe fn clamp_pixels(&self, first: *mut u8, pixels: usize, pitch: usize, n: usize) {
        let mut pixel = first;
        for _ in 0..pixels {
            for o in 0..n {
                let at = pixel.wrapping_add(o).cast::<i8>();
                // SAFETY: one of the outputs.
                unsafe { at.write((at.read() as i32).max(self.low).min(self.high) as i8) };
            }
            pixel = pixel.wrapping_add(pitch);
        }
    }
}

/// Sums of products of one dtype, with the constants of each output channel.
pub(crate) trait Arithmetic: Copy {
    type Element: Copy;
    type Sum: Copy;
    /// Bytes of an element.
    const SIZE: u32;

    /// Whether `block` has the constants of `channels` channels.
    fn holds(block: Window, channels: u32) -> bool;
    /// The arithmetic over a block that [`Arithmetic::holds`] accepted.
    fn new(block: Window, channels: u32, epilogue: &Epilogue) -> Self;
    /// The sum that channel `o` starts from.
    ///
    /// # Safety
    ///
    /// `o` is below the channels the block holds.
    unsafe fn start(&self, o: usize) -> Self::Sum;
    /// `sum + x * w`.
    fn add(sum: Self::Sum, x: Self::Element, w: Self::Element) -> Self::Sum;
    /// `sum + zero point * w`: a tap in the padding.
    fn pad(&self, sum: Self::Sum, w: Self::Element) -> Self::Sum;
    /// `sum` less `weight_zero` times the sum of a vector of `n` elements.
    ///
    /// # Safety
    ///
    /// `x` points to `n` readable elements.
    unsafe fn offset(x: *const Self::Element, n: usize, weight_zero: i32) -> Self::Sum;
    /// The sum of two.
    fn plus(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    /// The output of channel `o`.
    ///
    /// # Safety
    ///
    /// As for [`Arithmetic::start`].
    unsafe fn finish(&self, sum: Self::Sum, o: usize) -> Self::Element;
}

/// `sum` plus the products of `n` pairs.
///
/// # Safety
///
/// Both pointers are aligned and have `n` readable elements, `x_step` and `w_step` elements apart.
#[inline(always)]
pub(crate) unsafe fn dot<A: Arithmetic>(
    mut sum: A::Sum,
    mut x: *const A::Element,
    x_step: usize,
    mut w: *const A::Element,
    w_step: usize,
    n: usize,
) -> A::Sum {
    for _ in 0..n {
        // SAFETY: one of the `n` elements the caller vouches for.
        sum = unsafe { A::add(sum, x.read(), w.read()) };
        x = x.wrapping_add(x_step);
        w = w.wrapping_add(w_step);
    }
    sum
}

/// `sum` plus `n` padded taps.
///
/// # Safety
///
/// `w` is aligned and has `n` readable elements, `step` elements apart.
#[inline(always)]
pub(crate) unsafe fn pad<A: Arithmetic>(
    arithmetic: &A,
    mut sum: A::Sum,
    mut w: *const A::Element,
    step: usize,
    n: usize,
) -> A::Sum {
    for _ in 0..n {
        // SAFETY: one of the `n` elements the caller vouches for.
        sum = arithmetic.pad(sum, unsafe { w.read() });
        w = w.wrapping_add(step);
    }
    sum
}

/// int8 with an int32 sum that wraps. The block is `i32` bias, `i32` multiplier, `i8` shift, each for
/// every channel in turn: 9 bytes a channel, at any alignment.
#[derive(Clone, Copy)]
pub(crate) struct S8 {
    bias: *const i32,
    multipliers: *const i32,
    shifts: *const i8,
    epilogue: Epilogue,
}

impl Arithmetic for S8 {
    type Element = i8;
    type Sum = i32;
    const SIZE: u32 = 1;

    fn holds(block: Window, channels: u32) -> bool {
        block.holds(channels as usize, 9)
    }

    #[inline(always)]
    fn new(block: Window, channels: u32, epilogue: &Epilogue) -> S8 {
        let bias = block.ptr.cast::<i32>().cast_const();
        let multipliers = bias.wrapping_add(channels as usize);
        let shifts = multipliers.wrapping_add(channels as usize).cast();
        S8 { bias, multipliers, shifts, epilogue: *epilogue }
    }

    #[inline(always)]
    unsafe fn start(&self, o: usize) -> i32 {
        // SAFETY: the caller's `o` lies inside the block.
        unsafe { self.bias.wrapping_add(o).read_unaligned() }
    }

    #[inline(always)]
    fn add(sum: i32, x: i8, w: i8) -> i32 {
        sum.wrapping_add((x as i32).wrapping_mul(w as i32))
    }

    #[inline(always)]
    fn pad(&self, sum: i32, w: i8) -> i32 {
        sum.wrapping_add(self.epilogue.input_zero.wrapping_mul(w as i32))
    }

    #[inline(always)]
    unsafe fn offset(x: *const i8, n: usize, weight_zero: i32) -> i32 {
        let mut sum = 0i32;
        if weight_zero != 0 {
            for i in 0..n {
                // SAFETY: one of the `n` elements the caller vouches for.
                sum = sum.wrapping_sub(unsafe { x.wrapping_add(i).read() } as i32);
            }
        }
        sum.wrapping_mul(weight_zero)
    }

    #[inline(always)]
    fn plus(a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }

    #[inline(always)]
    unsafe fn finish(&self, sum: i32, o: usize) -> i8 {
        // SAFETY: the caller's `o` lies inside the block.
        let (multiplier, shift) =
            unsafe { (self.multipliers.wrapping_add(o).read_unaligned(), self.shifts.wrapping_add(o).read()) };
        let e = &self.epilogue;
        requantize::narrow(requantize::scale(sum, multiplier, shift as i32), e.output_zero, e.low, e.high)
    }
}

/// float32, added up in the order of the taps. The block is the bias, or empty.
#[derive(Clone, Copy)]
pub(crate) struct F32 {
    bias: Option<*const f32>,
    low: f32,
    high: f32,
}

/// Clamps; NaN passes through.
#[inline(always)]
pub(crate) fn clamp(x: f32, low: f32, high: f32) -> f32 {
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}

impl Arithmetic for F32 {
    type Element = f32;
    type Sum = f32;
    const SIZE: u32 = 4;

    fn holds(block: Window, channels: u32) -> bool {
        block.len == 0 || block.holds(channels as usize, 4)
    }

    #[inline(always)]
    fn new(block: Window, _: u32, epilogue: &Epilogue) -> F32 {
        let bias = if block.len == 0 { None } else { Some(block.ptr.cast::<f32>().cast_const()) };
        F32 { bias, low: f32::from_bits(epilogue.low as u32), high: f32::from_bits(epilogue.high as u32) }
    }

    #[inline(always)]
    unsafe fn start(&self, _: usize) -> f32 {
        0.0
    }

    #[inline(always)]
    fn add(sum: f32, x: f32, w: f32) -> f32 {
        sum + x * w
    }

    #[inline(always)]
    fn pad(&self, sum: f32, _: f32) -> f32 {
        sum
    }

    #[inline(always)]
    unsafe fn offset(_: *const f32, _: usize, _: i32) -> f32 {
        0.0
    }

    #[inline(always)]
    fn plus(a: f32, b: f32) -> f32 {
        a + b
    }

    #[inline(always)]
    unsafe fn finish(&self, sum: f32, o: usize) -> f32 {
        let bias = match self.bias {
            // SAFETY: the caller's `o` lies inside the block, which is aligned as all windows are.
            Some(bias) => unsafe { bias.wrapping_add(o).read() },
            None => 0.0,
        };
        clamp(sum + bias, self.low, self.high)
    }
}
