//! Replaying a folder of reference inputs and outputs ("goldens") on the host or an emulated board.
//!
//! [`Folder`] reads the folder; [`run`] plans the model and replays it; [`locate`] finds the first
//! step and element where the plan leaves the graph's reference kernels.

mod board;
mod compare;
mod error;
mod folder;
pub mod locate;
mod run;

pub use compare::{Check, Difference, Rule};
pub use error::VerifyError;
pub use folder::{Case, Folder, Group};
pub use run::{GroupReport, Report, run};
