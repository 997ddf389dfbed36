//! From a checked TFLite file to a graph.

use kiln_core::{DType, MAX_RANK, Shape, TensorType};
use kiln_ops::{self as ops, Activation, Op, Pool2d, PoolKind};
use kiln_planner::graph::{Entry, Graph, Node, Quant, ValueId};

use crate::error::{ImportError, Refused};
use crate::tflite::{self, OpOptions, Operator, Padding, Subgraph, TfliteFile, WeightsFormat};

/// Converts a `.tflite` file's bytes; `name` is what the graph is called. The graph's entry is
/// `infer`. What TFLite leaves open (a batch of -1) is planned as the file's own shape says.
pub fn import_tflite(bytes: &[u8], name: &str) -> Result<Graph, ImportError> {
    let file = TfliteFile::parse(bytes)?;
    let main = file.main();
    let mut import = Import {
        file: main,
        graph: Graph::new(name),
        nodes: Vec::new(),
        values: vec![None; main.tensors.len()],
        refused: Vec::new(),
    };
    for (index, operator) in main.operators.iter().enumerate() {
        import.operator(index, operator);
    }
    if !import.refused.is_empty() {
        return Err(ImportError::Unsupported(import.refused));
    }
    let inputs = import.interface("input", &main.inputs)?;
    let outputs = import.interface("output", &main.outputs)?;
    let Import { mut graph, nodes, .. } = import;
    graph.labels = tflite::labels(bytes, &file);
    graph.entries.push(Entry { name: "infer".into(), inputs, outputs, nodes, assigns: Vec::new() });
    graph.validate()?;
    Ok(graph)
}

struct Import<'f, 'a> {
    file: &'f Subgraph<'a>,
    graph: Graph,
    nodes: Vec<Node>,
    values: Vec<Option<ValueId>>,
    refused: Vec<Refused>,
}

/// Why an operator is refused, in words.
type Refusal = String;

impl<'f, 'a> Import<'f, 'a> {
    /// Converts an operator, or notes why not and goes on, so that all of them are told at once.
    fn operator(&mut self, index: usize, operator: &Operator<'a>) {
        if let Err(reason) = self.convert(operator) {
            let output = operator.outputs.first();
            let tensor = output.map_or(String::new(), |&t| self.file.tensors[t].name.into());
            self.refused.push(Refused { index, op: operator.name.to_string(), tensor, reason });
        }
    }

    /// One line an operator: which of Kiln's it is, and what must be rearranged for it.
    fn convert(&mut self, operator: &Operator<'a>) -> Result<(), Refusal> {
        match (operator.name.builtin(), &operator.options) {
            (Some("CONV_2D"), options) => self.convolution(operator, options, false),
            (Some("DEPTHWISE_CONV_2D"), options) => self.convolution(operator, options, true),
            (Some("FULLY_CONNECTED"), options) => self.fully_connected(operator, options),
            (Some("AVERAGE_POOL_2D"), options) => self.pool(operator, options, PoolKind::Average),
            (Some("MAX_POOL_2D"), options) => self.pool(operator, options, PoolKind::Max),
            (Some("ADD"), OpOptions::Add { activation: a, .. }) => {
                let op = ops::Add { activation: activation(*a)? };
                self.node(operator, op, 2)
            }
            (Some("SOFTMAX"), OpOptions::Softmax { beta }) => self.softmax(operator, *beta),
            (Some("RESHAPE"), _) => {
                let shape = self.output_type(operator)?.shape;
                self.node(operator, ops::Reshape { shape }, 1)
            }
            (Some("PAD"), _) => self.pad(operator),
            (Some("TRANSPOSE"), _) => self.transpose(operator),
            (Some("QUANTIZE"), _) => self.node(operator, ops::Quantize, 1),
            (Some("DEQUANTIZE"), _) => self.node(operator, ops::Dequantize, 1),
            (Some("LOG_SOFTMAX"), _) => self.log_softmax(operator),
            _ => Err("Kiln has no such operator yet".into()),
        }
    }

    fn convolution(
        &mut self,
        operator: &Operator<'a>,
        options: &OpOptions<'_>,
        depthwise: bool,
    ) -> Result<(), Refusal> {
        let (padding, strides, dilations, a) = match *options {
            OpOptions::Conv2D { padding, stride_h, stride_w, dilation_h, dilation_w, activation }
            | OpOptions::DepthwiseConv2D { padding, stride_h, stride_w, dilation_h, dilation_w, activation, .. } => {
                (padding, [stride_h, stride_w], [dilation_h, dilation_w], activation)
            }
            _ => return Err("its options are missing".into()),
        };
        let mut inputs = self.inputs(operator, 2, 3)?;
        self.refuse_hybrid(&inputs)?;
        let x = self.graph.value(inputs[0]).ty.shape;
        if depthwise {
            inputs[1] = self.depthwise_weights(inputs[1])?;
        }
        let w = self.graph.value(inputs[1]).ty.shape;
        if x.rank() != 4 || w.rank() != 4 {
            return Err(format!("the image has {} dimensions and the weights {}, both need 4", x.rank(), w.rank()));
        }
        // Groups follow from the shapes: TFLite stores how many channels a filter sees.
        let groups = match (depthwise, w.last()) {
            (true, _) => x.last(),
            (false, 0) => return Err("the weights have no channels".into()),
            (false, per_group) if x.last().is_multiple_of(per_group) => x.last() / per_group,
            (false, per_group) => {
                return Err(format!("{} channels don't divide by the weights' {per_group}", x.last()));
            }
        };
        let (strides, dilations) = (dims(strides)?, dims(dilations)?);
        let pads = pads(padding, &x, [w.dim(1), w.dim(2)], strides, dilations);
        let op = ops::Conv2d { strides, dilations, pads, groups, activation: activation(a)? };
        self.finish(operator, op, inputs)
    }

    /// TFLite stores depthwise weights as `[1, KH, KW, O]`; Kiln as every convolution's,
    /// `[O, KH, KW, 1]`.
    fn depthwise_weights(&mut self, id: ValueId) -> Result<ValueId, Refusal> {
        let value = self.graph.value(id);
        let data = self.graph.constant_data(id).ok_or("its weights are not constant")?;
        let &[1, kh, kw, o] = value.ty.shape.dims() else {
            return Err(format!("depthwise weights have shape {:?}, not [1, height, width, channels]", value.ty.shape));
        };
        let element = value.ty.dtype.bits() as usize / 8;
        if element == 0 {
            return Err("depthwise weights of less than a byte each".into());
        }
        let (taps, channels) = (kh as usize * kw as usize, o as usize);
        let mut turned = Vec::with_capacity(data.len());
        for channel in 0..channels {
            for tap in 0..taps {
                let at = (tap * channels + channel) * element;
                turned.extend_from_slice(&data[at..at + element]);
            }
        }
        let ty = TensorType::new(
            value.ty.dtype,
            Shape::new(&[o, kh, kw, 1]).map_err(|_| "its weights are larger than Kiln counts")?,
        );
        let mut quant = value.quant.clone();
        if quant.scales.len() > 1 && quant.axis != 3 {
            return Err(format!("depthwise weights have scales along axis {}, not 3", quant.axis));
        }
        quant.axis = 0;
        let name = value.name.clone();
        Ok(self.graph.add_constant(name, ty, quant, turned))
    }

    fn fully_connected(&mut self, operator: &Operator<'a>, options: &OpOptions<'_>) -> Result<(), Refusal> {
        let &OpOptions::FullyConnected { activation: a, weights_format, keep_num_dims, .. } = options else {
            return Err("its options are missing".into());
        };
        if weights_format != WeightsFormat::Default {
            return Err("its weights are shuffled for one CPU kernel: convert the model without that".into());
        }
        let inputs = self.inputs(operator, 2, 3)?;
        self.refuse_hybrid(&inputs)?;
        let op = ops::FullyConnected { keep_dims: keep_num_dims, activation: activation(a)? };
        self.finish(operator, op, inputs)
    }

    fn pool(&mut self, operator: &Operator<'a>, options: &OpOptions<'_>, kind: PoolKind) -> Result<(), Refusal> {
        let &OpOptions::Pool2D { padding, stride_h, stride_w, filter_h, filter_w, activation: a } = options else {
            return Err("its options are missing".into());
        };
        let inputs = self.inputs(operator, 1, 1)?;
        let x = self.graph.value(inputs[0]);
        let y = self.output(operator)?;
        if x.ty.dtype != DType::F32 && self.quant(y)? != x.quant {
            return Err("input and output differ in scale or zero point, which a pool can't change".into());
        }
        let (kernel, strides) = (dims([filter_h, filter_w])?, dims([stride_h, stride_w])?);
        let pads = pads(padding, &x.ty.shape, kernel, strides, [1, 1]);
        let op = Pool2d { kind, kernel, strides, pads, activation: activation(a)? };
        self.finish(operator, op, inputs)
    }

    fn softmax(&mut self, operator: &Operator<'a>, beta: f32) -> Result<(), Refusal> {
        let y = self.output(operator)?;
        if self.file.tensors[y].dtype == tflite::DType::I8 {
            let quant = self.quant(y)?;
            if quant != Quant::per_tensor(1.0 / 256.0, -128) {
                return Err("an int8 softmax needs an output scale of 1/256 and a zero point of -128".into());
            }
        }
        self.node(operator, ops::Softmax { beta }, 1)
    }

    fn log_softmax(&mut self, operator: &Operator<'a>) -> Result<(), Refusal> {
        let y = self.output(operator)?;
        let (scale, zero_point) = ops::LOG_SOFTMAX_OUTPUT;
        if self.file.tensors[y].dtype == tflite::DType::I8 && self.quant(y)? != Quant::per_tensor(scale, zero_point) {
            return Err("an int8 log-softmax needs an output scale of 1/16 and a zero point of 127".into());
        }
        self.node(operator, ops::LogSoftmax, 1)
    }

    /// Zeros around a tensor, put there axis by axis: constants before and behind it. A convolution over them takes them as its padding
    /// when the graph is cleaned.
    fn pad(&mut self, operator: &Operator<'a>) -> Result<(), Refusal> {
        let inputs = self.inputs(operator, 2, 2)?;
        let (x, paddings) = (self.graph.value(inputs[0]).clone(), self.graph.value(inputs[1]));
        let data = self.graph.constant_data(inputs[1]).ok_or("its paddings are not constant")?;
        let rank = x.ty.shape.rank();
        let sizes: Vec<i64> = match paddings.ty.dtype {
            DType::I32 => data.as_chunks().0.iter().map(|&bytes| i32::from_le_bytes(bytes).into()).collect(),
            DType::I64 => data.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect(),
            other => return Err(format!("its paddings are {}, not int32 or int64", other.name())),
        };
        let sizes: Vec<u32> = sizes
            .iter()
            .map(|&size| u32::try_from(size))
            .collect::<Result<_, _>>()
            .map_err(|_| format!("{sizes:?} are no sizes of paddings"))?;
        if sizes.len() != 2 * rank {
            return Err(format!("it has {} paddings for {rank} dimensions, two each are needed", sizes.len()));
        }
        let zero = match (x.ty.dtype, &x.quant.zero_points[..]) {
            (DType::I8, &[zero]) => vec![zero as u8],
            (DType::F32, _) => 0.0f32.to_le_bytes().to_vec(),
            (other, _) => return Err(format!("padding of {} is not supported yet", other.name())),
        };
        let tensor = self.output(operator)?;
        if x.ty.dtype == DType::I8 && self.quant(tensor)? != x.quant {
            return Err("input and output differ in scale or zero point, which padding can't change".into());
        }
        let name = self.node_name(tensor);
        let padded: Vec<usize> = (0..rank).filter(|axis| sizes[2 * axis] > 0 || sizes[2 * axis + 1] > 0).collect();
        let Some((&last, others)) = padded.split_last() else {
            return self.finish(operator, ops::Copy, vec![inputs[0]]);
        };
        let mut value = inputs[0];
        for &axis in others.iter().chain([&last]) {
            let mut parts = Vec::new();
            for (place, size) in [(0, sizes[2 * axis]), (1, sizes[2 * axis + 1])] {
                if size > 0 {
                    parts.push(self.zeros(&name, value, axis, size, &zero)?);
                }
                if place == 0 {
                    parts.push(value);
                }
            }
            let op = ops::Concat { axis: axis as u8 };
            if axis == last {
                return self.finish(operator, op, parts);
            }
            let ty = Op::from(op).output(&self.graph.types(&parts)).map_err(|e| e.to_string())?;
            let output = self.graph.add_result(format!("{name} (axis {axis})"), ty, x.quant.clone());
            self.nodes.push(Node { name: format!("{name} (axis {axis})"), op: op.into(), inputs: parts, output });
            value = output;
        }
        Ok(())
    }

    /// A constant like a value, but `size` along an axis, of nothing but `zero`.
    fn zeros(&mut self, name: &str, like: ValueId, axis: usize, size: u32, zero: &[u8]) -> Result<ValueId, Refusal> {
        /// More than any network pads by; a file may claim anything.
        const MOST: u64 = 1 << 24;
        let value = self.graph.value(like);
        let mut dims = value.ty.shape.dims().to_vec();
        dims[axis] = size;
        let shape = Shape::new(&dims).map_err(|_| "its paddings are larger than Kiln counts")?;
        let ty = TensorType::new(value.ty.dtype, shape);
        let bytes = ty.bytes().filter(|&bytes| bytes <= MOST);
        let bytes = bytes.ok_or_else(|| format!("it pads by a tensor of shape {dims:?}, more than {MOST} bytes"))?;
        let quant = value.quant.clone();
        let data = zero.iter().copied().cycle().take(bytes as usize).collect::<Vec<u8>>();
        Ok(self.graph.add_constant(format!("{name} (zeros)"), ty, quant, data))
    }

    /// The second input is the permutation, which must be known.
    fn transpose(&mut self, operator: &Operator<'a>) -> Result<(), Refusal> {
        let inputs = self.inputs(operator, 2, 2)?;
        let (x, permutation) = (self.graph.value(inputs[0]), self.graph.value(inputs[1]));
        let data = self.graph.constant_data(inputs[1]).ok_or("its permutation is not constant")?;
        if permutation.ty.dtype != DType::I32 || permutation.ty.shape.elements() != Some(x.ty.shape.rank() as u64) {
            let (dtype, shape) = (permutation.ty.dtype.name(), permutation.ty.shape);
            return Err(format!("its permutation is {dtype} {shape:?} for {} dimensions", x.ty.shape.rank()));
        }
        let axes: Vec<i32> = data.as_chunks().0.iter().map(|&bytes| i32::from_le_bytes(bytes)).collect();
        let known = axes.iter().map(|&axis| usize::try_from(axis).ok()).collect::<Option<Vec<usize>>>();
        let op = known.and_then(|axes| ops::Transpose::new(&axes));
        let op = op.ok_or_else(|| format!("{axes:?} is not a permutation of its dimensions"))?;
        if x.ty.dtype == DType::I8 && self.quant(self.output(operator)?)? != moved(&x.quant, &op) {
            return Err("input and output differ in scale or zero point, which a transpose can't change".into());
        }
        self.finish(operator, op, vec![inputs[0]])
    }

    /// A node whose inputs are exactly the operator's first `count`.
    fn node(&mut self, operator: &Operator<'a>, op: impl Into<Op>, count: usize) -> Result<(), Refusal> {
        let most = if count == 1 { 2 } else { count };
        let mut inputs = self.inputs(operator, count, most)?;
        // The second input of a reshape or softmax repeats what the output's type says.
        inputs.truncate(count);
        self.finish(operator, op, inputs)
    }

    /// Refuses float32 activations with int8 weights, for which TFLite quantizes activations as it runs.
    fn refuse_hybrid(&self, inputs: &[ValueId]) -> Result<(), Refusal> {
        let dtypes = [0, 1].map(|i| inputs.get(i).map(|&id| self.graph.value(id).ty.dtype));
        if dtypes != [Some(DType::F32), Some(DType::I8)] {
            return Ok(());
        }
        Err("its weights are int8 but its input is float32 (dynamic-range quantization), which Kiln does not compute: \
             convert the model with a representative dataset, or without quantization"
            .into())
    }

    fn finish(&mut self, operator: &Operator<'a>, op: impl Into<Op>, inputs: Vec<ValueId>) -> Result<(), Refusal> {
        let op = op.into();
        let ty = op.output(&self.graph.types(&inputs)).map_err(|e| e.to_string())?;
        let tensor = self.output(operator)?;
        let want = self.output_type(operator)?;
        let output = self.value(tensor)?;
        if ty.dtype != want.dtype || ty.shape.elements() != want.shape.elements() {
            return Err(format!(
                "it computes {} {:?}, but the file says {} {:?}",
                ty.dtype.name(),
                ty.shape,
                want.dtype.name(),
                want.shape
            ));
        }
        let name = self.node_name(tensor);
        if ty.shape == want.shape {
            self.nodes.push(Node { name, op, inputs, output });
            return Ok(());
        }
        // The file's shape has other dimensions for the same elements (a fully connected layer's,
        // say): computed under ours, viewed under the file's.
        let quant = self.quant(tensor)?;
        let computed = self.graph.add_result(format!("{name} (computed)"), ty, quant);
        self.nodes.push(Node { name: name.clone(), op, inputs, output: computed });
        let view = ops::Reshape { shape: want.shape };
        self.nodes.push(Node { name, op: view.into(), inputs: vec![computed], output });
        Ok(())
    }

    /// What a node is called in reports: the tensor's name, or its first part. Converters join the names of
    /// everything they fused with semicolons; the first part usually says enough.
    fn node_name(&self, tensor: usize) -> String {
        let whole = self.file.tensors[tensor].name;
        let first = whole.split(';').find(|part| !part.is_empty()).unwrap_or(whole);
        let taken = self.nodes.iter().any(|node| node.name == first);
        if taken { whole.to_string() } else { first.to_string() }
    }

    /// The operator's inputs, of which there must be `min` to `max`; trailing omitted ones are cut.
    fn inputs(&mut self, operator: &Operator<'a>, min: usize, max: usize) -> Result<Vec<ValueId>, Refusal> {
        let given = operator.inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        if given < min || given > max {
            return Err(format!("it has {given} inputs, expected {min} to {max}"));
        }
        let all = operator.inputs[..given].iter();
        all.map(|i| i.ok_or_else(|| "an input it needs is omitted".to_string()).and_then(|i| self.value(i))).collect()
    }

    fn output(&self, operator: &Operator<'a>) -> Result<usize, Refusal> {
        match operator.outputs[..] {
            [one] => Ok(one),
            _ => Err(format!("it has {} outputs, expected 1", operator.outputs.len())),
        }
    }

    fn output_type(&self, operator: &Operator<'a>) -> Result<TensorType, Refusal> {
        self.tensor_type(self.output(operator)?)
    }

    fn tensor_type(&self, tensor: usize) -> Result<TensorType, Refusal> {
        let tensor = &self.file.tensors[tensor];
        let dtype = dtype(tensor.dtype)
            .ok_or_else(|| format!("tensor '{}' is {}, which Kiln does not have", tensor.name, tensor.dtype))?;
        let shape = Shape::from_usize(&tensor.shape)
            .map_err(|_| format!("tensor '{}' has shape {:?}, beyond what Kiln counts", tensor.name, tensor.shape))?;
        Ok(TensorType::new(dtype, shape))
    }

    fn quant(&self, tensor: usize) -> Result<Quant, Refusal> {
        let tensor = &self.file.tensors[tensor];
        let Some(quant) = &tensor.quant else { return Ok(Quant::default()) };
        let zero_points = quant.zero_points.iter().map(|&z| i32::try_from(z)).collect::<Result<Vec<_>, _>>();
        let zero_points = zero_points.map_err(|_| format!("tensor '{}' has a zero point beyond int32", tensor.name))?;
        Ok(Quant { scales: quant.scales.clone(), zero_points, axis: quant.axis })
    }

    /// The graph's value for a tensor of the file.
    fn value(&mut self, index: usize) -> Result<ValueId, Refusal> {
        if let Some(id) = self.values[index] {
            return Ok(id);
        }
        let (ty, quant) = (self.tensor_type(index)?, self.quant(index)?);
        let tensor = &self.file.tensors[index];
        if tensor.is_variable {
            return Err(format!("tensor '{}' is a variable, which is not supported yet", tensor.name));
        }
        let name = if tensor.name.is_empty() { format!("tensor {index}") } else { tensor.name.to_string() };
        if ty.dtype == DType::I8 && quant.scales.is_empty() {
            return Err(format!("tensor '{name}' is int8 without quantization parameters"));
        }
        let id = match tensor.data {
            Some(data) => self.graph.add_constant(name, ty, quant, data),
            None if self.file.inputs.contains(&index) => self.graph.add_input(name, ty, quant),
            None => self.graph.add_result(name, ty, quant),
        };
        self.values[index] = Some(id);
        Ok(id)
    }

    fn interface(&mut self, what: &'static str, tensors: &[usize]) -> Result<Vec<ValueId>, ImportError> {
        let one = |&index: &usize| {
            let tensor = self.file.tensors[index].name.to_string();
            self.value(index).map_err(|reason| ImportError::Interface { what, tensor, reason })
        };
        tensors.iter().map(one).collect()
    }
}

fn dtype(dtype: tflite::DType) -> Option<DType> {
    Some(match dtype {
        tflite::DType::F16 => DType::F16,
        tflite::DType::F32 => DType::F32,
        tflite::DType::F64 => DType::F64,
        tflite::DType::I4 => DType::I4,
        tflite::DType::I8 => DType::I8,
        tflite::DType::I16 => DType::I16,
        tflite::DType::I32 => DType::I32,
        tflite::DType::I64 => DType::I64,
        tflite::DType::U8 => DType::U8,
        tflite::DType::U16 => DType::U16,
        tflite::DType::U32 => DType::U32,
        tflite::DType::U64 => DType::U64,
        tflite::DType::Bool => DType::Bool,
        _ => return None,
    })
}

fn activation(activation: tflite::Activation) -> Result<Activation, Refusal> {
    let refused = |name: &str| Err(format!("the fused activation {name} is not supported yet"));
    Ok(match activation {
        tflite::Activation::None => Activation::None,
        tflite::Activation::Relu => Activation::Relu,
        tflite::Activation::Relu6 => Activation::Relu6,
        tflite::Activation::ReluN1To1 => Activation::ReluN1To1,
        tflite::Activation::Tanh => return refused("TANH"),
        tflite::Activation::SignBit => return refused("SIGN_BIT"),
    })
}

/// Quantization after a transpose: scales along an axis stay with it.
fn moved(quant: &Quant, op: &ops::Transpose) -> Quant {
    let axis = if quant.scales.len() > 1 { op.axes(MAX_RANK).position(|axis| axis == quant.axis) } else { None };
    Quant { axis: axis.unwrap_or(quant.axis), ..quant.clone() }
}

/// Two sizes of a file as Kiln counts them.
fn dims(pair: [usize; 2]) -> Result<[u32; 2], Refusal> {
    let narrow = |v: usize| u32::try_from(v).map_err(|_| format!("{v} is too large for a stride or window"));
    Ok([narrow(pair[0])?, narrow(pair[1])?])
}

/// TFLite's padding as explicit sizes: top, left, bottom, right.
fn pads(padding: Padding, x: &Shape, kernel: [u32; 2], strides: [u32; 2], dilations: [u32; 2]) -> [u32; 4] {
    if padding == Padding::Valid {
        return [0; 4];
    }
    let (top, bottom) = ops::same_padding(x.dim(1), kernel[0], strides[0], dilations[0]);
    let (left, right) = ops::same_padding(x.dim(2), kernel[1], strides[1], dilations[1]);
    [top, left, bottom, right]
}
