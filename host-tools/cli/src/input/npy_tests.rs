use super::super::tests::{attack, wanted};
use super::*;

fn npy(version: u8, text: &str, data: &[u8]) -> Vec<u8> {
    let mut file = [MAGIC, &[version, 0]].concat();
    match version {
        1 => file.extend((text.len() as u16).to_le_bytes()),
        _ => file.extend((text.len() as u32).to_le_bytes()),
    }
    file.extend(text.bytes());
    file.extend(data);
    file
}

fn header(descr: &str, fortran: bool, shape: &str) -> String {
    let fortran = if fortran { "True" } else { "False" };
    format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}   \n")
}

fn int8(dims: &[u64]) -> Wanted {
    wanted(DType::I8, dims, 0.5, 3)
}

#[test]
fn what_is_written_is_what_numpy_writes() {
    // numpy.save of an int8 array of shape (1, 3).
    let text = "{'descr': '|i1', 'fortran_order': False, 'shape': (1, 3), }";
    let mut expected = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    expected.extend(format!("{text:<117}\n").bytes());
    expected.extend([1, 2, 0xFF]);
    assert_eq!(npy_bytes("|i1", &[1, 3], &[1, 2, 0xFF]), expected);
    assert_eq!(expected.len(), 128 + 3);
    for (dims, shape) in [(&[][..], "'shape': (), }"), (&[7], "'shape': (7,), }"), (&[4_294_967_295; 8], "295), }")] {
        let file = npy_bytes("<f4", dims, &[]);
        assert!(file.len().is_multiple_of(64) && file.ends_with(b"\n"));
        assert!(String::from_utf8_lossy(&file).contains(shape));
        assert_eq!(split(&file).unwrap().0.shape, dims);
    }
}

#[test]
fn every_type_in_both_byte_orders_and_every_version() {
    for dtype in DType::ALL {
        let Some(descr) = npy_descr(dtype) else { continue };
        let width = dtype.bits() as usize / 8;
        let data: Vec<u8> = (1..=2 * width as u8).collect();
        let swapped: Vec<u8> = data.chunks(width).flat_map(|item| item.iter().rev().copied()).collect();
        let w = wanted(dtype, &[1, 2], 0.0, 0);
        assert_eq!(read(&npy_bytes(descr, &[1, 2], &data), &w).unwrap().0, data, "round trip of {descr}");
        for version in [1, 2, 3] {
            let little = npy(version, &header(&descr.replace('|', "<"), false, "(2,)"), &data);
            assert_eq!(read(&little, &w).unwrap().0, data, "{descr}");
            let big = npy(version, &header(&format!(">{}", &descr[1..]), false, "(2,)"), &swapped);
            assert_eq!(read(&big, &w).unwrap().0, data, "{descr}");
        }
    }
}

#[test]
fn fortran_order_is_transposed() {
    // a[i][j][k] = 100 i + 10 j + k, written with the first index fastest.
    let (mut fortran, mut c) = (Vec::new(), Vec::new());
    let at = |i: u8, j: u8, k: u8| 100 * i + 10 * j + k;
    (0..4).for_each(|k| (0..3).for_each(|j| (0..2).for_each(|i| fortran.push(at(i, j, k)))));
    (0..2).for_each(|i| (0..3).for_each(|j| (0..4).for_each(|k| c.push(at(i, j, k)))));
    let file = npy(1, &header("|i1", true, "(2, 3, 4)"), &fortran);
    assert_eq!(read(&file, &int8(&[1, 2, 3, 4])).unwrap().0, c);
    assert_ne!(fortran, c);
    let wide: Vec<u8> = fortran.iter().flat_map(|&v| u16::from(v).to_be_bytes()).collect();
    let expected: Vec<u8> = c.iter().flat_map(|&v| u16::from(v).to_le_bytes()).collect();
    let file = npy(2, &header(">u2", true, "(1, 2, 3, 4)"), &wide);
    assert_eq!(read(&file, &wanted(DType::U16, &[2, 3, 4], 0.0, 0)).unwrap().0, expected);
}

#[test]
fn floats_are_quantized_and_said_to_be() {
    let f32s: Vec<u8> = [0.25f32, -0.25, 1000.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let (data, notes) = read(&npy_bytes("<f4", &[3], &f32s), &int8(&[1, 3])).unwrap();
    assert_eq!(data, [4, 2, 127]);
    assert_eq!(notes[0], "float32 quantized to int8 with scale 0.5 and zero point 3");
    assert!(notes[1].starts_with("1 of 3 elements"), "{notes:?}");
    let f64s: Vec<u8> = [0.25f64, -0.25, 1.0].iter().flat_map(|v| v.to_be_bytes()).collect();
    let file = npy(1, &header(">f8", false, "(3,)"), &f64s);
    assert_eq!(read(&file, &int8(&[3])).unwrap().0, [4, 2, 5]);
}

#[test]
fn what_does_not_fit_is_refused_with_what_to_do() {
    let refused = |file: &[u8], w: &Wanted, words: &[&str]| {
        let problem = read(file, w).unwrap_err();
        words.iter().for_each(|word| assert!(problem.contains(word), "no '{word}' in: {problem}"));
    };
    let w = int8(&[1, 2, 3]);
    refused(&npy_bytes("|i1", &[3, 2], &[0; 6]), &w, &["int8 [1, 2, 3]", "shape is [3, 2]", "reshape"]);
    refused(&npy_bytes("|i1", &[6], &[0; 6]), &w, &["shape is [6]"]);
    refused(&npy_bytes("|i1", &[2, 3, 1], &[0; 6]), &w, &["shape is [2, 3, 1]"]);
    refused(&npy_bytes("|u1", &[2, 3], &[0; 6]), &w, &["dtype is uint8", ".astype('int8')", "float32"]);
    refused(&npy_bytes("<f8", &[1], &[0; 8]), &wanted(DType::F32, &[1], 0.0, 0), &["float64", ".astype('float32')"]);
    refused(&npy_bytes("<f4", &[1], &[0; 4]), &wanted(DType::I8, &[1], 0.0, 0), &[".astype('int8')"]);
    refused(&npy_bytes("<c8", &[2, 3], &[0; 48]), &w, &["dtype is '<c8'", ".astype"]);
    refused(&npy_bytes("|i2", &[2, 3], &[0; 12]), &w, &["dtype is '|i2'"]);
    refused(&npy_bytes("|i1", &[2, 3], &[0; 5]), &w, &["5 bytes of data", "numpy.save"]);
    refused(&npy_bytes("|i1", &[2, 3], &[0; 7]), &w, &["7 bytes of data"]);
    refused(b"PK\x03\x04", &w, &["not a .npy file", "numpy.save"]);
    refused(b"\x93NUMPY\x04\x00\x10\x00", &w, &["version 4.0"]);
    refused(
        &npy(1, "{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (6,), }", &[0; 24]),
        &w,
        &["structured"],
    );
    for text in [
        "{'descr': '|i1', 'fortran_order': False}",
        "{'descr': '|i1', 'descr': '|i1', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '|i1', 'fortran_order': 0, 'shape': (2, 3)}",
        "{'descr': '|i1', 'fortran_order': False, 'shape': (2, -3)}",
        "{'descr': '|i1', 'fortran_order': False, 'shape': (2, 99999999999999999999999)}",
        "{'descr': '|i1', 'fortran_order': False, 'shape': ((2, 3)}",
        "",
        "{",
        "{}",
        "{'",
        "é",
    ] {
        refused(&npy(1, text, &[0; 6]), &w, &["header is damaged"]);
    }
}

#[test]
fn hostile_files() {
    let floats: Vec<u8> = (0..6u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    let w = int8(&[1, 2, 3]);
    attack(&npy_bytes("|i1", &[1, 2, 3], &[7; 6]), &w, |file| read(file, &w));
    attack(&npy(2, &header("<f4", true, "(2, 3)"), &floats), &w, |file| read(file, &w));
    // Claims far beyond the file: nothing is allocated for them.
    let problem = read(&[MAGIC, &[2, 0], &[0xFF; 4], b"{}"].concat(), &w).unwrap_err();
    assert!(problem.contains("truncated"), "{problem}");
    let most = u64::MAX;
    let huge = wanted(DType::F64, &[1], 0.0, 0);
    for dims in [&[most, 2][..], &[most], &[1 << 32, 1 << 32], &[0, most, most], &[most; 8]] {
        let w = Wanted { dims: dims.to_vec(), ..huge.clone() };
        for fortran in [false, true] {
            let shape: String = dims.iter().map(|dim| format!("{dim},")).collect();
            let result = read(&npy(1, &header("<f8", fortran, &format!("({shape})")), &[0; 8]), &w);
            assert!(result.is_err_and(|problem| problem.contains("8 bytes of data")));
        }
    }
    let nested = format!("{{'descr': '|i1', 'fortran_order': False, 'shape': {}}}", "(".repeat(60_000));
    assert!(read(&npy(1, &nested, &[]), &w).is_err());
}
