use roxmltree::{Document, Node};
use unicode_width::UnicodeWidthStr;

use super::super::json::{Kind, Short};
use super::super::sample::chain;
use super::*;

fn number(node: &Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).unwrap_or("0").parse().unwrap()
}

fn of_class<'d>(document: &'d Document<'_>, class: &'static str) -> impl Iterator<Item = Node<'d, 'd>> {
    document.root().descendants().filter(move |n| n.attribute("class") == Some(class))
}

fn rect(node: &Node<'_, '_>) -> Rect {
    Rect { x: number(node, "x"), y: number(node, "y"), width: number(node, "width"), height: number(node, "height") }
}

/// Parses a picture and demands what holds for every one: a bar for each tensor, where it belongs;
/// nothing outside.
fn check(report: &PlanReport) -> String {
    let svg = svg(report);
    let document = Document::parse(&svg).unwrap();
    let root = document.root_element();
    let (width, height) = (number(&root, "width"), number(&root, "height"));
    assert_eq!(root.attribute("viewBox").unwrap(), format!("0 0 {width} {height}"));
    let layout = Layout::new(report, 0.0, 0.0);
    let bars: Vec<Rect> = of_class(&document, "bar").map(|n| rect(&n)).collect();
    let tensors: Vec<&Tensor> = report.tensors.iter().filter(|t| t.bytes > 0).collect();
    assert_eq!(bars.len(), tensors.len());
    let (left, top) = (bars[0].x - layout.bars[0].rect.x, bars[0].y - layout.bars[0].rect.y);
    let scale = layout.plot.height / layout.end as f64;
    for (bar, tensor) in bars.iter().zip(&tensors) {
        // Numbers are written with one digit behind the point.
        let near = |a: f64, b: f64| assert!((a - b).abs() < 0.2, "{a} is not {b}: {bar:?} of {tensor:?}");
        near(bar.x, left + layout.column * tensor.first_step as f64);
        near(bar.width, layout.column * (tensor.last_step - tensor.first_step + 1) as f64);
        near(bar.height, (tensor.bytes as f64 * scale).max(3.0));
        if tensor.bytes as f64 * scale > 3.0 {
            near(bar.y, top + tensor.offset as f64 * scale);
        }
    }
    for node in document.descendants().filter(|n| n.has_tag_name("rect")) {
        let r = rect(&node);
        assert!(r.x >= 0.0 && r.y >= 0.0 && r.right() <= width + 0.1 && r.bottom() <= height + 0.1, "{r:?}");
    }
    for node in document.descendants().filter(|n| n.has_tag_name("text")) {
        let size = number(&node, "font-size").max(12.0) / 12.0;
        let wide = node.text().unwrap_or_default().width() as f64 * words::CHAR * size;
        let x = number(&node, "x");
        let begin = match node.attribute("text-anchor") {
            Some("middle") => x - wide / 2.0,
            Some(_) => x - wide,
            None => x,
        };
        let inside = begin >= 0.0 && begin + wide <= width && number(&node, "y") < height;
        assert!(inside, "{:?} goes from {begin} to {} of {width}", node.text(), begin + wide);
    }
    names_stand_apart(&layout);
    svg
}

/// No name covers another, or leaves the plot.
fn names_stand_apart(layout: &Layout<'_>) {
    // Lines of text have some room between them.
    let shrunk = |r: &Rect| Rect { y: r.y + 1.3, height: r.height - 2.6, ..*r };
    let names = names::place(layout);
    let rects: Vec<Rect> = names.iter().map(|n| shrunk(&n.rect)).collect();
    for (i, one) in rects.iter().enumerate() {
        assert!(one.x >= layout.plot.x && one.right() <= layout.plot.right(), "{:?}", names[i].lines);
        for (j, other) in rects.iter().enumerate().skip(i + 1) {
            assert!(!one.meets(other), "{:?} covers {:?}", names[i].lines, names[j].lines);
        }
    }
}

#[test]
fn any_number_of_steps() {
    for steps in (1..=60).chain([500]) {
        check(&chain(steps));
    }
}

/// Everything lives to the end: work that grows with the cube took 13 seconds here, that with the square
/// takes a tenth of one.
#[test]
fn many_tensors_that_live_together() {
    let steps = 1_600;
    let mut report = chain(steps);
    for (i, tensor) in report.tensors.iter_mut().enumerate() {
        (tensor.offset, tensor.bytes, tensor.last_step) = (i as u64 * 16, 16, steps - 1);
    }
    report.ram.arena = 16 * (steps as u64 + 1);
    let once = || {
        let start = std::time::Instant::now();
        assert_eq!(Layout::new(&report, 0.0, 0.0).bars.len(), steps + 1);
        start.elapsed()
    };
    // The least of several: other work on the machine only adds.
    let took = (0..3).map(|_| once()).min().unwrap();
    assert!(took.as_secs() < 3, "{took:?} for {steps} steps");
}

#[test]
fn tensors_of_a_few_bytes_are_seen_and_named() {
    let mut report = chain(8);
    for (i, tensor) in report.tensors.iter_mut().enumerate().skip(4) {
        tensor.bytes = 1 + i as u64;
        tensor.offset = (i as u64 % 2) * 20;
    }
    let svg = check(&report);
    for tag in ["E ", "F ", "G ", "H ", "I "] {
        assert!(svg.contains(&format!(">{tag}…")), "{tag} is missing: {svg}");
    }
    // At the arena's very end.
    report.tensors[8].offset = report.ram.arena - report.tensors[8].bytes;
    check(&report);
}

#[test]
fn what_two_tensors_share_is_striped() {
    // Tensor i lives at steps i - 1 and i; those that follow each other stand at the arena's two
    // ends, so they share what both together have too much.
    let mut report = chain(6);
    for tensor in &mut report.tensors[2..=4] {
        tensor.bytes = 6_000;
        tensor.offset = if tensor.offset == 0 { 0 } else { 4_000 };
    }
    let svg = check(&report);
    let document = Document::parse(&svg).unwrap();
    let notes: Vec<&str> =
        of_class(&document, "shared").map(|n| n.first_element_child().unwrap().text().unwrap()).collect();
    assert_eq!(notes, ["C and D share 2,000 B in step 2", "D and E share 2,000 B in step 3"]);
    for stripes in of_class(&document, "shared") {
        let fill = stripes.attribute("fill").unwrap().trim_start_matches("url(#").trim_end_matches(')');
        assert!(document.descendants().any(|n| n.has_tag_name("pattern") && n.attribute("id") == Some(fill)));
    }
    assert!(!check(&chain(6)).contains("shared"));
}

#[test]
fn kinds_look_different_and_are_explained() {
    let mut report = chain(5);
    report.tensors[2].kind = Kind::Scratch;
    report.tensors[5].kind = Kind::Output;
    let svg = check(&report);
    let document = Document::parse(&svg).unwrap();
    let fills: Vec<&str> = of_class(&document, "bar").map(|n| n.attribute("fill").unwrap()).collect();
    let kinds = [fills[0], fills[1], fills[2], fills[5]];
    for (i, fill) in kinds.iter().enumerate() {
        assert!(!kinds[i + 1..].contains(fill), "{fills:?}");
    }
    for word in ["input", "intermediate", "output", "scratch", "fullest step"] {
        assert!(svg.contains(&format!(">{word}</text>")), "{word} is not explained");
    }
    assert!(!check(&chain(5)).contains(">scratch<"));
}

#[test]
fn hostile_names_stay_text() {
    let names = [
        "</text><script>alert(1)</script>",
        "a & b \"quoted\" 'too' ]]> <!-- --> <?x?>",
        "\u{0}\u{1b}[31m\u{7f}\u{85}\n\r\t",
        "\u{202E}backwards\u{2066}\u{FEFF}\u{FFFE}\u{FFFF}",
        "宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽",
        "",
        "/;/;.;",
        "e\u{301}\u{301}\u{301}👩‍👩‍👧",
    ];
    let mut report = chain(names.len());
    for (tensor, name) in report.tensors.iter_mut().zip(names) {
        tensor.name = name.to_owned();
    }
    for (step, name) in report.steps.iter_mut().zip(names) {
        step.name = name.to_owned();
    }
    for name in names {
        report.model = name.repeat(20);
        report.board = name.to_owned();
        let svg = check(&report);
        let document = Document::parse(&svg).unwrap();
        assert!(!document.descendants().any(|n| n.has_tag_name("script") || n.is_comment() || n.is_pi()));
        assert!(!svg.chars().any(|c| c.is_control() && c != '\n' || ('\u{202A}'..='\u{2069}').contains(&c)));
    }
}

#[test]
fn where_ram_ends() {
    let mut report = chain(5);
    report.ram.limit = Some(6_000);
    report.ram.state = 1_000;
    report.ram.total = 11_000;
    report.short = vec![Short { memory: "ram", region: None, needed: 11_000, limit: 6_000 }];
    let svg = check(&report);
    for text in [">5,000 B<", "end of RAM", "RAM short by 5,000 B", "state 1,000 B on top"] {
        assert!(svg.contains(text), "no '{text}'");
    }
    report.ram.limit = Some(11_000);
    assert!(!check(&report).contains("end of RAM"));
    // Not even the state fits.
    report.ram.limit = Some(10);
    check(&report);
}

#[test]
fn an_arena_of_nothing() {
    let mut report = chain(1);
    report.tensors.clear();
    report.ram.arena = 0;
    report.peak = None;
    report.steps.clear();
    let svg = svg(&report);
    Document::parse(&svg).unwrap();
    assert!(svg.contains("The arena has no tensors."));
}

#[test]
fn the_same_report_gives_the_same_picture() {
    assert_eq!(svg(&chain(12)), svg(&chain(12)));
}
