//! Recorded tensors, modules and training against plain references.

mod curve;
mod export;
mod gradients;
mod layers;
mod module;
mod optim;
mod record;
mod records;
mod reference;
mod threads;
mod trace;
