//! Recorded tensors against plain references.

mod gradients;
mod record;
mod reference;
mod threads;
mod trace;
