//! From a graph's entry to steps over storage: views resolved, kernels chosen and prepared, state
//! changes turned into copies.

use std::collections::{HashMap, HashSet};

use kiln_core::TargetId;
use kiln_core::plan::NO_EXTENT;
use kiln_kernels::table::{self, Direction, Emit, Kernel, Operand, Operation};
use kiln_kernels::workload::Workload;
use kiln_ops::{Copy, Cost, Effect, Op, OpError};

use crate::error::{PlanError, Unsupported};
use crate::graph::{Entry, Graph, GraphError, Node, Source, ValueId};
use crate::patches::{self, Group, Stretch};
use crate::plan::{Choice, Options};
use crate::recompute::Fitted;

/// What holds a value's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Storage {
    /// The entry's buffer number …, in the arena.
    Buffer(usize),
    /// State number … of the graph.
    State(usize),
    /// Constant number … of the pool.
    Constant(usize),
    /// Memory that a host binds at each run: the entry's inputs, then its outputs.
    External(usize),
}

/// Bytes in the arena.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    /// The value that is written; views of it share the bytes.
    pub value: ValueId,
    /// Its name, where it is not the value's own.
    pub name: String,
    pub bytes: u64,
    pub align: u64,
    pub tail: u64,
    /// The step that writes it; `None` for an input.
    pub step: Option<usize>,
    /// Read by the caller after the run.
    pub output: bool,
    /// Where it lies, if that is within another.
    pub part: Option<Part>,
}

/// A place in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The buffer.
    pub of: usize,
    /// Bytes from its start.
    pub offset: u64,
}

/// One call of a kernel.
#[derive(Clone)]
pub(crate) struct Step {
    pub name: String,
    pub op: Op,
    pub node: u32,
    pub kernel: &'static Kernel,
    pub inputs: Vec<Storage>,
    pub output: Storage,
    pub scratch: Vec<u64>,
    pub parameters: Vec<u8>,
    pub rows: u32,
    pub extent: u16,
    pub cost: Cost,
    pub workload: Workload,
    /// Inputs that the output may overlap.
    pub overlaps: Vec<Lag>,
    /// Inputs outside the arena that the output may lie exactly over.
    pub in_place: Vec<usize>,
    /// Steps that must come first though no buffer says so.
    pub after: Vec<usize>,
    /// The values read and computed, for reports and verification.
    pub values: (Vec<ValueId>, ValueId),
    /// Computes again what an earlier step did.
    pub again: bool,
    /// Computes nothing: the caller fills its output.
    pub feed: bool,
}

impl Step {
    /// How many operands its record has.
    pub(crate) fn operands(&self) -> usize {
        self.inputs.len() + 1 + self.scratch.len()
    }
}

/// A buffer that a step's output may overlap, and by how much it must trail it walking up or down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lag {
    pub input: usize,
    pub up: Option<u64>,
    pub down: Option<u64>,
}

/// Constants of all entries, each kept once.
#[derive(Default)]
pub(crate) struct Pool {
    pub blobs: Vec<Constant>,
    by_content: HashMap<Vec<u8>, usize>,
}

/// A piece of the constants.
pub(crate) struct Constant {
    pub name: String,
    pub bytes: Vec<u8>,
    pub align: u64,
}

impl Pool {
    fn add(&mut self, name: String, bytes: Vec<u8>, align: u64) -> usize {
        let index = *self.by_content.entry(bytes).or_insert_with_key(|bytes| {
            self.blobs.push(Constant { name, bytes: bytes.clone(), align: 1 });
            self.blobs.len() - 1
        });
        let blob = &mut self.blobs[index];
        blob.align = blob.align.max(align);
        index
    }
}

/// State of the whole graph: its value, and the alignment kernels want.
pub(crate) struct StateSlot {
    pub value: ValueId,
    pub align: u64,
}

/// An entry as steps over storage.
#[derive(Default)]
pub(crate) struct Lowered {
    pub steps: Vec<Step>,
    pub buffers: Vec<Buffer>,
    pub inputs: Vec<Storage>,
    pub outputs: Vec<Storage>,
    /// Steps that are planned as one.
    pub groups: Vec<Group>,
}

/// What names of steps and tensors end with that are computed again.
pub(crate) const AGAIN: &str = " (again)";

impl Lowered {
    /// The input that is fed by rows, and the most bytes that a step asks for.
    pub(crate) fn fed(&self) -> Option<(ValueId, u64)> {
        let fed = self.steps.iter().filter(|step| step.feed);
        let of = |step: &Step| match step.output {
            Storage::Buffer(b) => self.buffers.get(b).map(|buffer| (step.values.1, buffer.bytes)),
            _ => None,
        };
        fed.filter_map(of).max_by_key(|(_, bytes)| *bytes)
    }

    /// What each step costs: its multiply-accumulates, or what moving its bytes takes besides. Four bytes take about as
    /// long as one of those.
    pub(crate) fn work(&self) -> Vec<u64> {
        self.steps.iter().map(|step| step.cost.macs.saturating_add(step.cost.bytes / 4)).collect()
    }

    /// Adds the copies of steps that were found to make the arena smaller.
    pub(crate) fn run_again(&mut self, fitted: &Fitted) {
        let own = self.steps.len();
        for copy in &fitted.copies {
            let mut step = Step { again: true, ..self.steps[copy.of].clone() };
            step.name.push_str(AGAIN);
            if let Storage::Buffer(b) = step.output {
                let number = self.buffers.len();
                let mut buffer = Buffer { step: Some(self.steps.len()), ..self.buffers[b].clone() };
                buffer.name.push_str(AGAIN);
                step.output = Storage::Buffer(number);
                self.buffers.push(buffer);
            }
            self.steps.push(step);
        }
        let inputs = fitted.inputs.iter().chain(fitted.copies.iter().map(|copy| &copy.inputs));
        for (step, inputs) in self.steps.iter_mut().zip(inputs) {
            step.read(inputs);
        }
        for (number, copy) in fitted.copies.iter().enumerate() {
            let barred = self.steps[..own].iter_mut().filter(|step| step.after.contains(&copy.of));
            barred.for_each(|step| step.after.push(own + number));
        }
    }
}

impl Step {
    /// Reads these buffers in place of those that it reads, in their order.
    fn read(&mut self, buffers: &[usize]) {
        let mut buffers = buffers.iter();
        for storage in &mut self.inputs {
            if let Storage::Buffer(old) = storage {
                let Some(&new) = buffers.next() else { return };
                self.overlaps.iter_mut().filter(|lag| lag.input == *old).for_each(|lag| lag.input = new);
                *old = new;
            }
        }
    }
}

/// Collects what a kernel's preparation emits.
struct Collect<'a> {
    node: &'a str,
    align: u64,
    input_storage: &'a [Option<Storage>],
    pool: &'a mut Pool,
    inputs: Vec<Storage>,
    /// For each window, the operation's input it is; `None` for a constant made here.
    roles: Vec<Option<usize>>,
    scratch: Vec<u64>,
    parameters: Vec<u8>,
    rows: u32,
    missing: bool,
}

impl Emit for Collect<'_> {
    fn input(&mut self, index: usize) {
        match self.input_storage.get(index).copied().flatten() {
            Some(storage) => {
                self.inputs.push(storage);
                self.roles.push(Some(index));
            }
            None => self.missing = true,
        }
    }

    fn constant(&mut self, label: &'static str, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) {
        let mut data = vec![0; bytes];
        fill(&mut data);
        let index = self.pool.add(format!("{}: {label}", self.node), data, self.align);
        self.inputs.push(Storage::Constant(index));
        self.roles.push(None);
    }

    fn scratch(&mut self, bytes: u64) {
        self.scratch.push(bytes);
    }

    fn parameters(&mut self, bytes: &[u8]) {
        self.parameters = bytes.to_vec();
    }

    fn rows(&mut self, rows: u32) {
        self.rows = rows;
    }
}

/// Lowers entries of one graph for one target.
pub(crate) struct Lowering<'g> {
    pub graph: &'g Graph,
    pub target: TargetId,
    /// Inputs and outputs lie outside the arena.
    external: bool,
    /// Among which kernels to choose.
    choice: Choice,
    /// The input that is to be fed by rows where it can be.
    feed: Option<ValueId>,
    pub pool: Pool,
    pub states: Vec<StateSlot>,
    unsupported: Vec<Unsupported>,
}

/// The entry being lowered.
#[derive(Default)]
pub(crate) struct Work {
    pub steps: Vec<Step>,
    pub buffers: Vec<Buffer>,
    pub groups: Vec<Group>,
    pub storage: HashMap<ValueId, Storage>,
    /// Where values go that are outputs outside the arena.
    external: HashMap<ValueId, Storage>,
    /// The step that writes each output outside the arena.
    writers: HashMap<Storage, usize>,
}

impl<'g> Lowering<'g> {
    pub(crate) fn new(graph: &'g Graph, options: &Options) -> Lowering<'g> {
        let states = graph.values.iter().enumerate().filter(|(_, v)| v.source == Source::State);
        let states = states.map(|(i, v)| StateSlot { value: ValueId(i as u32), align: v.ty.dtype.align() as u64 });
        Lowering {
            graph,
            target: options.target,
            external: options.external,
            choice: options.choice,
            feed: graph.main_entry().filter(|_| options.feed).and_then(|e| graph.entries[e].inputs.first().copied()),
            pool: Pool::default(),
            states: states.collect(),
            unsupported: Vec::new(),
        }
    }

    /// Every node without a kernel, once all entries went through.
    pub(crate) fn finish(&mut self) -> Result<(), PlanError> {
        match std::mem::take(&mut self.unsupported) {
            list if list.is_empty() => Ok(()),
            list => Err(PlanError::Unsupported(list)),
        }
    }

    pub(crate) fn entry(&mut self, entry: &Entry) -> Result<Lowered, PlanError> {
        let stretches = if self.external { Vec::new() } else { patches::find(self.graph, entry, self.feed) };
        if let Some(lowered) = self.with_stretches(entry, &stretches)? {
            return Ok(lowered);
        }
        Ok(self.with_stretches(entry, &[])?.unwrap_or_default())
    }

    /// Lowers an entry with these stretches planned as one step each; `None` where one can't be.
    fn with_stretches(&mut self, entry: &Entry, stretches: &[Stretch]) -> Result<Option<Lowered>, PlanError> {
        let mut work = Work::default();
        let fed = stretches.iter().find_map(Stretch::fed);
        for (slot, &id) in entry.inputs.iter().enumerate() {
            if self.external || fed == Some(id) {
                work.storage.insert(id, Storage::External(slot));
            } else {
                self.new_buffer(&mut work, id, None);
            }
        }
        if self.external {
            work.external = external_outputs(entry);
        }
        let inner: HashSet<usize> = stretches.iter().flat_map(Stretch::inner).collect();
        for (index, node) in entry.nodes.iter().enumerate() {
            if inner.contains(&index) {
                continue;
            }
            if let Some(stretch) = stretches.iter().find(|stretch| stretch.result == index) {
                if !self.stretch(&mut work, entry, stretch)? {
                    return Ok(None);
                }
                continue;
            }
            match node.op.effect() {
                Effect::View(i) => {
                    let storage = self.storage(&mut work, node.inputs[i]);
                    work.storage.insert(node.output, storage);
                }
                Effect::Fresh => self.node(&mut work, entry, node, index as u32, None)?,
            }
        }
        let mut outputs = Vec::new();
        for (number, &id) in entry.outputs.iter().enumerate() {
            let mut storage = self.storage(&mut work, id);
            if self.external {
                let own = Storage::External(entry.inputs.len() + number);
                if storage != own {
                    self.copy(&mut work, entry, id, storage, Some(own), "output")?;
                }
                outputs.push(own);
                continue;
            }
            // State as an output means its value before the run, like every other read of it.
            let changes = entry.assigns.iter().any(|a| self.storage(&mut work, a.state) == storage);
            if changes {
                self.copy(&mut work, entry, id, storage, None, "saved")?;
                storage = work.steps[work.steps.len() - 1].output;
            }
            if let Storage::Buffer(b) = storage {
                work.buffers[b].output = true;
            }
            outputs.push(storage);
        }
        self.assigns(&mut work, entry)?;
        let inputs = entry.inputs.iter().map(|id| work.storage[id]).collect();
        Ok(Some(Lowered { steps: work.steps, buffers: work.buffers, inputs, outputs, groups: work.groups }))
    }

    pub(crate) fn new_buffer(&self, work: &mut Work, id: ValueId, step: Option<usize>) -> usize {
        let value = self.graph.value(id);
        work.buffers.push(Buffer {
            value: id,
            name: value.name.clone(),
            bytes: value.ty.bytes().unwrap_or(0),
            align: value.ty.dtype.align() as u64,
            tail: 0,
            step,
            output: false,
            part: None,
        });
        work.storage.insert(id, Storage::Buffer(work.buffers.len() - 1));
        work.buffers.len() - 1
    }

    /// Where a value lies. A constant gets a place in the pool only when someone reads it as it is.
    pub(crate) fn storage(&mut self, work: &mut Work, id: ValueId) -> Storage {
        if let Some(&storage) = work.storage.get(&id) {
            return storage;
        }
        let value = self.graph.value(id);
        let storage = match &value.source {
            Source::Constant(data) => {
                let align = value.ty.dtype.align() as u64;
                Storage::Constant(self.pool.add(value.name.clone(), data.to_vec(), align.max(4)))
            }
            Source::State => Storage::State(self.states.iter().position(|s| s.value == id).unwrap_or(0)),
            // A valid graph computes before it reads.
            Source::Input | Source::Node => Storage::Buffer(self.new_buffer(work, id, None)),
        };
        work.storage.insert(id, storage);
        storage
    }

    /// Lowers a node, whose output goes `into` a place that is there or gets one.
    pub(crate) fn node(
        &mut self,
        work: &mut Work,
        entry: &Entry,
        node: &Node,
        index: u32,
        into: Option<Storage>,
    ) -> Result<(), PlanError> {
        let graph = self.graph;
        let operand = |id: ValueId| {
            let value = graph.value(id);
            Operand { ty: value.ty, quant: value.quant.view(), data: graph.constant_data(id) }
        };
        let inputs: Vec<Operand<'_>> = node.inputs.iter().map(|&id| operand(id)).collect();
        let operation = Operation { op: node.op, inputs: &inputs, output: operand(node.output) };
        let preferred = match self.choice {
            Choice::All => None,
            Choice::Plain => table::plain(&operation),
            Choice::References => table::reference(&operation),
        };
        let Some(kernel) = preferred.or_else(|| table::choose(&operation, self.target)) else {
            let shapes = |o: &Operand<'_>| format!("{} {:?}", o.ty.dtype.name(), o.ty.shape);
            let list: Vec<String> = inputs.iter().map(shapes).collect();
            self.unsupported.push(Unsupported {
                node: node.name.clone(),
                op: node.op.name(),
                operands: format!("({}) -> {}", list.join(", "), shapes(&operation.output)),
            });
            if into.is_none() {
                self.new_buffer(work, node.output, Some(work.steps.len()));
            }
            return Ok(());
        };
        self.step(work, entry, node, index, kernel, &operation, into)
    }

    #[expect(clippy::too_many_arguments, reason = "one place where everything about a step meets")]
    pub(crate) fn step(
        &mut self,
        work: &mut Work,
        entry: &Entry,
        node: &Node,
        index: u32,
        kernel: &'static Kernel,
        operation: &Operation<'_>,
        into: Option<Storage>,
    ) -> Result<(), PlanError> {
        // A value is given a place only if the kernel reads it as it lies, so constants that are
        // packed do not stay in the plan twice.
        let row = kernel.row();
        let align = kernel.scratch_align();
        let mut wanted = vec![false; node.inputs.len()];
        (kernel.prepare)(operation, &mut Probe { wanted: &mut wanted }).map_err(|e| refused(entry, node, e))?;
        let input_storage: Vec<Option<Storage>> =
            node.inputs.iter().zip(&wanted).map(|(&id, &wanted)| wanted.then(|| self.storage(work, id))).collect();
        let mut collect = Collect {
            node: &node.name,
            align,
            input_storage: &input_storage,
            pool: &mut self.pool,
            inputs: Vec::new(),
            roles: Vec::new(),
            scratch: Vec::new(),
            parameters: Vec::new(),
            rows: 0,
            missing: false,
        };
        (kernel.prepare)(operation, &mut collect).map_err(|e| refused(entry, node, e))?;
        if collect.missing {
            return Err(refused(entry, node, OpError::Attribute("kernel input", 0)));
        }
        let Collect { inputs, roles, scratch, parameters, rows, .. } = collect;
        let step = work.steps.len();
        let output = into.unwrap_or_else(|| match work.external.get(&node.output) {
            Some(&storage) => {
                work.storage.insert(node.output, storage);
                storage
            }
            None => Storage::Buffer(self.new_buffer(work, node.output, Some(step))),
        });
        // Buffers order the steps by themselves.
        let after: Vec<usize> = inputs.iter().filter_map(|storage| work.writers.get(storage).copied()).collect();
        if let Storage::External(_) = output {
            work.writers.insert(output, step);
        }
        for &storage in inputs.iter().chain([&output]) {
            let (want, over_read) = (row.align() as u64, row.over_read() as u64);
            match storage {
                Storage::Buffer(b) => {
                    let buffer = &mut work.buffers[b];
                    buffer.align = buffer.align.max(want);
                    if storage != output {
                        buffer.tail = buffer.tail.max(over_read);
                    }
                }
                Storage::State(s) => self.states[s].align = self.states[s].align.max(want),
                // Hosts align and pad what they bind for every row.
                Storage::External(_) => {}
                Storage::Constant(c) => {
                    let blob = &mut self.pool.blobs[c];
                    blob.align = blob.align.max(want);
                }
            }
        }
        let overlaps = overlaps(kernel, operation, &inputs, &roles);
        let extent = self.extent(node.output, rows);
        let types: Vec<_> = operation.inputs.iter().map(|o| o.ty).collect();
        work.steps.push(Step {
            name: node.name.clone(),
            op: node.op,
            node: index,
            kernel,
            output,
            scratch,
            parameters,
            rows,
            extent,
            cost: node.op.cost(&types, &operation.output.ty),
            workload: kernel.workload(operation),
            overlaps,
            in_place: in_place(kernel, operation, &inputs, &roles),
            inputs,
            after,
            values: (node.inputs.clone(), node.output),
            again: false,
            feed: false,
        });
        Ok(())
    }

    /// The extent that scales a step's rows: that of the output's leading dimension, where rows
    /// are a multiple of it.
    fn extent(&self, output: ValueId, rows: u32) -> u16 {
        let leading = self.graph.value(output).varying.iter().find(|v| v.axis == 0);
        match leading {
            Some(v) => {
                let max = self.graph.extents[v.extent as usize].max;
                if max > 0 && rows.is_multiple_of(max) { v.extent } else { NO_EXTENT }
            }
            None => NO_EXTENT,
        }
    }

    /// Turns assignments into copies that come after every read of the state they change. A value
    /// that is itself state about to change is saved first.
    fn assigns(&mut self, work: &mut Work, entry: &Entry) -> Result<(), PlanError> {
        let changed: Vec<Storage> = entry.assigns.iter().map(|a| self.storage(work, a.state)).collect();
        let mut from = Vec::new();
        for (number, assign) in entry.assigns.iter().enumerate() {
            let storage = self.storage(work, assign.value);
            let saved = changed.contains(&storage) && storage != changed[number];
            let source = if saved {
                self.copy(work, entry, assign.value, storage, None, "saved")?;
                work.steps[work.steps.len() - 1].output
            } else {
                storage
            };
            from.push(source);
        }
        for (number, assign) in entry.assigns.iter().enumerate() {
            if from[number] == changed[number] {
                continue;
            }
            let readers: Vec<usize> =
                (0..work.steps.len()).filter(|&s| work.steps[s].inputs.contains(&changed[number])).collect();
            self.copy(work, entry, assign.state, from[number], Some(changed[number]), "assigned")?;
            let last = work.steps.len() - 1;
            work.steps[last].after.extend(readers);
        }
        Ok(())
    }

    /// Adds a step that copies `from` into `into`, or into a new buffer shaped like `value`.
    fn copy(
        &mut self,
        work: &mut Work,
        entry: &Entry,
        value: ValueId,
        from: Storage,
        into: Option<Storage>,
        what: &str,
    ) -> Result<(), PlanError> {
        let graph = self.graph;
        let it = graph.value(value);
        let operand = Operand { ty: it.ty, quant: it.quant.view(), data: None };
        let operation = Operation { op: Op::Copy(Copy), inputs: &[operand], output: operand };
        // The copy reads `from` under the value's own type, whatever value lies there.
        let before = work.storage.insert(value, from);
        let node =
            Node { name: format!("{} ({what})", it.name), op: Op::Copy(Copy), inputs: vec![value], output: value };
        let Some(kernel) = table::choose(&operation, self.target) else {
            return Err(refused(entry, &node, OpError::DType(0, it.ty.dtype)));
        };
        let target = match into {
            Some(storage) => storage,
            None => {
                let step = work.steps.len();
                work.buffers.push(Buffer {
                    value,
                    name: node.name.clone(),
                    bytes: it.ty.bytes().unwrap_or(0),
                    align: it.ty.dtype.align() as u64,
                    tail: 0,
                    step: Some(step),
                    output: false,
                    part: None,
                });
                Storage::Buffer(work.buffers.len() - 1)
            }
        };
        let result = self.step(work, entry, &node, u32::MAX, kernel, &operation, Some(target));
        match before {
            Some(storage) => work.storage.insert(value, storage),
            None => work.storage.remove(&value),
        };
        result
    }
}

/// Which values outputs outside the arena are: those that nodes compute, seen through views, each the first
/// time it is an output. The others are copied there.
fn external_outputs(entry: &Entry) -> HashMap<ValueId, Storage> {
    let made: HashMap<ValueId, &Node> = entry.nodes.iter().map(|n| (n.output, n)).collect();
    let mut external = HashMap::new();
    for (number, &id) in entry.outputs.iter().enumerate() {
        let mut root = id;
        while let Some(node) = made.get(&root) {
            match node.op.effect() {
                Effect::View(i) => root = node.inputs[i],
                Effect::Fresh => {
                    external.entry(root).or_insert(Storage::External(entry.inputs.len() + number));
                    break;
                }
            }
        }
    }
    external
}

/// Asks a kernel which inputs it reads as they lie.
struct Probe<'a> {
    wanted: &'a mut [bool],
}

impl Emit for Probe<'_> {
    fn input(&mut self, index: usize) {
        if let Some(wanted) = self.wanted.get_mut(index) {
            *wanted = true;
        }
    }
    fn constant(&mut self, _: &'static str, _: usize, _: &mut dyn FnMut(&mut [u8])) {}
    fn scratch(&mut self, _: u64) {}
    fn parameters(&mut self, _: &[u8]) {}
    fn rows(&mut self, _: u32) {}
}

/// Which buffers the output may overlap. One read in two roles needs a lag in both; and since a step
/// walks one way, with several such buffers only the way up is offered.
fn overlaps(kernel: &Kernel, operation: &Operation<'_>, inputs: &[Storage], roles: &[Option<usize>]) -> Vec<Lag> {
    let mut lags: Vec<Lag> = Vec::new();
    for (&storage, &role) in inputs.iter().zip(roles) {
        let Storage::Buffer(input) = storage else { continue };
        let lag = |direction: Direction| {
            let can = kernel.directions.contains(&direction);
            role.filter(|_| can).and_then(|i| (kernel.lag)(operation, i, direction))
        };
        let (up, down) = (lag(Direction::Up), lag(Direction::Down));
        match lags.iter_mut().find(|l| l.input == input) {
            Some(known) => {
                let both = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.max(b));
                (known.up, known.down) = (both(known.up, up), both(known.down, down));
            }
            None => lags.push(Lag { input, up, down }),
        }
    }
    if lags.len() > 1 {
        lags.iter_mut().for_each(|l| l.down = None);
    }
    lags.retain(|l| l.up.is_some() || l.down.is_some());
    lags
}

/// Inputs outside the arena that the output may lie exactly over, walking up: those it need not trail in any role.
fn in_place(kernel: &Kernel, operation: &Operation<'_>, inputs: &[Storage], roles: &[Option<usize>]) -> Vec<usize> {
    let mut found = Vec::new();
    for &storage in inputs {
        let Storage::External(slot) = storage else { continue };
        let mut own = inputs.iter().zip(roles).filter(|(other, _)| **other == storage).map(|(_, role)| role);
        let lag = |role: usize| (kernel.lag)(operation, role, Direction::Up);
        let up = kernel.directions.contains(&Direction::Up);
        if up && own.all(|role| role.and_then(lag) == Some(0)) && !found.contains(&slot) {
            found.push(slot);
        }
    }
    found
}

fn refused(entry: &Entry, node: &Node, error: OpError) -> PlanError {
    PlanError::Graph(GraphError::Op { entry: entry.name.clone(), node: node.name.clone(), op: node.op.name(), error })
}
