use super::super::tests::{attack, wanted};
use super::*;

fn wav(spec: (u16, u16, SampleFormat), samples: &[i16]) -> Vec<u8> {
    let (channels, bits_per_sample, sample_format) = spec;
    let spec = hound::WavSpec { channels, sample_rate: 16_000, bits_per_sample, sample_format };
    let mut file = std::io::Cursor::new(Vec::new());
    let mut writer = hound::WavWriter::new(&mut file, spec).unwrap();
    for &sample in samples {
        match sample_format {
            SampleFormat::Int => writer.write_sample(sample).unwrap(),
            SampleFormat::Float => writer.write_sample(f32::from(sample)).unwrap(),
        }
    }
    writer.finalize().unwrap();
    file.into_inner()
}

const PCM: (u16, u16, SampleFormat) = (1, 16, SampleFormat::Int);
const SAMPLES: [i16; 5] = [0, 128, -128, 32767, -32768];

#[test]
fn samples_as_every_type() {
    let file = wav(PCM, &SAMPLES);
    // sample / 32768 * 128: 0, 0.5, -0.5, 127.996, -128.
    let (data, notes) = read(&file, &wanted(DType::I8, &[1, 5], 1.0 / 128.0, 0)).unwrap();
    assert_eq!(data, [0, 1, 0xFF, 0x7F, 0x80]);
    assert!(notes[0].contains("16000 Hz") && notes[1].contains("scale 0.0078125"), "{notes:?}");
    let (data, _) = read(&file, &wanted(DType::I16, &[5, 1], 0.25, 9)).unwrap();
    assert_eq!(data, SAMPLES.iter().flat_map(|s| s.to_le_bytes()).collect::<Vec<_>>());
    let (data, _) = read(&file, &wanted(DType::F32, &[5], 0.0, 0)).unwrap();
    let expected = [0.0f32, 0.00390625, -0.00390625, 0.999_969_5, -1.0];
    assert_eq!(data, expected.iter().flat_map(|s| s.to_le_bytes()).collect::<Vec<_>>());
}

#[test]
fn what_does_not_fit_is_refused_with_what_to_do() {
    let refused = |file: &[u8], w: &Wanted, words: &[&str]| {
        let problem = read(file, w).unwrap_err();
        words.iter().for_each(|word| assert!(problem.contains(word), "no '{word}' in: {problem}"));
    };
    let w = wanted(DType::I16, &[1, 4], 0.0, 0);
    refused(&wav(PCM, &SAMPLES), &w, &["int16 [1, 4], 4 elements", "5 samples", "to 4 samples"]);
    refused(&wav((2, 16, SampleFormat::Int), &[0; 4]), &w, &["2 channels of 16-bit integer", "convert"]);
    refused(&wav((1, 8, SampleFormat::Int), &[0; 4]), &w, &["8-bit integer"]);
    refused(&wav((1, 32, SampleFormat::Float), &[0; 4]), &w, &["32-bit float"]);
    refused(b"OggS", &w, &["not a readable WAV", "again"]);
    refused(&wav(PCM, &[0; 4]), &wanted(DType::I8, &[4], 0.0, 0), &["without a scale"]);
    // More samples claimed than there are.
    let mut cut = wav(PCM, &[0; 4]);
    cut.truncate(cut.len() - 1);
    refused(&cut, &w, &["not a readable WAV"]);
}

#[test]
fn hostile_files() {
    let w = wanted(DType::I8, &[1, 5], 1.0 / 128.0, 0);
    attack(&wav(PCM, &SAMPLES), &w, |file| read(file, &w));
}
