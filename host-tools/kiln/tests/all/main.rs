//! Recorded tensors, modules and training against plain references.

mod budget;
mod curve;
mod donate;
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
