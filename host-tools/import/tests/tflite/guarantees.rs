//! What the reader promises about every file it accepts, checked from outside.

use kiln_import::tflite::{OpOptions, Subgraph, Tensor, TfliteError, TfliteFile};

use super::memory::peak_of;

/// Bytes of memory a byte of file may cost, however hostile: an empty table takes eight bytes, a tensor about 150.
const MEMORY_FACTOR: usize = 24;
/// What small files may cost besides.
const MEMORY_SLACK: usize = 256 << 10;

/// Parses, checks the memory it took, and where the file is accepted, every promise.
pub(crate) fn parse(bytes: &[u8]) -> Result<TfliteFile<'_>, TfliteError> {
    let (result, peak) = peak_of(|| TfliteFile::parse(bytes));
    assert!(peak <= MEMORY_FACTOR * bytes.len() + MEMORY_SLACK, "{peak} bytes of memory for {} of file", bytes.len());
    match &result {
        Ok(file) => {
            assert_eq!(file.main(), &file.subgraphs()[0]);
            for subgraph in file.subgraphs() {
                check_subgraph(subgraph, file.subgraphs().len());
            }
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains('\n') && message.len() < 600, "{message}");
        }
    }
    result
}

fn check_subgraph(subgraph: &Subgraph<'_>, subgraphs: usize) {
    let count = subgraph.tensors.len();
    subgraph.tensors.iter().for_each(check_tensor);

    let mut known: Vec<bool> =
        subgraph.tensors.iter().map(|tensor| tensor.data.is_some() || tensor.is_variable).collect();
    let mut written = vec![false; count];
    for &input in &subgraph.inputs {
        assert!(!std::mem::replace(&mut written[input], true));
        known[input] = true;
    }
    for operator in &subgraph.operators {
        assert!(operator.inputs.iter().flatten().all(|&tensor| known[tensor]));
        assert!(operator.intermediates.iter().flatten().all(|&tensor| tensor < count));
        for &output in &operator.outputs {
            assert!(subgraph.tensors[output].data.is_none());
            assert!(!std::mem::replace(&mut written[output], true));
            known[output] = true;
        }
        check_options(&operator.options, subgraphs);
    }
    assert!(subgraph.outputs.iter().all(|&output| known[output]));
}

fn check_tensor(tensor: &Tensor<'_>) {
    let elements = tensor.elements();
    if let (Some(data), Some(bits)) = (tensor.data, tensor.dtype.bits()) {
        assert_eq!(data.len() as u128, (elements as u128 * bits as u128).div_ceil(8));
    }
    if let Some(signature) = &tensor.shape_signature {
        assert_eq!(signature.len(), tensor.shape.len());
    }
    if let Some(quant) = &tensor.quant {
        assert_eq!(quant.scales.len(), quant.zero_points.len());
        assert!(quant.scales.iter().all(|scale| scale.is_finite() && *scale > 0.0));
        let channels = tensor.shape.get(quant.axis).copied();
        assert!(quant.scales.len() == 1 || channels == Some(quant.scales.len()));
    }
}

fn check_options(options: &OpOptions<'_>, subgraphs: usize) {
    match *options {
        OpOptions::Conv2D { stride_h, stride_w, dilation_h, dilation_w, .. }
        | OpOptions::DepthwiseConv2D { stride_h, stride_w, dilation_h, dilation_w, .. } => {
            assert!(stride_h.min(stride_w).min(dilation_h).min(dilation_w) > 0);
        }
        OpOptions::Pool2D { stride_h, stride_w, filter_h, filter_w, .. } => {
            assert!(stride_h.min(stride_w).min(filter_h).min(filter_w) > 0);
        }
        OpOptions::TransposeConv { stride_h, stride_w, .. } => assert!(stride_h.min(stride_w) > 0),
        OpOptions::Softmax { beta: number } | OpOptions::LeakyRelu { alpha: number } => {
            assert!(number.is_finite())
        }
        OpOptions::CallOnce { subgraph } => assert!(subgraph < subgraphs),
        _ => {}
    }
}
