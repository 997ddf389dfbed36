//! What a valid graph is.

use kiln_core::DType;
use kiln_ops::{Activation, Add, LogSoftmax, Op, Softmax, Transpose};
use kiln_planner::graph::{Assign, Entry, Extent, Graph, Node, Quant, VaryingDim, tensor_type};

/// `y = a + b`, and a state that takes y.
fn graph() -> Graph {
    let mut g = Graph::new("sum");
    g.entries.push(Entry { name: "infer".into(), ..Entry::default() });
    let ty = tensor_type(DType::F32, &[2, 3]).unwrap();
    let a = g.add_input("a", ty, Quant::default());
    let b = g.add_constant("b", ty, Quant::default(), vec![0; 24]);
    let y = g.add_node(0, "y", Add { activation: Activation::None }, &[a, b], Quant::default()).unwrap();
    let state = g.add_state("kept", ty, Quant::default());
    g.entries[0].inputs = vec![a];
    g.entries[0].outputs = vec![y];
    g.entries[0].assigns = vec![Assign { state, value: y }];
    g.validate().unwrap();
    g
}

/// The message for a graph changed by `change`.
fn refused(change: impl FnOnce(&mut Graph)) -> String {
    let mut g = graph();
    change(&mut g);
    g.validate().expect_err("a graph that breaks a rule").to_string()
}

#[test]
fn every_rule_has_its_message() {
    assert!(refused(|g| g.entries[0].inputs.clear()).contains("'a' is read before it is known"));
    assert!(refused(|g| g.entries[0].inputs.push(kiln_planner::graph::ValueId(0))).contains("listed twice"));
    assert!(refused(|g| g.entries[0].inputs.push(kiln_planner::graph::ValueId(1))).contains("is none"));
    assert!(refused(|g| g.entries[0].outputs[0].0 = 99).contains("no value 99"));
    assert!(refused(|g| g.entries[0].nodes[0].inputs[1].0 = 2).contains("read before it is known"));
    assert!(refused(|g| g.entries[0].nodes[0].inputs.clear()).contains("takes 2 inputs, not 0"));
    assert!(
        refused(|g| g.values[2].ty = tensor_type(DType::F32, &[3, 2]).unwrap()).contains("computes float32 [2, 3]")
    );
    assert!(refused(|g| g.values[3].ty = tensor_type(DType::F32, &[6]).unwrap()).contains("can't be assigned"));
    assert!(refused(|g| g.values[0].quant.scales.push(1.0)).contains("1 scales and 0 zero points"));
    assert!(refused(|g| g.values[0].quant = Quant::per_tensor(f32::NAN, 0)).contains("not a positive number"));
    assert!(refused(|g| g.values[1].source = kiln_planner::graph::Source::Constant(vec![0; 23].into())).contains("23"));
    assert!(refused(|g| g.values[0].ty = tensor_type(DType::F32, &[1 << 20, 1 << 20]).unwrap()).contains("memory"));
    assert!(
        refused(|g| {
            let twice = g.entries[0].assigns[0];
            g.entries[0].assigns.push(twice);
        })
        .contains("assigned twice")
    );
    assert!(
        refused(|g| {
            let again = g.entries[0].nodes[0].clone();
            g.entries[0].nodes.push(Node { name: "again".into(), ..again });
        })
        .contains("not node 'again''s to compute")
    );
}

#[test]
fn dimensions_that_vary_are_checked() {
    let vary = |axis: u8, max: u32| {
        refused(|g| {
            g.extents.push(Extent { name: "batch".into(), max });
            g.values[0].varying.push(VaryingDim { axis, extent: 0 });
        })
    };
    for axis in [2, 8, 200] {
        assert!(vary(axis, 1).contains("that could vary"), "axis {axis}");
    }
    let twice = refused(|g| {
        g.extents.push(Extent { name: "batch".into(), max: 2 });
        g.values[0].varying = vec![VaryingDim { axis: 0, extent: 0 }; 2];
    });
    assert!(twice.contains("more often than dimension 0"), "{twice}");
    assert!(vary(0, 3).contains("its extent's maximum"));
    assert!(vary(0, 0).contains("at most 0"));
}

/// A batch of rows, both dimensions varying, through `op`.
fn rows(op: impl Into<Op>, axes: &[u8]) -> Result<Graph, kiln_planner::graph::GraphError> {
    let mut g = Graph::new("rows");
    g.entries.push(Entry { name: "infer".into(), ..Entry::default() });
    g.extents = [("batch", 2), ("length", 3)].map(|(name, max)| Extent { name: name.into(), max }).to_vec();
    let x = g.add_input("x", tensor_type(DType::F32, &[2, 3]).unwrap(), Quant::default());
    g.values[x.index()].varying = axes.iter().map(|&axis| VaryingDim { axis, extent: axis.into() }).collect();
    g.entries[0].inputs = vec![x];
    let y = g.add_node(0, "y", op, &[x], Quant::default())?;
    g.entries[0].outputs = vec![y];
    g.validate()?;
    Ok(g)
}

#[test]
fn what_is_reduced_over_may_not_vary() {
    let (softmax, log_softmax) = (Op::from(Softmax { beta: 1.0 }), Op::from(LogSoftmax));
    for op in [softmax, log_softmax] {
        let g = rows(op, &[0]).unwrap();
        assert_eq!(g.values[1].varying, [VaryingDim { axis: 0, extent: 0 }]);
        let error = rows(op, &[0, 1]).unwrap_err().to_string();
        for word in ["node 'y'", op.name(), "input 0 varies", "axis 1", "fixed size"] {
            assert!(error.contains(word), "no '{word}' in {error}");
        }
        // Also in a graph that was not made by `add_node`.
        let mut g = g;
        g.values[0].varying.push(VaryingDim { axis: 1, extent: 1 });
        assert!(g.validate().unwrap_err().to_string().contains("axis 1"));
    }
}

#[test]
fn what_varies_says_so_wherever_it_goes() {
    let mut g = rows(Transpose::new(&[1, 0]).unwrap(), &[0, 1]).unwrap();
    assert_eq!(g.values[1].varying, [VaryingDim { axis: 1, extent: 0 }, VaryingDim { axis: 0, extent: 1 }]);
    // A softmax behind it could not know.
    g.values[1].varying.pop();
    let error = g.validate().unwrap_err().to_string();
    assert!(error.contains("'y' does not vary along axis 0 with extent 'length'"), "{error}");
    assert!(error.contains("node 'y'"), "{error}");
}
