//! A life's diary as a person can read it: text, and a page with a drawing.
//!
//! ```text
//! faults    a bar for each, from its beginning to its end
//! maps      a line for each epoch, red while OSDs are down
//! clients   a bar for each operation: reads, writes, those never answered
//! finding   the end
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::diary::{Diary, What};

const WIDTH: f64 = 1400.0;
const LEFT: f64 = 130.0;
const ROW: f64 = 18.0;
/// Operations drawn and told at most: the last ones before the finding.
const OPS_MAX: usize = 3000;
const TOLD_MAX: usize = 400;

struct Bar {
    lane: String,
    from: Duration,
    to: Option<Duration>,
    colour: &'static str,
    title: String,
}

/// The object that the finding is about.
fn object_of(diary: &Diary) -> Option<String> {
    let finding = diary.lines.iter().find_map(|(_, what)| match what {
        What::Finding(text) => Some(text),
        _ => None,
    })?;
    let word = finding.split(|c: char| !c.is_ascii_alphanumeric()).find(|word| {
        word.strip_prefix("object").is_some_and(|n| !n.is_empty() && n.parse::<u64>().is_ok())
    })?;
    Some(word.to_owned())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// What happened, line by line: misfortunes, maps, the finding, and of the operations those of the
/// object that is to blame.
pub fn text(diary: &Diary) -> String {
    let blamed = object_of(diary);
    let mut asked: BTreeMap<u64, (&str, &str)> = BTreeMap::new();
    let mut lines = Vec::new();
    for (at, what) in &diary.lines {
        let (is_op, line) = match what {
            What::Begins(name) => (false, format!("--- {name} begins")),
            What::Ends(name) => (false, format!("--- {name} is over")),
            What::Note(note) => (false, format!("    {note}")),
            What::Map { epoch, up, members } => {
                (false, format!("    osdmap {epoch}: {} of {members} OSDs up {up:?}", up.len()))
            }
            What::Asked { op, who, object, action } => {
                if blamed.as_ref().is_some_and(|blamed| blamed != object) {
                    continue;
                }
                asked.insert(*op, (who, object));
                (true, format!("      {who} #{op} asks {object}: {action}"))
            }
            What::Answered { op, answer } => {
                let Some((who, object)) = asked.get(op) else { continue };
                (true, format!("      {who} #{op} is told of {object}: {answer}"))
            }
            What::Finding(text) => (false, format!("=== {text}")),
        };
        lines.push((is_op, format!("{:>10.4} {line}\n", at.as_secs_f64())));
    }
    let mut left_out = lines.iter().filter(|(is_op, _)| *is_op).count().saturating_sub(TOLD_MAX);
    let mut all = String::new();
    if left_out > 0 {
        let _ = writeln!(all, "(the first {left_out} lines of operations are left out)");
    }
    if diary.omitted > 0 {
        let _ = writeln!(all, "({} lines at the end were not kept)", diary.omitted);
    }
    for (is_op, line) in lines {
        if is_op && left_out > 0 {
            left_out -= 1;
            continue;
        }
        all.push_str(&line);
    }
    all
}

fn bars(diary: &Diary) -> Vec<Bar> {
    let mut faults: Vec<Bar> = Vec::new();
    let mut ops: BTreeMap<u64, Bar> = BTreeMap::new();
    let mut open: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, what) in &diary.lines {
        match what {
            What::Begins(name) => {
                let kind = name.split('-').next().unwrap_or_default();
                let (lane, title) = (format!("fault {kind}"), name.clone());
                open.insert(name, faults.len());
                faults.push(Bar { lane, from: *at, to: None, colour: "#e08214", title });
            }
            What::Ends(name) => {
                if let Some(index) = open.remove(name.as_str()) {
                    faults[index].to = Some(*at);
                }
            }
            What::Note(text) => {
                // To whichever misfortune began last; each has its name in the text below.
                if let Some(bar) = faults.last_mut() {
                    let _ = write!(bar.title, "\n{:.3} {text}", at.as_secs_f64());
                }
            }
            What::Asked { op, who, object, action } => {
                let is_read = action.starts_with("Read");
                let colour = if is_read { "#4393c3" } else { "#1b7837" };
                let title = format!("#{op} {object} {action}");
                ops.insert(*op, Bar { lane: who.clone(), from: *at, to: None, colour, title });
            }
            What::Answered { op, answer } => {
                if let Some(bar) = ops.get_mut(op) {
                    bar.to = Some(*at);
                    let _ = write!(bar.title, ": {answer}");
                }
            }
            What::Map { .. } | What::Finding(_) => {}
        }
    }
    for bar in ops.values_mut().filter(|bar| bar.to.is_none()) {
        bar.colour = "#b2182b";
    }
    let skip = ops.len().saturating_sub(OPS_MAX);
    faults.extend(ops.into_values().skip(skip));
    faults
}

/// A drawing of the life.
pub fn svg(diary: &Diary) -> String {
    let bars = bars(diary);
    let mut lanes: Vec<&str> = bars.iter().map(|bar| bar.lane.as_str()).collect();
    lanes.sort_by_key(|lane| (!lane.starts_with("fault"), *lane));
    lanes.dedup();
    let first = diary.lines.first().map_or(Duration::ZERO, |line| line.0).as_secs_f64();
    let last = diary.lines.last().map_or(Duration::ZERO, |line| line.0).as_secs_f64();
    let span = (last - first).max(0.001);
    let x = |at: f64| LEFT + (at - first) / span * (WIDTH - LEFT - 20.0);
    let height = (lanes.len() + 3) as f64 * ROW + 30.0;
    let bottom = height - 30.0;
    let mut all = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"DejaVu Sans, Verdana, sans-serif\" \
         font-size=\"11\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    let step =
        [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0].into_iter().find(|step| span / step < 25.0);
    let step = step.unwrap_or(600.0);
    let mut second = (first / step).ceil() * step;
    while second <= last {
        let at = x(second);
        let _ = writeln!(
            all,
            "<line x1=\"{at:.1}\" y1=\"0\" x2=\"{at:.1}\" y2=\"{bottom:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{second} s</text>",
            bottom + 14.0
        );
        second += step;
    }
    let _ = writeln!(all, "<text x=\"4\" y=\"{:.1}\">OSD maps</text>", ROW - 5.0);
    for (at, what) in &diary.lines {
        let (top, end, colour, title) = match what {
            What::Map { epoch, up, members } => {
                let colour = if up.len() < *members { "#b2182b" } else { "#666666" };
                (3.0, ROW - 3.0, colour, format!("osdmap {epoch}: up {up:?} of {members}"))
            }
            What::Finding(text) => (0.0, bottom, "#ff0000", text.chars().take(400).collect()),
            _ => continue,
        };
        let at = x(at.as_secs_f64());
        let _ = writeln!(
            all,
            "<line x1=\"{at:.1}\" y1=\"{top:.1}\" x2=\"{at:.1}\" y2=\"{end:.1}\" stroke=\"{colour}\" \
             stroke-width=\"2\"><title>{}</title></line>",
            escaped(&title)
        );
    }
    for (row, lane) in lanes.iter().enumerate() {
        let y = (row + 1) as f64 * ROW;
        let _ = writeln!(all, "<text x=\"4\" y=\"{:.1}\">{}</text>", y + ROW - 5.0, escaped(lane));
    }
    for bar in &bars {
        let row = lanes.iter().position(|lane| *lane == bar.lane).unwrap_or_default();
        let (from, to) = (bar.from.as_secs_f64(), bar.to.map_or(last, |to| to.as_secs_f64()));
        let _ = writeln!(
            all,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\" \
             fill-opacity=\"0.7\"><title>{}</title></rect>",
            x(from),
            (row + 1) as f64 * ROW + 3.0,
            (x(to) - x(from)).max(1.5),
            ROW - 6.0,
            bar.colour,
            escaped(&format!("{from:.4} to {to:.4}: {}", bar.title))
        );
    }
    all.push_str("</svg>\n");
    all
}

/// A page with the drawing and the text.
pub fn html(title: &str, diary: &Diary) -> String {
    format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>{0}</title></head>\n\
         <body style=\"font-family: sans-serif\">\n<h1>{0}</h1>\n<p>Misfortunes (orange), reads \
         (blue), writes (green), operations never answered (red), OSD maps (red while OSDs are \
         down), the finding (red line). Point at a bar to read it.</p>\n{1}<pre>{2}</pre>\n\
         </body></html>\n",
        escaped(title),
        svg(diary),
        escaped(&text(diary))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_tells_faults_maps_operations_and_the_finding() {
        let at = Duration::from_millis;
        let asked = |op, object: &str| What::Asked {
            op,
            who: "client.0".to_owned(),
            object: object.to_owned(),
            action: "Append { value: 1 }".to_owned(),
        };
        let lines = vec![
            (at(10), What::Begins("osd-0-1".to_owned())),
            (at(11), What::Note("osd.1 falls".to_owned())),
            (at(20), What::Map { epoch: 7, up: vec![0, 2], members: 3 }),
            (at(21), asked(1, "object3")),
            (at(22), asked(2, "object4")),
            (at(30), What::Answered { op: 1, answer: "<done>".to_owned() }),
            (at(40), What::Finding("object3: no order of the operations".to_owned())),
        ];
        let diary = Diary { lines, ..Diary::default() };
        let text = text(&diary);
        for part in ["osd-0-1 begins", "osd.1 falls", "osdmap 7", "client.0 #1 is told of object3"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("object4"), "another object's operation:\n{text}");
        let html = html("seed 1", &diary);
        assert!(html.contains("&lt;done&gt;") && !html.contains("<done>"));
        // Bars: the misfortune, an answered operation, one that was never answered.
        assert_eq!(html.matches("fill-opacity").count(), 3);
    }
}
