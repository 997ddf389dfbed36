use kiln_core::DType;

use super::*;

fn wanted(dims: &[u64]) -> Wanted {
    let bytes = 4 * dims.iter().product::<u64>();
    let (who, text) = ("input 0 ('x')".to_owned(), format!("float32 {dims:?}"));
    Wanted { who, text, dtype: DType::F32, dims: dims.to_vec(), bytes, scale: 0.0, zero_point: 0 }
}

/// A folder with files of so many bytes.
fn folder(files: &[(&str, usize)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // The first byte of each float is the number of the sample in its file.
        let data: Vec<u8> = (0..*bytes).map(|i| if i % 4 == 0 { (i / 8) as u8 } else { 0 }).collect();
        std::fs::write(path, data).unwrap();
    }
    folder
}

fn put(folder: &tempfile::TempDir, name: &str, text: &str) {
    std::fs::write(folder.path().join(name), text).unwrap();
}

/// File, first byte and class of each sample of a model with one input of two floats.
fn found(folder: &tempfile::TempDir, own: &[&str], outputs: usize) -> Result<Vec<(String, u8, Option<usize>)>, String> {
    let own: Vec<String> = own.iter().map(|s| s.to_string()).collect();
    let samples =
        Samples::find(folder.path(), vec![wanted(&[1, 2])], None, &own, outputs).map_err(|e| e.to_string())?;
    let mut list = Vec::new();
    samples
        .read(&Picker::all(samples.count()), &mut |_, _| {}, &mut |sample| {
            let file = sample.file.strip_prefix(folder.path()).unwrap().to_string_lossy().into_owned();
            list.push((file, sample.inputs[0][0], sample.class));
            Ok(())
        })
        .map_err(|e| e.to_string())?;
    Ok(list)
}

#[test]
fn pickers_spread_and_leave_the_rest() {
    for (all, most) in [(10, 3), (500, 100), (7, 7), (1, 1), (5, 9)] {
        let picker = Picker::spread(all, Some(most));
        let taken: Vec<u64> = (0..all).filter(|&n| picker.takes(n)).collect();
        assert_eq!(taken.len() as u64, picker.count());
        assert_eq!(picker.count(), most.min(all));
        let gaps: Vec<u64> = taken.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| gap.abs_diff(all / most.min(all)) <= 1), "{taken:?}");
        let left = picker.others();
        assert_eq!(left.is_none(), most >= all);
        if let Some(left) = left {
            assert_eq!(left.count(), all - most);
            assert!((0..all).all(|n| left.takes(n) != picker.takes(n)));
        }
    }
}

#[test]
fn files_hold_one_sample_or_many() {
    let folder = folder(&[("b.bin", 8), ("a.raw", 24), ("notes.md", 5), (".hidden.bin", 8)]);
    let file = |name: &str, part, class| (name.to_owned(), part, class);
    let want = [file("a.raw", 0, None), file("a.raw", 1, None), file("a.raw", 2, None), file("b.bin", 0, None)];
    assert_eq!(found(&folder, &[], 3).unwrap(), want);
    let samples = Samples::find(folder.path(), vec![wanted(&[1, 2])], None, &[], 3).unwrap();
    assert_eq!(samples.notes, ["1 file with other extensions passed over"]);
    // One file alone.
    let alone = folder.path().join("a.raw");
    assert_eq!(Samples::find(&alone, vec![wanted(&[1, 2])], None, &[], 3).unwrap().count(), 3);
    put(&folder, "c.bin", "nine char");
    let said = found(&folder, &[], 3).unwrap_err();
    assert!(said.contains("c.bin: input 0 ('x') is float32 [1, 2], 8 bytes, but the file has 9"), "{said}");
}

#[test]
fn folders_are_classes() {
    let classes = |folder: &tempfile::TempDir, own: &[&str], outputs| {
        found(folder, own, outputs).map(|list| list.into_iter().map(|(_, _, class)| class).collect::<Vec<_>>())
    };
    let numbered = folder(&[("0/a.bin", 8), ("2/a.bin", 16), ("top.bin", 8)]);
    assert_eq!(classes(&numbered, &[], 3).unwrap(), [None, Some(0), Some(2), Some(2)]);
    let named = folder(&[("cat/a.bin", 8), ("dog/a.bin", 8)]);
    assert_eq!(classes(&named, &["dog", "bird", "cat"], 3).unwrap(), [Some(2), Some(0)]);
    // As many folders as classes: in alphabetical order.
    assert_eq!(classes(&named, &[], 2).unwrap(), [Some(0), Some(1)]);
    let said = classes(&named, &[], 3).unwrap_err();
    assert!(said.contains("folder 'cat'") && said.contains("classes.txt") && said.contains("3 outputs"), "{said}");
    put(&named, "classes.txt", "dog\ncat\n");
    assert_eq!(classes(&named, &[], 3).unwrap(), [Some(1), Some(0)]);
    assert!(classes(&named, &["dog", "bird"], 2).unwrap_err().contains("folder 'cat'"));
}

#[test]
fn lists_say_classes() {
    let files = folder(&[("a.bin", 8), ("b, c.bin", 8), ("in/d.bin", 8), ("e.bin", 8)]);
    let classes = |text: &str| {
        put(&files, "labels.csv", text);
        found(&files, &["x", "y"], 2).map(|list| list.into_iter().map(|(_, _, class)| class).collect::<Vec<_>>())
    };
    let all = "file,label\na.bin,1\nb, c.bin, x\n\nin/d.bin,y\n";
    assert_eq!(classes(all).unwrap(), [Some(1), Some(0), None, Some(1)]);
    for (text, words) in [
        ("a.bin", "line 1: not a file, a comma and a label"),
        ("a.bin,z", "line 1: 'z' is neither a number nor a class"),
        ("a.bin,1\na.bin,0", "line 2: 'a.bin' is listed a second time"),
        ("a.bin,1\nf.bin,0", "line 2: there is no file 'f.bin'"),
    ] {
        let said = classes(text).unwrap_err();
        assert!(said.contains("labels.csv") && said.contains(words), "{said}");
    }
    std::fs::remove_file(files.path().join("labels.csv")).unwrap();
    put(&files, "labels.txt", "a.bin 1\n");
    assert_eq!(found(&files, &[], 2).unwrap()[0].2, Some(1));
}

#[test]
fn several_inputs_have_a_file_each() {
    let two = || vec![wanted(&[1, 2]), wanted(&[1, 1])];
    let find = |folder: &tempfile::TempDir| Samples::find(folder.path(), two(), None, &[], 2);
    let files = folder(&[("a.in0.bin", 16), ("a.in1.bin", 8), ("b.in1.raw", 4), ("b.in0.bin", 8)]);
    let samples = find(&files).unwrap();
    let mut lengths = Vec::new();
    let mut each = |sample: Sample<'_>| {
        lengths.push(sample.inputs.iter().map(|input| input.len()).collect::<Vec<_>>());
        Ok(())
    };
    samples.read(&Picker::all(3), &mut |_, _| {}, &mut each).unwrap();
    assert_eq!(lengths, vec![vec![8, 4]; 3]);
    for (files, words) in [
        (vec![("a.bin", 8)], "must be called NAME.in0.npy, NAME.in1.npy"),
        (vec![("a.in2.bin", 8)], "must be called NAME.in0.npy, NAME.in1.npy"),
        (vec![("a.in1.bin", 4)], "a.in0.…' beside it for input 0"),
        (vec![("a.in0.bin", 8), ("a.in0.raw", 8)], "is of the same sample and input"),
        (vec![("a.in0.bin", 16), ("a.in1.bin", 4)], "it has 1 sample where"),
    ] {
        let said = find(&folder(&files)).err().unwrap().to_string();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn folders_without_samples_are_refused() {
    let said = found(&folder(&[("notes.md", 3)]), &[], 2).unwrap_err();
    assert!(said.contains("no samples in it: files whose names end in .npy"), "{said}");
}
