//! Where tensors live and what computes them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kiln_planner::Again;
use kiln_planner::backend::{Backend, MemoryInfo, Prepared};
use kiln_target_host::Cpu;

use crate::Error;
use crate::cache::Cache;

/// Where a device's random numbers are: the seed, and how many random tensors were drawn since it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RandomState {
    /// The seed.
    pub seed: u64,
    /// Tensors drawn.
    pub draws: u32,
}

/// Where tensors live: a back end, and the plans that were made for it. Clones are the same device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    backend: Box<dyn Backend>,
    cache: Mutex<Cache>,
    routed: Mutex<BTreeSet<String>>,
    built: AtomicU64,
    runs: AtomicU64,
    largest: AtomicU64,
    /// The most bytes of an arena; all ones for any number.
    budget: AtomicU64,
    again: Mutex<Again>,
    /// Runs that were given memory with its only handle: begun, and ended.
    given: AtomicU64,
    taken: AtomicU64,
    seed: AtomicU64,
    draws: AtomicU32,
}

impl Device {
    /// This computer's CPU, with as many threads as the process may run at once.
    pub fn cpu() -> Device {
        Device::new(Box::new(Cpu::new()))
    }

    /// This computer's CPU with `threads` threads, at least one. The results are the same bit for bit whatever their
    /// number.
    pub fn cpu_threads(threads: usize) -> Device {
        Device::new(Box::new(Cpu::with_threads(threads)))
    }

    /// A device that computes with `backend`.
    pub fn new(backend: Box<dyn Backend>) -> Device {
        Device(Arc::new(Inner {
            backend,
            cache: Mutex::default(),
            routed: Mutex::default(),
            built: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            budget: AtomicU64::new(u64::MAX),
            again: Mutex::default(),
            given: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            seed: AtomicU64::new(0),
            draws: AtomicU32::new(0),
        }))
    }

    /// The same device, whose plans may need at most `bytes` of working memory each: beyond the tensors that they read
    /// and give, for what they compute on the way. A plan that needs more computes values again in place of keeping
    /// them, activations in the backward pass of a training step above all. The results are the same bit for bit.
    ///
    /// Where that is not enough, what asks for the values gives an [`Error`] with the bytes that are.
    ///
    /// ```
    /// use kiln::Device;
    ///
    /// let device = Device::cpu().with_memory_budget(64 << 20);
    /// assert_eq!(device.memory_budget(), Some(64 << 20));
    /// ```
    pub fn with_memory_budget(self, bytes: u64) -> Device {
        self.set_memory_budget(Some(bytes));
        self
    }

    /// Changes the [budget](Device::with_memory_budget) for the runs to come; `None` is any number of bytes.
    pub fn set_memory_budget(&self, bytes: Option<u64>) {
        self.0.budget.store(bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Bytes of working memory that a plan may need.
    pub fn memory_budget(&self) -> Option<u64> {
        Some(self.0.budget.load(Ordering::Relaxed)).filter(|&bytes| bytes < u64::MAX)
    }

    /// What the plan computes again, of those made so far, that saves most memory by it.
    pub fn again(&self) -> Again {
        *self.0.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is.
    pub fn name(&self) -> String {
        self.0.backend.name()
    }

    /// How many plans were made so far. In a loop that records the same graphs again and again, the number
    /// stays as it is.
    pub fn plans_built(&self) -> u64 {
        self.0.built.load(Ordering::Relaxed)
    }

    /// What plans made so far leave to the CPU because the device has no kernels for it: operators with the element
    /// type that they read, such as `matmul of float64`. Each costs moving its tensors there and back.
    pub fn routed(&self) -> Vec<String> {
        self.0.routed.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// How many plans were run so far.
    pub fn runs(&self) -> u64 {
        self.0.runs.load(Ordering::Relaxed)
    }

    /// Bytes of the plan that took most of those that were run so far: its inputs, its outputs and its arena. Where
    /// nothing else is alive, [`MemoryInfo::peak`] is this.
    pub fn largest_plan(&self) -> u64 {
        self.0.largest.load(Ordering::Relaxed)
    }

    /// Memory in use.
    pub fn memory(&self) -> MemoryInfo {
        self.0.backend.memory()
    }

    /// Waits until everything asked for is computed.
    pub fn synchronize(&self) -> Result<(), Error> {
        Ok(self.0.backend.synchronize()?)
    }

    /// Begins the random numbers anew: the same seed and the same program give the same numbers.
    pub fn seed(&self, seed: u64) {
        self.0.seed.store(seed, Ordering::Relaxed);
        self.0.draws.store(0, Ordering::Relaxed);
    }

    /// Where its random numbers are.
    pub fn random_state(&self) -> RandomState {
        RandomState { seed: self.0.seed.load(Ordering::Relaxed), draws: self.0.draws.load(Ordering::Relaxed) }
    }

    /// Goes on where [`Device::random_state`] was read: how training is resumed.
    pub fn set_random_state(&self, state: RandomState) {
        self.0.seed.store(state.seed, Ordering::Relaxed);
        self.0.draws.store(state.draws, Ordering::Relaxed);
    }

    /// A key that no random tensor had since the seed was given.
    pub(crate) fn next_key(&self) -> [i32; 4] {
        let seed = self.0.seed.load(Ordering::Relaxed);
        let draw = self.0.draws.fetch_add(1, Ordering::Relaxed);
        [seed as i32, (seed >> 32) as i32, 0, draw as i32]
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.0.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_plan(&self, plan: &dyn Prepared) {
        self.0.built.fetch_add(1, Ordering::Relaxed);
        let routed = plan.routed().iter().map(|node| format!("{} of {}", node.op, node.dtype.name()));
        self.0.routed.lock().unwrap_or_else(PoisonError::into_inner).extend(routed);
    }

    /// Counts a run that is given memory, until what is returned is dropped.
    pub(crate) fn give(&self) -> Giving<'_> {
        self.0.given.fetch_add(1, Ordering::SeqCst);
        Giving(self)
    }

    /// How many such runs ended, and how many began.
    pub(crate) fn givings(&self) -> (u64, u64) {
        let taken = self.0.taken.load(Ordering::SeqCst);
        (taken, self.0.given.load(Ordering::SeqCst))
    }

    pub(crate) fn count_again(&self, again: Again) {
        let mut most = self.0.again.lock().unwrap_or_else(PoisonError::into_inner);
        if again.saved > most.saved {
            *most = again;
        }
    }

    pub(crate) fn count_run(&self, bytes: u64) {
        self.0.runs.fetch_add(1, Ordering::Relaxed);
        self.0.largest.fetch_max(bytes, Ordering::Relaxed);
    }
}

/// A run that was given memory.
pub(crate) struct Giving<'a>(&'a Device);

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        self.0.0.taken.fetch_add(1, Ordering::SeqCst);
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}
