//! The TFLite reader against real models, damaged ones and hostile ones.

mod damaged;
mod guarantees;
mod hostile;
mod memory;
mod real;

use std::path::PathBuf;

/// A model of the reference data.
struct Model {
    name: String,
    bytes: Vec<u8>,
    /// The folder it stands in.
    folder: PathBuf,
}

/// Every .tflite model of the reference data, smallest first; none, with a line saying so, where the data is missing.
fn models() -> Vec<Model> {
    let root = match std::env::var_os("KILN_DATA") {
        Some(data) => PathBuf::from(data),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    let Ok(folders) = std::fs::read_dir(root.join("models")) else {
        println!("skipped: no reference data in {} (set KILN_DATA)", root.display());
        return Vec::new();
    };
    let mut models: Vec<Model> = folders
        .filter_map(|folder| {
            let folder = folder.ok()?.path();
            let bytes = std::fs::read(folder.join("model.tflite")).ok()?;
            Some(Model { name: folder.file_name()?.to_string_lossy().into_owned(), bytes, folder })
        })
        .collect();
    assert!(!models.is_empty(), "{} holds no .tflite model", root.display());
    models.sort_by_key(|model| model.bytes.len());
    models
}
