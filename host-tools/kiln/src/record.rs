//! Modules as files.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use kiln_core::TensorType;
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};

use crate::module::{Module, ModulePath, Visitor};
use crate::tensor::{Kind, Tensor, shape_of};
use crate::{DType, Error};

/// Why a record could not be written, read or taken on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file can't be read or written.
    #[error("{}: {error}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is no safetensors file, or damaged.
    #[error("{}: not a whole safetensors file: {error}", file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// Why.
        error: SafeTensorError,
    },
    /// A tensor of the module is not in the record.
    #[error("{from}: has no tensor {tensor}, which the module has; it has {present}")]
    Missing {
        /// The file, or what the record is otherwise.
        from: String,
        /// The tensor's name.
        tensor: String,
        /// The names that come nearest, or a few.
        present: String,
    },
    /// A tensor of the record is not in the module.
    #[error("{from}: has a tensor {tensor}, which the module has not; take a part of the record, or another module")]
    Unknown {
        /// The file, or what the record is otherwise.
        from: String,
        /// The tensor's name.
        tensor: String,
    },
    /// A tensor has another type or shape in the record.
    #[error("{from}: {tensor} is {found}, and the module's is {expected}")]
    Mismatch {
        /// The file, or what the record is otherwise.
        from: String,
        /// The tensor's name.
        tensor: String,
        /// What the module has.
        expected: String,
        /// What the record has.
        found: String,
    },
    /// The device.
    #[error(transparent)]
    Device(#[from] Error),
}

/// Tensors by name, outside of any device: a module's, or those of a safetensors file.
///
/// Element types are F32, I32 and BOOL for tensors, U64 for counters.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The file it was read from.
    file: Option<PathBuf>,
    tensors: BTreeMap<String, Stored>,
}

#[derive(Clone, PartialEq, Debug)]
struct Stored {
    dtype: Dtype,
    dims: Vec<usize>,
    bytes: Vec<u8>,
}

impl Stored {
    fn describe(&self) -> String {
        describe(self.dtype, &self.dims)
    }
}

fn describe(dtype: Dtype, dims: &[usize]) -> String {
    format!("{dtype:?} {dims:?}")
}

fn dtype_of<K: Kind>() -> Dtype {
    match K::DTYPE {
        DType::I32 => Dtype::I32,
        DType::Bool => Dtype::BOOL,
        _ => Dtype::F32,
    }
}

impl Record {
    /// The tensors of `module`, computed.
    pub fn of<M: Module>(module: &M) -> Result<Record, Error> {
        let mut take = Take { record: Record::default(), failed: None };
        module.clone().visit(&ModulePath::ROOT, &mut take);
        take.failed.map_or(Ok(take.record), Err)
    }

    /// The tensors of a safetensors file.
    pub fn read(path: impl AsRef<Path>) -> Result<Record, RecordError> {
        let file = path.as_ref().to_owned();
        let bytes = fs::read(&file).map_err(|error| RecordError::File { file: file.clone(), error })?;
        let format = |error| RecordError::Format { file: file.clone(), error };
        let read = SafeTensors::deserialize(&bytes).map_err(format)?;
        let stored = |(name, view): (String, TensorView<'_>)| {
            (name, Stored { dtype: view.dtype(), dims: view.shape().to_vec(), bytes: view.data().to_vec() })
        };
        Ok(Record { tensors: read.tensors().into_iter().map(stored).collect(), file: Some(file) })
    }

    /// Writes a safetensors file. An older file of that name is replaced only when the new one is complete.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), RecordError> {
        let file = path.as_ref().to_owned();
        let format = |error| RecordError::Format { file: file.clone(), error };
        let views = (self.tensors.iter())
            .map(|(name, t)| Ok((name, TensorView::new(t.dtype, t.dims.clone(), &t.bytes)?)))
            .collect::<Result<Vec<_>, _>>()
            .map_err(format)?;
        let bytes = safetensors::serialize(views, None).map_err(format)?;
        replace(&file, &bytes).map_err(|error| RecordError::File { file: file.clone(), error })
    }

    /// The tensors under a name, `model` for `model.conv.weight`, without it.
    pub fn part(&self, name: &str) -> Record {
        let inside = |(path, tensor): (&String, &Stored)| {
            Some((path.strip_prefix(name)?.strip_prefix('.')?.to_owned(), tensor.clone()))
        };
        Record { file: self.file.clone(), tensors: self.tensors.iter().filter_map(inside).collect() }
    }

    /// The tensors' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Gives `module` these tensors, on the devices of those that it has. Names, element types and shapes have to be
    /// the same, with none left over on either side; otherwise nothing changes.
    pub fn restore<M: Module>(&self, module: &mut M) -> Result<(), RecordError> {
        let mut give = Give { record: self, taken: 0, failed: None };
        let mut copy = module.clone();
        copy.visit(&ModulePath::ROOT, &mut give);
        if let Some(error) = give.failed {
            return Err(error);
        }
        if give.taken < self.tensors.len() {
            let known = Record::of(module)?;
            let unknown = self.names().find(|name| !known.tensors.contains_key(*name)).unwrap_or_default();
            return Err(RecordError::Unknown { from: self.source(), tensor: unknown.to_owned() });
        }
        *module = copy;
        Ok(())
    }

    fn source(&self) -> String {
        self.file.as_ref().map_or_else(|| "the record".to_owned(), |file| file.display().to_string())
    }

    /// The tensor of a name, which has this type.
    fn find(&self, name: &str, dtype: Dtype, dims: &[usize]) -> Result<&Stored, RecordError> {
        let from = self.source();
        let Some(stored) = self.tensors.get(name) else {
            let mut present = self.names().take(8).collect::<Vec<_>>().join(", ");
            if self.tensors.len() > 8 {
                present += &format!(" and {} more", self.tensors.len() - 8);
            }
            return Err(RecordError::Missing { from, tensor: name.to_owned(), present });
        };
        if (stored.dtype, &stored.dims[..]) != (dtype, dims) {
            let (expected, found) = (describe(dtype, dims), stored.describe());
            return Err(RecordError::Mismatch { from, tensor: name.to_owned(), expected, found });
        }
        Ok(stored)
    }
}

/// Writes beside `file` and renames, so that there is always a whole one.
fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    new.persist(file)?;
    Ok(())
}

struct Take {
    record: Record,
    failed: Option<Error>,
}

impl Take {
    fn tensor<const D: usize, K: Kind>(&mut self, path: &ModulePath<'_>, tensor: &Tensor<D, K>) {
        match tensor.to_bytes() {
            Ok(bytes) => {
                let stored = Stored { dtype: dtype_of::<K>(), dims: tensor.dims().to_vec(), bytes };
                self.record.tensors.insert(path.to_string(), stored);
            }
            Err(error) => self.failed = self.failed.take().or(Some(error)),
        }
    }
}

impl Visitor for Take {
    fn parameter<const D: usize>(&mut self, path: &ModulePath<'_>, tensor: &mut Tensor<D>) {
        self.tensor(path, tensor);
    }

    fn buffer<const D: usize, K: Kind>(&mut self, path: &ModulePath<'_>, tensor: &mut Tensor<D, K>) {
        self.tensor(path, tensor);
    }

    fn counter(&mut self, path: &ModulePath<'_>, number: &mut u64) {
        let stored = Stored { dtype: Dtype::U64, dims: Vec::new(), bytes: number.to_le_bytes().to_vec() };
        self.record.tensors.insert(path.to_string(), stored);
    }
}

struct Give<'a> {
    record: &'a Record,
    taken: usize,
    failed: Option<RecordError>,
}

impl<'a> Give<'a> {
    fn find(&mut self, path: &ModulePath<'_>, dtype: Dtype, dims: &[usize]) -> Option<&'a Stored> {
        if self.failed.is_some() {
            return None;
        }
        match self.record.find(&path.to_string(), dtype, dims) {
            Ok(stored) => {
                self.taken += 1;
                Some(stored)
            }
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    fn tensor<const D: usize, K: Kind>(
        &mut self,
        path: &ModulePath<'_>,
        tensor: &Tensor<D, K>,
    ) -> Option<Tensor<D, K>> {
        let stored = self.find(path, dtype_of::<K>(), &tensor.dims())?;
        let ty = TensorType::new(K::DTYPE, shape_of(&tensor.dims()));
        match Tensor::try_from_bytes(&stored.bytes, ty, tensor.device()) {
            Ok(new) => Some(new),
            Err(error) => {
                self.failed = Some(error.into());
                None
            }
        }
    }
}

impl Visitor for Give<'_> {
    fn parameter<const D: usize>(&mut self, path: &ModulePath<'_>, tensor: &mut Tensor<D>) {
        if let Some(new) = self.tensor(path, tensor) {
            *tensor = if tensor.node().parameter { new.require_grad() } else { new };
        }
    }

    fn buffer<const D: usize, K: Kind>(&mut self, path: &ModulePath<'_>, tensor: &mut Tensor<D, K>) {
        if let Some(new) = self.tensor(path, tensor) {
            *tensor = new;
        }
    }

    fn counter(&mut self, path: &ModulePath<'_>, number: &mut u64) {
        if let Some(stored) = self.find(path, Dtype::U64, &[]) {
            // The format's reader has checked that there are as many bytes as the type has.
            *number = stored.bytes[..].try_into().map_or(0, u64::from_le_bytes);
        }
    }
}
