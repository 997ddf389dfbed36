//! Holds a GPU against the host, operator by operator and for a network: prints the adapter and, for each operator, the
//! largest difference. Ends with 1 where one is more than it may be.
//!
//!     cargo run --example smoke

#[path = "../tests/all/cases.rs"]
#[allow(dead_code)]
mod cases;
#[path = "../tests/all/extremes.rs"]
mod extremes;
#[path = "../tests/all/network.rs"]
#[allow(dead_code)]
mod network;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use kiln::Device;
use kiln_cube::Cube;
use kiln_planner::backend::Backend;
use kiln_target_host::Cpu;
use network::Update;

/// What is known of an operator after its cases.
#[derive(Default)]
struct Seen {
    cases: usize,
    largest: f64,
    /// The part of what is allowed that was needed.
    needed: f64,
    errors: Vec<String>,
}

fn main() -> ExitCode {
    let open = || {
        Cube::webgpu().unwrap_or_else(|error| {
            eprintln!("{error}");
            std::process::exit(1)
        })
    };
    let cube = open();
    println!("adapter: {}", cube.name());

    let host = Cpu::new();
    let mut operators: BTreeMap<&'static str, Seen> = BTreeMap::new();
    let began = Instant::now();
    for case in cases::all() {
        let seen = operators.entry(case.graph.entries[0].nodes[0].op.name()).or_default();
        seen.cases += 1;
        match cases::compare(&case, &cube, &host) {
            Ok(off) => {
                seen.largest = seen.largest.max(off);
                if off > 0.0 {
                    seen.needed = seen.needed.max(off / case.tolerance);
                }
                if off > case.tolerance {
                    seen.errors.push(format!("{}: {off:e}", case.name));
                }
            }
            Err(error) => seen.errors.push(format!("{}: {error}", case.name)),
        }
    }
    println!("{:22} {:>5}  {:>9}  {:>7}  wrong", "operator", "cases", "largest", "allowed");
    for (name, seen) in &operators {
        let part = format!("{:.0}%", 100.0 * seen.needed);
        println!("{name:22} {:5}  {:9.2e}  {part:>7}  {}", seen.cases, seen.largest, seen.errors.len());
        seen.errors.iter().for_each(|error| println!("    {error}"));
    }
    println!("({:.1} s, most of them compiling kernels)", began.elapsed().as_secs_f64());

    // Graphics APIs promise nothing of NaN and infinities: said, but not held against the adapter.
    let cases = extremes::all();
    let all = cases.len();
    let same = |case: &cases::Case| cases::compare(case, &cube, &host).is_ok_and(|off| off <= case.tolerance);
    let other: Vec<cases::Case> = cases.into_iter().filter(|case| !same(case)).collect();
    println!("NaN, infinities and large numbers: {} of {all} cases as on the host", all - other.len());
    other.iter().for_each(|case| println!("    not: {}", case.name));
    let mut wrong: usize = operators.values().map(|seen| seen.errors.len()).sum();

    match network(Box::new(open())) {
        Ok(bad) => wrong += bad,
        Err(error) => {
            println!("network: {error}");
            wrong += 1;
        }
    }
    println!("{}", if wrong == 0 { "all is right" } else { "NOT all is right" });
    ExitCode::from(u8::from(wrong > 0))
}

/// The network that reads digits: differences of its forward pass and of training, how long steps take, and whether
/// memory stays as it is.
fn network(gpu: Box<dyn Backend>) -> Result<usize, kiln::Error> {
    let (gpu, host) = (Device::new(gpu), Device::cpu());
    let mut wrong = 0;
    let mut report = |what: &str, off: f64, most: f64| {
        wrong += usize::from(off.is_nan() || off > most);
        println!("{what}: {off:.2e} of {most:.0e} allowed{}", if off <= most { "" } else { "  WRONG" });
    };
    let [scores, loss] = network::forward(&gpu, &host)?;
    report("forward, scores", scores, 1e-5);
    report("forward, loss", loss, 1e-5);
    let [losses, parameters] = network::training(&gpu, &host, Update::Sgd, 4)?;
    report("4 steps of SGD, losses", losses, 1e-4);
    report("4 steps of SGD, parameters", parameters, 1e-4);
    let [losses, _] = network::training(&gpu, &host, Update::Adam, 4)?;
    report("4 steps of Adam, losses", losses, 1e-2);

    const STEPS: u64 = 200;
    for device in [&gpu, &host] {
        let model = network::twins(&gpu, &host)?.into_iter().zip([&gpu, &host]).find(|(_, on)| *on == device);
        let Some((model, _)) = model else { continue };
        let mut at = Vec::new();
        let (losses, _) = network::train(model, Update::Adam, STEPS, 64, device, |step| {
            if [19, STEPS - 1].contains(&step) {
                at.push((device.memory(), device.plans_built(), Instant::now()));
            }
        })?;
        let [(early, plans, from), (late, last_plans, to)] = at[..] else { continue };
        println!(
            "{}: {STEPS} steps of Adam with 64 images, loss {:.3} to {:.3}, {:.1} ms a step, {} plans",
            device.name(),
            losses[0],
            losses[losses.len() - 1],
            1e3 * (to - from).as_secs_f64() / (STEPS - 20) as f64,
            last_plans
        );
        println!("    tensors {} bytes, at most {} bytes in use", late.tensors, late.peak);
        report("    bytes more after the 20th step", (late.peak - early.peak) as f64, 0.0);
        report("    plans more after the 20th step", (last_plans - plans) as f64, 0.0);
    }
    println!("left to the CPU: {:?}", gpu.routed());
    Ok(wrong)
}
