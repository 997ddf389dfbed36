//! Operators: which one, between which tensors, with which options.

use std::fmt;

use super::error::{Place, TfliteError, quoted};
use super::options::OpOptions;
use super::read_all;
use super::schema::{self, BuiltinOperator};

/// Which operator: one of TFLite's own, or a custom one.
///
/// `Display` gives the schema's name (`CONV_2D`), or `CUSTOM:name` with the name escaped and cut for a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpName<'a> {
    /// One of the schema's, by number and name.
    Builtin {
        /// The number.
        code: i32,
        /// The name, such as `CONV_2D`.
        name: &'static str,
    },
    /// A number that the schema did not have when this was built.
    Unknown(i32),
    /// A custom operator, by the name its author gave it.
    Custom(&'a str),
}

impl OpName<'_> {
    /// The schema's name of a builtin operator.
    pub fn builtin(&self) -> Option<&'static str> {
        match self {
            OpName::Builtin { name, .. } => Some(name),
            OpName::Unknown(_) | OpName::Custom(_) => None,
        }
    }
}

impl fmt::Display for OpName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpName::Builtin { name, .. } => f.write_str(name),
            OpName::Unknown(code) => write!(f, "BUILTIN:{code}"),
            OpName::Custom(name) => write!(f, "CUSTOM:{}", quoted(name).trim_matches('"')),
        }
    }
}

/// An entry of the model's list of operators in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpCode<'a> {
    pub(super) name: OpName<'a>,
    pub(super) version: i32,
}

impl<'a> OpCode<'a> {
    pub(super) fn read(source: schema::OperatorCode<'a>, index: usize) -> Result<Self, TfliteError> {
        // The number outgrew its byte: old files fill the byte, new ones both, with a placeholder in the byte where
        // the number is too large for it. The larger of the two is meant.
        let code = source.builtin_code().0.max(source.deprecated_builtin_code().into());
        let name = match BuiltinOperator(code) {
            BuiltinOperator::CUSTOM => match source.custom_code() {
                Some(name) if !name.is_empty() => OpName::Custom(name),
                _ => {
                    return Err(TfliteError::OperatorCode { index, detail: "a custom operator has no name".into() });
                }
            },
            builtin => match builtin.variant_name() {
                Some(name) => OpName::Builtin { code, name },
                None => OpName::Unknown(code),
            },
        };
        Ok(OpCode { name, version: source.version() })
    }
}

/// One operator of a subgraph.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator<'a> {
    /// Which operator.
    pub name: OpName<'a>,
    /// The version of its definition that the file was written for.
    pub version: i32,
    /// Indices of the subgraph's tensors that it reads; `None` where an optional one is omitted.
    pub inputs: Vec<Option<usize>>,
    /// Indices of the subgraph's tensors that it writes.
    pub outputs: Vec<usize>,
    /// Indices of tensors that only carry the quantization of its inner values (LSTM).
    pub intermediates: Vec<Option<usize>>,
    /// What else it was told.
    pub options: OpOptions<'a>,
}

/// What the indices in an operator refer to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'m, 'a> {
    /// The whole file, for options that lie behind the flatbuffer.
    pub(super) bytes: &'a [u8],
    pub(super) codes: &'m [OpCode<'a>],
    pub(super) subgraphs: usize,
    pub(super) tensors: usize,
}

impl<'a> Operator<'a> {
    pub(super) fn read(
        source: schema::Operator<'a>,
        subgraph: usize,
        index: usize,
        context: Context<'_, 'a>,
    ) -> Result<Self, TfliteError> {
        let code = source.opcode_index();
        let Some(OpCode { name, version }) = usize::try_from(code).ok().and_then(|at| context.codes.get(at)).copied()
        else {
            return Err(TfliteError::Index {
                place: format!("operator {index} of subgraph {subgraph}"),
                what: "operator code",
                index: code.into(),
                count: context.codes.len(),
            });
        };
        let place = Place::Operator { subgraph, index, name };

        let inputs = read_inputs(source.inputs(), "input tensor", context.tensors, place)?;
        if let Some(input) = inputs.iter().enumerate().position(|(at, t)| t.is_none() && !may_omit(name, at)) {
            return Err(TfliteError::MissingInput { place: place.describe(), input });
        }
        Ok(Operator {
            name,
            version,
            inputs,
            outputs: read_indices(source.outputs(), "output tensor", context.tensors, place)?,
            intermediates: read_inputs(source.intermediates(), "intermediate tensor", context.tensors, place)?,
            options: OpOptions::read(source, name, context, place)?,
        })
    }
}

type Indices<'a> = Option<flatbuffers::Vector<'a, i32>>;

/// Indices below `count`, all of them needed.
pub(super) fn read_indices(
    indices: Indices<'_>,
    what: &'static str,
    count: usize,
    place: Place<'_>,
) -> Result<Vec<usize>, TfliteError> {
    read_all(indices, |_, index| check_index(index, what, count, place))
}

/// Indices below `count`, or −1 for one left out.
fn read_inputs(
    indices: Indices<'_>,
    what: &'static str,
    count: usize,
    place: Place<'_>,
) -> Result<Vec<Option<usize>>, TfliteError> {
    read_all(indices, |_, index| match index {
        -1 => Ok(None),
        index => check_index(index, what, count, place).map(Some),
    })
}

fn check_index(index: i32, what: &'static str, count: usize, place: Place<'_>) -> Result<usize, TfliteError> {
    let found = usize::try_from(index).ok().filter(|&at| at < count);
    found.ok_or_else(|| TfliteError::Index { place: place.describe(), what, index: index.into(), count })
}

/// Whether an operator works without its input `index`. An operator that nothing here is known about gets the benefit
/// of the doubt: that it is not supported is the better message.
fn may_omit(name: OpName<'_>, index: usize) -> bool {
    let OpName::Builtin { code, .. } = name else {
        return true;
    };
    let code = BuiltinOperator(code);
    match code {
        // The bias.
        BuiltinOperator::CONV_2D | BuiltinOperator::DEPTHWISE_CONV_2D | BuiltinOperator::FULLY_CONNECTED => index == 2,
        BuiltinOperator::TRANSPOSE_CONV | BuiltinOperator::SVDF => index == 3,
        // Gate weights, peepholes, projection, biases and layer norms, depending on the cell's kind.
        BuiltinOperator::UNIDIRECTIONAL_SEQUENCE_LSTM => index != 0,
        _ => !OpOptions::reads(code),
    }
}
