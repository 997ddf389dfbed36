//! `ci/budgets.toml`: what the reference models may cost. A figure that grows fails, and so does one
//! that shrank without the file being told, so the file always says what is.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Costs of one model on one board.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Bytes of the arena: inputs, outputs, intermediates, scratch.
    pub arena: u64,
    /// Bytes of constants.
    pub constants: u64,
    /// Bytes of instructions of engine and kernels; compilers differ a little, so this is a limit.
    pub code: u64,
}

/// All budgets: model, then board.
pub type Budgets = BTreeMap<String, BTreeMap<String, Budget>>;

/// Reads the file.
pub fn read() -> Result<Budgets> {
    let path = crate::root().join("ci/budgets.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("parsing {}", path.display()))
}

/// Compares what was measured with its budget.
pub fn check(model: &str, board: &str, budget: &Budget, measured: &Budget) -> Result<()> {
    for (what, limit, value) in
        [("arena", budget.arena, measured.arena), ("constants", budget.constants, measured.constants)]
    {
        if value != limit {
            bail!(
                "{model} on {board}: {what} is {value} bytes, ci/budgets.toml says {limit}; change it with the reason"
            );
        }
    }
    if measured.code > budget.code {
        bail!(
            "{model} on {board}: {} bytes of code, {} more than ci/budgets.toml allows",
            measured.code,
            measured.code - budget.code
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_fails_and_the_file_parses() {
        let budget = Budget { arena: 10, constants: 20, code: 30 };
        assert!(check("m", "b", &budget, &budget).is_ok());
        assert!(check("m", "b", &budget, &Budget { code: 29, ..budget }).is_ok());
        for grown in [Budget { arena: 11, ..budget }, Budget { constants: 21, ..budget }, Budget { code: 31, ..budget }]
        {
            assert!(check("m", "b", &budget, &grown).is_err());
        }
        assert!(!read().unwrap().is_empty());
    }
}
