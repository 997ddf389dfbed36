//! Reverse-mode differentiation of a list of operators, whatever they are recorded in.

use std::collections::HashMap;
use std::hash::Hash;

use kiln_ops::{Build, Differential, Function, Op, OpError};

/// An operator that was run.
#[derive(Clone, Debug)]
pub struct Ran<V> {
    /// The operator.
    pub op: Op,
    /// What it read.
    pub inputs: Vec<V>,
    /// What it computed.
    pub output: V,
}

/// An operator without the gradient that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackwardError {
    /// Its index among the operators.
    pub index: usize,
    /// Why.
    pub error: OpError,
}

/// Adds to `b` the gradients by `wrt` of what `seeds` weigh: pairs of a value and the derivative by it, of
/// the same type. `ran` is in an order in which it could run. Gradients are in the order of `wrt`; none where
/// nothing weighed depends on a value smoothly.
///
/// Only operators between `wrt` and the seeds are differentiated, and only by those inputs that lead to `wrt`.
///
/// # Errors
///
/// [`BackwardError`] where one of them has no gradient.
pub fn backward<B: Build>(
    b: &mut B,
    ran: &[Ran<B::Value>],
    seeds: &[(B::Value, B::Value)],
    wrt: &[B::Value],
) -> Result<Vec<Option<B::Value>>, BackwardError>
where
    B::Value: Eq + Hash,
{
    // What a change of `wrt` reaches.
    let mut reached: HashMap<B::Value, bool> = wrt.iter().map(|&v| (v, true)).collect();
    for node in ran {
        if node.inputs.iter().any(|v| reached.contains_key(v)) {
            reached.insert(node.output, true);
        }
    }
    let mut gradients: HashMap<B::Value, B::Value> = HashMap::new();
    let fail = |index: usize| move |error| BackwardError { index, error };
    for &(value, seed) in seeds {
        accumulate(b, &mut gradients, value, seed).map_err(fail(ran.len()))?;
    }
    for (index, node) in ran.iter().enumerate().rev() {
        if !reached.contains_key(&node.output) {
            continue;
        }
        // A value that is asked for keeps its gradient; others are done with.
        let Some(&gradient) = gradients.get(&node.output) else { continue };
        let wanted: Vec<bool> = node.inputs.iter().map(|v| reached.contains_key(v)).collect();
        let at = Differential { inputs: &node.inputs, output: node.output, gradient, wanted: &wanted };
        let all = node.op.gradient(b, &at).map_err(fail(index))?;
        for ((&input, &wanted), gradient) in node.inputs.iter().zip(&wanted).zip(all) {
            if let (true, Some(gradient)) = (wanted, gradient) {
                accumulate(b, &mut gradients, input, gradient).map_err(fail(index))?;
            }
        }
    }
    Ok(wrt.iter().map(|v| gradients.get(v).copied()).collect())
}

fn accumulate<B: Build>(
    b: &mut B,
    gradients: &mut HashMap<B::Value, B::Value>,
    value: B::Value,
    term: B::Value,
) -> Result<(), OpError>
where
    B::Value: Eq + Hash,
{
    let sum = match gradients.get(&value) {
        Some(&before) => b.map(Function::Add, &[before, term])?,
        None => term,
    };
    gradients.insert(value, sum);
    Ok(())
}
