//! Functions of elements over short arrays of them: what the interpreter of `map` steps through.
//!
//! Each function is one loop over lanes that read one or two arrays and write a third that is none of them, so
//! the compiler makes vector code of it. The numbers are those of `kiln_ops::Function`.

use kiln_ops::Function;

/// Elements of a register. Nothing but speed and stack depend on it: devices have little of the latter.
pub(crate) const LANES: usize = if cfg!(target_pointer_width = "64") { 128 } else { 16 };

/// A register.
pub(crate) type Lanes<T> = [T; LANES];

/// Sets the first `n` lanes to a function of the lanes at `a`.
///
/// # Safety
///
/// `n` elements can be read at `a`, aligned.
#[inline(always)]
unsafe fn unary<T: Copy>(to: &mut Lanes<T>, n: usize, a: *const T, f: impl Fn(T) -> T) {
    for (i, lane) in to.iter_mut().take(n).enumerate() {
        // SAFETY: `i` is below `n`.
        *lane = f(unsafe { a.add(i).read() });
    }
}

/// The same of the lanes at `a` and `b`.
///
/// # Safety
///
/// `n` elements can be read at `a` and at `b`, aligned.
#[inline(always)]
unsafe fn binary<T: Copy>(to: &mut Lanes<T>, n: usize, [a, b]: [*const T; 2], f: impl Fn(T, T) -> T) {
    for (i, lane) in to.iter_mut().take(n).enumerate() {
        // SAFETY: `i` is below `n`.
        *lane = unsafe { f(a.add(i).read(), b.add(i).read()) };
    }
}

/// What the interpreter computes with: an element type and the functions of it.
pub(crate) trait Arithmetic {
    /// An element.
    type Element: Copy;
    /// Zero.
    const ZERO: Self::Element;

    /// The element that stands for a bool's byte.
    fn from_byte(byte: u8) -> Self::Element;
    /// Whether it stands for true.
    fn is_true(x: Self::Element) -> bool;
    /// The element whose bits are `bits`.
    fn from_bits(bits: u32) -> Self::Element;
    /// How many operands function `code` has; `None` where it is not one of these.
    fn arity(code: u8) -> Option<usize>;
    /// Sets the first `n` lanes to function `code` of the lanes at `x`.
    ///
    /// # Safety
    ///
    /// `n` elements can be read at each of the first [`Arithmetic::arity`] of `x`, aligned, and none lies in `to`.
    unsafe fn apply(code: u8, to: &mut Lanes<Self::Element>, n: usize, x: [*const Self::Element; 3]);
}

/// How many operands a function takes that all arithmetics have.
const fn common(code: u8) -> Option<usize> {
    const NEG: u8 = Function::Neg as u8;
    const ABS: u8 = Function::Abs as u8;
    const SIGN: u8 = Function::Sign as u8;
    const NOT: u8 = Function::Not as u8;
    const SELECT: u8 = Function::Select as u8;
    const ADD: u8 = Function::Add as u8;
    const MAX: u8 = Function::Max as u8;
    const EQUAL: u8 = Function::Equal as u8;
    const LESS: u8 = Function::Less as u8;
    const LESS_EQUAL: u8 = Function::LessEqual as u8;
    const AND: u8 = Function::And as u8;
    const OR: u8 = Function::Or as u8;
    match code {
        NEG | ABS | SIGN | NOT => Some(1),
        ADD..=MAX | EQUAL | LESS | LESS_EQUAL | AND | OR => Some(2),
        SELECT => Some(3),
        _ => None,
    }
}

/// A truth value as a number.
macro_rules! truth {
    ($e:expr) => {
        if $e { Self::ONE } else { Self::ZERO }
    };
}

/// The arms of a `match` over codes for the functions that all arithmetics have. The rest goes to `$other`.
macro_rules! apply {
    ($code:ident, $to:ident, $n:ident, $x:ident, $other:expr;
        $($unary:ident |$a:ident| $one:expr;)*
        $(, $binary:ident |$p:ident, $q:ident| $two:expr;)*) => {{
        let [a, b, c] = $x;
        match $code {
            $(code if code == Function::$unary as u8 => unary($to, $n, a, |$a| $one),)*
            $(code if code == Function::$binary as u8 => binary($to, $n, [a, b], |$p, $q| $two),)*
            code if code == Function::Select as u8 => select::<Self>($to, $n, [a, b, c]),
            _ => $other,
        }
    }};
}

/// Selects lane by lane.
///
/// # Safety
///
/// As for [`Arithmetic::apply`].
#[inline(always)]
unsafe fn select<A: Arithmetic + ?Sized>(to: &mut Lanes<A::Element>, n: usize, [c, a, b]: [*const A::Element; 3]) {
    for (i, lane) in to.iter_mut().take(n).enumerate() {
        // SAFETY: `i` is below `n`.
        *lane = unsafe {
            let (c, a, b) = (c.add(i).read(), a.add(i).read(), b.add(i).read());
            if A::is_true(c) { a } else { b }
        };
    }
}

/// float32; with `MATH` also what needs a mathematical library.
pub(crate) struct F32<const MATH: bool>;

impl<const MATH: bool> F32<MATH> {
    const ONE: f32 = 1.0;
}

impl<const MATH: bool> Arithmetic for F32<MATH> {
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
        const POW: u8 = Function::Pow as u8;
        const EXP: u8 = Function::Exp as u8;
        const ERF: u8 = Function::Erf as u8;
        const SQRT: u8 = Function::Sqrt as u8;
        const FLOOR: u8 = Function::Floor as u8;
        match code {
            SQRT | FLOOR => Some(1),
            EXP..=ERF if MATH => Some(1),
            POW if MATH => Some(2),
            _ => common(code),
        }
    }

    unsafe fn apply(code: u8, to: &mut Lanes<f32>, n: usize, x: [*const f32; 3]) {
        // SAFETY: the caller's promise, for as many operands as the function has.
        unsafe {
            apply!(code, to, n, x, if MATH { math(code, to, n, x) };
                Neg |a| -a;
                Abs |a| f32::from_bits(a.to_bits() & !(1 << 31));
                Sign |a| if a > 0.0 { 1.0 } else if a < 0.0 { -1.0 } else { a };
                Sqrt |a| sqrt(a);
                Floor |a| floor(a);
                Not |a| truth!(a == 0.0);
                , Add |a, b| a + b;
                , Sub |a, b| a - b;
                , Mul |a, b| a * b;
                , Div |a, b| a / b;
                , Min |a, b| if b < a || b.is_nan() { b } else { a };
                , Max |a, b| if b > a || b.is_nan() { b } else { a };
                , Equal |a, b| truth!(a == b);
                , Less |a, b| truth!(a < b);
                , LessEqual |a, b| truth!(a <= b);
                , And |a, b| truth!(a != 0.0 && b != 0.0);
                , Or |a, b| truth!(a != 0.0 || b != 0.0);
            )
        }
    }
}

/// The square root, correctly rounded everywhere, by an instruction where the CPU surely has one.
#[inline(always)]
fn sqrt(a: f32) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_mm_cvtss_f32, _mm_set_ss, _mm_sqrt_ss};
        // SAFETY: SSE is part of x86-64.
        unsafe { _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        libm::sqrtf(a)
    }
}

/// The largest whole number that is not larger, in few instructions: whole numbers from 2^23 on, infinities
/// and NaN are their own.
#[inline(always)]
fn floor(a: f32) -> f32 {
    let whole = a as i32 as f32;
    let below = if whole > a { whole - 1.0 } else { whole };
    let small = f32::from_bits(a.to_bits() & !(1 << 31)) < 8_388_608.0;
    // The sign of a zero stays.
    let signed = f32::from_bits(below.to_bits() | a.to_bits() & (1 << 31));
    if small { signed } else { a }
}

/// The functions that need a mathematical library.
///
/// # Safety
///
/// As for [`Arithmetic::apply`].
#[inline(never)]
pub(crate) unsafe fn math(code: u8, to: &mut Lanes<f32>, n: usize, [a, b, _]: [*const f32; 3]) {
    // SAFETY: the caller's promise.
    unsafe {
        match code {
            code if code == Function::Pow as u8 => binary(to, n, [a, b], libm::powf),
            code if code == Function::Exp as u8 => unary(to, n, a, libm::expf),
            code if code == Function::Log as u8 => unary(to, n, a, libm::logf),
            code if code == Function::Sin as u8 => unary(to, n, a, libm::sinf),
            code if code == Function::Cos as u8 => unary(to, n, a, libm::cosf),
            code if code == Function::Tanh as u8 => unary(to, n, a, libm::tanhf),
            code if code == Function::Sigmoid as u8 => unary(to, n, a, sigmoid),
            code if code == Function::Erf as u8 => unary(to, n, a, libm::erff),
            _ => {}
        }
    }
}

/// `1 / (1 + exp(-a))` without overflow.
fn sigmoid(a: f32) -> f32 {
    let e = libm::expf(if a >= 0.0 { -a } else { a });
    let one = 1.0 / (1.0 + e);
    if a >= 0.0 { one } else { e * one }
}

/// int32, which wraps around; also bools by themselves.
pub(crate) struct I32;

impl I32 {
    const ONE: i32 = 1;
}

impl Arithmetic for I32 {
    type Element = i32;
    const ZERO: i32 = 0;

    fn from_byte(byte: u8) -> i32 {
        byte as i32
    }

    fn is_true(x: i32) -> bool {
        x != 0
    }

    fn from_bits(bits: u32) -> i32 {
        bits as i32
    }

    fn arity(code: u8) -> Option<usize> {
        common(code)
    }

    unsafe fn apply(code: u8, to: &mut Lanes<i32>, n: usize, x: [*const i32; 3]) {
        // SAFETY: the caller's promise, for as many operands as the function has.
        unsafe {
            apply!(code, to, n, x, ();
                Neg |a| a.wrapping_neg();
                Abs |a| a.wrapping_abs();
                Sign |a| a.signum();
                Not |a| truth!(a == 0);
                , Add |a, b| a.wrapping_add(b);
                , Sub |a, b| a.wrapping_sub(b);
                , Mul |a, b| a.wrapping_mul(b);
                , Div |a, b| quotient(a, b);
                , Min |a, b| a.min(b);
                , Max |a, b| a.max(b);
                , Equal |a, b| truth!(a == b);
                , Less |a, b| truth!(a < b);
                , LessEqual |a, b| truth!(a <= b);
                , And |a, b| truth!(a != 0 && b != 0);
                , Or |a, b| truth!(a != 0 || b != 0);
            )
        }
    }
}

/// Truncated toward zero; 0 where `b` is.
fn quotient(a: i32, b: i32) -> i32 {
    if b == 0 { 0 } else { a.wrapping_div(b) }
}
