//! Images of digits of this crate's own, drawn with a pen, so that the network can be tried without the data set.
//!
//! A digit is strokes in a unit square, bent, slanted and scaled a little differently each time, and drawn as the data
//! set's images are: light on black, 20 pixels at its longer side, its centre of mass in the middle. Nothing but +, −, ×,
//! ÷ and the square root is used, which every computer rounds alike, so all of them draw the same bytes.

use fastrand::Rng;

use crate::data::{Images, PIXELS, SIDE};

/// Images of each digit.
pub const VARIANTS: usize = 5;

/// What the variation comes from.
const SEED: u64 = 1;

/// Where the pen goes: x to the right, y down, both from 0 to 1.
type Point = [f64; 2];
/// Points that a smooth line goes through; where it turns sharply, another stroke begins.
type Stroke<'a> = &'a [Point];

/// The ways to write each digit.
const STYLES: [&[&[Stroke]]; 10] = [
    &[&[ZERO]],
    &[&[&[[0.5, 0.0], [0.5, 1.0]]], &[&[[0.32, 0.2], [0.5, 0.0]], &[[0.5, 0.0], [0.5, 1.0]]]],
    &[&[TWO, &[[0.1, 1.0], [0.9, 1.0]]], &[TWO, &[[0.1, 1.0], [0.25, 0.92], [0.6, 0.98], [0.9, 0.95]]]],
    &[&[
        &[[0.15, 0.1], [0.4, 0.0], [0.7, 0.08], [0.75, 0.28], [0.6, 0.43], [0.38, 0.48]],
        &[[0.38, 0.48], [0.68, 0.54], [0.82, 0.72], [0.7, 0.93], [0.4, 1.0], [0.1, 0.9]],
    ]],
    &[
        &[
            &[[0.2, 0.0], [0.12, 0.3], [0.1, 0.55]],
            &[[0.1, 0.55], [0.85, 0.52]],
            &[[0.78, 0.02], [0.7, 0.5], [0.65, 1.0]],
        ],
        &[&[[0.62, 0.0], [0.1, 0.62]], &[[0.1, 0.62], [0.9, 0.62]], &[[0.65, 0.0], [0.65, 1.0]]],
    ],
    &[&[
        &[[0.25, 0.0], [0.2, 0.42]],
        &[[0.2, 0.42], [0.5, 0.36], [0.78, 0.5], [0.8, 0.75], [0.6, 0.95], [0.35, 1.0], [0.1, 0.9]],
        &[[0.25, 0.0], [0.8, 0.0]],
    ]],
    &[&[SIX]],
    &[
        &[&[[0.08, 0.03], [0.85, 0.0]], &[[0.85, 0.0], [0.6, 0.45], [0.4, 1.0]]],
        &[&[[0.08, 0.03], [0.85, 0.0]], &[[0.85, 0.0], [0.6, 0.45], [0.4, 1.0]], &[[0.35, 0.5], [0.8, 0.46]]],
    ],
    &[&[EIGHT]],
    &[&[NINE, &[[0.76, 0.18], [0.72, 0.5], [0.6, 1.0]]]],
];

const ZERO: Stroke = &[
    [0.55, 0.0],
    [0.25, 0.1],
    [0.08, 0.5],
    [0.22, 0.9],
    [0.5, 1.0],
    [0.78, 0.88],
    [0.9, 0.5],
    [0.78, 0.12],
    [0.55, 0.0],
];
const TWO: Stroke =
    &[[0.12, 0.25], [0.25, 0.05], [0.5, 0.0], [0.75, 0.1], [0.78, 0.32], [0.6, 0.6], [0.3, 0.85], [0.1, 1.0]];
const SIX: Stroke = &[
    [0.66, 0.0],
    [0.4, 0.2],
    [0.2, 0.5],
    [0.15, 0.78],
    [0.32, 0.98],
    [0.6, 0.97],
    [0.75, 0.79],
    [0.66, 0.61],
    [0.43, 0.59],
    [0.19, 0.76],
];
const EIGHT: Stroke = &[
    [0.72, 0.15],
    [0.5, 0.0],
    [0.26, 0.12],
    [0.29, 0.33],
    [0.55, 0.5],
    [0.76, 0.7],
    [0.67, 0.94],
    [0.42, 1.0],
    [0.22, 0.87],
    [0.26, 0.66],
    [0.5, 0.47],
    [0.71, 0.31],
    [0.72, 0.15],
];
const NINE: Stroke = &[[0.76, 0.18], [0.55, 0.01], [0.28, 0.09], [0.18, 0.31], [0.34, 0.47], [0.6, 0.4], [0.76, 0.18]];

/// All images, five of each digit: those of 0 first.
pub fn images() -> Images {
    let mut random = Rng::with_seed(SEED);
    let mut pixels = Vec::new();
    let mut digits = Vec::new();
    for (digit, styles) in STYLES.iter().enumerate() {
        for variant in 0..VARIANTS {
            pixels.extend(draw(styles[variant % styles.len()], &mut random));
            digits.push(digit as u8);
        }
    }
    Images::new(pixels, digits)
}

/// A straight piece of a line.
type Piece = [Point; 2];

/// One image of a digit.
fn draw(strokes: &[Stroke], random: &mut Rng) -> [u8; PIXELS] {
    let mut between = |low: f64, high: f64| low + (high - low) * random.f64();
    let slant = between(-0.1, 0.35);
    let width = between(0.8, 1.05);
    let longer = between(18.5, 20.0);
    let pen = between(2.2, 3.0);
    let shift = [between(-0.7, 0.7), between(-0.7, 0.7)];
    let mut pieces: Vec<Piece> = Vec::new();
    for stroke in strokes {
        // The hand trembles, by less than the pen is wide: strokes that meet still do.
        let points: Vec<Point> =
            stroke.iter().map(|[x, y]| [x + between(-0.02, 0.02), y + between(-0.02, 0.02)]).collect();
        pieces.extend(smooth(&points));
    }
    for [x, y] in pieces.iter_mut().flatten() {
        *x = width * *x + slant * (0.5 - *y);
    }

    // The longer side of what the pen covers becomes as many pixels.
    let [left, top] = extreme(&pieces, f64::min);
    let [right, bottom] = extreme(&pieces, f64::max);
    let scale = (longer - pen) / (right - left).max(bottom - top);
    let middle = (SIDE as f64 - 1.0) / 2.0;
    place(&mut pieces, |[x, y]| [scale * (x - left) + middle / 2.0, scale * (y - top) + middle / 2.0]);
    let [x, y] = center_of_mass(&render(&pieces, pen));
    place(&mut pieces, |point| [point[0] + middle - x + shift[0], point[1] + middle - y + shift[1]]);
    render(&pieces, pen)
}

/// A smooth line through points, as straight pieces: a Catmull-Rom spline.
fn smooth(points: &[Point]) -> Vec<Piece> {
    const PIECES: usize = 12;
    let at = |index: usize| points[index.min(points.len() - 1)];
    let mut pieces = Vec::new();
    for index in 0..points.len() - 1 {
        let [a, b, c, d] = [at(index.saturating_sub(1)), at(index), at(index + 1), at(index + 2)];
        let point = |step: usize| {
            let t = step as f64 / PIECES as f64;
            [0, 1].map(|i| {
                let (a, b, c, d) = (a[i], b[i], c[i], d[i]);
                let cubic = 3.0 * (b - c) + d - a;
                let square = 2.0 * a - 5.0 * b + 4.0 * c - d;
                b + 0.5 * t * (c - a + t * (square + t * cubic))
            })
        };
        pieces.extend((0..PIECES).map(|step| [point(step), point(step + 1)]));
    }
    pieces
}

/// The least or greatest coordinates.
fn extreme(pieces: &[Piece], of: impl Fn(f64, f64) -> f64) -> Point {
    pieces.iter().flatten().copied().reduce(|a, b| [of(a[0], b[0]), of(a[1], b[1])]).unwrap_or_default()
}

fn place(pieces: &mut [Piece], to: impl Fn(Point) -> Point) {
    for point in pieces.iter_mut().flatten() {
        *point = to(*point);
    }
}

/// What a round pen leaves, this many pixels wide: its edge fades over a pixel.
fn render(pieces: &[Piece], pen: f64) -> [u8; PIXELS] {
    std::array::from_fn(|index| {
        let pixel = [(index % SIDE) as f64, (index / SIDE) as f64];
        let nearest = pieces.iter().map(|piece| distance_squared(pixel, piece)).fold(f64::INFINITY, f64::min);
        let covered = (pen / 2.0 + 0.5 - nearest.sqrt()).clamp(0.0, 1.0);
        (255.0 * covered).round() as u8
    })
}

/// The square of a point's distance from a straight piece.
fn distance_squared(point: Point, [from, to]: &Piece) -> f64 {
    let along = [to[0] - from[0], to[1] - from[1]];
    let apart = [point[0] - from[0], point[1] - from[1]];
    let length = along[0] * along[0] + along[1] * along[1];
    let part = if length > 0.0 { (apart[0] * along[0] + apart[1] * along[1]) / length } else { 0.0 };
    let part = part.clamp(0.0, 1.0);
    let rest = [apart[0] - part * along[0], apart[1] - part * along[1]];
    rest[0] * rest[0] + rest[1] * rest[1]
}

fn center_of_mass(pixels: &[u8; PIXELS]) -> Point {
    let (mut mass, mut x, mut y) = (0.0, 0.0, 0.0);
    for (index, &pixel) in pixels.iter().enumerate() {
        let pixel = f64::from(pixel);
        mass += pixel;
        x += pixel * (index % SIDE) as f64;
        y += pixel * (index / SIDE) as f64;
    }
    [x / mass, y / mass]
}
