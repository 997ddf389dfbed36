//! Running the first operators of a network in patches, so that images between them are never whole in memory.
//!
//! A patch is some rows of the last of these operators' output, and whatever rows of the images before it they follow from. Windows
//! of neighbouring patches overlap. The rows that two patches need are either kept from one to the next, in line buffers, which
//! takes memory for as long as patches run; or they are computed again, which is stated as multiply-accumulates. The average of a
//! whole image may be the last of the operators: its sums are kept, and added to as rows come. Not a bit of any result changes.
//! What planning makes of the graph is told in `kiln_planner`: slices and the concatenation of patches cost nothing, and the output
//! may lie over input rows that are done with.
//! (Lin et al., 2021, "MCUNetV2", compute again; Alwani et al., 2016, "Fused-layer CNN accelerators", compare both.)

mod rewrite;
mod segment;

use kiln_planner::graph::Graph;
use kiln_planner::solve::Budget;
use kiln_planner::{Options, PlanError, Planned, plan};

use crate::PassError;

/// Rows of a patch that are tried.
const ROWS: [u32; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32];
/// Rows of any image that are computed at once where no piece has more than one: fewer take less memory and more steps.
const AT_ONCE: [u32; 3] = [1, 2, 4];
/// Operators that may run in patches.
const MOST: usize = 40;
/// Patches that a plan may have, and steps in them: each has its record.
const PATCHES: u32 = 64;
const STEPS: usize = 1000;

/// What becomes of rows that two patches need.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Overlap {
    /// They are kept.
    Kept,
    /// They are computed twice.
    ComputedAgain,
}

/// How operators are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Rows of the last operator's output in a patch; of its input, where it is the average of an image.
    pub rows: u32,
    /// The most rows of any image that are computed at once, where overlaps are kept. Else a patch computes all it needs.
    pub at_once: u32,
    /// What becomes of rows that two patches need.
    pub overlap: Overlap,
}

/// What runs in patches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patches {
    /// How many operators.
    pub operators: usize,
    /// The name of the last of them.
    pub last: String,
    /// How many patches.
    pub count: u32,
    /// Rows of the last operator's output in each of them, the last one apart; of its input, where it is the average of an image.
    pub rows: u32,
    /// How often operators are called in all of them together.
    pub steps: usize,
    /// What becomes of rows that two of them need.
    pub overlap: Overlap,
    /// Multiply-accumulates that a run takes more.
    pub macs: u64,
}

/// A graph in patches, and its plan.
pub struct Patched {
    /// The graph.
    pub graph: Graph,
    /// Its plan.
    pub planned: Planned,
    /// What runs in patches.
    pub patches: Patches,
}

/// A graph planned within so many bytes of RAM, if that can be.
pub struct Within {
    /// The graph, in patches where that was needed.
    pub graph: Graph,
    /// Its plan.
    pub planned: Planned,
    /// What runs in patches.
    pub patches: Option<Patches>,
    /// The least bytes of RAM that patches or computing values again were found to need, where no plan is within the limit.
    pub least: Option<u64>,
}

/// Plans a graph within `ram` bytes of RAM. Where it takes more, its first operators run in patches if that is enough; else
/// values are computed again; else it is planned as it is. An input is fed by rows only where patches run over it, so there are some
/// then whatever the limit; `None` where there can't be.
///
/// # Errors
///
/// It can't be planned at all.
pub fn plan_within(graph: Graph, options: &Options, ram: u64) -> Result<Option<Within>, PlanError> {
    let options = Options { ram: None, ..*options };
    let planned = plan(&graph, &options)?;
    let fits = planned.ram_bytes <= ram;
    if !options.feed && fits {
        return Ok(Some(Within { graph, planned, patches: None, least: None }));
    }
    let mut least = match fit_patches(&graph, &options, ram)? {
        Some(Ok(Patched { graph, planned, patches })) => {
            return Ok(Some(Within { graph, planned, patches: Some(patches), least: None }));
        }
        // Whole, the input would not be fed.
        Some(Err(_)) | None if options.feed && fits => return Ok(None),
        Some(Err(least)) => Some(least),
        None if options.feed => return Ok(None),
        None => None,
    };
    if !options.feed {
        match plan(&graph, &Options { ram: Some(ram), ..options }) {
            Ok(planned) => return Ok(Some(Within { graph, planned, patches: None, least: None })),
            Err(PlanError::Ram(shortage)) => {
                least = Some(least.map_or(shortage.least, |least| least.min(shortage.least)));
            }
            Err(error) => return Err(error),
        }
    }
    let least = least.filter(|&least| least < planned.ram_bytes);
    Ok(Some(Within { graph, planned, patches: None, least }))
}

/// The graph with its first `operators` operators in patches; `None` where these operators can't be cut up so, or one patch would
/// do.
///
/// # Errors
///
/// The graph is not valid.
pub fn patch(graph: &Graph, operators: usize, way: Way) -> Result<Option<(Graph, Patches)>, PassError> {
    graph.validate()?;
    let found = segment::find(graph, false).filter(|_| way.rows > 0 && way.at_once > 0);
    let segment = found.as_ref().and_then(|found| found.first(operators));
    Ok(segment.and_then(|segment| segment.cut(graph, way, PATCHES)))
}

/// The graph in the patches that take the least work more with which state and arena stay within `options.ram`; `Err` with the
/// least bytes found where none do, `None` where the graph has nothing to be cut, or nothing that could be fed by rows if that is asked for.
///
/// # Errors
///
/// The graph is not valid, or can't be planned at all.
pub fn fit_patches(graph: &Graph, options: &Options, ram: u64) -> Result<Option<Result<Patched, u64>>, PlanError> {
    let Some(found) = segment::find(graph, options.feed) else { return Ok(None) };
    let segments = found.ends.iter().filter(|&&end| end <= MOST).filter_map(|&end| found.first(end));
    let mut candidates = Vec::new();
    for segment in segments {
        let kept = |rows, at_once| Way { rows, at_once, overlap: Overlap::Kept };
        let again = |rows| Way { rows, at_once: u32::MAX, overlap: Overlap::ComputedAgain };
        let ways = ROWS.map(|rows| kept(rows, u32::MAX)).into_iter().chain(AT_ONCE.map(|rows| kept(1, rows)));
        let ways = ways.chain(ROWS.map(again)).filter_map(|way| segment.cut(graph, way, PATCHES));
        candidates.extend(ways.filter(|(_, patches)| patches.steps <= STEPS));
    }
    candidates.sort_by_key(|(_, patches)| (patches.macs, patches.steps));
    // Rules place almost as well as the search and take no time: enough to choose by.
    let quick = Options { ram: None, budget: Budget { nodes: 0 }, ..*options };
    let mut least = None;
    for (graph, patches) in candidates {
        let rough = plan(&graph, &quick)?;
        if options.feed && rough.main_entry().is_none_or(|entry| entry.fed.is_none()) {
            continue;
        }
        let rough = rough.ram_bytes;
        if rough <= ram {
            let planned = plan(&graph, &Options { ram: None, ..*options })?;
            return Ok(Some(Ok(Patched { graph, planned, patches })));
        }
        least = Some(least.map_or(rough, |known: u64| known.min(rough)));
    }
    Ok(least.map(Err))
}
