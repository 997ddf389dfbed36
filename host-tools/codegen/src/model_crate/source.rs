//! The text of a model crate's `lib.rs`.

use std::fmt::Write as _;

use kiln_core::TargetId;

use super::names::{EntryNames, Names};
use super::port::{Port, Side, lies_in_constants};
use super::{ModelCrate, text};
use crate::fit::is_spread;

/// What generated text is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// A crate's root.
    Crate,
    /// The inside of a module, where `include!` allows no attributes on the whole.
    Module,
}

impl Form {
    fn comment(self) -> &'static str {
        match self {
            Form::Crate => "//!",
            Form::Module => "//",
        }
    }

    fn attributes(self) -> &'static str {
        match self {
            Form::Crate => {
                "#![no_std]\n\
                 // Scales come as they are, even where one happens to be close to pi.\n\
                 #![allow(clippy::approx_constant)]\n"
            }
            Form::Module => "",
        }
    }
}

impl ModelCrate<'_> {
    /// The text of `lib.rs`, or of a module that has `kiln_core` and `kiln_kernels` already.
    pub(super) fn text(&self, form: Form) -> String {
        let mut names = Names::new(&self.planned.entries);
        let extents: Vec<String> = self.graph.extents.iter().map(|extent| names.extent(&extent.name)).collect();
        let names = names.entries;
        let ports = self.ports(&names);
        let mut text = String::new();
        self.head(&mut text, &names, &ports, form);
        self.constants(&mut text);
        ports.iter().for_each(|port| port.module(&mut text));
        if self.planned.shared_arena {
            self.parked(&mut text, &names, &ports, &extents);
            return text;
        }
        self.model(&mut text, &names, &ports, &extents);
        if ports.iter().any(Port::has_place) {
            text.push_str(PLACE);
        }
        if ports.iter().any(|port| port.has_place() && port.constant) {
            text.push_str(PLACE_OR_CONSTANT);
        }
        text
    }

    fn ports<'a>(&'a self, names: &'a [EntryNames]) -> Vec<Port<'a>> {
        let mut ports = Vec::new();
        let offsets = self.arena_offsets();
        for (index, (entry, names)) in self.planned.entries.iter().zip(names).enumerate() {
            let nodes = self.graph.entries.get(index);
            let sides = [(Side::Input, &entry.inputs, &names.inputs), (Side::Output, &entry.outputs, &names.outputs)];
            for (side, values, names_of_side) in sides {
                for (number, (&id, name)) in values.iter().zip(names_of_side).enumerate() {
                    ports.push(Port {
                        name,
                        entry: (&names.field, index),
                        side,
                        number,
                        value: self.graph.value(id),
                        constant: side == Side::Output && lies_in_constants(self.graph, nodes, id),
                        in_arena: offsets.get(ports.len()).copied().flatten(),
                        fed: side == Side::Input && entry.fed.is_some_and(|(fed, _)| fed == id),
                    });
                }
            }
        }
        ports
    }

    /// Documentation and imports.
    fn head(&self, out: &mut String, names: &[EntryNames], ports: &[Port<'_>], form: Form) {
        let planned = self.planned;
        let macs: u64 = planned.main_entry().map_or(0, |e| e.steps.iter().map(|s| s.cost.macs).sum());
        let runs = names.iter().any(|n| n.method.is_some());
        let imports = match planned.shared_arena {
            true => self.shared_imports(runs, ports, form),
            false => imports(runs, ports, form),
        };
        let memory = match planned.shared_arena {
            true => format!("{} bytes, shared; state: {} bytes", planned.arena_bytes, planned.state_bytes),
            false => format!("{} bytes", planned.ram_bytes),
        };
        let _ = write!(
            out,
            "{doc} The model `{name}`, planned by Kiln {version} for `{board}` ({target}).\n\
             {doc}\n\
             {doc} Arena: {memory}; constants: {constants} bytes; {macs} multiply-accumulates a run.\n\
             {doc} Written by Kiln: changes are lost when it is written again.\n\
             {attributes}\n\
             {imports}\n",
            doc = form.comment(),
            attributes = form.attributes(),
            name = text::doc(&self.graph.name),
            version = env!("CARGO_PKG_VERSION"),
            board = text::doc(self.board),
            target = target_name(planned.target),
            constants = planned.constants_bytes,
        );
    }

    /// The plan, its kernels, its memory.
    fn constants(&self, out: &mut String) {
        let planned = self.planned;
        let rows: Vec<String> = planned.kernels.iter().map(|k| format!("kiln_kernels::rows::{}", k.row_name)).collect();
        let labels: Vec<String> = self.graph.labels.iter().map(|label| format!("{label:?}")).collect();
        let labels = text::array(&labels);
        // Where lines would be filled with short ones, rustfmt is kept away.
        let skip = if labels.starts_with("[\n") { "#[rustfmt::skip]\n" } else { "" };
        let (sizes, memory) = match planned.shared_arena {
            true => self.shared_memory(),
            false => {
                let (sizes, types) = self.more_banks();
                let bytes = planned.banks.first().copied().unwrap_or(0);
                let what = match is_spread(planned) {
                    true => {
                        "in the first bank: state, and of inputs, outputs and everything between what is touched most"
                    }
                    false => "a model works in: state, inputs, outputs and everything between",
                };
                (
                    format!("/// Bytes of RAM {what}.\npub const ARENA_BYTES: usize = {bytes};\n\n{sizes}"),
                    format!("{ARENA}{types}"),
                )
            }
        };
        let _ = write!(
            out,
            "/// The plan's bytes, aligned as the core wants them.\n\
             #[repr(C, align(16))]\n\
             struct Aligned<const N: usize>([u8; N]);\n\n\
             static PLAN: Aligned<{len}> = Aligned(*include_bytes!(\"plan.bin\"));\n\n\
             /// The kernels this plan uses; no other is linked.\n\
             pub static ROWS: [Row; {count}] = {rows};\n\n\
             /// The CPU family the plan was made for.\n\
             pub const TARGET: TargetId = TargetId({target});\n\n\
             /// How many operands a step has at most.\n\
             pub const OPERANDS: usize = {operands};\n\n\
             /// How many banks of RAM it has.\n\
             pub const BANKS: usize = {banks};\n\n\
             /// How many dimensions vary at run time.\n\
             pub const EXTENTS: usize = {extents};\n\n\
             {sizes}\
             /// The names of the classes, where the model has them.\n\
             {skip}pub const LABELS: [&str; {label_count}] = {labels};\n\n\
             {memory}",
            len = planned.bytes.len(),
            rows = text::array(&rows),
            count = planned.kernels.len(),
            target = planned.target.0,
            operands = planned.operands,
            banks = planned.banks.len(),
            extents = self.graph.extents.len(),
            label_count = self.graph.labels.len(),
        );
    }

    /// The struct and its methods.
    fn model(&self, out: &mut String, names: &[EntryNames], ports: &[Port<'_>], extents: &[String]) {
        let (fed, ports): (Vec<&Port<'_>>, Vec<&Port<'_>>) = ports.iter().partition(|port| port.fed);
        let fed = |index: usize| fed.iter().find(|port| port.entry.1 == index).map(|port| port.name);
        let kept = || names.iter().filter(|n| n.method.is_some());
        out.push_str(
            "/// The model with its memory, ready to run.\npub struct Model<'a> {\n    session: Session<'a, OPERANDS, BANKS, EXTENTS>,\n",
        );
        for entry in kept() {
            let _ = writeln!(out, "    {}: Entry<'a>,", entry.field);
        }
        for port in &ports {
            let _ = writeln!(out, "    {name}: NonNull<{name}::Data>,", name = port.name);
        }
        out.push_str("}\n\n");
        if !ports.is_empty() {
            out.push_str(
                "// SAFETY: the pointers lead into memory that the session borrows or that never changes, and the\n\
                 // session is Send.\n\
                 unsafe impl Send for Model<'_> {}\n\n",
            );
        }
        let (parameters, memory) = self.given();
        let _ = write!(
            out,
            "impl<'a> Model<'a> {{\n    \
             /// Checks the plan (its checksum, its steps, the memory) and makes the model ready.\n    \
             pub fn new({parameters}) -> Result<Model<'a>, Error> {{\n        \
             let plan = Plan::load(&PLAN.0, TARGET)?;\n        \
             {memory}\n",
        );
        for (index, entry) in names.iter().enumerate() {
            let used = ports.iter().any(|port| port.entry.1 == index && port.has_place());
            if entry.method.is_some() || used {
                let _ =
                    writeln!(out, "        let {} = plan.entry({index}).ok_or(Error::Entry({index}))?;", entry.field);
            }
        }
        ports.iter().for_each(|port| port.find(out));
        let fields: Vec<&str> = kept().map(|n| n.field.as_str()).chain(ports.iter().map(|port| port.name)).collect();
        if fields.is_empty() {
            out.push_str("        Ok(Model { session })\n    }\n\n");
        } else {
            let lines: Vec<String> = fields.iter().map(|field| format!("            {field},\n")).collect();
            let _ = write!(out, "        Ok(Model {{\n            session,\n{}        }})\n    }}\n\n", lines.concat());
        }
        ports.iter().for_each(|port| port.accessors(out));
        for (index, entry) in names.iter().enumerate() {
            let outputs = ports.iter().filter(|p| p.entry.1 == index && p.side == Side::Output);
            let outputs: Vec<&str> = outputs.map(|p| p.name).collect();
            let run = format!("run_with(&self.{}, hook)", entry.field);
            run_methods(out, entry, &self.planned.entries[index].name, &outputs, fed(index), &run);
        }
        self.last_methods(out, extents);
    }

    /// The banks beside the first where the plan is spread over several: their sizes and their types.
    fn more_banks(&self) -> (String, String) {
        let (mut sizes, mut types) = (String::new(), String::new());
        for (bank, bytes) in self.banks() {
            let _ = write!(
                sizes,
                "/// Bytes of bank {bank}, in region {bank} of the board's RAM if the first is number 0.\n\
                 pub const BANK{bank}_BYTES: usize = {bytes};\n\n"
            );
            let _ = write!(
                types,
                "/// Memory for bank {bank}.\npub type Bank{bank} = kiln_core::Bank<BANK{bank}_BYTES>;\n\n"
            );
        }
        (sizes, types)
    }

    fn banks(&self) -> impl Iterator<Item = (usize, u64)> {
        let several = is_spread(self.planned);
        self.planned.banks.iter().copied().enumerate().skip(1).filter(move |_| several)
    }

    /// The parameters of `new`, and the statement that makes a session of them.
    fn given(&self) -> (String, String) {
        if self.banks().next().is_none() {
            let memory = "let session = Session::bounded(plan, &ROWS, &mut arena.0[..])?;";
            return ("arena: &'a mut Arena".to_owned(), memory.to_owned());
        }
        let (mut parameters, mut list) = (vec!["arena: &'a mut Arena".to_owned()], "&mut arena.0[..]".to_owned());
        for (bank, _) in self.banks() {
            parameters.push(format!("bank{bank}: &'a mut Bank{bank}"));
            let _ = write!(list, ", bank{bank}.bytes_mut()");
        }
        // On one line only as far as rustfmt has them so.
        let parameters = match &parameters[..] {
            [_, _] => parameters.join(", "),
            more => more.iter().map(|one| format!("\n        {one},")).collect::<String>() + "\n    ",
        };
        let memory = format!("let memory = [{list}];\n        let session = Session::bounded(plan, &ROWS, memory)?;");
        (parameters, memory)
    }

    /// The methods that are the same wherever a model's memory lies, and the end of their block.
    pub(super) fn last_methods(&self, out: &mut String, extents: &[String]) {
        for (index, (extent, method)) in self.graph.extents.iter().zip(extents).enumerate() {
            let _ = write!(
                out,
                "    /// Sets the dimension `{title}` for the runs that follow: 1 to {max}, which it is until then.\n    \
                 pub fn {method}(&mut self, value: u32) -> Result<(), Error> {{\n        \
                 self.session.set_extent({index}, value)\n    }}\n\n",
                title = text::doc(&extent.name),
                max = extent.max,
            );
        }
        out.push_str(
            "    /// Back to the beginning: state as before the first run.\n    \
             pub fn reset(&mut self) {\n        self.session.reset();\n    }\n\n    \
             /// The session, for what this struct has no method for.\n    \
             pub fn session(&self) -> &Session<'a, OPERANDS, BANKS, EXTENTS> {\n        &self.session\n    }\n}\n",
        );
    }
}

/// The imports of a crate whose arena is its own.
fn imports(runs: bool, ports: &[Port<'_>], form: Form) -> String {
    let mut imports = String::new();
    if !ports.is_empty() {
        imports.push_str("use core::ptr::NonNull;\n\n");
    }
    if form == Form::Crate {
        imports.push_str("pub use kiln_core;\n");
    }
    let places = ports.iter().any(Port::has_place);
    match (runs, places) {
        (true, true) => imports.push_str("use kiln_core::plan::{Entry, TensorRecord};\n"),
        (true, false) => imports.push_str("use kiln_core::plan::Entry;\n"),
        (false, true) => imports.push_str("use kiln_core::plan::TensorRecord;\n"),
        (false, false) => {}
    }
    if ports.iter().any(|port| port.has_place() && port.constant) {
        imports.push_str("use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};\n");
    } else if places {
        imports.push_str("use kiln_core::zerocopy::{FromBytes, IntoBytes};\n");
    }
    let feed = if ports.iter().any(|port| port.fed) { "FeedAnd, " } else { "" };
    let hook = if runs { "Hook, " } else { "" };
    let _ = writeln!(imports, "use kiln_core::{{Error, {feed}{hook}Plan, Row, Session, TargetId}};");
    imports
}

const ARENA: &str = "/// The memory a model works in.
#[repr(C, align(16))]
pub struct Arena([u8; ARENA_BYTES]);

impl Arena {
    /// Zeroed memory.
    pub const fn new() -> Arena {
        Arena([0; ARENA_BYTES])
    }
}

impl Default for Arena {
    fn default() -> Arena {
        Arena::new()
    }
}

";

/// The methods that run an entry, by calling `run` of the session.
pub(super) fn run_methods(
    out: &mut String,
    entry: &EntryNames,
    title: &str,
    outputs: &[&str],
    fed: Option<&str>,
    run: &str,
) {
    let Some(name) = &entry.method else { return };
    let title = text::doc(title);
    let (about, parameter, rows, both) = match fed {
        Some(input) => (
            format!(
                "Runs `{title}`, whose input [`{input}`] is nowhere whole: `rows` fills what it is given with the elements that \
                 come\n    /// next, until the run has asked for all it needs.\n    "
            ),
            ", rows: impl FnMut(&mut [i8])",
            "rows, ",
            "        let hook = &mut FeedAnd(rows, hook);\n",
        ),
        None => (format!("Runs `{title}`.\n    "), "", "", ""),
    };
    let (result, give) = match outputs {
        [one] => (format!(" -> &{one}::Data"), format!("        self.{one}()\n")),
        _ => (String::new(), String::new()),
    };
    let fed_too = if fed.is_some() { ", fed by `rows`," } else { "" };
    let end = if outputs.len() == 1 { "" } else { ";" };
    let _ = write!(
        out,
        "    /// {about}\
         pub fn {name}(&mut self{parameter}){result} {{\n        self.{name}_with({rows}&mut ()){end}\n    }}\n\n    \
         /// Runs `{title}`{fed_too} and calls `hook` after each step: to pet a watchdog, to see what a layer produced.\n    \
         pub fn {name}_with<H: Hook>(&mut self{parameter}, hook: &mut H){result} {{\n{both}        \
         self.session.{run};\n{give}    }}\n\n",
    );
}

const PLACE: &str = "
/// Where a tensor lies in the arena; `entry` is the one it belongs to.
fn place<T: FromBytes + IntoBytes, const N: usize>(
    session: &Session<'_, OPERANDS, BANKS, EXTENTS>,
    tensor: Option<&TensorRecord>,
    entry: u16,
) -> Result<NonNull<[T; N]>, Error> {
    let found = tensor.and_then(|tensor| session.array(tensor));
    found.ok_or(Error::Entry(entry))
}
";

const PLACE_OR_CONSTANT: &str = "
/// Where a tensor lies that is never written: it may be one of the plan's constants.
fn place_or_constant<T: FromBytes + IntoBytes + Immutable + KnownLayout, const N: usize>(
    session: &Session<'_, OPERANDS, BANKS, EXTENTS>,
    tensor: Option<&TensorRecord>,
    entry: u16,
) -> Result<NonNull<[T; N]>, Error> {
    let bytes = tensor.map_or(&[][..], |tensor| session.bytes(tensor));
    match <[T; N]>::ref_from_bytes(bytes) {
        Ok(constant) => place(session, tensor, entry).or(Ok(NonNull::from(constant))),
        Err(_) => Err(Error::Entry(entry)),
    }
}
";

fn target_name(target: TargetId) -> &'static str {
    target.name().unwrap_or("unknown")
}
