//! How long import and planning take: `cargo bench -p kiln-cli`. Every model of the reference data
//! (`KILN_DATA`) that Kiln supports must be imported, and planned, in under a second each.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kiln_cli::model::ModelFile;
use kiln_core::TargetId;
use kiln_planner::Options;

const RUNS: usize = 20;
const LIMIT: Duration = Duration::from_secs(1);

/// The median time of [`RUNS`] runs.
fn median(mut work: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[RUNS / 2]
}

fn main() -> ExitCode {
    // `cargo test --benches` runs benchmarks too, unoptimized; their times would say nothing.
    if !std::env::args().any(|arg| arg == "--bench") {
        return ExitCode::SUCCESS;
    }
    let data = match std::env::var_os("KILN_DATA") {
        Some(data) => PathBuf::from(data),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    let Ok(folders) = std::fs::read_dir(data.join("models")) else {
        println!("skipped: no reference data in {} (set KILN_DATA)", data.display());
        return ExitCode::SUCCESS;
    };
    let mut paths: Vec<PathBuf> = folders.flatten().map(|f| f.path().join("model.tflite")).collect();
    paths.sort();
    let mut slow = 0;
    println!("{:<34}{:>6}{:>12}{:>12}   armv7e-m, medians of {RUNS}", "model", "steps", "import ms", "plan ms");
    for path in paths.iter().filter(|path| path.is_file()) {
        let Ok(file) = ModelFile::read(path) else { continue };
        let Ok(graph) = file.graph() else { continue };
        let options = Options::for_target(TargetId::ARMV7EM);
        let Ok(planned) = file.plan(&graph, &options) else { continue };
        let import = median(|| drop(file.graph()));
        let plan = median(|| drop(file.plan(&graph, &options)));
        let steps = planned.main_entry().map_or(0, |e| e.steps.len());
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!("{:<34}{steps:>6}{:>12.3}{:>12.3}", file.name, ms(import), ms(plan));
        slow += usize::from(import >= LIMIT || plan >= LIMIT);
    }
    if slow > 0 {
        println!("{slow} models take a second or more");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
