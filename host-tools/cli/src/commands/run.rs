//! `kiln run`.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use kiln_boards::Board;
use kiln_codegen::{target_of, whole_file};
use kiln_core::plan::{Entry, Plan, TensorRecord};
use kiln_core::{DType, TargetId};
use kiln_planner::Options;
use kiln_target_host::{AlignedBytes, RunError, Runner, native_target};

use crate::args::RunArgs;
use crate::console::{self, Style};
use crate::input::{self, Wanted, extension, npy_bytes, npy_descr};
use crate::model::{Format, ModelFile};
use crate::report::table::{Align, Table, brief, counted, thousands};
use crate::values::{describe, element, real};
use crate::{CliError, Outcome, output_files};

/// Elements of an output that are printed.
const SHOWN: usize = 10;

/// Runs the model's main entry on files and writes or prints its outputs.
pub fn run(args: &RunArgs) -> Result<Outcome, CliError> {
    let file = ModelFile::read(&args.model)?;
    let target = args.board.as_deref().map(|board| Board::load(board).map(|board| target_of(&board))).transpose()?;
    let (bytes, labels) = plan_bytes(&file, target, args.board.as_deref().unwrap_or("host"))?;
    let failed = |source: RunError| CliError::Run { path: file.path.clone(), source };
    let mut runner = Runner::new(&bytes).map_err(failed)?;

    let bytes = AlignedBytes::copy_of(&bytes);
    let plan = Plan::load_any_target(bytes.as_ref()).map_err(|e| failed(e.into()))?;
    let entry = main_entry(&plan).ok_or_else(|| CliError::input(&file.path, "the plan has no entry to run"))?;
    check_outputs(&plan, &entry, &args.output)?;
    let read = args.input.iter().map(|path| ("input", path.as_path()));
    output_files::check(&read.chain([("model", args.model.as_path())]).collect::<Vec<_>>(), &args.output)?;
    let inputs = read_inputs(&plan, &entry, args)?;
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let outputs = runner.run(plan.text(entry.name), &inputs).map_err(failed)?;

    if args.output.is_empty() {
        let mut text = String::new();
        for (tensor, data) in entry.outputs.iter().zip(&outputs) {
            text.push_str(&show(&plan, tensor, data, &labels, Style::of_stdout()));
        }
        console::out(&text)?;
    }
    // Nothing is written before everything can be.
    let outputs = args.output.iter().zip(entry.outputs.iter().zip(&outputs));
    let files = outputs.map(|(path, (tensor, data))| Ok((path, tensor, encoded(&plan, tensor, path, data)?)));
    let mut written = String::new();
    for (path, tensor, bytes) in files.collect::<Result<Vec<_>, CliError>>()? {
        whole_file::write(path, &bytes)?;
        // Not into the stream that an output may have gone to.
        if output_files::is_kept(path) {
            let line = format!("{} in {}", titled(&plan, tensor), path.display());
            written.push_str(&(console::harmless(&line) + "\n"));
        }
    }
    console::out(&written)?;
    Ok(Outcome::Fine)
}

/// The plan to run, and the names of the classes its output scores. A `.kiln` file brings its plan;
/// everything else is planned for the board's CPU family, or this computer's.
fn plan_bytes(file: &ModelFile, target: Option<TargetId>, board: &str) -> Result<(Vec<u8>, Vec<String>), CliError> {
    let mut brought = match file.format {
        Format::Kiln => Some(file.kiln_file()?),
        Format::Tflite => None,
    };
    if let Some(kiln) = &mut brought {
        let wanted = target.unwrap_or(native_target());
        let found = kiln.plans.iter().position(|(t, _)| *t == wanted);
        // Any plan runs here; which one matters only to who asked for a board.
        let found = found.or((target.is_none() && !kiln.plans.is_empty()).then_some(0));
        if let Some(index) = found {
            let labels = kiln.graph.take().map(|graph| graph.labels).unwrap_or_default();
            return Ok((kiln.plans.swap_remove(index).1, labels));
        }
        if kiln.graph.is_none() {
            let problem = match kiln.plans.is_empty() {
                true => "it has neither a plan nor a graph, so nothing can be run; compile the model again".to_owned(),
                false => format!(
                    "it has no plan for board '{board}' and no graph to make one from; \
                     leave out --board to run the plan it has, or compile the model for that board"
                ),
            };
            return Err(CliError::input(&file.path, problem));
        }
    }
    let graph = file.graph()?;
    let planned = file.plan(&graph, &Options::for_target(target.unwrap_or(native_target())))?;
    Ok((planned.bytes, graph.labels))
}

/// `infer`, or else the first.
fn main_entry<'p>(plan: &Plan<'p>) -> Option<Entry<'p>> {
    plan.entry_named("infer").or_else(|| plan.entry(0))
}

fn read_inputs(plan: &Plan<'_>, entry: &Entry<'_>, args: &RunArgs) -> Result<Vec<Vec<u8>>, CliError> {
    check_count(plan, entry.inputs, &args.input, "input")?;
    if args.image_range.is_some() && args.input.iter().all(|path| extension(path) != "png") {
        return Err(CliError::BadInput("--image-range is for .png inputs, and there is none; leave it out".to_owned()));
    }
    let read = |(index, (tensor, path)): (usize, (&TensorRecord, &PathBuf))| {
        let unknown = || CliError::input(path, format!("input {index} has elements of an unknown type"));
        let wanted = Wanted::of(plan, tensor, index).ok_or_else(unknown)?;
        let (data, notes) = input::read(path, &wanted, args.image_range)?;
        for note in notes {
            console::progress(&format!("{}: {note}", path.display()));
        }
        Ok(data)
    };
    entry.inputs.iter().zip(&args.input).enumerate().map(read).collect()
}

/// Refuses what can't be written before anything is run.
fn check_outputs(plan: &Plan<'_>, entry: &Entry<'_>, files: &[PathBuf]) -> Result<(), CliError> {
    if files.is_empty() {
        return Ok(());
    }
    check_count(plan, entry.outputs, files, "output")?;
    for (tensor, path) in entry.outputs.iter().zip(files) {
        encoded(plan, tensor, path, &[])?;
    }
    Ok(())
}

/// An output as its file's name asks: a `.npy` file, or else raw.
fn encoded<'d>(plan: &Plan<'_>, tensor: &TensorRecord, path: &Path, data: &'d [u8]) -> Result<Cow<'d, [u8]>, CliError> {
    if extension(path) != "npy" {
        return Ok(Cow::Borrowed(data));
    }
    let wanted = Wanted::of(plan, tensor, 0);
    let npy = wanted.and_then(|wanted| Some(npy_bytes(npy_descr(wanted.dtype)?, &wanted.dims, data)));
    npy.map(Cow::Owned).ok_or_else(|| {
        let problem = format!(
            "output '{}' is {}, which .npy files can't hold; give a file name without .npy to write it raw",
            brief(plan.text(tensor.name)),
            describe(plan, tensor)
        );
        CliError::input(path, problem)
    })
}

fn check_count(plan: &Plan<'_>, tensors: &[TensorRecord], files: &[PathBuf], what: &str) -> Result<(), CliError> {
    if tensors.len() == files.len() {
        return Ok(());
    }
    let list = tensors.iter().enumerate().map(|(index, t)| {
        format!("\n  {what} {index} '{}': {}, {} bytes", brief(plan.text(t.name)), describe(plan, t), t.bytes)
    });
    Err(CliError::BadInput(format!(
        "the model has {}, but --{what} gives {}:{}",
        counted(tensors.len(), what),
        counted(files.len(), "file"),
        list.collect::<String>()
    )))
}

/// A tensor's name, type and shape.
fn titled(plan: &Plan<'_>, tensor: &TensorRecord) -> String {
    format!("{}: {}", brief(plan.text(tensor.name)), describe(plan, tensor))
}

/// The largest elements of an output, or all of a short one, as the numbers they stand for.
fn show(plan: &Plan<'_>, tensor: &TensorRecord, data: &[u8], labels: &[String], style: Style) -> String {
    let mut text = titled(plan, tensor) + "\n";
    let number = |dtype: DType| {
        let count = if dtype.bits() >= 8 { data.len() / (dtype.bits() as usize / 8) } else { 0 };
        (0..count).map_while(move |i| element(dtype, data, i)).collect::<Vec<f64>>()
    };
    let raw = DType::from_code(tensor.dtype).map(number).unwrap_or_default();
    if raw.is_empty() {
        text.push_str("  its elements are not printed; write them to a file with --output\n");
        return text;
    }
    let mut order: Vec<usize> = (0..raw.len()).collect();
    let value = |i: usize| raw.get(i).map_or(0.0, |&raw| real(raw, tensor.scale, tensor.zero_point));
    order.sort_by(|&a, &b| value(b).total_cmp(&value(a)).then(a.cmp(&b)));
    let named = labels.len() == raw.len();
    let mut columns = vec![("index", Align::Right), ("value", Align::Right), ("stored", Align::Right)];
    if named {
        columns.push(("label", Align::Left));
    }
    // Labels come from the file.
    let mut table = Table::new(&columns, 3);
    for &i in order.iter().take(SHOWN) {
        let stored = raw.get(i).map_or(String::new(), |raw| raw.to_string());
        let label = labels.get(i).cloned().unwrap_or_default();
        table.row([i.to_string(), format!("{:.6}", value(i)), stored, label]);
    }
    text.push_str(&table.render(style.width));
    if raw.len() > SHOWN {
        text.push_str(&format!("the largest {SHOWN} of {}\n", thousands(raw.len() as u64)));
    }
    text
}
