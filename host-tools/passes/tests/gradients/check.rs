//! Finite differences.

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::{Build, Function, ReduceKind};
use kiln_passes::{EntryBuilder, differentiate};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId};
use kiln_planner::reference::Evaluator;

use crate::cases::Case;

/// Half the distance of two points that a difference is taken of.
const STEP: f64 = 1e-5;
/// By how much a gradient may be off, absolutely and relatively: the square of the step times a third derivative,
/// and the rounding of the difference.
const TOLERANCE: f64 = 2e-7;

/// A graph with one entry that gives one number.
struct Scalar {
    graph: Graph,
    inputs: Vec<ValueId>,
    number: ValueId,
    data: Vec<Vec<u8>>,
    seed: u64,
}

impl Scalar {
    /// The sum of the operator's outputs, each times a number of its own.
    fn new(case: &Case) -> Scalar {
        let mut graph = Graph::new(case.op.name());
        let (mut inputs, mut data) = (Vec::new(), Vec::new());
        let mut seed = 1;
        for (i, input) in case.inputs.iter().enumerate() {
            let ty = TensorType::new(input.dtype, Shape::new(&input.dims).unwrap());
            inputs.push(graph.add_input(format!("x{i}"), ty, Quant::default()));
            data.push(match input.dtype {
                DType::Bool => draw(&mut seed, &ty, (0.0, 2.0)).iter().map(|v| *v as u8).collect(),
                _ => bytes(&draw(&mut seed, &ty, input.range)),
            });
        }
        graph.entries.push(Entry { name: "f".into(), inputs: inputs.clone(), ..Entry::default() });
        let output = graph.add_node(0, "op", case.op, &inputs, Quant::default()).unwrap();
        let mut scalar = Scalar { graph, inputs, number: output, data, seed };
        scalar.number = scalar.weigh(&[output]);
        scalar
    }

    /// Adds the sum of `values`, each element times a number of its own.
    fn weigh(&mut self, values: &[ValueId]) -> ValueId {
        let mut terms = Vec::new();
        for &value in values {
            let ty = self.graph.value(value).ty;
            let ty = TensorType::new(DType::F64, ty.shape);
            let weights = draw(&mut self.seed, &ty, (-1.0, 1.0));
            let weights = self.graph.add_constant("weights", ty, Quant::default(), bytes(&weights));
            let mut b = EntryBuilder::new(&mut self.graph, 0);
            let value = b.cast(value, DType::F64).unwrap();
            let product = b.mul(value, weights).unwrap();
            let all = (1u32 << ty.shape.rank()) as u8;
            let sum = b.reduce(ReduceKind::Sum, product, all.wrapping_sub(1)).unwrap();
            terms.push(b.reshape(sum, Shape::SCALAR).unwrap());
        }
        let mut b = EntryBuilder::new(&mut self.graph, 0);
        let zero = b.scalar(DType::F64, 0.0).unwrap();
        terms.into_iter().fold(zero, |sum, term| b.map(Function::Add, &[sum, term]).unwrap())
    }

    /// The inputs that numbers go into.
    fn smooth(&self) -> Vec<ValueId> {
        self.inputs.iter().copied().filter(|&id| self.graph.value(id).ty.dtype == DType::F64).collect()
    }

    fn gradients(&mut self) -> Vec<ValueId> {
        let smooth = self.smooth();
        let gradients = differentiate(&mut self.graph, 0, self.number, &smooth).unwrap();
        for (&gradient, &input) in gradients.iter().zip(&smooth) {
            assert_eq!(self.graph.value(gradient).ty, self.graph.value(input).ty, "{}", self.graph.name);
        }
        gradients
    }

    fn run(&self, data: &[Vec<u8>], of: &[ValueId]) -> Vec<Vec<f64>> {
        let mut graph = self.graph.clone();
        graph.entries[0].outputs = of.to_vec();
        graph.validate().unwrap();
        let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let values = Evaluator::new(&graph).run(0, &slices).unwrap();
        of.iter().map(|id| numbers(&values[id])).collect()
    }

    /// Compares the gradients of `number` with differences of it.
    fn check(&mut self, what: &str) {
        let gradients = self.gradients();
        let found = self.run(&self.data, &gradients);
        for (input, found) in self.smooth().into_iter().zip(found) {
            let at = self.inputs.iter().position(|&id| id == input).unwrap();
            for (i, found) in found.into_iter().enumerate() {
                let moved = |by: f64| {
                    let mut data = self.data.clone();
                    let mut x = numbers(&data[at]);
                    x[i] += by;
                    data[at] = bytes(&x);
                    self.run(&data, &[self.number])[0][0]
                };
                let expected = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                assert!(
                    (found - expected).abs() <= TOLERANCE * expected.abs().max(1.0),
                    "{what} of {:?}: by element {i} of input {at}: {found}, differences say {expected}",
                    self.graph.entries[0].nodes[0].op
                );
            }
        }
    }
}

/// Compares the gradient of the operator.
pub(crate) fn first_order(case: &Case) {
    Scalar::new(case).check("gradient");
}

/// Compares the gradient of the gradient: of a sum of its elements, each times a number of its own.
pub(crate) fn second_order(case: &Case) {
    let mut scalar = Scalar::new(case);
    let gradients = scalar.gradients();
    scalar.number = scalar.weigh(&gradients);
    scalar.check("second gradient");
}

fn bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks(8).map(|c| f64::from_le_bytes(c.try_into().unwrap())).collect()
}

/// Numbers of a range in random order but never close to each other, so that no step passes where two are
/// equal, nor 0 or another bound of an activation.
fn draw(seed: &mut u64, ty: &TensorType, (low, high): (f64, f64)) -> Vec<f64> {
    let n = ty.shape.elements().unwrap() as usize;
    let mut next = || {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *seed >> 33
    };
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, next() as usize % (i + 1));
    }
    order
        .into_iter()
        .map(|i| low + (high - low) * (i as f64 + 0.37 + 0.2 * (next() % 100) as f64 / 100.0) / n as f64)
        .collect()
}
