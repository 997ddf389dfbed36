//! How many bytes of code a model's firmware gets, before anything is built.
//!
//! The figures are measured in linked images, one a CPU family: `kiln-ci code-sizes --measure` writes them, and
//! `kiln-ci code-sizes` holds the estimate against the images of models.

use kiln_core::TargetId;

use crate::code_bytes::FAMILIES;

/// The code of one CPU family, in bytes, as compiled for size and linked once.
pub struct Family {
    /// The family.
    pub target: TargetId,
    /// What every model needs: the executor, the model's crate, and what of the run-time library they call.
    pub base: u32,
    /// Functions that several kernels use, of Kiln or of the run-time library: name and bytes.
    pub shared: &'static [(&'static str, u32)],
    /// The kernels.
    pub rows: &'static [RowBytes],
}

/// The code of one kernel.
pub struct RowBytes {
    /// The kernel's number.
    pub number: u16,
    /// Bytes of the functions that only it uses.
    pub bytes: u32,
    /// Which of [`Family::shared`] it uses too.
    pub shared: &'static [u16],
}

/// Bytes of code that a model with the kernels of these numbers adds to firmware for `target`: all but start-up code
/// and drivers. An estimate: within 10 % or 512 bytes, whichever is more, with Rust's precompiled `core`; built from
/// source, that is 800 to 1,050 bytes smaller. `None` where that was not measured, which
/// is for families that firmware is not built for, and for kernels newer than the figures.
pub fn code_bytes(target: TargetId, kernels: &[u16]) -> Option<u64> {
    let family = family(target)?;
    if kernels.iter().any(|number| !family.rows.iter().any(|row| row.number == *number)) {
        return None;
    }
    let used = || family.rows.iter().filter(|row| kernels.contains(&row.number));
    let own = used().map(|row| u64::from(row.bytes)).sum::<u64>();
    let shared = family.shared.iter().enumerate();
    let shared = shared.filter(|(index, _)| used().any(|row| row.shared.iter().any(|i| usize::from(*i) == *index)));
    Some(u64::from(family.base) + own + shared.map(|(_, (_, bytes))| u64::from(*bytes)).sum::<u64>())
}

/// The figures of a CPU family.
pub fn family(target: TargetId) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.target == target)
}
