//! The part of a board's firmware that depends on its model: one run on a ramp, compared with what this
//! computer computed.

use kiln_core::DType;
use kiln_planner::Planned;
use kiln_planner::graph::Graph;

use super::names::Names;
use super::text;

/// The module `trial` of firmware whose model's crate is called `model`, for the plan's main entry; `None` where
/// the plan has none but `reset`. It includes `expected.bin`: the outputs of a [`Ramp`](crate::ramp::Ramp).
pub fn trial_source(graph: &Graph, planned: &Planned, clock_hz: u32) -> Option<String> {
    let main = planned.main_entry()?;
    let index = planned.entries.iter().position(|entry| std::ptr::eq(entry, main))?;
    let names = Names::new(&planned.entries).entries.into_iter().nth(index)?;
    let expected: u64 = main.outputs.iter().map(|&id| graph.value(id).ty.bytes().unwrap_or(0)).sum();

    let fed = main.fed_input();
    let whole = names.inputs.iter().enumerate().filter(|(number, _)| fed != Some(*number));
    let float = |number: usize| main.inputs.get(number).is_some_and(|&id| graph.value(id).ty.dtype == DType::F32);
    let (floats, others): (Vec<_>, Vec<_>) = whole.partition(|(number, _)| float(*number));
    let mut inputs: String =
        others.iter().map(|(_, name)| format!("    ramp(model.{name}_mut().as_mut_bytes());\n")).collect();
    floats.iter().for_each(|(_, name)| inputs += &format!("    ramp_f32(model.{name}_mut());\n"));
    let outputs: Vec<String> = names.outputs.iter().map(|name| format!("model.{name}().as_bytes()")).collect();
    // An entry without a method is `reset`: to set up a state is nothing that could be tried.
    let run = names.method.as_ref()?;
    let bytes =
        if others.is_empty() && outputs.is_empty() { "" } else { "use model::kiln_core::zerocopy::IntoBytes;\n" };
    let ramp = if others.is_empty() { "" } else { RAMP };
    let ramp_f32 = if floats.is_empty() { "" } else { RAMP_F32 };
    let (rows, ramp_rows) = if fed.is_some() { ("ramp_rows(), ", RAMP_ROWS) } else { ("", "") };
    Some(format!(
        r#"//! One run of the model `{title}` on a ramp, and whether it gave what the computer that built this computed.
//! Written by Kiln: `kiln flash` writes it anew for every model.
//!
//! Nothing here is inlined into `main`, so that Kiln's part of the firmware can be told from the HAL's: a check
//! proves that none of it can panic.

{bytes}use model::kiln_core::{{Error, Hook}};
use model::{{Arena, Model}};

/// The CPU's clock in Hz, from the board's file.
pub const CLOCK_HZ: u32 = {clock};

/// The outputs for the ramp, one after another.
static EXPECTED: [u8; {expected}] = *include_bytes!("expected.bin");

/// A byte of the outputs that is not as expected.
#[derive(Clone, Copy)]
pub struct Difference {{
    /// Which byte of all outputs, from 0.
    pub at: usize,
    /// What the model gave.
    pub found: u8,
    /// What it should have given.
    pub expected: u8,
}}

/// The model, checked and ready.
#[inline(never)]
pub fn model(arena: &'static mut Arena) -> Result<Model<'static>, Error> {{
    Model::new(arena)
}}

/// Forgets what earlier runs left and fills the inputs, whose memory every run uses again.
#[inline(never)]
pub fn fill(model: &mut Model<'_>) {{
    model.reset();
{inputs}}}

/// Runs the model, calling the hook after each step.
#[inline(never)]
pub fn run(model: &mut Model<'_>, hook: &mut impl Hook) {{
    model.{run}_with({rows}hook);
}}

/// The first byte of the outputs that is not as expected.
#[inline(never)]
pub fn difference({model}: &Model<'_>) -> Option<Difference> {{
    let outputs: [&[u8]; {count}] = {outputs};
    let mut pairs = outputs.into_iter().flatten().zip(&EXPECTED).enumerate();
    let (at, (&found, &expected)) = pairs.find(|(_, (found, expected))| found != expected)?;
    Some(Difference {{ at, found, expected }})
}}
{ramp}{ramp_f32}{ramp_rows}"#,
        title = text::doc(&graph.name),
        clock = grouped(clock_hz),
        count = outputs.len(),
        model = if outputs.is_empty() { "_" } else { "model" },
        outputs = text::array(&outputs).replace('\n', "\n    "),
    ))
}

const RAMP: &str = "
/// Byte i is i mod 256 - 128.
fn ramp(bytes: &mut [u8]) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (i as u8).wrapping_sub(128);
    }
}
";

const RAMP_F32: &str = "
/// Element i is (i mod 256 - 128) / 128.
fn ramp_f32(elements: &mut [f32]) {
    for (i, element) in elements.iter_mut().enumerate() {
        *element = f32::from((i as u8).wrapping_sub(128) as i8) / 128.0;
    }
}
";

const RAMP_ROWS: &str = "
/// The same by rows: what is filled goes on where the rows before it ended.
fn ramp_rows() -> impl FnMut(&mut [i8]) {
    let mut next = i8::MIN;
    move |rows| {
        for to in rows {
            *to = next;
            next = next.wrapping_add(1);
        }
    }
}
";

/// A number as Rust writes long ones: 120_000_000.
fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let start = |i: usize| i > 0 && (digits.len() - i).is_multiple_of(3);
    digits.char_indices().flat_map(|(i, c)| start(i).then_some('_').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_grouped_from_the_right() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1_000"), (120_000_000, "120_000_000")] {
            assert_eq!(grouped(number), text);
        }
    }
}
