//! What a figure is made of: rectangles, lines, areas and text, in pixels from the upper left.

/// Where a text's place is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// One thing drawn. Colours are `#rrggbb`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Mark {
    Rect {
        x: f32,
        y: f32,
        width: f32,
        height: f32,
        fill: &'static str,
    },
    Line {
        points: Vec<(f32, f32)>,
        colour: &'static str,
        width: f32,
        dashed: bool,
    },
    /// A filled polygon.
    Area {
        points: Vec<(f32, f32)>,
        fill: &'static str,
    },
    Circle {
        x: f32,
        y: f32,
        radius: f32,
        fill: &'static str,
    },
    /// `upright` text is turned a quarter to the left.
    Text {
        x: f32,
        y: f32,
        size: f32,
        anchor: Anchor,
        upright: bool,
        text: String,
    },
}

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drawing {
    pub(crate) width: f32,
    pub(crate) height: f32,
    pub(crate) marks: Vec<Mark>,
}

/// The colour of text and axes.
pub(crate) const INK: &str = "#222222";
/// The colour of lines that help to read values.
pub(crate) const GRID: &str = "#dddddd";

impl Drawing {
    pub(crate) fn new(width: f32, height: f32) -> Drawing {
        Drawing { width, height, marks: Vec::new() }
    }

    pub(crate) fn rect(&mut self, x: f32, y: f32, width: f32, height: f32, fill: &'static str) {
        self.marks.push(Mark::Rect { x, y, width, height, fill });
    }

    pub(crate) fn line(&mut self, points: Vec<(f32, f32)>, colour: &'static str, width: f32) {
        self.marks.push(Mark::Line { points, colour, width, dashed: false });
    }

    pub(crate) fn text(&mut self, x: f32, y: f32, size: f32, anchor: Anchor, text: &str) {
        let text = text.to_owned();
        self.marks.push(Mark::Text { x, y, size, anchor, upright: false, text });
    }

    /// As a file of its own; it may stand in HTML as it is.
    pub(crate) fn svg(&self) -> String {
        let (width, height) = (self.width, self.height);
        let mut all = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"DejaVu Sans, Verdana, sans-serif\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        self.marks.iter().for_each(|mark| all.push_str(&svg_of(mark)));
        all.push_str("</svg>\n");
        all
    }
}

fn svg_points(points: &[(f32, f32)]) -> String {
    points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

fn svg_of(mark: &Mark) -> String {
    match mark {
        Mark::Rect { x, y, width, height, fill } => format!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\"/>\n"
        ),
        Mark::Line { points, colour, width, dashed } => {
            let dashes = if *dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"{dashes}/>\n",
                svg_points(points)
            )
        }
        Mark::Area { points, fill } => {
            format!("<polygon points=\"{}\" fill=\"{fill}\"/>\n", svg_points(points))
        }
        Mark::Circle { x, y, radius, fill } => {
            format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\"/>\n")
        }
        Mark::Text { x, y, size, anchor, upright, text } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let turn = match upright {
                true => format!(" transform=\"rotate(-90 {x:.1} {y:.1})\""),
                false => String::new(),
            };
            format!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{INK}\"{turn}>{}</text>\n",
                escaped(text)
            )
        }
    }
}

/// Text as it may stand in HTML and SVG.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
