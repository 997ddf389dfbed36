//! Writes a plan as a `no_std` Rust crate with a typed face.
//!
//! The crate holds the plan's bytes unchanged (`plan.bin`), the list of kernels they name, and a
//! struct whose methods know the entries' inputs and outputs by type. `docs/generated-crate.md`
//! freezes what the generated code looks like from outside.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use kiln_core::{DType, TargetId};
use kiln_planner::graph::{Graph, ValueId};
use kiln_planner::{Planned, PlannedEntry};

/// A model crate that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ModelCrateError {
    /// A file could not be written.
    #[error("cannot write {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What a model crate is made of.
pub struct ModelCrate<'a> {
    /// The graph that was planned.
    pub graph: &'a Graph,
    /// Its plan.
    pub planned: &'a Planned,
    /// The board it was planned for, for the documentation.
    pub board: &'a str,
    /// The root of Kiln's source tree.
    pub sources: &'a Path,
}

/// The files of a model crate, relative to its directory.
pub struct Files {
    /// `Cargo.toml`.
    pub manifest: String,
    /// `src/lib.rs`.
    pub lib: String,
    /// `src/plan.bin`.
    pub plan: Vec<u8>,
}

impl ModelCrate<'_> {
    /// The package's name: the model's, as Cargo allows it.
    pub fn package(&self) -> String {
        package_name(&self.graph.name)
    }

    /// Writes the crate into `directory`, which is made where it is missing. Files that already
    /// are as they should be are left alone, so that Cargo does not build them anew.
    pub fn write(&self, directory: &Path) -> Result<(), ModelCrateError> {
        let files = self.files();
        let source = directory.join("src");
        fs::create_dir_all(&source).map_err(|source_error| file_error(&source, source_error))?;
        write_if_changed(&directory.join("Cargo.toml"), files.manifest.as_bytes())?;
        write_if_changed(&source.join("lib.rs"), files.lib.as_bytes())?;
        write_if_changed(&source.join("plan.bin"), &files.plan)
    }

    /// The crate's files.
    pub fn files(&self) -> Files {
        Files { manifest: self.manifest(), lib: self.lib(), plan: self.planned.bytes.clone() }
    }

    fn manifest(&self) -> String {
        let path = |part: &str| format!("{:?}", self.sources.join(part).display().to_string());
        format!(
            "# Written by Kiln.\n\
             [package]\n\
             name = \"{name}\"\n\
             description = \"The model {name}, planned for {board}\"\n\
             version = \"0.1.0\"\n\
             edition = \"2024\"\n\
             publish = false\n\n\
             [dependencies]\n\
             # The executor and the kernels the plan names.\n\
             kiln-core = {{ path = {core} }}\n\
             kiln-kernels = {{ path = {kernels} }}\n",
            name = self.package(),
            board = self.board,
            core = path("core"),
            kernels = path("kernels"),
        )
    }

    fn lib(&self) -> String {
        let mut text = String::new();
        self.head(&mut text);
        for (index, entry) in self.planned.entries.iter().enumerate() {
            for (direction, values) in [("Input", &entry.inputs), ("Output", &entry.outputs)] {
                for (number, &id) in values.iter().enumerate() {
                    let module = port(entry, direction, number, values.len());
                    self.describe(&mut text, &module, direction, id);
                }
            }
            let _ = index;
        }
        self.model(&mut text);
        text
    }

    fn head(&self, text: &mut String) {
        let planned = self.planned;
        let rows: Vec<String> =
            planned.kernels.iter().map(|k| format!("    kiln_kernels::rows::{},\n", k.row_name)).collect();
        let macs: u64 = planned.main_entry().map_or(0, |e| e.steps.iter().map(|s| s.cost.macs).sum());
        let _ = write!(
            text,
            "//! The model `{name}`, planned by Kiln {version} for {board} ({target}).\n\
             //!\n\
             //! Arena: {arena} bytes; constants: {constants} bytes; {macs} multiply-accumulates a run.\n\
             //! Written by Kiln: changes are lost when it is written again.\n\
             #![no_std]\n\n\
             pub use kiln_core;\n\
             use kiln_core::{{Error, Hook, Plan, Row, Session, TargetId, plan::Entry}};\n\n\
             /// The plan's bytes, aligned as the core wants them.\n\
             #[repr(C, align(16))]\n\
             struct Aligned<const N: usize>([u8; N]);\n\n\
             static PLAN: Aligned<{len}> = Aligned(*include_bytes!(\"plan.bin\"));\n\n\
             /// The kernels this plan uses; no other is linked.\n\
             pub static ROWS: [Row; {count}] = [\n{rows}];\n\n\
             /// The CPU family the plan was made for.\n\
             pub const TARGET: TargetId = TargetId({target_number});\n\n\
             /// Bytes of RAM a model works in: state, inputs, outputs and everything between.\n\
             pub const ARENA_BYTES: usize = {arena};\n\n\
             /// The names of the classes, where the model has them.\n\
             pub const LABELS: [&str; {label_count}] = {labels:?};\n\n\
             /// The memory a model works in.\n\
             #[repr(C, align(16))]\n\
             pub struct Arena([u8; ARENA_BYTES]);\n\n\
             impl Arena {{\n    \
                 /// Zeroed memory.\n    \
                 pub const fn new() -> Arena {{\n        Arena([0; ARENA_BYTES])\n    }}\n}}\n\n\
             impl Default for Arena {{\n    fn default() -> Arena {{\n        Arena::new()\n    }}\n}}\n\n",
            name = plain(&self.graph.name),
            version = env!("CARGO_PKG_VERSION"),
            board = plain(self.board),
            target = target_name(planned.target),
            arena = planned.ram_bytes,
            constants = planned.constants_bytes,
            len = planned.bytes.len(),
            count = rows.len(),
            rows = rows.concat(),
            target_number = planned.target.0,
            label_count = self.graph.labels.len(),
            labels = self.graph.labels,
        );
    }

    /// A module of constants about one input or output.
    fn describe(&self, text: &mut String, module: &str, direction: &str, id: ValueId) {
        let value = self.graph.value(id);
        let dims: Vec<usize> = value.ty.shape.dims().iter().map(|&d| d as usize).collect();
        let (element, count) = element(value.ty.dtype, value.ty.bytes().unwrap_or(0));
        let _ = write!(
            text,
            "/// {direction} `{name}`: {dtype} {dims:?}.\n\
             pub mod {module} {{\n    \
                 /// Its name in the model.\n    pub const NAME: &str = {name:?};\n    \
                 /// Its dimensions, outermost first.\n    pub const SHAPE: [usize; {rank}] = {dims:?};\n    \
                 /// Its elements in memory.\n    pub type Data = [{element}; {count}];\n",
            name = plain(&value.name),
            dtype = value.ty.dtype.name(),
            rank = dims.len(),
        );
        if let (&[scale], &[zero_point]) = (&value.quant.scales[..], &value.quant.zero_points[..]) {
            let _ = write!(
                text,
                "    /// `real = SCALE * (value - ZERO_POINT)`.\n    pub const SCALE: f32 = {scale:?};\n    \
                 /// See [`SCALE`].\n    pub const ZERO_POINT: i32 = {zero_point};\n",
            );
        }
        text.push_str("}\n\n");
    }

    fn model(&self, text: &mut String) {
        let entries = &self.planned.entries;
        let ports: Vec<Port> = entries.iter().enumerate().flat_map(|(i, e)| self.ports(i, e)).collect();
        text.push_str(
            "/// The model with its memory, ready to run.\npub struct Model<'a> {\n    session: Session<'a>,\n",
        );
        for entry in entries {
            let _ = writeln!(text, "    entry_{}: Entry<'a>,", identifier(&entry.name));
        }
        for p in &ports {
            let _ = writeln!(text, "    {}: core::ptr::NonNull<{}::Data>,", p.name, p.name);
        }
        text.push_str(
            "}\n\n// SAFETY: the pointers lead into memory that the session borrows, and the session is Send.\n\
             unsafe impl Send for Model<'_> {}\n\nimpl<'a> Model<'a> {\n    \
             /// Checks the plan (its checksum, its steps, the memory) and makes the model ready.\n    \
             pub fn new(arena: &'a mut Arena) -> Result<Model<'a>, Error> {\n        \
             let plan = Plan::load(&PLAN.0, TARGET)?;\n        \
             let session = Session::new(plan, &ROWS, &mut arena.0[..])?;\n",
        );
        for (index, entry) in entries.iter().enumerate() {
            let _ = writeln!(
                text,
                "        let entry_{} = plan.entry({index}).ok_or(Error::Entry({index}))?;",
                identifier(&entry.name)
            );
        }
        for p in &ports {
            let _ = writeln!(
                text,
                "        let {name} = entry_{entry}.{side}.get({number}).and_then(|t| session.array(t))\
                 .ok_or(Error::Entry({index}))?;",
                name = p.name,
                entry = p.entry,
                side = p.side,
                number = p.number,
                index = p.entry_index,
            );
        }
        let fields: Vec<String> = entries.iter().map(|e| format!("entry_{}", identifier(&e.name))).collect();
        let names: Vec<&str> = ports.iter().map(|p| p.name.as_str()).collect();
        let _ =
            writeln!(text, "        Ok(Model {{ session, {}, {} }})\n    }}\n", fields.join(", "), names.join(", "));
        for p in &ports {
            p.accessor(text);
        }
        for (index, entry) in entries.iter().enumerate() {
            let outputs: Vec<&Port> = ports.iter().filter(|p| p.entry_index == index && p.side == "outputs").collect();
            run_method(text, entry, &outputs);
        }
        text.push_str(
            "    /// Back to the beginning: state as before the first run.\n    \
             pub fn reset(&mut self) {\n        self.session.reset();\n    }\n\n    \
             /// The session, for what this struct has no method for.\n    \
             pub fn session(&self) -> &Session<'a> {\n        &self.session\n    }\n}\n",
        );
    }

    fn ports(&self, entry_index: usize, entry: &PlannedEntry) -> Vec<Port> {
        let mut ports = Vec::new();
        for (direction, side, values) in [("Input", "inputs", &entry.inputs), ("Output", "outputs", &entry.outputs)] {
            for (number, &id) in values.iter().enumerate() {
                ports.push(Port {
                    name: port(entry, direction, number, values.len()),
                    entry: identifier(&entry.name),
                    entry_index,
                    side,
                    number,
                    title: plain(&self.graph.value(id).name),
                });
            }
        }
        ports
    }
}

/// An input or output as the generated struct sees it.
struct Port {
    /// The name of its module, its field and its accessor.
    name: String,
    entry: String,
    entry_index: usize,
    side: &'static str,
    number: usize,
    title: String,
}

impl Port {
    fn accessor(&self, text: &mut String) {
        let name = &self.name;
        let (verb, when) = match self.side {
            "inputs" => ("Input", "fill it before every run: a run may overwrite it"),
            _ => ("Output", "valid after a run"),
        };
        if self.side == "inputs" {
            let _ = write!(
                text,
                "    /// {verb} `{title}`; {when}.\n    \
                 pub fn {name}_mut(&mut self) -> &mut {name}::Data {{\n        \
                 // SAFETY: `new` found this place inside the arena, of this size and alignment; it is borrowed\n        \
                 // through `&mut self`, as everything that runs kernels is.\n        \
                 unsafe {{ self.{name}.as_mut() }}\n    }}\n\n",
                title = self.title,
            );
        }
        let _ = write!(
            text,
            "    /// {verb} `{title}`; {when}.\n    \
             pub fn {name}(&self) -> &{name}::Data {{\n        \
             // SAFETY: as above, shared: nothing writes while `self` is borrowed.\n        \
             unsafe {{ self.{name}.as_ref() }}\n    }}\n\n",
            title = self.title,
        );
    }
}

fn run_method(text: &mut String, entry: &PlannedEntry, outputs: &[&Port]) {
    let name = identifier(&entry.name);
    if name == "reset" {
        // `Model::reset` runs it, after zeroing the state.
        return;
    }
    let (result, give) = match outputs {
        [one] => (format!(" -> &{}::Data", one.name), format!("self.{}()", one.name)),
        _ => (String::new(), String::new()),
    };
    let _ = write!(
        text,
        "    /// Runs `{title}`.\n    pub fn {name}(&mut self){result} {{\n        self.{name}_with(&mut ())\n    }}\n\n    \
         /// Runs `{title}` and calls `hook` after each step: to pet a watchdog, to see what a layer produced.\n    \
         pub fn {name}_with<H: Hook>(&mut self, hook: &mut H){result} {{\n        \
         self.session.run_with(&self.entry_{name}, hook);\n        {give}\n    }}\n\n",
        title = plain(&entry.name),
    );
}

/// What an entry's input or output is called: those of `infer` by themselves, others after their
/// entry; numbered where there are several.
fn port(entry: &PlannedEntry, direction: &str, number: usize, of: usize) -> String {
    let prefix = if entry.name == "infer" { String::new() } else { format!("{}_", identifier(&entry.name)) };
    let base = direction.to_lowercase();
    if of == 1 { format!("{prefix}{base}") } else { format!("{prefix}{base}{number}") }
}

/// The Rust type of an element in memory, and how many there are.
fn element(dtype: DType, bytes: u64) -> (&'static str, u64) {
    let name = match dtype {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::I8 => "i8",
        DType::I16 => "i16",
        DType::I32 => "i32",
        DType::I64 => "i64",
        // Half-precision numbers as their bits; packed and boolean ones as bytes.
        DType::F16 | DType::BF16 | DType::U16 => "u16",
        DType::U32 => "u32",
        DType::U64 => "u64",
        DType::U8 | DType::Bool | DType::I4 => "u8",
    };
    (name, bytes / dtype.align() as u64)
}

/// The rows of `docs` and comments must not end a comment or a string early.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c == '`' { ' ' } else { c }).collect()
}

/// A name as a Rust identifier in snake case.
pub fn identifier(name: &str) -> String {
    let mut text: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        text.insert_str(0, "m_");
    }
    text
}

/// A model's name as the package name of its crate: `NAME-model`, which is neither a keyword nor
/// the name of a crate it depends on.
pub fn package_name(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        let c = if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        if c != '-' || !text.ends_with('-') {
            text.push(c);
        }
    }
    let text = text.trim_matches('-');
    let text = text.strip_suffix("model").unwrap_or(text).trim_matches('-');
    match text.chars().next() {
        None => "model".into(),
        Some(c) if c.is_ascii_alphabetic() => format!("{text}-model"),
        Some(_) => format!("m-{text}-model"),
    }
}

fn target_name(target: TargetId) -> &'static str {
    target.name().unwrap_or("unknown")
}

fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<(), ModelCrateError> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::write(path, bytes).map_err(|e| file_error(path, e))
}

fn file_error(path: &Path, source: io::Error) -> ModelCrateError {
    ModelCrateError::File { path: path.to_owned(), source }
}

/// The glue between this model's crate and replay firmware: items that define `model()`.
pub fn replay_glue(planned: &Planned, package: &str) -> Option<String> {
    let entry = planned.main_entry()?;
    let krate = package.replace('-', "_");
    let run = identifier(&entry.name);
    let arms = |direction: &str, values: &[ValueId], view: &str| -> String {
        let one =
            |n: usize| format!("                {n} => self.0.{}{view},\n", port(entry, direction, n, values.len()));
        (0..values.len()).map(one).collect()
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
            self.0.{run}();
        }}
        fn run_dumping(&mut self, sink: &mut dyn FnMut(u32, &[u8])) {{
            self.0.{run}_with(&mut |done: &{krate}::kiln_core::Done<'_>| sink(done.index, done.output(0)));
        }}
    }}

    fn model() -> impl Replay {{
        // SAFETY: called once, at start-up, so this is the only reference there ever is.
        let arena = unsafe {{ &mut *core::ptr::addr_of_mut!(ARENA) }};
        match Model::new(arena) {{
            Ok(model) => Replayed(model),
            Err(_) => kiln_cortex_m::exit(kiln_cortex_m::Exit::Model),
        }}
    }}
"#,
        inputs = entry.inputs.len(),
        outputs = entry.outputs.len(),
        input_arms = arms("Input", &entry.inputs, "_mut().as_mut_bytes()"),
        output_arms = arms("Output", &entry.outputs, "().as_bytes()"),
    ))
}
