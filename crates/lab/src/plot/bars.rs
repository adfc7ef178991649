//! Figure 4: for each request size four bars, one for each write, stacked by cause.

use super::canvas::{Anchor, Drawing, INK, Mark};
use super::frame::{Frame, legend, scale};
use crate::causes::Cause;

/// The bars of one request size: a label, and for each bar its parts from below.
pub(crate) struct Group {
    pub(crate) label: String,
    pub(crate) bars: Vec<Vec<(Cause, f64)>>,
}

/// Draws them; `marks` are written under the bars, `limit` is a dashed line (where the paper's
/// bars end up).
pub(crate) fn figure(
    title: &str,
    groups: &[Group],
    marks: &[&str],
    limit: Option<(f64, &str)>,
) -> Drawing {
    let mut d = Drawing::new(960.0, 400.0);
    let frame = Frame { left: 64.0, top: 62.0, width: 880.0, height: 262.0 };
    d.text(frame.left, 20.0, 14.0, Anchor::Start, title);
    let used = |cause: &Cause| {
        groups.iter().flat_map(|g| &g.bars).flatten().any(|(c, v)| c == cause && *v > 0.0)
    };
    let entries: Vec<(&str, &'static str)> =
        Cause::ALL.into_iter().filter(used).map(|c| (c.title(), super::colour(c))).collect();
    legend(&mut d, &entries, (frame.left, 42.0), frame.right());
    let sums = groups.iter().flat_map(|g| &g.bars).map(|bar| bar.iter().map(|(_, v)| v).sum());
    let max = sums.fold(limit.map_or(0.0, |(v, _)| v), f64::max);
    let axis = scale(max);
    frame.left_scale(&mut d, axis, "bytes written / byte of the client");
    let slot = frame.width / groups.len().max(1) as f32;
    for (n, group) in groups.iter().enumerate() {
        let left = frame.left + slot * n as f32;
        let count = group.bars.len().max(1) as f32;
        // Bars take four fifths of their group's place.
        let width = (slot * 0.8 / count).min(60.0);
        let begin = left + (slot - width * count) / 2.0;
        for (m, bar) in group.bars.iter().enumerate() {
            let x = begin + width * m as f32;
            let mut below = 0.0;
            for (cause, value) in bar {
                let (low, high) = (frame.y(below / axis.0), frame.y((below + value) / axis.0));
                d.rect(x + 0.5, high, width - 1.0, low - high, super::colour(*cause));
                below += value;
            }
            let mark = marks.get(m).copied().unwrap_or("");
            d.text(x + width / 2.0, frame.bottom() + 12.0, 9.0, Anchor::Middle, mark);
        }
        d.text(left + slot / 2.0, frame.bottom() + 28.0, 11.0, Anchor::Middle, &group.label);
    }
    if let Some((value, what)) = limit {
        let y = frame.y(value / axis.0);
        let points = vec![(frame.left, y), (frame.right(), y)];
        d.marks.push(Mark::Line { points, colour: INK, width: 1.2, dashed: true });
        // Legible over bars, too: about the width of the font's letters.
        let width = what.chars().count() as f32 * 5.8 + 4.0;
        d.rect(frame.right() - 4.0 - width, y - 15.0, width + 2.0, 13.0, "#ffffff");
        d.text(frame.right() - 4.0, y - 5.0, 10.0, Anchor::End, what);
    }
    frame.border(&mut d);
    let middle = frame.left + frame.width / 2.0;
    d.text(middle, frame.bottom() + 46.0, 12.0, Anchor::Middle, "request size");
    let key = "1 = 1ST WRITE, 2 = 2ND WRITE, 3 = 3RD WRITE (behind a hole), O = OVERWRITE";
    d.text(middle, frame.bottom() + 64.0, 10.0, Anchor::Middle, key);
    d
}
