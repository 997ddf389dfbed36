//! A `.kiln` file: what it was made for, and its plans.

use kiln_core::TargetId;
use kiln_core::plan::{Entry, Plan, TensorRecord};
use kiln_kernels::table::kernel;
use kiln_planner::kiln_file::KilnFile;
use kiln_target_host::{AlignedBytes, RunError};

use super::{tensor_row, tensors_table, title};
use crate::CliError;
use crate::console::Style;
use crate::model::ModelFile;
use crate::report::table::{brief, counted, thousands};

/// The file's sections and its plans.
///
/// # Errors
///
/// A plan is damaged or has another version.
pub fn show(file: &ModelFile, contents: &KilnFile, style: Style) -> Result<String, CliError> {
    let about = &contents.about;
    let or = |text: &str, other: &str| brief(if text.is_empty() { other } else { text });
    let mut text = title(file);
    text.push_str(&format!(
        "Made from '{}' for board '{}' by Kiln {}\n",
        or(&about.model, "?"),
        or(&about.board, "?"),
        or(&about.kiln, "?")
    ));
    let graph = if contents.graph.is_some() { "with its graph" } else { "without its graph" };
    text.push_str(&format!("{}, {graph}\n", counted(contents.plans.len(), "plan")));
    for (target, bytes) in &contents.plans {
        let aligned = AlignedBytes::copy_of(bytes);
        let plan = Plan::load_any_target(aligned.as_ref())
            .map_err(|e| CliError::Run { path: file.path.clone(), source: RunError::Plan(e) })?;
        text.push_str(&show_plan(*target, &plan, style));
    }
    Ok(text)
}

fn show_plan(target: TargetId, plan: &Plan<'_>, style: Style) -> String {
    let header = plan.header();
    let name = target.name().map_or(format!("CPU family number {}", target.0), str::to_owned);
    let constants = plan.constants().len() as u64;
    let banks: Vec<String> = plan.banks().iter().map(|bank| thousands(bank.bytes)).collect();
    let ram = if banks.is_empty() { "0".to_owned() } else { banks.join(" + ") };
    let mut text = format!(
        "\nPlan for {name}, format {}.{}: {} bytes\n  constants {}, records {}, RAM {ram} of which state {}\n",
        header.major,
        header.minor,
        thousands(header.len),
        thousands(constants),
        thousands(header.len.saturating_sub(constants)),
        thousands(header.state_len),
    );
    for entry in (0..plan.entry_count()).filter_map(|i| plan.entry(i)) {
        let steps = counted(entry.steps.len(), "step");
        text.push_str(&format!(
            "\nEntry '{}', {steps}\n{}",
            brief(plan.text(entry.name)),
            interface(plan, &entry, style)
        ));
    }
    text.push_str(&format!("\nKernels\n{}", kernels(plan)));
    text
}

fn interface(plan: &Plan<'_>, entry: &Entry<'_>, style: Style) -> String {
    let mut table = tensors_table();
    let inputs = entry.inputs.iter().map(|t| ("input", t));
    for (what, tensor) in inputs.chain(entry.outputs.iter().map(|t| ("output", t))) {
        let described = crate::values::describe(plan, tensor);
        let (dtype, shape) = described.split_once(" [").unwrap_or((&described, "]"));
        let shape: Vec<&str> = shape.trim_end_matches(']').split(", ").collect();
        table.row(tensor_row(what, plan.text(tensor.name), dtype, &shape, scale(tensor), &[tensor.zero_point]));
    }
    table.render(style.width)
}

/// A scale of 0 means that the tensor is not quantized.
fn scale(tensor: &TensorRecord) -> &[f32] {
    if tensor.scale == 0.0 { &[] } else { std::slice::from_ref(&tensor.scale) }
}

/// Each kernel with the number of its steps.
fn kernels(plan: &Plan<'_>) -> String {
    let mut numbers: Vec<u16> = plan.steps().iter().map(|step| step.row).collect();
    numbers.sort_unstable();
    let mut text = String::new();
    for run in numbers.chunk_by(|a, b| a == b) {
        let Some(number) = run.first() else { continue };
        let name = kernel(*number).map_or("unknown to this build", |k| k.name);
        text.push_str(&format!("  {number:>3}  {name}: {}\n", counted(run.len(), "step")));
    }
    text
}
