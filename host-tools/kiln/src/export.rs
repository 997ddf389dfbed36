//! From a traced graph to what a board runs: layers, int8, a plan, a file.

use std::path::Path;

use kiln_boards::Board;
use kiln_codegen::fit::shortages;
use kiln_codegen::model_crate::{ModelCrate, ModelCrateError, identifier};
use kiln_codegen::{target_of, whole_file};
use kiln_core::{DType, TensorType};
use kiln_ops::{Arg, ArgMut, Dequantize, Operator, Quantize};
use kiln_passes::quantize::{Calibration, QuantizeOptions, quantize};
use kiln_passes::recognize_layers;
use kiln_planner::graph::{Graph, ValueId};
use kiln_planner::kiln_file::{About, KilnFile};
use kiln_planner::{Options, Planned, plan};
use kiln_target_host::{Runner, native_target};

use crate::Error;

/// A network on its way to a board.
///
/// ```
/// use kiln::{Device, Export, Tensor, Trace};
///
/// let device = Device::cpu();
/// let weights = Tensor::<2>::from_floats([[1.0, -2.0], [0.5, 3.0]], &device);
/// let x = Tensor::<2>::zeros([1, 2], &device);
/// let y = x.matmul_transposed(&weights).relu();
/// let graph = Trace::new("layer").entry("infer", &[("x", &x)], &[("y", &y)], &[])?.finish()?;
///
/// let float = Export::new(graph)?;
/// let samples = [[0.0f32, 1.0], [1.0, 0.0], [-1.0, 1.0]];
/// let int8 = float.quantize(samples.iter().map(|s| vec![&s[..]]), &Default::default())?;
/// let y = int8.runner()?.run(&[&[1.0, -1.0]])?;
/// assert!((y[0][0] - 3.0).abs() < 0.05);
/// # Ok::<(), kiln::Error>(())
/// ```
pub struct Export {
    graph: Graph,
}

impl Export {
    /// Takes a traced graph, and finds the layers in it that boards have kernels for.
    pub fn new(graph: Graph) -> Result<Export, Error> {
        Ok(Export { graph: recognize_layers(graph)? })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Makes an int8 graph of a float32 one of one entry by the ranges that its values have over `samples`, each with as many slices
    /// as the entry has inputs. What has no int8 form stays float32.
    ///
    /// # Errors
    ///
    /// [`Error`] where the graph has nothing to quantize, or a sample does not fit or leads to numbers that are not finite.
    pub fn quantize<'a>(
        &self,
        samples: impl IntoIterator<Item = Vec<&'a [f32]>>,
        options: &QuantizeOptions,
    ) -> Result<Export, Error> {
        let entry = kiln_passes::quantize::check(&self.graph)?;
        let planned = plan_here(&self.graph)?;
        let mut runner = Runner::new(&planned.bytes)?;
        let main = planned.main_entry().ok_or(Error::NoEntry)?;
        let mut calibration = Calibration::new(&self.graph);
        for sample in samples {
            let inputs: Vec<Vec<u8>> =
                sample.iter().map(|x| x.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
            let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            for (&id, data) in entry.inputs.iter().zip(&slices) {
                calibration.observe(&self.graph, id, data)?;
            }
            let mut seen = Ok(());
            runner.reset();
            runner.run_observing(main, &slices, &mut |id, data| {
                if seen.is_ok() {
                    seen = calibration.observe(&self.graph, id, data);
                }
            })?;
            seen?;
        }
        Ok(Export { graph: quantize(&self.graph, &calibration, options)?.graph })
    }

    /// Runs the main entry on this computer, with the kernels that a board's plan has portable bodies of.
    pub fn runner(&self) -> Result<ExportRunner<'_>, Error> {
        let planned = plan_here(&self.graph)?;
        Ok(ExportRunner { export: self, runner: Runner::new(&planned.bytes)?, planned })
    }

    /// The plan for a board's CPU family.
    pub fn plan(&self, board: &Board) -> Result<Planned, Error> {
        plan(&self.graph, &Options::for_target(target_of(board))).map_err(Error::Plan)
    }

    /// The plan for a board's CPU family whose state and arenas take at most `ram` bytes: where they would take more,
    /// values are computed again in place of being kept ([`PlannedEntry::again`](kiln_planner::PlannedEntry)).
    ///
    /// # Errors
    ///
    /// [`Error::Plan`] with the bytes needed where that is not enough.
    pub fn plan_within(&self, board: &Board, ram: u64) -> Result<Planned, Error> {
        plan(&self.graph, &Options { ram: Some(ram), ..Options::for_target(target_of(board)) }).map_err(Error::Plan)
    }

    /// Writes a `.kiln` file with the graph and its plan for a board: for `kiln plan`, `run`, `compile`, `flash`.
    ///
    /// # Errors
    ///
    /// [`Error`] where the graph can't be planned, or the file can't be written; a file that was there stays then.
    pub fn write(&self, board: &Board, path: &Path) -> Result<(), Error> {
        let bytes = self.kiln_file(&self.plan(board)?, board, path)?;
        Ok(whole_file::write(path, &bytes)?)
    }

    /// Writes what firmware of your own takes: a `no_std` crate with the plan for a board behind typed functions, as
    /// `docs/generated-crate.md` describes it, and beside its `Cargo.toml` a `.kiln` file with the same plan and the
    /// graph. The files are those of `kiln compile`, and `directory` is made where it is missing. `sources` is the root
    /// of Kiln's own sources, which the crate depends on: [`sources`](crate::sources) finds it.
    ///
    /// # Errors
    ///
    /// [`Error`] where the graph can't be planned, the plan does not fit the board, or a file can't be written; every
    /// file that was there stays then.
    pub fn write_crate(&self, board: &Board, sources: &Path, directory: &Path) -> Result<(), Error> {
        let planned = self.plan(board)?;
        let short = shortages(&planned, board);
        if !short.is_empty() {
            return Err(Error::TooLarge { model: self.graph.name.clone(), board: board.name.clone(), short });
        }
        let model = ModelCrate { graph: &self.graph, planned: &planned, board: &board.name, sources };
        let unwritten = |e: ModelCrateError| Error::Write { path: directory.to_owned(), what: e.to_string() };
        let path = directory.join(format!("{}.kiln", identifier(&self.graph.name)));
        let mut files = vec![(path.clone(), self.kiln_file(&planned, board, &path)?)];
        let of_crate = model.files().map_err(unwritten)?.in_order();
        files.extend(of_crate.map(|(path, bytes)| (directory.join(path), bytes)));
        Ok(whole_file::write_all(files.iter().map(|(path, bytes)| (path.clone(), &bytes[..])))?)
    }

    /// The bytes of a `.kiln` file with the graph and this plan; `path` is what an error calls it.
    fn kiln_file(&self, planned: &Planned, board: &Board, path: &Path) -> Result<Vec<u8>, Error> {
        let file = KilnFile {
            graph: Some(self.graph.clone()),
            plans: vec![(planned.target, planned.bytes.clone())],
            about: About {
                model: self.graph.name.clone(),
                board: board.name.clone(),
                kiln: env!("CARGO_PKG_VERSION").to_owned(),
            },
        };
        file.to_bytes().map_err(|e| Error::Write { path: path.to_owned(), what: e.to_string() })
    }

    /// Real numbers, one slice an input of the main entry, as the bytes that its inputs store: little-endian float32, or
    /// int8 quantized (rounded to the nearest, and clamped).
    ///
    /// # Errors
    ///
    /// [`Error::Numbers`] where there are more or fewer inputs or numbers than the entry takes, or it takes another type.
    pub fn stored(&self, inputs: &[&[f32]]) -> Result<Vec<Vec<u8>>, Error> {
        let entry = &self.graph.entries[self.graph.main_entry().ok_or(Error::NoEntry)?];
        if inputs.len() != entry.inputs.len() {
            return Err(Error::Numbers(format!("{} are needed, {} were given", entry.inputs.len(), inputs.len())));
        }
        entry.inputs.iter().zip(inputs).map(|(&id, x)| store(&self.graph, id, x)).collect()
    }
}

fn plan_here(graph: &Graph) -> Result<Planned, Error> {
    plan(graph, &Options::for_target(native_target())).map_err(Error::Plan)
}

/// An exported network, ready to run on this computer.
pub struct ExportRunner<'g> {
    export: &'g Export,
    runner: Runner,
    planned: Planned,
}

impl ExportRunner<'_> {
    /// Runs on real numbers, one slice an input, and gives real numbers, one vector an output. Int8 inputs are
    /// quantized (rounded to the nearest, and clamped), int8 outputs dequantized.
    pub fn run(&mut self, inputs: &[&[f32]]) -> Result<Vec<Vec<f32>>, Error> {
        let main = self.planned.main_entry().ok_or(Error::NoEntry)?;
        let stored = self.export.stored(inputs)?;
        let slices: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
        let outputs = self.runner.run(&main.name, &slices)?;
        main.outputs.iter().zip(&outputs).map(|(&id, y)| load(&self.export.graph, id, y)).collect()
    }
}

/// Real numbers as a value stores them: as they are, or as [`Quantize`] makes them.
fn store(graph: &Graph, id: ValueId, numbers: &[f32]) -> Result<Vec<u8>, Error> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
    let value = graph.value(id);
    let TensorType { dtype, shape } = value.ty;
    let wrong =
        |what: String| Err(Error::Numbers(format!("'{}' is {} {:?}, {what}", value.name, dtype.name(), shape.dims())));
    if shape.elements() != Some(numbers.len() as u64) {
        return wrong(format!("but {} numbers were given", numbers.len()));
    }
    match dtype {
        DType::F32 => return Ok(bytes),
        DType::I8 => {}
        _ => return wrong("which real numbers can't be stored in".to_owned()),
    }
    let real = Arg { ty: TensorType::new(DType::F32, shape), quant: Default::default(), data: &bytes };
    let mut stored = vec![0; numbers.len()];
    convert(Quantize, real, ArgMut { ty: value.ty, quant: value.quant.view(), data: &mut stored })?;
    Ok(stored)
}

/// The real numbers that a value's bytes stand for.
fn load(graph: &Graph, id: ValueId, bytes: &[u8]) -> Result<Vec<f32>, Error> {
    let value = graph.value(id);
    let mut real = bytes.to_vec();
    if value.ty.dtype == DType::I8 {
        real = vec![0; 4 * bytes.len()];
        let ty = TensorType::new(DType::F32, value.ty.shape);
        let stored = Arg { ty: value.ty, quant: value.quant.view(), data: bytes };
        convert(Dequantize, stored, ArgMut { ty, quant: Default::default(), data: &mut real })?;
    }
    Ok(real.chunks_exact(4).map(|c| c.try_into().map_or(0.0, f32::from_le_bytes)).collect())
}

fn convert<O: Operator>(op: O, from: Arg<'_>, mut to: ArgMut<'_>) -> Result<(), Error> {
    op.reference(&[from], &mut to).map_err(|error| Error::Convert { op: O::NAME, error })
}
