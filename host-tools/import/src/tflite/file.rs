//! The file as a whole: container, buffers, subgraphs and metadata.

use flatbuffers::{InvalidFlatbuffer, VerifierOptions};

use super::dataflow;
use super::error::{Place, TfliteError};
use super::operator::{Context, OpCode, Operator, read_indices};
use super::read_all;
use super::schema;
use super::tensor::Tensor;

/// The only schema version there has been since 2018; what was added since is compatible.
const SCHEMA_VERSION: u32 = 3;

/// Offset to the root and identifier, the bytes that every TFLite file begins with.
const HEADER: usize = 8;

/// A checked TFLite model. Reading it cannot fail: every index, offset and length in it has been verified.
///
/// Everything large (constants, names, custom options) is borrowed from the file's bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct TfliteFile<'a> {
    description: &'a str,
    subgraphs: Vec<Subgraph<'a>>,
    metadata: Vec<Metadata<'a>>,
}

/// One graph of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Subgraph<'a> {
    /// The name, often empty or `main`.
    pub name: &'a str,
    /// The tensors that operators, inputs and outputs refer to by index.
    pub tensors: Vec<Tensor<'a>>,
    /// The operators in execution order. Each tensor is written at most once, before it is read.
    pub operators: Vec<Operator<'a>>,
    /// Indices of the tensors to fill before a run; no two are equal, none is constant.
    pub inputs: Vec<usize>,
    /// Indices of the tensors to read after a run.
    pub outputs: Vec<usize>,
}

/// A named piece of data that the runtime does not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// The name, such as `min_runtime_version` or `TFLITE_METADATA`.
    pub name: &'a str,
    /// The bytes, in an encoding that the name decides.
    pub data: &'a [u8],
}

impl<'a> TfliteFile<'a> {
    /// Checks a whole file and reads all of it but the constants' bytes.
    ///
    /// Takes time and memory in proportion to the file's size, whatever the file claims, and needs no alignment of
    /// `bytes`.
    ///
    /// # Errors
    ///
    /// The first thing found wrong, in the order: container, schema version, operator codes, buffers, metadata, then
    /// for each subgraph its tensors, operators, inputs, outputs, and the order of reads and writes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TfliteError> {
        let model = open(bytes)?;
        if model.version() != SCHEMA_VERSION {
            return Err(TfliteError::Version { found: model.version() });
        }

        let codes = read_all(model.operator_codes(), |index, code| OpCode::read(code, index))?;
        let buffers = read_all(model.buffers(), |index, buffer| read_buffer(bytes, buffer, index))?;
        let metadata = read_all(model.metadata(), |index, entry| Metadata::read(entry, index, &buffers))?;

        let sources = model.subgraphs().filter(|subgraphs| !subgraphs.is_empty()).ok_or(TfliteError::NoSubgraph)?;
        let context = Context { bytes, codes: &codes, subgraphs: sources.len(), tensors: 0 };
        let subgraphs = read_all(Some(sources), |index, source| Subgraph::read(source, index, &buffers, context))?;
        Ok(TfliteFile { description: model.description().unwrap_or_default(), subgraphs, metadata })
    }

    /// What the converter wrote about the model, often empty.
    pub fn description(&self) -> &'a str {
        self.description
    }

    /// The graph that a run executes.
    pub fn main(&self) -> &Subgraph<'a> {
        // `parse` refuses a model without one.
        &self.subgraphs[0]
    }

    /// All graphs; the first is the main one, others are run by operators that name them. Never empty.
    pub fn subgraphs(&self) -> &[Subgraph<'a>] {
        &self.subgraphs
    }

    /// The model's metadata.
    pub fn metadata(&self) -> &[Metadata<'a>] {
        &self.metadata
    }
}

impl<'a> Subgraph<'a> {
    fn read(
        source: schema::SubGraph<'a>,
        index: usize,
        buffers: &[Option<&'a [u8]>],
        context: Context<'_, 'a>,
    ) -> Result<Self, TfliteError> {
        let place = Place::Subgraph(index);
        let tensors = read_all(source.tensors(), |at, tensor| Tensor::read(tensor, index, at, buffers))?;
        let context = Context { tensors: tensors.len(), ..context };
        let operators = read_all(source.operators(), |at, operator| Operator::read(operator, index, at, context))?;
        let inputs = read_indices(source.inputs(), "input tensor", tensors.len(), place)?;
        let outputs = read_indices(source.outputs(), "output tensor", tensors.len(), place)?;
        dataflow::check(index, &tensors, &operators, &inputs, &outputs)?;
        Ok(Subgraph { name: source.name().unwrap_or_default(), tensors, operators, inputs, outputs })
    }
}

impl<'a> Metadata<'a> {
    fn read(source: schema::Metadata<'a>, index: usize, buffers: &[Option<&'a [u8]>]) -> Result<Self, TfliteError> {
        let name = source.name().unwrap_or_default();
        match usize::try_from(source.buffer()).ok().and_then(|at| buffers.get(at)) {
            Some(data) => Ok(Metadata { name, data: data.unwrap_or_default() }),
            None => Err(TfliteError::Index {
                place: Place::Metadata { index, name }.describe(),
                what: "buffer",
                index: source.buffer().into(),
                count: buffers.len(),
            }),
        }
    }
}

/// Verifies the container and gives the root.
fn open(bytes: &[u8]) -> Result<schema::Model<'_>, TfliteError> {
    if bytes.is_empty() {
        return Err(TfliteError::Empty);
    }
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        return Err(TfliteError::TooShort { bytes: bytes.len() });
    };
    let [_, _, _, _, identifier @ ..] = header;
    if identifier != schema::MODEL_IDENTIFIER.as_bytes() {
        let found = identifier.escape_ascii().to_string();
        return Err(TfliteError::NotTflite { found, hint: hint(bytes) });
    }

    // Offsets in a flatbuffer are signed 32-bit numbers; what lies further behind is reached by `outside` only.
    let container = bytes.get(..i32::MAX as usize).unwrap_or(bytes);
    // References may share what they point to, so a small file can describe a huge tree: the size of what is visited
    // bounds time and memory. Real models count 1.0 to 1.4 times their size and nest four deep.
    let options = VerifierOptions {
        max_depth: 16,
        // A table that is not shared takes a reference and a header, four bytes each.
        max_tables: container.len() / 8 + 1024,
        max_apparent_size: container.len().saturating_mul(4).saturating_add(1 << 16),
        ignore_missing_null_terminator: false,
    };
    schema::root_as_model_with_opts(&options, container)
        .map_err(|error| TfliteError::Damaged { bytes: bytes.len(), detail: damage(&error) })
}

/// What a file may be that is not TFLite.
fn hint(bytes: &[u8]) -> &'static str {
    let starts = |prefix: &[u8]| bytes.starts_with(prefix);
    if starts(b"version https://git-lfs") {
        "this is a Git LFS pointer: fetch the model itself with `git lfs pull`"
    } else if starts(b"PK\x03\x04") {
        "this is a zip archive: take the .tflite file out of it"
    } else if starts(b"<") {
        "this is a web page: download the model itself"
    } else if bytes.get(4..7) == Some(b"TFL") {
        "this schema is too old or too new: convert the model again with a current TFLite converter"
    } else {
        "choose a file that the TFLite converter wrote"
    }
}

/// The verifier's finding in one line: what, and in which field.
fn damage(error: &InvalidFlatbuffer) -> String {
    match error {
        InvalidFlatbuffer::ApparentSizeTooLarge | InvalidFlatbuffer::TooManyTables => {
            "its tables refer to the same bytes over and over".to_owned()
        }
        InvalidFlatbuffer::DepthLimitReached => "its tables are nested too deep".to_owned(),
        other => {
            let text = other.to_string();
            let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let what = lines.next().unwrap_or_default().trim_end_matches('.').to_owned();
            // The innermost field comes first; the chain up to the root adds nothing for a reader.
            match lines.next() {
                Some(place) => format!("{what} {place}"),
                None => what,
            }
        }
    }
}

fn read_buffer<'a>(bytes: &'a [u8], source: schema::Buffer<'a>, index: usize) -> Result<Option<&'a [u8]>, TfliteError> {
    let inside = source.data().map(|data| data.bytes());
    if inside.is_some_and(|data| !data.is_empty()) {
        return Ok(inside);
    }
    let behind = outside(bytes, source.offset(), source.size(), || format!("buffer {index}"))?;
    Ok(behind.or(inside))
}

/// Bytes that a large model keeps behind its flatbuffer, given from the file's start; `None` where there are none,
/// which an offset of 0 or 1 means.
pub(super) fn outside(
    bytes: &[u8],
    offset: u64,
    size: u64,
    place: impl Fn() -> String,
) -> Result<Option<&[u8]>, TfliteError> {
    if offset <= 1 {
        return Ok(None);
    }
    let found = usize::try_from(offset).ok().zip(usize::try_from(size).ok());
    let found = found.and_then(|(start, size)| bytes.get(start..start.checked_add(size)?));
    found.map(Some).ok_or_else(|| TfliteError::Outside { place: place(), offset, size, bytes: bytes.len() })
}
