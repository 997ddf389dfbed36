//! A crate whose plan is spread over several banks of RAM, beside the same model in one.

use kiln_core::TargetId;
use kiln_planner::{Options, Room, plan};

use crate::graphs;
use crate::run::{line, run, runner};
use crate::workspace::Workspace;

const PROGRAM: &str = "//! Runs the model in two banks.

use two_banks_model::kiln_core::Error;
use two_banks_model::kiln_core::zerocopy::IntoBytes;

fn fill(bytes: &mut [u8], number: usize, round: usize) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (i * 37 + number * 59 + round * 101) as u8;
    }
}

fn main() -> Result<(), Error> {
    let mut arena = two_banks_model::Arena::new();
    let mut bank1 = two_banks_model::Bank1::new();
    assert_eq!(bank1.bytes_mut().len(), two_banks_model::BANK1_BYTES);
    let mut model = two_banks_model::Model::new(&mut arena, &mut bank1)?;
    for round in 0..4 {
        fill(model.input0_mut().as_mut_bytes(), 0, round);
        fill(model.input1_mut().as_mut_bytes(), 1, round);
        model.infer();
        println!(\"stateful {:?}\", model.output0().as_bytes());
        println!(\"stateful {:?}\", model.output1().as_bytes());
    }
    Ok(())
}
";

#[test]
fn a_model_in_two_banks_computes_what_it_computes_in_one() {
    let mut graph = graphs::stateful();
    // A name of its own: in one build directory cargo takes crates of one name for the same.
    graph.name = "two banks".into();
    let options = Options::for_target(TargetId::ARMV7EM);
    let one = plan(&graph, &options).unwrap();
    assert_eq!((one.banks.as_slice(), one.ram_bytes), (&[24][..], 24));
    let mut rooms = options.rooms;
    // State up to 16, and half of the arena.
    rooms[0] = Room { bytes: 20, free: 20, fast: true };
    rooms[1] = Room { bytes: 64, free: 64, fast: false };
    let two = plan(&graph, &Options { rooms, ..options }).unwrap();
    assert_eq!(two.banks.len(), 2);
    assert!(two.banks[0] <= 20 && two.banks[1] > 0, "{:?}", two.banks);

    let mut workspace = Workspace::new();
    workspace.add_planned(&graph, &two);
    workspace.write(PROGRAM);
    let lints = ["-D", "warnings", "-D", "missing_docs", "-D", "clippy::undocumented_unsafe_blocks"];
    workspace.cargo(&[&["clippy", "--quiet", "--workspace", "--"], &lints[..]].concat());
    workspace.check_format(&["two-banks-model"]);
    let printed = workspace.cargo(&["run", "--quiet", "-p", "program"]);
    let mut here = runner(&one);
    let mut expected = Vec::new();
    for round in 0..4 {
        expected.extend(run(&mut here, &graph, "infer", round).0.iter().map(|output| line("stateful", output)));
    }
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}
