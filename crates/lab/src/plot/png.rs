//! A figure as PNG: shapes by `tiny-skia`, text from outlines of the font that is part of the
//! binary, so that a machine without fonts draws the same.

use tiny_skia::{Color, FillRule, Paint, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform};
use ttf_parser::{Face, OutlineBuilder};

use super::canvas::{Anchor, Drawing, INK, Mark};
use crate::LabError;

/// DejaVu Sans, the letters that figures use (`font/LICENSE`).
const FONT: &[u8] = include_bytes!("../../font/DejaVuSans-subset.ttf");

fn paint(colour: &str) -> Paint<'static> {
    let digits = u32::from_str_radix(colour.trim_start_matches('#'), 16).unwrap_or(0);
    let [_, red, green, blue] = digits.to_be_bytes();
    let mut paint = Paint::default();
    paint.set_color(Color::from_rgba8(red, green, blue, 255));
    paint.anti_alias = true;
    paint
}

/// Draws at `scale` pixels for each of the figure's.
pub(super) fn render(drawing: &Drawing, scale: f32) -> Result<Vec<u8>, LabError> {
    let fail = |what: String| LabError::new(format!("cannot draw a figure: {what}"));
    let face = Face::parse(FONT, 0).map_err(|e| fail(e.to_string()))?;
    let pixels = |length: f32| (length * scale).ceil() as u32;
    let (width, height) = (pixels(drawing.width), pixels(drawing.height));
    let mut pixmap =
        Pixmap::new(width, height).ok_or_else(|| fail(format!("{width} x {height} pixels")))?;
    pixmap.fill(Color::WHITE);
    let transform = Transform::from_scale(scale, scale);
    for mark in &drawing.marks {
        draw(&mut pixmap, transform, &face, mark);
    }
    pixmap.encode_png().map_err(|e| fail(e.to_string()))
}

fn path_of(points: &[(f32, f32)]) -> PathBuilder {
    let mut path = PathBuilder::new();
    for (n, (x, y)) in points.iter().enumerate() {
        match n {
            0 => path.move_to(*x, *y),
            _ => path.line_to(*x, *y),
        }
    }
    path
}

fn draw(pixmap: &mut Pixmap, transform: Transform, face: &Face<'_>, mark: &Mark) {
    match mark {
        Mark::Rect { x, y, width, height, fill } => {
            if let Some(rect) = Rect::from_xywh(*x, *y, *width, *height) {
                pixmap.fill_rect(rect, &paint(fill), transform, None);
            }
        }
        Mark::Line { points, colour, width, dashed } => {
            let dash = if *dashed { StrokeDash::new(vec![5.0, 4.0], 0.0) } else { None };
            let stroke = Stroke { width: *width, dash, ..Stroke::default() };
            if let Some(path) = path_of(points).finish() {
                pixmap.stroke_path(&path, &paint(colour), &stroke, transform, None);
            }
        }
        Mark::Area { points, fill } => {
            let mut path = path_of(points);
            path.close();
            if let Some(path) = path.finish() {
                pixmap.fill_path(&path, &paint(fill), FillRule::Winding, transform, None);
            }
        }
        Mark::Circle { x, y, radius, fill } => {
            if let Some(path) = PathBuilder::from_circle(*x, *y, *radius) {
                pixmap.fill_path(&path, &paint(fill), FillRule::Winding, transform, None);
            }
        }
        Mark::Text { x, y, size, anchor, upright, text } => {
            let em = *size / f32::from(face.units_per_em());
            let (outlines, length) = outlines(face, text);
            let back = match anchor {
                Anchor::Start => 0.0,
                Anchor::Middle => length / 2.0,
                Anchor::End => length,
            };
            let turn = if *upright { -90.0 } else { 0.0 };
            // From the font's units (y goes up) to the place in the figure.
            let place = transform
                .pre_translate(*x, *y)
                .pre_concat(Transform::from_rotate(turn))
                .pre_scale(em, -em)
                .pre_translate(-back, 0.0);
            if let Some(path) = outlines.finish() {
                pixmap.fill_path(&path, &paint(INK), FillRule::Winding, place, None);
            }
        }
    }
}

/// A glyph's outline moved to its place in the line.
struct Outline<'a> {
    path: &'a mut PathBuilder,
    x: f32,
}

impl OutlineBuilder for Outline<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        self.path.move_to(self.x + x, y);
    }
    fn line_to(&mut self, x: f32, y: f32) {
        self.path.line_to(self.x + x, y);
    }
    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.path.quad_to(self.x + x1, y1, self.x + x, y);
    }
    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.path.cubic_to(self.x + x1, y1, self.x + x2, y2, self.x + x, y);
    }
    fn close(&mut self) {
        self.path.close();
    }
}

/// A line of text and its length, in the font's units.
fn outlines(face: &Face<'_>, text: &str) -> (PathBuilder, f32) {
    let (mut path, mut x) = (PathBuilder::new(), 0.0);
    for letter in text.chars() {
        let Some(glyph) = face.glyph_index(letter) else { continue };
        face.outline_glyph(glyph, &mut Outline { path: &mut path, x });
        x += f32::from(face.glyph_hor_advance(glyph).unwrap_or(0));
    }
    (path, x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_in_the_image() {
        let mut drawing = Drawing::new(40.0, 20.0);
        drawing.rect(10.0, 5.0, 20.0, 10.0, "#ff0000");
        let png = render(&drawing, 1.0).unwrap();
        let image = Pixmap::decode_png(&png).unwrap();
        let at = |x, y| image.pixel(x, y).unwrap();
        assert_eq!((at(20, 10).red(), at(20, 10).green()), (255, 0));
        assert_eq!((at(2, 2).red(), at(2, 2).green()), (255, 255));
        let mut drawing = Drawing::new(100.0, 20.0);
        drawing.text(2.0, 15.0, 12.0, Anchor::Start, "WAF");
        let image = Pixmap::decode_png(&render(&drawing, 1.0).unwrap()).unwrap();
        let dark = image.pixels().iter().filter(|p| p.red() < 128).count();
        assert!((20..400).contains(&dark), "{dark} dark pixels of a word");
    }
}
