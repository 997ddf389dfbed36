//! The text of a C header.

use std::fmt::Write as _;

use kiln_boards::Board;
use kiln_planner::Planned;

use super::archive::Layout;
use super::face::{Entry, Face, Port};
use super::text;
use super::wrapper::CODES;
use crate::model_crate::port::Side;

/// The alignment of an arena, bytes.
const ARENA_ALIGN: usize = kiln_core::plan::ALIGN;

impl Face<'_> {
    /// The text of `NAME.h`.
    pub(super) fn header(&self, board: &Board, planned: &Planned, layout: Layout) -> String {
        let (name, upper) = (self.name, self.name.to_ascii_uppercase());
        let title = text::comment(&self.graph.name);
        let macs: u64 = planned.main_entry().map_or(0, |e| e.steps.iter().map(|s| s.cost.macs).sum());
        let flags = c_flags(board);
        let flags = flags.map_or(String::new(), |flags| format!(" *\n * GCC and Clang: {flags}\n"));
        let mut out = format!(
            "/*\n \
             * The model `{title}`, planned by Kiln {version} for `{board}`.\n \
             *\n \
             * Arena: {arena} bytes; constants: {constants} bytes; {macs} multiply-accumulates a run.\n\
             {flags} \
             *\n \
             * A model is used by one thread at a time. Nothing allocates, and nothing is kept outside the memory that the\n \
             * program gives to {name}_init. Written by Kiln: changes are lost when it is written again.\n \
             */\n\
             #ifndef KILN_{upper}_H\n#define KILN_{upper}_H\n\n#include <stdint.h>\n\n",
            version = env!("CARGO_PKG_VERSION"),
            board = text::comment(&board.name),
            arena = planned.ram_bytes,
            constants = planned.constants_bytes,
        );
        self.constants(&mut out, &upper, planned, layout);
        self.ports.iter().for_each(|port| port.macros(&mut out, &upper));
        let _ = write!(out, "#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n{}", self.types(&upper));
        let _ = write!(
            out,
            "/*\n \
             * Checks the constants, and makes `model` ready to work in `arena`, which is zeroed. Both are the model's from now\n \
             * on, until init is called again. {upper}_OK, {upper}_ERROR_POINTER or {upper}_ERROR_PLAN.\n \
             */\n\
             int32_t {name}_init({name}_model *model, {name}_arena *arena);\n\n"
        );
        self.ports.iter().for_each(|port| port.function(&mut out, name));
        self.entries.iter().for_each(|entry| entry.functions(&mut out, name, &upper));
        for ((function, _, max), extent) in self.extents.iter().zip(&self.graph.extents) {
            let _ = write!(
                out,
                "/* Sets the dimension `{title}` for the runs that follow: 1 to {max}, which it is until then. \
                 {upper}_OK,\n   {upper}_ERROR_VALUE or {upper}_ERROR_MODEL. */\n\
                 int32_t {name}_{function}({name}_model *model, uint32_t value);\n\n",
                title = text::comment(&extent.name),
            );
        }
        let _ = write!(
            out,
            "/* Back to the beginning: state as before the first run. {upper}_OK or {upper}_ERROR_MODEL. */\n\
             int32_t {name}_reset({name}_model *model);\n\n\
             #ifdef __cplusplus\n}}\n#endif\n\n#endif\n"
        );
        out
    }

    /// Sizes, error codes and labels.
    fn constants(&self, out: &mut String, upper: &str, planned: &Planned, layout: Layout) {
        let _ = write!(
            out,
            "/* What functions give. */\n{codes}\n\
             /* Bytes a model works in: state, inputs, outputs and everything between. */\n\
             #define {upper}_ARENA_BYTES {arena}\n\
             /* Alignment of the arena, bytes. */\n\
             #define {upper}_ARENA_ALIGN {ARENA_ALIGN}\n\
             /* Bytes and alignment of what is kept about a model beside its arena. */\n\
             #define {upper}_MODEL_BYTES {bytes}\n\
             #define {upper}_MODEL_ALIGN {align}\n\n\
             /* How many classes have names, and the names:\n   \
             static const char *const labels[{upper}_LABEL_COUNT] = {upper}_LABELS; */\n\
             #define {upper}_LABEL_COUNT {count}\n",
            codes = CODES
                .iter()
                .enumerate()
                .map(|(code, (name, meaning))| format!("#define {upper}_{name} {code} /* {meaning} */\n"))
                .collect::<String>(),
            // C has no array of no elements.
            arena = planned.ram_bytes.max(1),
            bytes = layout.bytes,
            align = layout.align,
            count = self.graph.labels.len(),
        );
        let labels: Vec<String> =
            self.graph.labels.iter().map(|label| format!("    {}", text::string(label))).collect();
        if !labels.is_empty() {
            let _ = writeln!(out, "#define {upper}_LABELS {{ \\\n{} \\\n}}", labels.join(", \\\n"));
        }
        out.push('\n');
    }

    fn types(&self, upper: &str) -> String {
        let name = self.name;
        format!(
            "/* The alignment of a member. Where the compiler has no way to say it, align the objects yourself: init checks. */\n\
             #if defined(__GNUC__) || defined(__ICCARM__)\n\
             #define {upper}_ALIGN(bytes) __attribute__((aligned(bytes)))\n\
             #elif defined(__cplusplus) && __cplusplus >= 201103L\n\
             #define {upper}_ALIGN(bytes) alignas(bytes)\n\
             #elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L\n\
             #define {upper}_ALIGN(bytes) _Alignas(bytes)\n\
             #else\n\
             #define {upper}_ALIGN(bytes)\n\
             #endif\n\n\
             /* The memory a model works in. It may lie anywhere: in .bss, in a bank of its own, on the stack. */\n\
             typedef struct {name}_arena {{\n    \
             {upper}_ALIGN({upper}_ARENA_ALIGN) uint8_t bytes[{upper}_ARENA_BYTES];\n\
             }} {name}_arena;\n\n\
             /* A model; its content is the library's. Zero it, or let it be static, before init. */\n\
             typedef struct {name}_model {{\n    \
             {upper}_ALIGN({upper}_MODEL_ALIGN) uint8_t bytes[{upper}_MODEL_BYTES];\n\
             }} {name}_model;\n\n"
        )
    }
}

impl Port<'_> {
    /// What its numbers mean.
    fn macros(&self, out: &mut String, model: &str) {
        let ty = self.value.ty;
        let dims: Vec<String> = ty.shape.dims().iter().map(u32::to_string).collect();
        let (upper, length) = (self.name.to_ascii_uppercase(), self.element().1);
        let _ = write!(
            out,
            "/* {side:?} `{title}`: {dtype} [{shape}]. */\n\
             #define {model}_{upper}_LENGTH {length} /* elements */\n\
             #define {model}_{upper}_RANK {rank}\n",
            side = self.side,
            title = text::comment(&self.value.name),
            dtype = ty.dtype.name(),
            shape = dims.join(", "),
            rank = dims.len(),
        );
        if !dims.is_empty() {
            let _ = writeln!(out, "#define {model}_{upper}_SHAPE {{ {} }} /* outermost first */", dims.join(", "));
        }
        if let Some((scale, zero_point)) = self.quantization() {
            let _ = write!(
                out,
                "/* real = SCALE * (value - ZERO_POINT) */\n\
                 #define {model}_{upper}_SCALE {scale:?}f\n\
                 #define {model}_{upper}_ZERO_POINT ({zero_point})\n",
            );
        }
        out.push('\n');
    }

    /// The function that gives access to it.
    fn function(&self, out: &mut String, model: &str) {
        let (title, element, function) = (text::comment(&self.value.name), self.element().0, &self.name);
        let length = format!("{}_{}_LENGTH", model.to_ascii_uppercase(), function.to_ascii_uppercase());
        let (when, qualifier) = match self.side {
            Side::Input => ("Fill it before every run: a run may overwrite it", ""),
            Side::Output => ("Valid after a run, until an input is filled or another entry runs", "const "),
        };
        let _ = write!(
            out,
            "/* {side:?} `{title}`, {length} elements. {when}.\n   NULL where the model is not ready. */\n\
             {qualifier}{element} *{model}_{function}({qualifier}{model}_model *model);\n\n",
            side = self.side,
        );
    }
}

impl Entry<'_> {
    /// The functions that run it.
    fn functions(&self, out: &mut String, model: &str, upper: &str) {
        let (title, name) = (text::comment(&self.planned.name), &self.name);
        let _ = write!(
            out,
            "/* Runs `{title}`. {upper}_OK, or {upper}_ERROR_MODEL where the model is not ready: it can't fail otherwise. */\n\
             int32_t {model}_{name}({model}_model *model);\n\n\
             /* The same, calling `hook` with `context` and the step's number after each step: to pet a watchdog, to measure. */\n\
             int32_t {model}_{name}_with({model}_model *model, void (*hook)(void *context, uint32_t step), void *context);\n\n"
        );
    }
}

/// The options with which a C compiler makes code of the same calling convention, for targets where there are several.
fn c_flags(board: &Board) -> Option<String> {
    let target = board.target.as_str();
    if target.starts_with("thumb") {
        let float = if target.ends_with("hf") { " -mfloat-abi=hard" } else { " -mfloat-abi=soft" };
        Some(format!("-mcpu={} -mthumb{float}", board.cpu))
    } else {
        let isa = target.strip_prefix("riscv32")?.split('-').next()?;
        let abi = if isa.contains('f') { "ilp32f" } else { "ilp32" };
        Some(format!("-march=rv32{isa} -mabi={abi}"))
    }
}
