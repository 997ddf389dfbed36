//! All that is asked of CubeCL's runtime: finding a GPU, its memory, and how kernels are launched. Kernels themselves
//! are written in CubeCL's language (`kernels`), and two come from its library (`library`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cubecl::client::Client;
use cubecl::prelude::{BufferArg, CubeCount, CubeDim, TensorBinding};
use cubecl::server;
use kiln_planner::backend::{BackendError, MemoryInfo};

use crate::OpenError;

/// Threads of a cube: what every adapter runs at once, a multiple of every warp.
const CUBE: u32 = 64;

/// A GPU and its memory.
pub(crate) struct Gpu {
    client: Client,
    name: String,
    used: Arc<Used>,
}

/// Memory in use.
#[derive(Default)]
struct Used {
    /// Bytes that tensors hold, as others count them.
    tensors: AtomicU64,
    /// Bytes of all buffers.
    buffers: AtomicU64,
    /// The most of them at one time.
    peak: AtomicU64,
}

/// Memory on the GPU: 32-bit words. It goes back when the last clone is dropped and what reads it is done.
#[derive(Clone)]
pub(crate) struct Buffer(Arc<Words>);

struct Words {
    handle: server::Handle,
    words: usize,
    used: Arc<Used>,
}

impl Drop for Words {
    fn drop(&mut self) {
        self.used.buffers.fetch_sub(bytes(self.words), Ordering::Relaxed);
    }
}

/// The bytes that tensors outside of a run hold; released when dropped.
pub(crate) struct Counted {
    bytes: u64,
    used: Arc<Used>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.used.tensors.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What `words` words take: no buffer is empty, because a GPU has none of no bytes.
pub(crate) fn bytes(words: usize) -> u64 {
    4 * words.max(1) as u64
}

impl Gpu {
    /// The best adapter of the graphics API that the machine offers, or the one that `CUBECL_WGPU_DEFAULT_DEVICE`
    /// names.
    #[cfg(feature = "webgpu")]
    pub(crate) fn webgpu() -> Result<Gpu, OpenError> {
        use cubecl::device::WgpuDevice;
        use cubecl::wgpu::{AutoGraphicsApi, RuntimeOptions, try_init_setup};
        use std::sync::{Mutex, PoisonError};

        // One of a process: an adapter that was opened can't be opened again.
        static OPEN: Mutex<Option<String>> = Mutex::new(None);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let device = WgpuDevice::default();
        let name = match &*open {
            Some(name) => name.clone(),
            None => {
                let options = RuntimeOptions::try_default().map_err(|e| OpenError(e.to_string()))?;
                let setup =
                    try_init_setup::<AutoGraphicsApi>(&device, options).map_err(|e| OpenError(e.to_string()))?;
                let info = setup.adapter.get_info();
                format!("{} ({})", info.name, info.backend)
            }
        };
        let client = cubecl::Device::Wgpu(device).client();
        let name = open.insert(name).clone();
        Ok(Gpu::new(client, name))
    }

    /// The first GPU of NVIDIA's CUDA.
    #[cfg(feature = "cuda")]
    pub(crate) fn cuda() -> Result<Gpu, OpenError> {
        Gpu::named(cubecl::Device::cuda(0), "cuda 0")
    }

    /// The first GPU of AMD's ROCm.
    #[cfg(feature = "rocm")]
    pub(crate) fn rocm() -> Result<Gpu, OpenError> {
        Gpu::named(cubecl::Device::rocm(0), "rocm 0")
    }

    #[cfg(any(feature = "cuda", feature = "rocm"))]
    fn named(device: Result<cubecl::Device, cubecl::device::DeviceUnavailable>, name: &str) -> Result<Gpu, OpenError> {
        let device = device.map_err(|e| OpenError(e.to_string()))?;
        Ok(Gpu::new(device.client(), name.to_owned()))
    }

    fn new(mut client: Client, name: String) -> Gpu {
        let stream = client.empty(4).stream;
        // SAFETY: a stream is only a number, which a thread has by itself. With this thread's whichever asks, all work
        // is done in the order in which it was asked for, and memory is given out anew only after what used it before.
        unsafe { client.set_stream(stream) };
        Gpu { client, name, used: Arc::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The most buffers that a kernel can be given, without the one that CubeCL adds for sizes.
    pub(crate) fn max_buffers(&self) -> usize {
        (self.client.properties().hardware.max_bindings as usize).saturating_sub(1)
    }

    /// The most bytes of one buffer.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.client.properties().memory.max_page_size.min(u64::from(u32::MAX))
    }

    fn failed(&self, what: impl ToString) -> BackendError {
        BackendError::Failed { device: self.name.clone(), what: what.to_string() }
    }

    fn hold(&self, handle: server::Handle, words: usize) -> Buffer {
        let now = self.used.buffers.fetch_add(bytes(words), Ordering::Relaxed) + bytes(words);
        self.used.peak.fetch_max(now, Ordering::Relaxed);
        Buffer(Arc::new(Words { handle, words, used: self.used.clone() }))
    }

    fn fits(&self, words: usize) -> Result<(), BackendError> {
        if bytes(words) > self.max_bytes() {
            return Err(BackendError::Memory { device: self.name.clone(), bytes: bytes(words) });
        }
        Ok(())
    }

    /// Memory of `words` words with any content.
    pub(crate) fn empty(&self, words: usize) -> Result<Buffer, BackendError> {
        self.fits(words)?;
        Ok(self.hold(self.client.empty(bytes(words) as usize), words))
    }

    /// Memory with these words.
    pub(crate) fn write_words(&self, words: &[u32]) -> Result<Buffer, BackendError> {
        self.write(bytemuck::cast_slice(words))
    }

    /// Memory with these bytes, zeros behind them up to whole words.
    pub(crate) fn write(&self, data: &[u8]) -> Result<Buffer, BackendError> {
        let words = data.len().div_ceil(4);
        self.fits(words)?;
        let handle = if data.len() as u64 == bytes(words) {
            self.client.create_from_slice(data)
        } else {
            let mut padded = vec![0; bytes(words) as usize];
            padded[..data.len()].copy_from_slice(data);
            self.client.create_from_slice(&padded)
        };
        Ok(self.hold(handle, words))
    }

    /// The first `len` bytes of a buffer, when everything that was asked for before is computed.
    pub(crate) fn read(&self, buffer: &Buffer, len: usize) -> Result<Vec<u8>, BackendError> {
        let read = self.client.read_one(buffer.0.handle.clone()).map_err(|e| self.failed(e))?;
        match read.get(..len) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => Err(self.failed(format!("{} bytes were read of {len}", read.len()))),
        }
    }

    pub(crate) fn synchronize(&self) -> Result<(), BackendError> {
        cubecl::future::block_on(self.client.sync()).map_err(|e| self.failed(e))
    }

    /// Counts the bytes of a tensor until the result is dropped.
    pub(crate) fn count(&self, bytes: u64) -> Counted {
        self.used.tensors.fetch_add(bytes, Ordering::Relaxed);
        Counted { bytes, used: self.used.clone() }
    }

    pub(crate) fn memory(&self) -> MemoryInfo {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MemoryInfo { tensors: load(&self.used.tensors), peak: load(&self.used.peak) }
    }

    /// Cubes, and their threads, for at least `threads` threads.
    pub(crate) fn threads(&self, threads: usize) -> (CubeCount, CubeDim) {
        let dim = CubeDim::new_1d(CUBE);
        (cubecl::calculate_cube_count_elemwise(&self.client, threads, dim), dim)
    }

    /// The error of a kernel of the library that would not start.
    pub(crate) fn refused(&self, kernel: &str, why: impl std::fmt::Debug) -> BackendError {
        self.failed(format!("{kernel}: {why:?}"))
    }
}

impl Buffer {
    pub(crate) fn words(&self) -> usize {
        self.0.words
    }

    /// As a kernel's argument.
    pub(crate) fn arg(&self) -> BufferArg {
        // SAFETY: the buffer has at least that many words.
        unsafe { BufferArg::from_raw_parts(self.0.handle.clone(), self.0.words.max(1)) }
    }

    /// As a tensor of a kernel of the library: strides in words, all inside the buffer.
    pub(crate) fn tensor<const N: usize>(&self, shape: [usize; N], strides: [usize; N]) -> TensorBinding {
        debug_assert!(
            shape.iter().zip(&strides).map(|(n, stride)| n.saturating_sub(1) * stride).sum::<usize>()
                < self.0.words.max(1)
        );
        TensorBinding {
            handle: self.0.handle.clone().binding(),
            strides: strides.as_slice().into(),
            shape: shape.as_slice().into(),
            tiling: Default::default(),
        }
    }
}
