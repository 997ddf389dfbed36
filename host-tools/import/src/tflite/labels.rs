//! Names of classes, from a model's metadata.

use super::archive::appended_texts;
use super::file::TfliteFile;

/// The metadata entry that says that files may be appended, and the identifier of its flatbuffer.
const METADATA: (&str, &[u8]) = ("TFLITE_METADATA", b"M001");

/// The lines of the one text appended to a model that has as many as one of its outputs has elements; none
/// where there is no such text, or where several could be it.
///
/// TFLite's metadata names the files of each output; tools that read labels go by the file all the same, and
/// a text for another purpose would hardly have as many lines.
pub(crate) fn labels(bytes: &[u8], file: &TfliteFile<'_>) -> Vec<String> {
    let described = |name: &str, data: &[u8]| name == METADATA.0 && data.get(4..8) == Some(METADATA.1);
    if !file.metadata().iter().any(|entry| described(entry.name, entry.data)) {
        return Vec::new();
    }
    let main = file.main();
    let outputs = main.outputs.iter().filter_map(|&output| main.tensors.get(output));
    let counts: Vec<usize> = outputs.map(|tensor| tensor.shape.iter().product()).collect();
    let texts = appended_texts(bytes).into_iter().map(|(_, text)| lines(&text));
    let mut found = texts.filter(|lines| !lines.is_empty() && counts.contains(&lines.len()));
    match (found.next(), found.next()) {
        (Some(labels), None) => labels,
        _ => Vec::new(),
    }
}

/// A text's lines without what follows the last that is not empty.
fn lines(text: &str) -> Vec<String> {
    text.trim_start_matches('\u{FEFF}').trim_end().lines().map(|line| line.trim().to_owned()).collect()
}
