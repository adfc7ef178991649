//! Figures 5 to 8: what is written each second by cause, stacked, and IOPS as a line with a scale
//! of its own, over time.

use super::canvas::{Anchor, Drawing, INK, Mark};
use super::frame::{Frame, legend, scale};
use crate::causes::Cause;

/// One interval that ends at `seconds`.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) seconds: f64,
    pub(crate) iops: f64,
    /// MB (10^6 bytes) a second, by cause.
    pub(crate) rates: Vec<(Cause, f64)>,
}

/// Draws them.
pub(crate) fn figure(title: &str, points: &[Point]) -> Drawing {
    let mut d = Drawing::new(960.0, 380.0);
    let frame = Frame { left: 70.0, top: 66.0, width: 806.0, height: 262.0 };
    d.text(frame.left, 20.0, 14.0, Anchor::Start, title);
    let rate =
        |p: &Point, cause| p.rates.iter().find(|(c, _)| *c == cause).map_or(0.0, |(_, v)| *v);
    let used = |cause: &Cause| points.iter().any(|p| rate(p, *cause) > 0.0);
    let causes: Vec<Cause> = Cause::ALL.into_iter().filter(used).collect();
    let mut entries: Vec<(&str, &'static str)> =
        causes.iter().map(|c| (c.title(), super::colour(*c))).collect();
    entries.push(("IOPS (line)", INK));
    legend(&mut d, &entries, (frame.left, 42.0), frame.right());
    let sum = |p: &Point| p.rates.iter().map(|(_, v)| v).sum::<f64>();
    let rates = scale(points.iter().map(sum).fold(0.0, f64::max));
    let iops = scale(points.iter().map(|p| p.iops).fold(0.0, f64::max));
    let end = points.last().map_or(1.0, |p| p.seconds);
    let (_, step) = scale(end);
    frame.left_scale(&mut d, rates, "MB/s written by the stores");
    let x = |p: &Point| frame.x(p.seconds / end);
    let mut below = vec![0.0; points.len()];
    for cause in causes {
        let low: Vec<(f32, f32)> =
            points.iter().zip(&below).map(|(p, v)| (x(p), frame.y(v / rates.0))).collect();
        for (p, v) in points.iter().zip(&mut below) {
            *v += rate(p, cause);
        }
        let mut outline: Vec<(f32, f32)> =
            points.iter().zip(&below).map(|(p, v)| (x(p), frame.y(v / rates.0))).collect();
        outline.extend(low.into_iter().rev());
        // What was written in the first interval was written from its beginning on.
        if let (Some(first), Some(last)) = (outline.first().copied(), outline.last().copied()) {
            outline.insert(0, (frame.left, first.1));
            outline.push((frame.left, last.1));
        }
        d.marks.push(Mark::Area { points: outline, fill: super::colour(cause) });
    }
    frame.right_scale(&mut d, iops, "IOPS");
    d.line(points.iter().map(|p| (x(p), frame.y(p.iops / iops.0))).collect(), INK, 1.6);
    frame.bottom_scale(&mut d, (end, step), "seconds");
    frame.border(&mut d);
    d
}
