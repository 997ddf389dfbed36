//! Memory over hundreds of steps, in a process of its own.

#[path = "all/cases.rs"]
#[allow(dead_code)]
mod cases;
#[path = "all/found.rs"]
mod found;
#[path = "all/network.rs"]
#[allow(dead_code)]
mod network;

use kiln::Device;
use network::{Update, train, twins};

/// Bytes of memory that the process occupies: those of the GPU too, where the CPU's driver is one.
fn resident() -> usize {
    let Ok(text) = std::fs::read_to_string("/proc/self/statm") else { return 0 };
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

#[test]
fn hundreds_of_steps_take_no_more_memory_than_a_few_and_no_more_plans() {
    let Some(gpu) = found::device() else { return };
    let [twin, _] = twins(&gpu, &Device::cpu()).unwrap();
    let mut seen = Vec::new();
    train(twin, Update::Adam, 500, 4, &gpu, |step| {
        if [9, 99, 499].contains(&step) {
            seen.push((gpu.memory(), gpu.plans_built(), resident()));
        }
    })
    .unwrap();
    let [(early, plans, _), (.., pages), (late, last_plans, last_pages)] = seen[..] else { panic!("{seen:?}") };
    assert_eq!((early, plans), (late, last_plans));
    assert!(early.tensors > 0 && early.peak > early.tensors, "{early:?}");
    // Pages come and go; 400 steps that each kept one tensor of the network's would take more.
    assert!(last_pages < pages + (8 << 20), "from {pages} to {last_pages} bytes");
}
