//! The trade-off plane: one point for each backend, write amplification against another cost.

use super::canvas::{Anchor, Drawing, INK, Mark};
use super::frame::{Frame, scale};

/// One backend.
pub(crate) struct Spot {
    pub(crate) name: String,
    /// Spots of a series have a colour.
    pub(crate) series: usize,
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// Colours of the points, in turn.
pub(crate) const COLOURS: [&str; 6] = [
    "#3f6fb5", "#e58a3c", "#57a35a", "#7d5ba6", "#d9546a", "#5fb3b3",
];

/// Draws them.
pub(crate) fn figure(title: &str, across: &str, spots: &[Spot]) -> Drawing {
    let mut d = Drawing::new(470.0, 340.0);
    let frame = Frame {
        left: 64.0,
        top: 36.0,
        width: 380.0,
        height: 250.0,
    };
    d.text(frame.left, 20.0, 13.0, Anchor::Start, title);
    let xs = scale(spots.iter().map(|s| s.x).fold(0.0, f64::max) * 1.25);
    let ys = scale(spots.iter().map(|s| s.y).fold(0.0, f64::max) * 1.1);
    frame.left_scale(&mut d, ys, "WAF");
    frame.bottom_scale(&mut d, xs, across);
    for spot in spots {
        let fill = COLOURS[spot.series % COLOURS.len()];
        let (x, y) = (frame.x(spot.x / xs.0), frame.y(spot.y / ys.0));
        d.marks.push(Mark::Circle {
            x,
            y,
            radius: 5.0,
            fill,
        });
        // On the side where there is room.
        match spot.x / xs.0 < 0.6 {
            true => d.text(x + 8.0, y - 6.0, 10.0, Anchor::Start, &spot.name),
            false => d.text(x - 8.0, y - 6.0, 10.0, Anchor::End, &spot.name),
        }
    }
    frame.border(&mut d);
    d.line(
        vec![
            (frame.left, frame.bottom()),
            (frame.right(), frame.bottom()),
        ],
        INK,
        1.0,
    );
    d
}
