//! Fused chains compute what their functions do one by one.

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::{Cast, Expand, Function, Map, Op, Program, Signature};
use kiln_passes::{differentiate, fuse_elementwise};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId};
use kiln_planner::reference::Evaluator;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

fn ty(dtype: DType, dims: &[u32]) -> TensorType {
    TensorType::new(dtype, Shape::new(dims).unwrap())
}

/// A graph of functions that are exact over small whole numbers, so that rounding hides nothing.
fn random_graph(random: &mut Random) -> Graph {
    const EXACT: [Function; 12] = [
        Function::Add,
        Function::Sub,
        Function::Min,
        Function::Max,
        Function::Neg,
        Function::Abs,
        Function::Sign,
        Function::Equal,
        Function::Less,
        Function::And,
        Function::Not,
        Function::Select,
    ];
    let mut graph = Graph::new("chain");
    let shapes: [&[u32]; 4] = [&[2, 3], &[1, 3], &[2, 1], &[]];
    let inputs: Vec<ValueId> =
        (0..4).map(|i| graph.add_input(format!("x{i}"), ty(DType::F32, shapes[i]), Quant::default())).collect();
    graph.entries.push(Entry { name: "f".into(), inputs: inputs.clone(), ..Entry::default() });
    let mut values = inputs;
    for number in [0f32, 1.0, -2.0] {
        let data = number.to_le_bytes().to_vec();
        values.push(graph.add_constant(format!("{number}"), ty(DType::F32, &[]), Quant::default(), data));
    }
    for step in 0..60 {
        let op: Op = match random.below(8) {
            0 => Expand { shape: Shape::new(&[2, 3]).unwrap() }.into(),
            1 => Cast { dtype: DType::F32 }.into(),
            _ => Map { function: EXACT[random.below(EXACT.len())] }.into(),
        };
        let arity = match op {
            Op::Map(map) => map.function.arity(),
            _ => 1,
        };
        // Rather new values than old ones, so that chains grow.
        let pick = |random: &mut Random| values[values.len() - 1 - random.below(values.len().min(6))];
        let picked: Vec<ValueId> = (0..arity).map(|_| pick(random)).collect();
        let logic = matches!(op, Op::Map(m) if m.function.signature() == Signature::Logic);
        if op.output(&graph.types(&picked)).is_ok() && (!logic || step > 5) {
            values.push(graph.add_node(0, format!("n{step}"), op, &picked, Quant::default()).unwrap());
        }
    }
    let last = values.len();
    graph.entries[0].outputs = vec![values[last - 1], values[last - 1 - random.below(5)]];
    graph.entries[0].outputs.dedup();
    graph
}

fn count(graph: &Graph, wanted: impl Fn(&Op) -> bool) -> usize {
    graph.entries[0].nodes.iter().filter(|n| wanted(&n.op)).count()
}

fn outputs(graph: &Graph, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    graph.validate().unwrap();
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let values = Evaluator::new(graph).run(0, &slices).unwrap();
    graph.entries[0].outputs.iter().map(|id| values[id].clone()).collect()
}

#[test]
fn random_chains_keep_every_bit() {
    let mut random = Random(1);
    let (mut chains, mut functions) = (0, 0);
    for _ in 0..300 {
        let graph = random_graph(&mut random);
        let data: Vec<Vec<u8>> = (graph.entries[0].inputs.iter())
            .map(|&id| {
                let n = graph.value(id).ty.shape.elements().unwrap();
                (0..n).flat_map(|_| (random.below(7) as f32 - 3.0).to_le_bytes()).collect()
            })
            .collect();
        let fused = fuse_elementwise(graph.clone());
        assert_eq!(outputs(&graph, &data), outputs(&fused, &data));
        assert_eq!(fused.entries[0].outputs.len(), graph.entries[0].outputs.len());
        for node in &fused.entries[0].nodes {
            if let Op::Fused(_) = node.op {
                let program = fused.constant_data(*node.inputs.last().unwrap()).unwrap();
                let program = Program::new(program, node.inputs.len() - 1).unwrap();
                assert!(program.instructions().count() > 1);
                (chains, functions) = (chains + 1, functions + program.instructions().count());
            }
        }
    }
    assert!(
        chains > 300 && functions > 3 * chains / 2,
        "hardly anything was fused: {functions} functions in {chains} chains"
    );
}

#[test]
fn a_layer_and_its_gradient_become_few_chains() {
    // sum(tanh(x * w + b)) and its gradients by w and b.
    let mut graph = Graph::new("layer");
    let input =
        |graph: &mut Graph, name: &str, dims: &[u32]| graph.add_input(name, ty(DType::F32, dims), Quant::default());
    let x = input(&mut graph, "x", &[4, 5]);
    let (w, b) = (input(&mut graph, "w", &[4, 5]), input(&mut graph, "b", &[5]));
    graph.entries.push(Entry { name: "f".into(), inputs: vec![x, w, b], ..Entry::default() });
    let map = |graph: &mut Graph, function, inputs: &[ValueId]| {
        graph.add_node(0, "map", Map { function }, inputs, Quant::default()).unwrap()
    };
    let product = map(&mut graph, Function::Mul, &[x, w]);
    let sum = map(&mut graph, Function::Add, &[product, b]);
    let y = map(&mut graph, Function::Tanh, &[sum]);
    let reduce = kiln_ops::Reduce { kind: kiln_ops::ReduceKind::Sum, axes: 0b11 };
    let total = graph.add_node(0, "total", reduce, &[y], Quant::default()).unwrap();
    let gradients = differentiate(&mut graph, 0, total, &[w, b]).unwrap();
    graph.entries[0].outputs = [vec![total], gradients].concat();
    let fused = fuse_elementwise(kiln_passes::clean(graph).unwrap().graph);
    // tanh(x w + b); 1 - y^2 with the seed; times x.
    assert!(count(&fused, |op| matches!(op, Op::Map(_) | Op::Fused(_))) <= 3, "{:?}", fused.entries[0].nodes);
    assert_eq!(count(&fused, |op| matches!(op, Op::Expand(_))), 0);
}
