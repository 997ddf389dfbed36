//! Stretches of a network that run piece by piece, planned as one step.
//!
//! A graph says it in plain operators: images that are concatenations of pieces, each piece computed from slices of images before it,
//! down to slices of one value, the source. Where slices and pieces are whole rows of an image they are only places in it, so none
//! is copied. Pieces of the result are asked for in order, each with whatever it follows from that is not there yet. Values
//! within a piece share memory with those of the next; of an image between, only the rows that are read later stay, moved up
//! in a band of as many rows as are ever there together; and the result may lie over rows of the source that
//! nothing reads any more. Or the result is the average of an image, taken part by part, whose sums then stay. To the search for order and placement such a stretch is one step, whose scratch holds the bands
//! and any piece's values and whose output trails its input; afterwards it is spread out into the steps that it stands
//! for.

mod find;
mod lower;
mod solve;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::graph::ValueId;

pub(crate) use find::find;
pub(crate) use solve::solve;

/// A stretch, as nodes of the graph.
pub(crate) struct Stretch {
    /// What is cut into slices first of all.
    source: ValueId,
    /// Whether the source is fed row by row.
    fed: bool,
    /// For each piece of the result, the nodes that run, in their order; slices are not among them.
    chains: Vec<Vec<usize>>,
    /// Rows that slices are, in bytes of an image.
    slices: HashMap<ValueId, Rows>,
    /// Rows that pieces are.
    pieces: HashMap<ValueId, Rows>,
    /// Sums over pieces, each of which takes the place of the one before.
    sums: HashSet<ValueId>,
    /// The concatenation that is the result, or the last of the sums' chain.
    pub result: usize,
    /// Slices, and concatenations but for the result.
    places: Vec<usize>,
}

/// Rows of an image.
#[derive(Clone)]
struct Rows {
    of: ValueId,
    bytes: Range<u64>,
}

impl Stretch {
    /// What is fed to it row by row.
    pub(crate) fn fed(&self) -> Option<ValueId> {
        self.fed.then_some(self.source)
    }

    /// Its nodes but for the result's.
    pub(crate) fn inner(&self) -> impl Iterator<Item = usize> + '_ {
        self.chains.iter().flatten().chain(&self.places).copied().filter(|&node| node != self.result)
    }
}

/// A stretch, as steps and buffers.
pub(crate) struct Group {
    /// The buffer that is cut into slices; none where its rows are fed into a band.
    source: Option<usize>,
    /// Buffers for rows and sums that stay from one piece to the next.
    bands: Vec<usize>,
    /// The buffer of the result.
    output: usize,
    /// Steps of each chain, and buffers between them.
    chains: Vec<(Range<usize>, Vec<usize>)>,
}
