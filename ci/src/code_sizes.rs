//! What each kernel adds to the code of firmware, measured in linked images, and the estimate made from that, held
//! against the images of models. Constants and plan records must be in an image exactly as planned.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use kiln_boards::Board;
use kiln_codegen::code::Code;
use kiln_codegen::deploy::Deployment;
use kiln_codegen::firmware::Mode;
use kiln_codegen::symbols::Elf;
use kiln_codegen::target_of;
use kiln_codegen::toolchain::Toolchain;
use kiln_core::TargetId;
use kiln_kernels::code::code_bytes;
use kiln_kernels::table::KERNELS;
use kiln_planner::graph::Graph;
use kiln_planner::kiln_file::KilnFile;
use kiln_planner::{Options, Planned, plan};

/// A board of each CPU family that firmware is built for, large enough for every model.
const BOARDS: [&str; 7] =
    ["raspberry-pi-pico", "mps2-an385", "mps2-an386", "mps2-an505", "mps3-an547", "qemu-riscv32", "qemu-aarch64"];

/// Models that are built for each of them.
const MODELS: [&str; 8] = [
    "tflm-hello-world-int8",
    "tflm-hello-world-f32",
    "mlperf-kws-dscnn-int8",
    "mlperf-ic-resnet8-int8",
    "mlperf-vww-mobilenet-int8",
    "mlperf-ad-autoencoder-int8",
    "magic-wand-f32",
    "tflm-person-detect-int8",
];

/// The figures are those of Rust's precompiled `core`, what `rustup target add` installs: its `memcpy` and floating
/// point are compiled for speed. Built from source with the firmware they are up to so many bytes smaller, so then an
/// estimate may be above what is linked.
const FROM_SOURCE: u64 = 1100;

/// The folder of figures: a file for each family, and one that lists them.
const FIGURES: &str = "kernels/src/code_bytes";

/// Builds the models and compares their code with the estimate.
pub fn run() -> Result<()> {
    let Some(data) = crate::data() else { return Ok(()) };
    let mut wrong = Vec::new();
    for model in MODELS {
        let graph = kiln_passes::clean(crate::imported(&data, model)?)?.graph;
        for name in BOARDS {
            let board = Board::builtin(name)?;
            let planned = plan(&graph, &Options::for_target(target_of(&board)))?;
            let elf = Elf::read(&build(&graph, &planned, &board)?)?;
            let (planned_bytes, linked) = (planned.image_bytes(), elf.plan_bytes());
            ensure!(
                linked == planned_bytes,
                "{model} on {name}: the plan was to take {planned_bytes} bytes, and takes {linked} in the image"
            );
            let numbers: Vec<u16> = planned.kernels.iter().map(|kernel| kernel.number).collect();
            let estimate = code_bytes(planned.target, &numbers)
                .with_context(|| format!("{model} on {name}: a kernel has no figures; {RENEW}"))?;
            let linked = elf.kiln_code_bytes();
            let from_source = if Toolchain::find(&board.target)?.builds_core() { FROM_SOURCE } else { 0 };
            println!(
                "{model} on {name}: {linked} bytes of code, estimated {estimate} ({:+})",
                estimate as i64 - linked as i64
            );
            let tolerance = (linked / 10).max(512);
            if estimate + tolerance < linked || linked + tolerance + from_source < estimate {
                wrong.push(format!("\n  {model} on {name}: {linked} bytes linked, {estimate} estimated"));
            }
        }
    }
    ensure!(wrong.is_empty(), "estimates are off by more than 10 % and 512 bytes:{}\n{RENEW}", wrong.concat());
    Ok(())
}

const RENEW: &str = "renew kernels/src/code_bytes with `kiln-ci code-sizes --measure`";

/// Builds an image with every kernel for each family and writes what they take to `kernels/src/code_bytes`.
pub fn measure() -> Result<()> {
    let path = crate::root().join("examples/sine/model/model.kiln");
    let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let graph = KilnFile::from_bytes(&bytes)?.graph.context("the example's model has no graph")?;
    let mut modules = Vec::new();
    for name in BOARDS {
        let board = Board::builtin(name)?;
        let target = target_of(&board);
        ensure!(
            !Toolchain::find(&board.target)?.builds_core(),
            "the figures are those of a precompiled `core`: install it with `rustup target add {}`",
            board.target
        );
        let mut planned = plan(&graph, &Options::for_target(target))?;
        planned.kernels = KERNELS.iter().filter(|kernel| kernel.runs_on(target)).collect();
        let code = Code::read(&build(&graph, &planned, &board)?)?;
        ensure!(
            code.rows.len() == planned.kernels.len(),
            "{name}: {} kernels were to be linked, {} are",
            planned.kernels.len(),
            code.rows.len()
        );
        println!("{name}: {} bytes with {} kernels, {} without", code.total, code.rows.len(), code.base);
        let family = target.name().context("a family without a name")?;
        let module = family.replace(['-', '.'], "_");
        write(&module, &family_text(family, target, &planned, &code)?)?;
        modules.push(module);
    }
    write("mod", &list_text(&modules)?)
}

const GENERATED: &str = "// @generated by `kiln-ci code-sizes --measure`; do not edit.\n\n";

fn family_text(family: &str, target: TargetId, planned: &Planned, code: &Code) -> Result<String> {
    let mut text = format!(
        "{GENERATED}//! {family}.\n\nuse kiln_core::TargetId;\n\nuse crate::code::{{Family, RowBytes}};\n\n\
         #[rustfmt::skip]\npub(super) const FAMILY: Family = Family {{\n    target: TargetId({}),\n    base: {},\n",
        target.0, code.base
    );
    text.push_str("    shared: &[\n");
    for (name, bytes) in &code.shared {
        writeln!(text, "        ({name:?}, {bytes}),")?;
    }
    text.push_str("    ],\n    rows: &[\n");
    for (kernel, row) in planned.kernels.iter().zip(&code.rows) {
        let (number, bytes, shared) = (kernel.number, row.bytes, &row.shared);
        writeln!(text, "        // {}", kernel.name)?;
        writeln!(text, "        RowBytes {{ number: {number}, bytes: {bytes}, shared: &{shared:?} }},")?;
    }
    text.push_str("    ],\n};\n");
    Ok(text)
}

fn list_text(modules: &[String]) -> Result<String> {
    let mut text = format!("{GENERATED}//! Bytes of code by CPU family, measured: see [`code`](crate::code).\n\n");
    // In the order rustfmt keeps.
    for module in modules.iter().collect::<BTreeSet<_>>() {
        writeln!(text, "mod {module};")?;
    }
    text.push_str("\nuse crate::code::Family;\n\n#[rustfmt::skip]\npub(crate) const FAMILIES: &[Family] = &[\n");
    for module in modules {
        writeln!(text, "    {module}::FAMILY,")?;
    }
    text.push_str("];\n");
    Ok(text)
}

fn write(module: &str, text: &str) -> Result<()> {
    let path = crate::root().join(FIGURES).join(module).with_extension("rs");
    fs::create_dir_all(crate::root().join(FIGURES))?;
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    println!("wrote {FIGURES}/{module}.rs");
    Ok(())
}

fn build(graph: &Graph, planned: &Planned, board: &Board) -> Result<PathBuf> {
    let root = crate::root();
    let out = root.join("target/ci-code-sizes").join(format!("{}-{}", graph.name, board.name));
    let build = root.join("target/kiln/build");
    let deployment = Deployment { graph, planned, board, sources: &root, out: &out, build: &build };
    deployment.build(Mode::Replay).with_context(|| format!("{} on {}", graph.name, board.name))
}
