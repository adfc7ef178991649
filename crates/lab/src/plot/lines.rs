//! Lines over a doubling scale: one for each backend, its name at its end.

use super::canvas::{Anchor, Drawing, INK, Mark};
use super::frame::{Frame, legend, scale};
use super::points::COLOURS;

/// One backend's values by place, places ascending and above zero.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) values: Vec<(u32, f64)>,
}

/// Draws them; `label` writes a place.
pub(crate) fn figure(
    title: &str,
    across: &str,
    up: &str,
    curves: &[Curve],
    label: &dyn Fn(u32) -> String,
) -> Drawing {
    let mut d = Drawing::new(720.0, 380.0);
    let frame = Frame { left: 64.0, top: 62.0, width: 630.0, height: 262.0 };
    d.text(frame.left, 20.0, 14.0, Anchor::Start, title);
    let colours = || COLOURS.iter().copied().cycle();
    let entries: Vec<(&str, &'static str)> =
        curves.iter().map(|c| c.name.as_str()).zip(colours()).collect();
    legend(&mut d, &entries, (frame.left, 42.0), frame.right());
    let places: std::collections::BTreeSet<u32> =
        curves.iter().flat_map(|c| &c.values).map(|(place, _)| (*place).max(1)).collect();
    let ends = places.first().zip(places.last());
    let (first, last) =
        ends.map_or((0.0, 1.0), |(a, b)| (f64::from(*a).log2(), f64::from(*b).log2()));
    // A margin on both sides, so that no point lies on the border.
    const MARGIN: f64 = 0.04;
    let span = (last - first).max(1e-9);
    let x = |place: u32| {
        let share = (f64::from(place.max(1)).log2() - first) / span;
        frame.x(MARGIN + share * (1.0 - 2.0 * MARGIN))
    };
    let max = curves.iter().flat_map(|c| &c.values).map(|(_, v)| *v).fold(0.0, f64::max);
    let axis = scale(max);
    frame.left_scale(&mut d, axis, up);
    for place in &places {
        let at = x(*place);
        d.line(vec![(at, frame.bottom()), (at, frame.bottom() + 4.0)], INK, 1.0);
        d.text(at, frame.bottom() + 17.0, 11.0, Anchor::Middle, &label(*place));
    }
    let middle = frame.left + frame.width / 2.0;
    d.text(middle, frame.bottom() + 36.0, 12.0, Anchor::Middle, across);
    for (curve, colour) in curves.iter().zip(colours()) {
        let points: Vec<(f32, f32)> =
            curve.values.iter().map(|(place, v)| (x(*place), frame.y(v / axis.0))).collect();
        for (x, y) in &points {
            d.marks.push(Mark::Circle { x: *x, y: *y, radius: 3.5, fill: colour });
        }
        d.line(points, colour, 2.0);
    }
    frame.border(&mut d);
    d
}
