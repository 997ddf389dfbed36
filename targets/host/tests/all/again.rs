//! Random graphs planned within less memory than they take: the same bits from steps that run again.

use kiln_planner::{Options, PlanError, plan};
use kiln_target_host::Runner;

use crate::check::no_overlap_unproven;
use crate::generate::any_graph;
use crate::support::{Random, options};

const GRAPHS: u64 = if cfg!(miri) { 2 } else { 600 };

#[test]
fn plans_within_less_memory_compute_the_same_bits() {
    let (mut smaller, mut steps) = (0, 0);
    for seed in 0..GRAPHS {
        let graph = any_graph(seed, 14);
        let options = options(seed % 3 > 0);
        let plain = plan(&graph, &options).unwrap();
        // The least that is found for the largest entry, and what there is half-way.
        let mut limits = vec![plain.state_bytes];
        match plan(&graph, &Options { ram: Some(plain.state_bytes), ..options }) {
            Err(PlanError::Ram(short)) => {
                assert!(short.least <= short.unaided && short.unaided <= plain.ram_bytes, "seed {seed}: {short}");
                limits.extend([short.least, (short.least + short.unaided) / 2]);
            }
            Err(error) => panic!("seed {seed}: {error}"),
            Ok(small) => assert_eq!(small.arena_bytes, 0, "seed {seed}"),
        }
        for limit in limits {
            let Ok(small) = plan(&graph, &Options { ram: Some(limit), ..options }) else { continue };
            assert!(small.ram_bytes <= limit.max(small.state_bytes), "seed {seed}");
            let again: usize = small.entries.iter().map(|entry| entry.again.steps).sum();
            smaller += usize::from(again > 0);
            steps += again;
            no_overlap_unproven(&graph, &small);
            let mut runners = [&plain, &small].map(|planned| Runner::new(&planned.bytes).unwrap());
            runners.iter_mut().for_each(Runner::reset);
            let mut random = Random::new(!seed);
            for _ in 0..2 {
                for entry in &graph.entries {
                    let inputs: Vec<Vec<u8>> =
                        entry.inputs.iter().map(|&id| random.elements(&graph.value(id).ty)).collect();
                    let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
                    let [a, b] = runners.each_mut().map(|runner| runner.run(&entry.name, &slices).unwrap());
                    assert!(a == b, "seed {seed}: other bits within {limit} bytes\n{graph:#?}");
                }
            }
        }
    }
    println!("{smaller} plans made smaller by {steps} steps");
    assert!(cfg!(miri) || (smaller > 20 && steps > smaller));
}
