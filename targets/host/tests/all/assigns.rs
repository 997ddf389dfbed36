//! State: reads see the value from before the run, assignments count from the next run on.

use kiln_core::DType;
use kiln_ops::{Activation, Add, Copy, FullyConnected, Reshape};
use kiln_planner::graph::{Assign, Graph, Quant, ValueId};

use crate::support::{Pair, Random, bytes_of, graph, input, reals, ty};

const ADD: Add = Add { activation: Activation::None };

fn assign(graph: &mut Graph, entry: usize, state: ValueId, value: ValueId) {
    graph.entries[entry].assigns.push(Assign { state, value });
}

/// Both ways of planning.
fn pairs(graph: &Graph) -> [Pair<'_>; 2] {
    [true, false].map(|overlap| Pair::new(graph, overlap))
}

#[test]
#[cfg_attr(miri, ignore = "slow, and the same accesses as in other tests")]
fn a_counter_in_float() {
    let mut g = graph(&["infer"]);
    let vector = ty(DType::F32, &[3]);
    let x = input(&mut g, 0, "x", vector, &Quant::default());
    let sum = g.add_state("sum", vector, Quant::default());
    let next = g.add_node(0, "next", ADD, &[sum, x], Quant::default()).unwrap();
    g.entries[0].outputs = vec![next, sum];
    assign(&mut g, 0, sum, next);
    for mut pair in pairs(&g) {
        for run in 0..4 {
            let outputs = pair.run(0, &[bytes_of(&[1.0, 2.0, -0.5])]);
            let n = run as f32;
            assert_eq!(reals(&outputs[1]), [n, 2.0 * n, -0.5 * n], "state as an output is the value from before");
            assert_eq!(reals(&outputs[0]), [n + 1.0, 2.0 * n + 2.0, -0.5 * n - 0.5]);
        }
        pair.reset();
        assert_eq!(reals(&pair.run(0, &[bytes_of(&[1.0; 3])])[1]), [0.0; 3], "reset zeroes it");
    }
}

#[test]
#[cfg_attr(miri, ignore = "slow, and the same accesses as in other tests")]
fn a_counter_in_int8() {
    let mut g = graph(&["infer"]);
    let image = ty(DType::I8, &[1, 2, 3, 4]);
    let quant = Quant::per_tensor(0.5, 0);
    let x = input(&mut g, 0, "x", image, &quant);
    let sum = g.add_state("sum", image, quant.clone());
    let next = g.add_node(0, "next", ADD, &[sum, x], quant).unwrap();
    g.entries[0].outputs = vec![sum];
    assign(&mut g, 0, sum, next);
    for mut pair in pairs(&g) {
        for run in 0..4 {
            assert_eq!(pair.run(0, &[vec![3; 24]]), [vec![3 * run; 24]]);
        }
    }
}

/// What a window over state takes is the state's bytes, not its reader's.
#[test]
#[cfg_attr(miri, ignore = "slow, and the same accesses as in other tests")]
fn a_layer_over_state_of_another_size() {
    let mut g = graph(&["infer"]);
    let mut random = Random::new(1);
    let (wide, narrow) = (ty(DType::F32, &[1, 9]), ty(DType::F32, &[1, 2]));
    let x = input(&mut g, 0, "x", wide, &Quant::default());
    let kept = g.add_state("kept", wide, Quant::default());
    let weights = ty(DType::F32, &[2, 9]);
    let w = g.add_constant("w", weights, Quant::default(), random.elements(&weights));
    let op = FullyConnected { keep_dims: false, activation: Activation::None };
    let y = g.add_node(0, "y", op, &[kept, w], Quant::default()).unwrap();
    assert_eq!(g.value(y).ty, narrow);
    g.entries[0].outputs = vec![y];
    assign(&mut g, 0, kept, x);
    for mut pair in pairs(&g) {
        for _ in 0..3 {
            pair.run(0, &[random.elements(&wide)]);
        }
    }
}

#[test]
fn two_states_swap() {
    let mut g = graph(&["infer", "reset"]);
    let vector = ty(DType::I8, &[5]);
    let none = Quant::default();
    let (a, b) = (g.add_state("a", vector, none.clone()), g.add_state("b", vector, none.clone()));
    let (one, two) = (
        g.add_constant("one", vector, none.clone(), vec![1; 5]),
        g.add_constant("two", vector, none.clone(), vec![2; 5]),
    );
    assign(&mut g, 1, a, one);
    assign(&mut g, 1, b, two);
    assign(&mut g, 0, a, b);
    assign(&mut g, 0, b, a);
    g.entries[0].outputs = vec![a, b];
    for mut pair in pairs(&g) {
        for run in 0..5 {
            let (first, second) = if run % 2 == 0 { (1, 2) } else { (2, 1) };
            assert_eq!(pair.run(0, &[]), [vec![first; 5], vec![second; 5]]);
        }
        pair.reset();
        assert_eq!(pair.run(0, &[]), [vec![1; 5], vec![2; 5]]);
    }
}

/// Three states shift, one value goes to two, and one keeps itself under another shape.
#[test]
#[cfg_attr(miri, ignore = "slow, and the same accesses as in other tests")]
fn a_chain_of_states() {
    let mut g = graph(&["infer"]);
    let vector = ty(DType::I8, &[4]);
    let none = Quant::default();
    let x = input(&mut g, 0, "x", vector, &none);
    let s: Vec<ValueId> = (0..4).map(|i| g.add_state(format!("s{i}"), vector, none.clone())).collect();
    let square = Reshape { shape: ty(DType::I8, &[2, 2]).shape };
    let seen = g.add_node(0, "seen", square, &[s[2]], none.clone()).unwrap();
    let back = Reshape { shape: vector.shape };
    let again = g.add_node(0, "again", back, &[seen], none.clone()).unwrap();
    let copied = g.add_node(0, "copied", Copy, &[s[0]], none).unwrap();
    assign(&mut g, 0, s[0], x);
    assign(&mut g, 0, s[1], s[0]);
    assign(&mut g, 0, s[2], s[1]);
    assign(&mut g, 0, s[3], again);
    g.entries[0].outputs = vec![s[3], seen, copied, s[1], x, x];
    for mut pair in pairs(&g) {
        let mut seen = Vec::new();
        for run in 1..7u8 {
            seen.push(pair.run(0, &[vec![run; 4]])[0][0]);
        }
        assert_eq!(seen, [0, 0, 0, 0, 1, 2], "four runs from the first state to the last");
    }
}

#[test]
#[cfg_attr(miri, ignore = "slow, and the same accesses as in other tests")]
fn a_state_assigned_to_itself() {
    let mut g = graph(&["infer", "set"]);
    let vector = ty(DType::I8, &[3]);
    let none = Quant::default();
    let x = input(&mut g, 1, "x", vector, &none);
    let s = g.add_state("s", vector, none);
    assign(&mut g, 1, s, x);
    assign(&mut g, 0, s, s);
    g.entries[0].outputs = vec![s];
    for mut pair in pairs(&g) {
        pair.run(1, &[vec![7; 3]]);
        assert_eq!(pair.run(0, &[]), [vec![7; 3]]);
        assert_eq!(pair.run(0, &[]), [vec![7; 3]]);
    }
}

#[test]
#[cfg_attr(miri, ignore = "slow, and the same accesses as in other tests")]
fn two_entries_share_state_and_constants() {
    let mut g = graph(&["add", "read", "reset"]);
    let vector = ty(DType::F32, &[2, 2]);
    let none = Quant::default();
    let x = input(&mut g, 0, "x", vector, &none);
    let kept = g.add_state("kept", vector, none.clone());
    let start = g.add_constant("start", vector, none.clone(), bytes_of(&[10.0, 20.0, 30.0, 40.0]));
    let next = g.add_node(0, "next", ADD, &[kept, x], none.clone()).unwrap();
    assign(&mut g, 0, kept, next);
    let read = g.add_node(1, "beside the start", ADD, &[kept, start], none).unwrap();
    g.entries[1].outputs = vec![read, kept, start];
    assign(&mut g, 2, kept, start);
    for mut pair in pairs(&g) {
        assert_eq!(reals(&pair.run(1, &[])[0]), [20.0, 40.0, 60.0, 80.0]);
        pair.run(0, &[bytes_of(&[1.0; 4])]);
        pair.run(0, &[bytes_of(&[1.0; 4])]);
        let outputs = pair.run(1, &[]);
        assert_eq!(reals(&outputs[1]), [12.0, 22.0, 32.0, 42.0]);
        assert_eq!(reals(&outputs[2]), [10.0, 20.0, 30.0, 40.0]);
        pair.reset();
        assert_eq!(reals(&pair.run(1, &[])[1]), [10.0, 20.0, 30.0, 40.0]);
        assert_eq!(pair.planned.constants_bytes, 16, "one constant, kept once");
    }
}
