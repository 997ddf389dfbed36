//! Firmware that measures its own stack: what the computed figures are held against.

/// The function of painted firmware that runs the model, for [`stack_of`](super::stack_of).
pub const PAINTED_RUN: &str = "glue::painted_run";
/// The function that sets it up.
pub const PAINTED_SET_UP: &str = "glue::painted_set_up";

/// Bytes that the outputs of painted firmware have: two little-endian `u32`, the bytes of stack that
/// [`PAINTED_RUN`] and [`PAINTED_SET_UP`] used.
pub const PAINTED_OUTPUT: usize = 8;

/// Turns the glue of replay firmware for Cortex-M or RISC-V into that of firmware which paints its stack before it
/// sets up and before it runs the model, and puts out what was overwritten. Less than about 200 bytes can't be told.
pub fn painted(glue: &str) -> String {
    glue.replace("fn model() -> impl Replay {", "fn replayed() -> impl Replay {")
        + r#"
    struct Painted<M> {
        model: M,
        used: [u8; 8],
    }

    #[inline(never)]
    fn painted_run<M: Replay>(model: &mut M) {
        model.run();
    }

    #[inline(never)]
    fn painted_set_up() -> impl Replay {
        replayed()
    }

    fn model() -> impl Replay {
        platform::stack::paint();
        let before = platform::stack::in_use();
        let model = painted_set_up();
        let bytes = platform::stack::used().wrapping_sub(before) as u32;
        let mut used = [0; 8];
        if let Some(place) = used.last_chunk_mut() {
            *place = bytes.to_le_bytes();
        }
        Painted { model, used }
    }

    impl<M: Replay> Replay for Painted<M> {
        fn input_count(&self) -> usize {
            self.model.input_count()
        }
        fn input(&mut self, index: usize) -> &mut [u8] {
            self.model.input(index)
        }
        fn output_count(&self) -> usize {
            1
        }
        fn output(&self, _: usize) -> &[u8] {
            &self.used
        }
        fn run(&mut self) {
            platform::stack::paint();
            let before = platform::stack::in_use();
            painted_run(&mut self.model);
            let bytes = platform::stack::used().wrapping_sub(before) as u32;
            if let Some(place) = self.used.first_chunk_mut() {
                *place = bytes.to_le_bytes();
            }
        }
        fn run_dumping(&mut self, _: &mut dyn FnMut(u32, &[u8])) {}
    }
"#
}
