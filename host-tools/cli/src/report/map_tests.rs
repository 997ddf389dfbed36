use unicode_width::UnicodeWidthStr;

use super::super::sample::chain;
use super::*;

/// The lines between the box's top and bottom, without their labels.
fn picture(map: &str) -> Vec<String> {
    let inside = map.lines().filter(|l| l.ends_with('│'));
    inside.filter_map(|l| Some(l.split('│').nth(1)?.to_owned())).collect()
}

#[test]
fn it_fits_every_terminal_and_shows_every_tensor() {
    for steps in 3..=60 {
        for width in [80, 100, 133, 200] {
            let report = chain(steps);
            let map = map(&report, Style { width, colour: false });
            for line in map.lines() {
                assert!(line.width() <= width, "{steps} steps in {width} columns: {line}");
            }
            let picture = picture(&map);
            let wide = picture[0].chars().count();
            assert!(picture.iter().all(|l| l.chars().count() == wide), "{map}");
            assert!((MIN_ROWS / 2..=MAX_ROWS + 1).contains(&picture.len()), "{} rows", picture.len());
            let all = picture.concat();
            for (i, letter) in LETTERS.iter().enumerate().take(steps.min(20) + 1) {
                assert!(all.contains(*letter as char), "tensor {i} is missing:\n{map}");
            }
        }
    }
}

#[test]
fn blocks_stand_where_their_tensors_lie() {
    let map = map(&chain(3), Style { width: 80, colour: false });
    // Offsets: A 0..1000, B 8023..10000, C 0..2954, D 6069..10000. A and B live at step 0, B and
    // C at 1, C and D at 2.
    let line = |label: &str| map.lines().find(|l| l.trim_start().starts_with(label)).unwrap_or_default().to_owned();
    assert!(line("0 │").ends_with("│A░░░░░░░C░░░░░░░░░░░░░░░│"), "{map}");
    assert!(line("1,000 │").ends_with("│        C░░░░░░░░░░░░░░░│"), "{map}");
    assert!(line("2,954 │").ends_with("│                        │"), "{map}");
    assert!(line("6,069 │").ends_with("│                D░░░░░░░│"), "{map}");
    assert!(line("8,023 │").ends_with("│B░░░░░░░░░░░░░░░D░░░░░░░│"), "{map}");
    let marked = map.lines().find(|l| l.contains("▲")).unwrap();
    assert_eq!(marked.chars().position(|c| c == '▲'), Some(7 + 1 + 16), "{map}");
}

#[test]
fn shared_bytes_and_scratch_look_different() {
    let mut report = chain(3);
    report.tensors[1].offset = 500; // over the end of A at step 0
    report.tensors[3].kind = Kind::Scratch;
    let map = map(&report, Style { width: 80, colour: false });
    assert!(map.contains('▓') && map.contains('▒'), "{map}");
}

#[test]
fn more_steps_than_columns_share_columns() {
    let map = map(&chain(500), Style { width: 80, colour: false });
    assert!(map.lines().all(|l| l.width() <= 80), "{map}");
}

#[test]
fn colour_only_when_asked() {
    assert!(map(&chain(4), Style { width: 80, colour: true }).contains("\x1b["));
    assert!(!map(&chain(4), Style { width: 80, colour: false }).contains('\x1b'));
}

#[test]
fn the_whole_report_fits_80_columns() {
    let text = super::super::text::plan(&chain(12), Style { width: 80, colour: false });
    for line in text.lines() {
        assert!(line.width() <= 80, "{line}");
    }
}
