//! Kernels of CubeCL's library: matrix products and sums.

use cubecl::ir::{ElemType, FloatKind};
use cubek::matmul::definition::MatmulElems;
use cubek::matmul::multi_level;
use cubek::reduce::components::instructions::ReduceOperationConfig;
use cubek::reduce::launch::{RoutineStrategy, VectorizationStrategy};
use cubek::reduce::routines::{BlueprintStrategy, unit::UnitStrategy};
use cubek::reduce::{ReduceDtypes, ReduceStrategy};
use cubek::std::InputBinding;
use kiln_ops::MatMulSizes;
use kiln_planner::backend::BackendError;

use crate::gpu::{Buffer, Gpu};

const F32: ElemType = ElemType::Float(FloatKind::F32);

/// The product of `sizes.batch` pairs of float32 matrices; `transposed` says which of the two lie with rows and columns
/// exchanged.
///
/// Plain units multiply: what uses a GPU's units for matrices rounds float32 to 10 bits of fraction.
pub(crate) fn matmul(
    gpu: &Gpu,
    a: &Buffer,
    b: &Buffer,
    sizes: MatMulSizes,
    transposed: [bool; 2],
) -> Result<Buffer, BackendError> {
    let (batch, m, n, k) = (sizes.batch as usize, sizes.m as usize, sizes.n as usize, sizes.k as usize);
    let elements = batch * m * n;
    if elements == 0 || k == 0 {
        return crate::kernels::fill(gpu, 0, elements);
    }
    let output = gpu.empty(elements)?;
    let matrix = |buffer: &Buffer, rows: usize, columns: usize, transposed: bool| {
        let strides = if transposed { [rows * columns, 1, rows] } else { [rows * columns, columns, 1] };
        buffer.tensor([batch, rows, columns], strides)
    };
    cubek::matmul::launch::launch_ref(
        &multi_level::Strategy::SimpleUnit(Default::default()).into(),
        gpu.client(),
        InputBinding::new(matrix(a, m, k, transposed[0]), F32),
        InputBinding::new(matrix(b, k, n, transposed[1]), F32),
        matrix(&output, m, n, false),
        &mut MatmulElems::from_single_dtype(F32),
    )
    .map_err(|e| gpu.refused("matmul", e))?;
    Ok(output)
}

/// The sums of `[outer, count, inner]` float32 along the middle axis.
pub(crate) fn sum(gpu: &Gpu, x: &Buffer, [outer, count, inner]: [usize; 3]) -> Result<Buffer, BackendError> {
    if outer * count * inner == 0 {
        return crate::kernels::fill(gpu, 0, outer * inner);
    }
    let output = gpu.empty(outer * inner)?;
    let strategy = ReduceStrategy {
        routine: RoutineStrategy::Unit(BlueprintStrategy::Inferred(UnitStrategy)),
        vectorization: VectorizationStrategy { parallel_output_vectorization: false },
        autotune_level: Default::default(),
    };
    let dtypes = ReduceDtypes { input: F32, output: F32, accumulation: F32 };
    let operation = ReduceOperationConfig::Sum;
    let launched = if inner == 1 {
        let (from, to) = (x.tensor([outer, count], [count, 1]), output.tensor([outer, 1], [1, 1]));
        cubek::reduce::reduce(gpu.client(), from, to, 1, strategy, operation, dtypes)
    } else {
        let from = x.tensor([outer, count, inner], [count * inner, inner, 1]);
        let to = output.tensor([outer, 1, inner], [inner, inner, 1]);
        cubek::reduce::reduce(gpu.client(), from, to, 1, strategy, operation, dtypes)
    };
    launched.map_err(|e| gpu.refused("sum", e))?;
    Ok(output)
}
