//! What `kiln quantize` is made of: finding samples and their classes, running both models, and comparing
//! what they say.

mod labels;
mod running;
mod samples;
mod scores;
mod text;

pub(crate) use running::{Running, reals};
pub(crate) use samples::{Picker, Samples};
pub(crate) use scores::{Layers, Scores};
pub(crate) use text::{Outcomes, show};
