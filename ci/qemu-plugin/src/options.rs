//! The plugin's arguments.

use std::path::PathBuf;

/// What to count, and where to write it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// The file that is written.
    pub(crate) out: PathBuf,
    /// Address of the function that is a run.
    pub(crate) run: u64,
    /// Addresses of kernels' bodies.
    pub(crate) rows: Vec<u64>,
    /// Bytes of a word.
    pub(crate) word: u64,
    /// Address of a process's first executable segment in its ELF file.
    pub(crate) code: Option<u64>,
}

impl Options {
    /// Reads arguments of the form `key=value`. The error says which is wrong, or missing.
    pub(crate) fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Options, String> {
        let (mut out, mut run, mut rows, mut word, mut code) = (None, None, Vec::new(), None, None);
        for argument in arguments {
            let bad = || format!("unknown or damaged argument `{argument}`");
            let (key, value) = argument.split_once('=').ok_or_else(bad)?;
            let address = || value.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()).ok_or_else(bad);
            match key {
                "out" => out = Some(PathBuf::from(value)),
                "run" => run = Some(address()?),
                "row" => rows.push(address()?),
                "word" => word = Some(value.parse().ok().filter(|word| *word > 0).ok_or_else(bad)?),
                "code" => code = Some(address()?),
                _ => return Err(bad()),
            }
        }
        let missing = |key: &str| format!("the argument `{key}` is missing");
        Ok(Options {
            out: out.ok_or_else(|| missing("out"))?,
            run: run.ok_or_else(|| missing("run"))?,
            rows,
            word: word.ok_or_else(|| missing("word"))?,
            code,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_or_refused_by_name() {
        let good = ["out=a,b.txt", "run=0x10", "word=4", "row=0x20", "row=0x30"];
        let options = Options::parse(good).unwrap();
        assert_eq!((options.run, options.word, options.code), (0x10, 4, None));
        assert_eq!(options.rows, [0x20, 0x30]);
        for bad in ["row=30", "row=0xg", "word=0", "colour=red", "row", "code="] {
            let error = Options::parse(good.into_iter().chain([bad])).unwrap_err();
            assert!(error.contains(bad), "{error}");
        }
        assert!(Options::parse(["out=x", "run=0x1"]).unwrap_err().contains("`word`"));
    }
}
