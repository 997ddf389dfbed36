//! Files whose checksums are right and whose contents are not: nothing panics, nothing hangs.

use std::path::PathBuf;

use kiln_cli::model::{Format, ModelFile};
use kiln_core::{Error, TargetId};
use kiln_planner::Options;
use kiln_planner::kiln_file::KilnFile;
use kiln_target_host::{RunError, Runner};

use crate::synthetic::{self, reseal};

/// Numbers that repeat (a 64-bit linear congruential generator, Knuth's constants).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn model(bytes: Vec<u8>) -> ModelFile {
    ModelFile { path: PathBuf::from("hostile.kiln"), name: "hostile".into(), format: Format::Kiln, bytes }
}

#[test]
fn any_changed_byte_is_noticed() {
    let whole = synthetic::file(true, &[TargetId::PORTABLE]);
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x20;
        // The minor version may grow: readers pass over what they do not know.
        assert!(at == 6 || at == 7 || KilnFile::from_bytes(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn changed_graphs_plan_or_are_refused() {
    let whole = synthetic::file(true, &[]);
    let mut numbers = Numbers(1);
    let (mut planned, mut refused) = (0, 0);
    for _ in 0..4_000 {
        let mut changed = whole.clone();
        for _ in 0..1 + numbers.below(3) {
            let at = 16 + numbers.below(changed.len() - 16);
            changed[at] = numbers.below(256) as u8;
        }
        reseal(&mut changed);
        let file = model(changed);
        match file.graph().and_then(|graph| file.plan(&graph, &Options::for_target(TargetId::ARMV7EM))) {
            Ok(plan) => match Runner::new(&plan.bytes) {
                Ok(_) => planned += 1,
                // Bounds of a dimension that varies are judged by the session.
                Err(RunError::Plan(Error::Extent(_))) => refused += 1,
                Err(error) => panic!("the planner's records do not load: {error}"),
            },
            Err(_) => refused += 1,
        }
    }
    assert!(planned > 100 && refused > 100, "{planned} planned, {refused} refused: too one-sided to say anything");
}
