//! A `.tflite` file that does not become a graph: what it has, by its own names.

use std::collections::BTreeMap;

use kiln_import::ImportError;
use kiln_import::tflite::TfliteFile;

use super::{tensor_row, tensors_table, title};
use crate::CliError;
use crate::console::Style;
use crate::model::ModelFile;
use crate::report::table::{Align, Table, thousands};

/// Interface and operators; `None` where the file is not sound enough to say.
pub fn show(file: &ModelFile, error: &CliError, style: Style) -> Option<String> {
    let CliError::Import { source: ImportError::Unsupported(refused), .. } = error else { return None };
    let parsed = TfliteFile::parse(&file.bytes).ok()?;
    let main = parsed.main();
    let mut interface = tensors_table();
    for (what, index) in main.inputs.iter().map(|i| ("input", i)).chain(main.outputs.iter().map(|i| ("output", i))) {
        let tensor = main.tensors.get(*index)?;
        let (scales, zeros) = tensor.quant.as_ref().map_or((&[][..], &[][..]), |q| (&q.scales, &q.zero_points));
        interface.row(tensor_row(what, tensor.name, &tensor.dtype.to_string(), &tensor.shape, scales, zeros));
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
    Some(format!("{}\n{}\n{}", title(file), interface.render(style.width), operators.render(style.width)))
}
