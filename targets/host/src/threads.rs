//! Threads that share the rows of a step.

use std::num::NonZeroUsize;
use std::sync::Arc;

use kiln_core::{Call, Row, RowRange, Window};

use crate::Buffer;
use crate::executor::SCRATCH_ALIGN;

/// Threads for executors. Clones are the same threads.
#[derive(Clone, Default)]
pub struct Threads(Option<Arc<rayon_core::ThreadPool>>);

impl Threads {
    /// As many threads as the process may run at once.
    pub fn all() -> Threads {
        Threads::new(std::thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }

    /// `count` threads, at least one. Where the system has no more threads, the caller's own computes alone.
    pub fn new(count: usize) -> Threads {
        if count < 2 {
            return Threads(None);
        }
        let pool = rayon_core::ThreadPoolBuilder::new().num_threads(count).thread_name(|i| format!("kiln {i}"));
        Threads(pool.build().ok().map(Arc::new))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.as_ref().map_or(1, |pool| pool.current_num_threads())
    }

    /// Runs `f` on one of them.
    pub(crate) fn within<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        match &self.0 {
            Some(pool) => pool.install(f),
            None => f(),
        }
    }
}

/// A step whose rows are shared.
pub(crate) struct Share<'a> {
    pub(crate) row: Row,
    pub(crate) inputs: &'a [Window],
    pub(crate) outputs: &'a [Window],
    pub(crate) parameters: &'a [u8],
    pub(crate) rows: RowRange,
    /// Among how many threads.
    pub(crate) count: usize,
}

// SAFETY: the windows are those of a step that is checked, over memory that outlives `run`. Threads compute different
// rows, which no two write the same byte of, and none of what they read is written (`Share::run`).
unsafe impl Sync for Share<'_> {}

/// A thread's windows of scratch.
struct Scratch(Vec<Window>);

// SAFETY: a thread's scratch is its own for the time of the call.
unsafe impl Send for Scratch {}

impl Share<'_> {
    /// Computes all rows, called from one of the threads: the first share with `scratch`, the others with as much of
    /// `more`.
    ///
    /// # Safety
    ///
    /// The row's check accepted the step. No output overlaps an input. `more` has a buffer for each share but the
    /// first, if the row needs scratch.
    pub(crate) unsafe fn run(&self, scratch: &[Window], more: &[Buffer]) {
        let own = Scratch(scratch.to_vec());
        let others =
            (1..self.count).map(|n| Scratch(more.get(n - 1).map_or(Vec::new(), |buffer| cut(buffer, scratch))));
        let others: Vec<Scratch> = others.collect();
        rayon_core::scope(|scope| {
            for (number, scratch) in others.into_iter().enumerate() {
                // SAFETY: the caller's promise.
                scope.spawn(move |_| unsafe { self.part(number + 1, scratch) });
            }
            // SAFETY: the caller's promise.
            unsafe { self.part(0, own) };
        });
    }

    /// Computes a share's rows.
    ///
    /// # Safety
    ///
    /// As for [`Share::run`]; the scratch is no other thread's.
    unsafe fn part(&self, number: usize, scratch: Scratch) {
        let all = u64::from(self.rows.end - self.rows.begin);
        let at = |n: usize| self.rows.begin + (all * n as u64 / self.count as u64) as u32;
        let rows = RowRange { begin: at(number), end: at(number + 1) };
        let call = Call::new(self.inputs, self.outputs, &scratch.0, self.parameters, rows);
        // SAFETY: the rows are a part of those checked.
        unsafe { self.row.run(&call) };
    }
}

/// Windows as large as `like`, behind one another in a buffer that is large enough.
fn cut(buffer: &Buffer, like: &[Window]) -> Vec<Window> {
    let mut at = 0;
    let windows = like.iter().map(|window| {
        let own = Window { ptr: buffer.pointer().wrapping_add(at), len: window.len };
        at += window.len.next_multiple_of(SCRATCH_ALIGN);
        own
    });
    windows.collect()
}
