//! Steps with copies of some of them, and the order they run in.

use crate::solve::{Buffer, BufferId, Problem, Source, Step, StepId};

use super::{Copy, Task};

/// What stays the same however much is computed again.
pub(super) struct Base<'a> {
    task: &'a Task<'a>,
    /// For each step, its only output, where it may run again.
    output: Vec<Option<BufferId>>,
    /// For each step, those that must come after it though no buffer says so.
    barred: Vec<Vec<StepId>>,
}

impl<'a> Base<'a> {
    pub(super) fn new(task: &'a Task<'a>) -> Base<'a> {
        let steps = &task.problem.steps;
        let output = steps.iter().map(|s| if s.outputs.len() == 1 { Some(s.outputs[0]) } else { None });
        let mut barred = vec![Vec::new(); steps.len()];
        for (step, s) in steps.iter().enumerate() {
            s.after.iter().for_each(|&before| barred[before].push(step));
        }
        Base { output: output.collect(), barred, task }
    }

    fn steps(&self) -> usize {
        self.task.problem.steps.len()
    }

    fn buffers(&self) -> usize {
        self.task.problem.buffers.len()
    }

    /// What running a step costs; never nothing, so that of two ways the shorter one is taken.
    pub(super) fn work(&self, step: StepId) -> u64 {
        self.task.work.get(step).copied().unwrap_or(0).max(1)
    }
}

/// A step or a copy of one.
#[derive(Clone)]
struct Run {
    of: StepId,
    inputs: Vec<BufferId>,
    /// A copy that was undone.
    gone: bool,
}

/// Steps with copies: runs numbered after the steps, which write buffers numbered after the buffers.
#[derive(Clone)]
pub(super) struct Rewrite<'a> {
    base: &'a Base<'a>,
    runs: Vec<Run>,
    /// What all copies cost.
    pub(super) work: u64,
}

/// Who is where in an order.
pub(super) struct View {
    /// For each run its position.
    position: Vec<usize>,
    /// For each buffer the positions at which it is written and read, ascending; empty for what the caller writes and
    /// nobody reads.
    pub(super) uses: Vec<Vec<usize>>,
    /// For each of the task's buffers, those of copies with the same content.
    same: Vec<Vec<BufferId>>,
}

/// A gap between two uses of a buffer.
#[derive(Clone, Copy)]
pub(super) struct Gap {
    pub(super) buffer: BufferId,
    /// The positions of the uses.
    pub(super) from: usize,
    pub(super) to: usize,
}

impl<'a> Rewrite<'a> {
    pub(super) fn new(base: &'a Base<'a>) -> Rewrite<'a> {
        let steps = base.task.problem.steps.iter().enumerate();
        let runs = steps.map(|(of, s)| Run { of, inputs: s.inputs.clone(), gone: false }).collect();
        Rewrite { base, runs, work: 0 }
    }

    /// The runs that are copies.
    pub(super) fn copies(&self) -> impl Iterator<Item = usize> {
        (self.base.steps()..self.runs.len()).filter(|&run| !self.runs[run].gone)
    }

    /// What running it costs.
    pub(super) fn cost(&self, run: usize) -> u64 {
        self.base.work(self.runs[run].of)
    }

    /// The run that writes a buffer; none for what the caller writes.
    fn producer(&self, buffer: BufferId) -> Option<usize> {
        match buffer.checked_sub(self.base.buffers()) {
            Some(copy) => Some(self.base.steps() + copy),
            None => match self.base.task.problem.buffers[buffer].source {
                Source::Input => None,
                Source::Step(step) => Some(step),
            },
        }
    }

    /// The buffer that a copy writes.
    fn written(&self, copy: usize) -> BufferId {
        self.base.buffers() + copy - self.base.steps()
    }

    /// The task's buffer that has the same content.
    fn original(&self, buffer: BufferId) -> BufferId {
        if buffer < self.base.buffers() {
            return buffer;
        }
        let copied = self.producer(buffer).and_then(|run| self.base.output[self.runs[run].of]);
        copied.unwrap_or(buffer)
    }

    /// The task's buffer that has the same content, with its size.
    fn record(&self, buffer: BufferId) -> &Buffer {
        &self.base.task.problem.buffers[self.original(buffer)]
    }

    /// Its bytes.
    pub(super) fn bytes(&self, buffer: BufferId) -> u64 {
        self.record(buffer).size
    }

    /// Whether a buffer may be dropped between uses: some step computes it, and it is not read after the run.
    pub(super) fn can_drop(&self, buffer: BufferId) -> bool {
        let may = self.producer(buffer).is_some_and(|run| self.base.output[self.runs[run].of].is_some());
        may && !self.record(buffer).keep && self.bytes(buffer) > 0
    }

    /// The order: the task's, with each copy right before what reads it first. None where a copy would come after a
    /// step that it must come before, or before one that it reads.
    pub(super) fn order(&self) -> Option<Vec<usize>> {
        let steps = self.base.steps();
        let mut order = Vec::with_capacity(self.runs.len());
        let mut ran = vec![false; self.runs.len()];
        // The recursion by hand: chains are long.
        let mut open: Vec<(usize, usize)> = Vec::new();
        for &step in &self.base.task.solution.order {
            open.push((step, 0));
            while let Some((run, input)) = open.last_mut() {
                let run = *run;
                match self.runs[run].inputs.get(*input) {
                    Some(&buffer) => {
                        *input += 1;
                        let Some(producer) = self.producer(buffer).filter(|&p| !ran[p]) else { continue };
                        if producer < steps {
                            return None;
                        }
                        open.push((producer, 0));
                    }
                    None => {
                        open.pop();
                        if run >= steps && self.base.barred[self.runs[run].of].iter().any(|&after| ran[after]) {
                            return None;
                        }
                        if !std::mem::replace(&mut ran[run], true) {
                            order.push(run);
                        }
                    }
                }
            }
        }
        Some(order)
    }

    /// Where everything is in an order.
    pub(super) fn view(&self, order: &[usize]) -> View {
        let mut position = vec![usize::MAX; self.runs.len()];
        let mut uses = vec![Vec::new(); self.base.buffers() + self.runs.len() - self.base.steps()];
        let mut same = vec![Vec::new(); self.base.buffers()];
        for copy in self.copies() {
            let buffer = self.written(copy);
            same[self.original(buffer)].push(buffer);
        }
        for (at, &run) in order.iter().enumerate() {
            position[run] = at;
            for &input in &self.runs[run].inputs {
                if uses[input].last() != Some(&at) {
                    uses[input].push(at);
                }
            }
            if run >= self.base.steps() {
                uses[self.written(run)].push(at);
            } else {
                self.base.task.problem.steps[run].outputs.iter().for_each(|&output| uses[output].push(at));
            }
        }
        View { position, uses, same }
    }

    /// The bytes that each step in an order needs, nearly: those of everything alive, less what its output and an input
    /// that dies have in common.
    pub(super) fn profile(&self, order: &[usize], view: &View) -> Vec<u64> {
        let steps = order.len();
        if steps == 0 {
            return Vec::new();
        }
        // What becomes alive at each position, and what was alive until the one before.
        let (mut born, mut dead) = (vec![0u64; steps + 1], vec![0u64; steps + 1]);
        let last = |buffer: BufferId| view.uses[buffer].last().copied().unwrap_or(0);
        for (buffer, uses) in view.uses.iter().enumerate() {
            let record = self.record(buffer);
            let from_outside = self.producer(buffer).is_none();
            let first = if from_outside { Some(0) } else { uses.first().copied() };
            let Some(first) = first else { continue };
            let size = record.size.next_multiple_of(record.align);
            born[first] += size;
            let kept = record.keep && buffer < self.base.buffers();
            dead[if kept { steps } else { last(buffer) + 1 }] += size;
        }
        let mut alive = 0;
        let bytes = order.iter().enumerate().map(|(at, &run)| {
            alive = alive + born[at] - dead[at];
            let own = &self.base.task.problem.steps[self.runs[run].of];
            let scratch = own.scratch.map_or(0, |s| s.size.next_multiple_of(s.align));
            let common = own.overlaps.iter().map(|o| {
                let input = own.inputs.iter().position(|&i| i == o.input).map_or(o.input, |i| self.runs[run].inputs[i]);
                let (from, to) = (self.record(input), &self.base.task.problem.buffers[o.output]);
                if from.keep || last(input) != at {
                    return 0;
                }
                let up = o.up.map_or(to.size, |lag| lag.min(to.size));
                let down = o.down.map_or(from.size, |lag| (from.size.saturating_add(lag)).saturating_sub(to.size));
                let height = to.size.max(up + from.size).min(from.size.max(down.min(from.size) + to.size));
                from.size + to.size - height
            });
            (alive + scratch).saturating_sub(common.max().unwrap_or(0))
        });
        bytes.collect()
    }

    /// The problem, and an order of runs as one of its steps.
    pub(super) fn problem(&self, order: &[usize]) -> (Problem, Vec<StepId>) {
        let numbers = self.numbers();
        let buffer = |b: BufferId| match b.checked_sub(self.base.buffers()) {
            Some(copy) => self.base.buffers() + numbers[self.base.steps() + copy] - self.base.steps(),
            None => b,
        };
        let mut problem = Problem { steps: Vec::with_capacity(order.len()), ..self.base.task.problem.clone() };
        let alive = self.runs.iter().enumerate().filter(|(_, run)| !run.gone);
        for (number, run) in alive {
            let is_copy = number >= self.base.steps();
            let own = &self.base.task.problem.steps[run.of];
            let read = |old: BufferId| {
                let place = own.inputs.iter().position(|&input| input == old);
                place.map_or(old, |place| buffer(run.inputs[place]))
            };
            let write = |old: BufferId| if is_copy { buffer(self.written(number)) } else { old };
            if is_copy {
                let output = Buffer { source: Source::Step(numbers[number]), ..*self.record(self.written(number)) };
                problem.buffers.push(output);
            }
            problem.steps.push(Step {
                inputs: run.inputs.iter().map(|&input| buffer(input)).collect(),
                outputs: own.outputs.iter().map(|&output| write(output)).collect(),
                overlaps: (own.overlaps.iter())
                    .map(|o| crate::solve::Overlap { input: read(o.input), output: write(o.output), ..*o })
                    .collect(),
                ..own.clone()
            });
        }
        for copy in self.copies() {
            for &after in &self.base.barred[self.runs[copy].of] {
                problem.steps[after].after.push(numbers[copy]);
            }
        }
        (problem, order.iter().map(|&run| numbers[run]).collect())
    }

    /// For each run its number when those undone are left out.
    fn numbers(&self) -> Vec<usize> {
        let mut next = 0;
        let number = |run: &Run| {
            let own = next;
            next += usize::from(!run.gone);
            own
        };
        self.runs.iter().map(number).collect()
    }

    /// Copies, and what each of the task's steps reads.
    pub(super) fn result(&self) -> (Vec<Copy>, Vec<Vec<BufferId>>) {
        let (problem, _) = self.problem(&[]);
        let mut inputs: Vec<Vec<BufferId>> = problem.steps.into_iter().map(|step| step.inputs).collect();
        let copied = inputs.split_off(self.base.steps());
        let of = self.copies().map(|run| self.runs[run].of);
        (of.zip(copied).map(|(of, inputs)| Copy { of, inputs }).collect(), inputs)
    }

    /// Drops a buffer in a gap: what reads it afterwards reads a copy.
    pub(super) fn drop_in(&mut self, gap: Gap, view: &View) {
        let copy = self.copy_for(gap, view);
        for (run, &at) in view.position.iter().enumerate() {
            if at != usize::MAX && at >= gap.to {
                self.runs[run].inputs.iter_mut().filter(|input| **input == gap.buffer).for_each(|input| *input = copy);
            }
        }
        self.sweep();
    }

    /// What the copies cost that dropping a buffer in a gap takes.
    pub(super) fn cost_of(&mut self, gap: Gap, view: &View) -> u64 {
        let (runs, work) = (self.runs.len(), self.work);
        self.copy_for(gap, view);
        let cost = self.work - work;
        self.runs.truncate(runs);
        self.work = work;
        cost
    }

    /// A buffer with the content of the gap's from its end on: one that is written later, or a new copy's.
    fn copy_for(&mut self, gap: Gap, view: &View) -> BufferId {
        let others = self.versions(gap.buffer, view);
        let later = others.iter().filter(|&&(first, _, b)| b != gap.buffer && first > gap.from).min();
        if let Some(&(_, _, buffer)) = later {
            return buffer;
        }
        let small = self.bytes(gap.buffer) / 8;
        let Some(copy) = self.add(gap.buffer) else { return gap.buffer };
        let mut made: Vec<(BufferId, BufferId)> = Vec::new();
        let mut next = copy;
        while next < self.runs.len() {
            for input in 0..self.runs[next].inputs.len() {
                let buffer = self.runs[next].inputs[input];
                let original = self.original(buffer);
                let known = made.iter().find(|(of, _)| *of == original).map(|&(_, copy)| copy);
                self.runs[next].inputs[input] = known.unwrap_or_else(|| {
                    let read = self.resolve(buffer, gap.to, small, view);
                    if read >= view.uses.len() {
                        made.push((original, read));
                    }
                    read
                });
            }
            next += 1;
        }
        self.written(copy)
    }

    /// A copy of what computes `buffer`, which reads what that did.
    fn add(&mut self, buffer: BufferId) -> Option<usize> {
        let of = self.runs[self.producer(buffer)?].of;
        let inputs = self.base.task.problem.steps[of].inputs.clone();
        self.work = self.work.saturating_add(self.base.work(of));
        self.runs.push(Run { of, inputs, gone: false });
        Some(self.runs.len() - 1)
    }

    /// What a copy at a position reads in place of a buffer of the task: what is alive then; what is written later, so
    /// that it will be written earlier; what is small, kept for longer; or else a new copy.
    fn resolve(&mut self, buffer: BufferId, at: usize, small: u64, view: &View) -> BufferId {
        let versions = self.versions(buffer, view);
        let alive = versions.iter().find(|(first, last, _)| *first < at && *last >= at);
        let later = versions.iter().filter(|(first, ..)| *first >= at).min();
        if let Some(&(_, _, version)) = alive.or(later) {
            return version;
        }
        let kept = versions.iter().max_by_key(|(_, last, b)| (*last, std::cmp::Reverse(*b))).map_or(buffer, |v| v.2);
        let again = self.producer(buffer).is_some_and(|run| self.base.output[self.runs[run].of].is_some());
        if !again || self.bytes(buffer) <= small {
            return kept;
        }
        self.add(buffer).map_or(kept, |copy| self.written(copy))
    }

    /// The buffers with the same content: from which position to which each is alive, itself first.
    fn versions(&self, buffer: BufferId, view: &View) -> Vec<(usize, usize, BufferId)> {
        let original = self.original(buffer);
        let same = view.same[original].iter().copied();
        let alive = std::iter::once(original).chain(same).filter_map(|b| {
            let uses = &view.uses[b];
            let first = if self.producer(b).is_none() { 0 } else { *uses.first()? };
            let last = if self.record(b).keep && b == original { usize::MAX } else { *uses.last().unwrap_or(&0) };
            Some((first, last, b))
        });
        alive.collect()
    }

    /// Undoes a copy: what reads it reads again what was there before.
    pub(super) fn undo(&mut self, copy: usize, view: &View) {
        let own = self.written(copy);
        let first = view.uses[own].first().copied().unwrap_or(0);
        let versions = self.versions(own, view);
        let before = versions.iter().filter(|v| v.2 != own && v.0 < first).max_by_key(|v| (v.1, v.0));
        let Some(&(_, _, buffer)) = before else { return };
        for run in &mut self.runs {
            run.inputs.iter_mut().filter(|input| **input == own).for_each(|input| *input = buffer);
        }
        self.sweep();
    }

    /// Takes out the copies that nobody reads.
    fn sweep(&mut self) {
        loop {
            let mut read = vec![false; self.base.buffers() + self.runs.len() - self.base.steps()];
            self.runs.iter().filter(|r| !r.gone).flat_map(|r| &r.inputs).for_each(|&input| read[input] = true);
            let idle: Vec<usize> = self.copies().filter(|&run| !read[self.written(run)]).collect();
            if idle.is_empty() {
                return;
            }
            for run in idle {
                self.runs[run].gone = true;
                self.work = self.work.saturating_sub(self.cost(run));
            }
        }
    }
}
