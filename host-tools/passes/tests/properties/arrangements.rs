//! Rows put together in arrangements that once went wrong, or that a condition of the search for stretches is there for.

use kiln_core::{DType, MAX_RANK, Shape, TargetId};
use kiln_ops::{Activation, Add, Concat, Op, Pool2d, PoolKind, Slice};
use kiln_passes::{Overlap, Way, patch, plan_within};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId, tensor_type};
use kiln_planner::{Choice, Options, PlanError, Planned, plan};
use kiln_target_host::Runner;

use super::{ROUNDS, evaluated, input};

/// A graph of one entry whose int8 values have one quantization.
struct Build(Graph);

impl Build {
    fn new(dtype: DType, inputs: &[&[u32]]) -> (Build, Vec<ValueId>) {
        let mut build = Build(Graph::new("arranged"));
        let add = |dims: &&[u32]| build.0.add_input("x", tensor_type(dtype, dims).unwrap(), quant(dtype));
        let inputs: Vec<ValueId> = inputs.iter().map(add).collect();
        build.0.entries.push(Entry { name: "infer".into(), inputs: inputs.clone(), ..Entry::default() });
        (build, inputs)
    }

    fn node(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let (number, dtype) = (self.0.values.len(), self.0.value(inputs[0]).ty.dtype);
        self.0.add_node(0, format!("n{number}"), op, inputs, quant(dtype)).unwrap()
    }

    /// A slice along some axes, each with begin, size and step.
    fn part(&mut self, of: ValueId, axes: &[(usize, [u32; 3])]) -> ValueId {
        let mut size = self.0.value(of).ty.shape.dims().to_vec();
        let (mut begin, mut step) = ([0; MAX_RANK], [1; MAX_RANK]);
        for &(axis, along) in axes {
            [begin[axis], size[axis], step[axis]] = along;
        }
        self.node(Slice { begin, size: Shape::new(&size).unwrap(), step }, &[of])
    }

    fn rows(&mut self, of: ValueId, [begin, end]: [u32; 2]) -> ValueId {
        self.part(of, &[(1, [begin, end - begin, 1])])
    }

    /// The same values, computed.
    fn same(&mut self, of: ValueId) -> ValueId {
        self.pool(of, PoolKind::Max, [1, 1], [1, 1])
    }

    fn pool(&mut self, of: ValueId, kind: PoolKind, kernel: [u32; 2], strides: [u32; 2]) -> ValueId {
        self.node(Pool2d { kind, kernel, strides, pads: [0; 4], activation: Activation::None }, &[of])
    }

    fn same_rows(&mut self, of: ValueId, rows: [u32; 2]) -> ValueId {
        let rows = self.rows(of, rows);
        self.same(rows)
    }

    fn sum(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.node(Add { activation: Activation::None }, &[a, b])
    }

    fn together(&mut self, axis: u8, pieces: &[ValueId]) -> ValueId {
        self.node(Concat { axis }, pieces)
    }

    fn done(mut self, outputs: &[ValueId]) -> Graph {
        self.0.entries[0].outputs = outputs.to_vec();
        self.0.validate().unwrap();
        self.0
    }
}

fn quant(dtype: DType) -> Quant {
    if dtype == DType::I8 { Quant::per_tensor(0.05, -3) } else { Quant::default() }
}

fn options(feed: bool) -> Options {
    Options { feed, ..Options::for_target(TargetId::PORTABLE) }
}

/// A plan computes what its graph says.
fn check(graph: &Graph, planned: &Planned) {
    let whole = evaluated(graph);
    let mut runner = Runner::new(&planned.bytes).unwrap();
    for (round, whole) in whole.iter().enumerate().take(ROUNDS) {
        let inputs: Vec<Vec<u8>> = graph.entries[0].inputs.iter().map(|&id| input(graph, id, round)).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        assert_eq!(&runner.run("infer", &inputs).unwrap(), whole);
    }
}

fn check_both(graph: &Graph) -> Planned {
    check(graph, &plan(graph, &options(false)).unwrap());
    let fed = plan(graph, &options(true)).unwrap();
    check(graph, &fed);
    fed
}

#[test]
fn an_operator_reads_two_slices_of_what_is_fed() {
    let (mut b, x) = Build::new(DType::I8, &[&[1, 8, 2, 3]]);
    let first = b.same_rows(x[0], [0, 5]);
    let (above, below) = (b.rows(x[0], [2, 5]), b.rows(x[0], [4, 7]));
    let (second, third) = (b.sum(above, below), b.same_rows(x[0], [5, 8]));
    let y = b.together(1, &[first, second, third]);
    assert!(check_both(&b.done(&[y])).main_entry().unwrap().fed.is_some());
}

#[test]
fn what_lies_elsewhere_is_no_rows() {
    // A value of the piece before, which has given up its place.
    let (mut b, x) = Build::new(DType::I8, &[&[1, 4, 2, 3]]);
    let first = b.same_rows(x[0], [0, 2]);
    let copied = b.same(first);
    let second = b.same_rows(x[0], [2, 4]);
    let second = b.same(second);
    let second = b.sum(second, first);
    let y = b.together(1, &[copied, second]);
    check_both(&b.done(&[y]));
    // Pieces that are put together along another axis themselves.
    let (mut b, x) = Build::new(DType::I8, &[&[1, 4, 2, 3]]);
    let pieces = [[0, 2], [2, 4]].map(|rows| {
        let both = [b.same_rows(x[0], rows), b.same_rows(x[0], rows)];
        b.together(3, &both)
    });
    let y = b.together(1, &pieces);
    check_both(&b.done(&[y]));
    // What is fed is an output, too.
    let (mut b, x) = Build::new(DType::I8, &[&[1, 4, 2, 3]]);
    let pieces = [[0, 2], [2, 4]].map(|rows| b.same_rows(x[0], rows));
    let y = b.together(1, &pieces);
    check_both(&b.done(&[y, x[0]]));
    // Slices that are not in one piece: parts of rows, and every other row.
    let (mut b, x) = Build::new(DType::I8, &[&[2, 4, 4, 3]]);
    let pieces = [0, 1].map(|image| {
        let part = b.part(x[0], &[(0, [image, 1, 1]), (2, [1, 2, 1])]);
        b.same(part)
    });
    let y = b.together(0, &pieces);
    check_both(&b.done(&[y]));
    let (mut b, x) = Build::new(DType::I8, &[&[1, 4, 4, 3]]);
    let pieces = [0, 1].map(|row| {
        let part = b.part(x[0], &[(1, [row, 2, 2])]);
        b.same(part)
    });
    let y = b.together(1, &pieces);
    check_both(&b.done(&[y]));
}

#[test]
fn only_rows_that_are_still_read_stay() {
    let (mut b, x) = Build::new(DType::I8, &[&[1, 40, 4, 8]]);
    let mut y = x[0];
    for _ in 0..3 {
        let pads = [1, 0, 1, 0];
        let op = Pool2d { kind: PoolKind::Max, kernel: [3, 1], strides: [1, 1], pads, activation: Activation::None };
        y = b.node(op, &[y]);
    }
    let way = Way { rows: 1, at_once: 1, overlap: Overlap::Kept };
    let (patched, _) = patch(&b.done(&[y]), 3, way).unwrap().unwrap();
    let planned = plan(&patched, &options(false)).unwrap();
    check(&patched, &planned);
    // The image with the output over it, and four rows of each image between.
    assert!(planned.arena_bytes < 40 * 32 + 12 * 32, "{}", planned.arena_bytes);
}

#[test]
fn concatenations_within_each_other_end() {
    for depth in [3, 10_000] {
        let (mut b, x) = Build::new(DType::I8, &[&[1, 2, 1, 1]]);
        let mut y = b.same(x[0]);
        for _ in 0..depth {
            let row = b.same_rows(x[0], [0, 1]);
            y = b.together(1, &[y, row]);
        }
        let graph = b.done(&[y]);
        match plan(&graph, &options(false)) {
            Ok(planned) => check(&graph, &planned),
            Err(error) => assert!(depth > 3 && matches!(error, PlanError::Solve(_)), "{error}"),
        }
    }
}

#[test]
fn a_limit_holds_for_what_is_in_pieces_already() {
    let (mut b, x) = Build::new(DType::I8, &[&[1, 64, 2, 3]]);
    let pieces = [[0, 32], [32, 64]].map(|rows| b.same_rows(x[0], rows));
    let y = b.together(1, &pieces);
    let graph = b.done(&[y]);
    let needed = plan(&graph, &options(false)).unwrap().ram_bytes;
    assert!(plan(&graph, &Options { ram: Some(needed), ..options(false) }).is_ok());
    let Err(PlanError::Ram(short)) = plan(&graph, &Options { ram: Some(needed - 1), ..options(false) }) else {
        panic!("{needed} bytes are needed")
    };
    assert_eq!((short.least, short.unaided), (needed, needed));
}

#[test]
fn what_is_to_be_fed_is_or_that_is_said() {
    // More could be cut after the second input, but the first is fed.
    let (mut b, x) = Build::new(DType::I8, &[&[1, 1, 2, 3], &[1, 16, 2, 3]]);
    let mut y = x[1];
    for _ in 0..3 {
        y = b.same(y);
    }
    let other = b.same(x[0]);
    assert!(plan_within(b.done(&[y, other]), &options(true), u64::MAX).unwrap().is_none());
    // Every other row is never asked for.
    let (mut b, x) = Build::new(DType::I8, &[&[1, 16, 2, 3]]);
    let y = b.pool(x[0], PoolKind::Max, [1, 1], [2, 1]);
    let y = b.same(y);
    let y = b.same(y);
    assert!(plan_within(b.done(&[y]), &options(true), u64::MAX).unwrap().is_none());
}

#[test]
fn nobody_reads_an_operator_among_the_first() {
    let (mut b, x) = Build::new(DType::I8, &[&[1, 8, 2, 3]]);
    let y = b.same(x[0]);
    b.same(y);
    let y = b.same(y);
    let y = b.same(y);
    let graph = b.done(&[y]);
    for operators in 2..=4 {
        let way = Way { rows: 2, at_once: 4, overlap: Overlap::Kept };
        if let Some((patched, _)) = patch(&graph, operators, way).unwrap() {
            check(&patched, &plan(&patched, &options(false)).unwrap());
        }
    }
}

#[test]
fn sums_of_references_lie_apart() {
    let (mut b, x) = Build::new(DType::F32, &[&[1, 8, 3, 3]]);
    let y = b.sum(x[0], x[0]);
    let y = b.sum(y, y);
    let y = b.pool(y, PoolKind::Average, [8, 3], [1, 3]);
    let way = Way { rows: 2, at_once: 1, overlap: Overlap::Kept };
    let (patched, _) = patch(&b.done(&[y]), 3, way).unwrap().unwrap();
    for feed in [false, true] {
        check(&patched, &plan(&patched, &Options { choice: Choice::References, ..options(feed) }).unwrap());
        check(&patched, &plan(&patched, &options(feed)).unwrap());
    }
}
