//! What the steps of a plan take.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use kiln::Device;
use kiln_target_host::{Cpu, StepTime};

use crate::steps::{BATCH, Example, Plain};

/// Runs of which each step's least time counts.
const RUNS: usize = 200;

/// Prints, for the plans of both training steps, what each step takes with one thread, and what recording them and
/// finding the plan again does.
pub fn print() -> Result<()> {
    let (device, seen) = observed();
    let mut plain = Plain::new(&device, BATCH)?;
    table("MNIST step", &seen, || plain.run())?;
    let (device, seen) = observed();
    let mut example = Example::new(&device, BATCH)?;
    table("example MNIST step", &seen, || example.run())
}

/// The times of a run's steps.
type Seen = Arc<Mutex<Vec<StepTime>>>;

fn observed() -> (Device, Seen) {
    let seen = Seen::default();
    let to = seen.clone();
    let cpu = Cpu::with_threads(1).observed(move |times| to.lock().unwrap().extend_from_slice(times));
    (Device::new(Box::new(cpu)), seen)
}

fn table(what: &str, seen: &Seen, mut run: impl FnMut() -> Result<()>) -> Result<()> {
    let mut least: Vec<StepTime> = Vec::new();
    let (mut whole, mut around) = (Duration::MAX, Duration::MAX);
    for _ in 0..RUNS {
        seen.lock().unwrap().clear();
        let start = std::time::Instant::now();
        run()?;
        let elapsed = start.elapsed();
        let times = std::mem::take(&mut *seen.lock().unwrap());
        let sum: Duration = times.iter().map(|step| step.time).sum();
        (whole, around) = (whole.min(elapsed), around.min(elapsed.saturating_sub(sum)));
        // The first runs also compute what later ones find.
        if least.len() != times.len() {
            least = times;
            continue;
        }
        for (least, own) in least.iter_mut().zip(times) {
            least.time = least.time.min(own.time);
        }
    }
    let sum: Duration = least.iter().map(|step| step.time).sum();
    println!("{what}: {whole:.0?}, steps {sum:.0?}, around them {around:.0?}");
    least.sort_by_key(|step| std::cmp::Reverse(step.time));
    for StepTime { name, kernel, cost, time } in least {
        let seconds = time.as_secs_f64().max(1e-9);
        println!(
            "{:9.1} us {:4.1} % {kernel:30} {name:28} {:7.1} GFLOP/s {:7.1} GB/s",
            seconds * 1e6,
            100.0 * seconds / sum.as_secs_f64(),
            2.0 * cost.macs as f64 / seconds / 1e9,
            cost.bytes as f64 / seconds / 1e9
        );
    }
    Ok(())
}
