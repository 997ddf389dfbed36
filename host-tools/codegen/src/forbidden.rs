//! Which symbols firmware must not have.

use std::fmt;

/// A symbol firmware must not have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forbidden {
    /// What it belongs to.
    pub reason: Reason,
    /// Its name as a Rust path.
    pub name: String,
}

/// Why a symbol must not be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It allocates or frees memory.
    Allocator,
    /// It is reached by a panic only.
    Panic,
    /// It formats text, which panics bring along and which is large.
    Formatting,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            Reason::Allocator => "allocator",
            Reason::Panic => "panic",
            Reason::Formatting => "formatting",
        };
        write!(f, "{} ({reason})", self.name)
    }
}

/// Paths that tell, wherever they stand in a name: `<T as core::fmt::Debug>::fmt` as well.
const PATHS: [(&str, Reason); 7] = [
    ("core::panicking", Reason::Panic),
    ("core::panic", Reason::Panic),
    ("std::panicking", Reason::Panic),
    ("core::fmt", Reason::Formatting),
    ("core::num::fmt", Reason::Formatting),
    ("core::num::flt2dec", Reason::Formatting),
    ("alloc", Reason::Allocator),
];

/// The allocator of C, whole names: a Rust function may well be called `free`.
const C_ALLOCATOR: [&str; 5] = ["_sbrk", "calloc", "free", "malloc", "realloc"];

/// Functions that panics go through, and functions that do nothing but panic. Inner functions of
/// theirs count as well.
const PANICS: [&str; 17] = [
    "_Unwind_Resume",
    "begin_panic",
    "expect_failed",
    "len_mismatch_fail",
    "panic_already_borrowed",
    "panic_already_mutably_borrowed",
    "panic_impl",
    "rust_begin_unwind",
    "rust_eh_personality",
    "rust_panic",
    "slice_end_index_len_fail",
    "slice_error_fail",
    "slice_index_fail",
    "slice_index_order_fail",
    "slice_start_index_len_fail",
    "split_at_panic",
    "unwrap_failed",
];

/// How the names of the compiler's allocator functions begin.
const RUST_ALLOCATOR: [&str; 6] =
    ["__rdl_", "__rg_", "__rust_alloc", "__rust_dealloc", "__rust_no_alloc", "__rust_realloc"];

/// Why a symbol of this demangled name must not be there; `None` if it may.
pub(crate) fn reason(name: &str) -> Option<Reason> {
    if let Some((_, reason)) = PATHS.iter().find(|(path, _)| has_path(name, path)) {
        return Some(*reason);
    }
    // Generic arguments are no part of where a function stands.
    let path = name.split("::<").next().unwrap_or(name);
    let allocates = |segment: &str| RUST_ALLOCATOR.iter().any(|start| segment.starts_with(start));
    if C_ALLOCATOR.contains(&name) || path.split("::").any(allocates) {
        Some(Reason::Allocator)
    } else if path.split("::").any(|segment| PANICS.contains(&segment)) {
        Some(Reason::Panic)
    } else {
        None
    }
}

/// Whether `path` stands in `name` from its crate on and is followed by more of the path: the
/// `core::fmt` of another crate's module does not count, nor does a function called `alloc`.
fn has_path(name: &str, path: &str) -> bool {
    name.match_indices(path).any(|(at, _)| {
        let before = name.get(..at).unwrap_or_default().chars().next_back();
        let after = name.get(at + path.len()..).unwrap_or_default();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') && after.starts_with("::")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_panics_allocates_or_formats_is_found() {
        for (name, expected) in [
            ("core::panicking::panic_fmt", Reason::Panic),
            ("core::panicking::panic_const::panic_const_div_by_zero", Reason::Panic),
            ("core::panicking::assert_failed::<usize, usize>", Reason::Panic),
            ("core::panic::location::Location::caller", Reason::Panic),
            ("core::result::unwrap_failed", Reason::Panic),
            ("core::option::expect_failed", Reason::Panic),
            ("core::slice::index::slice_index_fail", Reason::Panic),
            ("core::slice::index::slice_end_index_len_fail::do_panic::runtime", Reason::Panic),
            ("core::slice::copy_from_slice_impl::len_mismatch_fail", Reason::Panic),
            ("__rustc::rust_begin_unwind", Reason::Panic),
            ("rust_begin_unwind", Reason::Panic),
            ("core::fmt::Formatter::pad", Reason::Formatting),
            ("<u32 as core::fmt::Display>::fmt", Reason::Formatting),
            ("<&T as core::fmt::Debug>::{vtable}", Reason::Formatting),
            ("core::fmt::num::imp::<impl u32>::_fmt", Reason::Formatting),
            ("__rust_alloc", Reason::Allocator),
            ("__rustc::__rust_alloc_zeroed", Reason::Allocator),
            ("__rustc::__rdl_dealloc", Reason::Allocator),
            ("malloc", Reason::Allocator),
            ("free", Reason::Allocator),
            ("alloc::vec::Vec<T>::push", Reason::Allocator),
            ("<alloc::boxed::Box<T> as Drop>::drop", Reason::Allocator),
        ] {
            assert_eq!(reason(name), Some(expected), "{name}");
        }
    }

    #[test]
    fn names_that_only_look_alike_are_not() {
        for name in [
            "kiln_core::fmt::width",
            "kiln_core::alloc::Arena::take",
            "kiln_core::plan::alloc",
            "my_core::panicking::not",
            "core::slice::sort",
            "freeze",
            "kiln_kernels::free_list",
            "kiln_core::pool::free",
            "memcpy",
            "Reset",
        ] {
            assert_eq!(reason(name), None, "{name}");
        }
    }
}
