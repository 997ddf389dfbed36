//! Every row of the kernel table against its operator's reference.

mod generate;
mod gradients;
mod hostile;
mod moves;
mod overlap;
mod patches;
mod references;
mod rows;
mod support;
mod table;
mod training;
mod vectors;
