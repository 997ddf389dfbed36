//! Recorded tensors against plain references.

mod export;
mod gradients;
mod record;
mod reference;
mod trace;
