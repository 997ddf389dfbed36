//! Which functions call which.

use std::collections::BTreeSet;
use std::path::Path;

use super::StackError;
use super::frame::{Frames, Target};
use super::image::Image;

/// The functions of an image and what they call.
pub(crate) struct CallGraph {
    image: Image,
}

impl CallGraph {
    /// Reads the ELF file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, StackError> {
        Ok(Self { image: Image::read(path)? })
    }

    /// The functions that run the model and set it up.
    pub(crate) fn roots(&self) -> Vec<u64> {
        let is = |name: &str| name.starts_with("kiln_device::replay::run_model") || name.ends_with("::glue::set_up");
        self.image.functions.values().filter(|s| is(&s.name)).map(|s| s.address).collect()
    }

    /// The functions of each kernel that is listed.
    pub(crate) fn rows(&self) -> Vec<[u64; 2]> {
        self.image.rows.iter().map(|row| [row.check, row.run]).collect()
    }

    /// Name and bytes of the function at an address.
    pub(crate) fn function(&self, address: u64) -> Option<(&str, u64)> {
        self.image.functions.get(&address).map(|symbol| (symbol.name.as_str(), symbol.bytes))
    }

    /// The functions of the image that are called from these, themselves included. What is called through
    /// pointers, and what lies in libraries outside of the image, is left out.
    pub(crate) fn reached(&self, from: &[u64]) -> Result<BTreeSet<u64>, StackError> {
        let mut frames = Frames::new(&self.image);
        let mut reached = BTreeSet::new();
        let mut waiting = from.to_vec();
        while let Some(address) = waiting.pop() {
            if !self.image.functions.contains_key(&address) || !reached.insert(address) {
                continue;
            }
            let calls = frames.of(address)?.calls.into_iter();
            waiting.extend(calls.filter_map(|call| match call.target {
                Target::Function(address) => Some(address),
                Target::Pointer { .. } => None,
            }));
        }
        Ok(reached)
    }
}
