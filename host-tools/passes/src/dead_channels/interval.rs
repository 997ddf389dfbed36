//! What int8 values can hold, channel by channel.

use std::rc::Rc;

/// All that an int8 element can be, from the lowest to the highest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Interval {
    pub(super) low: i8,
    pub(super) high: i8,
}

impl Interval {
    /// Any int8.
    pub(super) const ANY: Interval = Interval { low: i8::MIN, high: i8::MAX };

    /// One value only.
    pub(super) fn one(value: i8) -> Interval {
        Interval { low: value, high: value }
    }

    /// What it holds if that is one value.
    pub(super) fn constant(self) -> Option<i8> {
        (self.low == self.high).then_some(self.low)
    }

    /// The least that holds what either does.
    pub(super) fn or(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// The intervals of a value's channels: element `i` of the dense value, whatever its shape, is of channel
/// `i % len`. So a reshape keeps them, and one interval says something of all elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Channels(Rc<[Interval]>);

impl Channels {
    /// Those of a value that can hold anything.
    pub(super) fn any() -> Channels {
        Channels([Interval::ANY].into())
    }

    /// Those that a list gives, which must not be empty.
    pub(super) fn new(list: impl Into<Rc<[Interval]>>) -> Channels {
        let list = list.into();
        if list.is_empty() { Channels::any() } else { Channels(list) }
    }

    /// Those of int8 elements whose innermost dimension is `last`.
    pub(super) fn of_data(data: &[u8], last: usize) -> Channels {
        let mut list: Vec<Interval> = data.iter().take(last).map(|&byte| Interval::one(byte as i8)).collect();
        for row in data.chunks(last.max(1)).skip(1) {
            for (to, &byte) in list.iter_mut().zip(row) {
                *to = to.or(Interval::one(byte as i8));
            }
        }
        Channels::new(list)
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// That of element `i`.
    pub(super) fn get(&self, i: usize) -> Interval {
        self.0[i % self.0.len()]
    }

    /// All.
    pub(super) fn iter(&self) -> impl Iterator<Item = Interval> + '_ {
        self.0.iter().copied()
    }

    /// Each through `f`.
    pub(super) fn map(&self, f: impl Fn(Interval) -> Interval) -> Channels {
        Channels(self.iter().map(f).collect())
    }

    /// The same seen as rows of `columns` elements: [`Channels::get`] then takes columns.
    pub(super) fn in_rows_of(&self, columns: usize) -> Channels {
        if columns.is_multiple_of(self.len()) {
            return self.clone();
        }
        // Where rows begin at different channels, columns hold what several do.
        let list = if self.len().is_multiple_of(columns) { columns } else { 1 };
        let mut list: Vec<Interval> = self.iter().take(list).collect();
        let count = list.len();
        for (i, interval) in self.iter().enumerate() {
            list[i % count] = list[i % count].or(interval);
        }
        Channels::new(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(low: i8, high: i8) -> Interval {
        Interval { low, high }
    }

    #[test]
    fn rows_of_other_lengths_hold_what_their_columns_can() {
        let six = Channels::new([0, 1, 2, 3, 4, 9].map(Interval::one));
        assert_eq!(six.in_rows_of(12), six);
        assert_eq!(six.in_rows_of(12).get(11), Interval::one(9));
        assert_eq!(six.in_rows_of(3), Channels::new([span(0, 3), span(1, 4), span(2, 9)]));
        assert_eq!(six.in_rows_of(4), Channels::new([span(0, 9)]));
        assert_eq!(Channels::of_data(&[1, 255, 3, 4], 2), Channels::new([span(1, 3), span(-1, 4)]));
        assert_eq!(Channels::of_data(&[], 2), Channels::any());
    }
}
