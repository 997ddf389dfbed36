//! Names of tensors in modules.

use std::fmt;

/// Where a tensor is in a module: names of fields and places in lists, `blocks.2.weight`.
#[derive(Clone, Copy, Debug)]
pub struct ModulePath<'a> {
    parent: Option<&'a ModulePath<'a>>,
    last: Part<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    Root,
    Field(&'a str),
    Index(usize),
}

impl ModulePath<'static> {
    /// The path of the outermost module, which is empty.
    pub const ROOT: ModulePath<'static> = ModulePath { parent: None, last: Part::Root };
}

impl ModulePath<'_> {
    /// The path of a field.
    pub fn field<'a>(&'a self, name: &'a str) -> ModulePath<'a> {
        ModulePath { parent: Some(self), last: Part::Field(name) }
    }

    /// The path of a place in a list.
    pub fn index(&self, index: usize) -> ModulePath<'_> {
        ModulePath { parent: Some(self), last: Part::Index(index) }
    }
}

impl fmt::Display for ModulePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
            if !matches!(parent.last, Part::Root) {
                f.write_str(".")?;
            }
        }
        match self.last {
            Part::Root => Ok(()),
            Part::Field(name) => f.write_str(name),
            Part::Index(index) => write!(f, "{index}"),
        }
    }
}
