//! The glue between a model's crate and replay firmware.

use kiln_planner::Planned;

use super::names::Names;

/// Items that define `model()` for firmware that replays the plan's main entry; `None` where the
/// plan has no entry. They expect `Replay` in scope, and `platform`, Kiln's crate for the board.
pub fn replay_glue(planned: &Planned, package: &str) -> Option<String> {
    let main = planned.main_entry()?;
    let index = planned.entries.iter().position(|entry| std::ptr::eq(entry, main))?;
    let names = Names::new(&planned.entries).entries.into_iter().nth(index)?;
    let krate = package.replace('-', "_");
    let (run, run_dumping) = match &names.method {
        Some(run) => (
            format!("{run}()"),
            format!("{run}_with(&mut |done: &{krate}::kiln_core::Done<'_>| sink(done.index, done.output(0)))"),
        ),
        None => ("reset()".to_owned(), "reset()".to_owned()),
    };
    let arms = |ports: &[String], view: &str| -> String {
        let one = |(number, name): (usize, &String)| format!("                {number} => self.0.{name}{view},\n");
        ports.iter().enumerate().map(one).collect()
    };
    Some(format!(
        r#"    use {krate}::kiln_core::zerocopy::IntoBytes;
    use {krate}::{{Arena, Model}};

    static mut ARENA: Arena = Arena::new();

    struct Replayed(Model<'static>);

    impl Replay for Replayed {{
        fn input_count(&self) -> usize {{
            {inputs}
        }}
        fn input(&mut self, index: usize) -> &mut [u8] {{
            match index {{
{input_arms}                _ => &mut [],
            }}
        }}
        fn output_count(&self) -> usize {{
            {outputs}
        }}
        fn output(&self, index: usize) -> &[u8] {{
            match index {{
{output_arms}                _ => &[],
            }}
        }}
        fn run(&mut self) {{
            self.0.{run};
        }}
        fn run_dumping(&mut self, sink: &mut dyn FnMut(u32, &[u8])) {{
            self.0.{run_dumping};
        }}
    }}

    fn model() -> impl Replay {{
        // SAFETY: called once, at start-up, so this is the only reference there ever is.
        let arena = unsafe {{ &mut *core::ptr::addr_of_mut!(ARENA) }};
        match Model::new(arena) {{
            Ok(model) => Replayed(model),
            Err(_) => platform::exit(platform::Exit::Model),
        }}
    }}
"#,
        inputs = names.inputs.len(),
        outputs = names.outputs.len(),
        input_arms = arms(&names.inputs, "_mut().as_mut_bytes()"),
        output_arms = arms(&names.outputs, "().as_bytes()"),
    ))
}
