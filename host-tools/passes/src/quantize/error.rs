//! Why a graph can't be quantized.

use kiln_planner::graph::GraphError;

/// Why a graph can't be quantized. Messages name the tensor and say what to do.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum QuantizeError {
    /// The graph breaks the rules of graphs.
    #[error("the graph is not valid: {0}; export or import the model again")]
    Invalid(#[from] GraphError),
    /// There is more than one entry, or none.
    #[error("it has {0} entries, and graphs with exactly one can be quantized: export the inference entry alone")]
    Entries(usize),
    /// No node has an int8 form.
    #[error("nothing in it can be quantized: {0}")]
    Nothing(String),
    /// An element that is no number, or infinite.
    #[error("tensor '{tensor}': element {element} is {value}{}", advice(.constant))]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// Which element.
        element: usize,
        /// `NaN`, `inf` or `-inf`.
        value: f32,
        /// Whether it is a constant of the model, not something that a sample led to.
        constant: bool,
    },
    /// A tensor that was never observed.
    #[error("tensor '{0}' was not observed: calibrate with at least one sample that runs the whole entry")]
    Unobserved(String),
    /// Values so large that their scale is not a float32.
    #[error("tensor '{0}': its values are too large for a float32 scale; scale the model's inputs or weights down")]
    TooLarge(String),
    /// A percentile that is none.
    #[error(
        "'{0}' is no way to choose ranges: give minmax, or percentile:P with 50 < P <= 100, such as percentile:99.9"
    )]
    Method(String),
}

fn advice(constant: &bool) -> &'static str {
    match constant {
        true => "; the model is damaged, export it again",
        false => "; the sample that led to it has NaN, infinite or very large elements: leave it out, or scale it",
    }
}
