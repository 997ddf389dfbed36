//! Products of large matrices: packed, in blocks that fit the caches, summed in tiles of registers.
//!
//! The output's columns are taken [`COLUMNS`] at a time, the inner dimension [`DEPTH`] at a time. Of the right
//! matrix such a block is packed as panels, two vectors wide; of the left one [`PANELS`] panels of a tile's rows.
//! A tile is summed in registers over a block's depth and added to the output. (Goto and van de Geijn, "Anatomy of
//! high-performance matrix multiplication", ACM TOMS 34(3), 2008.)
//!
//! Where blocks and tiles begin changes nothing about an output element: it is summed in the order of the inner
//! dimension, from 0 anew every [`DEPTH`], and these parts are added up in their order. So any rows may be computed
//! by any call.

use kiln_core::Window;

use crate::arithmetic::Epilogue;
use crate::vector::Vector;

/// How much of the inner dimension is packed at a time: a panel of the right matrix stays in the first cache.
pub(crate) const DEPTH: usize = 256;
/// How many columns of the right matrix are packed at a time: 1 MiB, half a second cache.
const COLUMNS: usize = 1024;
/// How many panels of the left matrix are packed at a time.
const PANELS: usize = 12;
/// The same where all columns fit one panel of the right matrix, so that each is read once: they stay in the first
/// cache.
const FEW_PANELS: usize = 3;
/// Rows of the tallest tile.
const TALLEST: usize = 12;
/// Columns of the widest tile.
const WIDEST: usize = 32;
/// Rows that are packed of the left matrix at most.
const LEFT: usize = PANELS * TALLEST;
/// Bytes that scratch is aligned to.
const LINE: usize = 64;

/// One side of a product: lines of elements, packed a block at a time. Lines of the right side are its rows, so an
/// element of a line is a column. Lines of the left side are its rows too; or, where it lies across (`ACROSS`), its
/// columns, so that an element of a line is a row.
pub(crate) trait Lines {
    /// Copies elements `from..from + n` of the `count` lines from `first` on; a line's go to `pitch` elements beyond
    /// the one before.
    ///
    /// # Safety
    ///
    /// The lines have these elements; `to` can be written as far as that takes.
    unsafe fn pack<V: Vector>(&self, lines: (usize, usize), elements: (usize, usize), to: *mut f32, pitch: usize);

    /// How many lines of the right side are best packed together across all of a block's columns.
    fn together(&self) -> usize {
        DEPTH
    }
}

/// A matrix in memory: elements from one line to the next, and from one element of it to the next.
#[derive(Clone, Copy)]
pub(crate) struct Matrix {
    pub(crate) start: *const f32,
    pub(crate) down: usize,
    pub(crate) right: usize,
}

impl Matrix {
    /// `lines` by `elements` without gaps, or where `transposed` the other way round.
    pub(crate) fn dense(start: *const f32, lines: usize, elements: usize, transposed: bool) -> Matrix {
        let (down, right) = if transposed { (1, lines) } else { (elements, 1) };
        Matrix { start, down, right }
    }
}

/// Copies `n` elements that follow one another.
///
/// # Safety
///
/// They can be read and written and do not overlap; the CPU has these vectors.
#[inline(always)]
pub(crate) unsafe fn copy<V: Vector>(mut from: *const f32, mut to: *mut f32, mut n: usize) {
    // SAFETY: the caller's promise; `n` is what is left.
    unsafe {
        while n >= V::LANES {
            V::load(from).store(to);
            from = from.wrapping_add(V::LANES);
            to = to.wrapping_add(V::LANES);
            n = n.wrapping_sub(V::LANES);
        }
        if n > 0 {
            V::load_part(from, n).store_part(to, n);
        }
    }
}

/// Writes `n` zeros.
///
/// # Safety
///
/// They can be written; the CPU has these vectors.
#[inline(always)]
pub(crate) unsafe fn clear<V: Vector>(mut to: *mut f32, mut n: usize) {
    // SAFETY: the caller's promise; `n` is what is left.
    unsafe {
        while n >= V::LANES {
            V::zero().store(to);
            to = to.wrapping_add(V::LANES);
            n = n.wrapping_sub(V::LANES);
        }
        if n > 0 {
            V::zero().store_part(to, n);
        }
    }
}

impl Lines for Matrix {
    #[inline(always)]
    unsafe fn pack<V: Vector>(
        &self,
        (first, count): (usize, usize),
        (from, n): (usize, usize),
        to: *mut f32,
        pitch: usize,
    ) {
        let start = self.start.wrapping_add(first.wrapping_mul(self.down)).wrapping_add(from.wrapping_mul(self.right));
        // SAFETY: the caller's promise.
        unsafe {
            if self.right == 1 {
                for line in 0..count {
                    let from = start.wrapping_add(line.wrapping_mul(self.down));
                    copy::<V>(from, to.wrapping_add(line.wrapping_mul(pitch)), n);
                }
                return;
            }
            // Elements of neighbouring lines follow one another: as many lines together as fit the first cache.
            let mut done = 0usize;
            while done < count {
                let lines = if pitch == DEPTH { 8.min(count.wrapping_sub(done)) } else { count };
                for i in 0..n {
                    let mut from =
                        start.wrapping_add(done.wrapping_mul(self.down)).wrapping_add(i.wrapping_mul(self.right));
                    let mut to = to.wrapping_add(done.wrapping_mul(pitch)).wrapping_add(i);
                    for _ in 0..lines {
                        to.write(from.read());
                        from = from.wrapping_add(self.down);
                        to = to.wrapping_add(pitch);
                    }
                }
                done = done.wrapping_add(lines);
            }
        }
    }

    /// Lines without gaps are read as the few streams that a CPU follows.
    #[inline(always)]
    fn together(&self) -> usize {
        if self.right == 1 { 8 } else { DEPTH }
    }
}

/// Where the output's rows begin.
pub(crate) trait Outputs {
    /// The first element of a row.
    fn row(&self, row: usize) -> *mut f32;

    /// Elements from one column to the next.
    fn step(&self) -> usize {
        1
    }
}

/// Rows at a pitch, in elements.
#[derive(Clone, Copy)]
pub(crate) struct Pitched {
    pub(crate) start: *mut f32,
    pub(crate) pitch: usize,
}

impl Outputs for Pitched {
    #[inline(always)]
    fn row(&self, row: usize) -> *mut f32 {
        self.start.wrapping_add(row.wrapping_mul(self.pitch))
    }
}

/// What is done with a finished sum.
#[derive(Clone, Copy)]
pub(crate) struct Finish {
    /// An element for each column to be added, or null.
    pub(crate) bias: *const f32,
    /// The smallest result.
    pub(crate) low: f32,
    /// The largest.
    pub(crate) high: f32,
}

impl Finish {
    /// What an epilogue and a bias, null where there is none, ask for.
    pub(crate) fn of(epilogue: &Epilogue, bias: *const f32) -> Finish {
        let [low, high] = [epilogue.low, epilogue.high].map(|bits| f32::from_bits(bits as u32));
        Finish { bias, low, high }
    }

    /// Nothing.
    pub(crate) const NONE: Finish = Finish { bias: core::ptr::null(), low: f32::NEG_INFINITY, high: f32::INFINITY };
}

/// Elements packed of a right side with so many columns and so deep.
fn right_elements(columns: usize, depth: usize) -> usize {
    let columns = columns.min(COLUMNS).wrapping_add(WIDEST - 1) / WIDEST * WIDEST;
    columns.wrapping_mul(depth.min(DEPTH))
}

/// Bytes of scratch that [`multiply`] needs.
pub(crate) fn scratch_bytes(columns: usize, depth: usize) -> usize {
    let left = LEFT * DEPTH;
    // At most 1024 columns by 256: far from wrapping.
    left.wrapping_add(right_elements(columns, depth)).wrapping_mul(4).wrapping_add(LINE)
}

/// A product.
pub(crate) struct Product<L, R, O> {
    pub(crate) left: L,
    pub(crate) right: R,
    pub(crate) output: O,
    /// Columns of the output.
    pub(crate) columns: usize,
    /// Elements summed for each.
    pub(crate) depth: usize,
    pub(crate) finish: Finish,
}

/// A tile's place in the output.
struct Place<'a> {
    /// Its rows' first columns.
    rows: &'a [*mut f32],
    column: usize,
    columns: usize,
    /// From one column to the next.
    step: usize,
    /// Whether it is the first part of its sums, and the last.
    first: bool,
    last: bool,
}

/// From this depth on the output's lines are asked for before the sums are made.
const PREFETCHED: usize = 32;

/// Sums a tile over `depth` elements and brings it to the output: rows of the left panel at `a`, [`DEPTH`] apart, or
/// where `ACROSS` its columns, [`LEFT`] apart; the right panel at `b`. Where `NARROW`, its second vectors are left out.
///
/// # Safety
///
/// Both panels have `depth` elements for each row and column of a tile; the rows can be written from the place's
/// column on, as many columns as it has, at most a tile's; the bias has these columns. The CPU has these vectors.
#[inline(always)]
unsafe fn tile<V: Vector, const ROWS: usize, const ACROSS: bool, const NARROW: bool>(
    mut a: *const f32,
    mut b: *const f32,
    depth: usize,
    place: &Place<'_>,
    finish: &Finish,
) {
    if depth >= PREFETCHED {
        for row in place.rows {
            V::prefetch(row.wrapping_add(place.column));
            if !NARROW {
                V::prefetch(row.wrapping_add(place.column).wrapping_add(V::LANES));
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[V::zero(); 2]; ROWS];
        for _ in 0..depth {
            let right = [V::load(b), if NARROW { V::zero() } else { V::load(b.wrapping_add(V::LANES)) }];
            for (row, [low, high]) in sums.iter_mut().enumerate() {
                let left = V::splat(a.wrapping_add(row.wrapping_mul(if ACROSS { 1 } else { DEPTH })).read());
                *low = low.multiply_add(left, right[0]);
                if !NARROW {
                    *high = high.multiply_add(left, right[1]);
                }
            }
            a = a.wrapping_add(if ACROSS { LEFT } else { 1 });
            b = b.wrapping_add(V::LANES.wrapping_mul(2));
        }
        let width = if NARROW { V::LANES } else { V::LANES.wrapping_mul(2) };
        if place.step != 1 {
            // A copy, so that the sums themselves need no address.
            let mut lines = [[0f32; WIDEST]; ROWS];
            for (line, [low, high]) in lines.iter_mut().zip(sums) {
                low.store(line.as_mut_ptr());
                high.store(line.as_mut_ptr().wrapping_add(V::LANES));
            }
            scatter(&lines, place, finish);
        } else if place.columns == width {
            write::<V, ROWS, NARROW, true>(sums, place, finish);
        } else {
            write::<V, ROWS, NARROW, false>(sums, place, finish);
        }
    }
}

/// Adds sums to the output, or sets them, and finishes them where they are the last. Where `WHOLE`, all columns are
/// used. Loops have constant bounds, so that sums stay in registers.
///
/// # Safety
///
/// As for [`tile`].
#[inline(always)]
unsafe fn write<V: Vector, const ROWS: usize, const NARROW: bool, const WHOLE: bool>(
    sums: [[V; 2]; ROWS],
    place: &Place<'_>,
    finish: &Finish,
) {
    let counts = [place.columns.min(V::LANES), place.columns.saturating_sub(V::LANES)];
    // SAFETY: the caller's promise.
    unsafe {
        let load = |at: *const f32, n: usize| if WHOLE { V::load(at) } else { V::load_part(at, n) };
        let mut bias = [V::zero(); 2];
        if place.last && !finish.bias.is_null() {
            for (half, (bias, n)) in bias.iter_mut().zip(counts).enumerate().take(if NARROW { 1 } else { 2 }) {
                *bias = load(finish.bias.wrapping_add(place.column).wrapping_add(half.wrapping_mul(V::LANES)), n);
            }
        }
        let (low, high) = (V::splat(finish.low), V::splat(finish.high));
        for (i, sums) in sums.iter().enumerate() {
            let Some(&row) = place.rows.get(i) else { break };
            let row = row.wrapping_add(place.column);
            for half in 0..if NARROW { 1 } else { 2 } {
                let (at, n) = (row.wrapping_add(half * V::LANES), counts[half]);
                let mut value = sums[half];
                if !place.first {
                    value = load(at, n).plus(value);
                }
                if place.last {
                    value = value.plus(bias[half]).clamp(low, high);
                }
                if WHOLE {
                    value.store(at);
                } else {
                    value.store_part(at, n);
                }
            }
        }
    }
}

/// The same where columns do not follow one another: element by element, by the same arithmetic.
///
/// # Safety
///
/// As for [`tile`].
#[inline(never)]
unsafe fn scatter(lines: &[[f32; WIDEST]], place: &Place<'_>, finish: &Finish) {
    for (&row, line) in place.rows.iter().zip(lines) {
        for (i, &sum) in line.iter().enumerate().take(place.columns) {
            let column = place.column.wrapping_add(i);
            let at = row.wrapping_add(column.wrapping_mul(place.step));
            // SAFETY: the caller's promise.
            unsafe {
                let mut value = if place.first { sum } else { at.read() + sum };
                if place.last {
                    let bias = if finish.bias.is_null() { 0.0 } else { finish.bias.wrapping_add(column).read() };
                    value = crate::arithmetic::clamp(value + bias, finish.low, finish.high);
                }
                at.write(value);
            }
        }
    }
}

/// Computes rows `begin..end` of a product.
///
/// # Safety
///
/// The left side has the rows, the right side `depth` lines of `columns` elements, the output `columns` elements of
/// each row, and it overlaps neither. Scratch holds [`scratch_bytes`]. The CPU has these vectors.
#[inline(always)]
pub(crate) unsafe fn multiply<V: Vector, const ACROSS: bool, L: Lines, R: Lines, O: Outputs>(
    product: &Product<L, R, O>,
    (begin, end): (usize, usize),
    scratch: Window,
) {
    // One body for each height of a tile.
    // SAFETY: the caller's promise.
    unsafe {
        match V::ROWS {
            12 => blocks::<V, 12, ACROSS, L, R, O>(product, (begin, end), scratch),
            6 => blocks::<V, 6, ACROSS, L, R, O>(product, (begin, end), scratch),
            _ => blocks::<V, 4, ACROSS, L, R, O>(product, (begin, end), scratch),
        }
    }
}

/// See [`multiply`].
///
/// # Safety
///
/// As for [`multiply`].
#[inline(always)]
unsafe fn blocks<V: Vector, const ROWS: usize, const ACROSS: bool, L: Lines, R: Lines, O: Outputs>(
    product: &Product<L, R, O>,
    (begin, end): (usize, usize),
    scratch: Window,
) {
    let width = V::LANES.wrapping_mul(2);
    let skipped = scratch.ptr.addr().wrapping_neg() & (LINE - 1);
    let left: *mut f32 = scratch.ptr.wrapping_add(skipped).cast();
    let right = left.wrapping_add(LEFT * DEPTH);
    let mut rows = [core::ptr::null_mut::<f32>(); LEFT];
    let panels = if product.columns <= width && !ACROSS { FEW_PANELS } else { PANELS };
    let mut column = 0usize;
    while column < product.columns {
        let columns = COLUMNS.min(product.columns.wrapping_sub(column));
        let mut from = 0usize;
        while from < product.depth {
            let depth = DEPTH.min(product.depth.wrapping_sub(from));
            let panel = width.wrapping_mul(depth);
            let together = product.right.together();
            let mut line = 0usize;
            while line < depth {
                let lines = together.min(depth.wrapping_sub(line));
                let (mut at, mut to) = (0usize, right.wrapping_add(line.wrapping_mul(width)));
                while at < columns {
                    let n = width.min(columns.wrapping_sub(at));
                    // SAFETY: the caller's promise; scratch has room for all panels, of `width` columns each.
                    unsafe {
                        let place = (column.wrapping_add(at), n);
                        product.right.pack::<V>((from.wrapping_add(line), lines), place, to, width);
                        // Columns that only fill up the last vector.
                        let used = if n <= V::LANES { V::LANES } else { width };
                        if n < used {
                            for line in 0..lines {
                                let rest = to.wrapping_add(line.wrapping_mul(width)).wrapping_add(n);
                                clear::<V>(rest, used.wrapping_sub(n));
                            }
                        }
                    }
                    at = at.wrapping_add(width);
                    to = to.wrapping_add(panel);
                }
                line = line.wrapping_add(lines);
            }
            let mut row = begin;
            while row < end {
                let count = ROWS.wrapping_mul(panels).min(end.wrapping_sub(row));
                for (i, start) in rows.iter_mut().enumerate().take(count) {
                    *start = product.output.row(row.wrapping_add(i));
                }
                // SAFETY: the caller's promise; scratch has room for the rows, `DEPTH` elements each.
                unsafe {
                    // Rows that only fill up the last tile are zeros.
                    let spare = count.next_multiple_of(ROWS).wrapping_sub(count);
                    if ACROSS {
                        product.left.pack::<V>((from, depth), (row, count), left, LEFT);
                        if spare > 0 {
                            for line in 0..depth {
                                clear::<V>(left.wrapping_add(line.wrapping_mul(LEFT)).wrapping_add(count), spare);
                            }
                        }
                    } else {
                        product.left.pack::<V>((row, count), (from, depth), left, DEPTH);
                        for row in count..count.wrapping_add(spare) {
                            clear::<V>(left.wrapping_add(row.wrapping_mul(DEPTH)), depth);
                        }
                    }
                }
                let mut at = 0usize;
                let mut b = right.cast_const();
                while at < columns {
                    let n = width.min(columns.wrapping_sub(at));
                    for (number, rows) in rows.get(..count).unwrap_or(&[]).chunks(ROWS).enumerate() {
                        let a =
                            left.wrapping_add(number.wrapping_mul(ROWS.wrapping_mul(if ACROSS { 1 } else { DEPTH })));
                        let last = from.wrapping_add(depth) == product.depth;
                        let place = Place {
                            rows,
                            column: column.wrapping_add(at),
                            columns: n,
                            step: product.output.step(),
                            first: from == 0,
                            last,
                        };
                        // SAFETY: the panels were packed above; the rest is the caller's promise.
                        unsafe {
                            if n <= V::LANES {
                                tile::<V, ROWS, ACROSS, true>(a, b, depth, &place, &product.finish);
                            } else {
                                tile::<V, ROWS, ACROSS, false>(a, b, depth, &place, &product.finish);
                            }
                        }
                    }
                    at = at.wrapping_add(width);
                    b = b.wrapping_add(panel);
                }
                row = row.wrapping_add(count);
            }
            from = from.wrapping_add(depth);
        }
        column = column.wrapping_add(columns);
    }
}
