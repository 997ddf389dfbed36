//! `kiln quantize`.

use std::collections::HashMap;
use std::path::Path;

use kiln_boards::Board;
use kiln_codegen::{target_of, whole_file};
use kiln_passes::quantize::{Calibration, QuantizeError, QuantizeOptions, Quantized, check, quantize};
use kiln_planner::graph::{Graph, ValueId};
use kiln_planner::{Options, Planned};
use kiln_target_host::native_target;

use crate::args::QuantizeArgs;
use crate::console::{self, Style};
use crate::model::{Fitted, ModelFile, check_fit};
use crate::quantize::{Layers, Outcomes, Picker, Running, Samples, Scores, reals, show};
use crate::report::table::counted;
use crate::{CliError, Outcome};

/// Quantizes a model, compares it with what it was, and writes it.
pub fn run(args: &QuantizeArgs) -> Result<Outcome, CliError> {
    let board = Board::load(&args.board)?;
    let file = ModelFile::read(&args.model)?;
    let graph = file.graph()?;
    let refused = |source: QuantizeError| CliError::Quantize { path: file.path.clone(), source };
    check(&graph).map_err(refused)?;
    let planned = file.plan(&graph, &Options::for_target(native_target()))?;
    let mut before = Running::new(&file.path, &planned)?;

    let outputs = graph.entries.first().and_then(|e| e.outputs.first()).map_or(0, |&id| elements(&graph, id));
    let find = |path: &Path| -> Result<Samples, CliError> {
        let samples = Samples::find(path, before.inputs.clone(), args.image_range, &graph.labels, outputs)?;
        samples.notes.iter().for_each(|note| console::progress(&format!("{}: {note}", path.display())));
        Ok(samples)
    };
    let samples = find(&args.calibration)?;
    let test = args.test.as_deref().map(find).transpose()?;
    let mut notes = Notes::default();
    let picked = Picker::spread(samples.count(), args.samples);
    let calibration = calibrate(&graph, &mut before, &samples, &picked, &mut notes)?;
    let options = QuantizeOptions { method: args.method, float_io: args.float_io };
    let quantized = quantize(&graph, &calibration, &options).map_err(refused)?;
    let planned_after = file.plan(&quantized.graph, &Options::for_target(target_of(&board)))?;
    check_fit(&file, &planned_after, &board)?;

    let mut after = Running::new(&file.path, &planned_after)?;
    let (calibrated_with, others) = (picked.count(), picked.others());
    let (of, compared, tested_on) = match (&test, others) {
        (Some(test), _) => (test, Picker::all(test.count()), "of the test set"),
        (None, Some(others)) => (&samples, others, "that calibration left"),
        (None, None) => (&samples, picked, "that it was calibrated with"),
    };
    let comparison = Comparison { graph: &graph, quantized: &quantized, layers: args.layers };
    let (scores, layers) = comparison.run(&mut before, &mut after, of, &compared, &mut notes)?;
    // The float32 model on the same board, for its size.
    let planned = match target_of(&board) == native_target() {
        true => planned,
        false => file.plan(&graph, &Options::for_target(target_of(&board)))?,
    };
    let outcomes = Outcomes {
        model: &file.name,
        board: &board.name,
        method: args.method,
        calibrated_with,
        tested_on,
        graph: &graph,
        calibration: &calibration,
        quantized: &quantized,
        scores: &scores,
        layers: args.layers.then_some(&layers),
        before: &planned,
        after: &planned_after,
    };
    console::out(&console::harmless(&show(&outcomes, Style::of_stdout())))?;
    within(args, &scores, &file)?;
    drop(after);
    write(args, file, quantized, planned_after, &board)
}

fn elements(graph: &Graph, id: ValueId) -> usize {
    graph.value(id).ty.shape.elements().unwrap_or(0) as usize
}

/// Runs the float32 model on samples and observes what every step computes.
fn calibrate(
    graph: &Graph,
    running: &mut Running<'_>,
    samples: &Samples,
    picked: &Picker,
    notes: &mut Notes,
) -> Result<Calibration, CliError> {
    let mut calibration = Calibration::new(graph);
    let inputs = graph.entries.first().map(|entry| entry.inputs.clone()).unwrap_or_default();
    console::progress(&format!("calibrating with {}", counted(picked.count() as usize, "sample")));
    samples.read(picked, &mut |file, note| notes.say(file, note), &mut |sample| {
        let mut seen = Ok(());
        let mut observe = |id, data: &[u8]| {
            if seen.is_ok() {
                seen = calibration.observe(graph, id, data);
            }
        };
        inputs.iter().zip(&sample.inputs).for_each(|(&id, data)| observe(id, data));
        running.run(&sample.inputs, &mut observe)?;
        seen.map_err(|source| CliError::Quantize { path: sample.file.to_owned(), source })
    })?;
    Ok(calibration)
}

/// Notes on files, each of which is said once and not for every file.
#[derive(Default)]
struct Notes {
    said: Vec<String>,
}

impl Notes {
    fn say(&mut self, file: &Path, note: &str) {
        if !self.said.iter().any(|said| said == note) {
            console::progress(&format!("{}: {note}", file.display()));
            self.said.push(note.to_owned());
        }
    }
}

/// Two models to compare.
struct Comparison<'a> {
    graph: &'a Graph,
    quantized: &'a Quantized,
    /// Whether to compare each tensor, not only the outputs.
    layers: bool,
}

impl Comparison<'_> {
    fn run(
        &self,
        before: &mut Running<'_>,
        after: &mut Running<'_>,
        samples: &Samples,
        picked: &Picker,
        notes: &mut Notes,
    ) -> Result<(Scores, Layers), CliError> {
        let (mut scores, mut layers) = (Scores::default(), Layers::new());
        let old_of: HashMap<ValueId, ValueId> =
            self.quantized.activations.iter().map(|&(old, new)| (new, old)).collect();
        console::progress(&format!("comparing on {}", counted(picked.count() as usize, "sample")));
        samples.read(picked, &mut |file, note| notes.say(file, note), &mut |sample| {
            let wrong = |problem: String| CliError::input(sample.file, problem);
            let stored = after.stored(&sample.inputs).map_err(wrong)?;
            let stored: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
            let mut real: HashMap<ValueId, Vec<f64>> = HashMap::new();
            let want = before.run(&sample.inputs, &mut |id, data| {
                if self.layers {
                    real.insert(id, reals(self.graph, id, data));
                }
            })?;
            let got = after.run(&stored, &mut |id, data| {
                if let Some((old, want)) = old_of.get(&id).and_then(|old| Some((old, real.get(old)?))) {
                    layers.entry(*old).or_default().add(want, &reals(&self.quantized.graph, id, data));
                }
            })?;
            let (want, got) = (outputs(self.graph, &want), outputs(&self.quantized.graph, &got));
            let classes = want.first().map_or(0, Vec::len);
            if let Some(class) = sample.class.filter(|&class| class >= classes) {
                return Err(wrong(format!("its class is {class}, and the model's output has {classes} (from 0 on)")));
            }
            scores.add(&want, &got, sample.class);
            Ok(())
        })?;
        Ok((scores, layers))
    }
}

/// The outputs of a graph's entry as numbers.
fn outputs(graph: &Graph, data: &[Vec<u8>]) -> Vec<Vec<f64>> {
    let ids = graph.entries.first().map(|entry| entry.outputs.as_slice()).unwrap_or_default();
    ids.iter().zip(data).map(|(&id, data)| reals(graph, id, data)).collect()
}

/// Checks the loss of accuracy against what is allowed.
fn within(args: &QuantizeArgs, scores: &Scores, file: &ModelFile) -> Result<(), CliError> {
    let Some(most) = args.max_loss else { return Ok(()) };
    let Some((before, after)) = scores.accuracies() else {
        return Err(CliError::BadInput(
            "--max-loss needs samples whose classes are known: put them in folders called by their class, or list them in labels.csv"
                .to_owned(),
        ));
    };
    if before - after <= most {
        return Ok(());
    }
    Err(CliError::Failed(format!(
        "{}: int8 loses {:.2} percentage points of accuracy, and --max-loss allows {most}; give other calibration \
         samples, or another --method; nothing was written",
        file.path.display(),
        before - after
    )))
}

/// Writes the model, where that is asked for.
fn write(
    args: &QuantizeArgs,
    file: ModelFile,
    quantized: Quantized,
    planned: Planned,
    board: &Board,
) -> Result<Outcome, CliError> {
    let Some(path) = &args.out else {
        console::progress("nothing was written; --out FILE.kiln writes the model");
        return Ok(Outcome::Fine);
    };
    let bytes = Fitted { file, graph: quantized.graph, planned }.kiln_bytes(board, true, path)?;
    whole_file::write(path, &bytes)?;
    console::progress(&format!("{}: {} bytes", path.display(), bytes.len()));
    Ok(Outcome::Fine)
}
