//! What things are called in generated code: Rust names made from a model's, each used once.

use std::collections::HashSet;

use kiln_planner::PlannedEntry;

/// The longest name that is made from a model's, in characters.
const LONGEST: usize = 64;

/// Words that can't be names in the 2024 edition.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// What else in a model's crate has a name.
const OWN: [&str; 5] = ["new", "reset", "session", "plan", "arena"];

/// A name as a Rust identifier in snake case: letters, digits and single underscores.
pub fn identifier(name: &str) -> String {
    let text = words(name, '_');
    if text.is_empty() {
        return "m".into();
    }
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) || KEYWORDS.contains(&text.as_str()) {
        return format!("m_{text}");
    }
    text
}

/// A model's name as the package name of its crate: `NAME-model`, which is neither a keyword nor
/// the name of a crate it depends on.
pub fn package_name(name: &str) -> String {
    let text = words(name, '-');
    let text = text.strip_suffix("model").unwrap_or(&text).trim_matches('-');
    match text.chars().next() {
        None => "model".into(),
        Some(c) if c.is_ascii_alphabetic() => format!("{text}-model"),
        Some(_) => format!("m-{text}-model"),
    }
}

/// The letters and digits of a name in lower case; whatever lies between them becomes one `joint`.
fn words(name: &str, joint: char) -> String {
    let mut text = String::new();
    for c in name.chars() {
        let c = if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { joint };
        if c != joint || !(text.is_empty() || text.ends_with(joint)) {
            text.push(c);
        }
        if text.len() == LONGEST {
            break;
        }
    }
    text.trim_end_matches(joint).into()
}

/// The names of one entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct EntryNames {
    /// Its method; `None` for `reset`, which the model's own method runs.
    pub method: Option<String>,
    /// The variable and field that hold it.
    pub field: String,
    /// The modules, fields and accessors of its inputs.
    pub inputs: Vec<String>,
    /// Those of its outputs.
    pub outputs: Vec<String>,
}

impl EntryNames {
    /// The names of an entry that is called `base`.
    fn new(entry: &PlannedEntry, base: &str) -> EntryNames {
        let prefix = if entry.name == "infer" { String::new() } else { format!("{base}_") };
        let ports = |side: &str, count: usize| match count {
            1 => vec![format!("{prefix}{side}")],
            _ => (0..count).map(|number| format!("{prefix}{side}{number}")).collect(),
        };
        EntryNames {
            method: (entry.name != "reset").then(|| base.to_owned()),
            field: format!("entry_{base}"),
            inputs: ports("input", entry.inputs.len()),
            outputs: ports("output", entry.outputs.len()),
        }
    }

    /// Every name that generated code uses for it.
    fn all(&self) -> Vec<String> {
        let mut all = vec![self.field.clone()];
        all.extend(self.method.iter().flat_map(|method| [method.clone(), format!("{method}_with")]));
        all.extend(self.inputs.iter().chain(&self.outputs).flat_map(|port| [port.clone(), format!("{port}_mut")]));
        all
    }
}

/// The names of a model.
pub(crate) struct Names {
    /// For each entry, in order.
    pub entries: Vec<EntryNames>,
    taken: HashSet<String>,
}

impl Names {
    /// Names for everything in `entries`. `infer` and `reset` have the names that are promised for
    /// them; others make way where a name is taken.
    pub(crate) fn new(entries: &[PlannedEntry]) -> Names {
        Names::apart_from(entries, &[])
    }

    /// The same, none of which is one of `others`.
    pub(crate) fn apart_from(entries: &[PlannedEntry], others: &[&str]) -> Names {
        let mut names = Names {
            entries: vec![EntryNames::default(); entries.len()],
            taken: OWN.iter().chain(others).map(|&name| name.to_owned()).collect(),
        };
        let promised = |entry: &PlannedEntry| entry.name == "infer" || entry.name == "reset";
        for first in [true, false] {
            for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| promised(entry) == first) {
                let base = identifier(&entry.name);
                names.entries[index] = names.claim(&base, |base| {
                    let names = EntryNames::new(entry, base);
                    (names.all(), names)
                });
            }
        }
        names
    }

    /// A name for the method that sets an extent.
    pub(crate) fn extent(&mut self, name: &str) -> String {
        let base = format!("set_{}", identifier(name));
        self.claim(&base, |base| (vec![base.to_owned()], base.to_owned()))
    }

    /// What `make` gives for `base`, or for `base` with the first number behind it that makes all
    /// names new.
    fn claim<T>(&mut self, base: &str, make: impl Fn(&str) -> (Vec<String>, T)) -> T {
        let mut number = 1u64;
        loop {
            let (all, result) = if number == 1 { make(base) } else { make(&format!("{base}_{number}")) };
            if all.iter().all(|name| !self.taken.contains(name)) {
                self.taken.extend(all);
                return result;
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> PlannedEntry {
        PlannedEntry {
            name: name.into(),
            steps: Vec::new(),
            tensors: Vec::new(),
            inputs: vec![kiln_planner::graph::ValueId(0)],
            outputs: vec![kiln_planner::graph::ValueId(0); 2],
            arena: 0,
            lower_bound: 0,
            optimal: true,
            nodes: 0,
            again: Default::default(),
            over: Vec::new(),
            fed: None,
        }
    }

    #[test]
    fn identifiers_from_anything() {
        let pairs = [
            ("infer", "infer"),
            ("Train Step", "train_step"),
            ("a__b", "a_b"),
            ("_x_", "x"),
            ("1st", "m_1st"),
            ("fn", "m_fn"),
            ("Self", "m_self"),
            ("", "m"),
            ("模型", "m"),
            ("été\n`", "t"),
        ];
        for (name, want) in pairs {
            assert_eq!(identifier(name), want, "from {name:?}");
        }
        assert_eq!(identifier(&"x".repeat(1000)).len(), LONGEST);
    }

    #[test]
    fn packages_from_anything() {
        let pairs = [
            ("kws", "kws-model"),
            ("My Model", "my-model"),
            ("model", "model"),
            ("", "model"),
            ("模型", "model"),
            ("3d \"x\"", "m-3d-x-model"),
            ("a--b", "a-b-model"),
        ];
        for (name, want) in pairs {
            assert_eq!(package_name(name), want, "from {name:?}");
        }
    }

    #[test]
    fn no_name_is_used_twice() {
        let awkward = [
            "",
            "m",
            "m_fn",
            "fn",
            "train step",
            "train_step",
            "train-step",
            "Reset",
            "reset",
            "session",
            "new",
            "input",
            "output",
            "output0",
            "infer_with",
            "infer",
            "Infer",
            "entry_infer",
            "x_input",
            "x",
            "x_with",
            "train_step_2",
        ];
        let entries = awkward.map(entry);
        let mut names = Names::new(&entries);
        let mut all: Vec<String> = names.entries.iter().flat_map(EntryNames::all).collect();
        all.extend(["Infer", "fn", "fn"].map(|name| names.extent(name)));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        let infer = &names.entries[15];
        assert_eq!((infer.method.as_deref(), infer.inputs[0].as_str()), (Some("infer"), "input"));
        assert_eq!(infer.outputs, ["output0", "output1"]);
        assert_eq!(names.entries[8].method, None);
        assert_eq!(names.entries[7].method.as_deref(), Some("reset_2"));
    }
}
