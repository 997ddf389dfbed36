//! Binding a plan to kernels and memory, and walking its steps.

use core::marker::PhantomData;
use core::mem::MaybeUninit;

use zerocopy::{FromBytes, IntoBytes};

use crate::plan::{
    CONSTANTS, EXTERNAL, Entry, NO_EXTENT, OperandRecord, Place, STEP_DOWN, STEP_FEED, StepKind, StepRecord,
    TensorRecord,
};
use crate::{Call, Direction, Error, MAX_BANKS, MAX_OPERANDS, Memory, Plan, Row, RowRange, Window};

/// How many extents a plan can have.
pub const MAX_EXTENTS: usize = 4;

/// A step that has just been computed, for hooks.
pub struct Done<'a> {
    /// The step's number in the plan.
    pub index: u32,
    /// Its record.
    pub step: &'a StepRecord,
    outputs: &'a [Window],
}

impl Done<'_> {
    /// The bytes of output `i`; empty when there is none.
    pub fn output(&self, i: usize) -> &[u8] {
        match self.outputs.get(i) {
            // SAFETY: the window was checked to lie inside memory the session borrows; no kernel
            // runs while the hook looks at it.
            Some(w) if w.len > 0 => unsafe { core::slice::from_raw_parts(w.ptr, w.len) },
            _ => &[],
        }
    }
}

/// A step about to be computed, for hooks.
pub struct Next<'a> {
    /// The step's number in the plan.
    pub index: u32,
    /// Its record.
    pub step: &'a StepRecord,
    outputs: &'a [Window],
}

impl Next<'_> {
    /// Where the next bytes of an input go that is fed piece by piece; `None` for a step that asks for none.
    pub fn feed(&mut self) -> Option<&mut [u8]> {
        let window = self.outputs.first().filter(|w| w.len > 0 && self.step.flags & STEP_FEED != 0)?;
        // SAFETY: the window was checked to lie inside memory the session borrows mutably; no kernel runs while the
        // hook has it, and `&mut self` makes it the only one.
        Some(unsafe { core::slice::from_raw_parts_mut(window.ptr, window.len) })
    }
}

/// Called around each step: to feed an input piece by piece, to pet a watchdog, to dump what a layer produced.
pub trait Hook {
    /// The step `next` is about to be computed.
    #[inline]
    fn before(&mut self, next: &mut Next<'_>) {
        let _ = next;
    }

    /// The step `done` was computed.
    fn after(&mut self, done: &Done<'_>);
}

impl Hook for () {
    #[inline]
    fn after(&mut self, _: &Done<'_>) {}
}

impl<F: FnMut(&Done<'_>)> Hook for F {
    fn after(&mut self, done: &Done<'_>) {
        self(done)
    }
}

/// A hook that feeds an input by rows: it is called with the place of the elements that come next.
pub struct Feed<F>(pub F);

impl<F: FnMut(&mut [i8])> Hook for Feed<F> {
    fn before(&mut self, next: &mut Next<'_>) {
        if let Some(Ok(rows)) = next.feed().map(<[i8]>::mut_from_bytes) {
            (self.0)(rows);
        }
    }

    fn after(&mut self, _: &Done<'_>) {}
}

/// [`Feed`] with a hook beside it, which is called after it.
pub struct FeedAnd<'h, F, H>(pub F, pub &'h mut H);

impl<F: FnMut(&mut [i8]), H: Hook> Hook for FeedAnd<'_, F, H> {
    fn before(&mut self, next: &mut Next<'_>) {
        Feed(&mut self.0).before(next);
        self.1.before(next);
    }

    fn after(&mut self, done: &Done<'_>) {
        self.1.after(done);
    }
}

/// A plan, the kernels it needs and the memory it works in, checked against each other.
///
/// `OPERANDS` is how many operands a step of the plan has at most. A run keeps room for so many on its stack, 8 bytes each on a
/// 32-bit CPU. `BANKS` and `EXTENTS` are how many of these the plan has at most: with one bank and no extent, as most have, there is
/// nothing to look up. Generated code states what its plan has.
pub struct Session<
    'm,
    const OPERANDS: usize = MAX_OPERANDS,
    const BANKS: usize = MAX_BANKS,
    const EXTENTS: usize = MAX_EXTENTS,
> {
    plan: Plan<'m>,
    rows: &'m [Row],
    pub(crate) banks: [(*mut u8, usize); BANKS],
    extents: [u32; EXTENTS],
    memory: PhantomData<&'m mut [u8]>,
}

// SAFETY: the pointers in `banks` come from `&mut [u8]` borrowed for 'm, which are Send; nothing
// else in a session is bound to a thread.
unsafe impl<const OPERANDS: usize, const BANKS: usize, const EXTENTS: usize> Send
    for Session<'_, OPERANDS, BANKS, EXTENTS>
{
}

impl<'m> Session<'m> {
    /// Checks every step of `plan` against `rows` and `memory`, and [resets](Session::reset) the state.
    pub fn new(plan: Plan<'m>, rows: &'m [Row], memory: impl Into<Memory<'m>>) -> Result<Session<'m>, Error> {
        Session::bounded(plan, rows, memory)
    }
}

impl<'m, const OPERANDS: usize, const BANKS: usize, const EXTENTS: usize> Session<'m, OPERANDS, BANKS, EXTENTS> {
    /// [`Session::new`] for plans whose steps have at most `OPERANDS` operands, and with at most so many banks and extents; others are
    /// [`Error::StepTable`], [`Error::Memory`] and [`Error::Extent`].
    pub fn bounded(plan: Plan<'m>, rows: &'m [Row], memory: impl Into<Memory<'m>>) -> Result<Self, Error> {
        let memory = memory.into();
        let mut banks = [Memory::NONE; BANKS];
        banks.iter_mut().zip(memory.banks).for_each(|(to, from)| *to = from);
        let mut session = Session { plan, rows, banks, extents: [0; EXTENTS], memory: PhantomData };
        session.check_banks(memory.count)?;
        session.check_extents()?;
        for (index, tensor) in plan.tensors().iter().enumerate() {
            // One that is fed lies nowhere.
            if tensor.place.bank() != EXTERNAL {
                session.window(tensor.place, tensor.bytes, 1, 0).ok_or(Error::Tensor(index as u32))?;
            }
        }
        for (index, step) in plan.steps().iter().enumerate() {
            session.check_step(index as u32, step)?;
        }
        session.reset();
        Ok(session)
    }

    fn check_banks(&mut self, given: usize) -> Result<(), Error> {
        for (index, bank) in self.plan.banks().iter().enumerate() {
            let number = index as u8;
            let Some((ptr, len)) = self.banks.get_mut(index).filter(|_| index < given) else {
                return Err(Error::Memory(number, bank.bytes, 0));
            };
            if bank.bytes > *len as u64 {
                return Err(Error::Memory(number, bank.bytes, *len as u64));
            }
            if !bank.align.is_power_of_two() || ptr.addr() & (bank.align as usize).wrapping_sub(1) != 0 {
                return Err(Error::MemoryAlignment(number, bank.align));
            }
            // What the plan does not use, no window may reach.
            *len = bank.bytes as usize;
        }
        let state = self.plan.header().state_len;
        let room = self.plan.banks().first().map_or(0, |b| b.bytes);
        if state > room { Err(Error::Memory(0, state, room)) } else { Ok(()) }
    }

    fn check_extents(&mut self) -> Result<(), Error> {
        for (index, record) in self.plan.extents().iter().enumerate() {
            match self.extents.get_mut(index) {
                Some(value) if record.max > 0 => *value = record.max,
                _ => return Err(Error::Extent(index as u16)),
            }
        }
        Ok(())
    }

    fn check_step(&self, index: u32, step: &StepRecord) -> Result<(), Error> {
        if step.kind != StepKind::Kernel as u8 {
            return Err(Error::StepKind(index, step.kind));
        }
        let row = self.row(step.row).ok_or(Error::Row(index, step.row))?;
        let broken = Error::StepTable(index);
        let operands = self.plan.step_operands(step).ok_or(broken)?;
        self.plan.parameters(step).ok_or(broken)?;
        if step.row_begin > step.row_end {
            return Err(broken);
        }
        if step.extent != NO_EXTENT {
            // Both: a session for plans without extents has no code for them.
            self.extents.get(step.extent as usize).ok_or(broken)?;
            let max = self.plan.extents().get(step.extent as usize).ok_or(broken)?.max;
            if max == 0 || step.row_begin != 0 || !step.row_end.is_multiple_of(max) {
                return Err(broken);
            }
        }
        if operands.len() > OPERANDS {
            return Err(broken);
        }
        let inputs = step.inputs as usize;
        for (number, operand) in operands.iter().enumerate() {
            let bad = Error::Operand(index, number as u8);
            let reads_only = number < inputs;
            if !reads_only && operand.place.bank() == CONSTANTS {
                return Err(bad);
            }
            let over_read = if reads_only { row.over_read() } else { 0 };
            self.window(operand.place, operand.bytes, row.align() as usize, over_read).ok_or(bad)?;
        }
        let mut room = Room::NEW;
        // SAFETY: all of this was found good. Extents have their maxima, so all rows are checked.
        let (row, call) = unsafe { self.call(step, &mut room) };
        if row.check(call) { Ok(()) } else { Err(Error::Parameters(index)) }
    }

    /// Back to the beginning: zeroes the state, and runs the entry `reset` where the plan has it.
    pub fn reset(&mut self) {
        self.zero_state();
        if let Some(entry) = self.plan.entry_named("reset") {
            self.run(&entry);
        }
    }

    fn zero_state(&mut self) {
        let bytes = self.plan.header().state_len as usize;
        let Some(&(ptr, len)) = self.banks.first() else { return };
        if bytes > 0 && bytes <= len {
            // SAFETY: the bank is borrowed mutably for 'm and is at least `len` bytes long.
            unsafe { core::ptr::write_bytes(ptr, 0, bytes) };
        }
    }

    fn row(&self, number: u16) -> Option<&'m Row> {
        self.rows.iter().find(|r| r.number() == number)
    }

    /// The window of `bytes` at `place`, if it and the `over_read` bytes after it lie inside its
    /// bank and it is aligned.
    fn window(&self, place: Place, bytes: u64, align: usize, over_read: u8) -> Option<Window> {
        let (base, room) = match place.bank() {
            CONSTANTS => (self.plan.constants().as_ptr().cast_mut(), self.plan.constants().len()),
            bank if (bank as usize) < self.plan.banks().len() => *self.banks.get(bank as usize)?,
            _ => return None,
        };
        let end = place.offset().checked_add(bytes)?.checked_add(over_read as u64)?;
        if end > room as u64 {
            return None;
        }
        if bytes == 0 {
            return Some(Window::EMPTY);
        }
        let ptr = base.wrapping_add(place.offset() as usize);
        if ptr.addr() & align.saturating_sub(1) != 0 {
            return None;
        }
        Some(Window { ptr, len: bytes as usize })
    }

    /// Where an operand that [`Session::new`] checked lies.
    #[inline]
    fn resolve(&self, operand: &OperandRecord) -> Window {
        let bank = operand.place.bank() as usize;
        let base = match self.banks.get(bank) {
            Some((base, _)) => *base,
            None => self.plan.constants_start().cast_mut(),
        };
        if operand.bytes == 0 {
            return Window::EMPTY;
        }
        Window { ptr: base.wrapping_add(operand.place.offset() as usize), len: operand.bytes as usize }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan<'m> {
        &self.plan
    }

    /// The bytes of a tensor of the plan: an output after a run, an input before it.
    pub fn bytes(&self, tensor: &TensorRecord) -> &[u8] {
        match self.window(tensor.place, tensor.bytes, 1, 0) {
            // SAFETY: `window` proved the bytes to lie inside a bank borrowed for 'm or inside the
            // constants; `&self` keeps kernels from running meanwhile.
            Some(w) if w.len > 0 => unsafe { core::slice::from_raw_parts(w.ptr, w.len) },
            _ => &[],
        }
    }

    /// The bytes of a tensor of the plan, to be written before a run; empty for one that lies in
    /// the constants.
    pub fn bytes_mut(&mut self, tensor: &TensorRecord) -> &mut [u8] {
        match self.window(tensor.place, tensor.bytes, 1, 0) {
            // SAFETY: as in `bytes`, and `&mut self` is the only way to this memory; constants,
            // which others may read, are left out.
            Some(w) if w.len > 0 && tensor.place.bank() != CONSTANTS => unsafe {
                core::slice::from_raw_parts_mut(w.ptr, w.len)
            },
            _ => &mut [],
        }
    }

    /// The address of a tensor as an array of `N` elements, if it lies in RAM, has exactly their
    /// bytes and their alignment: what typed wrappers keep. Dereferencing it is sound while the
    /// session is borrowed the same way. An array without bytes lies nowhere in particular.
    pub fn array<T: FromBytes + IntoBytes, const N: usize>(
        &self,
        tensor: &TensorRecord,
    ) -> Option<core::ptr::NonNull<[T; N]>> {
        let window = self.window(tensor.place, tensor.bytes, align_of::<T>(), 0)?;
        if tensor.place.bank() == CONSTANTS || window.len != size_of::<[T; N]>() {
            return None;
        }
        if window.len == 0 {
            return Some(core::ptr::NonNull::dangling());
        }
        core::ptr::NonNull::new(window.ptr.cast())
    }

    /// Sets extent `index` for the runs that follow: `1..=max`.
    pub fn set_extent(&mut self, index: u16, value: u32) -> Result<(), Error> {
        let bad = Error::ExtentValue(index, value);
        let max = self.plan.extents().get(index as usize).ok_or(bad)?.max;
        match self.extents.get_mut(index as usize) {
            Some(place) if value >= 1 && value <= max => *place = value,
            _ => return Err(bad),
        }
        Ok(())
    }

    /// Runs an entry.
    pub fn run(&mut self, entry: &Entry<'m>) {
        self.run_with(entry, &mut ())
    }

    /// Runs an entry and calls `hook` after each step. An entry that is not this session's plan's
    /// own does nothing.
    pub fn run_with<H: Hook>(&mut self, entry: &Entry<'m>, hook: &mut H) {
        // Only the very records that went through the checks may run: neither those of another plan
        // nor bytes of this one cut at other places, which callers can make into an `Entry`.
        let (first, all) = (entry.first_step as usize, self.plan.steps());
        let whole = first <= all.len() && entry.steps.len() <= all.len().wrapping_sub(first);
        if !whole || !core::ptr::eq(all.as_ptr().wrapping_add(first), entry.steps.as_ptr()) {
            return;
        }
        for (offset, step) in entry.steps.iter().enumerate() {
            let mut room = Room::NEW;
            // SAFETY: the session began with a check of its plan's steps.
            let (row, call) = unsafe { self.call(step, &mut room) };
            let index = entry.first_step.wrapping_add(offset as u32);
            hook.before(&mut Next { index, step, outputs: call.outputs() });
            // SAFETY: `check_step` ran this row's check on the same windows and parameters with a
            // row range that includes this one; the host proved the overlaps, and if it did not,
            // windows still lie inside the banks.
            unsafe { row.run(call) };
            hook.after(&Done { index, step, outputs: call.outputs() });
        }
    }

    /// What a step calls. Its own function, so that a kernel finds none of this on the stack.
    ///
    /// # Safety
    ///
    /// [`Session::check_step`] found the step good, but for what the row says of it.
    #[inline(never)]
    unsafe fn call<'w>(&self, step: &StepRecord, room: &'w mut Room<'w, OPERANDS>) -> (&'m Row, &'w Call<'w>)
    where
        'm: 'w,
    {
        // SAFETY: a good step has a row, its operands and parameters lie inside their tables, and there is room for all windows.
        unsafe {
            let row = self.row(step.row).unwrap_unchecked();
            let first = room.windows.as_mut_ptr().cast::<Window>();
            let mut next = first;
            for operand in self.plan.checked_operands(step) {
                next.write(self.resolve(operand));
                next = next.wrapping_add(1);
            }
            let rows = RowRange { begin: step.row_begin, end: self.row_end(step) };
            let (inputs, outputs, scratch) = (step.inputs as usize, step.outputs as usize, step.scratch as usize);
            // As many were written.
            let part = |from: usize, count| core::slice::from_raw_parts(first.wrapping_add(from), count);
            let (inputs, outputs, scratch) =
                (part(0, inputs), part(inputs, outputs), part(inputs.wrapping_add(outputs), scratch));
            let mut call = Call::new(inputs, outputs, scratch, self.plan.checked_parameters(step), rows);
            if step.flags & STEP_DOWN != 0 {
                call.direction = Direction::Down;
            }
            (row, room.call.write(call))
        }
    }

    /// `row_end` as the step's extent scales it.
    #[inline]
    fn row_end(&self, step: &StepRecord) -> u32 {
        let Some(&value) = self.extents.get(step.extent as usize) else { return step.row_end };
        let record = self.plan.extents().get(step.extent as usize);
        // `max` is not 0: checked when the session began.
        match record.and_then(|record| step.row_end.checked_div(record.max)) {
            Some(each) => each.wrapping_mul(value),
            None => step.row_end,
        }
    }
}

/// Room for the call of one step and its windows, which are written as far as it has operands. In one piece, so that a run keeps
/// one address; not zeroed, which would call `memset`.
#[repr(C)]
struct Room<'w, const OPERANDS: usize> {
    call: MaybeUninit<Call<'w>>,
    windows: [MaybeUninit<Window>; OPERANDS],
}

impl<const OPERANDS: usize> Room<'_, OPERANDS> {
    const NEW: Self = Room { call: MaybeUninit::uninit(), windows: [const { MaybeUninit::uninit() }; OPERANDS] };
}
