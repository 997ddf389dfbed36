//! Replaying a folder.

use std::fmt;
use std::path::Path;

use kiln_boards::Board;
use kiln_codegen::io_json::Tensor;
use kiln_core::DType;
use kiln_planner::Planned;
use kiln_planner::graph::{Graph, ValueId};
use kiln_target_host::Runner;

use super::board::Emulated;
use super::compare::{Check, Difference};
use super::error::VerifyError;
use super::folder::{Case, Folder, Group};
use super::locate::{FirstStep, first_step};
use crate::quantize::reals;
use crate::values::top;

/// What replaying a folder showed.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// One report a group.
    pub groups: Vec<GroupReport>,
}

impl Report {
    /// Whether everything was as it should be.
    pub fn passed(&self) -> bool {
        self.groups.iter().all(|g| g.differing == 0)
    }
}

/// What replaying a group showed.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupReport {
    /// The group's name.
    pub name: String,
    /// How many cases it has.
    pub cases: usize,
    /// Output elements compared.
    pub elements: usize,
    /// Output elements that differ.
    pub differing: usize,
    /// Cases whose class is the largest element of the first output, where the folder says their classes.
    pub right: Option<usize>,
    /// The first of them.
    pub first: Option<FirstDifference>,
}

/// The first output element that differs, and where the run went wrong.
#[derive(Clone, PartialEq, Debug)]
pub struct FirstDifference {
    /// The case.
    pub case: usize,
    /// The output's name.
    pub output: String,
    /// The element.
    pub difference: Difference,
    /// The first step that is not what its reference kernel computes; `None` when all are, so that
    /// the expected output differs from Kiln's reference kernels.
    pub step: Option<FirstStep>,
}

impl fmt::Display for FirstDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { element, got, want } = &self.difference;
        writeln!(f, "case {}, output '{}': element {element} is {got}, should be {want}", self.case, self.output)?;
        match &self.step {
            Some(step) => write!(f, "{step}"),
            None => write!(
                f,
                "every step agrees with its reference kernel: the folder's outputs differ from Kiln's arithmetic, \
                 not one kernel from another"
            ),
        }
    }
}

/// Replays `folder` with a plan of its model: here, or on `board` where that is emulated.
/// `progress` is told what takes time.
pub fn run(
    folder: &Folder,
    graph: &Graph,
    planned: &Planned,
    board: &Board,
    sources: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, VerifyError> {
    check_interface(folder, graph, planned)?;
    let checks = checks(folder, graph, planned)?;
    let mut device: Box<dyn Device> = if board.is_host() {
        Box::new(Here(Runner::new(&planned.bytes).map_err(|e| VerifyError::Model(e.to_string()))?, entry_name(planned)))
    } else {
        progress(&format!("building firmware for {}", board.name));
        Box::new(Emulated::new(folder, graph, planned, board, sources)?)
    };
    let mut groups = Vec::new();
    for group in &folder.groups {
        progress(&format!("replaying group '{}': {} cases", group.name, group.cases.len()));
        groups.push(run_group(folder, &checks, graph, planned, group, device.as_mut())?);
    }
    Ok(Report { groups })
}

fn entry_name(planned: &Planned) -> String {
    planned.main_entry().map_or(String::new(), |e| e.name.clone())
}

/// The bytes of several tensors.
pub(super) type Tensors = Vec<Vec<u8>>;

/// Something that runs cases.
pub(super) trait Device {
    /// The outputs of every run of every case.
    fn outputs(&mut self, cases: &[Case]) -> Result<Vec<Tensors>, VerifyError>;
    /// What each step of the case's run number `run` wrote.
    fn steps(&mut self, case: &Case, run: usize) -> Result<Tensors, VerifyError>;
}

/// This computer.
struct Here(Runner, String);

impl Here {
    fn run(&mut self, inputs: &[Vec<u8>]) -> Result<(Tensors, Tensors), VerifyError> {
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.0.run_recording(&self.1, &inputs).map_err(|e| VerifyError::Model(e.to_string()))
    }
}

impl Device for Here {
    fn outputs(&mut self, cases: &[Case]) -> Result<Vec<Tensors>, VerifyError> {
        let mut all = Vec::new();
        for case in cases {
            self.0.reset();
            for run in &case.runs {
                let inputs: Vec<&[u8]> = run.inputs.iter().map(Vec::as_slice).collect();
                all.push(self.0.run(&self.1, &inputs).map_err(|e| VerifyError::Model(e.to_string()))?);
            }
        }
        Ok(all)
    }

    fn steps(&mut self, case: &Case, run: usize) -> Result<Tensors, VerifyError> {
        self.0.reset();
        let mut steps = Vec::new();
        for run in case.runs.iter().take(run + 1) {
            steps = self.run(&run.inputs)?.1;
        }
        Ok(steps)
    }
}

fn run_group(
    folder: &Folder,
    checks: &[Check],
    graph: &Graph,
    planned: &Planned,
    group: &Group,
    device: &mut dyn Device,
) -> Result<GroupReport, VerifyError> {
    let got = device.outputs(&group.cases)?;
    let right = group.classes.as_ref().map(|_| 0);
    let (name, cases) = (group.name.clone(), group.cases.len());
    let mut report = GroupReport { name, cases, elements: 0, differing: 0, right, first: None };
    let mut results = got.iter();
    for (case_index, case) in group.cases.iter().enumerate() {
        let mut outputs = &[][..];
        for (run_index, run) in case.runs.iter().enumerate() {
            outputs = results.next().map_or(&[][..], Vec::as_slice);
            let expected = run.outputs.iter().zip(&folder.io.outputs).zip(checks);
            for (number, ((want, tensor), check)) in expected.enumerate() {
                let dtype = DType::from_name(&tensor.dtype).unwrap_or(DType::U8);
                let output = outputs.get(number).map_or(&[][..], Vec::as_slice);
                let comparison = check.compare(dtype, output, want);
                report.elements += comparison.elements;
                report.differing += comparison.differing;
                let Some(difference) = comparison.first.filter(|_| report.first.is_none()) else { continue };
                let step = locate(graph, planned, case, run_index, device)?;
                report.first =
                    Some(FirstDifference { case: case_index, output: tensor.name.clone(), difference, step });
            }
        }
        let class = group.classes.as_ref().and_then(|classes| classes.get(case_index));
        if let (Some(right), Some(&class)) = (&mut report.right, class) {
            *right += usize::from(class_of(graph, planned, outputs) == Some(class as usize));
        }
    }
    Ok(report)
}

/// The largest element of the first output.
fn class_of(graph: &Graph, planned: &Planned, outputs: &[Vec<u8>]) -> Option<usize> {
    let &id = planned.main_entry()?.outputs.first()?;
    top(&reals(graph, id, outputs.first()?))
}

fn locate(
    graph: &Graph,
    planned: &Planned,
    case: &Case,
    run: usize,
    device: &mut dyn Device,
) -> Result<Option<FirstStep>, VerifyError> {
    let steps = device.steps(case, run)?;
    let Some(entry) = planned.main_entry() else { return Ok(None) };
    let index = graph.entries.iter().position(|e| e.name == entry.name).unwrap_or(0);
    let runs: Vec<Vec<&[u8]>> =
        case.runs.iter().take(run + 1).map(|r| r.inputs.iter().map(Vec::as_slice).collect()).collect();
    first_step(graph, index, entry, &runs, &steps).map_err(|e| VerifyError::Model(e.to_string()))
}

/// How each output is compared.
fn checks(folder: &Folder, graph: &Graph, planned: &Planned) -> Result<Vec<Check>, VerifyError> {
    let wrong = |what: String| VerifyError::IoJson { path: folder.path.join("io.json"), what };
    let planned = planned.main_entry();
    let entry = planned.and_then(|planned| graph.entry(&planned.name));
    let entry = entry.ok_or_else(|| wrong("the model has no entry to run".into()))?;
    entry.outputs.iter().map(|&id| folder.check.of_output(graph, entry, id).map_err(wrong)).collect()
}

/// The folder's inputs and outputs are the model's.
fn check_interface(folder: &Folder, graph: &Graph, planned: &Planned) -> Result<(), VerifyError> {
    let wrong = |what: String| VerifyError::Interface { path: folder.path.join("io.json"), what };
    let entry = planned.main_entry().ok_or_else(|| wrong("the model has no entry to run".into()))?;
    for (side, values, tensors) in
        [("inputs", &entry.inputs, &folder.io.inputs), ("outputs", &entry.outputs, &folder.io.outputs)]
    {
        if values.len() != tensors.len() {
            return Err(wrong(format!("lists {} {side}, the model has {}", tensors.len(), values.len())));
        }
        for (&id, tensor) in values.iter().zip(tensors) {
            same_tensor(graph, id, tensor).map_err(|e| wrong(format!("{side}: {e}")))?;
        }
    }
    Ok(())
}

fn same_tensor(graph: &Graph, id: ValueId, tensor: &Tensor) -> Result<(), String> {
    let value = graph.value(id);
    let shape: Vec<u64> = value.ty.shape.dims().iter().map(|&d| d as u64).collect();
    if value.ty.dtype.name() == tensor.dtype && shape == tensor.shape {
        return Ok(());
    }
    Err(format!(
        "'{}' is {} {:?}, but the model's '{}' is {} {shape:?}",
        tensor.name,
        tensor.dtype,
        tensor.shape,
        value.name,
        value.ty.dtype.name()
    ))
}
