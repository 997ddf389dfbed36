//! Finding the first step and element where a run leaves the graph's reference kernels.

use std::fmt;

use kiln_core::DType;
use kiln_planner::PlannedEntry;
use kiln_planner::graph::{Graph, GraphError};
use kiln_planner::reference::Evaluator;

use super::compare::{Check, Difference};

/// The first step whose output is not what the reference kernels compute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FirstStep {
    /// Its number in the entry.
    pub step: usize,
    /// Its operator.
    pub op: &'static str,
    /// Its node's name.
    pub name: String,
    /// Its kernel.
    pub kernel: &'static str,
    /// How many of its elements differ, of how many.
    pub differing: (usize, usize),
    /// The element, as an index along each axis.
    pub at: Vec<usize>,
    /// The first element that differs.
    pub difference: Difference,
}

impl fmt::Display for FirstStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "step {} ({} '{}', kernel {}) is the first that differs from its reference kernel: element {} {:?} is {}, \
             should be {} ({} of {} elements differ)",
            self.step,
            self.op,
            self.name,
            self.kernel,
            self.difference.element,
            self.at,
            self.difference.got,
            self.difference.want,
            self.differing.0,
            self.differing.1
        )
    }
}

/// Runs the graph's reference kernels on `runs` (several where there is state) and compares what
/// each step of the last run wrote: `steps` in the order they ran. `None` when all of it agrees.
pub fn first_step(
    graph: &Graph,
    entry_index: usize,
    entry: &PlannedEntry,
    runs: &[Vec<&[u8]>],
    steps: &[Vec<u8>],
) -> Result<Option<FirstStep>, GraphError> {
    let mut evaluator = Evaluator::new(graph);
    let mut values = Default::default();
    for inputs in runs {
        values = evaluator.run(entry_index, inputs)?;
    }
    for (index, (step, got)) in entry.steps.iter().zip(steps).enumerate() {
        // Copies that planning made are no node's; what they copy was compared at its source.
        if step.node.is_none() {
            continue;
        }
        let Some(want) = values.get(&step.output) else { continue };
        let ty = graph.value(step.output).ty;
        let comparison = step_check(ty.dtype).compare(ty.dtype, got, want);
        if let Some(difference) = comparison.first {
            return Ok(Some(FirstStep {
                step: index,
                op: step.op.name(),
                name: step.name.clone(),
                kernel: step.kernel.name,
                differing: (comparison.differing, comparison.elements),
                at: coordinates(difference.element, ty.shape.dims()),
                difference,
            }));
        }
    }
    Ok(None)
}

/// Integers must agree exactly; floats may be summed in another order.
fn step_check(dtype: DType) -> Check {
    match dtype {
        DType::F32 | DType::F64 | DType::F16 | DType::BF16 => Check::Close { atol: 1e-5, rtol: 1e-4 },
        _ => Check::Exact,
    }
}

fn coordinates(mut element: usize, dims: &[u32]) -> Vec<usize> {
    let mut at = vec![0; dims.len()];
    for (place, &d) in at.iter_mut().zip(dims).rev() {
        let d = (d as usize).max(1);
        *place = element % d;
        element /= d;
    }
    at
}

#[cfg(test)]
mod tests {
    #[test]
    fn coordinates_count_innermost_first() {
        assert_eq!(super::coordinates(0, &[1, 5, 3]), [0, 0, 0]);
        assert_eq!(super::coordinates(14, &[1, 5, 3]), [0, 4, 2]);
    }
}
