//! `.kiln` files: a portable graph and plans for one or more targets in one container.
//!
//! ```text
//! 0   "KILN"   u32 magic
//! 4   u16 major, u16 minor
//! 8   u32 number of sections
//! 12  u32 CRC-32 of everything from byte 16 on
//! 16  sections: u32 kind, u32 reserved, u64 offset, u64 bytes
//! ```
//!
//! Kinds: 1 the graph (postcard), 2 a plan (see `kiln_core::plan`; at a multiple of 16), 3 what the
//! plans were made for (postcard: [`About`]). Readers pass over kinds they do not know.

use kiln_core::{TargetId, crc};
use serde::{Deserialize, Serialize};

use crate::graph::{Graph, GraphError};

const MAGIC: &[u8; 4] = b"KILN";
const VERSION: (u16, u16) = (1, 0);
const SECTION: usize = 24;
const MAX_SECTIONS: usize = 64;

/// What a file's plans were made for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// The model's name.
    pub model: String,
    /// The board's name.
    pub board: String,
    /// The version of Kiln that wrote it.
    pub kiln: String,
}

/// A `.kiln` file's contents.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct KilnFile {
    /// The portable graph.
    pub graph: Option<Graph>,
    /// Plans, each with its target.
    pub plans: Vec<(TargetId, Vec<u8>)>,
    /// What they were made for.
    pub about: About,
}

/// Why a `.kiln` file can't be read.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum KilnFileError {
    /// It does not begin as one.
    #[error("not a .kiln file: it should begin with \"KILN\"")]
    Magic,
    /// Another version.
    #[error("format version {0}.{1}, but this kiln reads {major}.x: compile the model again", major = VERSION.0)]
    Version(u16, u16),
    /// It ends too early.
    #[error("truncated: {what} needs byte {needed}, the file has {have}")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// The bytes that would take.
        needed: u64,
        /// The bytes there are.
        have: u64,
    },
    /// Its bytes changed since it was written.
    #[error("damaged: the checksum is {computed:08x}, the file says {stored:08x}")]
    Crc {
        /// The file's.
        stored: u32,
        /// The bytes'.
        computed: u32,
    },
    /// A section that can't be decoded.
    #[error("the {0} section can't be decoded: the file is damaged or was written by another version")]
    Section(&'static str),
    /// The graph inside breaks the rules of graphs.
    #[error("the graph inside is not valid: {0}")]
    Graph(#[from] GraphError),
    /// Too many sections.
    #[error("{0} sections, more than the {MAX_SECTIONS} a file may have")]
    Sections(u32),
}

impl KilnFile {
    /// The file's bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, KilnFileError> {
        let mut sections: Vec<(u32, Vec<u8>)> = Vec::new();
        for (_, plan) in &self.plans {
            sections.push((2, plan.clone()));
        }
        let about = postcard::to_stdvec(&self.about).map_err(|_| KilnFileError::Section("about"))?;
        sections.push((3, about));
        if let Some(graph) = &self.graph {
            sections.push((1, postcard::to_stdvec(graph).map_err(|_| KilnFileError::Section("graph"))?));
        }
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.0.to_le_bytes());
        bytes.extend_from_slice(&VERSION.1.to_le_bytes());
        bytes.extend_from_slice(&(sections.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let mut offset = (16 + SECTION * sections.len()).next_multiple_of(16);
        for (kind, data) in &sections {
            bytes.extend_from_slice(&kind.to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&(offset as u64).to_le_bytes());
            bytes.extend_from_slice(&(data.len() as u64).to_le_bytes());
            offset = (offset + data.len()).next_multiple_of(16);
        }
        for (_, data) in &sections {
            bytes.resize(bytes.len().next_multiple_of(16), 0);
            bytes.extend_from_slice(data);
        }
        let sum = crc::crc32(&bytes[16..]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// What a file's plans were made for, without reading the rest; `None` where it does not say or can't be read.
    pub fn about(bytes: &[u8]) -> Option<About> {
        let mut sections = sections(bytes).ok()?.filter_map(Result::ok);
        sections.find(|(kind, _)| *kind == 3).and_then(|(_, data)| postcard::from_bytes(data).ok())
    }

    /// Reads a file's bytes. Plans inside are not checked here: `kiln_core::Plan::load` does.
    pub fn from_bytes(bytes: &[u8]) -> Result<KilnFile, KilnFileError> {
        if bytes.get(..4) != Some(MAGIC.as_slice()) {
            return Err(KilnFileError::Magic);
        }
        let (major, minor) = (u16_at(bytes, 4)?, u16_at(bytes, 6)?);
        if major != VERSION.0 {
            return Err(KilnFileError::Version(major, minor));
        }
        let sections = sections(bytes)?;
        let stored = u32_at(bytes, 12)?;
        let computed = crc::crc32(piece(bytes, "the header", 16, bytes.len().saturating_sub(16) as u64)?);
        if stored != computed {
            return Err(KilnFileError::Crc { stored, computed });
        }
        let mut file = KilnFile::default();
        for section in sections {
            let (kind, data) = section?;
            match kind {
                1 => {
                    let graph: Graph = postcard::from_bytes(data).map_err(|_| KilnFileError::Section("graph"))?;
                    graph.validate()?;
                    file.graph = Some(graph);
                }
                2 => file.plans.push((TargetId(u32_at(data, 8)?), data.to_vec())),
                3 => file.about = postcard::from_bytes(data).map_err(|_| KilnFileError::Section("about"))?,
                _ => {}
            }
        }
        Ok(file)
    }
}

/// Each section's kind and bytes.
fn sections(bytes: &[u8]) -> Result<impl Iterator<Item = Result<(u32, &[u8]), KilnFileError>>, KilnFileError> {
    let count = u32_at(bytes, 8)?;
    if count as usize > MAX_SECTIONS {
        return Err(KilnFileError::Sections(count));
    }
    Ok((0..count as usize).map(|index| {
        let at = 16 + index * SECTION;
        let data = piece(bytes, "a section", u64_at(bytes, at + 8)?, u64_at(bytes, at + 16)?)?;
        Ok((u32_at(bytes, at)?, data))
    }))
}

fn piece<'a>(bytes: &'a [u8], what: &'static str, start: u64, len: u64) -> Result<&'a [u8], KilnFileError> {
    let end = start.checked_add(len);
    let range = end.and_then(|end| Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?));
    range.and_then(|r| bytes.get(r)).ok_or(KilnFileError::Truncated {
        what,
        needed: end.unwrap_or(u64::MAX),
        have: bytes.len() as u64,
    })
}

fn fixed<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], KilnFileError> {
    let data = piece(bytes, "a header field", at as u64, N as u64)?;
    data.try_into().map_err(|_| KilnFileError::Section("header"))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, KilnFileError> {
    fixed(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, KilnFileError> {
    fixed(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, KilnFileError> {
    fixed(bytes, at).map(u64::from_le_bytes)
}
