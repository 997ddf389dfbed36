//! Recorded cases: the folder that `kiln verify` replays, here and on boards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kiln_codegen::io_json::{self, Array, CheckSpec, Group, IoJson, ModelFile, Tensor};
use kiln_codegen::whole_file;
use kiln_planner::graph::{Graph, Source, ValueId};
use kiln_planner::kiln_file::{About, KilnFile};
use kiln_planner::reference::Evaluator;

use crate::Error;

/// The file with the model.
const MODEL: &str = "model.kiln";

/// What computes the outputs where nothing else is given.
const REFERENCES: (&str, &str) = ("references", "the plain references of Kiln's operators");

/// A model, inputs, and the outputs that they must give byte for byte.
///
/// [`Cases::write`] makes the folder that `kiln verify` replays on this computer and on emulated boards:
///
/// ```
/// use kiln::{CaseGroup, Cases, Device, Export, Tensor, Trace};
///
/// let device = Device::cpu();
/// let x = Tensor::<1>::zeros([2], &device);
/// let y = x.relu();
/// let graph = Trace::new("relu").entry("infer", &[("x", &x)], &[("y", &y)], &[])?.finish()?;
/// let relu = Export::new(graph)?;
///
/// let inputs = [[1.0f32, -1.0], [-0.5, 2.0]].iter().map(|x| relu.stored(&[x])).collect::<Result<_, _>>()?;
/// let groups = [CaseGroup { name: "signs", origin: "two pairs of numbers", inputs, classes: Some(vec![0, 1]) }];
/// let cases = Cases { graph: relu.graph(), licence: None, runtime: None, groups: &groups };
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// cases.write(folder)?; // and then: kiln verify FOLDER --board mps2-an386
/// # assert!(std::fs::read(folder.join("signs.out0.references.bin")).unwrap() == [0, 0, 128, 63, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64]);
/// # Ok::<(), kiln::Error>(())
/// ```
pub struct Cases<'a> {
    /// The model. Cases run its entry `infer`, or the first, each with fresh state.
    pub graph: &'a Graph,
    /// The licence of what is in the folder.
    pub licence: Option<&'a str>,
    /// What computes the outputs; without it the operators' references, which no plan and no kernel has a part in.
    pub runtime: Option<Runtime<'a>>,
    /// The cases.
    pub groups: &'a [CaseGroup<'a>],
}

/// The bytes of each input of a case, or of each output.
pub type Arrays = Vec<Vec<u8>>;

/// Another program that computes what the model should.
pub struct Runtime<'a> {
    /// Its name, a part of files' names.
    pub name: &'a str,
    /// What it is, in words.
    pub what: &'a str,
    /// The bytes of each output for the bytes of each input of a case.
    pub run: &'a dyn Fn(&[Vec<u8>]) -> Arrays,
}

/// Cases of one kind.
#[derive(Clone, Debug, Default)]
pub struct CaseGroup<'a> {
    /// Its name, a part of files' names.
    pub name: &'a str,
    /// Where the inputs come from, in words.
    pub origin: &'a str,
    /// For each case the bytes of each input, as [`Export::stored`](crate::Export::stored) gives them.
    pub inputs: Vec<Arrays>,
    /// For a model that tells classes apart, the class of each case: which element of the first output should be the largest.
    pub classes: Option<Vec<u64>>,
}

impl Cases<'_> {
    /// Writes the folder, which is made where it is missing: `model.kiln` with the graph and no plan, since plans differ
    /// from board to board; for each group its inputs and outputs behind each other; and `io.json`, which says what is what.
    ///
    /// # Errors
    ///
    /// [`Error::Cases`] where inputs, outputs or classes don't go with the model, or a name is none for a file;
    /// [`Error::Write`] where a file can't be written, and then every old file stays.
    pub fn write(&self, directory: &Path) -> Result<(), Error> {
        let entry = self.graph.main_entry().ok_or(Error::NoEntry)?;
        let about = About {
            model: self.graph.name.clone(),
            board: "any".to_owned(),
            kiln: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let model = KilnFile { graph: Some(self.graph.clone()), plans: Vec::new(), about };
        let model = model.to_bytes().map_err(|e| Error::Write { path: directory.join(MODEL), what: e.to_string() })?;
        let mut files = vec![(PathBuf::from(MODEL), model)];
        let mut groups: Vec<Group> = Vec::new();
        for group in self.groups {
            if groups.iter().any(|other| other.name == group.name) {
                return Err(Error::Cases(format!("two groups are called '{}'", group.name)));
            }
            groups.push(self.group(entry, group, &mut files)?);
        }
        let json = self.io_json(entry, files[0].1.len(), groups);
        let mut text = serde_json::to_vec_pretty(&json).map_err(|e| Error::Cases(e.to_string()))?;
        text.push(b'\n');
        // What is written must be what can be read.
        io_json::parse(&text).map_err(Error::Cases)?;
        files.push(("io.json".into(), text));
        Ok(whole_file::write_all(files.iter().map(|(path, bytes)| (directory.join(path), &bytes[..])))?)
    }

    fn io_json(&self, entry: usize, bytes: usize, groups: Vec<Group>) -> IoJson {
        let entry = &self.graph.entries[entry];
        let tensors = |ids: &[ValueId]| ids.iter().map(|&id| tensor(self.graph, id)).collect();
        let stateful = self.graph.values.iter().any(|value| value.source == Source::State);
        let (name, what) = self.runtime();
        IoJson {
            name: Some(self.graph.name.clone()),
            format: Some("kiln".to_owned()),
            model: ModelFile { file: MODEL.to_owned(), bytes: Some(bytes as u64) },
            licence: self.licence.map(str::to_owned),
            reference: name.to_owned(),
            runtimes: BTreeMap::from([(name.to_owned(), what.to_owned())]),
            state: if stateful { "reset-per-case" } else { "stateless" }.to_owned(),
            check: CheckSpec { kind: "exact".to_owned(), atol: None, rtol: None },
            inputs: tensors(&entry.inputs),
            outputs: tensors(&entry.outputs),
            groups,
        }
    }

    fn runtime(&self) -> (&str, &str) {
        self.runtime.as_ref().map_or(REFERENCES, |runtime| (runtime.name, runtime.what))
    }

    /// A group's arrays, whose bytes are added to `files`.
    fn group(&self, entry: usize, group: &CaseGroup<'_>, files: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<Group, Error> {
        let wrong = |what: String| Error::Cases(format!("group '{}': {what}", group.name));
        let outputs = group.inputs.iter().enumerate().map(|(case, inputs)| {
            self.check(&self.graph.entries[entry].inputs, inputs).map_err(|e| wrong(format!("case {case}: {e}")))?;
            let outputs = self.outputs(entry, inputs)?;
            self.check(&self.graph.entries[entry].outputs, &outputs).map_err(|e| wrong(format!("case {case}: {e}")))?;
            Ok(outputs)
        });
        let outputs = outputs.collect::<Result<Vec<_>, Error>>()?;
        if outputs.is_empty() {
            return Err(wrong("has no cases".to_owned()));
        }
        let runtime = self.runtime().0;
        let entry = &self.graph.entries[entry];
        let mut arrays = |ids: &[ValueId], cases: &[Arrays], side: &str, end: &str| {
            let array = |(index, &id): (usize, &ValueId)| {
                let file = format!("{}.{side}{index}{end}.bin", group.name);
                files.push((PathBuf::from(&file), cases.iter().flat_map(|case| &case[index]).copied().collect()));
                let Tensor { dtype, mut shape, .. } = tensor(self.graph, id);
                shape.insert(0, cases.len() as u64);
                Array { file: Some(file), same_as: None, dtype: Some(dtype), shape: Some(shape) }
            };
            ids.iter().enumerate().map(array).collect::<Vec<_>>()
        };
        Ok(Group {
            name: group.name.to_owned(),
            origin: Some(group.origin.to_owned()),
            cases: outputs.len() as u64,
            steps: None,
            classes: group.classes.clone(),
            inputs: arrays(&entry.inputs, &group.inputs, "in", ""),
            outputs: BTreeMap::from([(
                runtime.to_owned(),
                arrays(&entry.outputs, &outputs, "out", &format!(".{runtime}")),
            )]),
        })
    }

    /// What a case must give.
    fn outputs(&self, entry: usize, inputs: &[Vec<u8>]) -> Result<Arrays, Error> {
        if let Some(runtime) = &self.runtime {
            return Ok((runtime.run)(inputs));
        }
        let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let values = Evaluator::new(self.graph).run(entry, &slices)?;
        Ok(self.graph.entries[entry].outputs.iter().map(|id| values[id].clone()).collect())
    }

    /// The tensors of a case are the model's.
    fn check(&self, ids: &[ValueId], tensors: &[Vec<u8>]) -> Result<(), String> {
        if tensors.len() != ids.len() {
            return Err(format!("{} tensors where the model has {}", tensors.len(), ids.len()));
        }
        for (&id, bytes) in ids.iter().zip(tensors) {
            let Tensor { name, dtype, shape, .. } = tensor(self.graph, id);
            if self.graph.value(id).ty.bytes() != Some(bytes.len() as u64) {
                return Err(format!("'{name}' is {dtype} {shape:?}, but has {} bytes", bytes.len()));
            }
        }
        Ok(())
    }
}

/// A value as `io.json` describes it.
fn tensor(graph: &Graph, id: ValueId) -> Tensor {
    let value = graph.value(id);
    let quant = &value.quant;
    let one_scale = quant.scales.len() == 1;
    Tensor {
        name: value.name.clone(),
        dtype: value.ty.dtype.name().to_owned(),
        shape: value.ty.shape.dims().iter().map(|&dim| dim.into()).collect(),
        scale: quant.scales.first().copied().filter(|_| one_scale),
        zero_point: quant.zero_points.first().copied().filter(|_| one_scale),
    }
}
