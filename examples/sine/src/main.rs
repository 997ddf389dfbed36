//! `cargo run -p sine` trains the model and writes `model/` beside this crate's manifest; `cargo run
//! -p sine -- DIR` writes it elsewhere.

use std::path::{Path, PathBuf};

use sine::data::{self, Sample};
use sine::{export, integer, quantize, train};

/// Samples trained on, and as many again to measure the error on.
const SAMPLES: usize = 1024;
/// Times the training set is gone through.
const EPOCHS: usize = 300;

fn main() -> anyhow::Result<()> {
    let directory = match std::env::args_os().nth(1) {
        Some(directory) => PathBuf::from(directory),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("model"),
    };
    let (training, test) = data::split(SAMPLES);
    let network = train::train(&training, EPOCHS);
    let float_error = worst(&test, |x| network.run(x));

    let model = quantize::quantize(&network, &training);
    let int8_error = worst(&test, |x| model.output.real(integer::run(&model, model.input.nearest(x))));

    let graph = export::graph(&model)?;
    export::write(&directory, &model, &graph)?;
    println!("largest error on {SAMPLES} samples not trained on: float {float_error:.4}, int8 {int8_error:.4}");
    println!("wrote {}", directory.display());
    Ok(())
}

/// The largest absolute error over `samples`.
fn worst(samples: &[Sample], run: impl Fn(f64) -> f64) -> f64 {
    samples.iter().map(|s| (run(s.x) - s.y).abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_planner::reference::Evaluator;

    #[test]
    fn the_model_is_good_and_the_graph_computes_the_same() -> anyhow::Result<()> {
        let (training, test) = data::split(SAMPLES);
        let network = train::train(&training, EPOCHS);
        let float_error = worst(&test, |x| network.run(x));
        assert!(float_error <= 0.05, "float error {float_error}");
        let model = quantize::quantize(&network, &training);
        let int8_error = worst(&test, |x| model.output.real(integer::run(&model, model.input.nearest(x))));
        assert!(int8_error <= 0.05, "int8 error {int8_error}");

        // Kiln's reference operators know nothing of `integer`: they agree on every input there is.
        let graph = export::graph(&model)?;
        for x in i8::MIN..=i8::MAX {
            let values = Evaluator::new(&graph).run(0, &[&x.to_le_bytes()])?;
            assert_eq!(values[&graph.entries[0].outputs[0]], integer::run(&model, x).to_le_bytes(), "at {x}");
        }
        Ok(())
    }
}
