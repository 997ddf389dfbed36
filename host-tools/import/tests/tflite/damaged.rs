//! Real models, cut short or with bytes changed: refused or read, but never a panic and never slow.

use proptest::prelude::*;

use super::guarantees::parse;
use super::{Model, models};
use kiln_import::tflite::TfliteError;

#[test]
fn every_kind_of_length() {
    for model in models().iter().take(4) {
        let whole = parse(&model.bytes).unwrap();
        // A prime, so that cuts fall on every alignment.
        for length in (0..model.bytes.len()).step_by(7) {
            match (parse(&model.bytes[..length]), length) {
                (Err(TfliteError::Empty), 0) | (Err(TfliteError::TooShort { .. }), 1..8) => {}
                (Err(TfliteError::Damaged { .. }), 8..) => {}
                // The last bytes may be padding that nothing refers to.
                (Ok(file), _) if length + 16 > model.bytes.len() => assert!(file == whole),
                (Ok(_), _) => panic!("{}: accepted when cut to {length} bytes", model.name),
                (Err(error), _) => panic!("{} cut to {length} bytes: {error}", model.name),
            }
        }
    }
}

/// A small generator (xorshift), so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// The positions that are not constants' bytes: changing a weight cannot go wrong.
fn structure(model: &Model) -> Vec<usize> {
    let mut constant = vec![false; model.bytes.len()];
    let file = parse(&model.bytes).unwrap();
    for data in file.subgraphs().iter().flat_map(|subgraph| &subgraph.tensors).filter_map(|tensor| tensor.data) {
        let start = data.as_ptr() as usize - model.bytes.as_ptr() as usize;
        constant[start..start + data.len()].fill(true);
    }
    (0..model.bytes.len()).filter(|&at| !constant[at]).collect()
}

/// Changes a few bytes of `bytes` and gives what stood there.
fn mutate(bytes: &mut [u8], places: &[usize], random: &mut Random) -> Vec<(usize, u8)> {
    let mut undo = Vec::new();
    let mut put = |bytes: &mut [u8], at: usize, value: u8| {
        if let Some(byte) = bytes.get_mut(at) {
            undo.push((at, *byte));
            *byte = value;
        }
    };
    for _ in 0..1 + random.below(3) {
        let at = places[random.below(places.len())];
        match random.below(5) {
            0 => put(bytes, at, bytes[at] ^ (1 << random.below(8))),
            1 => put(bytes, at, random.below(256) as u8),
            2 => {
                let edges = [
                    0,
                    1,
                    u32::MAX,
                    i32::MAX as u32,
                    i32::MIN as u32,
                    bytes.len() as u32,
                    random.below(1 << 16) as u32,
                ];
                let word = edges[random.below(edges.len())].to_le_bytes();
                (0..4).for_each(|i| put(bytes, (at & !3) + i, word[i]));
            }
            3 => {
                // Another place's word: most of them are offsets or indices that mean something.
                let from = places[random.below(places.len())] & !3;
                (0..4).for_each(|i| put(bytes, (at & !3) + i, bytes.get(from + i).copied().unwrap_or(0)));
            }
            _ => (0..1 + random.below(16)).for_each(|i| put(bytes, at + i, 0)),
        }
    }
    undo
}

#[test]
fn mutations() {
    let (mut accepted, mut refused) = (0, 0);
    for (seed, model) in models().iter().enumerate() {
        let places = structure(model);
        let mut bytes = model.bytes.clone();
        let mut random = Random(0x9e37_79b9_7f4a_7c15 + seed as u64);
        for _ in 0..5000 {
            let undo = mutate(&mut bytes, &places, &mut random);
            match parse(&bytes) {
                Ok(_) => accepted += 1,
                Err(_) => refused += 1,
            }
            undo.into_iter().rev().for_each(|(at, byte)| bytes[at] = byte);
        }
        assert_eq!(bytes, model.bytes);
    }
    println!("{accepted} mutants accepted, {refused} refused");
    // Mutations that are all caught at once, or never, would test little.
    assert_eq!(accepted == 0, refused == 0);
    assert!(refused == 0 || (accepted > 1000 && refused > 1000), "{accepted} accepted, {refused} refused");
}

proptest! {
    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(parse(&bytes).is_err());
    }

    /// Behind a right header and with small numbers, which come closer to being offsets.
    #[test]
    fn random_words(root in 0u32..64, words in proptest::collection::vec(prop_oneof![0u16..40, any::<u16>()], 0..400)) {
        let mut bytes = root.to_le_bytes().to_vec();
        bytes.extend_from_slice(b"TFL3");
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        // Whatever comes out, `parse` checks the promises.
        let _ = parse(&bytes);
    }
}
