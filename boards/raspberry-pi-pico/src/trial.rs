//! One run of the model `sine` on a ramp, and whether it gave what the computer that built this computed.
//! Written by Kiln: `kiln flash` writes it anew for every model.
//!
//! Nothing here is inlined into `main`, so that Kiln's part of the firmware can be told from the HAL's: a check
//! proves that none of it can panic.

use model::kiln_core::zerocopy::IntoBytes;
use model::kiln_core::{Error, Hook};
use model::{Arena, Model};

/// The CPU's clock in Hz, from the board's file.
pub const CLOCK_HZ: u32 = 133_000_000;

/// The outputs for the ramp, one after another.
static EXPECTED: [u8; 1] = *include_bytes!("expected.bin");

/// A byte of the outputs that is not as expected.
#[derive(Clone, Copy)]
pub struct Difference {
    /// Which byte of all outputs, from 0.
    pub at: usize,
    /// What the model gave.
    pub found: u8,
    /// What it should have given.
    pub expected: u8,
}

/// The model, checked and ready.
#[inline(never)]
pub fn model(arena: &'static mut Arena) -> Result<Model<'static>, Error> {
    Model::new(arena)
}

/// Forgets what earlier runs left and fills the inputs, whose memory every run uses again.
#[inline(never)]
pub fn fill(model: &mut Model<'_>) {
    model.reset();
    ramp(model.input_mut().as_mut_bytes());
}

/// Runs the model, calling the hook after each step.
#[inline(never)]
pub fn run(model: &mut Model<'_>, hook: &mut impl Hook) {
    model.infer_with(hook);
}

/// The first byte of the outputs that is not as expected.
#[inline(never)]
pub fn difference(model: &Model<'_>) -> Option<Difference> {
    let outputs: [&[u8]; 1] = [model.output().as_bytes()];
    let mut pairs = outputs.into_iter().flatten().zip(&EXPECTED).enumerate();
    let (at, (&found, &expected)) = pairs.find(|(_, (found, expected))| found != expected)?;
    Some(Difference { at, found, expected })
}

/// Byte i is i mod 256 - 128.
fn ramp(bytes: &mut [u8]) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (i as u8).wrapping_sub(128);
    }
}
