//! Model files become Kiln graphs here.
//!
//! Each format has a module that reads untrusted bytes into checked, plain data, and a conversion
//! of that to a [`Graph`](kiln_planner::graph::Graph).

mod error;
pub mod tflite;
mod tflite_graph;

pub use error::{ImportError, Refused};
pub use tflite_graph::import_tflite;
