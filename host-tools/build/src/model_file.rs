//! Model files: what they are, and the graph in them.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use kiln_import::import_tflite;
use kiln_passes::{Cleaned, clean};
use kiln_planner::graph::Graph;
use kiln_planner::kiln_file::KilnFile;
use kiln_planner::{Options, Planned, plan};

use crate::error::ModelError;

/// The largest model file that is read: 2 GiB, which is also as far as a flatbuffer's offsets reach.
pub const MAX_BYTES: u64 = 2 << 30;

/// What a model file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// TensorFlow Lite: "TFL3" at byte 4.
    Tflite,
    /// Kiln's own: begins with "KILN".
    Kiln,
}

/// As many of a file's first bytes as tell what it is.
const HEAD: usize = 64;

impl Format {
    /// The format of a file: its first bytes decide, then its name.
    fn recognize(path: &Path, bytes: &[u8]) -> Result<Format, ModelError> {
        if let Some(format) = Format::of_magic(bytes) {
            return Ok(format);
        }
        match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
            // Their readers say what is wrong with the first bytes.
            Some("tflite") => Ok(Format::Tflite),
            Some("kiln") => Ok(Format::Kiln),
            Some("onnx") => Err(input(
                path,
                "ONNX models are not supported yet; convert the model to .tflite, quantized to int8, and give that",
            )),
            _ => Err(input(
                path,
                "not a model: it begins neither as a .tflite file (\"TFL3\" at byte 4) nor as a .kiln file (\"KILN\"); \
                 give one of those",
            )),
        }
    }

    /// The format that a file's first bytes say.
    fn of_magic(bytes: &[u8]) -> Option<Format> {
        match bytes {
            [_, _, _, _, b'T', b'F', b'L', b'3', ..] => Some(Format::Tflite),
            [b'K', b'I', b'L', b'N', ..] => Some(Format::Kiln),
            _ => None,
        }
    }
}

/// A model file, read.
#[derive(Debug)]
pub struct ModelFile {
    /// Where it was read from.
    pub path: PathBuf,
    /// What reports call the model.
    pub name: String,
    /// Its format.
    pub format: Format,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl ModelFile {
    /// Reads a file and recognizes its format; its contents are not checked yet.
    ///
    /// # Errors
    ///
    /// The file can't be read, is no regular file, is empty, is larger than [`MAX_BYTES`], or is
    /// no model.
    pub fn read(path: &Path) -> Result<ModelFile, ModelError> {
        let mut file = OpenFile::open(path, MAX_BYTES)?;
        let mut bytes = file.read(HEAD as u64)?;
        if bytes.is_empty() {
            return Err(input(path, "the file is empty; export or download it again"));
        }
        let format = Format::recognize(path, &bytes)?;
        // What only its name makes a model, the readers refuse by its first bytes, however many follow.
        if Format::of_magic(&bytes).is_some() {
            bytes.append(&mut file.read(MAX_BYTES.saturating_sub(bytes.len() as u64))?);
        }
        let own = if format == Format::Kiln { KilnFile::about(&bytes).map(|about| about.model) } else { None };
        let name = own.filter(|name| is_file_name(name)).unwrap_or_else(|| model_name(path));
        Ok(ModelFile { path: path.to_owned(), name, format, bytes })
    }

    /// The graph to plan: the file's, cleaned.
    ///
    /// # Errors
    ///
    /// As for [`ModelFile::own_graph`].
    pub fn graph(&self) -> Result<Graph, ModelError> {
        Ok(self.cleaned()?.graph)
    }

    /// The graph to plan, and what cleaning took out of it.
    ///
    /// # Errors
    ///
    /// As for [`ModelFile::own_graph`].
    pub fn cleaned(&self) -> Result<Cleaned, ModelError> {
        clean(self.own_graph()?).map_err(|source| ModelError::Pass { path: self.path.clone(), source })
    }

    /// The graph as it is in the file.
    ///
    /// # Errors
    ///
    /// The file is damaged or has what is not supported, or it is a `.kiln` file without a graph.
    pub fn own_graph(&self) -> Result<Graph, ModelError> {
        match self.format {
            Format::Tflite => import_tflite(&self.bytes, &self.name)
                .map_err(|source| ModelError::Import { path: self.path.clone(), source }),
            Format::Kiln => self.kiln_file()?.graph.ok_or_else(|| {
                input(
                    &self.path,
                    "it has plans but not the graph they were made from, so nothing can be planned; \
                     give the model itself, or compile it again without --no-graph",
                )
            }),
        }
    }

    /// The contents of a `.kiln` file.
    ///
    /// # Errors
    ///
    /// The file is not one, is damaged, or has another version.
    pub fn kiln_file(&self) -> Result<KilnFile, ModelError> {
        KilnFile::from_bytes(&self.bytes).map_err(|source| ModelError::KilnFile { path: self.path.clone(), source })
    }

    /// Plans a graph of this file.
    ///
    /// # Errors
    ///
    /// No kernel computes some of its nodes, or the plan's format can't hold it.
    pub fn plan(&self, graph: &Graph, options: &Options) -> Result<Planned, ModelError> {
        plan(graph, options).map_err(|source| ModelError::Plan { path: self.path.clone(), source })
    }
}

/// An error about what is in a file.
fn input(path: &Path, problem: impl Into<String>) -> ModelError {
    ModelError::Input { path: path.to_owned(), problem: problem.into() }
}

/// Reads a regular file of at most `limit` bytes, whose size is known before anything is read.
///
/// # Errors
///
/// It can't be read, is no regular file, or is larger.
pub fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, ModelError> {
    // The limit again: the file may have grown since.
    OpenFile::open(path, limit)?.read(limit)
}

/// A regular file, open for reading.
struct OpenFile<'p> {
    path: &'p Path,
    file: File,
}

impl OpenFile<'_> {
    /// Opens a regular file of at most `limit` bytes.
    fn open(path: &Path, limit: u64) -> Result<OpenFile<'_>, ModelError> {
        check_size(path, limit)?;
        let file = File::open(path).map_err(|source| read_error(path, source))?;
        Ok(OpenFile { path, file })
    }

    /// Its next bytes, at most so many.
    fn read(&mut self, most: u64) -> Result<Vec<u8>, ModelError> {
        let mut bytes = Vec::new();
        let read = (&mut self.file).take(most).read_to_end(&mut bytes);
        read.map_err(|source| read_error(self.path, source))?;
        Ok(bytes)
    }
}

fn read_error(path: &Path, source: std::io::Error) -> ModelError {
    ModelError::File { path: path.to_owned(), source }
}

/// Refuses what is no regular file of at most `limit` bytes.
fn check_size(path: &Path, limit: u64) -> Result<(), ModelError> {
    let metadata = std::fs::metadata(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => input(path, "there is no such file"),
        _ => read_error(path, source),
    })?;
    if metadata.is_dir() {
        return Err(input(path, "this is a directory; give a file in it"));
    }
    if !metadata.is_file() {
        return Err(input(path, "not a regular file; write the contents to one first"));
    }
    if metadata.len() > limit {
        let problem = format!("the file has {} bytes, more than the {limit} that are read", metadata.len());
        return Err(input(path, problem));
    }
    Ok(())
}

/// Whether a name from a file can be that of another: one is written for it.
pub fn is_file_name(name: &str) -> bool {
    let plain = |c: char| !c.is_control() && !matches!(c, '/' | '\\' | ':');
    !name.is_empty() && name.len() <= 200 && name.chars().all(plain) && !name.starts_with('.')
}

/// The file's stem, or the folder's name where the file is just called "model".
fn model_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    if stem != "model" {
        return stem.into_owned();
    }
    // A path may not say what the folder is called: `model.tflite`, `../model.tflite`.
    let whole = std::path::absolute(path).unwrap_or_default();
    let written = whole.parent().filter(|folder| folder.file_name().is_some()).map(Path::to_owned);
    let folder = written.or_else(|| whole.parent()?.canonicalize().ok());
    let name = folder.as_deref().and_then(Path::file_name);
    name.map_or_else(|| stem.into_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_file_or_its_folder() {
        assert_eq!(model_name(Path::new("a/kws.tflite")), "kws");
        assert_eq!(model_name(Path::new("a/kws/model.tflite")), "kws");
        assert_eq!(model_name(Path::new("/model.tflite")), "model");
        // Tests run in the crate's folder.
        let here = env!("CARGO_MANIFEST_DIR").rsplit('/').next().unwrap();
        for path in ["model.tflite", "./model.tflite", "src/../model.kiln", "src/./../model.tflite"] {
            assert_eq!(model_name(Path::new(path)), here, "{path}");
        }
        for name in ["../x", "a/b", "a\\b", "", ".", "..", ".hidden", "a\nb", "c:d", &"x".repeat(300)] {
            assert!(!is_file_name(name), "{name}");
        }
        assert!(is_file_name("kws 2.0"));
    }

    #[test]
    fn what_is_no_model_is_not_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        for (name, begin, read) in [
            ("a.tflite", "junk", HEAD),
            ("a.kiln", "TFL", HEAD),
            ("b.tflite", "\0\0\0\0TFL3", 1 << 20),
            ("b", "KILN", 1 << 20),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, begin).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
            assert_eq!(ModelFile::read(&path).unwrap().bytes.len(), read, "{name}");
        }
    }

    #[test]
    fn content_decides_before_the_name() {
        let recognize = |name: &str, bytes: &[u8]| Format::recognize(Path::new(name), bytes);
        assert_eq!(recognize("x.onnx", b"....TFL3....").ok(), Some(Format::Tflite));
        assert_eq!(recognize("x.tflite", b"KILN").ok(), Some(Format::Kiln));
        assert_eq!(recognize("x.KILN", b"junk").ok(), Some(Format::Kiln));
        assert!(recognize("x.onnx", b"junk").is_err_and(|e| e.to_string().contains("ONNX")));
        assert!(recognize("x", b"junk").is_err_and(|e| e.to_string().contains("not a model")));
    }
}
