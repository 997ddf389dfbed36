//! What a bar with little room is called: of a name that is a path, the part that tells it from
//! the others.

use std::collections::HashMap;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::layout::Bar;
use super::words::{legible, wrap};

/// The bars' names, in full and in brief.
pub(super) struct Labels {
    names: Vec<(String, String)>,
}

impl Labels {
    /// The names in the bars' order.
    pub(super) fn new<'n>(names: impl Iterator<Item = &'n str>) -> Labels {
        let names: Vec<String> = names.map(legible).collect();
        let mut times: HashMap<&str, usize> = HashMap::new();
        for part in names.iter().flat_map(|name| parts(name)) {
            *times.entry(part).or_default() += 1;
        }
        // The rarest part says most: of `model/activation_3/Relu` the one in the middle.
        let brief = |name: &str| {
            let rarest = parts(name).min_by_key(|part| times.get(part).copied().unwrap_or(0));
            match rarest {
                Some(part) if part != name => format!("…{part}"),
                _ => name.to_owned(),
            }
        };
        Labels { names: names.iter().map(|name| (name.clone(), brief(name))).collect() }
    }

    /// A bar's tag and name in at most three and `lines` lines of `width` columns, if they have room for
    /// it and it needs more than one.
    pub(super) fn broken(&self, bar: &Bar<'_>, width: usize, lines: usize) -> Option<Vec<String>> {
        let (name, brief) = self.names.get(bar.index)?;
        let room = width.saturating_sub(bar.tag.len() + 1);
        if name.width() <= room || brief.width() <= room {
            return None;
        }
        let whole = format!("{} {brief}", bar.tag);
        let broken = wrap(&whole, width, lines.min(3));
        (broken.concat() == whole).then_some(broken)
    }

    /// A bar's name in at most `width` columns.
    pub(super) fn of(&self, bar: &Bar<'_>, width: usize) -> String {
        match self.names.get(bar.index) {
            Some((name, _)) if name.width() <= width => name.clone(),
            Some((_, brief)) => tail(brief, width),
            None => String::new(),
        }
    }
}

/// The parts of a path; of names that an importer joined by semicolons when it fused operators,
/// those of the first.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    let first = name.split(';').next().unwrap_or(name);
    first.split(['/', '.']).filter(|part| !part.is_empty())
}

/// The end of `text`, behind an ellipsis where the begin is missing.
fn tail(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let mut kept: Vec<char> = Vec::new();
    for c in text.chars().rev() {
        let needs = c.width().unwrap_or(0);
        if needs > room {
            break;
        }
        room -= needs;
        kept.push(c);
    }
    std::iter::once('…').chain(kept.into_iter().rev()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_that_differs_is_kept() {
        let names = ["m/act/Relu;m/bn", "m/act_1/Relu;m/bn_1", "m/act_2/Relu", "m/pool2d/AvgPool", "scores"];
        let labels = Labels::new(names.into_iter());
        let brief: Vec<&str> = labels.names.iter().map(|(_, brief)| brief.as_str()).collect();
        assert_eq!(brief, ["…act", "…act_1", "…act_2", "…pool2d", "scores"]);
        assert_eq!(tail("…act_1", 6), "…act_1");
        assert_eq!(tail("…act_1", 5), "…ct_1");
        assert_eq!(tail("宽宽宽", 4), "…宽");
    }
}
