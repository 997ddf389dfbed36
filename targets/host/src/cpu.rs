//! The host's CPU as a back end.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kiln_core::TensorType;
use kiln_kernels::table::{self, Operand, Operation};
use kiln_ops::{Cost, Effect, Op, QuantRef};
use kiln_planner::backend::{Backend, BackendError, Handle, Memory, MemoryInfo, Prepared, Refused, Request};
use kiln_planner::graph::Graph;
use kiln_planner::solve::Budget;
use kiln_planner::{Again, Options, plan_over};

use crate::{Buffer, Executor, Threads, native_target};

/// Bytes of freed tensors that are kept for the next ones.
const KEPT_BYTES: u64 = 1 << 28;

/// The host's CPU.
pub struct Cpu {
    pool: Arc<Pool>,
    threads: Threads,
    observer: Option<Observer>,
}

/// What is told how long the steps of a run took.
type Observer = Arc<dyn Fn(&[StepTime]) + Send + Sync>;

/// How long a step took.
#[derive(Clone, Debug)]
pub struct StepTime {
    /// The name of the node it came from.
    pub name: String,
    /// The kernel.
    pub kernel: &'static str,
    /// Multiply-accumulates and bytes.
    pub cost: Cost,
    /// The clock's time.
    pub time: Duration,
}

/// Memory that tensors gave back, by size, and what is in use.
#[derive(Default)]
struct Pool {
    free: Mutex<Free>,
    tensors: AtomicU64,
    peak: AtomicU64,
}

#[derive(Default)]
struct Free {
    by_size: HashMap<usize, Vec<Buffer>>,
    bytes: u64,
}

/// A tensor's memory: goes back to the pool when its last handle is dropped.
struct Held {
    buffer: Option<Buffer>,
    pool: Arc<Pool>,
}

impl Memory for Held {
    fn bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, Buffer::len)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        self.pool.tensors.fetch_sub(buffer.len() as u64, Ordering::Relaxed);
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.bytes + buffer.len() as u64 <= KEPT_BYTES {
            free.bytes += buffer.len() as u64;
            free.by_size.entry(buffer.len()).or_default().push(buffer);
        }
    }
}

impl Pool {
    /// Memory of exactly `len` bytes with any content.
    fn take(&self, len: usize) -> Result<Buffer, BackendError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = free.by_size.get_mut(&len).and_then(Vec::pop) {
            free.bytes -= len as u64;
            return Ok(buffer);
        }
        drop(free);
        Buffer::zeroed(len).ok_or(BackendError::Memory { device: NAME.to_owned(), bytes: len as u64 })
    }

    fn hold(self: &Arc<Pool>, buffer: Buffer) -> Handle {
        let now = self.tensors.fetch_add(buffer.len() as u64, Ordering::Relaxed) + buffer.len() as u64;
        self.peak.fetch_max(now, Ordering::Relaxed);
        Arc::new(Held { buffer: Some(buffer), pool: self.clone() })
    }
}

const NAME: &str = "cpu";

impl Cpu {
    /// The CPU with nothing in its memory, and as many threads as the process may run at once.
    #[expect(clippy::new_without_default, reason = "a device is chosen, not a default")]
    pub fn new() -> Cpu {
        Cpu { pool: Arc::default(), threads: Threads::all(), observer: None }
    }

    /// The CPU with `threads` threads, at least one. The results are the same whatever their number.
    pub fn with_threads(threads: usize) -> Cpu {
        Cpu { pool: Arc::default(), threads: Threads::new(threads), observer: None }
    }

    /// The same, and `observer` is called after each run with what its steps took.
    pub fn observed(self, observer: impl Fn(&[StepTime]) + Send + Sync + 'static) -> Cpu {
        Cpu { observer: Some(Arc::new(observer)), ..self }
    }
}

impl Backend for Cpu {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> bool {
        if op.effect() != Effect::Fresh {
            return true;
        }
        let operand = |ty: &TensorType| Operand { ty: *ty, quant: QuantRef::default(), data: None };
        let inputs: Vec<Operand<'_>> = inputs.iter().map(operand).collect();
        table::choose(&Operation { op: *op, inputs: &inputs, output: operand(output) }, native_target()).is_some()
    }

    fn write(&self, bytes: &[u8]) -> Result<Handle, BackendError> {
        let mut buffer = self.pool.take(bytes.len())?;
        buffer.as_mut_slice().copy_from_slice(bytes);
        Ok(self.pool.hold(buffer))
    }

    fn read(&self, handle: &Handle) -> Result<Vec<u8>, BackendError> {
        Ok(buffer(handle)?.as_slice().to_vec())
    }

    fn prepare(&self, graph: &Graph, entry: usize) -> Result<Box<dyn Prepared>, BackendError> {
        self.prepare_for(graph, entry, &Request::default())
    }

    fn prepare_for(&self, graph: &Graph, entry: usize, request: &Request) -> Result<Box<dyn Prepared>, BackendError> {
        let name = graph.entries[entry].name.clone();
        // Searching for the smallest arena takes longer than it is worth where memory is plenty.
        let (budget, ram) = (Budget { nodes: 0 }, request.limit);
        let options = Options { external: true, budget, ram, ..Options::for_target(native_target()) };
        let planned = plan_over(graph, &options, &request.donated)?;
        let failed = |e: crate::RunError| BackendError::Failed { device: NAME.to_owned(), what: e.to_string() };
        let own = planned.entries.get(entry);
        let steps = own.map_or(&[][..], |entry| &entry.steps);
        let costs: Vec<Cost> = steps.iter().map(|step| step.cost).collect();
        let executor = Executor::new(&planned.bytes, &name, self.threads.clone(), &costs).map_err(failed)?;
        let executor = executor.with_over(own.map_or(&[][..], |entry| &entry.over));
        let sizes = |ids: &[kiln_planner::graph::ValueId]| {
            ids.iter().map(|&id| graph.value(id).ty.bytes().unwrap_or(0) as usize).collect()
        };
        let observed = self.observer.clone().map(|observer| {
            let times = steps.iter().map(|step| StepTime {
                name: step.name.clone(),
                kernel: step.kernel.name,
                cost: step.cost,
                time: Duration::ZERO,
            });
            (observer, times.collect())
        });
        let again = own.map_or(Again::default(), |entry| entry.again);
        let outputs = sizes(&graph.entries[entry].outputs);
        Ok(Box::new(Ready { executor, outputs, pool: self.pool.clone(), observed, again }))
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn memory(&self) -> MemoryInfo {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MemoryInfo { tensors: load(&self.pool.tensors), peak: load(&self.pool.peak) }
    }
}

fn buffer(handle: &Handle) -> Result<&Buffer, BackendError> {
    let held = handle.as_any().downcast_ref::<Held>().and_then(|held| held.buffer.as_ref());
    held.ok_or(BackendError::Foreign { device: NAME.to_owned() })
}

/// Where an output of a run lies.
enum Place {
    /// In memory of its own.
    Own(Buffer),
    /// In an input's, which nobody needs any more.
    Over(usize),
}

/// A planned entry.
struct Ready {
    executor: Executor,
    outputs: Vec<usize>,
    pool: Arc<Pool>,
    /// Where someone looks at how long its steps take.
    observed: Option<(Observer, Vec<StepTime>)>,
    again: Again,
}

impl Ready {
    /// Computes the outputs, those that can over an input that is `own`: that nobody else has a handle of.
    fn compute(&mut self, inputs: &[Handle], own: &[bool]) -> Result<Vec<Place>, BackendError> {
        let buffers = inputs.iter().map(buffer).collect::<Result<Vec<_>, _>>()?;
        let place = |(output, &len): (usize, &usize)| match self.executor.over(output) {
            Some(input) if own.get(input) == Some(&true) => Ok(Place::Over(input)),
            _ => self.pool.take(len).map(Place::Own),
        };
        let mut outputs = self.outputs.iter().enumerate().map(place).collect::<Result<Vec<_>, _>>()?;
        let failed = |e: crate::RunError| BackendError::Failed { device: NAME.to_owned(), what: e.to_string() };
        let own = |place| match place {
            &mut Place::Own(ref mut buffer) => Some(buffer),
            Place::Over(_) => None,
        };
        let mut places: Vec<Option<&mut Buffer>> = outputs.iter_mut().map(own).collect();
        let mut last = Instant::now();
        let times = self.observed.as_mut().map(|(_, times)| times);
        let mut note = times.map(|times| {
            |step: usize| {
                let now = Instant::now();
                if let Some(step) = times.get_mut(step) {
                    step.time = now - last;
                }
                last = now;
            }
        });
        let done = |step| {
            if let Some(note) = &mut note {
                note(step);
            }
        };
        // SAFETY: what is written over has one handle, which this run was given.
        unsafe { self.executor.run_over(&buffers, &mut places, done) }.map_err(failed)?;
        if let Some((observer, times)) = &self.observed {
            observer(times);
        }
        Ok(outputs)
    }
}

impl Prepared for Ready {
    fn run(&mut self, inputs: Vec<Handle>) -> Result<Vec<Handle>, BackendError> {
        self.run_or_return(inputs).map_err(|refused| refused.error)
    }

    fn run_or_return(&mut self, mut inputs: Vec<Handle>) -> Result<Vec<Handle>, Box<Refused>> {
        let own: Vec<bool> = inputs.iter_mut().map(|handle| Arc::get_mut(handle).is_some()).collect();
        let outputs = match self.compute(&inputs, &own) {
            Ok(outputs) => outputs,
            Err(error) => return Err(Box::new(Refused { error, inputs })),
        };
        let held = outputs.into_iter().map(|place| match place {
            Place::Own(buffer) => self.pool.hold(buffer),
            Place::Over(input) => inputs[input].clone(),
        });
        let handles: Vec<Handle> = held.collect();
        let arena = self.executor.arena_bytes() as u64;
        self.pool.peak.fetch_max(self.pool.tensors.load(Ordering::Relaxed) + arena, Ordering::Relaxed);
        Ok(handles)
    }

    fn again(&self) -> Again {
        self.again
    }

    fn arena_bytes(&self) -> u64 {
        self.executor.arena_bytes() as u64
    }
}
