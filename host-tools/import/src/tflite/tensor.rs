//! Tensors: shape, constant bytes and quantization parameters.

use super::dtype::DType;
use super::error::{Place, TfliteError, shape_text};
use super::read_all;
use super::schema;

/// Affine quantization: real value = scale × (stored value − zero point).
#[derive(Clone, Debug, PartialEq)]
pub struct Quant {
    /// One scale for the whole tensor, or one for each index of dimension `axis`; finite and above zero.
    pub scales: Vec<f32>,
    /// As many as `scales`, each within the range of the tensor's dtype.
    pub zero_points: Vec<i64>,
    /// The dimension that `scales` run along where there are several. Below the rank, or 0 for a scalar.
    pub axis: usize,
}

/// One tensor of a subgraph.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<'a> {
    /// The name, possibly empty and not necessarily unique.
    pub name: &'a str,
    /// The element type.
    pub dtype: DType,
    /// The dimensions; empty for a scalar. The product, in bits of `dtype`, fits `usize`.
    pub shape: Vec<usize>,
    /// The dimensions with `None` where the size is open; only present where one is, and as long as `shape`.
    pub shape_signature: Option<Vec<Option<usize>>>,
    /// A constant's little-endian bytes, as many as `shape` and `dtype` take, without any alignment.
    pub data: Option<&'a [u8]>,
    /// Quantization parameters, if any.
    pub quant: Option<Quant>,
    /// Whether the tensor keeps its value from one run to the next.
    pub is_variable: bool,
}

impl<'a> Tensor<'a> {
    /// The number of elements.
    pub fn elements(&self) -> usize {
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// Reads and checks one tensor; `buffers` are the model's buffers, already checked.
    pub(super) fn read(
        source: schema::Tensor<'a>,
        subgraph: usize,
        index: usize,
        buffers: &[Option<&'a [u8]>],
    ) -> Result<Self, TfliteError> {
        let name = source.name().unwrap_or_default();
        let place = Place::Tensor { subgraph, index, name };
        refuse_unsupported(source, place)?;

        let dtype = DType::new(source.type_());
        let shape = read_shape(source, place)?;
        let bytes = bytes(dtype, &shape, place)?;
        let data = read_data(source, dtype, &shape, bytes, buffers, place)?;
        let quant = match source.quantization() {
            Some(quant) => read_quant(quant, dtype, &shape, place)?,
            None => None,
        };
        let shape_signature = read_signature(source, &shape, place)?;
        Ok(Tensor { name, dtype, shape, shape_signature, data, quant, is_variable: source.is_variable() })
    }
}

fn refuse_unsupported(source: schema::Tensor<'_>, place: Place<'_>) -> Result<(), TfliteError> {
    let refused = |what, instead| Err(TfliteError::Unsupported { place: place.describe(), what, instead });
    if source.sparsity().is_some() {
        return refused("sparse storage is", "export the model with dense weights");
    }
    if source.external_buffer() != 0 {
        return refused("weights in another file are", "export the model as a single file");
    }
    let details = source.quantization().map(|quant| quant.details_type());
    if details.is_some_and(|kind| kind != schema::QuantizationDetails::NONE) {
        return refused(
            "custom, blockwise or multi-axis quantization is",
            "quantize the model per tensor or per channel",
        );
    }
    Ok(())
}

fn read_shape(source: schema::Tensor<'_>, place: Place<'_>) -> Result<Vec<usize>, TfliteError> {
    read_all(source.shape(), |axis, dim| {
        usize::try_from(dim).map_err(|_| TfliteError::Shape {
            place: place.describe(),
            detail: format!("dimension {axis} is {dim}, expected 0 or more"),
        })
    })
}

fn read_signature(
    source: schema::Tensor<'_>,
    shape: &[usize],
    place: Place<'_>,
) -> Result<Option<Vec<Option<usize>>>, TfliteError> {
    let Some(dims) = source.shape_signature() else {
        return Ok(None);
    };
    // Converters leave the signature empty where nothing is open.
    if dims.is_empty() || dims.iter().all(|dim| dim >= 0) {
        return Ok(None);
    }
    let wrong = |detail| TfliteError::Shape { place: place.describe(), detail };
    if dims.len() != shape.len() {
        return Err(wrong(format!("the shape has rank {}, its signature rank {}", shape.len(), dims.len())));
    }
    let signature = read_all(Some(dims), |axis, dim| match usize::try_from(dim) {
        Ok(dim) => Ok(Some(dim)),
        Err(_) if dim == -1 => Ok(None),
        Err(_) => Err(wrong(format!("dimension {axis} of the signature is {dim}, expected -1 or more"))),
    })?;
    Ok(Some(signature))
}

/// The bytes that a dense tensor takes; `None` where elements have no fixed size.
fn bytes(dtype: DType, shape: &[usize], place: Place<'_>) -> Result<Option<usize>, TfliteError> {
    // A zero dimension makes an empty tensor whatever the product of the others.
    let elements =
        if shape.contains(&0) { Some(0) } else { shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim)) };
    // A type of unknown size still gets its number of elements checked.
    let bits = elements.and_then(|n| n.checked_mul(dtype.bits().unwrap_or(8)));
    match bits {
        Some(bits) => Ok(dtype.bits().map(|_| bits.div_ceil(8))),
        None => Err(TfliteError::Shape {
            place: place.describe(),
            detail: format!("{dtype} of shape {} is too large to address", shape_text(shape)),
        }),
    }
}

fn read_data<'a>(
    source: schema::Tensor<'a>,
    dtype: DType,
    shape: &[usize],
    expected: Option<usize>,
    buffers: &[Option<&'a [u8]>],
    place: Place<'_>,
) -> Result<Option<&'a [u8]>, TfliteError> {
    let index = source.buffer();
    let data = match usize::try_from(index).ok().and_then(|at| buffers.get(at)) {
        Some(data) => *data,
        // Buffer 0 means "no data" even where the list is missing.
        None if index == 0 => None,
        None => {
            return Err(TfliteError::Index {
                place: place.describe(),
                what: "buffer",
                index: index.into(),
                count: buffers.len(),
            });
        }
    };
    match (data, expected) {
        // An empty buffer is what tensors computed at run time have; only an empty tensor is complete with it.
        (Some([]), expected) if expected != Some(0) => Ok(None),
        (Some(data), Some(expected)) if data.len() != expected => Err(TfliteError::DataSize {
            place: place.describe(),
            dtype: dtype.to_string(),
            shape: shape_text(shape),
            expected,
            found: data.len(),
        }),
        (data, _) => Ok(data),
    }
}

fn read_quant(
    source: schema::QuantizationParameters<'_>,
    dtype: DType,
    shape: &[usize],
    place: Place<'_>,
) -> Result<Option<Quant>, TfliteError> {
    let Some(scales) = source.scale().filter(|scales| !scales.is_empty()) else {
        return Ok(None);
    };
    let wrong = |detail| TfliteError::Quantization { place: place.describe(), detail };

    let dimension = source.quantized_dimension();
    let axis = match usize::try_from(dimension) {
        // A vector has one dimension only; some converters give its bias the dimension of the weights.
        _ if shape.len() <= 1 => 0,
        Ok(axis) if axis < shape.len() => axis,
        _ => {
            return Err(wrong(format!("quantized dimension {dimension}, but the shape is {}", shape_text(shape))));
        }
    };
    let channels = shape.get(axis).copied().unwrap_or(1);
    if scales.len() != 1 && scales.len() != channels {
        return Err(wrong(format!(
            "{} scales for dimension {axis} of shape {}, expected 1 or {channels}",
            scales.len(),
            shape_text(shape),
        )));
    }
    if let Some(scale) = scales.iter().find(|scale| !(scale.is_finite() && *scale > 0.0)) {
        return Err(wrong(format!("scale {scale}, expected a finite number above 0")));
    }

    let zero_points: Vec<i64> = match source.zero_point().filter(|zeros| !zeros.is_empty()) {
        Some(zeros) if zeros.len() != scales.len() => {
            return Err(wrong(format!("{} scales but {} zero points", scales.len(), zeros.len())));
        }
        Some(zeros) => zeros.iter().collect(),
        None => vec![0; scales.len()],
    };
    if let Some((low, high)) = dtype.range()
        && let Some(zero) = zero_points.iter().find(|zero| !(low..=high).contains(*zero))
    {
        return Err(wrong(format!("zero point {zero}, but {dtype} holds {low} to {high}")));
    }
    Ok(Some(Quant { scales: scales.iter().collect(), zero_points, axis }))
}
