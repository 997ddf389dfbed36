//! A sine from a neural network, planned by this package's build script.

#![no_std]

kiln_model::include_model! {
    /// The model of `examples/sine`, planned for the board that `build.rs` names.
    pub mod sine
}

/// Angles in the model's numbers, recorded in `examples/sine/model`.
pub const ANGLES: &[u8; 64] = include_bytes!("../../sine/model/grid.in0.bin");

/// What plain integer arithmetic makes of [`ANGLES`].
pub const SINES: &[u8; 64] = include_bytes!("../../sine/model/grid.out0.plain.bin");

/// How many of the recorded sines the model gives.
///
/// # Errors
///
/// The plan is not what was built.
pub fn matches() -> Result<usize, sine::kiln_core::Error> {
    let mut arena = sine::Arena::new();
    let mut model = sine::Model::new(&mut arena)?;
    let mut count = 0;
    for (angle, sine) in ANGLES.iter().zip(SINES) {
        *model.input_mut() = [angle.cast_signed()];
        count += usize::from(model.infer() == &[sine.cast_signed()]);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_for_the_board_gives_the_recorded_sines_here() {
        assert_eq!(sine::TARGET.name(), Some("armv7e-m"));
        assert_eq!(matches(), Ok(SINES.len()));
    }
}
