//! An input or output of an entry, as generated code sees it.

use std::fmt::Write as _;

use kiln_core::DType;
use kiln_ops::Effect;
use kiln_planner::graph::{Entry, Graph, Source, Value, ValueId};

use super::text;

/// Which side of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Input,
    Output,
}

/// An input or output.
pub(super) struct Port<'a> {
    /// The name of its module, its field and its accessor.
    pub name: &'a str,
    /// The field of its entry, and the entry's index.
    pub entry: (&'a str, usize),
    /// Its side of it.
    pub side: Side,
    /// Its number on that side.
    pub number: usize,
    /// The value.
    pub value: &'a Value,
    /// Whether it lies in the plan's constants rather than in the arena.
    pub constant: bool,
    /// Its offset in an arena that models share; `None` where it lies elsewhere, and in crates whose arena is their own.
    pub in_arena: Option<u64>,
    /// Whether it lies nowhere, and is fed by rows.
    pub fed: bool,
}

impl Port<'_> {
    /// Whether it lies anywhere: without elements it does not.
    pub(super) fn has_place(&self) -> bool {
        self.value.ty.bytes().is_some_and(|bytes| bytes > 0)
    }

    /// The module of constants about it.
    pub(super) fn module(&self, out: &mut String) {
        let Value { ty, quant, .. } = self.value;
        let dims: Vec<String> = ty.shape.dims().iter().map(u32::to_string).collect();
        let (element, count) = element(ty.dtype, ty.bytes().unwrap_or(0));
        let _ = write!(
            out,
            "/// {side:?} `{title}`: {dtype} [{dims}].\n\
             pub mod {module} {{\n    \
                 /// Its name in the model.\n    pub const NAME: &str = {name:?};\n    \
                 /// Its dimensions, outermost first.\n    pub const SHAPE: [usize; {rank}] = [{dims}];\n    \
                 /// Its elements in memory.\n    pub type Data = [{element}; {count}];\n",
            side = self.side,
            title = text::doc(&self.value.name),
            dtype = ty.dtype.name(),
            dims = dims.join(", "),
            module = self.name,
            name = self.value.name,
            rank = dims.len(),
        );
        if let (&[scale], &[zero_point]) = (&quant.scales[..], &quant.zero_points[..]) {
            let _ = write!(
                out,
                "    /// `real = SCALE * (value - ZERO_POINT)`.\n    pub const SCALE: f32 = {scale:?};\n    \
                 /// See [`SCALE`].\n    pub const ZERO_POINT: i32 = {zero_point};\n",
            );
        }
        out.push_str("}\n\n");
    }

    /// The statement that finds its place.
    pub(super) fn find(&self, out: &mut String) {
        let Port { name, entry: (_, index), .. } = self;
        if !self.has_place() {
            let _ = writeln!(out, "        let {name} = NonNull::dangling();");
            return;
        }
        let place = if self.constant { "place_or_constant" } else { "place" };
        let _ = writeln!(out, "        let {name} = {place}(&session, {}, {index})?;", self.record());
    }

    /// The statement that finds its place outside an arena that is shared.
    pub(super) fn find_kept(&self, out: &mut String) {
        let Port { name, entry: (_, index), .. } = self;
        let _ = writeln!(out, "        let {name} = kept(&session, {}, {index})?;", self.record());
    }

    /// The expression for its record in the plan, an `Option`.
    fn record(&self) -> String {
        let (entry, number) = (self.entry.0, self.number);
        let side = match self.side {
            Side::Input => "inputs",
            Side::Output => "outputs",
        };
        let get = if number == 0 { "first()".to_owned() } else { format!("get({number})") };
        format!("{entry}.{side}.{get}")
    }

    /// The methods that give access to it, in a crate whose arena is shared.
    pub(super) fn turn_accessors(&self, out: &mut String) {
        let (name, title) = (self.name, text::doc(&self.value.name));
        let Value { ty, .. } = self.value;
        let (element, count) = element(ty.dtype, ty.bytes().unwrap_or(0));
        let offset = self.in_arena.unwrap_or(0);
        let (side, when) = (self.side, self.when());
        if side == Side::Input {
            let _ = write!(
                out,
                "    /// {side:?} `{title}`; {when}.\n    \
                 pub fn {name}_mut(&mut self) -> &mut {name}::Data {{\n        \
                 self.session.array_mut::<{element}, {count}, {offset}>()\n    }}\n\n",
            );
        }
        let body = match self.is_kept() {
            true => format!(
                "// SAFETY: `new` found this place outside the arena, of this size and alignment; nothing writes while\n        \
                 // `self` is borrowed.\n        \
                 unsafe {{ self.{name}.as_ref() }}"
            ),
            false => format!("self.session.array::<{element}, {count}, {offset}>()"),
        };
        let _ = write!(
            out,
            "    /// {side:?} `{title}`; {when}.\n    \
             pub fn {name}(&self) -> &{name}::Data {{\n        {body}\n    }}\n\n",
        );
    }

    /// Whether it lies in the state or the constants, where the arena is shared.
    pub(super) fn is_kept(&self) -> bool {
        self.has_place() && self.in_arena.is_none()
    }

    /// When it may be used.
    fn when(&self) -> &'static str {
        match self.side {
            Side::Input => "fill it before every run: a run may overwrite it",
            Side::Output => "valid after a run, until an input is filled or another entry runs",
        }
    }

    /// The methods that give access to it.
    pub(super) fn accessors(&self, out: &mut String) {
        let (name, title) = (self.name, text::doc(&self.value.name));
        let (side, when) = (self.side, self.when());
        if side == Side::Input {
            let _ = write!(
                out,
                "    /// {side:?} `{title}`; {when}.\n    \
                 pub fn {name}_mut(&mut self) -> &mut {name}::Data {{\n        \
                 // SAFETY: `new` found this place inside the arena, of this size and alignment; it is borrowed\n        \
                 // through `&mut self`, as everything that runs kernels is.\n        \
                 unsafe {{ self.{name}.as_mut() }}\n    }}\n\n",
            );
        }
        let _ = write!(
            out,
            "    /// {side:?} `{title}`; {when}.\n    \
             pub fn {name}(&self) -> &{name}::Data {{\n        \
             // SAFETY: `new` found this place, of this size and alignment; nothing writes while `self` is borrowed.\n        \
             unsafe {{ self.{name}.as_ref() }}\n    }}\n\n",
        );
    }
}

/// Whether a value of an entry lies in the plan's constants: it is one, or a view of one.
pub(super) fn lies_in_constants(graph: &Graph, entry: Option<&Entry>, mut id: ValueId) -> bool {
    // Each view reads an earlier node's result, so one walk back over the nodes follows them all.
    for node in entry.iter().flat_map(|entry| entry.nodes.iter().rev()) {
        if let (true, Effect::View(input)) = (node.output == id, node.op.effect())
            && let Some(&input) = node.inputs.get(input)
        {
            id = input;
        }
    }
    graph.values.get(id.index()).is_some_and(|value| matches!(value.source, Source::Constant(_)))
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
