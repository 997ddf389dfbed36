use super::super::npy_bytes;
use super::super::tests::wanted;
use super::*;

fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn arrays_with_one_more_dimension_hold_many() {
    let one = wanted(DType::I8, &[1, 2, 3], 0.5, 3);
    let data: Vec<u8> = (0..24).collect();
    let cases: [(&[u64], u64); 5] =
        [(&[4, 1, 2, 3], 4), (&[4, 2, 3], 4), (&[2, 3], 1), (&[1, 1, 2, 3], 1), (&[1, 2, 3], 1)];
    for (shape, samples) in cases {
        let bytes = &data[..(6 * samples) as usize];
        let (_folder, path) = file("x.npy", &npy_bytes("|i1", shape, bytes));
        assert_eq!(count(&path, &one).unwrap(), samples, "{shape:?}");
        assert_eq!(Stack::read(&path, &one, None).unwrap().elements, bytes);
    }
    // Real numbers are quantized as those of one sample are.
    let reals: Vec<u8> = (0..12).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let (_folder, path) = file("x.npy", &npy_bytes("<f4", &[2, 2, 3], &reals));
    let stack = Stack::read(&path, &one, None).unwrap();
    assert_eq!(stack.elements, (0..12).map(|i| 2 * i + 3).collect::<Vec<u8>>());
    // Shapes that are neither are refused as for one.
    for shape in [&[2, 3, 2][..], &[12], &[0, 5]] {
        let (_folder, path) = file("x.npy", &npy_bytes("|i1", shape, &data[..shape.iter().product::<u64>() as usize]));
        assert_eq!(count(&path, &one).unwrap(), 1);
        assert!(Stack::read(&path, &one, None).unwrap_err().to_string().contains("reshape it"));
    }
    // No samples at all are a file that does not count.
    let (_folder, path) = file("x.npy", &npy_bytes("|i1", &[0, 2, 3], &[]));
    assert_eq!(count(&path, &one).unwrap(), 0);
}

#[test]
fn cifar_records_become_rows_of_pixels() {
    let image = wanted(DType::F32, &[1, 32, 32, 3], 0.0, 0);
    let mut records = Vec::new();
    for class in [7u8, 2] {
        records.push(class);
        records.extend((0..3072usize).map(|i| (i / 1024 * 80 + i % 1024 % 64 + usize::from(class)) as u8));
    }
    let (_folder, path) = file("test.bin", &records);
    assert_eq!(count(&path, &image).unwrap(), 2);
    let error = Stack::read(&path, &image, None).unwrap_err().to_string();
    assert!(error.contains("give --image-range 0..255, 0..1 or -1..1"), "{error}");
    let stack = Stack::read(&path, &image, Some(ImageRange::Bytes)).unwrap();
    assert_eq!(stack.classes, [7, 2]);
    let real = |sample: usize, row: usize, column: usize, channel: usize| {
        let at = 4 * (sample * 3072 + (row * 32 + column) * 3 + channel);
        f32::from_le_bytes(stack.elements[at..at + 4].try_into().unwrap())
    };
    assert_eq!(stack.elements.len(), 2 * 4 * 3072);
    assert_eq!([0, 1, 2].map(|channel| real(0, 0, 0, channel)), [7.0, 87.0, 167.0]);
    assert_eq!(real(1, 31, 31, 2), 160.0 + 63.0 + 2.0);
    // For a model that takes something else it is a raw file of the wrong size.
    let other = wanted(DType::F32, &[1, 32, 32, 1], 0.0, 0);
    assert!(Stack::read(&path, &other, None).unwrap_err().to_string().contains("the file has 6146"));
}
