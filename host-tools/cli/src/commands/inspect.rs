//! `kiln inspect`.

use kiln_build::ModelError;
use kiln_import::{ImportError, Refused};
use kiln_planner::PlanError;
use kiln_planner::graph::Graph;

use crate::args::InspectArgs;
use crate::console::{self, Style, harmless};
use crate::inspect::{graph, kiln, tflite};
use crate::model::{Format, ModelFile};
use crate::{CliError, Outcome};

/// Prints what is in a model file.
pub fn run(args: &InspectArgs) -> Result<Outcome, CliError> {
    let file = ModelFile::read(&args.model)?;
    let style = Style::of_stdout();
    match file.format {
        Format::Tflite => match file.own_graph() {
            Ok(graph) => show_graph(&file, "", &graph, style),
            Err(ModelError::Import { source: ImportError::Unsupported(refused), .. }) => {
                show_refused(&file, &refused, style)
            }
            Err(error) => Err(error.into()),
        },
        Format::Kiln => {
            let kiln_file = file.kiln_file()?;
            let text = kiln::show(&file, &kiln_file, style)?;
            match &kiln_file.graph {
                Some(graph) => show_graph(&file, &text, graph, style),
                None => console::out(&text).map(|()| Outcome::Fine),
            }
        }
    }
}

/// Prints a model that Kiln can't use: what it has is worth seeing all the more.
fn show_refused(file: &ModelFile, refused: &[Refused], style: Style) -> Result<Outcome, CliError> {
    let lines = refused.iter().map(|r| format!("operator {} {} computing '{}': {}", r.index, r.op, r.tensor, r.reason));
    refuse(file, &tflite::show(file, refused, style)?, &lines.collect::<Vec<_>>())
}

/// Prints `before` and the graph, and nodes that no kernel computes.
fn show_graph(file: &ModelFile, before: &str, graph: &Graph, style: Style) -> Result<Outcome, CliError> {
    let text = format!("{before}{}", graph::show(file, graph, style));
    match graph::check_kernels(file, graph) {
        Ok(()) => console::out(&text).map(|()| Outcome::Fine),
        Err(CliError::Model(ModelError::Plan { source: PlanError::Unsupported(list), .. })) => {
            let lines = list.iter().map(|u| format!("{} '{}': {}", u.op, u.node, u.operands));
            refuse(file, &text, &lines.collect::<Vec<_>>())
        }
        Err(error) => Err(error),
    }
}

/// Prints what a model has and, on a line each, what of it is not supported.
fn refuse(file: &ModelFile, text: &str, list: &[String]) -> Result<Outcome, CliError> {
    let lines: Vec<String> = list.iter().map(|line| format!("  {}\n", harmless(line))).collect();
    console::out(&format!("{text}\nNot supported\n{}", lines.concat()))?;
    let problem = format!("{} of the model's operators are not supported; convert the model without them", list.len());
    Err(CliError::input(&file.path, problem))
}
