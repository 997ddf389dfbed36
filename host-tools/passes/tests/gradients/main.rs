//! The gradient of every operator against finite differences, in double precision; and the gradients' own
//! gradients.

mod cases;
mod check;

use std::collections::HashSet;

use kiln_ops::{Function, Op};

/// What has no gradient: integers, random numbers, and chains and parts of averages, which come after differentiation.
const WITHOUT: [&str; 6] = ["quantize", "dequantize", "arg_max", "random", "fused", "average_pool2d_part"];

#[test]
fn every_gradient_is_that_of_finite_differences() {
    for case in cases::all() {
        check::first_order(&case);
    }
}

#[test]
fn every_gradient_has_a_gradient() {
    for case in cases::all() {
        check::second_order(&case);
    }
}

#[test]
fn no_operator_and_no_function_is_left_out() {
    let cases = cases::all();
    let ops: HashSet<&str> = cases.iter().map(|c| c.op.name()).collect();
    for (_, name) in Op::ALL {
        assert!(ops.contains(name) != WITHOUT.contains(name), "{name}");
    }
    let functions: HashSet<&str> = cases
        .iter()
        .filter_map(|c| match c.op {
            Op::Map(map) => Some(map.function.name()),
            _ => None,
        })
        .collect();
    for function in Function::ALL {
        assert!(functions.contains(function.name()), "{}", function.name());
    }
}
