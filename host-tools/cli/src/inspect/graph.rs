//! A graph: interface, operators, parameters, cost.

use std::collections::BTreeMap;

use kiln_core::TargetId;
use kiln_planner::Options;
use kiln_planner::graph::{Entry, Graph, Source, ValueId};
use kiln_planner::solve::Budget;

use super::{tensor_row, tensors_table, title};
use crate::CliError;
use crate::console::Style;
use crate::model::{Format, ModelFile};
use crate::report::table::{Align, Table, brief, counted, thousands};

/// The graph of a file.
pub fn show(file: &ModelFile, graph: &Graph, style: Style) -> String {
    let mut text = match file.format {
        Format::Tflite => title(file),
        Format::Kiln => format!("\nGraph '{}'\n", brief(&graph.name)),
    };
    for entry in &graph.entries {
        if graph.entries.len() > 1 {
            text.push_str(&format!("\nEntry '{}'\n", brief(&entry.name)));
        }
        text.push_str(&show_entry(graph, entry, style));
    }
    text.push_str(&format!("\n{}\n", parameters(graph)));
    text
}

fn show_entry(graph: &Graph, entry: &Entry, style: Style) -> String {
    let mut table = tensors_table();
    let sides = [("input", &entry.inputs), ("output", &entry.outputs)];
    for (what, id) in sides.into_iter().flat_map(|(what, ids)| ids.iter().map(move |&id| (what, id))) {
        let value = graph.value(id);
        let (scales, zeros) = (&value.quant.scales, &value.quant.zero_points);
        table.row(tensor_row(what, &value.name, value.ty.dtype.name(), value.ty.shape.dims(), scales, zeros));
    }
    format!("\n{}\n{}", table.render(style.width), operators(graph, entry).render(style.width))
}

fn operators(graph: &Graph, entry: &Entry) -> Table {
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for node in &entry.nodes {
        let output = graph.value(node.output).ty;
        let cost = node.op.cost(&graph.types(&node.inputs), &output);
        let (count, macs) = counts.entry(node.op.name()).or_default();
        *count += 1;
        *macs = macs.saturating_add(cost.macs);
    }
    let mut table = Table::new(&[("operator", Align::Left), ("count", Align::Right), ("MACs", Align::Right)], 3);
    let mut all = (0, 0u64);
    for (name, (count, macs)) in counts {
        table.row([name.to_owned(), thousands(count), thousands(macs)]);
        all = (all.0 + count, all.1.saturating_add(macs));
    }
    table.row(["all".to_owned(), thousands(all.0), thousands(all.1)]);
    table
}

/// Constants that nodes read, each counted once.
fn parameters(graph: &Graph) -> String {
    let nodes = graph.entries.iter().flat_map(|e| &e.nodes);
    let mut read: Vec<ValueId> = nodes.flat_map(|n| n.inputs.iter().copied()).collect();
    read.sort_unstable();
    read.dedup();
    let constants = read.iter().map(|&id| graph.value(id)).filter(|v| matches!(v.source, Source::Constant(_)));
    let (mut tensors, mut elements, mut bytes) = (0, 0u64, 0u64);
    for value in constants {
        tensors += 1;
        elements = elements.saturating_add(value.ty.shape.elements().unwrap_or(0));
        bytes = bytes.saturating_add(value.ty.bytes().unwrap_or(0));
    }
    let (elements, tensors, bytes) = (thousands(elements), counted(tensors, "tensor"), thousands(bytes));
    format!("Parameters: {elements} in {tensors}, {bytes} bytes")
}

/// Whether kernels compute every node; kernels for all CPUs are asked, and nothing is searched.
///
/// # Errors
///
/// All nodes that no kernel computes.
pub fn check_kernels(file: &ModelFile, graph: &Graph) -> Result<(), CliError> {
    let options = Options { budget: Budget { nodes: 0 }, ..Options::for_target(TargetId::PORTABLE) };
    file.plan(graph, &options)?;
    Ok(())
}
