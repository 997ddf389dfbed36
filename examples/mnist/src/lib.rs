//! A convolutional network that reads handwritten digits, trained on this computer.

pub mod cases;
pub mod data;
pub mod drawn;
pub mod export;
pub mod model;
pub mod package;
pub mod train;
