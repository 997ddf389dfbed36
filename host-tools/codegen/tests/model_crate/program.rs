//! Uses generated crates as a device would, and prints what comes out.

use single_model::kiln_core::zerocopy::IntoBytes;
use single_model::kiln_core::{Done, Error};

fn fill(bytes: &mut [u8], number: usize, round: usize) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (i * 37 + number * 59 + round * 101) as u8;
    }
}

fn show(title: &str, bytes: &[u8]) {
    println!("{title} {bytes:?}");
}

fn main() -> Result<(), Error> {
    let mut arena = single_model::Arena::new();
    assert_eq!(size_of_val(&arena), single_model::ARENA_BYTES.next_multiple_of(16));
    let mut model = single_model::Model::new(&mut arena)?;
    for round in 0..3 {
        let input: &mut [i8; 6] = model.input_mut();
        fill(input.as_mut_bytes(), 0, round);
        let output: &[i8; 3] = model.infer();
        show("single", output.as_bytes());
    }
    assert_eq!((single_model::input::SCALE, single_model::output::ZERO_POINT), (0.5, 3));
    assert_eq!((single_model::input::SHAPE, single_model::input::NAME), ([1, 6], "features"));
    assert_eq!(single_model::LABELS, ["left", "middle", "right"]);
    assert_eq!(single_model::ROWS.len(), 1);
    assert_eq!(single_model::TARGET.name(), Some("armv7e-m"));

    let mut arena = stateful_model::Arena::default();
    let mut model = stateful_model::Model::new(&mut arena)?;
    for round in 0..6 {
        if round == 3 {
            model.reset();
        }
        fill(model.input0_mut().as_mut_bytes(), 0, round);
        fill(model.input1_mut().as_mut_bytes(), 1, round);
        model.infer_with(&mut |done: &Done<'_>| show("step", done.output(0)));
        show("stateful", model.output0().as_bytes());
        show("stateful", model.output1().as_bytes());
    }
    assert_eq!(stateful_model::LABELS[8], "class 8");

    let mut arena = a_name_u_41_model::Arena::new();
    let mut model = a_name_u_41_model::Model::new(&mut arena)?;
    fill(model.m_fn_input_mut().as_mut_bytes(), 0, 0);
    show("awkward", model.m_fn().as_bytes());
    fill(model.train_step_input_mut().as_mut_bytes(), 0, 1);
    model.train_step();
    show("awkward", model.train_step_output0().as_bytes());
    show("awkward", model.train_step_output1().as_bytes());
    fill(model.train_step_2_input_mut().as_mut_bytes(), 0, 2);
    show("awkward", model.train_step_2().as_bytes());
    fill(model.reset_2_input_mut().as_mut_bytes(), 0, 3);
    model.reset_2();
    show("awkward", model.reset_2_output0().as_bytes());
    show("awkward", model.reset_2_output1().as_bytes());
    fill(model.t_input_mut().as_mut_bytes(), 0, 4);
    show("awkward", model.t().as_bytes());
    model.set_m_fn(2)?;
    assert_eq!(model.set_m_fn(5), Err(Error::ExtentValue(2, 5)));
    assert_eq!(a_name_u_41_model::t_input::NAME, "été \u{202e}");

    let mut arena = odd_model::Arena::new();
    let mut model = odd_model::Model::new(&mut arena)?;
    for (round, extent) in [3, 1].into_iter().enumerate() {
        model.set_batch(extent)?;
        fill(model.input0_mut().as_mut_bytes(), 0, round);
        fill(model.input1_mut().as_mut_bytes(), 1, round);
        model.infer();
        show("odd", model.output0().as_bytes());
        show("odd", model.output1().as_bytes());
        show("odd", model.output2().as_bytes());
        show("odd", model.output3().as_bytes());
        show("odd", model.output4().as_bytes());
        show("odd", model.output5().as_bytes());
        show("odd", model.output6().as_bytes());
    }
    let constant: &[f32; 4] = model.output1();
    assert_eq!(constant, &[1.5, -2.0, 3.25, 1e-9]);
    model.idle();

    let mut arena = model::Arena::new();
    let mut nothing = model::Model::new(&mut arena)?;
    nothing.reset();

    let mut arena = only_reset_model::Arena::new();
    let mut model = only_reset_model::Model::new(&mut arena)?;
    model.reset();
    show("only reset", model.reset_output().as_bytes());
    Ok(())
}
