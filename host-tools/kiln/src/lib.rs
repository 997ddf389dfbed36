//! Tensors for hosts.
//!
//! A [`Tensor`] records what is done with it; nothing is computed until a value is asked for. What was recorded
//! is the graph that importers make too: it is differentiated, fused and planned by the same passes, and run
//! through plans that are kept and found again by the graph's shape.
//!
//! ```
//! use kiln::{Device, Tensor};
//!
//! let device = Device::cpu();
//! let x = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device).require_grad();
//! let loss = (x.clone() * x.clone()).sum();
//! let gradients = loss.backward()?;
//! assert_eq!(x.grad(&gradients).unwrap().to_vec()?, [2.0, 4.0, 6.0, 8.0]);
//! # Ok::<(), kiln::Error>(())
//! ```
//!
//! # Panics
//!
//! An operation whose inputs don't go together (shapes, devices) is a defect of the program. It panics where it
//! is recorded, with the operation, the shapes and the line; nothing panics later. What depends on data and
//! memory gives an [`Error`].

// The derived implementations name the crate as its users do.
extern crate self as kiln;

mod cache;
mod cases;
mod device;
mod donate;
mod error;
mod export;
mod gradients;
mod module;
pub mod nn;
mod node;
pub mod optim;
mod realize;
mod record;
mod recorder;
mod tensor;
mod trace;

pub use cases::{Arrays, CaseGroup, Cases, Runtime};
pub use device::{Device, RandomState};
pub use error::Error;
pub use export::{Export, ExportRunner};
pub use gradients::Gradients;
pub use kiln_boards as boards;
pub use kiln_codegen::sources::root as sources;
pub use kiln_core::DType;
pub use kiln_derive::Module;
pub use kiln_ops::Distribution;
pub use kiln_planner::Again;
pub use kiln_planner::backend::MemoryInfo;
pub use module::{Buffer, Changes, Counter, Mode, Module, ModulePath, Visitor};
pub use record::{Record, RecordError};
pub use tensor::{Bool, ConvOptions, Element, Float, Int, Kind, Nested, Recorded, Tensor, realize_all};
pub use trace::{Named, Trace};
