//! How deep the stack gets, computed from a linked image.
//!
//! Every path through the instructions of every function that can be reached is followed. The executor calls kernels
//! through pointers; those can only lead to what the model's crate lists in `ROWS`. Any other call through a pointer,
//! recursion, and a stack pointer that moves by what no instruction says are errors, so a figure is always a bound.
//! What interrupts need comes on top: on Arm at least the 32 bytes the CPU saves, 104 with its floating-point registers.
//!
//! The decoders know only what moves the stack pointer or leaves the line. Published disassemblers know much more, and
//! none of those in Rust knows Armv8.1-M.

mod aarch64;
mod calls;
mod deepest;
mod frame;
mod image;
mod instruction;
mod painted;
mod riscv;
#[cfg(test)]
mod tests;
mod thumb;

use std::fmt;
use std::path::Path;

use crate::symbols::SymbolsError;
pub(crate) use calls::CallGraph;
use deepest::Search;
use frame::Frames;
use image::Image;
pub use painted::{PAINTED_OUTPUT, PAINTED_RUN, PAINTED_SET_UP, painted};

/// An image whose stack can't be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// The file can't be read.
    #[error(transparent)]
    Elf(#[from] SymbolsError),
    /// There is no decoder for its instructions.
    #[error("the stack of programs for {0} can't be computed: expected Arm, 32-bit RISC-V or AArch64")]
    Architecture(String),
    /// A function that was asked for is not there, or more than once.
    #[error("the image has {found} functions called `{function}`, expected one")]
    Function {
        /// Its name, or the part of it that was looked for.
        function: String,
        /// How many there are.
        found: usize,
    },
    /// A function calls whatever a register names.
    #[error("{function} calls through a pointer at {address:#x}: only the executor may, and only what ROWS lists")]
    Unknown {
        /// The function.
        function: String,
        /// Where.
        address: u64,
    },
    /// Functions call each other in a circle.
    #[error("recursion, so the stack has no bound: {}", .cycle.join(" → "))]
    Recursion {
        /// The functions, the first one again at the end.
        cycle: Vec<String>,
    },
    /// A function moves the stack pointer by what no instruction says.
    #[error("{function} moves the stack pointer by a computed amount at {address:#x}")]
    Dynamic {
        /// The function.
        function: String,
        /// Where.
        address: u64,
    },
    /// A function leads to where no instruction is.
    #[error("{function} leads to {address:#x}, where there is no instruction of it")]
    NoCode {
        /// The function.
        function: String,
        /// Where.
        address: u64,
    },
    /// An address is called at which no function begins.
    #[error("no function of the image begins at {address:#x}, which is called")]
    NoFunction {
        /// The address.
        address: u64,
    },
    /// More calls inside each other than firmware has.
    #[error("more than 500 calls inside each other lead to {function}")]
    TooDeep {
        /// The innermost function.
        function: String,
    },
}

/// The stack of firmware: what [`stack`] computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackReport {
    /// One run of the model.
    pub infer: Deepest,
    /// Loading the plan and setting up the model.
    pub set_up: Deepest,
}

/// How deep the stack gets in a function, with all it calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deepest {
    /// Bytes from the caller's stack pointer to the deepest point.
    pub bytes: u64,
    /// The functions in use there, from the outermost on. Their bytes add up to `bytes`.
    pub path: Vec<Link>,
}

/// A function on the way to the deepest point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its name as a Rust path.
    pub name: String,
    /// Bytes it has in use there.
    pub bytes: u64,
}

impl fmt::Display for Deepest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, link) in self.path.iter().enumerate() {
            let arrow = if index == 0 { "" } else { " → " };
            write!(f, "{arrow}{} {}", short(&link.name), link.bytes)?;
        }
        Ok(())
    }
}

/// The last two parts of a function's path: `conv2d::run`.
fn short(name: &str) -> &str {
    let path = name.split("::<").next().unwrap_or(name);
    let start = path.rmatch_indices("::").nth(1).map_or(0, |(at, _)| at + 2);
    path.get(start..).unwrap_or(path)
}

/// The stack that replay firmware needs to run its model once and to set it up.
///
/// # Errors
///
/// [`StackError`].
pub fn stack(elf: &Path) -> Result<StackReport, StackError> {
    Ok(StackReport { infer: stack_of(elf, "kiln_device::replay::run_model")?, set_up: stack_of(elf, "glue::set_up")? })
}

/// The stack of any function of an image, by the end of its path without type arguments: `glue::set_up`.
///
/// # Errors
///
/// [`StackError`].
pub fn stack_of(elf: &Path, function: &str) -> Result<Deepest, StackError> {
    let image = Image::read(elf)?;
    let address = one(&image, function)?;
    // Loading runs no step, unless the plan has an entry for it.
    let runs = image.resets || !function.ends_with("set_up");
    Search::new(&mut Frames::new(&image), runs).deepest(address)
}

/// The address of the one function whose path ends so.
fn one(image: &Image, function: &str) -> Result<u64, StackError> {
    let is = |name: &str| {
        let path = name.split("::<").next().unwrap_or(name);
        path.strip_suffix(function).is_some_and(|before| before.is_empty() || before.ends_with("::"))
    };
    let found: Vec<u64> = image.functions.values().filter(|s| is(&s.name)).map(|s| s.address).collect();
    match found[..] {
        [address] => Ok(address),
        _ => Err(StackError::Function { function: function.to_owned(), found: found.len() }),
    }
}
