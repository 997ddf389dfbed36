//! The table itself.

use kiln_core::{DType, Row, TargetId};
use kiln_kernels::code::{code_bytes, family};
use kiln_kernels::instructions::{self, instructions, step_instructions};
use kiln_kernels::table::{KERNEL_COUNT, KERNELS, REFERENCES, choose, host_rows, kernel};
use kiln_kernels::workload::Workload;

use crate::generate::{case, conv2d, depthwise};
use crate::support::Random;

#[test]
fn numbers_and_names_are_unique() {
    for (i, a) in KERNELS.iter().enumerate() {
        assert_eq!(a.number, a.portable.number(), "{}", a.name);
        assert_eq!(a.name.to_uppercase(), a.row_name);
        assert!(a.number < 0x8000, "{}: the upper half is for references", a.name);
        assert!(a.portable.align().is_power_of_two());
        // Planning knows one of each.
        let facts = |row: Row| (row.number(), row.align(), row.over_read());
        assert_eq!(facts(a.row()), facts(a.portable), "{}", a.name);
        for b in &KERNELS[i + 1..] {
            assert!(a.number != b.number && a.name != b.name);
        }
        assert_eq!(kernel(a.number).unwrap().name, a.name);
    }
    let rows = host_rows();
    assert_eq!(rows.len(), KERNEL_COUNT);
    assert!(rows.iter().zip(KERNELS.iter().chain(REFERENCES)).all(|(r, k)| r.number() == k.number));
    assert!(kernel(0).is_none());
}

#[test]
fn the_table_chooses_every_kernel() {
    for (place, kernel) in KERNELS.iter().enumerate() {
        let mut taken = 0;
        for seed in 0..if cfg!(miri) { 2 } else { 60 } {
            let case = case(kernel.number, &mut Random::new(seed));
            let target = kernel.targets.first().copied().unwrap_or(TargetId::ARMV6M);
            let chosen = case.operation(|o| choose(o, target).unwrap().number);
            taken += u32::from(chosen == kernel.number);
            // Some cases suit a kernel that is preferred to it as well.
            let preferred = KERNELS[..=place].iter().any(|k| k.number == chosen);
            assert!(preferred, "{chosen} for {}", kernel.name);
        }
        assert!(cfg!(miri) || taken > 0, "{} is never chosen", kernel.name);
    }
    for dtype in [DType::I8, DType::F32] {
        let depthwise = depthwise(dtype, &mut Random::new(0));
        let number = depthwise.operation(|o| choose(o, TargetId::PORTABLE).unwrap().number);
        assert_eq!(number, if dtype == DType::I8 { 2 } else { 33 });
    }
}

/// What a kernel can't compute it must not claim.
#[test]
fn kernels_do_not_apply_to() {
    let base = conv2d(DType::I8, &mut Random::new(3));
    let numbers = |case: &crate::support::Case| {
        case.operation(|o| KERNELS.iter().filter(|k| (k.applies)(o)).map(|k| k.number).collect::<Vec<_>>())
    };
    assert!(numbers(&base).contains(&1));
    // Weights that are not known, that have a zero point, or too few scales.
    let mut case = base.clone();
    case.inputs[1].constant = false;
    assert!(numbers(&case).is_empty());
    let mut case = base.clone();
    case.inputs[1].zero_points[0] = 1;
    assert!(numbers(&case).is_empty());
    let mut case = base.clone();
    case.inputs[1].scales = vec![0.1; 99];
    assert!(numbers(&case).is_empty());
    let mut case = base.clone();
    case.output.scales.clear();
    assert!(numbers(&case).is_empty());
    // An output of another shape than the operator's, or data of another length.
    let mut case = base.clone();
    case.output.ty = case.inputs[0].ty;
    assert!(numbers(&case).is_empty());
    let mut case = base.clone();
    case.inputs[1].data.pop();
    assert!(numbers(&case).is_empty());
    // float32 weights may come from a run.
    let mut case = conv2d(DType::F32, &mut Random::new(3));
    case.inputs[1].constant = false;
    // Narrow ones are no product of matrices.
    assert!(matches!(numbers(&case)[..], [32] | [98, 32]));
}

#[test]
fn instructions_are_known_for_what_was_measured_and_nothing_else() {
    let conv = Workload {
        products: 9e5,
        padding: 1e4,
        lines: 2e5,
        outputs: 1e5,
        vectors: 1e4,
        gathered: 9e4,
        edges: 4e3,
        gathered_at_edges: 4e4,
    };
    let known = step_instructions(TargetId::ARMV7EM, 1, &conv).unwrap();
    // A multiply-accumulate takes at least part of an instruction, and not hundreds.
    assert!((0.2..100.0).contains(&(known / conv.products)), "{known}");
    assert!(instructions(TargetId::ARMV7EM, [(1, &conv), (1, &conv)]).unwrap() > 2.0 * known);
    // One unknown kernel, and the sum is unknown, not smaller.
    assert_eq!(instructions(TargetId::ARMV7EM, [(1, &conv), (u16::MAX, &conv)]), None);
    assert_eq!(instructions(TargetId::X86_64, [(1, &conv)]), None);
    for family in TargetId::ALL.iter().filter_map(|(_, target)| instructions::family(*target)) {
        assert!(family.run >= 0.0 && family.step > 0.0);
        for row in family.rows {
            assert!(row.each.iter().all(|each| each.is_finite() && *each >= 0.0), "kernel {}", row.number);
            assert!(row.each.iter().any(|each| *each > 0.0), "kernel {}", row.number);
        }
    }
}

#[test]
fn the_code_of_every_kernel_was_measured_wherever_firmware_may_have_it() {
    for target in [
        TargetId::ARMV6M,
        TargetId::ARMV7M,
        TargetId::ARMV7EM,
        TargetId::ARMV8M,
        TargetId::ARMV81M,
        TargetId::RV32IMC,
        TargetId::AARCH64,
    ] {
        let family = family(target).unwrap();
        for kernel in KERNELS.iter().filter(|kernel| kernel.runs_on(target)) {
            let renew = "renew kernels/src/code_bytes with `kiln-ci code-sizes --measure`";
            let alone = code_bytes(target, &[kernel.number]).unwrap_or_else(|| panic!("{}: {renew}", kernel.name));
            assert!(alone > u64::from(family.base) + 100, "{} for {}", kernel.name, target.0);
            assert_eq!(code_bytes(target, &[kernel.number; 2]), Some(alone));
        }
        for row in family.rows {
            assert!(row.shared.iter().all(|index| usize::from(*index) < family.shared.len()));
        }
    }
    // Both are pools and share what is around them.
    let pools = |numbers: &[u16]| code_bytes(TargetId::ARMV7EM, numbers).unwrap();
    assert!(pools(&[4, 5]) + pools(&[]) < pools(&[4]) + pools(&[5]));
    assert_eq!(code_bytes(TargetId::X86_64, &[]), None);
    assert_eq!(code_bytes(TargetId::ARMV7EM, &[4, 0]), None);
}
