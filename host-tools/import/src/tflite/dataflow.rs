//! The order of reads and writes: what one operator reads, something before it has written.

use super::error::{Place, TfliteError, quoted};
use super::operator::Operator;
use super::tensor::Tensor;

/// Where a tensor's value comes from, as far as the operators have run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Nothing,
    /// Stored in the file.
    Constant,
    /// Kept from the run before.
    Variable,
    Input,
    Operator,
}

/// Checks that every tensor is written before it is read and at most once, and that no operator writes a constant or
/// an input. So the operators of a subgraph, taken in order, are static single assignments without a cycle.
pub(super) fn check(
    subgraph: usize,
    tensors: &[Tensor<'_>],
    operators: &[Operator<'_>],
    inputs: &[usize],
    outputs: &[usize],
) -> Result<(), TfliteError> {
    let whole = Place::Subgraph(subgraph);
    let wrong = |place: Place<'_>, tensor: usize, what: &str| {
        let name = quoted(tensors.get(tensor).map_or("", |tensor| tensor.name));
        Err(TfliteError::Dataflow { place: place.describe(), detail: format!("tensor {tensor} ({name}) {what}") })
    };
    let mut sources: Vec<Source> = tensors
        .iter()
        .map(|tensor| match tensor {
            Tensor { data: Some(_), .. } => Source::Constant,
            Tensor { is_variable: true, .. } => Source::Variable,
            _ => Source::Nothing,
        })
        .collect();

    for &tensor in inputs {
        match sources.get_mut(tensor) {
            Some(source @ (Source::Nothing | Source::Variable)) => *source = Source::Input,
            Some(Source::Constant) => {
                return wrong(whole, tensor, "is an input but has constant data");
            }
            _ => return wrong(whole, tensor, "is an input twice"),
        }
    }
    for (index, operator) in operators.iter().enumerate() {
        let place = Place::Operator { subgraph, index, name: operator.name };
        for &tensor in operator.inputs.iter().flatten() {
            if sources.get(tensor) == Some(&Source::Nothing) {
                return wrong(place, tensor, "is read before any operator has written it");
            }
        }
        for &tensor in &operator.outputs {
            match sources.get_mut(tensor) {
                Some(source @ (Source::Nothing | Source::Variable)) => *source = Source::Operator,
                Some(Source::Constant) => {
                    return wrong(place, tensor, "is written but has constant data");
                }
                Some(Source::Input) => return wrong(place, tensor, "is written but is an input"),
                _ => return wrong(place, tensor, "is written twice"),
            }
        }
    }
    for &tensor in outputs {
        if sources.get(tensor) == Some(&Source::Nothing) {
            return wrong(whole, tensor, "is an output but no operator writes it");
        }
    }
    Ok(())
}
