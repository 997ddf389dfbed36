//! The deepest path from a function through all it calls.

use std::collections::HashMap;

use super::frame::{Frames, Target};
use super::image::Image;
use super::{Deepest, Link, StackError};

/// Whether a function is the one that runs steps, whatever its session's arguments are. Loading calls it for a plan with an entry
/// `reset` only.
fn runs_steps(name: &str) -> bool {
    name.strip_prefix("kiln_core::session::Session").is_some_and(|rest| rest.contains("::run_with"))
}

/// A search for deepest paths.
pub(super) struct Search<'f, 'a> {
    frames: &'f mut Frames<'a>,
    /// What a call through a pointer can lead to.
    rows: Vec<u64>,
    /// Whether steps are run, or only checked.
    runs: bool,
    known: HashMap<u64, Node>,
    /// The functions on the way, outermost first.
    path: Vec<u64>,
}

/// How deep a function gets, and where to.
#[derive(Clone, Copy)]
struct Node {
    bytes: u64,
    /// Bytes in use in the function itself then.
    own: u64,
    next: Option<u64>,
}

impl<'f, 'a> Search<'f, 'a> {
    /// A search in which kernels are called to check and, if `runs`, to run.
    pub(super) fn new(frames: &'f mut Frames<'a>, runs: bool) -> Self {
        let rows = &frames.image.rows;
        let bodies = rows.iter().map(|row| row.run).filter(|_| runs);
        let rows = rows.iter().map(|row| row.check).chain(bodies).collect();
        Self { frames, rows, runs, known: HashMap::new(), path: Vec::new() }
    }

    /// The deepest path from the function at `address`.
    pub(super) fn deepest(&mut self, address: u64) -> Result<Deepest, StackError> {
        let bytes = self.visit(address)?.bytes;
        let mut path = Vec::new();
        let mut next = Some(address);
        while let Some(address) = next
            && let Some(node) = self.known.get(&address)
        {
            path.push(Link { name: name(self.frames.image, address), bytes: node.own });
            next = node.next;
        }
        Ok(Deepest { bytes, path })
    }

    fn visit(&mut self, address: u64) -> Result<Node, StackError> {
        if let Some(node) = self.known.get(&address) {
            return Ok(*node);
        }
        if let Some(first) = self.path.iter().position(|on_path| *on_path == address) {
            let cycle = self.path.iter().skip(first).chain([&address]);
            return Err(StackError::Recursion { cycle: cycle.map(|a| name(self.frames.image, *a)).collect() });
        }
        let frame = self.frames.of(address)?;
        self.path.push(address);
        let mut deepest = Node { bytes: frame.deepest, own: frame.deepest, next: None };
        for call in frame.calls {
            let targets = match call.target {
                Target::Function(target) => vec![target],
                Target::Pointer { at } => {
                    let function = name(self.frames.image, address);
                    if !is_executor(self.frames.image, &function) || self.rows.is_empty() {
                        return Err(StackError::Unknown { function, address: at });
                    }
                    self.rows.clone()
                }
            };
            for target in targets {
                if !self.runs && runs_steps(&name(self.frames.image, target)) {
                    continue;
                }
                let bytes = call.depth + self.visit(target)?.bytes;
                if bytes > deepest.bytes {
                    deepest = Node { bytes, own: call.depth, next: Some(target) };
                }
            }
        }
        self.path.pop();
        self.known.insert(address, deepest);
        Ok(deepest)
    }
}

fn name(image: &Image, address: u64) -> String {
    image.functions.get(&address).map_or_else(|| format!("{address:#x}"), |symbol| symbol.name.clone())
}

/// Whether a function is the executor's, which calls rows: it may have been inlined into the model's crate, and that
/// into its callers.
fn is_executor(image: &Image, name: &str) -> bool {
    let name = name.trim_start_matches(['<', '&']);
    let krate = name.split("::").next().unwrap_or(name);
    krate == "kiln_core"
        || image.model.as_deref() == Some(krate)
        || name.starts_with("kiln_device::replay::run_model")
        || name.contains("::glue::")
}
