//! A folder of reference inputs and outputs, read.

use std::fs;
use std::path::{Path, PathBuf};

use kiln_codegen::io_json::{self, IoJson, Tensor};
use kiln_core::DType;

use super::compare::Rule;
use super::error::VerifyError;

/// The largest `io.json` that is read.
const MAX_IO_JSON: u64 = 16 << 20;

/// A folder with all its cases in memory.
pub struct Folder {
    /// The folder.
    pub path: PathBuf,
    /// What it says of itself.
    pub io: IoJson,
    /// The model file.
    pub model: PathBuf,
    /// How outputs are compared.
    pub check: Rule,
    /// The groups.
    pub groups: Vec<Group>,
}

/// A group of cases.
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its cases.
    pub cases: Vec<Case>,
    /// The class of each, where the folder says it.
    pub classes: Option<Vec<u64>>,
}

/// A case: one run, or several in a row for a model with state.
pub struct Case {
    /// The runs.
    pub runs: Vec<Run>,
}

/// One run: the bytes of each input, and of each output as it should be.
pub struct Run {
    /// The inputs.
    pub inputs: Vec<Vec<u8>>,
    /// The outputs.
    pub outputs: Vec<Vec<u8>>,
}

impl Folder {
    /// Reads a folder.
    pub fn read(path: &Path) -> Result<Folder, VerifyError> {
        let json = path.join("io.json");
        if path.is_file() {
            let what = "kiln verify takes the folder that holds io.json and the model, not a file".to_string();
            return Err(VerifyError::IoJson { path: path.to_owned(), what });
        }
        let bytes = read_limited(&json, MAX_IO_JSON)?;
        let wrong = |what: String| VerifyError::IoJson { path: json.clone(), what };
        let io = io_json::parse(&bytes).map_err(wrong)?;
        let check = Rule::from_spec(&io.check).map_err(wrong)?;
        let groups = io.groups.iter().map(|g| read_group(path, &json, &io, g)).collect::<Result<_, _>>()?;
        let model = path.join(&io.model.file);
        Ok(Folder { path: path.to_owned(), io, model, check, groups })
    }

    /// Whether the model keeps state, so that a case must begin afresh.
    pub fn stateful(&self) -> bool {
        self.io.state != "stateless"
    }
}

fn read_group(path: &Path, json: &Path, io: &IoJson, group: &io_json::Group) -> Result<Group, VerifyError> {
    let wrong = |what: String| VerifyError::IoJson { path: json.to_owned(), what };
    let steps = group.steps.unwrap_or(1);
    let runs = group.cases.checked_mul(steps).filter(|&n| n > 0);
    let runs = runs.ok_or_else(|| wrong(format!("group '{}' has no cases", group.name)))?;
    let mut inputs = Vec::new();
    for (array, tensor) in group.inputs.iter().zip(&io.inputs) {
        let file = array.file.as_deref().unwrap_or_default();
        inputs.push(read_array(&path.join(file), tensor, runs)?);
    }
    let mut outputs = Vec::new();
    for (index, tensor) in io.outputs.iter().enumerate() {
        let file = io_json::reference(io, group, index).map_err(wrong)?;
        outputs.push(read_array(&path.join(file), tensor, runs)?);
    }
    let mut cases = Vec::new();
    for case in 0..group.cases {
        let runs = (case * steps..(case + 1) * steps)
            .map(|run| Run { inputs: pick(&inputs, run as usize), outputs: pick(&outputs, run as usize) });
        cases.push(Case { runs: runs.collect() });
    }
    Ok(Group { name: group.name.clone(), cases, classes: group.classes.clone() })
}

/// Each array's piece for one run.
fn pick(arrays: &[Vec<Vec<u8>>], run: usize) -> Vec<Vec<u8>> {
    arrays.iter().filter_map(|a| a.get(run).cloned()).collect()
}

/// Reads an array and cuts it into runs.
fn read_array(path: &Path, tensor: &Tensor, runs: u64) -> Result<Vec<Vec<u8>>, VerifyError> {
    let one = io_json::bytes_of(tensor).unwrap_or(u64::MAX);
    let want = one.saturating_mul(runs);
    let have = fs::metadata(path).map_err(|e| read_error(path, e))?.len();
    if have != want || one == 0 {
        return Err(VerifyError::Size {
            path: path.to_owned(),
            have,
            want,
            cases: runs,
            shape: tensor.shape.clone(),
            dtype: DType::from_name(&tensor.dtype).map_or("?", DType::name),
        });
    }
    let bytes = fs::read(path).map_err(|e| read_error(path, e))?;
    Ok(bytes.chunks_exact(one as usize).map(<[u8]>::to_vec).collect())
}

fn read_limited(path: &Path, limit: u64) -> Result<Vec<u8>, VerifyError> {
    let wrong = |what: String| VerifyError::IoJson { path: path.to_owned(), what };
    let metadata = fs::metadata(path).map_err(|e| read_error(path, e))?;
    if !metadata.is_file() {
        // A device has no end, and a pipe may have no writer.
        return Err(wrong("not a regular file".into()));
    }
    if metadata.len() > limit {
        return Err(wrong(format!("{} bytes, more than the {limit} that are read", metadata.len())));
    }
    fs::read(path).map_err(|e| read_error(path, e))
}

fn read_error(path: &Path, source: std::io::Error) -> VerifyError {
    VerifyError::Read { path: path.to_owned(), source }
}
