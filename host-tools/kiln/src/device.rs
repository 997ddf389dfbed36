//! Where tensors live and what computes them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
            seed: AtomicU64::new(0),
            draws: AtomicU32::new(0),
        }))
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

    pub(crate) fn count_run(&self, bytes: u64) {
        self.0.runs.fetch_add(1, Ordering::Relaxed);
        self.0.largest.fetch_max(bytes, Ordering::Relaxed);
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
