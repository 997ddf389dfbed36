//! `kiln inspect`.

use crate::args::InspectArgs;
use crate::console::{self, Style};
use crate::inspect::{graph, kiln, tflite};
use crate::model::{Format, ModelFile};
use crate::{CliError, Outcome};

/// Prints what is in a model file.
pub fn run(args: &InspectArgs) -> Result<Outcome, CliError> {
    let file = ModelFile::read(&args.model)?;
    let style = Style::of_stdout();
    match file.format {
        Format::Tflite => match file.graph() {
            Ok(graph) => show_graph(&file, "", &graph, style),
            Err(error) => {
                // What the file has is worth seeing all the more when Kiln can't use it.
                if let Some(text) = tflite::show(&file, &error, style) {
                    console::out(&text)?;
                }
                Err(error)
            }
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

/// Prints `before` and the graph; operators that no kernel computes are an error that lists them.
fn show_graph(
    file: &ModelFile,
    before: &str,
    graph: &kiln_planner::graph::Graph,
    style: Style,
) -> Result<Outcome, CliError> {
    console::out(&format!("{before}{}", graph::show(file, graph, style)))?;
    graph::check_kernels(file, graph)?;
    Ok(Outcome::Fine)
}
