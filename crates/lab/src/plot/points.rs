//! The trade-off plane: one point for each run, write amplification against another cost.

use super::canvas::{Anchor, Drawing, INK, Mark};
use super::frame::{Frame, legend, scale};

/// One run.
pub(crate) struct Spot {
    /// What stands beside it.
    pub(crate) name: String,
    /// Spots of a series have a colour.
    pub(crate) series: usize,
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// Colours of the points, in turn.
pub(crate) const COLOURS: [&str; 6] =
    ["#3f6fb5", "#e58a3c", "#57a35a", "#7d5ba6", "#d9546a", "#5fb3b3"];

const RADIUS: f32 = 5.0;
const LETTER: f32 = 10.0;

/// A rectangle that something is drawn in.
#[derive(Debug, Clone, Copy)]
struct Area {
    left: f32,
    top: f32,
    right: f32,
    bottom: f32,
}

impl Area {
    /// How much of it another covers.
    fn shared(&self, other: &Area) -> f32 {
        let width = self.right.min(other.right) - self.left.max(other.left);
        let height = self.bottom.min(other.bottom) - self.top.max(other.top);
        width.max(0.0) * height.max(0.0)
    }

    fn len(&self) -> f32 {
        (self.right - self.left) * (self.bottom - self.top)
    }
}

/// What a text at a place covers.
fn area(x: f32, base: f32, anchor: Anchor, text: &str) -> Area {
    // About the width of the font's letters.
    let width = text.chars().count() as f32 * 0.6 * LETTER;
    let left = match anchor {
        Anchor::Start => x,
        Anchor::Middle => x - width / 2.0,
        Anchor::End => x - width,
    };
    Area { left, top: base - LETTER, right: left + width, bottom: base + 2.0 }
}

/// Where a text may stand around a point, from its middle; the best place first.
const PLACES: [(f32, f32, Anchor); 8] = [
    (8.0, -6.0, Anchor::Start),
    (-8.0, -6.0, Anchor::End),
    (8.0, 14.0, Anchor::Start),
    (-8.0, 14.0, Anchor::End),
    (0.0, -9.0, Anchor::Middle),
    (0.0, 19.0, Anchor::Middle),
    (10.0, 4.0, Anchor::Start),
    (-10.0, 4.0, Anchor::End),
];

/// Draws them. With names of series these are told by their colours above.
pub(crate) fn figure(title: &str, across: &str, spots: &[Spot], series: &[String]) -> Drawing {
    let colours = || COLOURS.iter().copied().cycle();
    let entries: Vec<(&str, &'static str)> =
        series.iter().map(String::as_str).zip(colours()).collect();
    let room = if series.is_empty() { 0.0 } else { 44.0 };
    let mut d = Drawing::new(560.0, 360.0 + room);
    let frame = Frame { left: 64.0, top: 36.0 + room, width: 470.0, height: 270.0 };
    d.text(frame.left, 20.0, 13.0, Anchor::Start, title);
    legend(&mut d, &entries, (frame.left, 44.0), frame.right());
    let xs = scale(spots.iter().map(|s| s.x).fold(0.0, f64::max) * 1.1);
    let ys = scale(spots.iter().map(|s| s.y).fold(0.0, f64::max) * 1.1);
    frame.left_scale(&mut d, ys, "WAF");
    frame.bottom_scale(&mut d, xs, across);
    let at: Vec<(f32, f32)> =
        spots.iter().map(|spot| (frame.x(spot.x / xs.0), frame.y(spot.y / ys.0))).collect();
    let mut taken: Vec<Area> = at
        .iter()
        .map(|(x, y)| Area {
            left: x - RADIUS,
            top: y - RADIUS,
            right: x + RADIUS,
            bottom: y + RADIUS,
        })
        .collect();
    let inside =
        Area { left: frame.left, top: frame.top, right: frame.right(), bottom: frame.bottom() };
    for (spot, (x, y)) in spots.iter().zip(&at) {
        let fill = COLOURS[spot.series % COLOURS.len()];
        d.marks.push(Mark::Circle { x: *x, y: *y, radius: RADIUS, fill });
        // Where it covers least of what is there and of the border.
        let covers = |area: &Area| {
            let others: f32 = taken.iter().map(|other| area.shared(other)).sum();
            others + 4.0 * (area.len() - area.shared(&inside))
        };
        let place =
            |(dx, dy, anchor)| (x + dx, y + dy, anchor, area(x + dx, y + dy, anchor, &spot.name));
        let best =
            PLACES.map(place).into_iter().min_by(|a, b| covers(&a.3).total_cmp(&covers(&b.3)));
        if let Some((x, y, anchor, area)) = best {
            d.text(x, y, LETTER, anchor, &spot.name);
            taken.push(area);
        }
    }
    frame.border(&mut d);
    d.line(vec![(frame.left, frame.bottom()), (frame.right(), frame.bottom())], INK, 1.0);
    d
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "BlueStore" and "FileStore" were written over each other, their points being neighbours.
    #[test]
    fn names_of_neighbours_stand_apart() {
        let spot = |name: &str, x, y| Spot { name: name.into(), series: 0, x, y };
        let spots = [
            spot("BlueStore", 263.0, 10.2),
            spot("FileStore", 279.0, 10.2),
            spot("KStore", 270.0, 9.9),
            spot("InkStore", 400.0, 3.0),
        ];
        let drawn = figure("", "", &spots, &[]);
        let areas: Vec<Area> = drawn
            .marks
            .iter()
            .filter_map(|mark| match mark {
                Mark::Text { x, y, anchor, text, .. } if spots.iter().any(|s| s.name == *text) => {
                    Some(area(*x, *y, *anchor, text))
                }
                _ => None,
            })
            .collect();
        assert_eq!(areas.len(), spots.len());
        for (n, area) in areas.iter().enumerate() {
            for other in &areas[n + 1..] {
                assert!(area.shared(other) < 1.0, "{area:?} {other:?}");
            }
        }
    }
}
