//! A figure's axes: a rectangle with scales on its sides.

use super::canvas::{Anchor, Drawing, GRID, INK, Mark};

/// The inside of the axes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) left: f32,
    pub(crate) top: f32,
    pub(crate) width: f32,
    pub(crate) height: f32,
}

/// A round number at least as large as `max`, and the step of its scale.
pub(crate) fn scale(max: f64) -> (f64, f64) {
    const STEPS_MAX: f64 = 6.0;
    let max = if max > 0.0 { max * 1.02 } else { 1.0 };
    let rough = max / STEPS_MAX;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|n| n * power).find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    ((max / step).ceil() * step, step)
}

/// A number on a scale, no longer than it must be.
pub(crate) fn number(value: f64) -> String {
    match value {
        v if v >= 10_000.0 => format!("{}k", number(v / 1000.0)),
        v if v.fract() == 0.0 => format!("{v:.0}"),
        v if (v * 10.0).fract().abs() < 1e-9 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

impl Frame {
    pub(crate) fn right(&self) -> f32 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> f32 {
        self.top + self.height
    }

    /// Where a share of the height is, from below.
    pub(crate) fn y(&self, share: f64) -> f32 {
        self.bottom() - self.height * share as f32
    }

    /// Where a share of the width is.
    pub(crate) fn x(&self, share: f64) -> f32 {
        self.left + self.width * share as f32
    }

    /// The scale on the left with lines across, and what it counts.
    pub(crate) fn left_scale(&self, d: &mut Drawing, (max, step): (f64, f64), what: &str) {
        for n in 0..=(max / step).round() as u32 {
            let value = f64::from(n) * step;
            let y = self.y(value / max);
            if n > 0 {
                d.line(vec![(self.left, y), (self.right(), y)], GRID, 1.0);
            }
            d.text(self.left - 6.0, y + 4.0, 11.0, Anchor::End, &number(value));
        }
        self.upright(d, self.left - 46.0, what);
    }

    /// The scale on the right, and what it counts.
    pub(crate) fn right_scale(&self, d: &mut Drawing, (max, step): (f64, f64), what: &str) {
        for n in 0..=(max / step).round() as u32 {
            let value = f64::from(n) * step;
            let y = self.y(value / max);
            d.line(vec![(self.right(), y), (self.right() + 4.0, y)], INK, 1.0);
            d.text(self.right() + 7.0, y + 4.0, 11.0, Anchor::Start, &number(value));
        }
        self.upright(d, self.right() + 56.0, what);
    }

    /// The scale below, and what it counts.
    pub(crate) fn bottom_scale(&self, d: &mut Drawing, (max, step): (f64, f64), what: &str) {
        for n in 0..=(max / step).floor() as u32 {
            let value = f64::from(n) * step;
            let x = self.x(value / max);
            d.line(vec![(x, self.bottom()), (x, self.bottom() + 4.0)], INK, 1.0);
            d.text(x, self.bottom() + 17.0, 11.0, Anchor::Middle, &number(value));
        }
        let middle = self.left + self.width / 2.0;
        d.text(middle, self.bottom() + 34.0, 12.0, Anchor::Middle, what);
    }

    fn upright(&self, d: &mut Drawing, x: f32, what: &str) {
        d.marks.push(Mark::Text {
            x,
            y: self.top + self.height / 2.0,
            size: 12.0,
            anchor: Anchor::Middle,
            upright: true,
            text: what.to_owned(),
        });
    }

    /// The rectangle itself, over what is in it.
    pub(crate) fn border(&self, d: &mut Drawing) {
        let (l, t, r, b) = (self.left, self.top, self.right(), self.bottom());
        d.line(vec![(l, t), (r, t), (r, b), (l, b), (l, t)], INK, 1.0);
    }
}

/// Names with their colours in a row from `x` on, broken into lines at `right`; the last `y`.
pub(crate) fn legend(
    d: &mut Drawing,
    entries: &[(&str, &'static str)],
    (x, y): (f32, f32),
    right: f32,
) -> f32 {
    let (mut at, mut line) = (x, y);
    for (name, colour) in entries {
        // About the width of the font's letters.
        let width = 16.0 + name.chars().count() as f32 * 6.9 + 14.0;
        if at + width > right && at > x {
            (at, line) = (x, line + 17.0);
        }
        d.rect(at, line - 9.0, 10.0, 10.0, colour);
        d.text(at + 15.0, line, 11.0, Anchor::Start, name);
        at += width;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_round() {
        assert_eq!(scale(0.0), (1.0, 0.2));
        for max in [0.3, 1.0, 3.9, 67.375, 38_739.0] {
            let (end, step) = scale(max);
            assert!(end >= max && end / step <= 7.0 && end < max * 1.6, "{max}: {end}, {step}");
        }
        assert_eq!(
            (number(2.5), number(40_000.0), number(0.25)),
            ("2.5".into(), "40k".into(), "0.25".into())
        );
    }
}
