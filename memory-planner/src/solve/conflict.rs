//! What an order makes of the problem: who is live when, and which items must keep apart.

use super::bound::pair_height;
use super::model::{Model, Relax};
use super::problem::Live;

/// The other end of a conflict, with both separations.
#[derive(Clone, Copy)]
pub(super) struct Edge {
    pub(super) other: usize,
    /// Least `offset(other) - offset(self)` with `self` below.
    pub(super) below: u64,
    /// Least `offset(self) - offset(other)` with `other` below.
    pub(super) above: u64,
}

/// The items live at one position, and the pairs of them that may overlap there.
#[derive(Clone, Default)]
pub(super) struct Clique {
    pub(super) members: Vec<usize>,
    /// Output, input, and the least height of the two.
    pub(super) pairs: Vec<(usize, usize, u64)>,
}

/// The placement problem of one order. Items of 0 bytes have no edges and no clique.
pub(super) struct Conflicts {
    pub(super) edges: Vec<Vec<Edge>>,
    pub(super) cliques: Vec<Clique>,
    pub(super) live: Vec<Live>,
    /// The least alignment of any item; cliques round to it.
    pub(super) grain: u64,
}

/// Lifetimes of all items in `order`.
pub(super) fn lifetimes(model: &Model, order: &[usize]) -> Vec<Live> {
    let end = order.len().saturating_sub(1);
    let mut position = vec![0; order.len()];
    for (at, &step) in order.iter().enumerate() {
        position[step] = at;
    }
    model
        .items
        .iter()
        .map(|item| {
            let first = item.producer.map_or(0, |p| position[p]);
            let read = item.readers.iter().map(|&r| position[r]).max().unwrap_or(first);
            Live { first, last: if item.keep { end } else { read } }
        })
        .collect()
}

impl Conflicts {
    pub(super) fn new(model: &Model, order: &[usize]) -> Self {
        let live = lifetimes(model, order);
        let count = model.items.len();
        let mut edges: Vec<Vec<Edge>> = vec![Vec::new(); count];
        let mut cliques = Vec::new();
        let grain = model.levels.first().copied().unwrap_or(1);
        let positions = order.len().max(1);
        let mut born = vec![Vec::new(); positions];
        for item in (0..count).filter(|&i| model.items[i].size > 0) {
            born[live[item].first].push(item);
        }
        let mut active: Vec<usize> = Vec::new();
        for (at, born) in born.into_iter().enumerate() {
            let relax: &[Relax] = order.get(at).map_or(&[], |&s| &model.nodes[s].relax);
            let mut clique = Clique::default();
            for item in born {
                for &other in &active {
                    let relaxed = relax.iter().find(|r| r.output == item && r.input == other && live[other].last == at);
                    let (below, above) = match relaxed {
                        Some(r) => {
                            clique.pairs.push((item, other, pair_height(model, r, grain)));
                            (r.output_below, r.input_below)
                        }
                        None => (model.items[item].size, model.items[other].size),
                    };
                    edges[item].push(Edge { other, below, above });
                    edges[other].push(Edge { other: item, below: above, above: below });
                }
                active.push(item);
            }
            clique.members.clone_from(&active);
            cliques.push(clique);
            active.retain(|&i| live[i].last > at);
        }
        Self { edges, cliques: maximal(cliques, &live), live, grain }
    }
}

/// Drops cliques, one for each position, that a neighbour contains.
fn maximal(cliques: Vec<Clique>, live: &[Live]) -> Vec<Clique> {
    let mut kept: Vec<(usize, Clique)> = Vec::new();
    // Lifetimes are ranges: what lives at both ends lives in between.
    let inside = |clique: &Clique, at: usize| {
        clique.pairs.is_empty() && clique.members.iter().all(|&m| (live[m].first..=live[m].last).contains(&at))
    };
    for (at, clique) in cliques.into_iter().enumerate() {
        while kept.last().is_some_and(|(_, last)| inside(last, at)) {
            kept.pop();
        }
        if !kept.last().is_some_and(|&(before, _)| inside(&clique, before)) {
            kept.push((at, clique));
        }
    }
    kept.into_iter().map(|(_, clique)| clique).collect()
}
