//! From lowered entries to a plan: order and places solved, records written.

use kiln_core::plan::{ALIGN, Place};
use kiln_core::{Direction, MAX_BANKS, TargetId, TensorType};
use kiln_kernels::instructions::instructions;
use kiln_kernels::table::Kernel;
use kiln_kernels::workload::Workload;
use kiln_ops::{Cost, Op};

use crate::donate::{Over, donate};
use crate::encode;
use crate::error::{Blame, PlanError, Shortage};
use crate::graph::{Graph, ValueId};
use crate::lower::{AGAIN, Lag, Lowered, Lowering, Step, Storage};
use crate::patches;
use crate::recompute::{self, Fitted, Task};
use crate::solve::{self, Budget, Problem};
use crate::spill::{self, Room};

/// Among which kernels a plan chooses. Fewer than all help to look for a wrong kernel, or for a slow one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// All that run on the target.
    #[default]
    All,
    /// Those that run on every CPU.
    Plain,
    /// None where the operator has a reference: that is run instead.
    References,
}

/// How to plan.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The CPU family to choose kernels for.
    pub target: TargetId,
    /// How far to search; counted in nodes, so plans are the same on every machine.
    pub budget: Budget,
    /// Whether outputs may overlap inputs. Turning it off helps to look for a wrong lag.
    pub overlap: bool,
    /// Whether inputs and outputs lie outside the arena, in memory that a host's executor binds at each run.
    /// Such a plan does not run on a device.
    pub external: bool,
    /// Among which kernels to choose.
    pub choice: Choice,
    /// Bytes that state and an entry's arena may take together. Where they take more, values are computed again in
    /// place of being kept; what can't be brought below is [`PlanError::Ram`]. Without it nothing runs twice.
    pub ram: Option<u64>,
    /// Whether the main entry's first input is fed by rows during the run, where the operators over it run in patches: it is
    /// then nowhere whole. Without patches, and where the arena is shared, it lies in the arena.
    pub feed: bool,
    /// Whether state lies in a bank of its own, before that of the arena, so that models can take turns in one arena
    /// ([`kiln_core::Parked`]). Without state the arena's is the only bank either way, and the plan the same.
    pub shared_arena: bool,
    /// The banks of RAM there are, in the order of the plan's; those without bytes are none. A plan that does not fit the
    /// first is spread over all, where they have room for it; else it is as with one bank of any size. Not for plans with
    /// `external`, `ram` or `shared_arena`.
    pub rooms: [Room; MAX_BANKS],
}

impl Options {
    /// The usual options for `target`.
    pub fn for_target(target: TargetId) -> Options {
        Options {
            target,
            budget: Budget::default(),
            overlap: true,
            external: false,
            choice: Choice::All,
            ram: None,
            feed: false,
            shared_arena: false,
            rooms: [Room::default(); MAX_BANKS],
        }
    }
}

/// A planned graph.
pub struct Planned {
    /// The CPU family it is for.
    pub target: TargetId,
    /// The entries, in the graph's order.
    pub entries: Vec<PlannedEntry>,
    /// Bytes of constants: weights as packed, biases, multipliers.
    pub constants_bytes: u64,
    /// Bytes of state kept from run to run.
    pub state_bytes: u64,
    /// Bytes of the arena: the largest of the entries'.
    pub arena_bytes: u64,
    /// Bytes of RAM: state and arena, in one bank or two.
    pub ram_bytes: u64,
    /// Whether the arena can be shared with other models: [`Options::shared_arena`].
    pub shared_arena: bool,
    /// Where the arena lies: bank, and bytes from the bank's start.
    pub arena_base: (u8, u64),
    /// Bytes of each bank of RAM: one for state and arena, or none; or one each ([`Options::shared_arena`]); or several over
    /// which the arena is spread ([`Options::rooms`]), the first of which has the state too.
    pub banks: Vec<u64>,
    /// Every kernel the steps use, by number.
    pub kernels: Vec<&'static Kernel>,
    /// How many operands a step has at most.
    pub operands: usize,
    /// The plan records, as `kiln-core` loads them.
    pub bytes: Vec<u8>,
}

/// An entry, planned.
pub struct PlannedEntry {
    /// Its name.
    pub name: String,
    /// Its steps in the order they run.
    pub steps: Vec<PlannedStep>,
    /// What lies where, and when.
    pub tensors: Vec<PlannedTensor>,
    /// Indices into `tensors` of inputs that lie in the arena, and the values of all.
    pub inputs: Vec<ValueId>,
    /// The values the caller reads.
    pub outputs: Vec<ValueId>,
    /// Bytes of the arena: inputs, outputs, intermediates and scratch.
    pub arena: u64,
    /// No order and no placement needs less, with these kernels.
    pub lower_bound: u64,
    /// Whether `arena` is proven to be the least.
    pub optimal: bool,
    /// Search nodes that took.
    pub nodes: u64,
    /// What is computed again to fit [`Options::ram`].
    pub again: Again,
    /// Outputs outside the arena that may lie over inputs.
    pub over: Vec<Over>,
    /// The input that is fed by rows, and the most bytes that a step asks for.
    pub fed: Option<(ValueId, u64)>,
}

/// Steps that run a second time, in place of keeping what they computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Again {
    /// How many.
    pub steps: usize,
    /// Their multiply-accumulates: what a run takes more.
    pub macs: u64,
    /// Bytes by which the arena is smaller.
    pub saved: u64,
}

/// A step, planned.
pub struct PlannedStep {
    /// The name of the node it came from.
    pub name: String,
    /// The operator.
    pub op: Op,
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The graph's node it came from; `None` for a copy that planning made.
    pub node: Option<usize>,
    /// Multiply-accumulates and bytes.
    pub cost: Cost,
    /// What its instructions grow with.
    pub workload: Workload,
    /// The values the node reads.
    pub inputs: Vec<ValueId>,
    /// The value it computes.
    pub output: ValueId,
    /// Bytes of scratch.
    pub scratch: u64,
    /// Output rows.
    pub rows: u32,
    /// Which way it walks them.
    pub direction: Direction,
    /// Whether it computes again what an earlier step did.
    pub again: bool,
}

/// A region of memory, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Region {
    /// The arena: inputs, outputs, intermediates.
    Arena,
    /// Working memory of one step, in the arena.
    Scratch,
    /// State kept from run to run.
    State,
    /// Constants in flash.
    Constants,
}

/// A tensor's place.
pub struct PlannedTensor {
    /// Its name.
    pub name: String,
    /// The value it holds; `None` for scratch and packed constants.
    pub value: Option<ValueId>,
    /// Its element type and shape, where it holds a value.
    pub ty: Option<TensorType>,
    /// Where it lies.
    pub region: Region,
    /// The bank it lies in; [`CONSTANTS`](kiln_core::plan::CONSTANTS) for constants.
    pub bank: u8,
    /// Bytes from the start of that.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The first step (of the entry) at which it is needed.
    pub first_step: usize,
    /// The last one.
    pub last_step: usize,
}

impl Planned {
    /// The entry that inference runs: `infer`, or the first.
    pub fn main_entry(&self) -> Option<&PlannedEntry> {
        self.entries.iter().find(|e| e.name == "infer").or(self.entries.first())
    }

    /// Bytes that the plan takes in an image: records and constants, up to a multiple of 16, at which plans lie.
    pub fn image_bytes(&self) -> u64 {
        (self.bytes.len() as u64).next_multiple_of(ALIGN as u64)
    }

    /// Bytes of the plan's records and padding: everything that it takes in an image but the constants.
    pub fn records_bytes(&self) -> u64 {
        self.image_bytes().saturating_sub(self.constants_bytes)
    }
}

impl PlannedEntry {
    /// The number of the input that is fed by rows.
    pub fn fed_input(&self) -> Option<usize> {
        let (fed, _) = self.fed?;
        self.inputs.iter().position(|&input| input == fed)
    }

    /// Instructions of a run on `target`, estimated; `None` where a kernel was not measured there.
    pub fn instructions(&self, target: TargetId) -> Option<f64> {
        instructions(target, self.steps.iter().map(|step| (step.kernel.number, &step.workload)))
    }

    /// The step at which the arena is fullest, and what is alive there, largest first.
    pub fn peak(&self) -> (usize, Vec<Blame>) {
        let alive = |step: usize| {
            self.tensors.iter().filter(move |t| {
                matches!(t.region, Region::Arena | Region::Scratch) && (t.first_step..=t.last_step).contains(&step)
            })
        };
        let top = |step: usize| alive(step).map(|t| t.offset + t.bytes).max().unwrap_or(0);
        let live = |step: usize| alive(step).map(|t| t.bytes).sum::<u64>();
        let peak = (0..self.steps.len()).max_by_key(|&s| (top(s), live(s), usize::MAX - s)).unwrap_or(0);
        let mut blame: Vec<Blame> = alive(peak).map(|t| Blame { tensor: t.name.clone(), bytes: t.bytes }).collect();
        blame.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.tensor.cmp(&b.tensor)));
        (peak, blame)
    }
}

/// Plans every entry of a graph for one target.
pub fn plan(graph: &Graph, options: &Options) -> Result<Planned, PlanError> {
    plan_over(graph, options, &[])
}

/// [`plan`] where inputs of the entries, by index, may be given away at a run, so that outputs may take their memory
/// ([`PlannedEntry::over`]). The plan is right whether they are or not. Inputs in the arena are written over anyway.
pub fn plan_over(graph: &Graph, options: &Options, donated: &[usize]) -> Result<Planned, PlanError> {
    // What is fed lies in the arena where that is another model's between turns.
    let options = &Options { feed: options.feed && !options.shared_arena, ..*options };
    graph.validate()?;
    let mut lowering = Lowering::new(graph, options);
    let mut lowered = graph.entries.iter().map(|e| lowering.entry(e)).collect::<Result<Vec<_>, _>>()?;
    lowering.finish()?;
    let (pool, states) = (lowering.pool, lowering.states);

    let mut places = Places { arena_bank: 0, arena_base: 0, states: Vec::new(), constants: Vec::new() };
    let mut state_bytes = 0u64;
    for slot in &states {
        state_bytes = state_bytes.next_multiple_of(slot.align.max(1));
        places.states.push(state_bytes);
        state_bytes += graph.value(slot.value).ty.bytes().unwrap_or(0);
    }
    let mut constants_bytes = 0u64;
    for blob in &pool.blobs {
        constants_bytes = constants_bytes.next_multiple_of(blob.align);
        places.constants.push(constants_bytes);
        constants_bytes += blob.bytes.len() as u64;
    }
    // Whatever is behind the state, in the plan's one bank or in memory where banks lie side by side.
    let behind = state_bytes.next_multiple_of(encode::BANK_ALIGN);
    (places.arena_bank, places.arena_base) = if options.shared_arena && state_bytes > 0 { (1, 0) } else { (0, behind) };

    let pairs = graph.entries.iter().zip(&mut lowered);
    let donated = if options.external { donated } else { &[] };
    let over: Vec<Vec<Over>> = pairs.map(|(entry, lowered)| donate(graph, entry, lowered, donated)).collect();
    let (mut solved, mut again) = (Vec::new(), Vec::new());
    for (entry, named) in lowered.iter_mut().zip(&graph.entries) {
        let problem = problem(entry, options.overlap);
        let budget = bounded(&options.budget, &problem);
        let mut solution = match entry.groups.is_empty() {
            true => solve::solve(&problem, &budget)?,
            false => patches::solve(entry, &problem, options.overlap, &budget)?,
        };
        let unaided = solution.arena;
        let limit = options.ram.map(|ram| (ram, ram.saturating_sub(behind)));
        if let Some((ram, limit)) = limit.filter(|(_, limit)| unaided > *limit) {
            let task = Task { problem: &problem, solution: &solution, work: &entry.work() };
            let fitted = match entry.groups.is_empty() {
                true => recompute::fit(&task, limit, &bounded(&options.budget, &problem))?,
                // The steps of patches are no single ones, of which some could run again.
                false => Err(recompute::Short::as_it_is(&task)),
            };
            match fitted {
                Ok(fitted) => {
                    entry.run_again(&fitted);
                    solution = fitted.solution;
                }
                Err(short) => {
                    let (name, step, tensors) = blame(entry, &short.fitted);
                    return Err(PlanError::Ram(Box::new(Shortage {
                        entry: named.name.clone(),
                        limit: ram,
                        least: behind + short.least,
                        unaided: behind + unaided,
                        state: state_bytes,
                        step,
                        name,
                        tensors,
                    })));
                }
            }
        }
        let copies = entry.steps.iter().filter(|step| step.again);
        again.push(Again {
            steps: copies.clone().count(),
            macs: copies.map(|step| step.cost.macs).sum(),
            saved: unaided.saturating_sub(solution.arena),
        });
        solved.push(solution);
    }
    let mut arena_bytes = solved.iter().map(|s| s.arena).max().unwrap_or(0);
    let mut ram_bytes = if arena_bytes == 0 { state_bytes } else { behind + arena_bytes };
    let mut banks = match places.arena_bank {
        0 => Vec::from_iter(Some(ram_bytes).filter(|&bytes| bytes > 0)),
        _ => vec![state_bytes, arena_bytes],
    };
    if ram_bytes > options.rooms[0].bytes
        && let Some(spread) = spread(&lowered, &solved, options, behind)?
    {
        Spread { solved, sizes: banks } = spread;
        arena_bytes = banks.iter().sum();
        ram_bytes = behind + arena_bytes;
        banks[0] += behind;
    }
    let entries: Vec<PlannedEntry> =
        (graph.entries.iter().zip(&lowered).zip(solved.iter().zip(again.iter().zip(over))))
            .map(|((entry, lowered), (solution, (again, over)))| {
                let tensors = report_tensors(graph, lowered, solution, &places, &pool.blobs);
                PlannedEntry {
                    name: entry.name.clone(),
                    steps: solution.order.iter().map(|&s| report_step(lowered, s, solution)).collect(),
                    tensors,
                    inputs: entry.inputs.clone(),
                    outputs: entry.outputs.clone(),
                    arena: solution.arena,
                    lower_bound: solution.lower_bound,
                    optimal: solution.optimal,
                    nodes: solution.nodes,
                    again: *again,
                    over,
                    fed: lowered.fed(),
                }
            })
            .collect();
    let mut kernels: Vec<&'static Kernel> = Vec::new();
    for step in lowered.iter().flat_map(|l| &l.steps) {
        if !kernels.iter().any(|k| k.number == step.kernel.number) {
            kernels.push(step.kernel);
        }
    }
    kernels.sort_by_key(|k| k.number);
    let operands = lowered.iter().flat_map(|l| &l.steps).map(Step::operands).max().unwrap_or(0);
    let bytes = encode::encode(&encode::Input {
        graph,
        target: options.target,
        lowered: &lowered,
        solved: &solved,
        places: &places,
        constants: &pool.blobs,
        states: &states,
        constants_bytes,
        state_bytes,
        banks: &banks,
    })?;
    Ok(Planned {
        target: options.target,
        entries,
        constants_bytes,
        state_bytes,
        arena_bytes,
        ram_bytes,
        shared_arena: options.shared_arena,
        arena_base: (places.arena_bank, places.arena_base),
        banks,
        kernels,
        operands,
        bytes,
    })
}

/// Where everything outside the arena lies.
pub(crate) struct Places {
    /// The bank of the arena: that of the state, or the next.
    pub arena_bank: u8,
    /// Where the arena begins in its bank: after the state, if that lies there.
    pub arena_base: u64,
    /// Offset of each state in bank 0.
    pub states: Vec<u64>,
    /// Offset of each constant.
    pub constants: Vec<u64>,
}

impl Places {
    /// The place `offset` bytes into the arena.
    pub(crate) fn in_arena(&self, offset: u64) -> Option<Place> {
        match spill::split(offset) {
            (0, offset) => Place::new(self.arena_bank, self.arena_base + offset),
            (bank, offset) => Place::new(bank, offset),
        }
    }

    /// The same as a bank and an offset there, for reports.
    fn told(&self, offset: u64) -> (u8, u64) {
        self.in_arena(offset).map_or((0, 0), |place| (place.bank(), place.offset()))
    }

    /// The place of `storage` in an entry.
    pub(crate) fn place(&self, storage: Storage, solution: &solve::Solution) -> Option<Place> {
        match storage {
            Storage::Buffer(b) => self.in_arena(solution.offsets[b]),
            Storage::State(s) => Place::new(0, self.states[s]),
            Storage::Constant(c) => Place::new(kiln_core::plan::CONSTANTS, self.constants[c]),
            Storage::External(slot) => Place::new(kiln_core::plan::EXTERNAL, slot as u64),
        }
    }
}

/// Search nodes times the square of steps and buffers: a node's time and memory grow with the graph, so a huge
/// or hostile graph gets fewer. Graphs of up to 100 steps have the whole default budget.
const MAX_WORK: u64 = 8_000_000_000;

/// The budget as far as a problem of this size may use it.
fn bounded(budget: &Budget, problem: &Problem) -> Budget {
    let size = (problem.steps.len() + problem.buffers.len()).max(1) as u64;
    Budget { nodes: budget.nodes.min(MAX_WORK / (size * size)) }
}

/// What [`spread`] finds.
struct Spread {
    solved: Vec<solve::Solution>,
    sizes: Vec<u64>,
}

/// The entries spread over several banks, and how much of each bank the largest takes; `None` where there are not several, or
/// they are too small.
fn spread(
    entries: &[Lowered],
    solved: &[solve::Solution],
    options: &Options,
    behind: u64,
) -> Result<Option<Spread>, PlanError> {
    let mut rooms: Vec<(u8, Room)> = (0..).zip(options.rooms).filter(|(_, room)| room.bytes > 0).collect();
    // A graph in patches was made to fit already.
    let patched = entries.iter().any(|entry| !entry.groups.is_empty());
    if rooms.len() < 2 || patched || options.external || options.shared_arena || options.ram.is_some() {
        return Ok(None);
    }
    // In each the order of the board's file.
    rooms.sort_by_key(|(_, room)| !room.fast);
    let before = |bank| if bank == 0 { behind } else { 0 };
    if rooms.iter().any(|&(bank, room)| room.free < before(bank)) {
        return Ok(None);
    }
    let rooms: Vec<(u8, u64)> = rooms.iter().map(|&(bank, room)| (bank, room.free - before(bank))).collect();
    let (mut spread, mut sizes) = (Vec::new(), vec![0; MAX_BANKS]);
    for (entry, solution) in entries.iter().zip(solved) {
        let problem = problem(entry, options.overlap);
        // Many problems are solved for one.
        let budget = Budget { nodes: bounded(&options.budget, &problem).nodes / 16 };
        let found = spill::spill(&problem, solution, &spill::touched(entry), &rooms, &budget)?;
        let Some(found) = found else { return Ok(None) };
        sizes.iter_mut().zip(&found.banks).for_each(|(size, &bytes)| *size = bytes.max(*size));
        spread.push(found.solution);
    }
    let used = sizes.iter().rposition(|&bytes| bytes > 0).map_or(1, |last| last + 1);
    sizes.truncate(used);
    Ok(Some(Spread { solved: spread, sizes }))
}

/// The memory problem of an entry.
fn problem(entry: &Lowered, overlap: bool) -> Problem {
    let buffers = entry.buffers.iter().map(|b| solve::Buffer {
        size: b.bytes,
        align: b.align,
        tail: b.tail,
        source: b.step.map_or(solve::Source::Input, solve::Source::Step),
        keep: b.output,
    });
    let steps = entry.steps.iter().map(|step| {
        let inputs = step.inputs.iter().filter_map(|s| match s {
            Storage::Buffer(b) => Some(*b),
            _ => None,
        });
        let output = match step.output {
            Storage::Buffer(b) => Some(b),
            _ => None,
        };
        let overlaps = output.filter(|_| overlap).map_or(Vec::new(), |output| {
            let one = |lag: &Lag| solve::Overlap { input: lag.input, output, up: lag.up, down: lag.down };
            step.overlaps.iter().map(one).collect()
        });
        let align = step.kernel.scratch_align();
        solve::Step {
            inputs: inputs.collect(),
            outputs: output.into_iter().collect(),
            scratch: match scratch_bytes(&step.scratch, align) {
                0 => None,
                size => Some(solve::Scratch { size, align }),
            },
            overlaps,
            after: step.after.clone(),
        }
    });
    Problem { steps: steps.collect(), buffers: buffers.collect() }
}

/// Which way a step walks where the solver put its buffers.
pub(crate) fn direction(step: &Step, buffers: &[crate::lower::Buffer], solution: &solve::Solution) -> Direction {
    let Storage::Buffer(output) = step.output else { return Direction::Up };
    let range = |b: usize| (solution.offsets[b], solution.offsets[b] + buffers[b].bytes);
    let (start, end) = range(output);
    let down = step.overlaps.iter().any(|lag| {
        let (from, to) = range(lag.input);
        let apart = end <= from || to <= start;
        let trails = lag.up.is_some_and(|up| start + up <= from);
        !apart && !trails
    });
    if down { Direction::Down } else { Direction::Up }
}

/// Bytes of several scratch windows behind each other.
fn scratch_bytes(windows: &[u64], align: u64) -> u64 {
    windows.iter().fold(0, |sum: u64, bytes| sum.next_multiple_of(align) + bytes)
}

fn report_step(entry: &Lowered, index: usize, solution: &solve::Solution) -> PlannedStep {
    let step = &entry.steps[index];
    PlannedStep {
        name: step.name.clone(),
        op: step.op,
        kernel: step.kernel,
        node: (step.node != u32::MAX).then_some(step.node as usize),
        cost: step.cost,
        workload: step.workload,
        inputs: step.values.0.clone(),
        output: step.values.1,
        scratch: scratch_bytes(&step.scratch, step.kernel.scratch_align()),
        rows: step.rows,
        direction: direction(step, &entry.buffers, solution),
        again: step.again,
    }
}

/// What is alive where an entry's arena is fullest, largest first: the step, its operator and name, the tensors.
fn blame(entry: &Lowered, fitted: &Fitted) -> (String, usize, Vec<Blame>) {
    let solution = &fitted.solution;
    let buffers = fitted.problem.buffers.len();
    let alive =
        |at: usize| (0..buffers).filter(move |&b| (solution.live[b].first..=solution.live[b].last).contains(&at));
    let scratch =
        |at: usize| solution.order.get(at).and_then(|&s| fitted.problem.steps[s].scratch).map_or(0, |s| s.size);
    let bytes = |at: usize| alive(at).map(|b| fitted.problem.buffers[b].size).sum::<u64>() + scratch(at);
    let peak = (0..solution.order.len()).rev().max_by_key(|&at| bytes(at)).unwrap_or(0);
    let own = |b: usize| match b.checked_sub(entry.buffers.len()) {
        None => entry.buffers[b].name.clone(),
        Some(copy) => format!("{}{AGAIN}", entry.steps[fitted.copies[copy].of].name),
    };
    let mut tensors: Vec<Blame> =
        alive(peak).map(|b| Blame { tensor: own(b), bytes: fitted.problem.buffers[b].size }).collect();
    if scratch(peak) > 0 {
        tensors.push(Blame { tensor: "its scratch".to_owned(), bytes: scratch(peak) });
    }
    tensors.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.tensor.cmp(&b.tensor)));
    let step = solution.order.get(peak).map(|&s| match s.checked_sub(entry.steps.len()) {
        None => &entry.steps[s],
        Some(copy) => &entry.steps[fitted.copies[copy].of],
    });
    (step.map_or(String::new(), |s| format!("{} '{}'", s.op.name(), s.name)), peak, tensors)
}

fn report_tensors(
    graph: &Graph,
    entry: &Lowered,
    solution: &solve::Solution,
    places: &Places,
    constants: &[crate::lower::Constant],
) -> Vec<PlannedTensor> {
    let mut tensors = Vec::new();
    for (index, buffer) in entry.buffers.iter().enumerate().filter(|(_, buffer)| buffer.part.is_none()) {
        let live = solution.live[index];
        let (bank, offset) = places.told(solution.offsets[index]);
        tensors.push(PlannedTensor {
            name: buffer.name.clone(),
            value: Some(buffer.value),
            ty: Some(graph.value(buffer.value).ty),
            region: Region::Arena,
            bank,
            offset,
            bytes: buffer.bytes,
            first_step: live.first,
            last_step: live.last,
        });
    }
    for (position, &step) in solution.order.iter().enumerate() {
        let Some(offset) = solution.scratch_offsets[step] else { continue };
        let (bank, offset) = places.told(offset);
        let step = &entry.steps[step];
        tensors.push(PlannedTensor {
            name: format!("{} (scratch)", step.name),
            value: None,
            ty: None,
            region: Region::Scratch,
            bank,
            offset,
            bytes: scratch_bytes(&step.scratch, step.kernel.scratch_align()),
            first_step: position,
            last_step: position,
        });
    }
    let uses = |wanted: Storage| {
        let at = solution.order.iter().enumerate().filter(move |(_, s)| {
            let step = &entry.steps[**s];
            step.inputs.contains(&wanted) || step.output == wanted
        });
        let positions: Vec<usize> = at.map(|(position, _)| position).collect();
        Some((*positions.first()?, *positions.last()?))
    };
    let last = entry.steps.len().saturating_sub(1);
    for (index, &offset) in places.states.iter().enumerate() {
        let Some(id) = state_value(graph, index) else { continue };
        let value = graph.value(id);
        tensors.push(PlannedTensor {
            name: value.name.clone(),
            value: Some(id),
            ty: Some(value.ty),
            region: Region::State,
            bank: 0,
            offset,
            bytes: value.ty.bytes().unwrap_or(0),
            first_step: 0,
            last_step: last,
        });
    }
    for (index, &offset) in places.constants.iter().enumerate() {
        let Some((first_step, last_step)) = uses(Storage::Constant(index)) else { continue };
        let constant = &constants[index];
        tensors.push(PlannedTensor {
            name: constant.name.clone(),
            value: None,
            ty: None,
            region: Region::Constants,
            bank: kiln_core::plan::CONSTANTS,
            offset,
            bytes: constant.bytes.len() as u64,
            first_step,
            last_step,
        });
    }
    tensors
}

/// The graph's state number `index`, in the order of its values.
fn state_value(graph: &Graph, index: usize) -> Option<ValueId> {
    let states = graph.values.iter().enumerate().filter(|(_, v)| v.source == crate::graph::Source::State);
    states.map(|(i, _)| ValueId(i as u32)).nth(index)
}
