//! Random graphs, planned with and without overlap, run, and held against the reference.

use kiln_planner::plan;

use crate::check::no_overlap_unproven;
use crate::generate::any_graph;
use crate::support::{Pair, Random, options};

const GRAPHS: u64 = if cfg!(miri) { 4 } else { 2000 };
const NODES: u32 = if cfg!(miri) { 3 } else { 9 };

#[test]
fn plans_compute_what_their_graphs_say() {
    let (mut steps, mut overlapping, mut proven) = (0, 0, 0);
    for seed in 0..GRAPHS {
        let graph = any_graph(seed, NODES);
        let mut random = Random::new(!seed);
        let mut pairs = [true, false].map(|overlap| Pair::new(&graph, overlap));
        for pair in &mut pairs {
            no_overlap_unproven(&graph, &pair.planned);
            // What the runs before left behind must not show.
            for _ in 0..if cfg!(miri) { 1 } else { 2 } {
                for (number, entry) in graph.entries.iter().enumerate() {
                    let inputs: Vec<Vec<u8>> =
                        entry.inputs.iter().map(|&id| random.elements(&graph.value(id).ty)).collect();
                    pair.run(number, &inputs);
                }
            }
        }
        let [with, without] = &pairs;
        for (a, b) in with.planned.entries.iter().zip(&without.planned.entries) {
            // A search that was cut short proves nothing about which is smaller.
            assert!(a.arena <= b.arena || !a.optimal, "seed {seed}: overlap costs memory");
            steps += a.steps.len();
            overlapping += usize::from(a.arena < b.arena);
            proven += usize::from(a.optimal);
        }
        let again = plan(&graph, &options(true)).unwrap();
        assert!(again.bytes == with.planned.bytes, "seed {seed}: two plans of one graph differ");
    }
    println!("{GRAPHS} graphs of {steps} steps: {overlapping} entries smaller by overlap, {proven} proven");
    assert!(cfg!(miri) || (overlapping > 500 && steps > 5000));
}
