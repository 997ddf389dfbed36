//! The glue between a model's crate and replay firmware.

use std::fmt::Write as _;

use kiln_planner::Planned;

use super::names::Names;
use crate::fit::is_spread;
use crate::platform::bank_section;

/// Items that define `model()` for firmware that replays the plan's main entry, and `setup()` for firmware that
/// profiles it; `None` where the plan has no entry. They expect `Replay` and `Setup` in scope, and `platform`,
/// Kiln's crate for the board.
pub fn replay_glue(planned: &Planned, package: &str) -> Option<String> {
    let main = planned.main_entry()?;
    let index = planned.entries.iter().position(|entry| std::ptr::eq(entry, main))?;
    let names = Names::new(&planned.entries).entries.into_iter().nth(index)?;
    let krate = package.replace('-', "_");
    let (bank_statics, banks) = banks(planned, &krate);
    let fed = main.fed_input();
    let dump = format!("&mut |done: &{krate}::kiln_core::Done<'_>| sink(done.index, done.output(0))");
    let (run, run_dumping) = match &names.method {
        Some(run) if fed.is_some() => {
            (format!("{run}(feeding(self.1))"), format!("{run}_with(feeding(self.1), {dump})"))
        }
        Some(run) => (format!("{run}()"), format!("{run}_with({dump})")),
        None => ("reset()".to_owned(), "reset()".to_owned()),
    };
    let arms = |ports: &[String], view: &str, fed: Option<usize>| -> String {
        let one = |(number, name): (usize, &String)| match fed == Some(number) {
            true => format!("                {number} => self.1,\n"),
            false => format!("                {number} => self.0.{name}{view},\n"),
        };
        ports.iter().enumerate().map(one).collect()
    };
    // An input that is fed lies beside the arena here, whole, as it would in a file.
    let (held, holds, feeding) = match fed.and_then(|index| names.inputs.get(index)) {
        Some(input) => (
            ", &'static mut [u8]",
            ", fed()",
            format!(
                r#"
    fn fed() -> &'static mut [u8] {{
        static mut FED: [u8; size_of::<{krate}::{input}::Data>()] = [0; size_of::<{krate}::{input}::Data>()];
        // SAFETY: one model is set up at a time, at start-up, and only it has this.
        unsafe {{ &mut *core::ptr::addr_of_mut!(FED) }}
    }}

    fn feeding(mut rest: &[u8]) -> impl FnMut(&mut [i8]) {{
        move |rows| {{
            for (to, &from) in rows.iter_mut().zip(rest) {{
                *to = from as i8;
                // Or the compiler's `memcpy` would count as the model's, which a sensor's rows do not come by.
                core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
            }}
            rest = rest.get(rows.len()..).unwrap_or(&[]);
        }}
    }}
"#
            ),
        ),
        None => ("", "", String::new()),
    };

    Some(format!(
        r#"    use {krate}::kiln_core::zerocopy::IntoBytes;
    use {krate}::{{ARENA_BYTES, Arena, Model}};

    static mut ARENA: Arena = Arena::new();
{bank_statics}
    struct Replayed<'a>(Model<'a>{held});
{feeding}
    impl Replay for Replayed<'_> {{
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

    struct InArena(&'static mut Arena);

    impl Setup for InArena {{
        fn arena(&mut self) -> &mut [u8] {{
            let bytes = core::ptr::from_mut(&mut *self.0).cast::<u8>();
            // SAFETY: an arena is an array of so many bytes, borrowed as long as the slice; all values are good.
            unsafe {{ core::slice::from_raw_parts_mut(bytes, ARENA_BYTES) }}
        }}
        fn set_up(&mut self) -> impl Replay {{
            set_up(self.0)
        }}
    }}

    // Kept out of the replay loop, so that the code a model needs can be told from the firmware's own.
    #[inline(never)]
    fn set_up(arena: &mut Arena) -> Replayed<'_> {{
        match Model::new(arena{banks}) {{
            Ok(model) => Replayed(model{holds}),
            Err(_) => platform::exit(platform::Exit::Model),
        }}
    }}

    fn model() -> impl Replay {{
        set_up(setup().0)
    }}

    fn setup() -> InArena {{
        // SAFETY: `model` or this is called once, at start-up, so this is the only reference there ever is.
        InArena(unsafe {{ &mut *core::ptr::addr_of_mut!(ARENA) }})
    }}
"#,
        inputs = names.inputs.len(),
        outputs = names.outputs.len(),
        input_arms = arms(&names.inputs, "_mut().as_mut_bytes()", fed),
        output_arms = arms(&names.outputs, "().as_bytes()", None),
    ))
}

/// The statics of banks beside the first, and how they are handed over.
fn banks(planned: &Planned, krate: &str) -> (String, String) {
    let (mut statics, mut arguments) = (String::new(), String::new());
    if !is_spread(planned) {
        return (statics, arguments);
    }
    for bank in 1..planned.banks.len() {
        let section = bank_section(bank);
        let _ = write!(
            statics,
            r#"
    // Start-up code does not clear it.
    #[unsafe(link_section = "{section}")]
    static mut BANK{bank}: core::mem::MaybeUninit<{krate}::Bank{bank}> = core::mem::MaybeUninit::uninit();

    fn bank{bank}() -> &'static mut {krate}::Bank{bank} {{
        // SAFETY: it is called once, at start-up, so this is the only reference there ever is; zeros are a bank.
        unsafe {{
            let bank = &mut *core::ptr::addr_of_mut!(BANK{bank});
            bank.as_mut_ptr().write_bytes(0, 1);
            bank.assume_init_mut()
        }}
    }}
"#
        );
        let _ = write!(arguments, ", bank{bank}()");
    }
    (statics, arguments)
}
