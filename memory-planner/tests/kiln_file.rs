//! `.kiln` files: what is written comes back, and nothing damaged or hostile gets through or gets
//! anything to panic.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kiln_core::{DType, TargetId, crc};
use kiln_ops::{Activation, Add, Conv2d, FullyConnected, Op, Pool2d, PoolKind, Reshape, Softmax};
use kiln_planner::graph::{Assign, Entry, Extent, Graph, Quant, ValueId, VaryingDim, tensor_type};
use kiln_planner::kiln_file::{About, KilnFile, KilnFileError};
use kiln_planner::solve::Budget;
use kiln_planner::{Options, plan};

/// Counts the bytes that are allocated.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does everything; counting has no effect on it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller's duties are the system allocator's own.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Seeded random numbers.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 ^ self.0 >> 29).wrapping_mul(0xbf58476d1ce4e5b9) >> 16
    }

    fn below(&mut self, n: usize) -> usize {
        self.word() as usize % n
    }
}

/// A graph with something of everything.
fn graph() -> Graph {
    let ty = |dtype, dims: &[u32]| tensor_type(dtype, dims).unwrap();
    let quant = Quant::per_tensor(0.05, -3);
    let mut g = Graph::new("everything");
    g.labels = vec!["no".into(), "yes".into()];
    g.extents = vec![Extent { name: "batch".into(), max: 2 }];
    g.entries = ["infer", "reset"].map(|name| Entry { name: name.into(), ..Entry::default() }).into_iter().collect();
    let x = g.add_input("x", ty(DType::I8, &[2, 4, 4, 3]), quant.clone());
    g.values[x.index()].varying = vec![VaryingDim { axis: 0, extent: 0 }];
    let filter = ty(DType::I8, &[4, 3, 3, 3]);
    let per_channel = Quant { scales: vec![0.01, 0.02, 0.03, 0.04], zero_points: vec![0; 4], axis: 0 };
    let w = g.add_constant("w", filter, per_channel, (0..108).collect::<Vec<u8>>());
    let conv = Conv2d { strides: [1, 1], dilations: [1, 1], pads: [1; 4], groups: 1, activation: Activation::Relu };
    let y = g.add_node(0, "conv", conv, &[x, w], quant.clone()).unwrap();
    let pool =
        Pool2d { kind: PoolKind::Max, kernel: [2, 2], strides: [2, 2], pads: [0; 4], activation: Activation::None };
    let p = g.add_node(0, "pool", Op::from(pool), &[y], quant.clone()).unwrap();
    let flat = g.add_node(0, "flat", Reshape { shape: ty(DType::I8, &[2, 16]).shape }, &[p], quant.clone()).unwrap();
    let matrix = ty(DType::I8, &[2, 16]);
    let m = g.add_constant("m", matrix, Quant::per_tensor(0.1, 0), vec![7; 32]);
    let layer = FullyConnected { keep_dims: true, activation: Activation::None };
    let scores = g.add_node(0, "scores", layer, &[flat, m], quant.clone()).unwrap();
    let state = g.add_state("sum", g.value(scores).ty, quant.clone());
    let sum = g.add_node(0, "add", Add { activation: Activation::None }, &[scores, state], quant).unwrap();
    let soft = g.add_node(0, "softmax", Softmax { beta: 1.0 }, &[sum], Quant::per_tensor(1.0 / 256.0, -128)).unwrap();
    g.entries[0].inputs = vec![x];
    g.entries[0].outputs = vec![soft, state];
    g.entries[0].assigns = vec![Assign { state, value: sum }];
    let start = g.add_constant("start", g.value(state).ty, Quant::default(), vec![1; 4]);
    g.entries[1].assigns = vec![Assign { state, value: start }];
    g
}

fn options() -> Options {
    Options { budget: Budget { nodes: 500 }, ..Options::for_target(TargetId::ARMV7EM) }
}

fn file() -> KilnFile {
    let graph = graph();
    let planned = plan(&graph, &options()).unwrap();
    let about = About { model: "everything".into(), board: "mps2-an386".into(), kiln: "0.1.0".into() };
    let portable = Options { target: TargetId::PORTABLE, ..options() };
    let second = plan(&graph, &portable).unwrap();
    let plans = vec![(planned.target, planned.bytes), (second.target, second.bytes)];
    KilnFile { graph: Some(graph), plans, about }
}

fn seal(bytes: &mut [u8]) {
    let sum = crc::crc32(&bytes[16..]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// A file of one section.
fn section(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"KILN\x01\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&48u64.to_le_bytes());
    bytes.extend_from_slice(&(data.len() as u64).to_le_bytes());
    bytes.resize(48, 0);
    bytes.extend_from_slice(data);
    seal(&mut bytes);
    bytes
}

#[test]
fn what_is_written_comes_back() {
    let file = file();
    let bytes = file.to_bytes().unwrap();
    assert_eq!(KilnFile::from_bytes(&bytes), Ok(file.clone()));
    assert_eq!(file.to_bytes().unwrap(), bytes);
    let empty = KilnFile::default();
    assert_eq!(KilnFile::from_bytes(&empty.to_bytes().unwrap()), Ok(empty));
    // Planning what came back gives the same plan.
    let back = KilnFile::from_bytes(&bytes).unwrap();
    assert_eq!(plan(&back.graph.unwrap(), &options()).unwrap().bytes, file.plans[0].1);
}

#[test]
fn every_truncation_is_refused() {
    let bytes = file().to_bytes().unwrap();
    for len in 0..bytes.len() {
        assert!(KilnFile::from_bytes(&bytes[..len]).is_err(), "{len} bytes");
    }
    assert_eq!(KilnFile::from_bytes(b"KILN"), Err(truncated("a header field", 6, 4)));
    assert_eq!(KilnFile::from_bytes(b"KPLN rest"), Err(KilnFileError::Magic));
}

fn truncated(what: &'static str, needed: u64, have: u64) -> KilnFileError {
    KilnFileError::Truncated { what, needed, have }
}

#[test]
fn every_changed_bit_is_noticed() {
    let bytes = file().to_bytes().unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        // A newer minor version is read as far as it is known.
        assert!(KilnFile::from_bytes(&changed).is_err() || (6..8).contains(&at), "byte {at}");
    }
}

#[test]
fn headers_that_lie() {
    let with = |at: usize, value: &[u8]| {
        let mut bytes = file().to_bytes().unwrap();
        bytes[at..at + value.len()].copy_from_slice(value);
        seal(&mut bytes);
        KilnFile::from_bytes(&bytes).unwrap_err()
    };
    assert_eq!(with(4, &2u16.to_le_bytes()), KilnFileError::Version(2, 0));
    assert_eq!(with(8, &u32::MAX.to_le_bytes()), KilnFileError::Sections(u32::MAX));
    assert_eq!(with(8, &65u32.to_le_bytes()), KilnFileError::Sections(65));
    let have = file().to_bytes().unwrap().len() as u64;
    assert_eq!(
        with(24, &u64::MAX.to_le_bytes()).to_string(),
        format!("truncated: a section needs byte {}, the file has {have}", u64::MAX)
    );
    assert!(matches!(with(32, &(1u64 << 40).to_le_bytes()), KilnFileError::Truncated { .. }));
    // A plan too short to say its target.
    assert!(matches!(KilnFile::from_bytes(&section(2, b"KPLN")), Err(KilnFileError::Truncated { .. })));
    // A kind of a later version.
    assert_eq!(KilnFile::from_bytes(&section(77, b"?")), Ok(KilnFile::default()));
}

/// Lengths that the bytes do not have must not be allocated for.
#[test]
fn huge_lengths_allocate_little() {
    let good = postcard::to_stdvec(&graph()).unwrap();
    // A varint of nearly 2^64, and one of 2^32.
    let lengths: [&[u8]; 2] =
        [&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], &[0x80, 0x80, 0x80, 0x80, 0x10]];
    for length in lengths {
        for at in 0..good.len() {
            let mut data = good.clone();
            data.splice(at..at + 1, length.iter().copied());
            for kind in [1, 3] {
                let bytes = section(kind, &data);
                let before = NOW.load(Relaxed);
                PEAK.store(before, Relaxed);
                let _ = std::hint::black_box(KilnFile::from_bytes(&bytes));
                let peak = PEAK.load(Relaxed).saturating_sub(before);
                // Other tests allocate meanwhile; what must not happen is of another size.
                assert!(peak < 64 << 20, "{peak} bytes for a length at byte {at}");
            }
        }
    }
}

/// Changes that the checksum does not show. What is still a valid graph must be planned or refused.
#[test]
fn hostile_graphs_do_not_panic() {
    let good = postcard::to_stdvec(&graph()).unwrap();
    let (mut refused, mut valid, mut planned) = (0, 0, 0);
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let mut data = good.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(data.len());
            match random.below(6) {
                0 => data[at] = random.word() as u8,
                1 => data[at] = data[at].wrapping_add(1),
                2 => data[at] = data[at].wrapping_sub(1),
                3 => data[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
                4 => drop(data.remove(at)),
                _ => data.insert(at, random.word() as u8),
            }
        }
        match KilnFile::from_bytes(&section(1, &data)) {
            Ok(file) => {
                valid += 1;
                planned += usize::from(plan(&file.graph.unwrap(), &options()).is_ok());
            }
            Err(_) => refused += 1,
        }
    }
    println!("{refused} refused, {valid} valid, of which {planned} could be planned");
    assert!(refused > 1000 && valid > 1000 && planned > 100);
}

#[test]
fn graphs_that_break_rules_are_refused() {
    type Change = fn(&mut Graph);
    let broken: [(&str, Change); 9] = [
        ("two of that name", |g| g.entries[1].name = "infer".into()),
        ("that could vary", |g| {
            g.extents[0].max = 1;
            g.values[0].varying[0].axis = 200;
        }),
        ("not its extent's maximum", |g| g.extents[0].max = 3),
        ("extent of at most 0", |g| g.extents[0].max = 0),
        ("more than any memory", |g| g.values[0].ty = tensor_type(DType::F32, &[u32::MAX, u32::MAX]).unwrap()),
        ("no value 999", |g| g.entries[0].outputs.push(ValueId(999))),
        ("assigned twice", |g| g.entries[0].assigns = vec![g.entries[0].assigns[0]; 2]),
        ("read before it is known", |g| g.entries[0].nodes.reverse()),
        ("not a positive number", |g| g.values[0].quant.scales[0] = f32::NAN),
    ];
    for (part, change) in broken {
        let mut g = graph();
        change(&mut g);
        let message = plan(&g, &options()).err().unwrap().to_string();
        assert!(message.contains(part), "'{message}' instead of '{part}'");
        let file = section(1, &postcard::to_stdvec(&g).unwrap());
        assert!(matches!(KilnFile::from_bytes(&file), Err(KilnFileError::Graph(_))));
    }
}

/// A rank beyond the dimensions a shape has is no shape.
#[test]
fn shapes_with_a_false_rank_are_refused() {
    let shape = tensor_type(DType::I8, &[2, 3]).unwrap().shape;
    let mut bytes = postcard::to_stdvec(&shape).unwrap();
    assert_eq!(postcard::from_bytes(&bytes), Ok(shape));
    *bytes.last_mut().unwrap() = 9;
    assert!(postcard::from_bytes::<kiln_core::Shape>(&bytes).is_err());
    // Dimensions beyond the rank do not make two equal shapes differ.
    *bytes.last_mut().unwrap() = 1;
    assert_eq!(postcard::from_bytes(&bytes), Ok(kiln_core::Shape::new(&[2]).unwrap()));
}
