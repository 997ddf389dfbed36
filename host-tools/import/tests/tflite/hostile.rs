//! Files made to cost more than they weigh: tables that share what they refer to, and shapes without limit.

use std::time::{Duration, Instant};

use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, Push, TableFinishedWIPOffset, Vector, WIPOffset};
use kiln_import::tflite::{TfliteError, TfliteFile};

use super::guarantees::parse;

type Builder = FlatBufferBuilder<'static>;
type Table = WIPOffset<TableFinishedWIPOffset>;
type Tables = WIPOffset<Vector<'static, ForwardsUOffset<TableFinishedWIPOffset>>>;

/// Where the schema's field number `field` stands in a table's index.
const fn slot(field: u16) -> u16 {
    4 + 2 * field
}

/// A table with one field that refers to `value`.
fn table(builder: &mut Builder, field: u16, value: impl Push) -> Table {
    let start = builder.start_table();
    builder.push_slot_always(slot(field), value);
    builder.end_table(start)
}

/// A vector of `count` references to one table.
fn repeated(builder: &mut Builder, count: usize, element: Table) -> Tables {
    builder.create_vector(&vec![element; count])
}

/// A file whose model has one operator code and the subgraphs given.
fn model(
    mut builder: Builder,
    subgraphs: WIPOffset<flatbuffers::Vector<'static, flatbuffers::ForwardsUOffset<TableFinishedWIPOffset>>>,
) -> Vec<u8> {
    let start = builder.start_table();
    let code = builder.end_table(start);
    let codes = repeated(&mut builder, 1, code);
    let start = builder.start_table();
    builder.push_slot_always(slot(0), 3u32);
    builder.push_slot_always(slot(1), codes);
    builder.push_slot_always(slot(2), subgraphs);
    let root = builder.end_table(start);
    builder.finish(root, Some("TFL3"));
    builder.finished_data().to_vec()
}

/// Parses within two seconds.
fn quick(bytes: &[u8]) -> Result<TfliteFile<'_>, TfliteError> {
    let start = Instant::now();
    let result = parse(bytes);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?} for {} bytes", start.elapsed(), bytes.len());
    result
}

#[test]
fn subgraphs_sharing_their_tensors() {
    // 100,000 × 100,000 tensors from 800 kB.
    let mut builder = Builder::new();
    let start = builder.start_table();
    let tensor = builder.end_table(start);
    let tensors = repeated(&mut builder, 100_000, tensor);
    let subgraph = table(&mut builder, 0, tensors);
    let subgraphs = repeated(&mut builder, 100_000, subgraph);
    let bytes = model(builder, subgraphs);
    assert!(matches!(quick(&bytes), Err(TfliteError::Damaged { .. })));
}

#[test]
fn operators_sharing_their_inputs() {
    let mut builder = Builder::new();
    let start = builder.start_table();
    let tensor = builder.end_table(start);
    let tensors = repeated(&mut builder, 1, tensor);
    let inputs = builder.create_vector(&vec![0i32; 100_000]);
    let operator = table(&mut builder, 1, inputs);
    let operators = repeated(&mut builder, 100_000, operator);
    let start = builder.start_table();
    builder.push_slot_always(slot(0), tensors);
    builder.push_slot_always(slot(3), operators);
    let subgraph = builder.end_table(start);
    let subgraphs = repeated(&mut builder, 1, subgraph);
    let bytes = model(builder, subgraphs);
    assert!(matches!(quick(&bytes), Err(TfliteError::Damaged { .. })));
}

#[test]
fn the_emptiest_tables() {
    // An empty table is eight bytes of file, with the reference to it, and a hundred or more of memory.
    let empty_tables = |builder: &mut Builder, count: usize| {
        let mut tables = Vec::new();
        for _ in 0..count {
            let start = builder.start_table();
            tables.push(builder.end_table(start));
        }
        builder.create_vector(&tables)
    };
    let count = 100_000;
    // Fields 0 and 3 of a subgraph: its tensors and its operators.
    for (field, what) in [(0, "tensors"), (3, "operators")] {
        let mut builder = Builder::new();
        let tables = empty_tables(&mut builder, count);
        let subgraph = table(&mut builder, field, tables);
        let subgraphs = repeated(&mut builder, 1, subgraph);
        let bytes = model(builder, subgraphs);
        let file = quick(&bytes).unwrap();
        assert_eq!(file.main().tensors.len() + file.main().operators.len(), count, "{what}");
    }
}

#[test]
fn a_shape_of_a_million_dimensions() {
    for dim in [1, 2, i32::MAX] {
        let mut builder = Builder::new();
        let shape = builder.create_vector(&vec![dim; 1_000_000]);
        let tensor = table(&mut builder, 0, shape);
        let tensors = repeated(&mut builder, 1, tensor);
        let subgraph = table(&mut builder, 0, tensors);
        let subgraphs = repeated(&mut builder, 1, subgraph);
        let bytes = model(builder, subgraphs);
        let result = quick(&bytes);
        match dim {
            1 => assert_eq!(result.unwrap().main().tensors[0].elements(), 1),
            _ => assert!(matches!(result, Err(TfliteError::Shape { .. }))),
        }
    }
}

#[test]
fn a_tensor_larger_than_any_memory_costs_nothing() {
    let mut builder = Builder::new();
    let shape = builder.create_vector(&[1i32, 1 << 20, 1 << 20, 1 << 10]);
    let tensor = table(&mut builder, 0, shape);
    let tensors = repeated(&mut builder, 1, tensor);
    let subgraph = table(&mut builder, 0, tensors);
    let subgraphs = repeated(&mut builder, 1, subgraph);
    let bytes = model(builder, subgraphs);
    assert_eq!(quick(&bytes).unwrap().main().tensors[0].elements(), 1 << 50);
}

#[test]
fn long_names_are_cut_in_messages() {
    let mut builder = Builder::new();
    let name = builder.create_string(&"\u{1b}[31m\n".repeat(100_000));
    let shape = builder.create_vector(&[-1i32]);
    let start = builder.start_table();
    builder.push_slot_always(slot(0), shape);
    builder.push_slot_always(slot(3), name);
    let tensor = builder.end_table(start);
    let tensors = repeated(&mut builder, 1, tensor);
    let subgraph = table(&mut builder, 0, tensors);
    let subgraphs = repeated(&mut builder, 1, subgraph);
    let bytes = model(builder, subgraphs);
    let message = quick(&bytes).unwrap_err().to_string();
    assert!(message.contains("dimension 0 is -1") && message.contains("\\u{1b}[31m\\n"), "{message}");
    assert!(!message.chars().any(char::is_control));
}
