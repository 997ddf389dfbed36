//! A report made up for tests of what is drawn from reports.

use super::json::*;

/// A chain of `steps` steps; step `i` reads tensor `i` and writes tensor `i + 1`. Two arenas' ends
/// take turns, so tensors meet and leave gaps.
pub(super) fn chain(steps: usize) -> PlanReport {
    let arena = 10_000;
    let mut tensors = Vec::new();
    for i in 0..=steps {
        let bytes = 1_000 + (i as u64 * 977) % 3_000;
        tensors.push(Tensor {
            name: format!("functional_1/activation_{i}/Relu;functional_1/batch_normalization_{i}/FusedBatchNormV3"),
            kind: if i == 0 { Kind::Input } else { Kind::Intermediate },
            region: Region::Arena,
            bank: 0,
            offset: if i % 2 == 0 { 0 } else { arena - bytes },
            bytes,
            first_step: i.saturating_sub(1),
            last_step: i.min(steps - 1),
            dtype: Some("int8"),
            shape: Some(vec![1, bytes as u32]),
        });
    }
    let steps = (0..steps).map(|index| Step {
        index,
        op: "conv2d",
        name: tensors[index + 1].name.clone(),
        kernel: "conv2d int8",
        macs: 1_000_000,
        instructions: None,
        inputs: vec![tensors[index].name.clone()],
        outputs: vec![tensors[index + 1].name.clone()],
        scratch: 0,
    });
    PlanReport {
        format: FORMAT,
        model: "chain".into(),
        board: "board".into(),
        target: "armv7e-m".into(),
        entry: "infer".into(),
        fits: true,
        ram: Ram {
            arena,
            lower_bound: arena,
            state: 0,
            io: 0,
            total: arena,
            limit: None,
            region: None,
            least: None,
            shared_arena: false,
            banks: Vec::new(),
        },
        flash: Flash { constants: 0, plan: 0, code: None, total: 0, limit: None, region: None },
        removed: Removed { macs: 0, constant_bytes: 0 },
        time: Time { instructions: None, cycles_per_instruction: None, clock_hz: None, error: None, seconds: None },
        optimal: true,
        peak: Some(Peak { step: steps.len() - 1, tensors: Vec::new() }),
        short: Vec::new(),
        again: Vec::new(),
        patches: None,
        fed: None,
        steps: steps.collect(),
        tensors,
    }
}
