//! A planned graph that is run on sample after sample.

use std::path::Path;

use kiln_core::DType;
use kiln_core::plan::Plan;
use kiln_planner::graph::{Graph, ValueId};
use kiln_planner::{Planned, PlannedEntry};
use kiln_target_host::{AlignedBytes, RunError, Runner};

use crate::CliError;
use crate::input::Wanted;
use crate::values::element;

/// A planned graph with one entry, and its memory.
pub(crate) struct Running<'p> {
    path: &'p Path,
    runner: Runner,
    entry: &'p PlannedEntry,
    /// Its inputs, as files fill them.
    pub(crate) inputs: Vec<Wanted>,
}

impl<'p> Running<'p> {
    /// Loads the plan of the model at `path`.
    ///
    /// # Errors
    ///
    /// The plan does not load, which is a defect of the planner, or needs too much memory.
    pub(crate) fn new(path: &'p Path, planned: &'p Planned) -> Result<Running<'p>, CliError> {
        let failed = |source: RunError| CliError::Run { path: path.to_owned(), source };
        let runner = Runner::new(&planned.bytes).map_err(failed)?;
        let bytes = AlignedBytes::copy_of(&planned.bytes);
        let plan = Plan::load_any_target(bytes.as_ref()).map_err(|e| failed(e.into()))?;
        let main = planned.main_entry().ok_or_else(|| CliError::input(path, "it has no entry to run"))?;
        let tensors = runner.inputs(&main.name).map_err(failed)?.iter().enumerate();
        let inputs = tensors.map(|(index, tensor)| {
            let unknown = || CliError::input(path, format!("input {index} has elements of an unknown type"));
            Wanted::of(&plan, tensor, index).ok_or_else(unknown)
        });
        let inputs = inputs.collect::<Result<_, _>>()?;
        Ok(Running { path, runner, entry: main, inputs })
    }

    /// Runs on inputs as they are stored, with all state zero, and shows what each step computed. Gives the
    /// outputs.
    pub(crate) fn run(
        &mut self,
        inputs: &[&[u8]],
        seen: &mut dyn FnMut(ValueId, &[u8]),
    ) -> Result<Vec<Vec<u8>>, CliError> {
        self.runner.reset();
        let outputs = self.runner.run_observing(self.entry, inputs, seen);
        outputs.map_err(|source| CliError::Run { path: self.path.to_owned(), source })
    }

    /// What float32 inputs are as this model stores them. The problem is one sentence.
    pub(crate) fn stored(&self, inputs: &[&[u8]]) -> Result<Vec<Vec<u8>>, String> {
        let one = |(wanted, data): (&Wanted, &&[u8])| match wanted.bytes == data.len() as u64 {
            // Of the same type: int8 inputs have a quarter of float32's bytes.
            true => Ok(data.to_vec()),
            false => {
                let reals: Vec<f64> = (0..data.len() / 4).map_while(|i| element(DType::F32, data, i)).collect();
                wanted.store(&reals).map(|(data, _)| data)
            }
        };
        self.inputs.iter().zip(inputs).map(one).collect()
    }
}

/// The numbers that a value's bytes stand for.
pub(crate) fn reals(graph: &Graph, id: ValueId, data: &[u8]) -> Vec<f64> {
    let value = graph.value(id);
    let quant = value.quant.view();
    let (scale, zero) = (quant.scale(0), quant.zero_point(0));
    let count = value.ty.shape.elements().unwrap_or(0) as usize;
    let elements = (0..count).map_while(|i| element(value.ty.dtype, data, i));
    elements.map(|raw| crate::values::real(raw, scale, zero)).collect()
}
