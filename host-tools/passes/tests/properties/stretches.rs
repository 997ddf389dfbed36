//! Slices and concatenations of rows in all sorts of arrangements: planning may run some piece by piece, and whatever it does the
//! numbers stay.

use std::cell::Cell;

use kiln_core::{DType, MAX_RANK, TargetId};
use kiln_ops::{Activation, Add, AveragePool2dPart, Concat, Pool2d, PoolKind, Slice};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId, tensor_type};
use kiln_planner::solve::Budget;
use kiln_planner::{Options, plan};
use kiln_target_host::Runner;
use proptest::prelude::*;

use super::{ROUNDS, evaluated, input};

/// An image: pieces, each some operators over rows of an image before it, and what is odd about it.
#[derive(Clone, Debug)]
struct Image {
    pieces: Vec<Piece>,
    odd: u32,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Which image, counted back; where the rows begin, against those of the piece before; how many rows more than one.
    of: usize,
    forward: i64,
    rows: u32,
    /// What runs over them.
    window: u32,
    twice: bool,
    /// Another slice of an image before is added, counted back.
    plus: Option<usize>,
}

fn piece() -> impl Strategy<Value = Piece> {
    let plus = prop_oneof![3 => Just(None), 1 => (0..3usize).prop_map(Some)];
    (prop_oneof![4 => Just(0usize), 1 => 1..3usize], -1..4i64, 0..4u32, 1..4u32, any::<bool>(), plus)
        .prop_map(|(of, forward, rows, window, twice, plus)| Piece { of, forward, rows, window, twice, plus })
}

fn image() -> impl Strategy<Value = Image> {
    (prop::collection::vec(piece(), 2..6), prop_oneof![6 => Just(0u32), 1 => 1..6u32])
        .prop_map(|(pieces, odd)| Image { pieces, odd })
}

struct Build {
    graph: Graph,
    quant: Quant,
    number: usize,
}

impl Build {
    fn rows(&self, value: ValueId) -> u32 {
        self.graph.value(value).ty.shape.dim(1)
    }

    fn add(&mut self, op: kiln_ops::Op, inputs: &[ValueId]) -> Option<ValueId> {
        self.number += 1;
        self.graph.try_add_node(0, format!("n{}", self.number), op, inputs, self.quant.clone()).ok()
    }

    fn slice(&mut self, of: ValueId, begin: u32, rows: u32) -> Option<ValueId> {
        let mut size = self.graph.value(of).ty.shape.dims().to_vec();
        size[1] = rows;
        let mut from = [0; MAX_RANK];
        from[1] = begin;
        let size = kiln_core::Shape::new(&size).ok()?;
        self.add(Slice { begin: from, size, step: [1; MAX_RANK] }.into(), &[of])
    }

    fn pool(&mut self, of: ValueId, window: u32, top: u32) -> Option<ValueId> {
        let (kernel, pads) = ([window, 1], [top.min(window - 1), 0, 0, 0]);
        let op = Pool2d { kind: PoolKind::Max, kernel, strides: [1, 1], pads, activation: Activation::None };
        self.add(op.into(), &[of])
    }

    fn piece(&mut self, piece: Piece, images: &[ValueId], begin: &mut i64) -> Option<ValueId> {
        let of = images[images.len() - 1 - piece.of.min(images.len() - 1)];
        let height = self.rows(of);
        *begin = (*begin + piece.forward).clamp(0, i64::from(height) - 1);
        let rows = (piece.rows + 1).min(height - *begin as u32);
        let mut value = self.slice(of, *begin as u32, rows)?;
        value = self.pool(value, piece.window.min(rows), 1)?;
        if piece.twice {
            value = self.pool(value, 1, 0)?;
        }
        if let Some(back) = piece.plus {
            let other = images[images.len() - 1 - back.min(images.len() - 1)];
            let rows = self.rows(value);
            if self.rows(other) >= rows {
                let other = self.slice(other, (*begin as u32).min(self.rows(other) - rows), rows)?;
                value = self.add(Add { activation: Activation::None }.into(), &[value, other])?;
            }
        }
        Some(value)
    }

    /// An average over pieces, and what else the caller reads of it.
    fn average(&mut self, image: &Image, images: &[ValueId]) -> Option<Vec<ValueId>> {
        let (mut begin, mut inputs, mut outputs) = (0, Vec::new(), Vec::new());
        for (number, &piece) in image.pieces.iter().enumerate() {
            let rows = match image.odd {
                // Rows as they lie, wherever those begin.
                4 => {
                    let of = images[images.len() - 1];
                    let height = (piece.rows + 1).min(self.rows(of));
                    let first = (piece.forward.max(0) as u32).min(self.rows(of) - height);
                    self.slice(of, first, height)?
                }
                _ => self.piece(piece, images, &mut begin)?,
            };
            let last = number + 1 == image.pieces.len();
            let part = AveragePool2dPart { taps: 50, last, activation: Activation::Relu };
            inputs.insert(0, rows);
            let sums = self.add(part.into(), &inputs)?;
            match image.odd {
                // Sums that the caller reads, or that go on in two ways.
                1 if number == 0 => outputs.push(sums),
                2 if number == 1 => outputs.push(self.add(part.into(), &inputs)?),
                3 if !last => outputs.push(self.add(AveragePool2dPart { last: true, ..part }.into(), &[rows, sums])?),
                _ => {}
            }
            inputs = vec![sums];
        }
        outputs.extend(inputs);
        Some(outputs)
    }
}

fn graph(dtype: DType, rows: u32, images: &[Image], average: Option<&Image>) -> Option<Graph> {
    let mut graph = Graph::new("stretches");
    let ty = tensor_type(dtype, &[1, rows, 2, 3])?;
    let quant = if dtype == DType::I8 { Quant::per_tensor(0.05, -3) } else { Quant::default() };
    let x = graph.add_input("x", ty, quant.clone());
    graph.entries.push(Entry { name: "infer".into(), inputs: vec![x], ..Entry::default() });
    let mut build = Build { graph, quant, number: 0 };
    let mut values = vec![x];
    let mut outputs = Vec::new();
    for image in images {
        let mut begin = 0;
        let mut pieces = Vec::new();
        for &piece in &image.pieces {
            pieces.push(build.piece(piece, &values, &mut begin)?);
        }
        match image.odd {
            // A piece that the caller reads, that lies there twice, or that is a slice itself.
            1 => outputs.push(pieces[0]),
            2 => pieces.push(pieces[0]),
            3 => {
                let first = values[values.len() - 1];
                pieces.push(build.slice(first, 0, 1)?);
            }
            _ => {}
        }
        let whole = build.add(Concat { axis: 1 }.into(), &pieces)?;
        match image.odd {
            // An image that the caller reads, or an operator reads whole.
            4 => outputs.push(whole),
            5 => outputs.push(build.pool(whole, 1, 0)?),
            _ => {}
        }
        values.push(whole);
    }
    match average {
        Some(average) => outputs.extend(build.average(average, &values)?),
        None => outputs.push(values[values.len() - 1]),
    }
    build.graph.entries[0].outputs = outputs;
    Some(build.graph)
}

#[test]
fn rows_put_together_stay_the_same_however_they_are_planned() {
    let (pieced, fed, averaged) = (Cell::new(0), Cell::new(0), Cell::new(0));
    proptest!(ProptestConfig::with_cases(600), |(
        dtype in prop_oneof![3 => Just(DType::I8), 1 => Just(DType::F32)],
        rows in 3..12u32,
        images in prop::collection::vec(image(), 1..5),
        average in prop::option::weighted(0.4, image()),
    )| {
        let Some(graph) = graph(dtype, rows, &images, average.as_ref()) else { return Ok(()) };
        graph.validate().unwrap();
        let whole = evaluated(&graph);
        let options = Options { budget: Budget { nodes: 200 }, ..Options::for_target(TargetId::PORTABLE) };
        for options in [options, Options { feed: true, ..options }, Options { overlap: false, ..options }] {
            let planned = plan(&graph, &options).unwrap();
            let mut runner = Runner::new(&planned.bytes).unwrap();
            for (round, whole) in whole.iter().enumerate().take(ROUNDS) {
                let x = input(&graph, graph.entries[0].inputs[0], round);
                prop_assert_eq!(&runner.run("infer", &[&x]).unwrap(), whole);
            }
            let entry = planned.main_entry().unwrap();
            let pieces = entry.steps.iter().all(|step| step.op.name() != "concat");
            pieced.set(pieced.get() + usize::from(pieces));
            averaged.set(averaged.get() + usize::from(pieces && average.is_some()));
            fed.set(fed.get() + usize::from(entry.fed.is_some()));
        }
    });
    let counts = (pieced.get(), fed.get(), averaged.get());
    let enough = counts.0 > 300 && counts.1 > 30 && counts.2 > 100;
    assert!(enough, "{counts:?} plans ran piece by piece, were fed, and averaged pieces");
}
