//! `io.json`: what a folder of recorded inputs and outputs says of itself. `kiln verify` reads it, the host library's
//! `Cases` writes it.

use std::collections::BTreeMap;

use kiln_core::DType;
use serde::{Deserialize, Serialize};

/// The file as it stands. Fields that are not here are passed over; those that replaying does not need are for people
/// to read.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct IoJson {
    /// The model's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The model's format: `kiln`, `tflite`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The model file.
    pub model: ModelFile,
    /// The licence of the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// The runtime whose outputs count.
    pub reference: String,
    /// What each runtime is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub runtimes: BTreeMap<String, String>,
    /// How cases are related: `stateless`, `reset-per-case`, `sequence`.
    #[serde(default = "stateless")]
    pub state: String,
    /// How outputs are compared.
    pub check: CheckSpec,
    /// The model's inputs.
    pub inputs: Vec<Tensor>,
    /// The model's outputs.
    pub outputs: Vec<Tensor>,
    /// Groups of cases.
    pub groups: Vec<Group>,
}

fn stateless() -> String {
    "stateless".into()
}

/// The model file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ModelFile {
    /// Its name inside the folder.
    pub file: String,
    /// Its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// How outputs are compared.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CheckSpec {
    /// `exact`, or `close` and the like with tolerances.
    pub kind: String,
    /// Absolute tolerance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atol: Option<Tolerance>,
    /// Relative tolerance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtol: Option<f64>,
}

/// An absolute tolerance.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "atol is neither a number nor \"one output quantisation step\"")]
pub enum Tolerance {
    /// This much.
    Number(f64),
    /// In words; [`ONE_STEP`] is understood.
    Words(String),
}

/// The tolerance of one step of the quantization that an output was dequantized from.
pub const ONE_STEP: &str = "one output quantisation step";

/// An input or output of the model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Its element type, as NumPy spells it.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// The scale, where it is quantized with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f32>,
    /// The zero point that goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_point: Option<i32>,
}

/// A group of cases.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Where its inputs come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// How many cases.
    pub cases: u64,
    /// How many steps each case has, for models with state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// The class of each case: which element of the first output should be the largest, after the last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<u64>>,
    /// One array for each input.
    pub inputs: Vec<Array>,
    /// For each runtime one array for each output.
    pub outputs: BTreeMap<String, Vec<Array>>,
}

/// A raw little-endian array, or a reference to another runtime's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Array {
    /// The file inside the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The runtime whose array equals this one bit for bit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
    /// Its element type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// Its shape: cases, steps where there are any, and the tensor's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<u64>>,
}

/// Parses the file's bytes, and checks what can be checked without the model. The error says which
/// field is wrong.
pub fn parse(bytes: &[u8]) -> Result<IoJson, String> {
    let io: IoJson = serde_json::from_slice(bytes).map_err(|e| not_json(bytes, &e))?;
    tolerance("check.rtol", io.check.rtol)?;
    if let Some(Tolerance::Number(atol)) = io.check.atol {
        tolerance("check.atol", Some(atol))?;
    }
    if !matches!(io.state.as_str(), "stateless" | "reset-per-case" | "sequence") {
        return Err(format!("state is {:?}, expected stateless, reset-per-case or sequence", io.state));
    }
    if io.groups.is_empty() {
        return Err("groups is empty: there is nothing to verify".into());
    }
    file_name(&io.model.file).map_err(|e| format!("model.file: {e}"))?;
    for (side, tensors) in [("inputs", &io.inputs), ("outputs", &io.outputs)] {
        for tensor in tensors {
            if DType::from_name(&tensor.dtype).is_none() {
                return Err(format!(
                    "{side}: '{}' has dtype {:?}, which Kiln does not have",
                    tensor.name, tensor.dtype
                ));
            }
            bytes_of(tensor)
                .ok_or_else(|| format!("{side}: '{}' has shape {:?}, too large", tensor.name, tensor.shape))?;
        }
    }
    for group in &io.groups {
        if group.inputs.len() != io.inputs.len() {
            return Err(format!(
                "group '{}' has {} inputs, the model {}",
                group.name,
                group.inputs.len(),
                io.inputs.len()
            ));
        }
        for output in 0..io.outputs.len() {
            reference(&io, group, output)?;
        }
        check_classes(&io, group)?;
        for array in &group.inputs {
            let file = array.file.as_ref().ok_or_else(|| format!("group '{}': an input without file", group.name))?;
            file_name(file).map_err(|e| format!("group '{}': {e}", group.name))?;
        }
    }
    Ok(io)
}

/// There is a class for each case, and an element for each class.
fn check_classes(io: &IoJson, group: &Group) -> Result<(), String> {
    let Some(classes) = &group.classes else { return Ok(()) };
    if classes.len() as u64 != group.cases {
        return Err(format!("group '{}' has {} cases, and classes of {}", group.name, group.cases, classes.len()));
    }
    // A product that is too large was refused before.
    let elements =
        io.outputs.first().map_or(0, |output| output.shape.iter().fold(1, |all: u64, d| all.saturating_mul(*d)));
    match classes.iter().find(|class| **class >= elements) {
        Some(class) => Err(format!(
            "group '{}': class {class} is none of the {elements} elements of the first output, which count from 0",
            group.name
        )),
        None => Ok(()),
    }
}

/// Why bytes are no [`IoJson`]. Some writers of JSON write numbers that JSON does not have.
fn not_json(bytes: &[u8], error: &serde_json::Error) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
    let found = ["NaN", "-Infinity", "Infinity"].iter().find_map(|number| Some((line.find(number)?, number)));
    match found {
        Some((at, number)) => {
            let before = line.get(..at).unwrap_or_default();
            let field = before.rsplit(['{', '[', ',']).next().unwrap_or_default().trim();
            format!(
                "not a folder description: {} {number}, which is no number of JSON ({error})",
                field.chars().take(60).collect::<String>()
            )
        }
        None => format!("not a folder description: {error}"),
    }
}

/// Beyond this no output is told from another.
const MAX_TOLERANCE: f64 = 1e30;

fn tolerance(field: &str, value: Option<f64>) -> Result<(), String> {
    match value {
        Some(value) if !(0.0..=MAX_TOLERANCE).contains(&value) => {
            Err(format!("{field} is {value:e}, expected a number from 0 to {MAX_TOLERANCE:e}"))
        }
        _ => Ok(()),
    }
}

/// The file that holds the reference's output number `output` in a group.
pub fn reference<'a>(io: &'a IoJson, group: &'a Group, output: usize) -> Result<&'a str, String> {
    let mut runtime = io.reference.as_str();
    // A chain of `same_as` can't be longer than there are runtimes, unless it goes round.
    for _ in 0..=group.outputs.len() {
        let arrays = group.outputs.get(runtime);
        let arrays = arrays.ok_or_else(|| format!("group '{}' has no outputs of '{runtime}'", group.name))?;
        let array = arrays.get(output).ok_or_else(|| {
            format!("group '{}': '{runtime}' has {} outputs, the model more", group.name, arrays.len())
        })?;
        match (&array.file, &array.same_as) {
            (Some(file), _) => {
                file_name(file).map_err(|e| format!("group '{}': {e}", group.name))?;
                return Ok(file);
            }
            (None, Some(other)) => runtime = other,
            (None, None) => return Err(format!("group '{}': an output of '{runtime}' without file", group.name)),
        }
    }
    Err(format!("group '{}': same_as goes round in a circle at '{runtime}'", group.name))
}

/// Bytes of one case of a tensor.
pub fn bytes_of(tensor: &Tensor) -> Option<u64> {
    let dtype = DType::from_name(&tensor.dtype)?;
    dtype.bytes(tensor.shape.iter().try_fold(1u64, |product, &d| product.checked_mul(d))?)
}

/// A plain file name: a folder may not point outside itself.
fn file_name(name: &str) -> Result<(), String> {
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0']);
    if plain { Ok(()) } else { Err(format!("{name:?} is not a plain file name")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> serde_json::Value {
        serde_json::json!({
            "model": {"file": "model.tflite"}, "reference": "a", "state": "stateless", "check": {"kind": "exact"},
            "inputs": [{"name": "x", "dtype": "int8", "shape": [1, 2]}],
            "outputs": [{"name": "y", "dtype": "int8", "shape": [1]}],
            "groups": [{"name": "g", "cases": 1, "inputs": [{"file": "g.in0.bin"}],
                        "outputs": {"a": [{"same_as": "b"}], "b": [{"file": "g.out0.b.bin"}]}}]
        })
    }

    fn parsed(value: &serde_json::Value) -> Result<IoJson, String> {
        parse(value.to_string().as_bytes())
    }

    #[test]
    fn same_as_is_followed() {
        let io = parsed(&sample()).unwrap();
        assert_eq!(reference(&io, &io.groups[0], 0), Ok("g.out0.b.bin"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut json = sample();
        json["runtimes"] = serde_json::json!({"a": "one", "b": "another"});
        json["inputs"][0]["scale"] = 0.5.into();
        json["groups"][0]["classes"] = serde_json::json!([0]);
        let io = parsed(&json).unwrap();
        assert_eq!(serde_json::to_value(&io).unwrap(), json);
        assert_eq!(parse(&serde_json::to_vec(&io).unwrap()).unwrap(), io);
    }

    #[test]
    fn every_fault_is_named() {
        let with = |pointer: &str, value: serde_json::Value| {
            let mut json = sample();
            *json.pointer_mut(pointer).unwrap() = value;
            parsed(&json).unwrap_err()
        };
        assert!(with("/groups/0/outputs/b/0", serde_json::json!({"same_as": "a"})).contains("circle"));
        assert!(with("/reference", "z".into()).contains("'z'"));
        assert!(with("/model/file", "../model.tflite".into()).contains("plain file name"));
        assert!(with("/inputs/0/dtype", "int7".into()).contains("int7"));
        assert!(with("/inputs/0/shape", serde_json::json!([u64::MAX, 3])).contains("too large"));
        assert!(with("/groups", serde_json::json!([])).contains("nothing to verify"));
        assert!(with("/state", "odd".into()).contains("odd"));
        assert!(with("/check", serde_json::json!({"kind": "tolerance", "atol": [1]})).contains("neither a number"));
        for field in ["atol", "rtol"] {
            for value in [-1e-9, -1.0, 1.1e30, f64::MAX] {
                let error = with("/check", serde_json::json!({"kind": "tolerance", field: value}));
                assert!(error.contains(&format!("check.{field} is ")) && error.contains("from 0 to 1e30"), "{error}");
            }
            // What serde_json does not write; a number beyond a double's range is infinite.
            for value in ["NaN", "Infinity", "-Infinity", "1e999"] {
                let text = sample().to_string().replace("\"exact\"", &format!("\"close\",\"{field}\":{value}"));
                let error = parse(text.as_bytes()).unwrap_err();
                assert!(error.contains(value) && error.contains(field) || error.contains("out of range"), "{error}");
            }
        }
        assert!(
            parsed(&{
                let mut json = sample();
                json["check"] = serde_json::json!({"kind": "tolerance", "atol": 0, "rtol": 1e30});
                json
            })
            .is_ok()
        );
        assert!(with("/groups/0/inputs", serde_json::json!([])).contains("inputs"));
        let with_classes = |classes: &[u64]| {
            let mut json = sample();
            json["groups"][0]["classes"] = classes.into();
            json["outputs"][0]["shape"] = serde_json::json!([1, 3]);
            parsed(&json)
        };
        assert!(with_classes(&[2]).is_ok());
        assert!(with_classes(&[1, 2]).unwrap_err().contains("classes of 2"));
        assert!(with_classes(&[3]).unwrap_err().contains("class 3 is none of the 3 elements"));
        assert!(parse(b"{").unwrap_err().contains("not a folder description"));
    }
}
