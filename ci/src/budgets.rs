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
    /// Instructions of a run.
    pub instructions: u64,
    /// Bytes of stack a run uses, as painting shows them; not checked where there is none.
    pub stack: Option<u64>,
}

/// By how many percent instructions may shrink before the file must be told.
const SHRINK_PERCENT: u64 = 2;

/// How many instructions more pass where `core` was built from source: its memory functions are built for size then, and
/// the executor calls them. Measured: 0.1 percent and 300 at most.
fn built_core_slack(limit: u64) -> u64 {
    limit / 500 + 500
}

/// All budgets: model, then board.
pub type Budgets = BTreeMap<String, BTreeMap<String, Budget>>;

/// Reads the file.
pub fn read() -> Result<Budgets> {
    let path = crate::root().join("ci/budgets.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("parsing {}", path.display()))
}

/// Compares what was measured with its budget; `built_core` says whether `core` was built from source.
pub fn check(model: &str, board: &str, budget: &Budget, measured: &Budget, built_core: bool) -> Result<()> {
    for (what, limit, value) in
        [("arena", budget.arena, measured.arena), ("constants", budget.constants, measured.constants)]
    {
        if value != limit {
            bail!(
                "{model} on {board}: {what} is {value} bytes, ci/budgets.toml says {limit}; change it with the reason"
            );
        }
    }
    let slack = if built_core { built_core_slack(budget.instructions) } else { 0 };
    let limits = [
        ("bytes of code", Some(budget.code), Some(measured.code), 0),
        ("instructions", Some(budget.instructions), Some(measured.instructions), slack),
        ("bytes of stack", budget.stack, measured.stack, 0),
    ];
    for (what, limit, value, slack) in limits {
        let (Some(limit), Some(value)) = (limit, value) else { continue };
        if value > limit + slack {
            bail!("{model} on {board}: {value} {what}, {} more than ci/budgets.toml allows", value - limit);
        }
    }
    let (limit, value) = (budget.instructions, measured.instructions);
    if value < limit - limit * SHRINK_PERCENT / 100 {
        bail!(
            "{model} on {board}: {value} instructions, more than {SHRINK_PERCENT} % fewer than the {limit} that \
             ci/budgets.toml allows; lower the budget, so that what was gained is kept"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_fails_and_the_file_parses() {
        let budget = Budget { arena: 10, constants: 20, code: 30, instructions: 1_000, stack: Some(100) };
        let passes = |measured: Budget, built_core| check("m", "b", &budget, &measured, built_core).is_ok();
        for built_core in [true, false] {
            assert!(passes(budget, built_core));
            assert!(passes(Budget { code: 29, instructions: 980, stack: Some(92), ..budget }, built_core));
            assert!(passes(Budget { stack: None, ..budget }, built_core));
            for bad in [
                Budget { arena: 11, ..budget },
                Budget { constants: 21, ..budget },
                Budget { code: 31, ..budget },
                Budget { instructions: 1_503, ..budget },
                Budget { instructions: 979, ..budget },
                Budget { stack: Some(104), ..budget },
            ] {
                assert!(!passes(bad, built_core), "{bad:?}");
            }
        }
        assert!(passes(Budget { instructions: 1_502, ..budget }, true));
        assert!(!passes(Budget { instructions: 1_001, ..budget }, false));
        assert!(!read().unwrap().is_empty());
    }
}
