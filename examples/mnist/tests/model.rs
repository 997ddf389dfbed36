//! The committed folder `model/`: it is what this crate draws, and the network says of it what the folder says.

mod support;

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use kiln::boards::Board;
use mnist::data::{Images, PIXELS, SIDE};
use mnist::drawn::{self, VARIANTS};

const DIGITS: usize = 10;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("model").join(name)
}

/// Images as the network takes them, and what it must say of each.
fn recorded() -> (Vec<Vec<u8>>, Vec<u8>) {
    let inputs = fs::read(file("drawn.in0.bin")).unwrap();
    (inputs.chunks(PIXELS).map(<[u8]>::to_vec).collect(), fs::read(file("drawn.out0.references.bin")).unwrap())
}

#[test]
fn the_drawn_digits_are_those_of_the_folder() {
    let images = drawn::images();
    assert_eq!(images.len(), DIGITS * VARIANTS);
    let graph = support::graph(&file("model.kiln"));
    assert!(support::stored(&graph, &images, images.len()) == recorded().0, "`--export-cases` draws them anew");
    assert_eq!(picture("three.png"), (SIDE, images.bytes(3 * VARIANTS).to_vec()));
    let (width, pixels) = picture("drawn.png");
    assert_eq!(width, VARIANTS * SIDE);
    for number in 0..images.len() {
        let (top, left) = (number / VARIANTS * SIDE, number % VARIANTS * SIDE);
        let rows = (0..SIDE).flat_map(|y| &pixels[(top + y) * width + left..][..SIDE]);
        assert!(rows.eq(images.bytes(number)), "image {number}");
    }
}

/// A grey picture's width and pixels.
fn picture(name: &str) -> (usize, Vec<u8>) {
    let file = BufReader::new(File::open(file(name)).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((frame.color_type, frame.bit_depth), (png::ColorType::Grayscale, png::BitDepth::Eight));
    (frame.width as usize, pixels)
}

#[test]
fn drawn_digits_look_like_those_of_the_data_set() {
    let images = drawn::images();
    for number in 0..images.len() {
        let bytes = images.bytes(number);
        let lit = |pixel: &usize| bytes[*pixel] >= 128;
        let rows: Vec<usize> = (0..PIXELS).filter(lit).map(|pixel| pixel / SIDE).collect();
        let height = rows.iter().max().unwrap() - rows.iter().min().unwrap() + 1;
        assert!((14..=20).contains(&height), "image {number}: {height} rows");
        // Nothing is cut off: no more than a fading end is at the edge.
        let edge = (0..PIXELS).filter(|p| [0, SIDE - 1].contains(&(p / SIDE)) || [0, SIDE - 1].contains(&(p % SIDE)));
        assert!(edge.into_iter().all(|pixel| !lit(&pixel)), "image {number}");
        let mass: f64 = bytes.iter().map(|&byte| f64::from(byte)).sum();
        let middle = |of: fn(usize) -> usize| {
            bytes.iter().enumerate().map(|(p, &byte)| f64::from(byte) * of(p) as f64).sum::<f64>() / mass - 13.5
        };
        assert!(middle(|p| p % SIDE).abs() <= 1.0 && middle(|p| p / SIDE).abs() <= 1.0, "image {number}");
    }
}

#[test]
fn the_network_reads_them_as_recorded() {
    let graph = support::graph(&file("model.kiln"));
    let (inputs, outputs) = recorded();
    assert!(support::by_references(&graph, &inputs) == outputs, "the references say something else");
    // What is recorded is right: all but two at most.
    let images: Images = drawn::images();
    let best = |scores: &[u8]| (0..DIGITS).rev().max_by_key(|&i| scores[i] as i8).unwrap() as i32;
    let wrong: Vec<usize> =
        (0..images.len()).filter(|&i| images.digits(&[i]) != [best(&outputs[i * DIGITS..][..DIGITS])]).collect();
    assert!(wrong.len() <= 2, "{wrong:?}");

    let board = Board::builtin("mps2-an386").unwrap();
    if let Some(emulated) = support::on_board(&graph, &inputs, &board) {
        assert!(emulated == outputs, "outputs on {} differ from the references'", board.name);
    }
}

#[test]
fn the_folder_is_small() {
    let bytes: u64 = fs::read_dir(file("")).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes < 100_000, "{bytes} bytes");
}
