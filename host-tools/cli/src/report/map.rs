//! The arena drawn in the terminal: steps from left to right, addresses from top to bottom.
//!
//! Rows lie between addresses at which some tensor begins or ends, so every label is exact and no
//! tensor is too small to be seen; a row's height says only roughly how many bytes it stands for.

use super::json::{Kind, PlanReport, Region, Tensor};
use super::table::{Align, Table, thousands};
use crate::console::Style;

/// Most rows; with more boundaries than that, the closest are drawn as one.
const MAX_ROWS: usize = 32;
/// Rows that few boundaries are stretched to.
const MIN_ROWS: usize = 12;
/// Columns a step takes at most: beyond that the picture says nothing more.
const STEP_WIDTH: usize = 8;

/// Beside the mark of the fullest step.
const MARK: &str = " fullest";

const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];

/// A tensor as drawn.
struct Block<'r> {
    letter: char,
    colour: u8,
    tensor: &'r Tensor,
}

impl Block<'_> {
    fn end(&self) -> u64 {
        self.tensor.offset + self.tensor.bytes
    }

    /// Bytes of `from..to` that it covers while it lives.
    fn covers(&self, from: u64, to: u64) -> u64 {
        self.end().min(to).saturating_sub(self.tensor.offset.max(from))
    }

    fn paint(&self, text: &str, style: Style) -> String {
        if style.colour { format!("\x1b[{}m{text}\x1b[0m", self.colour) } else { text.to_owned() }
    }
}

/// What a cell of the picture shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Free,
    Block(usize),
    /// Output and input of the step share the bytes.
    Shared,
}

/// The picture and its legend; empty where the arena has no bytes.
pub fn map(report: &PlanReport, style: Style) -> String {
    let tensors = report.tensors.iter().filter(|t| t.region == Region::Arena && t.bytes > 0);
    let blocks: Vec<Block<'_>> = tensors
        .enumerate()
        .map(|(i, tensor)| Block {
            letter: LETTERS[i % LETTERS.len()] as char,
            colour: COLOURS[i % COLOURS.len()],
            tensor,
        })
        .collect();
    if blocks.is_empty() {
        return String::new();
    }
    let end = blocks.iter().map(Block::end).max().unwrap_or(0).max(report.ram.arena);
    let edges = edges(&blocks, end);
    let margin = thousands(end).len().max("bytes".len()) + 1;
    let room = style.width.saturating_sub(margin + 2).max(1);
    let steps = report.steps.len().max(1);
    // More steps than columns: several share one.
    let group = steps.div_ceil(room);
    let columns = steps.div_ceil(group);
    let width = (room / columns).clamp(1, STEP_WIDTH);

    let alive = alive(&blocks, steps);
    let mut text = format!("{:>margin$}┌{}┐\n", "bytes ", "─".repeat(columns * width));
    for (row, height) in edges.windows(2).zip(heights(&edges)) {
        let &[from, to] = row else { continue };
        let cells: Vec<Cell> = (0..columns)
            .map(|c| alive.iter().take((c + 1) * group).skip(c * group).map(|alive| cell(&blocks, alive, from, to)))
            .map(|cells| cells.max_by_key(|(covered, _)| *covered).map_or(Cell::Free, |(_, cell)| cell))
            .collect();
        for line in 0..height {
            let label = if line == 0 { thousands(from) + " " } else { String::new() };
            text.push_str(&format!("{label:>margin$}│{}│\n", draw(&cells, &blocks, width, style)));
        }
    }
    text.push_str(&format!("{:>margin$}└{}┘\n", thousands(end) + " ", "─".repeat(columns * width)));
    text.push_str(&format!("{:>margin$} {}\n", "step ", axis(columns, width, group)));
    if let Some(peak) = &report.peak {
        let at = margin + 1 + peak.step / group * width;
        let (before, after) = if at + MARK.len() < style.width { ("", MARK) } else { (MARK.trim_start(), "") };
        text.push_str(&format!("{before:>width$} ▲{after}\n", width = at - 1));
    }
    text.push('\n');
    text.push_str(&legend(&blocks, style));
    text
}

/// Addresses between which a row lies, from 0 to `end`.
fn edges(blocks: &[Block<'_>], end: u64) -> Vec<u64> {
    let mut edges: Vec<u64> = blocks.iter().flat_map(|b| [b.tensor.offset, b.end()]).chain([0, end]).collect();
    edges.sort_unstable();
    edges.dedup();
    while edges.len() > MAX_ROWS + 1 {
        let merged = edges.windows(3).map(|w| w[2] - w[0]).enumerate().min_by_key(|&(_, bytes)| bytes);
        let Some((before, _)) = merged else { break };
        edges.remove(before + 1);
    }
    edges
}

/// Lines for each row: one, and what is missing to [`MIN_ROWS`] by bytes.
fn heights(edges: &[u64]) -> Vec<usize> {
    let rows = edges.len().saturating_sub(1);
    let extra = MIN_ROWS.saturating_sub(rows) as u128;
    let all = edges.last().copied().unwrap_or(1).max(1) as u128;
    edges.windows(2).map(|w| 1 + (extra * (w[1] - w[0]) as u128 / all) as usize).collect()
}

/// The blocks that live at each step.
fn alive(blocks: &[Block<'_>], steps: usize) -> Vec<Vec<usize>> {
    let mut alive = vec![Vec::new(); steps];
    for (index, block) in blocks.iter().enumerate() {
        for list in alive.iter_mut().take(block.tensor.last_step + 1).skip(block.tensor.first_step) {
            list.push(index);
        }
    }
    alive
}

/// What of the blocks that live while a step runs lies in `from..to`, and how many of the bytes.
fn cell(blocks: &[Block<'_>], alive: &[usize], from: u64, to: u64) -> (u64, Cell) {
    let mut most = (0, Cell::Free);
    let mut sum = 0;
    for &index in alive {
        let Some(block) = blocks.get(index) else { continue };
        let covered = block.covers(from, to);
        sum += covered;
        if covered > most.0 {
            most = (covered, Cell::Block(index));
        }
    }
    // More than there is: two tensors lie over each other.
    if sum > to - from { (most.0, Cell::Shared) } else { most }
}

/// A line of the picture: each stretch begins with its tensor's letter.
fn draw(cells: &[Cell], blocks: &[Block<'_>], width: usize, style: Style) -> String {
    let mut text = String::new();
    for run in cells.chunk_by(|a, b| a == b) {
        let length = run.len() * width;
        match run.first() {
            Some(&Cell::Block(index)) => {
                let Some(block) = blocks.get(index) else { continue };
                let fill = if block.tensor.kind == Kind::Scratch { "▒" } else { "░" };
                let stretch = format!("{}{}", block.letter, fill.repeat(length - 1));
                text.push_str(&block.paint(&stretch, style));
            }
            Some(Cell::Shared) => text.push_str(&"▓".repeat(length)),
            _ => text.push_str(&" ".repeat(length)),
        }
    }
    text
}

/// Step numbers under their columns, as many as have room.
fn axis(columns: usize, width: usize, group: usize) -> String {
    let mut text = String::new();
    for column in 0..columns {
        let (at, number) = (column * width, (column * group).to_string());
        let free = text.is_empty() || text.len() < at;
        if free && at + number.len() <= columns * width {
            text.push_str(&" ".repeat(at - text.len()));
            text.push_str(&number);
        }
    }
    text
}

fn legend(blocks: &[Block<'_>], style: Style) -> String {
    let columns = [
        ("", Align::Left),
        ("tensor", Align::Left),
        ("kind", Align::Left),
        ("offset", Align::Right),
        ("bytes", Align::Right),
        ("steps", Align::Right),
    ];
    let mut table = Table::new(&columns, 1);
    for block in blocks {
        let t = block.tensor;
        let steps = match t.first_step == t.last_step {
            true => t.first_step.to_string(),
            false => format!("{}–{}", t.first_step, t.last_step),
        };
        let word = t.kind.word().to_owned();
        table.row([block.letter.into(), t.name.clone(), word, thousands(t.offset), thousands(t.bytes), steps]);
    }
    let table = table.render(style.width);
    let mut lines = table.lines();
    let head = lines.next().unwrap_or_default();
    let mut text = format!("{head}\n");
    for (line, block) in lines.zip(blocks) {
        // The letter alone is coloured; it is ASCII and comes first.
        let (letter, rest) = line.split_at_checked(1).unwrap_or((line, ""));
        text.push_str(&format!("{}{rest}\n", block.paint(letter, style)));
    }
    text
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
