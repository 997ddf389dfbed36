//! Comparing outputs with what they should be.

use kiln_codegen::io_json::{CheckSpec, ONE_STEP, Tolerance};
use kiln_core::DType;
use kiln_ops::Op;
use kiln_planner::graph::{Entry, Graph, Source, ValueId};

/// How outputs are compared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Check {
    /// Bit for bit.
    Exact,
    /// `|got - want| <= atol + rtol * |want|`, floats only.
    Close {
        /// Absolute tolerance.
        atol: f64,
        /// Relative tolerance.
        rtol: f64,
    },
}

/// What a folder asks for: a check, or one that depends on the model.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rule {
    /// The same for every output.
    Same(Check),
    /// [`Check::Close`] within one step of the quantization that the output was dequantized from.
    OneStep {
        /// Relative tolerance.
        rtol: f64,
    },
}

impl Rule {
    /// The rule a folder asks for.
    pub fn from_spec(spec: &CheckSpec) -> Result<Rule, String> {
        let rtol = spec.rtol.unwrap_or(0.0);
        Ok(match (spec.kind.as_str(), &spec.atol) {
            ("exact", _) => Rule::Same(Check::Exact),
            (kind, None) if spec.rtol.is_none() => {
                return Err(format!("check.kind is {kind:?} without atol and rtol"));
            }
            (_, None) => Rule::Same(Check::Close { atol: 0.0, rtol }),
            (_, Some(Tolerance::Number(atol))) => Rule::Same(Check::Close { atol: *atol, rtol }),
            (_, Some(Tolerance::Words(words))) if words == ONE_STEP => Rule::OneStep { rtol },
            (_, Some(Tolerance::Words(words))) => {
                return Err(format!("check.atol is {words:?}, expected a number or {ONE_STEP:?}"));
            }
        })
    }

    /// The check of an entry's output.
    pub fn of_output(&self, graph: &Graph, entry: &Entry, output: ValueId) -> Result<Check, String> {
        match *self {
            Rule::Same(check) => Ok(check),
            Rule::OneStep { rtol } => match step_of(graph, entry, output) {
                Some(scale) => Ok(Check::Close { atol: scale as f64, rtol }),
                None => Err(format!(
                    "check.atol is {ONE_STEP:?}, but output '{}' is not dequantized from anything; give a number",
                    graph.value(output).name
                )),
            },
        }
    }
}

/// The scale that `output` was dequantized from, where float operators may have followed; the smallest if
/// there are several.
fn step_of(graph: &Graph, entry: &Entry, output: ValueId) -> Option<f32> {
    let (mut waiting, mut seen) = (vec![output], vec![false; graph.values.len()]);
    let mut step: Option<f32> = None;
    while let Some(id) = waiting.pop() {
        if std::mem::replace(&mut seen[id.index()], true) || graph.value(id).source != Source::Node {
            continue;
        }
        let Some(node) = entry.nodes.iter().find(|node| node.output == id) else { continue };
        let dequantized = matches!(node.op, Op::Dequantize(_));
        for &input in &node.inputs {
            let value = graph.value(input);
            if dequantized {
                step = value.quant.scales.iter().copied().chain(step).reduce(f32::min);
            } else if value.ty.dtype == DType::F32 {
                waiting.push(input);
            }
        }
    }
    step
}

impl Check {
    /// Elements of `got` that are not as `want`, counted, with the first of them.
    pub fn compare(&self, dtype: DType, got: &[u8], want: &[u8]) -> Comparison {
        let size = (dtype.bits() as usize / 8).max(1);
        let mut comparison = Comparison { elements: want.len() / size, differing: 0, first: None };
        for (index, (g, w)) in got.chunks(size).zip(want.chunks(size)).enumerate() {
            if self.same(dtype, g, w) {
                continue;
            }
            comparison.differing += 1;
            comparison.first.get_or_insert_with(|| Difference {
                element: index,
                got: show(dtype, g),
                want: show(dtype, w),
            });
        }
        if got.len() != want.len() {
            comparison.differing += 1;
            comparison.first.get_or_insert_with(|| Difference {
                element: got.len().min(want.len()) / size,
                got: format!("{} bytes", got.len()),
                want: format!("{} bytes", want.len()),
            });
        }
        comparison
    }

    fn same(&self, dtype: DType, got: &[u8], want: &[u8]) -> bool {
        let &Check::Close { atol, rtol } = self else { return got == want };
        match (real(dtype, got), real(dtype, want)) {
            (Some(g), Some(w)) if g.is_nan() || w.is_nan() => g.is_nan() && w.is_nan(),
            (Some(g), Some(w)) => g == w || (g - w).abs() <= atol + rtol * w.abs(),
            _ => got == want,
        }
    }
}

/// What a comparison found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comparison {
    /// Elements compared.
    pub elements: usize,
    /// Elements that differ.
    pub differing: usize,
    /// The first of them.
    pub first: Option<Difference>,
}

/// An element that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Its index in the dense tensor.
    pub element: usize,
    /// What came out.
    pub got: String,
    /// What should have.
    pub want: String,
}

fn real(dtype: DType, bytes: &[u8]) -> Option<f64> {
    match dtype {
        DType::F32 => Some(f32::from_le_bytes(bytes.try_into().ok()?) as f64),
        DType::F64 => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

/// An element in words.
fn show(dtype: DType, bytes: &[u8]) -> String {
    let number = || {
        Some(match dtype {
            DType::I8 => i8::from_le_bytes(bytes.try_into().ok()?).to_string(),
            DType::U8 | DType::Bool => bytes.first()?.to_string(),
            DType::I16 => i16::from_le_bytes(bytes.try_into().ok()?).to_string(),
            DType::I32 => i32::from_le_bytes(bytes.try_into().ok()?).to_string(),
            DType::F32 | DType::F64 => real(dtype, bytes)?.to_string(),
            _ => return None,
        })
    };
    number().unwrap_or_else(|| format!("{bytes:02x?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ops::{Add, Dequantize, LogSoftmax, Softmax};
    use kiln_planner::graph::{Quant, tensor_type};

    #[test]
    fn exact_counts_and_names_the_first() {
        let c = Check::Exact.compare(DType::I8, &[1, 2, 255, 4], &[1, 3, 254, 4]);
        assert_eq!((c.elements, c.differing), (4, 2));
        assert_eq!(c.first, Some(Difference { element: 1, got: "2".into(), want: "3".into() }));
        assert_eq!(Check::Exact.compare(DType::I8, &[1], &[1, 2]).differing, 1);
    }

    #[test]
    fn close_allows_what_it_says_and_no_more() {
        let check = Check::Close { atol: 0.01, rtol: 0.1 };
        let f = |v: f32| v.to_le_bytes();
        let same = |a: f32, b: f32| check.compare(DType::F32, &f(a), &f(b)).differing == 0;
        assert!(same(1.1, 1.0) && same(0.009, 0.0) && same(f32::NAN, f32::NAN) && same(f32::INFINITY, f32::INFINITY));
        assert!(!same(1.12, 1.0) && !same(0.02, 0.0) && !same(f32::NAN, 0.0) && !same(f32::INFINITY, 1.0));
    }

    fn rule(check: serde_json::Value) -> Result<Rule, String> {
        Rule::from_spec(&serde_json::from_value(check).unwrap())
    }

    #[test]
    fn rules_are_read() {
        let close = |atol, rtol| Ok(Rule::Same(Check::Close { atol, rtol }));
        assert_eq!(rule(serde_json::json!({"kind": "exact"})), Ok(Rule::Same(Check::Exact)));
        assert_eq!(rule(serde_json::json!({"kind": "tolerance", "atol": 1e-4, "rtol": 0.5})), close(1e-4, 0.5));
        assert_eq!(rule(serde_json::json!({"kind": "tolerance", "rtol": 0.5})), close(0.0, 0.5));
        assert_eq!(rule(serde_json::json!({"kind": "tolerance", "atol": ONE_STEP})), Ok(Rule::OneStep { rtol: 0.0 }));
        assert!(rule(serde_json::json!({"kind": "near"})).unwrap_err().contains("\"near\""));
        let error = rule(serde_json::json!({"kind": "tolerance", "atol": "two steps"})).unwrap_err();
        assert!(error.contains("\"two steps\"") && error.contains(ONE_STEP), "{error}");
    }

    /// Two int8 inputs dequantized and added, then a log-softmax; and a softmax of a float input.
    fn two_outputs() -> (Graph, ValueId, ValueId) {
        let mut graph = Graph::new("steps");
        let [int8, float] = [DType::I8, DType::F32].map(|dtype| tensor_type(dtype, &[1, 4]).unwrap());
        let a = graph.add_input("a", int8, Quant::per_tensor(0.5, 3));
        let b = graph.add_input("b", int8, Quant::per_tensor(0.25, -1));
        let c = graph.add_input("c", float, Quant::default());
        graph.entries.push(Entry { name: "infer".into(), inputs: vec![a, b, c], ..Entry::default() });
        let none = Quant::default;
        let [da, db] = [a, b].map(|x| graph.add_node(0, "d", Dequantize, &[x], none()).unwrap());
        let add = Add { activation: kiln_ops::Activation::None };
        let sum = graph.add_node(0, "sum", add, &[da, db], none()).unwrap();
        let scores = graph.add_node(0, "scores", LogSoftmax, &[sum], none()).unwrap();
        let plain = graph.add_node(0, "plain", Softmax { beta: 1.0 }, &[c], none()).unwrap();
        graph.entries[0].outputs = vec![scores, plain];
        graph.validate().unwrap();
        (graph, scores, plain)
    }

    #[test]
    fn one_step_is_the_finest_scale_that_was_dequantized() {
        let (graph, scores, plain) = two_outputs();
        let rule = Rule::OneStep { rtol: 0.5 };
        let entry = &graph.entries[0];
        assert_eq!(rule.of_output(&graph, entry, scores), Ok(Check::Close { atol: 0.25, rtol: 0.5 }));
        let error = rule.of_output(&graph, entry, plain).unwrap_err();
        assert!(error.contains("'plain' is not dequantized") && error.contains("give a number"), "{error}");
        let same = Rule::Same(Check::Exact);
        assert_eq!(same.of_output(&graph, entry, plain), Ok(Check::Exact));
    }
}
