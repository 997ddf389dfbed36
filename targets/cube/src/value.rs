//! Tensors during a run: as kernels read them, as others hold them, or on the host; made of one another when asked for.

use std::sync::Arc;

use kiln_core::{DType, TensorType};
use kiln_planner::backend::BackendError;

use crate::gpu::{Buffer, Gpu};
use crate::kernels;
use crate::step::is_words;

/// A tensor in at least one of its forms.
#[derive(Clone)]
pub(crate) struct Value {
    ty: TensorType,
    /// A word an element.
    words: Option<Buffer>,
    /// The bytes that a tensor has everywhere in Kiln. The same buffer for elements of 4 bytes.
    bytes: Option<Buffer>,
    host: Option<Arc<[u8]>>,
}

impl Value {
    fn new(ty: TensorType) -> Value {
        Value { ty, words: None, bytes: None, host: None }
    }

    pub(crate) fn of_words(ty: TensorType, words: Buffer) -> Value {
        Value { words: Some(words), ..Value::new(ty) }
    }

    pub(crate) fn of_bytes(ty: TensorType, bytes: Buffer) -> Value {
        Value { bytes: Some(bytes), ..Value::new(ty) }
    }

    pub(crate) fn of_host(ty: TensorType, host: impl Into<Arc<[u8]>>) -> Value {
        Value { host: Some(host.into()), ..Value::new(ty) }
    }

    /// Itself under another shape.
    pub(crate) fn view(&self, ty: TensorType) -> Value {
        Value { ty, ..self.clone() }
    }

    /// Its length in Kiln's bytes.
    fn len(&self) -> usize {
        self.ty.bytes().unwrap_or(0) as usize
    }

    fn elements(&self) -> usize {
        self.ty.shape.elements().unwrap_or(0) as usize
    }

    /// Whether words and bytes are the same.
    fn is_whole(&self) -> bool {
        is_words(&self.ty) && self.ty.dtype != DType::Bool
    }

    /// As kernels read it; only for element types that they know.
    pub(crate) fn words(&mut self, gpu: &Gpu) -> Result<&Buffer, BackendError> {
        let words = match (self.words.take(), &self.bytes, &self.host) {
            (Some(words), ..) => words,
            (None, Some(bytes), _) if self.is_whole() => bytes.clone(),
            (None, Some(bytes), _) => kernels::unpack(gpu, bytes, self.elements())?,
            (None, None, Some(host)) if self.is_whole() => gpu.write(host)?,
            (None, None, host) => {
                let host = host.as_deref().unwrap_or_default();
                gpu.write_words(&host.iter().map(|&byte| u32::from(byte != 0)).collect::<Vec<_>>())?
            }
        };
        Ok(self.words.insert(words))
    }

    /// As tensors are held outside of a run.
    pub(crate) fn bytes(&mut self, gpu: &Gpu) -> Result<&Buffer, BackendError> {
        let bytes = match (self.bytes.take(), &self.words, &self.host) {
            (Some(bytes), ..) => bytes,
            (None, Some(words), _) if self.is_whole() => words.clone(),
            (None, Some(words), _) => kernels::pack(gpu, words)?,
            (None, None, host) => gpu.write(host.as_deref().unwrap_or_default())?,
        };
        Ok(self.bytes.insert(bytes))
    }

    /// Its bytes on the host.
    pub(crate) fn host(&mut self, gpu: &Gpu) -> Result<Arc<[u8]>, BackendError> {
        if let Some(host) = &self.host {
            return Ok(host.clone());
        }
        let len = self.len();
        let host: Arc<[u8]> = gpu.read(self.bytes(gpu)?, len)?.into();
        Ok(self.host.insert(host).clone())
    }
}
