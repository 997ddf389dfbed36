//! Sessions that take turns in one arena.
//!
//! A plan whose state lies in banks before its last one has in that last bank nothing that a later run needs. So the last
//! bank, the arena, can be lent: [`Parked`] is a session without it, checked once; [`Parked::attach`] puts an arena under it
//! for a while. What holds the memory is what the borrow checker sees: an [`Attached`] session borrows the arena
//! mutably, so two can't use it at a time, and nothing read from one outlives its turn.
//!
//! ```
//! # use kiln_core::{Bank, Error, Parked, Plan, Row};
//! # fn turns(wake: Plan<'_>, commands: Plan<'_>, rows: &[Row]) -> Result<(), Error> {
//! let mut arena = Bank::<4096>::new();
//! let (mut kept, mut none) = (Bank::<64>::new(), Bank::<0>::new());
//! let mut wake: Parked<'_> = Parked::new(wake, rows, &mut kept, arena.bytes_mut())?;
//! let mut commands: Parked<'_> = Parked::new(commands, rows, &mut none, arena.bytes_mut())?;
//! for _ in 0..3 {
//!     for model in [&mut wake, &mut commands] {
//!         let mut session = model.attach_bytes(arena.bytes_mut())?;
//!         session.run_entry(0);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use core::ops::Deref;
use core::ptr::NonNull;

use zerocopy::{FromBytes, IntoBytes};

use crate::plan::{CONSTANTS, Entry, TensorRecord};
use crate::{Bank, Error, Hook, MAX_BANKS, MAX_EXTENTS, MAX_OPERANDS, Memory, Plan, Row, Session};

/// In place of an arena's bytes: they are known only at run time, and [`Parked::attach_bytes`] tests what it is given.
pub const ANY_ARENA: usize = usize::MAX;

/// The alignment that every arena has and that no kernel asks more of. Whatever a check found out about an address of the
/// arena that was checked holds for the same place in another arena.
const ALIGN: u32 = 16;

/// A session that was checked and then gave its arena, the plan's last bank, back. It keeps the banks before that one,
/// with the state.
///
/// `ARENA` is how many bytes the arena has in the plan. Generated code states it, so that attaching needs no test.
pub struct Parked<
    'm,
    const ARENA: usize = ANY_ARENA,
    const OPERANDS: usize = MAX_OPERANDS,
    const BANKS: usize = MAX_BANKS,
    const EXTENTS: usize = MAX_EXTENTS,
> {
    // Its last bank is one that was attached once and may be gone: nothing here runs the session or reads that bank.
    session: Session<'m, OPERANDS, BANKS, EXTENTS>,
    arena: usize,
}

impl<'m, const ARENA: usize, const OPERANDS: usize, const BANKS: usize, const EXTENTS: usize>
    Parked<'m, ARENA, OPERANDS, BANKS, EXTENTS>
{
    /// Checks every step of `plan` as [`Session::new`] does, in the memory `kept`, which is all banks of the plan but the
    /// last, and in `arena`; [resets](Session::reset) the state; and gives the arena back. A plan without state may have
    /// one bank, and then keeps none.
    ///
    /// # Errors
    ///
    /// Those of [`Session::bounded`]. [`Error::Memory`] also where the arena of the plan holds state, so can't be given
    /// away, or has not `ARENA` bytes.
    pub fn new(plan: Plan<'m>, rows: &'m [Row], kept: impl Into<Memory<'m>>, arena: &mut [u8]) -> Result<Self, Error> {
        let mut memory = kept.into();
        let (last, given) = (plan.banks().len().wrapping_sub(1), arena.len());
        let state = plan.header().state_len;
        if last == 0 && state > 0 {
            return Err(Error::Memory(0, state, 0));
        }
        let mut need = 0;
        // Without a bank `last` is no bank's number, here and whenever an arena is attached.
        if let Some(record) = plan.banks().last() {
            let number = last as u8;
            let bank = memory.banks.get_mut(last).filter(|_| last <= memory.count);
            *bank.ok_or(Error::Memory(number, record.bytes, 0))? = (arena.as_mut_ptr(), given);
            memory.count = last.wrapping_add(1);
            let misaligned = Error::MemoryAlignment(number, ALIGN);
            if record.align > ALIGN || arena.as_ptr().addr() & (ALIGN as usize).wrapping_sub(1) != 0 {
                return Err(misaligned);
            }
            // Powers of two up to 16; 0 and 1 ask for nothing.
            if !rows.iter().all(|row| matches!(row.align(), 0 | 1 | 2 | 4 | 8 | 16)) {
                return Err(misaligned);
            }
            need = record.bytes;
        }
        if ARENA != ANY_ARENA && need != ARENA as u64 {
            return Err(Error::Memory(last as u8, need, ARENA as u64));
        }
        let session = Session::bounded(plan, rows, memory)?;
        Ok(Parked { session, arena: last })
    }

    /// Puts an arena under the session until the result is dropped. That the arena is large enough is known when this is
    /// compiled, and that it is aligned by its type.
    ///
    /// Two models can't have it at a time:
    ///
    /// ```compile_fail,E0499
    /// # use kiln_core::{Bank, Parked};
    /// fn both(a: &mut Parked<'_, 64>, b: &mut Parked<'_, 32>, arena: &mut Bank<64>) {
    ///     let mut first = a.attach(arena);
    ///     let mut second = b.attach(arena);
    ///     first.run_entry(0);
    ///     second.run_entry(0);
    /// }
    /// ```
    ///
    /// though they can one after the other:
    ///
    /// ```
    /// # use kiln_core::{Bank, Parked};
    /// fn both(a: &mut Parked<'_, 64>, b: &mut Parked<'_, 32>, arena: &mut Bank<64>) {
    ///     let mut first = a.attach(arena);
    ///     first.run_entry(0);
    ///     let mut second = b.attach(arena);
    ///     second.run_entry(0);
    /// }
    /// ```
    ///
    /// Nor can one model have two arenas, since it has one state:
    ///
    /// ```compile_fail,E0499
    /// # use kiln_core::{Bank, Parked};
    /// fn twice(a: &mut Parked<'_, 64>, here: &mut Bank<64>, there: &mut Bank<64>) {
    ///     let mut first = a.attach(here);
    ///     let mut second = a.attach(there);
    ///     first.run_entry(0);
    /// }
    /// ```
    ///
    /// What lies in the arena is gone when another model runs:
    ///
    /// ```compile_fail,E0499
    /// # use kiln_core::{Bank, Parked};
    /// fn stale(a: &mut Parked<'_, 64>, b: &mut Parked<'_, 32>, arena: &mut Bank<64>) -> i8 {
    ///     let first = a.attach(arena);
    ///     let scores: &[i8; 8] = first.array::<i8, 8, 16>();
    ///     b.attach(arena).run_entry(0);
    ///     scores[0]
    /// }
    /// ```
    ///
    /// The memory outlives whoever borrows it:
    ///
    /// ```compile_fail,E0515
    /// # use kiln_core::{Attached, Bank, Parked};
    /// fn dangling<'a>(a: &'a mut Parked<'_, 64>) -> Attached<'a, 64> {
    ///     let mut arena = Bank::<64>::new();
    ///     a.attach(&mut arena)
    /// }
    /// ```
    ///
    /// And an arena that is too small does not compile:
    ///
    /// ```compile_fail,E0080
    /// # use kiln_core::{Bank, Parked};
    /// fn small(a: &mut Parked<'_, 64>, arena: &mut Bank<63>) {
    ///     a.attach(arena);
    /// }
    /// # let _: fn(&mut Parked<'_, 64>, &mut Bank<63>) = small;
    /// ```
    pub fn attach<'s, const N: usize>(
        &'s mut self,
        arena: &'s mut Bank<N>,
    ) -> Attached<'s, ARENA, OPERANDS, BANKS, EXTENTS> {
        const {
            assert!(ARENA != ANY_ARENA, "the arena's size is not known when this is compiled: use `attach_bytes`");
            assert!(N >= ARENA, "the arena is smaller than the model needs: see its ARENA_BYTES");
        }
        // `new` found that the bank has `ARENA` bytes; a `Bank` begins at a multiple of 16.
        self.put(NonNull::from(arena).cast())
    }

    /// The same with memory whose size and alignment are not in its type, and are tested.
    ///
    /// # Errors
    ///
    /// It is too small, or begins at no multiple of 16.
    pub fn attach_bytes<'s>(
        &'s mut self,
        arena: &'s mut [u8],
    ) -> Result<Attached<'s, ARENA, OPERANDS, BANKS, EXTENTS>, Error> {
        let number = self.arena as u8;
        if let Some((_, need)) = self.session.banks.get(self.arena) {
            if arena.len() < *need {
                return Err(Error::Memory(number, *need as u64, arena.len() as u64));
            }
            if arena.as_ptr().addr() & (ALIGN as usize).wrapping_sub(1) != 0 {
                return Err(Error::MemoryAlignment(number, ALIGN));
            }
        }
        Ok(self.put(NonNull::from(arena).cast()))
    }

    /// What runs in `arena`, which is borrowed for 's, large enough and aligned.
    fn put<'s>(&'s mut self, arena: NonNull<u8>) -> Attached<'s, ARENA, OPERANDS, BANKS, EXTENTS> {
        if let Some((base, _)) = self.session.banks.get_mut(self.arena) {
            *base = arena.as_ptr();
        }
        // SAFETY: 's is shorter than 'm, so what the session borrows lives long enough. With the shorter lifetime something
        // that lives only so long could be put into it; `Attached` puts nothing into it but numbers, and keeps it
        // from others.
        let session =
            unsafe { &mut *core::ptr::from_mut(&mut self.session).cast::<Session<'s, OPERANDS, BANKS, EXTENTS>>() };
        Attached { session, arena }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan<'m> {
        self.session.plan()
    }

    /// The address of a tensor that does not lie in the arena, as [`Session::array`] gives it; also of one that lies in the
    /// constants. It is to be read only, and while nothing runs.
    pub fn kept_array<T: FromBytes + IntoBytes, const N: usize>(
        &self,
        tensor: &TensorRecord,
    ) -> Option<NonNull<[T; N]>> {
        let bank = tensor.place.bank();
        if usize::from(bank) == self.arena {
            return None;
        }
        if bank != CONSTANTS {
            return self.session.array(tensor);
        }
        let constant = self.session.bytes(tensor).as_ptr().cast::<[T; N]>();
        let good = tensor.bytes == size_of::<[T; N]>() as u64 && constant.addr().is_multiple_of(align_of::<T>());
        NonNull::new(constant.cast_mut()).filter(|_| good)
    }
}

/// A session in its arena, for a while: see [`Parked::attach`].
///
/// It reads as a [`Session`] does. What changes one is here, and can't be reached there: the session is not to be moved
/// out from under its arena.
pub struct Attached<
    's,
    const ARENA: usize = ANY_ARENA,
    const OPERANDS: usize = MAX_OPERANDS,
    const BANKS: usize = MAX_BANKS,
    const EXTENTS: usize = MAX_EXTENTS,
> {
    session: &'s mut Session<'s, OPERANDS, BANKS, EXTENTS>,
    arena: NonNull<u8>,
}

// SAFETY: the pointer leads into memory that is borrowed mutably for 's; such a borrow is Send, as the session is.
unsafe impl<const ARENA: usize, const OPERANDS: usize, const BANKS: usize, const EXTENTS: usize> Send
    for Attached<'_, ARENA, OPERANDS, BANKS, EXTENTS>
{
}

impl<'s, const ARENA: usize, const OPERANDS: usize, const BANKS: usize, const EXTENTS: usize> Deref
    for Attached<'s, ARENA, OPERANDS, BANKS, EXTENTS>
{
    type Target = Session<'s, OPERANDS, BANKS, EXTENTS>;

    fn deref(&self) -> &Session<'s, OPERANDS, BANKS, EXTENTS> {
        self.session
    }
}

impl<'s, const ARENA: usize, const OPERANDS: usize, const BANKS: usize, const EXTENTS: usize>
    Attached<'s, ARENA, OPERANDS, BANKS, EXTENTS>
{
    /// See [`Session::bytes_mut`].
    pub fn bytes_mut(&mut self, tensor: &TensorRecord) -> &mut [u8] {
        self.session.bytes_mut(tensor)
    }

    /// The array at `OFFSET` bytes of the arena: what it holds is whatever was there last.
    ///
    /// A place that is not in the arena does not compile:
    ///
    /// ```compile_fail,E0080
    /// # use kiln_core::Attached;
    /// fn beyond(model: &Attached<'_, 64>) {
    ///     model.array::<i32, 8, 36>();
    /// }
    /// # let _: fn(&Attached<'_, 64>) = beyond;
    /// ```
    pub fn array<T: FromBytes + IntoBytes, const N: usize, const OFFSET: usize>(&self) -> &[T; N] {
        // SAFETY: `place` has proved the array to lie in the arena, aligned, and any bytes are elements; nothing writes
        // while `self` is borrowed.
        unsafe { self.place::<T, N, OFFSET>().as_ref() }
    }

    /// The same, to be written.
    pub fn array_mut<T: FromBytes + IntoBytes, const N: usize, const OFFSET: usize>(&mut self) -> &mut [T; N] {
        // SAFETY: as in `array`; and `&mut self` is the only way to the arena.
        unsafe { self.place::<T, N, OFFSET>().as_mut() }
    }

    fn place<T, const N: usize, const OFFSET: usize>(&self) -> NonNull<[T; N]> {
        const {
            assert!(ARENA != ANY_ARENA, "the arena's size is not known when this is compiled: use `bytes`");
            assert!(OFFSET <= ARENA && size_of::<[T; N]>() <= ARENA - OFFSET, "the array does not lie in the arena");
            assert!(OFFSET.is_multiple_of(align_of::<T>()), "the array is misaligned");
            assert!(align_of::<T>() <= ALIGN as usize, "an arena is aligned to 16 only");
        }
        // SAFETY: the arena has at least `ARENA` bytes, as `Parked::attach` and `Parked::attach_bytes` saw to.
        unsafe { self.arena.add(OFFSET).cast() }
    }

    /// Sets extent `index` for the runs that follow, in this arena or another: see [`Session::set_extent`].
    pub fn set_extent(&mut self, index: u16, value: u32) -> Result<(), Error> {
        self.session.set_extent(index, value)
    }

    /// Back to the beginning: see [`Session::reset`].
    pub fn reset(&mut self) {
        self.session.reset();
    }

    /// Runs an entry.
    pub fn run(&mut self, entry: &Entry<'s>) {
        self.session.run(entry);
    }

    /// Runs an entry and calls `hook` after each step: see [`Session::run_with`].
    pub fn run_with<H: Hook>(&mut self, entry: &Entry<'s>, hook: &mut H) {
        self.session.run_with(entry, hook);
    }

    /// Runs entry number `index`; does nothing where the plan has none.
    pub fn run_entry(&mut self, index: usize) {
        self.run_entry_with(index, &mut ());
    }

    /// The same, calling `hook` after each step.
    pub fn run_entry_with<H: Hook>(&mut self, index: usize, hook: &mut H) {
        if let Some(entry) = self.session.plan().entry(index) {
            self.session.run_with(&entry, hook);
        }
    }
}

// A bank's number fits the byte that places and errors have for it.
const _: () = assert!(MAX_BANKS <= CONSTANTS as usize);
