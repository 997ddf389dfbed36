//! The rows as firmware links them, and the one list of kernels.

/// Makes the rows public and, on hosts, the list of kernels. Of two kernels that apply to an
/// operation, planning takes the one listed first.
macro_rules! kernels {
    ($($module:ident :: $row:ident,)*) => {
        $(pub use crate::$module::$row;)*

        #[cfg(feature = "host")]
        pub(crate) const ALL: &[crate::table::Kernel] = &[$(crate::$module::host::$row,)*];
    };
}

pub use crate::reference::rows as reference;

kernels! {
    conv2d_mve::CONV2D_MVE_S8,
    conv2d_columns::CONV2D_COLUMNS_S8,
    conv2d_paired::CONV2D_PAIRED_S8,
    depthwise_mve::DEPTHWISE_MVE_S8,
    depthwise_paired::DEPTHWISE_PAIRED_S8,
    conv2d_tiled::CONV2D_TILED_S8,
    conv2d_tiled::CONV2D_TILED_BIASED_S8,
    depthwise_scalar::DEPTHWISE_SCALAR_S8,
    depthwise::DEPTHWISE_S8,
    conv2d::CONV2D_S8,
    fully_connected_mve::FULLY_CONNECTED_MVE_S8,
    fully_connected_paired::FULLY_CONNECTED_PAIRED_S8,
    fully_connected_scalar::FULLY_CONNECTED_SCALAR_S8,
    fully_connected_scalar::FULLY_CONNECTED_BIASED_S8,
    fully_connected::FULLY_CONNECTED_S8,
    pool2d_mve::AVERAGE_POOL_MVE_S8,
    pool2d_mve::MAX_POOL_MVE_S8,
    pool2d_dsp::AVERAGE_POOL_DSP_S8,
    pool2d_dsp::MAX_POOL_DSP_S8,
    pool2d::AVERAGE_POOL_S8,
    pool2d::MAX_POOL_S8,
    average_part::AVERAGE_PART_S8,
    add_mve::ADD_MVE_S8,
    add_affine::ADD_AFFINE_S8,
    add::ADD_S8,
    softmax_table::SOFTMAX_TABLE_S8,
    softmax::SOFTMAX_S8,
    copy::COPY,
    transpose::TRANSPOSE,
    quantize::QUANTIZE_F32_S8,
    quantize::REQUANTIZE_S8,
    dequantize::DEQUANTIZE_S8_F32,
    log_softmax::LOG_SOFTMAX_S8,
    conv2d_blocked::CONV2D_BLOCKED_F32,
    conv2d_blocked::CONV2D_INPUT_GRAD_BLOCKED_F32,
    conv2d_blocked::CONV2D_WEIGHT_GRAD_BLOCKED_F32,
    matmul_blocked::FULLY_CONNECTED_BLOCKED_F32,
    matmul_blocked::MATMUL_BLOCKED_F32,
    depthwise_fma::DEPTHWISE_FMA_F32,
    conv2d_fma::CONV2D_FMA_F32,
    fully_connected_fma::FULLY_CONNECTED_FMA_F32,
    depthwise::DEPTHWISE_F32,
    conv2d::CONV2D_F32,
    fully_connected::FULLY_CONNECTED_F32,
    pool2d::AVERAGE_POOL_F32,
    pool2d::MAX_POOL_F32,
    average_part::AVERAGE_PART_F32,
    add::ADD_F32,
    softmax::SOFTMAX_WIDE_F32,
    log_softmax::LOG_SOFTMAX_WIDE_F32,
    softmax::SOFTMAX_F32,
    log_softmax::LOG_SOFTMAX_F32,
    map::MAP_F32,
    map::MAP_I32,
    map::MAP_MATH_WIDE_F32,
    map::MAP_MATH_F32,
    reduce::REDUCE_F32,
    reduce::ARG_MAX_F32,
    matmul::MATMUL_F32,
    movement::STRIDED,
    movement::SCATTER,
    movement::CONCAT,
    cast::CAST,
    random::RANDOM_F32,
    conv2d_grad::CONV2D_INPUT_GRAD_F32,
    conv2d_grad::CONV2D_WEIGHT_GRAD_F32,
    pool2d_grad::AVERAGE_POOL_GRAD_F32,
    pool2d_grad::MAX_POOL_GRAD_F32,
    pool2d_grad::MAX_POOL_PICK_F32,
}
