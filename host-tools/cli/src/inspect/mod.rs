//! What is in a model file, as text.

pub mod graph;
pub mod kiln;
pub mod tflite;

use crate::model::{Format, ModelFile};
use crate::report::table::{Align, Table, printable, thousands};

/// The first line.
fn title(file: &ModelFile) -> String {
    let format = match file.format {
        Format::Tflite => "TensorFlow Lite",
        Format::Kiln => "Kiln",
    };
    format!("{}: {format}, {} bytes\n", printable(&file.name), thousands(file.bytes.len() as u64))
}

/// A table of inputs and outputs.
fn tensors_table() -> Table {
    let columns = [
        ("", Align::Left),
        ("name", Align::Left),
        ("dtype", Align::Left),
        ("shape", Align::Left),
        ("scale", Align::Right),
        ("zero point", Align::Right),
    ];
    Table::new(&columns, 1)
}

/// A row of [`tensors_table`].
fn tensor_row(
    what: &str,
    name: &str,
    dtype: &str,
    shape: &[impl ToString],
    scales: &[f32],
    zero_points: &[impl ToString],
) -> [String; 6] {
    let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let (scale, zero_point) = match (scales, zero_points) {
        ([], _) => (String::new(), String::new()),
        ([scale], [zero_point, ..]) => (scale.to_string(), zero_point.to_string()),
        _ => ("by channel".to_owned(), String::new()),
    };
    [what.to_owned(), name.to_owned(), dtype.to_owned(), format!("[{}]", shape.join(", ")), scale, zero_point]
}
