//! The int8 test vectors of Arm's CMSIS-NN, whose expected outputs come from TensorFlow Lite: operators'
//! references and kernels against a runtime that shares nothing with this one.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

use kiln_core::zerocopy::{FromBytes, IntoBytes};
use kiln_core::{DType, Shape, TensorType, fixed};
use kiln_kernels::parameters::{AddS8Parameters, Epilogue, SoftmaxS8Parameters};
use kiln_kernels::table::{Kernel, kernel};
use kiln_ops::{Activation, Add, Conv2d, FullyConnected, Op, Pool2d, PoolKind, Softmax};
use serde_json::Value;

use crate::support::{Case, Job, Prepared, Random, Source, Tensor, Words};

/// One case of the archive: numbers by name, arrays by the end of their name.
struct Vector {
    name: String,
    numbers: HashMap<String, i64>,
    arrays: Vec<(String, String, Vec<u8>)>,
}

impl Vector {
    fn try_number(&self, name: &str) -> Option<i64> {
        self.numbers.get(name).copied()
    }

    fn number(&self, name: &str) -> i64 {
        self.try_number(name).unwrap_or_else(|| panic!("{}: no {name} in {:?}", self.name, self.numbers))
    }

    fn size(&self, name: &str) -> u32 {
        self.number(name) as u32
    }

    /// The array whose name ends in one of `ends`, as its dtype and bytes.
    fn try_array(&self, ends: &[&str]) -> Option<(&str, &[u8])> {
        let found = self.arrays.iter().find(|(name, _, _)| ends.iter().any(|end| name.ends_with(end)));
        found.map(|(_, dtype, data)| (&dtype[..], &data[..]))
    }

    fn array(&self, ends: &[&str]) -> &[u8] {
        self.try_array(ends).unwrap_or_else(|| panic!("{}: no array {ends:?}", self.name)).1
    }

    fn words(&self, ends: &[&str]) -> Vec<i32> {
        self.array(ends).chunks(4).map(|c| i32::from_le_bytes(c.try_into().unwrap())).collect()
    }

    fn bounds(&self) -> (i32, i32) {
        let either = |a: &str, b: &str| self.try_number(a).or(self.try_number(b)).map(|n| n as i32);
        (
            either("OUT_ACTIVATION_MIN", "ACTIVATION_MIN").unwrap_or(-128),
            either("OUT_ACTIVATION_MAX", "ACTIVATION_MAX").unwrap_or(127),
        )
    }
}

/// The archive, or `None` with a line that says where it was looked for.
fn vectors() -> Option<HashMap<String, Vector>> {
    let data = std::env::var_os("KILN_DATA").map(PathBuf::from);
    let data = data.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"));
    let path = data.join("conformance/cmsis-nn-vectors/vectors.tar.gz");
    let Ok(file) = std::fs::File::open(&path) else {
        println!("skipped: no {} (set KILN_DATA to the directory of the data)", path.display());
        return None;
    };
    let mut files: HashMap<String, Vec<u8>> = HashMap::new();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(name, bytes);
    }
    let mut all = HashMap::new();
    for (file, text) in &files {
        let Some(name) = file.strip_suffix(".json") else { continue };
        let json: Value = serde_json::from_slice(text).unwrap();
        let data = &files[&format!("{name}.bin")];
        let prefix = format!("{}_", name.to_uppercase());
        let defines = json["defines"].as_object().unwrap();
        let numbers = defines
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(&prefix).unwrap_or(key).to_owned(), value.as_i64()?)));
        let arrays = json["arrays"].as_array().unwrap().iter().map(|array| {
            let dtype = array["dtype"].as_str().unwrap().to_owned();
            let each = match &dtype[..] {
                "int8" | "int4" => 1,
                "int16" => 2,
                "int64" => 8,
                _ => 4,
            };
            let start = array["offset"].as_u64().unwrap() as usize;
            let end = start + array["len"].as_u64().unwrap() as usize * each;
            let bytes = data.get(start..end).unwrap_or(&[]).to_vec();
            (array["name"].as_str().unwrap().to_owned(), dtype, bytes)
        });
        let vector = Vector { name: name.to_owned(), numbers: numbers.collect(), arrays: arrays.collect() };
        all.insert(name.to_owned(), vector);
    }
    Some(all)
}

/// Two float32 numbers from which `real` computes what `quantize_multiplier` turns into `multiplier` and
/// `shift`: vectors state multipliers, operators take scales. `partner` gives the second number for a
/// first one and the factor wanted.
fn scales_for(
    (multiplier, shift): (i32, i32),
    partner: impl Fn(f64, f64) -> f64,
    real: impl Fn(f32, f32) -> f64,
) -> (f32, f32) {
    let wanted = multiplier as f64 / (1u64 << 31) as f64 * 2f64.powi(shift);
    let mut random = Random::new(multiplier as u64);
    let mut tries = (0..1_000_000).map(|_| {
        let a = (0.5 + random.float() / 2.0) as f32;
        (a, partner(a as f64, wanted) as f32)
    });
    tries.find(|&(a, b)| fixed::quantize_multiplier(real(a, b)) == (multiplier, shift)).expect("scales")
}

fn tensor(dtype: DType, dims: &[u32], scale: f32, zero_point: i32, data: &[u8]) -> Tensor {
    let ty = TensorType::new(dtype, Shape::new(dims).unwrap());
    assert_eq!(ty.bytes(), Some(data.len() as u64));
    Tensor { ty, scales: vec![scale], zero_points: vec![zero_point], data: data.to_vec(), constant: true }
}

/// The case's output: `dims` with the vector's zero point.
fn output(dims: &[u32], scale: f32, zero_point: i32) -> Tensor {
    let data = vec![0; dims.iter().product::<u32>() as usize];
    Tensor { data: vec![], ..tensor(DType::I8, dims, scale, zero_point, &data) }
}

fn clamped(bytes: Vec<u8>, (low, high): (i32, i32)) -> Vec<u8> {
    bytes.into_iter().map(|b| (b as i8 as i32).max(low).min(high) as u8).collect()
}

/// Runs a prepared case both ways it can walk.
fn run(kernel: &Kernel, case: &Case, prepared: &Prepared, want: &[u8], name: &str) {
    for &direction in kernel.directions {
        let got = Job::new(kernel, &kernel.portable, case, prepared, direction)
            .run(&[(0, prepared.rows)], &mut Random::new(1));
        assert!(got == want, "{name}: {} {direction:?} differs\ngot  {got:?}\nwant {want:?}", kernel.name);
    }
}

/// Puts the vector's own multipliers, shifts and bounds where preparation put those of some scales.
fn overwrite(prepared: &mut Prepared, multipliers: &[i32], shifts: &[i32], epilogue_at: usize, bounds: (i32, i32)) {
    let n = multipliers.len();
    let Some(Source::Constant(block)) = prepared.windows.last_mut() else { panic!("no block") };
    assert_eq!(block.len(), 9 * n);
    for (o, (m, s)) in multipliers.iter().zip(shifts).enumerate() {
        block[4 * n + 4 * o..4 * n + 4 * o + 4].copy_from_slice(&m.to_le_bytes());
        block[8 * n + o] = *s as i8 as u8;
    }
    let mut bytes = prepared.parameters.bytes().to_vec();
    let place = &mut bytes[epilogue_at..epilogue_at + size_of::<Epilogue>()];
    let mut epilogue = Epilogue::read_from_bytes(place).unwrap();
    (epilogue.low, epilogue.high) = bounds;
    place.copy_from_slice(epilogue.as_bytes());
    prepared.parameters = Words::new(&bytes);
}

/// One output channel of a convolution as a case of its own: only then can scales stand for the
/// vector's multiplier.
fn one_channel(case: &Case, o: usize, taken: u32, multiplier: i32, shift: i32) -> Case {
    let Op::Conv2d(op) = case.op else { unreachable!() };
    let mut one = case.clone();
    one.op = Conv2d { groups: 1, ..op }.into();
    let x = &case.inputs[0];
    let xd = x.ty.shape.dims();
    let wd = case.inputs[1].ty.shape.dims();
    let (a, b) = scales_for((multiplier, shift), |a, wanted| wanted / a, |a, b| a as f64 * b as f64);
    let first = taken as usize;
    let per_group = wd[3] as usize;
    let pixels = x.data.chunks(xd[3] as usize);
    let data: Vec<u8> = pixels.flat_map(|p| p[first..first + per_group].to_vec()).collect();
    one.inputs[0] = tensor(DType::I8, &[xd[0], xd[1], xd[2], wd[3]], a, x.zero_points[0], &data);
    let each = case.inputs[1].data.len() / wd[0] as usize;
    let w = &case.inputs[1].data[o * each..(o + 1) * each];
    one.inputs[1] = tensor(DType::I8, &[1, wd[1], wd[2], wd[3]], b, 0, w);
    if let Some(bias) = case.inputs.get(2) {
        one.inputs[2] = tensor(DType::I32, &[1], 1.0, 0, &bias.data[4 * o..4 * o + 4]);
    }
    let yd = case.output.ty.shape.dims();
    one.output = output(&[yd[0], yd[1], yd[2], 1], 1.0, case.output.zero_points[0]);
    one
}

/// Convolutions, grouped ones and depthwise ones.
fn convolution(v: &Vector, depthwise: bool) {
    let (batches, in_h, in_w) = (v.size("INPUT_BATCHES"), v.size("INPUT_H"), v.size("INPUT_W"));
    let (in_c, out_c) = (v.size("IN_CH"), v.size("OUT_CH"));
    let (kh, kw) = (v.size("FILTER_Y"), v.size("FILTER_X"));
    let (out_h, out_w) = (v.size("OUTPUT_H"), v.size("OUTPUT_W"));
    let x = v.array(&["_input", "_input_tensor"]);
    let packed = v.array(&["_weights", "_kernel"]);
    // Depthwise weights come as [KH, KW, O]; operators have them as [O, KH, KW, 1].
    let (per_group, weights) = if depthwise {
        let taps = (kh * kw) as usize;
        let n = out_c as usize;
        (1, (0..n).flat_map(|o| (0..taps).map(move |t| packed[t * n + o])).collect())
    } else {
        (packed.len() as u32 / (out_c * kh * kw), packed.to_vec())
    };
    let groups = in_c / per_group;
    let input = tensor(DType::I8, &[batches, in_h, in_w, in_c], 1.0, -v.number("INPUT_OFFSET") as i32, x);
    let mut inputs = vec![input, tensor(DType::I8, &[out_c, kh, kw, per_group], 1.0, 0, &weights)];
    if let Some((_, bias)) = v.try_array(&["_biases", "_bias"]).filter(|(_, b)| b.len() == 4 * out_c as usize) {
        inputs.push(tensor(DType::I32, &[out_c], 1.0, 0, bias));
    }
    let pads = [v.size("PAD_Y"), v.size("PAD_X")];
    let strides = [v.size("STRIDE_Y"), v.size("STRIDE_X")];
    let dilations = [v.try_number("DILATION_Y").unwrap_or(1) as u32, v.try_number("DILATION_X").unwrap_or(1) as u32];
    // Bottom and right padding as the stated output size needs it.
    let after = |i: usize, input: u32, output: u32, kernel: u32| {
        let needed = (output - 1) * strides[i] + (kernel - 1) * dilations[i] + 1;
        needed.saturating_sub(input + pads[i])
    };
    let pads = [pads[0], pads[1], after(0, in_h, out_h, kh), after(1, in_w, out_w, kw)];
    let op = Conv2d { strides, dilations, pads, groups, activation: Activation::None };
    let output = output(&[batches, out_h, out_w, out_c], 1.0, v.number("OUTPUT_OFFSET") as i32);
    let case = Case { op: op.into(), inputs, output };
    let want = v.array(&["_output_ref", "_output"]);
    let multipliers = v.words(&["_output_mult", "_mult"]);
    let shifts = v.words(&["_output_shift", "_shift"]);

    for number in if per_group == 1 { vec![1, 2] } else { vec![1] } {
        let kernel = kernel(number).unwrap();
        let mut prepared = case.prepare(kernel);
        overwrite(&mut prepared, &multipliers, &shifts, 96, v.bounds());
        run(kernel, &case, &prepared, want, &v.name);
    }
    for o in 0..out_c as usize {
        let group = o as u32 / (out_c / groups);
        let one = one_channel(&case, o, group * per_group, multipliers[o], shifts[o]);
        let got = clamped(one.reference(), v.bounds());
        let want: Vec<u8> = want.chunks(out_c as usize).map(|p| p[o]).collect();
        assert!(got == want, "{}: the reference differs in channel {o}", v.name);
    }
}

fn fully_connected(v: &Vector) {
    let (batches, outputs) = (v.size("INPUT_BATCHES"), v.size("OUT_CH"));
    let columns = v.size("ACCUMULATION_DEPTH");
    let x_zero = -v.number("INPUT_OFFSET") as i32;
    let w_zero = -v.try_number("FILTER_OFFSET").unwrap_or(0) as i32;
    let x = tensor(DType::I8, &[batches, columns], 1.0, x_zero, v.array(&["_input"]));
    let w = tensor(DType::I8, &[outputs, columns], 1.0, w_zero, v.array(&["_weights"]));
    let mut inputs = vec![x, w];
    if let Some((_, bias)) = v.try_array(&["_biases", "_bias"]).filter(|(_, b)| !b.is_empty()) {
        inputs.push(tensor(DType::I32, &[outputs], 1.0, 0, bias));
    }
    let op = FullyConnected { keep_dims: false, activation: Activation::None };
    let y = output(&[batches, outputs], 1.0, v.number("OUTPUT_OFFSET") as i32);
    let case = Case { op: op.into(), inputs, output: y };
    let want = v.array(&["_output_ref", "_output"]);
    let (multipliers, shifts) = match v.try_number("OUTPUT_MULTIPLIER") {
        Some(m) => (vec![m as i32; outputs as usize], vec![v.number("OUTPUT_SHIFT") as i32; outputs as usize]),
        None => (v.words(&["_output_multiplier", "_output_mult"]), v.words(&["_output_shift"])),
    };
    let kernel = kernel(3).unwrap();
    let mut prepared = case.prepare(kernel);
    overwrite(&mut prepared, &multipliers, &shifts, 20, v.bounds());
    run(kernel, &case, &prepared, want, &v.name);
    for o in 0..outputs as usize {
        // One output at a time, for the same reason as with convolutions. One scale: the product
        // is rounded to single precision before the division by the output's scale.
        let factor = (multipliers[o], shifts[o]);
        let (a, b) = scales_for(factor, |a, wanted| wanted * a, |a, b| b as f64 / a as f64);
        let mut one = case.clone();
        let row = o * columns as usize..(o + 1) * columns as usize;
        one.inputs[0].scales = vec![b];
        one.inputs[1] = tensor(DType::I8, &[1, columns], 1.0, w_zero, &case.inputs[1].data[row]);
        if let Some(bias) = case.inputs.get(2) {
            one.inputs[2] = tensor(DType::I32, &[1], 1.0, 0, &bias.data[4 * o..4 * o + 4]);
        }
        one.output = output(&[batches, 1], a, v.number("OUTPUT_OFFSET") as i32);
        let got = clamped(one.reference(), v.bounds());
        let want: Vec<u8> = want.chunks(outputs as usize).map(|p| p[o]).collect();
        assert!(got == want, "{}: the reference differs in output {o}", v.name);
    }
}

fn pool(v: &Vector, kind: PoolKind) {
    let (n, h, w, c) = (v.size("BATCH_SIZE"), v.size("INPUT_H"), v.size("INPUT_W"), v.size("INPUT_C"));
    let kernel_size = [v.size("FILTER_H"), v.size("FILTER_W")];
    let strides = [v.size("STRIDE_H"), v.size("STRIDE_W")];
    let (out_h, out_w) = (v.size("OUTPUT_H"), v.size("OUTPUT_W"));
    let before = [v.size("PADDING_H"), v.size("PADDING_W")];
    let after = |i: usize, input: u32, output: u32| {
        ((output - 1) * strides[i] + kernel_size[i]).saturating_sub(input + before[i])
    };
    let pads = [before[0], before[1], after(0, h, out_h), after(1, w, out_w)];
    let op = Pool2d { kind, kernel: kernel_size, strides, pads, activation: Activation::None };
    let x = tensor(DType::I8, &[n, h, w, c], 1.0, 0, v.array(&["_input_tensor", "_input"]));
    let case = Case { op: op.into(), inputs: vec![x], output: output(&[n, out_h, out_w, c], 1.0, 0) };
    let want = v.array(&["_output_ref", "_output"]);
    assert!(clamped(case.reference(), v.bounds()) == want, "{}: the reference differs", v.name);
    let kernel = kernel(if kind == PoolKind::Average { 4 } else { 5 }).unwrap();
    let mut prepared = case.prepare(kernel);
    let mut bytes = prepared.parameters.bytes().to_vec();
    let at = bytes.len() - 8;
    bytes[at..at + 4].copy_from_slice(&v.bounds().0.to_le_bytes());
    bytes[at + 4..].copy_from_slice(&v.bounds().1.to_le_bytes());
    prepared.parameters = Words::new(&bytes);
    run(kernel, &case, &prepared, want, &v.name);
}

fn add(v: &Vector) {
    let n = v.size("DST_SIZE");
    let word = |name: &str| v.number(name) as i32;
    assert_eq!(word("LEFT_SHIFT"), 20);
    // Both inputs at half the common scale: the multipliers of two equal scales.
    let factors = [word("INPUT1_MULT"), word("INPUT1_SHIFT"), word("INPUT2_MULT"), word("INPUT2_SHIFT")];
    assert_eq!(factors, [1 << 30, 0, 1 << 30, 0]);
    let y_scale = (2.0 / (1u64 << 20) as f64)
        / (word("OUTPUT_MULT") as f64 / (1u64 << 31) as f64 * 2f64.powi(word("OUTPUT_SHIFT")));
    let a = tensor(DType::I8, &[n], 1.0, -word("INPUT1_OFFSET"), v.array(&["_input1"]));
    let b = tensor(DType::I8, &[n], 1.0, -word("INPUT2_OFFSET"), v.array(&["_input2"]));
    let y = output(&[n], y_scale as f32, word("OUTPUT_OFFSET"));
    let case = Case { op: Add { activation: Activation::None }.into(), inputs: vec![a, b], output: y };
    let want = v.array(&["_output_ref", "_output"]);
    assert!(clamped(case.reference(), v.bounds()) == want, "{}: the reference differs", v.name);
    let kernel = kernel(6).unwrap();
    let prepared = case.prepare(kernel);
    let p = AddS8Parameters::read_from_bytes(prepared.parameters.bytes()).unwrap();
    assert_eq!((p.y.multiplier, p.y.shift), (word("OUTPUT_MULT"), word("OUTPUT_SHIFT")));
    run(kernel, &case, &prepared, want, &v.name);
}

fn softmax(v: &Vector) {
    let dims = [v.size("NUM_ROWS"), v.size("ROW_SIZE")];
    let (multiplier, shift) = (v.number("INPUT_MULT") as i32, v.number("INPUT_LEFT_SHIFT") as i32);
    // Scaled by beta and 2^26.
    let q26 = (1 << 26) as f64;
    let factor = (multiplier, shift);
    let (beta, scale) =
        scales_for(factor, |beta, wanted| wanted / q26 / beta, |beta, scale| beta as f64 * scale as f64 * q26);
    let x = tensor(DType::I8, &dims, scale, 0, v.array(&["_input"]));
    let case = Case { op: Softmax { beta }.into(), inputs: vec![x], output: output(&dims, 1.0 / 256.0, -128) };
    let want = v.array(&["_output_ref", "_output"]);
    assert!(case.reference() == want, "{}: the reference differs", v.name);
    let kernel = kernel(7).unwrap();
    let prepared = case.prepare(kernel);
    let p = SoftmaxS8Parameters::read_from_bytes(prepared.parameters.bytes()).unwrap();
    let words = (p.multiplier, p.left_shift as i32, p.diff_min);
    assert_eq!(words, (multiplier, shift, v.number("DIFF_MIN") as i32));
    run(kernel, &case, &prepared, want, &v.name);
}

/// Every int8 case of an operator that has a kernel. Cases of other element types, and of operators
/// not here, go by their names.
#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn an_independent_runtime_agrees() {
    let Some(all) = vectors() else { return };
    let mut names: Vec<&String> = all.keys().collect();
    names.sort();
    let mut ran: HashMap<&str, u32> = HashMap::new();
    for name in names {
        let v = &all[name];
        let other = ["int4", "s4", "int16", "s16", "s64", "f32", "transpose_conv", "lstm", "svdf", "matmul"];
        let int8 = |ends: &[&str]| v.try_array(ends).is_some_and(|(dtype, data)| dtype == "int8" && !data.is_empty());
        if other.iter().any(|o| name.contains(o)) || !int8(&["_input", "_input_tensor", "_input1"]) {
            continue;
        }
        let kind = if v.try_number("CH_MULT").is_some() {
            convolution(v, true);
            "depthwise"
        } else if v.try_number("FILTER_X").is_some() {
            convolution(v, false);
            "convolution"
        } else if v.try_number("ACCUMULATION_DEPTH").is_some() {
            fully_connected(v);
            "fully connected"
        } else if name.starts_with("avgpooling") {
            pool(v, PoolKind::Average);
            "average pool"
        } else if name.starts_with("maxpooling") {
            pool(v, PoolKind::Max);
            "max pool"
        } else if name == "add" {
            add(v);
            "add"
        } else if name == "softmax" {
            softmax(v);
            "softmax"
        } else {
            println!("not run: {name}");
            continue;
        };
        *ran.entry(kind).or_default() += 1;
    }
    println!("ran {} cases: {ran:?}", ran.values().sum::<u32>());
    assert!(ran.values().sum::<u32>() >= 60, "only {ran:?}");
}
