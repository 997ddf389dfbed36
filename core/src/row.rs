//! The kernel signature: frozen, see `docs/kernel-contract.md`.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::Window;

/// The most operands a step can have; operators with more inputs are lowered to several steps.
pub const MAX_OPERANDS: usize = 16;

/// Which output rows to compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RowRange {
    /// First row.
    pub begin: u32,
    /// Row to stop before.
    pub end: u32,
}

/// Which way a call walks its output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Direction {
    /// From low addresses to high ones.
    #[default]
    Up,
    /// From high addresses to low ones. Only a row whose table entry says so can; others walk up.
    Down,
}

impl Direction {
    /// The index to visit as number `i` of `n`: `i` itself, or counted from the end.
    #[inline(always)]
    pub const fn pick(self, i: usize, n: usize) -> usize {
        match self {
            Direction::Up => i,
            Direction::Down => n.wrapping_sub(1).wrapping_sub(i),
        }
    }
}

/// What a kernel is given: windows, parameters, and the output rows to compute. What a row is (an
/// image row, a vector, an element block) is the kernel's to say in its documentation.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    inputs: &'a [Window],
    outputs: &'a [Window],
    scratch: &'a [Window],
    parameters: &'a [u8],
    /// The rows to compute.
    pub rows: RowRange,
    /// Which way to walk them.
    pub direction: Direction,
}

impl<'a> Call<'a> {
    /// A call that walks up; `parameters` should begin at a multiple of 4, as the executor's do.
    pub fn new(
        inputs: &'a [Window],
        outputs: &'a [Window],
        scratch: &'a [Window],
        parameters: &'a [u8],
        rows: RowRange,
    ) -> Call<'a> {
        Call { inputs, outputs, scratch, parameters, rows, direction: Direction::Up }
    }

    /// Input `i`, or the empty window.
    #[inline]
    pub fn input(&self, i: usize) -> Window {
        self.inputs.get(i).copied().unwrap_or(Window::EMPTY)
    }

    /// Output `i`, or the empty window.
    #[inline]
    pub fn output(&self, i: usize) -> Window {
        self.outputs.get(i).copied().unwrap_or(Window::EMPTY)
    }

    /// All outputs.
    #[inline]
    pub(crate) fn outputs(&self) -> &'a [Window] {
        self.outputs
    }

    /// Scratch window `i`, or the empty window.
    #[inline]
    pub fn scratch(&self, i: usize) -> Window {
        self.scratch.get(i).copied().unwrap_or(Window::EMPTY)
    }

    /// The step's parameters, if they have the size and alignment of `P`; a record that ends in a slice takes
    /// what is left.
    #[inline]
    pub fn parameters<P: FromBytes + Immutable + KnownLayout + ?Sized>(&self) -> Option<&'a P> {
        P::ref_from_bytes(self.parameters).ok()
    }
}

/// A kernel: a number that plans refer to, a check run once, and a body.
///
/// Making one is unsafe, so that whoever writes a kernel answers for it; whoever only lists rows for a
/// session need not. `docs/kernel-contract.md` has the contract in full.
#[derive(Clone, Copy)]
pub struct Row {
    number: u16,
    align: u8,
    over_read: u8,
    check: fn(&Call<'_>) -> bool,
    run: unsafe fn(&Call<'_>),
}

impl Row {
    /// A row with its number (never reused), the alignment in bytes (a power of two) of every window that is not
    /// empty, and how many bytes beyond the end of an input window that is not empty it may read,
    /// and ignore.
    ///
    /// # Safety
    ///
    /// `check` answers `true` only if `run` with the same windows, the same parameters and any row
    /// range inside the one checked, in either direction, touches no byte outside the windows (but
    /// for `over_read`), and writes none outside the outputs and the scratch. It must not rely on what
    /// inputs in RAM hold: their contents may be anything when `run` comes. Nor on where the windows lie, but for the
    /// remainders of their addresses by 16, their distances within one bank, and that those of different banks are apart:
    /// an arena may be another one when `run` comes ([`Parked`](crate::Parked)).
    pub const unsafe fn new(
        number: u16,
        align: u8,
        over_read: u8,
        check: fn(&Call<'_>) -> bool,
        run: unsafe fn(&Call<'_>),
    ) -> Row {
        Row { number, align, over_read, check, run }
    }

    /// Its number.
    #[inline(always)]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Alignment in bytes of every window that is not empty.
    #[inline(always)]
    pub const fn align(&self) -> u8 {
        self.align
    }

    /// How many bytes beyond the end of an input window that is not empty it may read, and ignore.
    #[inline(always)]
    pub const fn over_read(&self) -> u8 {
        self.over_read
    }

    /// Whether a call is safe to run.
    #[inline(always)]
    pub fn check(&self, call: &Call<'_>) -> bool {
        (self.check)(call)
    }

    /// Computes the rows.
    ///
    /// # Safety
    ///
    /// [`Row::check`] must have answered `true` for the same windows and parameters with a row range
    /// that includes this one. Windows may overlap only as the row's `lag` allows.
    #[inline(always)]
    pub unsafe fn run(&self, call: &Call<'_>) {
        // SAFETY: the caller's promise is the body's.
        unsafe { (self.run)(call) }
    }
}
