//! Uses generated crates that share an arena as a device would, and prints what comes out.

use turns_single_model::kiln_core::zerocopy::IntoBytes;
use turns_single_model::kiln_core::{Bank, Done, Error, largest};

/// One arena for all.
const SHARED_ARENA_BYTES: usize = largest([
    turns_single_model::ARENA_BYTES,
    turns_stateful_model::ARENA_BYTES,
    turns_odd_model::ARENA_BYTES,
    turns_nothing_model::ARENA_BYTES,
]);

fn fill(bytes: &mut [u8], number: usize, round: usize) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (i * 37 + number * 59 + round * 101) as u8;
    }
}

fn show(title: &str, bytes: &[u8]) {
    println!("{title} {bytes:?}");
}

/// A turn of a model may be a function's: it borrows the arena no longer.
fn classify(model: &mut turns_single_model::Model<'_>, round: usize) -> [i8; 3] {
    let input: &mut [i8; 6] = model.input_mut();
    fill(input.as_mut_bytes(), 0, round);
    *model.infer()
}

fn main() -> Result<(), Error> {
    let mut arena = Bank::<SHARED_ARENA_BYTES>::new();
    let mut state = turns_stateful_model::State::new();
    let mut odd_state = turns_odd_model::State::new();
    let mut single = turns_single_model::Parked::new(&mut arena)?;
    let mut stateful = turns_stateful_model::Parked::new(&mut state, &mut arena)?;
    let mut odd = turns_odd_model::Parked::new(&mut odd_state, &mut arena)?;
    let mut nothing = turns_nothing_model::Parked::new(&mut arena)?;
    for round in 0..6 {
        let scores = classify(&mut single.attach(&mut arena), round);
        show("single", scores.as_bytes());

        let mut model = stateful.attach(&mut arena);
        if round == 3 {
            model.reset();
        }
        fill(model.input0_mut().as_mut_bytes(), 0, round);
        fill(model.input1_mut().as_mut_bytes(), 1, round);
        model.infer_with(&mut |done: &Done<'_>| show("step", done.output(0)));
        show("stateful", model.output0().as_bytes());
        show("stateful", model.output1().as_bytes());

        // Here from memory that says nothing of its size.
        let mut model = odd.attach_bytes(arena.bytes_mut())?;
        model.set_batch(if round % 2 == 0 { 3 } else { 1 })?;
        fill(model.input0_mut().as_mut_bytes(), 0, round);
        fill(model.input1_mut().as_mut_bytes(), 1, round);
        model.infer();
        show("odd", model.output0().as_bytes());
        show("odd", model.output1().as_bytes());
        show("odd", model.output2().as_bytes());
        show("odd", model.output3().as_bytes());
        show("odd", model.output4().as_bytes());
        // Behind a batch of one lies whatever was in the arena.
        show("odd", &model.output5().as_bytes()[..4]);
        show("odd", model.output6().as_bytes());
        nothing.attach(&mut arena).reset();
    }
    let mut model = stateful.attach(&mut arena);
    assert_eq!(model.session().plan().banks().len(), 2);
    model.reset();
    Ok(())
}
