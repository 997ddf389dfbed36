//! Plans a model in a build script, so that a project needs no manual step.
//!
//! ```no_run
//! // build.rs
//! kiln_build::Model::new("model/kws.tflite").board("mps2-an386").compile();
//! ```
//!
//! and in the project, which depends on `kiln-model`: `kiln_model::include_model!(mod kws);`. `docs/build-script.md` has
//! the whole.
//!
//! The `kiln` command reads models with the same code: [`model_file`].

#![allow(clippy::result_large_err, reason = "an error is made once, and ends the build")]

mod error;
pub mod model_file;
mod script;

pub use error::{BuildError, ModelError};
pub use script::{BOARD_VARIABLE, Compiled, Model};
