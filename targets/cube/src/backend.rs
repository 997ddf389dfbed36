//! A GPU as a back end.

use std::any::Any;
use std::sync::Arc;

use kiln_core::TensorType;
use kiln_ops::{Effect, Op};
use kiln_planner::backend::{Backend, BackendError, Handle, Memory, MemoryInfo, Prepared};
use kiln_planner::graph::Graph;
use kiln_target_host::Cpu;

use crate::OpenError;
use crate::gpu::{Buffer, Counted, Gpu};
use crate::run::Ready;
use crate::step::Task;

/// A GPU. Give it to `kiln::Device::new`, boxed.
pub struct Cube {
    gpu: Arc<Gpu>,
    /// Computes what the GPU does not.
    cpu: Arc<Cpu>,
}

/// A tensor's memory on the GPU.
struct Held {
    buffer: Buffer,
    bytes: usize,
    gpu: Arc<Gpu>,
    _counted: Counted,
}

impl Memory for Held {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A tensor of `bytes` bytes that lie in `buffer`.
pub(crate) fn hold(gpu: &Arc<Gpu>, buffer: Buffer, bytes: usize) -> Handle {
    Arc::new(Held { buffer, bytes, gpu: gpu.clone(), _counted: gpu.count(bytes as u64) })
}

/// The buffer of a tensor that this GPU holds.
pub(crate) fn buffer<'h>(gpu: &Arc<Gpu>, handle: &'h Handle) -> Result<&'h Buffer, BackendError> {
    let held = handle.as_any().downcast_ref::<Held>().filter(|held| Arc::ptr_eq(&held.gpu, gpu));
    held.map(|held| &held.buffer).ok_or_else(|| BackendError::Foreign { device: gpu.name().to_owned() })
}

impl Cube {
    #[cfg(any(feature = "webgpu", feature = "cuda", feature = "rocm"))]
    fn new(gpu: Gpu) -> Cube {
        Cube { gpu: Arc::new(gpu), cpu: Arc::new(Cpu::new()) }
    }

    /// The machine's best GPU of the graphics APIs that wgpu knows: Vulkan, Metal, DirectX 12, OpenGL. The
    /// variable `CUBECL_WGPU_DEFAULT_DEVICE` chooses another, such as `DiscreteGpu(1)` or `Cpu`.
    #[cfg(feature = "webgpu")]
    pub fn webgpu() -> Result<Cube, OpenError> {
        Ok(Cube::new(Gpu::webgpu()?))
    }

    /// The machine's first NVIDIA GPU, through CUDA.
    #[cfg(feature = "cuda")]
    pub fn cuda() -> Result<Cube, OpenError> {
        Ok(Cube::new(Gpu::cuda()?))
    }

    /// The machine's first AMD GPU, through ROCm.
    #[cfg(feature = "rocm")]
    pub fn rocm() -> Result<Cube, OpenError> {
        Ok(Cube::new(Gpu::rocm()?))
    }
}

impl Backend for Cube {
    fn name(&self) -> String {
        self.gpu.name().to_owned()
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> bool {
        op.effect() != Effect::Fresh || Task { op, inputs, output, program: None }.is_supported(&self.gpu)
    }

    fn write(&self, bytes: &[u8]) -> Result<Handle, BackendError> {
        Ok(hold(&self.gpu, self.gpu.write(bytes)?, bytes.len()))
    }

    fn read(&self, handle: &Handle) -> Result<Vec<u8>, BackendError> {
        self.gpu.read(buffer(&self.gpu, handle)?, handle.bytes())
    }

    fn prepare(&self, graph: &Graph, entry: usize) -> Result<Box<dyn Prepared>, BackendError> {
        Ok(Box::new(Ready::new(&self.gpu, &self.cpu, graph, entry)?))
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.gpu.synchronize()
    }

    fn memory(&self) -> MemoryInfo {
        self.gpu.memory()
    }
}
