//! Kiln's CPU speed beside candle-core and PyTorch.
//!
//! All in one run: for each workload the contestants take turns, so that whatever else the machine does meets them
//! alike, and the least and the median time of each are printed with the ratios. The peak takes part too: as many
//! independent multiply-adds as the registers hold, scaled to the product's, divided by the threads. Of one thread the
//! processor's time is measured, which other processes lengthen less than the clock's; of several the clock's.
//!
//! candle takes part where it has as many threads, which it reads from the environment; Debian's PyTorch multiplies
//! with whatever BLAS is installed: with `libopenblas0-pthread`, set `OPENBLAS_NUM_THREADS` too.
//!
//!     RAYON_NUM_THREADS=1 cargo run --release --manifest-path ci/bench/Cargo.toml -- [ROUNDS [WORDS]]
//!
//! With words, only workloads whose names have all of them take part: `30 MNIST "1 threads"`. `profile` instead of a
//! number prints what the steps of the plans of both training steps take.

mod peak;
mod profile;
mod steps;
mod torch;

use std::time::Instant;

use anyhow::Result;
use candle_core as candle;
use cpu_time::ThreadTime;
use kiln::{ConvOptions, Device, Distribution, Tensor, realize_all};

use torch::Torch;

/// What takes part in a comparison: a name, and a function that runs once and gives seconds.
type Contestant<'a> = (String, Box<dyn FnMut() -> Result<f64> + 'a>);

/// A training step.
type Step<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "profile") {
        return profile::print();
    }
    let rounds: usize = arguments.first().map_or(Ok(15), |n| n.parse())?;
    let words = arguments.get(1..).unwrap_or(&[]);
    let wanted = |name: &str| words.iter().all(|word| name.contains(word.as_str()));
    let torch = std::cell::RefCell::new(Torch::start()?);
    println!("PyTorch {}; load {}", torch.borrow().version, load());
    for threads in [1, 2] {
        let device = Device::cpu_threads(threads);
        for n in [256usize, 512, 1024, 2048] {
            let name = format!("matmul {n}, {threads} threads");
            if !wanted(&name) {
                continue;
            }
            let a = Tensor::<2>::random([n, n], Distribution::Normal, &device);
            let b = Tensor::<2>::random([n, n], Distribution::Normal, &device);
            realize_all(&[&a, &b])?;
            // candle's threads are set by RAYON_NUM_THREADS, once for a run.
            let own = std::env::var("RAYON_NUM_THREADS").is_ok_and(|set| set == threads.to_string());
            let cpu = candle::Device::Cpu;
            let (ca, cb) =
                (candle::Tensor::randn(0f32, 1., (n, n), &cpu)?, candle::Tensor::randn(0f32, 1., (n, n), &cpu)?);
            let mut all: Vec<Contestant> = vec![
                ("kiln".into(), Box::new(|| timed(threads, || Ok(a.matmul(&b).realize()?)))),
                ("torch".into(), Box::new(|| torch.borrow_mut().run(threads, "matmul", n))),
            ];
            if own {
                all.push(("candle".into(), Box::new(|| timed(threads, || Ok(drop(ca.matmul(&cb)?))))));
            }
            // In turns with the products: what the core can do varies with what others do on it.
            for (name, flops, run) in peak::contestants() {
                let scale = 2.0 * (n as f64).powi(3) / flops / threads as f64;
                all.push((name.into(), Box::new(move || timed(threads, || Ok(run())).map(|seconds| seconds * scale))));
            }
            let rounds = if n == 2048 { rounds.div_ceil(3) } else { rounds };
            compare(&name, 2.0 * (n as f64).powi(3), rounds, all)?;
        }
        for batch in [1usize, 16] {
            let name = format!("conv 3x3 {batch}x56x56x64 to 64, {threads} threads");
            if !wanted(&name) {
                continue;
            }
            let x = Tensor::<4>::random([batch, 56, 56, 64], Distribution::Normal, &device);
            let w = Tensor::<4>::random([64, 3, 3, 64], Distribution::Normal, &device);
            realize_all(&[&x, &w])?;
            let options = ConvOptions { padding: [1; 4], ..ConvOptions::default() };
            let all: Vec<Contestant> = vec![
                ("kiln".into(), Box::new(|| timed(threads, || Ok(x.conv2d(&w, None, options).realize()?)))),
                ("torch".into(), Box::new(|| torch.borrow_mut().run(threads, "conv", batch))),
            ];
            let flops = 2.0 * (batch * 56 * 56 * 64 * 576) as f64;
            compare(&name, flops, rounds, all)?;
        }
        let mut plain = steps::Plain::new(&device, steps::BATCH)?;
        let mut example = steps::Example::new(&device, steps::BATCH)?;
        let kinds: [(&str, &str, Step); 2] =
            [("MNIST", "mnist", Box::new(|| plain.run())), ("example MNIST", "example", Box::new(|| example.run()))];
        for (what, kind, mut run) in kinds {
            let name = format!("{what} step, batch {}, {threads} threads", steps::BATCH);
            if !wanted(&name) {
                continue;
            }
            let all: Vec<Contestant> = vec![
                ("kiln".into(), Box::new(move || timed(threads, &mut run))),
                ("torch".into(), Box::new(|| torch.borrow_mut().run(threads, kind, steps::BATCH))),
            ];
            compare(&name, 0.0, 2 * rounds, all)?;
        }
    }
    println!("load {}", load());
    Ok(())
}

/// The machine's load averages.
fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

/// The seconds `f` takes: of this thread's processor time where it is the only one.
fn timed(threads: usize, f: impl FnOnce() -> Result<()>) -> Result<f64> {
    let (clock, own) = (Instant::now(), ThreadTime::now());
    f()?;
    let elapsed = if threads == 1 { own.elapsed() } else { clock.elapsed() };
    Ok(elapsed.as_secs_f64())
}

/// Lets contestants take turns and prints what they took; ratios are times of the others over the first one's.
fn compare(what: &str, flops: f64, rounds: usize, mut all: Vec<Contestant>) -> Result<()> {
    let mut times = vec![Vec::with_capacity(rounds); all.len()];
    for round in 0..rounds + 2 {
        for ((_, run), times) in all.iter_mut().zip(&mut times) {
            let seconds = run()?;
            // The first rounds make plans and warm caches.
            if round >= 2 {
                times.push(seconds);
            }
        }
    }
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    println!("{what}");
    for ((name, _), own) in all.iter().zip(&times) {
        let (least, median) = (own[0], own[own.len() / 2]);
        let (l, m) = (least / times[0][0], median / times[0][times[0].len() / 2]);
        let rate = if flops > 0.0 { format!(", {:6.1} GFLOP/s at best", flops / least / 1e9) } else { String::new() };
        println!(
            "    {name:12} least {:8.3} ms ({l:.2}x), median {:8.3} ms ({m:.2}x){rate}",
            least * 1e3,
            median * 1e3
        );
    }
    Ok(())
}
