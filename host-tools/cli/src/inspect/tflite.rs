//! A `.tflite` file that does not become a graph: what it has, by its own names.

use std::collections::BTreeMap;

use kiln_build::ModelError;
use kiln_import::tflite::TfliteFile;
use kiln_import::{ImportError, Refused};

use super::{tensor_row, tensors_table, title};
use crate::CliError;
use crate::console::Style;
use crate::model::ModelFile;
use crate::report::table::{Align, Table, thousands};

/// Interface and operators, and how many of those are refused.
///
/// # Errors
///
/// The file is damaged.
pub fn show(file: &ModelFile, refused: &[Refused], style: Style) -> Result<String, CliError> {
    let parsed = TfliteFile::parse(&file.bytes);
    let parsed =
        parsed.map_err(|error| ModelError::Import { path: file.path.clone(), source: ImportError::Tflite(error) })?;
    let main = parsed.main();
    let mut interface = tensors_table();
    for (what, index) in main.inputs.iter().map(|i| ("input", i)).chain(main.outputs.iter().map(|i| ("output", i))) {
        let Some(tensor) = main.tensors.get(*index) else { continue };
        let (scales, zeros) = tensor.quant.as_ref().map_or((&[][..], &[][..]), |q| (&q.scales, &q.zero_points));
        let dtype = tensor.dtype.to_string().to_lowercase();
        interface.row(tensor_row(what, tensor.name, &dtype, &tensor.shape, scales, zeros));
    }
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (index, operator) in main.operators.iter().enumerate() {
        let (count, unsupported) = counts.entry(operator.name.to_string()).or_default();
        *count += 1;
        *unsupported += u64::from(refused.iter().any(|r| r.index == index));
    }
    let columns = [("operator", Align::Left), ("count", Align::Right), ("not supported", Align::Right)];
    let mut operators = Table::new(&columns, 0);
    for (name, (count, unsupported)) in counts {
        let unsupported = if unsupported == 0 { String::new() } else { thousands(unsupported) };
        operators.row([name, thousands(count), unsupported]);
    }
    Ok(format!("{}\n{}\n{}", title(file), interface.render(style.width), operators.render(style.width)))
}
