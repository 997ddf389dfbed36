//! Random graphs on the CPU as a back end, with inputs given away and with inputs kept.

use std::sync::Arc;

use kiln_planner::backend::{Backend, Handle, Request};
use kiln_target_host::Cpu;

use crate::generate::any_graph;
use crate::support::Random;

const GRAPHS: u64 = if cfg!(miri) { 3 } else { 1500 };

#[test]
fn outputs_over_inputs_are_the_same_bits_and_kept_inputs_stay() {
    let (mut graphs, mut over, mut outputs) = (0, 0, 0);
    for seed in 0..GRAPHS {
        let graph = any_graph(seed, 9);
        // State begins at zero in each prepared entry, and goes on with each run.
        if !graph.entries[0].assigns.is_empty() || graph.entries.len() > 1 {
            continue;
        }
        graphs += 1;
        let cpu = Cpu::with_threads(1 + seed as usize % 2);
        let donated = (0..graph.entries[0].inputs.len()).collect();
        let mut plain = cpu.prepare(&graph, 0).unwrap();
        let mut giving = cpu.prepare_for(&graph, 0, &Request { limit: None, donated }).unwrap();
        let mut random = Random::new(!seed);
        for _ in 0..2 {
            let inputs: Vec<Vec<u8>> =
                graph.entries[0].inputs.iter().map(|&id| random.elements(&graph.value(id).ty)).collect();
            let written = || inputs.iter().map(|bytes| cpu.write(bytes).unwrap()).collect::<Vec<Handle>>();
            let read = |handles: &[Handle]| handles.iter().map(|h| cpu.read(h).unwrap()).collect::<Vec<_>>();
            let expected = read(&plain.run(written()).unwrap());

            let kept = written();
            assert!(read(&giving.run(kept.clone()).unwrap()) == expected, "seed {seed}: inputs kept\n{graph:#?}");
            assert!(read(&kept) == inputs, "seed {seed}: an input that is held was written over\n{graph:#?}");

            // Only some are given away.
            let given = written();
            let held: Vec<Handle> = given.iter().filter(|_| random.one_in(2)).cloned().collect();
            let before = read(&held);
            assert!(read(&giving.run(given).unwrap()) == expected, "seed {seed}: some given\n{graph:#?}");
            assert!(read(&held) == before, "seed {seed}: an input that is held was written over\n{graph:#?}");

            let given = written();
            let places: Vec<*const ()> = given.iter().map(|h| Arc::as_ptr(h).cast()).collect();
            let found = giving.run(given).unwrap();
            assert!(read(&found) == expected, "seed {seed}: inputs given away\n{graph:#?}");
            over += found.iter().filter(|h| places.contains(&Arc::as_ptr(h).cast())).count();
            outputs += found.len();
        }
    }
    println!("{graphs} graphs: {over} of {outputs} outputs over an input");
    assert!(cfg!(miri) || (graphs > 200 && over > 100 && over < outputs));
}

#[test]
fn what_fails_gives_its_inputs_back() {
    let graph = (0..).map(|seed| any_graph(seed, 9)).find(|graph| graph.entries[0].inputs.len() > 1).unwrap();
    let cpu = Cpu::with_threads(1);
    let donated = (0..graph.entries[0].inputs.len()).collect();
    let mut ready = cpu.prepare_for(&graph, 0, &Request { limit: None, donated }).unwrap();
    // The first input is right, the others have other sizes.
    let bytes = graph.value(graph.entries[0].inputs[0]).ty.bytes().unwrap() as usize;
    let mut inputs = vec![cpu.write(&vec![7; bytes]).unwrap()];
    inputs.extend(graph.entries[0].inputs[1..].iter().map(|_| cpu.write(&[1; 3]).unwrap()));
    let refused = ready.run_or_return(inputs).err().unwrap();
    assert_eq!(refused.inputs.len(), graph.entries[0].inputs.len());
    assert!(cpu.read(&refused.inputs[0]).unwrap() == vec![7; bytes]);
}
