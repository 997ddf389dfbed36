//! A model written field by field, so that a test can get any of them wrong.

use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use crate::tflite::schema::*;

pub(super) type Builder = FlatBufferBuilder<'static>;
pub(super) type Options = fn(&mut Builder) -> WIPOffset<UnionWIPOffset>;

#[derive(Clone, Default)]
pub(super) struct QuantDraft {
    pub(super) scales: Vec<f32>,
    pub(super) zero_points: Option<Vec<i64>>,
    pub(super) dimension: i32,
    pub(super) blockwise: bool,
}

#[derive(Clone, Default)]
pub(super) struct TensorDraft {
    pub(super) name: &'static str,
    pub(super) dtype: TensorType,
    pub(super) shape: Vec<i32>,
    pub(super) signature: Option<Vec<i32>>,
    pub(super) buffer: u32,
    pub(super) quant: Option<QuantDraft>,
    pub(super) sparse: bool,
    pub(super) external: u32,
    pub(super) variable: bool,
}

#[derive(Clone, Default)]
pub(super) struct OperatorDraft {
    pub(super) code: u32,
    pub(super) inputs: Vec<i32>,
    pub(super) outputs: Vec<i32>,
    pub(super) options: Option<(BuiltinOptions, Options)>,
    pub(super) custom_options: Option<Vec<u8>>,
    /// Offset and size.
    pub(super) large_custom_options: (u64, u64),
}

#[derive(Clone, Default)]
pub(super) struct CodeDraft {
    pub(super) byte: i8,
    pub(super) code: i32,
    pub(super) custom: Option<&'static str>,
}

#[derive(Clone, Default)]
pub(super) struct BufferDraft {
    pub(super) data: Option<Vec<u8>>,
    pub(super) offset: u64,
    pub(super) size: u64,
}

#[derive(Clone, Default)]
pub(super) struct Draft {
    pub(super) version: u32,
    pub(super) subgraphs: usize,
    pub(super) codes: Vec<CodeDraft>,
    pub(super) buffers: Vec<BufferDraft>,
    pub(super) tensors: Vec<TensorDraft>,
    pub(super) operators: Vec<OperatorDraft>,
    pub(super) inputs: Vec<i32>,
    pub(super) outputs: Vec<i32>,
    pub(super) metadata: Vec<(&'static str, u32)>,
}

impl Draft {
    /// One fully connected int8 layer: tensors input [1, 4], weights [2, 4], bias [2] and output [1, 2].
    pub(super) fn new() -> Self {
        let quant = |scales: &[f32], zero: i64| {
            let zero_points = Some(vec![zero; scales.len()]);
            Some(QuantDraft { scales: scales.to_vec(), zero_points, ..QuantDraft::default() })
        };
        let tensor = |name, dtype, shape: &[i32], buffer, quant| {
            let shape = shape.to_vec();
            TensorDraft { name, dtype, shape, buffer, quant, ..TensorDraft::default() }
        };
        let data = |data| BufferDraft { data: Some(data), ..BufferDraft::default() };
        Draft {
            version: 3,
            subgraphs: 1,
            codes: vec![CodeDraft { byte: 9, code: 9, custom: None }],
            buffers: vec![BufferDraft::default(), data((1..=8).collect()), data(vec![0; 8])],
            tensors: vec![
                tensor("input", TensorType::INT8, &[1, 4], 0, quant(&[0.5], -1)),
                tensor("weights", TensorType::INT8, &[2, 4], 1, quant(&[0.25, 0.125], 0)),
                tensor("bias", TensorType::INT32, &[2], 2, quant(&[0.125, 0.0625], 0)),
                tensor("output", TensorType::INT8, &[1, 2], 0, quant(&[1.5], 7)),
            ],
            operators: vec![OperatorDraft {
                inputs: vec![0, 1, 2],
                outputs: vec![3],
                options: Some((BuiltinOptions::FullyConnectedOptions, fully_connected)),
                ..OperatorDraft::default()
            }],
            inputs: vec![0],
            outputs: vec![3],
            metadata: vec![("min_runtime_version", 1)],
        }
    }

    /// The file.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let b = &mut Builder::new();
        let codes: Vec<_> = self.codes.iter().map(|code| write_code(b, code)).collect();
        let buffers: Vec<_> = self.buffers.iter().map(|buffer| write_buffer(b, buffer)).collect();
        let subgraphs: Vec<_> = (0..self.subgraphs).map(|_| self.write_subgraph(b)).collect();
        let metadata: Vec<_> = self
            .metadata
            .iter()
            .map(|&(name, buffer)| {
                let name = Some(b.create_string(name));
                Metadata::create(b, &MetadataArgs { name, buffer })
            })
            .collect();
        let args = ModelArgs {
            version: self.version,
            operator_codes: Some(b.create_vector(&codes)),
            subgraphs: Some(b.create_vector(&subgraphs)),
            description: Some(b.create_string("a draft")),
            buffers: Some(b.create_vector(&buffers)),
            metadata: Some(b.create_vector(&metadata)),
            ..ModelArgs::default()
        };
        let model = Model::create(b, &args);
        finish_model_buffer(b, model);
        b.finished_data().to_vec()
    }

    fn write_subgraph(&self, b: &mut Builder) -> WIPOffset<SubGraph<'static>> {
        let tensors: Vec<_> = self.tensors.iter().map(|tensor| write_tensor(b, tensor)).collect();
        let operators: Vec<_> = self.operators.iter().map(|operator| write_operator(b, operator)).collect();
        let args = SubGraphArgs {
            tensors: Some(b.create_vector(&tensors)),
            inputs: Some(b.create_vector(&self.inputs)),
            outputs: Some(b.create_vector(&self.outputs)),
            operators: Some(b.create_vector(&operators)),
            name: Some(b.create_string("main")),
            ..SubGraphArgs::default()
        };
        SubGraph::create(b, &args)
    }
}

fn fully_connected(b: &mut Builder) -> WIPOffset<UnionWIPOffset> {
    let fused_activation_function = ActivationFunctionType::RELU;
    FullyConnectedOptions::create(b, &FullyConnectedOptionsArgs { fused_activation_function, ..Default::default() })
        .as_union_value()
}

fn write_code(b: &mut Builder, code: &CodeDraft) -> WIPOffset<OperatorCode<'static>> {
    let args = OperatorCodeArgs {
        deprecated_builtin_code: code.byte,
        builtin_code: BuiltinOperator(code.code),
        custom_code: code.custom.map(|name| b.create_string(name)),
        version: 1,
    };
    OperatorCode::create(b, &args)
}

fn write_buffer(b: &mut Builder, buffer: &BufferDraft) -> WIPOffset<Buffer<'static>> {
    let data = buffer.data.as_ref().map(|data| b.create_vector(data));
    Buffer::create(b, &BufferArgs { data, offset: buffer.offset, size: buffer.size })
}

fn write_tensor(b: &mut Builder, tensor: &TensorDraft) -> WIPOffset<Tensor<'static>> {
    let quantization = tensor.quant.as_ref().map(|quant| {
        let details = BlockwiseQuantization::create(b, &BlockwiseQuantizationArgs {}).as_union_value();
        let args = QuantizationParametersArgs {
            scale: Some(b.create_vector(&quant.scales)),
            zero_point: quant.zero_points.as_ref().map(|zeros| b.create_vector(zeros)),
            quantized_dimension: quant.dimension,
            details: quant.blockwise.then_some(details),
            details_type: match quant.blockwise {
                true => QuantizationDetails::BlockwiseQuantization,
                false => QuantizationDetails::NONE,
            },
            ..QuantizationParametersArgs::default()
        };
        QuantizationParameters::create(b, &args)
    });
    let args = TensorArgs {
        shape: Some(b.create_vector(&tensor.shape)),
        type_: tensor.dtype,
        buffer: tensor.buffer,
        name: Some(b.create_string(tensor.name)),
        quantization,
        is_variable: tensor.variable,
        sparsity: tensor.sparse.then(|| SparsityParameters::create(b, &SparsityParametersArgs {})),
        shape_signature: tensor.signature.as_ref().map(|dims| b.create_vector(dims)),
        external_buffer: tensor.external,
        ..TensorArgs::default()
    };
    Tensor::create(b, &args)
}

fn write_operator(b: &mut Builder, operator: &OperatorDraft) -> WIPOffset<Operator<'static>> {
    let args = OperatorArgs {
        opcode_index: operator.code,
        inputs: Some(b.create_vector(&operator.inputs)),
        outputs: Some(b.create_vector(&operator.outputs)),
        builtin_options_type: operator.options.map_or(BuiltinOptions::NONE, |(kind, _)| kind),
        builtin_options: operator.options.map(|(_, write)| write(b)),
        custom_options: operator.custom_options.as_ref().map(|options| b.create_vector(options)),
        large_custom_options_offset: operator.large_custom_options.0,
        large_custom_options_size: operator.large_custom_options.1,
        ..OperatorArgs::default()
    };
    Operator::create(b, &args)
}
