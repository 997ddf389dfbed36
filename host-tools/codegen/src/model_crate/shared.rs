//! The text of a model crate whose arena other models use too: `Parked`, which keeps the state, and `Model`, which is that
//! in an arena.

use std::fmt::Write as _;

use kiln_core::plan::{Plan, TensorRecord};
use kiln_target_host::AlignedBytes;

use super::ModelCrate;
use super::names::EntryNames;
use super::port::{Port, Side};
use super::source::{Form, run_methods};

impl ModelCrate<'_> {
    /// The offsets in the arena of inputs and outputs, entry after entry; `None` for those elsewhere. Empty where the arena
    /// is not shared: then the crate asks its plan.
    pub(super) fn arena_offsets(&self) -> Vec<Option<u64>> {
        if !self.planned.shared_arena {
            return Vec::new();
        }
        let bytes = AlignedBytes::copy_of(&self.planned.bytes);
        // The planner's own plans load; of one that did not, the crate would say so in its `new`.
        let Ok(plan) = Plan::load_any_target(bytes.as_ref()) else { return Vec::new() };
        let (bank, base) = self.planned.arena_base;
        let offset = |tensor: &TensorRecord| (tensor.place.bank() == bank).then(|| tensor.place.offset() - base);
        let entries = (0..plan.entry_count()).filter_map(|index| plan.entry(index));
        entries.flat_map(|entry| entry.inputs.iter().chain(entry.outputs)).map(offset).collect()
    }

    /// What a crate imports.
    pub(super) fn shared_imports(&self, runs: bool, ports: &[Port<'_>], form: Form) -> String {
        let mut imports = String::new();
        let kept = ports.iter().any(Port::is_kept);
        if kept {
            imports.push_str("use core::ptr::NonNull;\n\n");
        }
        if form == Form::Crate {
            imports.push_str("pub use kiln_core;\n");
        }
        if kept {
            imports.push_str("use kiln_core::plan::TensorRecord;\nuse kiln_core::zerocopy::{FromBytes, IntoBytes};\n");
        }
        let hook = if runs { "Hook, " } else { "" };
        let memory = if self.planned.state_bytes == 0 { "Memory, " } else { "" };
        let _ =
            writeln!(imports, "use kiln_core::{{Attached, Bank, Error, {hook}{memory}Plan, Row, Session, TargetId}};");
        imports
    }

    /// The constants about memory, and its types.
    pub(super) fn shared_memory(&self) -> (String, String) {
        let (arena, state) = (self.planned.arena_bytes, self.planned.state_bytes);
        let sizes = format!(
            "/// Bytes of the arena, which models can share: inputs, outputs and everything between.\n\
             pub const ARENA_BYTES: usize = {arena};\n\n\
             /// Bytes of state, which the model keeps.\n\
             pub const STATE_BYTES: usize = {state};\n\n"
        );
        let mut memory = "/// An arena for this model. Models that share one share the largest:\n\
             /// `Bank<{ largest([one::ARENA_BYTES, other::ARENA_BYTES]) }>`, both of `kiln_core`.\n\
             pub type Arena = Bank<ARENA_BYTES>;\n\n"
            .to_owned();
        if state > 0 {
            memory.push_str("/// What the model keeps from run to run.\npub type State = Bank<STATE_BYTES>;\n\n");
        }
        (sizes, memory)
    }

    /// Both structs and their methods.
    pub(super) fn parked(&self, out: &mut String, names: &[EntryNames], ports: &[Port<'_>], extents: &[String]) {
        let kept: Vec<&Port<'_>> = ports.iter().filter(|port| port.is_kept()).collect();
        let fields: String =
            kept.iter().map(|port| format!("    {name}: NonNull<{name}::Data>,\n", name = port.name)).collect();
        let send = |of: &str| match kept.is_empty() {
            true => String::new(),
            false => format!(
                "// SAFETY: the pointers lead into memory that the session borrows or that never changes, and the\n\
                 // session is Send.\n\
                 unsafe impl Send for {of}<'_> {{}}\n\n"
            ),
        };
        let (parameters, given) = match self.planned.state_bytes {
            0 => ("arena: &mut Bank<N>", "Memory::empty()"),
            _ => ("\n        state: &'a mut State,\n        arena: &mut Bank<N>,\n    ", "state"),
        };
        let _ = write!(
            out,
            "/// The model between its turns: its state, and its plan, which was checked.\n\
             pub struct Parked<'a> {{\n    session: kiln_core::Parked<'a, ARENA_BYTES, OPERANDS, BANKS, EXTENTS>,\n{fields}}}\n\n\
             {send}\
             impl<'a> Parked<'a> {{\n    \
             /// Checks the plan (its checksum, its steps, the memory), makes the state ready and gives the arena back.\n    \
             pub fn new<const N: usize>({parameters}) -> Result<Parked<'a>, Error> {{\n        \
             let plan = Plan::load(&PLAN.0, TARGET)?;\n        \
             let session = kiln_core::Parked::new(plan, &ROWS, {given}, arena.bytes_mut())?;\n",
            send = send("Parked"),
        );
        for (index, entry) in names.iter().enumerate() {
            if kept.iter().any(|port| port.entry.1 == index) {
                let _ =
                    writeln!(out, "        let {} = plan.entry({index}).ok_or(Error::Entry({index}))?;", entry.field);
            }
        }
        kept.iter().for_each(|port| port.find_kept(out));
        // Short literals stay on a line, as rustfmt has them.
        let all = |first: &str, from: &str, short: bool| -> String {
            if short && kept.is_empty() {
                return format!("{{ {first} }}");
            }
            let one = |port: &&Port<'_>| match from {
                "" => format!("            {},\n", port.name),
                _ => format!("            {name}: {from}{name},\n", name = port.name),
            };
            format!("{{\n            {first},\n{}        }}", kept.iter().map(one).collect::<String>())
        };
        let _ = write!(
            out,
            "        Ok(Parked {parked})\n    }}\n\n    \
             /// The model in an arena: its inputs to fill, its runs, its outputs. The arena is free again when the result is\n    \
             /// not used any more; one that is too small does not compile.\n    \
             pub fn attach<'s, const N: usize>(&'s mut self, arena: &'s mut Bank<N>) -> Model<'s> {{\n        \
             Model {attached}\n    }}\n\n    \
             /// The same in memory whose size and alignment are not in its type, and are tested.\n    \
             pub fn attach_bytes<'s>(&'s mut self, arena: &'s mut [u8]) -> Result<Model<'s>, Error> {{\n        \
             let session = self.session.attach_bytes(arena)?;\n        \
             Ok(Model {tested})\n    }}\n}}\n\n\
             /// The model in an arena, ready to run.\n\
             pub struct Model<'a> {{\n    session: Attached<'a, ARENA_BYTES, OPERANDS, BANKS, EXTENTS>,\n{fields}}}\n\n\
             {send}\
             impl<'a> Model<'a> {{\n",
            parked = all("session", "", true),
            attached = all("session: self.session.attach(arena)", "self.", false),
            tested = all("session", "self.", true),
            send = send("Model"),
        );
        ports.iter().for_each(|port| port.turn_accessors(out));
        for (index, entry) in names.iter().enumerate() {
            let outputs = ports.iter().filter(|p| p.entry.1 == index && p.side == Side::Output);
            let outputs: Vec<&str> = outputs.map(|p| p.name).collect();
            let run = format!("run_entry_with({index}, hook)");
            run_methods(out, entry, &self.planned.entries[index].name, &outputs, None, &run);
        }
        self.last_methods(out, extents);
        if !kept.is_empty() {
            out.push_str(KEPT);
        }
    }
}

const KEPT: &str = "
/// Where a tensor lies outside the arena; `entry` is the one it belongs to.
fn kept<T: FromBytes + IntoBytes, const N: usize>(
    session: &kiln_core::Parked<'_, ARENA_BYTES, OPERANDS, BANKS, EXTENTS>,
    tensor: Option<&TensorRecord>,
    entry: u16,
) -> Result<NonNull<[T; N]>, Error> {
    let found = tensor.and_then(|tensor| session.kept_array(tensor));
    found.ok_or(Error::Entry(entry))
}
";
