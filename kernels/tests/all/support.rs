//! Cases, their preparation, and running rows with guard bytes around every window.

use kiln_core::{Call, DType, Direction, Row, RowRange, TensorType, Window};
use kiln_kernels::table::{Emit, Kernel, Operand, Operation};
use kiln_ops::{Activation, Arg, ArgMut, Op, QuantRef};

/// Seeded random numbers.
pub(crate) struct Random(oorandom::Rand64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(oorandom::Rand64::new(seed as u128))
    }

    /// A number of `low..=high`.
    pub(crate) fn range(&mut self, low: i64, high: i64) -> i64 {
        low + self.0.rand_range(0..(high - low + 1) as u64) as i64
    }

    pub(crate) fn size(&mut self, low: u32, high: u32) -> u32 {
        self.range(low as i64, high as i64) as u32
    }

    pub(crate) fn one_in(&mut self, n: i64) -> bool {
        self.range(1, n) == 1
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.range(0, of.len() as i64 - 1) as usize]
    }

    pub(crate) fn float(&mut self) -> f64 {
        self.0.rand_float()
    }

    pub(crate) fn word(&mut self) -> u32 {
        self.0.rand_u64() as u32
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.0.rand_u64() as u8).collect()
    }
}

/// A tensor with what it holds.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) ty: TensorType,
    pub(crate) scales: Vec<f32>,
    pub(crate) zero_points: Vec<i32>,
    pub(crate) data: Vec<u8>,
    pub(crate) constant: bool,
}

impl Tensor {
    pub(crate) fn quant(&self) -> QuantRef<'_> {
        QuantRef { scales: &self.scales, zero_points: &self.zero_points, axis: 0 }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.ty.bytes().unwrap() as usize
    }

    fn operand(&self) -> Operand<'_> {
        Operand { ty: self.ty, quant: self.quant(), data: self.constant.then_some(&self.data[..]) }
    }

    pub(crate) fn arg(&self) -> Arg<'_> {
        Arg { ty: self.ty, quant: self.quant(), data: &self.data }
    }
}

/// Bytes as float32.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}

/// An operator with everything it needs.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) op: Op,
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) output: Tensor,
}

impl Case {
    /// Calls `f` with the case as planning sees it.
    pub(crate) fn operation<T>(&self, f: impl FnOnce(&Operation<'_>) -> T) -> T {
        let inputs: Vec<Operand<'_>> = self.inputs.iter().map(Tensor::operand).collect();
        f(&Operation { op: self.op, inputs: &inputs, output: self.output.operand() })
    }

    /// What the operator's reference computes.
    pub(crate) fn reference(&self) -> Vec<u8> {
        let mut out = vec![0x55; self.output.bytes()];
        let args: Vec<Arg<'_>> = self.inputs.iter().map(Tensor::arg).collect();
        let mut y = ArgMut { ty: self.output.ty, quant: self.output.quant(), data: &mut out };
        self.op.reference(&args, &mut y).unwrap();
        out
    }

    /// What the reference computes of the inputs' magnitudes: for sums of products the sum of the products'.
    pub(crate) fn magnitudes(&self) -> Vec<f32> {
        let mut case = self.clone();
        match &mut case.op {
            Op::Conv2d(op) => op.activation = Activation::None,
            Op::FullyConnected(op) => op.activation = Activation::None,
            _ => {}
        }
        for input in case.inputs.iter_mut().filter(|i| i.ty.dtype == DType::F32) {
            input.data = floats(&input.data).iter().flat_map(|x| x.abs().to_le_bytes()).collect();
        }
        floats(&case.reference())
    }

    pub(crate) fn prepare(&self, kernel: &Kernel) -> Prepared {
        self.operation(|operation| {
            assert!((kernel.applies)(operation), "{} does not apply to {self:?}", kernel.name);
            let mut prepared = Prepared::default();
            (kernel.prepare)(operation, &mut prepared).unwrap();
            prepared
        })
    }

    pub(crate) fn lag(&self, kernel: &Kernel, input: usize, direction: Direction) -> Option<u64> {
        self.operation(|operation| (kernel.lag)(operation, input, direction))
    }

    /// The bytes of every input window.
    pub(crate) fn sources(&self, prepared: &Prepared) -> Vec<Vec<u8>> {
        let bytes = prepared.windows.iter().map(|w| match w {
            Source::Input(i) => self.inputs[*i].data.clone(),
            Source::Constant(bytes) => bytes.clone(),
        });
        bytes.collect()
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Source {
    Input(usize),
    Constant(Vec<u8>),
}

/// What a kernel's preparation emitted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared {
    pub(crate) windows: Vec<Source>,
    pub(crate) scratch: Vec<usize>,
    pub(crate) parameters: Words,
    pub(crate) rows: u32,
}

/// Parameters, aligned as plans align them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words(pub(crate) Vec<u32>);

impl Words {
    pub(crate) fn new(bytes: &[u8]) -> Words {
        assert_eq!(bytes.len() % 4, 0);
        Words(bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        kiln_core::zerocopy::IntoBytes::as_bytes(&self.0[..])
    }
}

impl Emit for Prepared {
    fn input(&mut self, index: usize) {
        self.windows.push(Source::Input(index));
    }

    fn constant(&mut self, _: &'static str, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) {
        // Whatever `fill` leaves out shows up as a difference.
        let mut data = vec![0xa5; bytes];
        fill(&mut data);
        self.windows.push(Source::Constant(data));
    }

    fn scratch(&mut self, bytes: u64) {
        self.scratch.push(bytes as usize);
    }

    fn parameters(&mut self, bytes: &[u8]) {
        self.parameters = Words::new(bytes);
    }

    fn rows(&mut self, rows: u32) {
        self.rows = rows;
    }
}

/// Bytes of guard before and after each window.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xc3;

/// A window in memory of its own, between guards.
pub(crate) struct Guarded {
    memory: Vec<u64>,
    start: usize,
    len: usize,
}

impl Guarded {
    /// `bytes` at an address that is `offset` modulo 8.
    pub(crate) fn new(bytes: &[u8], offset: usize) -> Guarded {
        let start = GUARD + offset % 8;
        let mut memory = vec![u64::from_ne_bytes([GUARD_BYTE; 8]); (start + bytes.len() + GUARD).div_ceil(8)];
        kiln_core::zerocopy::IntoBytes::as_mut_bytes(&mut memory[..])[start..start + bytes.len()]
            .copy_from_slice(bytes);
        Guarded { memory, start, len: bytes.len() }
    }

    pub(crate) fn window(&mut self) -> Window {
        if self.len == 0 {
            return Window::EMPTY;
        }
        let base: *mut u8 = self.memory.as_mut_ptr().cast();
        Window { ptr: base.wrapping_add(self.start), len: self.len }
    }

    /// The window's bytes, once the guards are seen to be whole.
    pub(crate) fn bytes(&self) -> &[u8] {
        let all = kiln_core::zerocopy::IntoBytes::as_bytes(&self.memory[..]);
        let (before, rest) = all.split_at(self.start);
        let (bytes, after) = rest.split_at(self.len);
        assert!(before.iter().chain(after).all(|&b| b == GUARD_BYTE), "wrote outside the window");
        bytes
    }
}

/// A row with all but its memory.
pub(crate) struct Job<'a> {
    pub(crate) row: &'a Row,
    pub(crate) sources: Vec<Vec<u8>>,
    /// Which of them are constants made at plan time: these, and scratch, begin at multiples of 4.
    pub(crate) packed: Vec<bool>,
    pub(crate) output_bytes: usize,
    pub(crate) scratch: &'a [usize],
    pub(crate) parameters: &'a [u8],
    pub(crate) rows: u32,
    pub(crate) direction: Direction,
}

/// Scratch between guards, holding nothing that means anything.
pub(crate) fn scratch(sizes: &[usize]) -> Vec<Guarded> {
    sizes.iter().map(|&bytes| Guarded::new(&vec![0xff; bytes], 4)).collect()
}

impl<'a> Job<'a> {
    pub(crate) fn new(
        kernel: &Kernel,
        row: &'a Row,
        case: &Case,
        prepared: &'a Prepared,
        direction: Direction,
    ) -> Job<'a> {
        assert_eq!(kernel.number, row.number());
        Job {
            row,
            scratch: &prepared.scratch,
            sources: case.sources(prepared),
            packed: prepared.windows.iter().map(|source| matches!(source, Source::Constant(_))).collect(),
            output_bytes: case.output.bytes(),
            parameters: prepared.parameters.bytes(),
            rows: prepared.rows,
            direction,
        }
    }

    /// Checks the whole, then runs range by range.
    fn call(&self, windows: &[Window], output: Window, ranges: &[(u32, u32)]) {
        let outputs = [output];
        let mut own = scratch(self.scratch);
        let windows_of_scratch: Vec<Window> = own.iter_mut().map(Guarded::window).collect();
        let rows = RowRange { begin: 0, end: self.rows };
        let mut call = Call::new(windows, &outputs, &windows_of_scratch, self.parameters, rows);
        call.direction = self.direction;
        assert!(self.row.check(&call), "row {} refuses its own parameters", self.row.number());
        for &(begin, end) in ranges {
            call.rows = RowRange { begin, end };
            // SAFETY: checked just above for all rows. Raw windows may overlap; if they do more
            // than the lag allows, numbers are wrong and nothing else.
            unsafe { self.row.run(&call) };
        }
        for guarded in &own {
            guarded.bytes();
        }
    }

    /// Runs over windows that do not overlap, each at its own misalignment, and gives the output's
    /// bytes. Guards and inputs must come out unchanged.
    pub(crate) fn run(&self, ranges: &[(u32, u32)], random: &mut Random) -> Vec<u8> {
        let align = self.row.align() as usize;
        let mut offset = || random.size(0, 7 / align as u32) as usize * align;
        let sources = self.sources.iter().zip(&self.packed);
        let mut inputs: Vec<Guarded> =
            sources.map(|(s, &packed)| Guarded::new(s, if packed { offset() & 4 } else { offset() })).collect();
        let mut output = Guarded::new(&vec![0x7e; self.output_bytes], offset());
        let windows: Vec<Window> = inputs.iter_mut().map(Guarded::window).collect();
        self.call(&windows, output.window(), ranges);
        for (input, source) in inputs.iter().zip(&self.sources) {
            assert!(input.bytes() == source, "wrote to an input");
        }
        output.bytes().to_vec()
    }

    /// Runs with the output trailing input window `input` by `trail` bytes, in one piece of memory.
    pub(crate) fn run_overlapped(&self, input: usize, trail: usize) -> Vec<u8> {
        let source = &self.sources[input];
        let mut len = self.output_bytes.max(trail + source.len());
        if self.direction == Direction::Down {
            // A trail between elements of two sizes need not keep the output aligned: begin later.
            let start = len - self.output_bytes;
            len += start.next_multiple_of(self.row.align() as usize) - start;
        }
        // Up: the output begins `trail` bytes before the input. Down: it ends as many after it.
        let (input_at, output_at) = match self.direction {
            Direction::Up => (trail, 0),
            Direction::Down => (len - trail - source.len(), len - self.output_bytes),
        };
        let mut shared = vec![0x7e; len];
        shared[input_at..input_at + source.len()].copy_from_slice(source);
        let mut memory = Guarded::new(&shared, 0);
        let mut others: Vec<Guarded> = self.sources.iter().map(|s| Guarded::new(s, 0)).collect();
        let mut windows: Vec<Window> = others.iter_mut().map(Guarded::window).collect();
        let base = memory.window().ptr;
        windows[input] = Window { ptr: base.wrapping_add(input_at), len: source.len() };
        let output = Window { ptr: base.wrapping_add(output_at), len: self.output_bytes };
        self.call(&windows, output, &[(0, self.rows)]);
        for (number, (other, source)) in others.iter().zip(&self.sources).enumerate() {
            assert!(number == input || other.bytes() == source, "wrote to an input");
        }
        memory.bytes()[output_at..output_at + self.output_bytes].to_vec()
    }
}
