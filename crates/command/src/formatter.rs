//! Structured output: one sequence of calls gives JSON or XML with Ceph's exact white space
//! (`src/common/Formatter.cc` at v16.2).
//!
//! Sections nest; names are ignored for what stands in a JSON array. JSON numbers of type float
//! have 17 significant digits.

use std::borrow::Cow;
use std::fmt::{Display, Write};

use crate::format_g;

/// The form of a command's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Text for people; a [`Formatter`] made of it writes pretty JSON.
    #[default]
    Plain,
    /// JSON without white space.
    Json,
    /// JSON indented by 4.
    JsonPretty,
    /// XML without white space.
    Xml,
    /// XML indented by 1.
    XmlPretty,
}

impl Format {
    /// The form named by `--format`; what Ceph does not know is plain.
    pub fn parse(name: &str) -> Format {
        match name {
            "json" => Format::Json,
            "json-pretty" => Format::JsonPretty,
            "xml" => Format::Xml,
            "xml-pretty" => Format::XmlPretty,
            _ => Format::Plain,
        }
    }

    /// Whether output is for people.
    pub fn is_plain(self) -> bool {
        self == Format::Plain
    }
}

#[derive(Debug)]
struct Section {
    name: String,
    is_array: bool,
    entries: usize,
}

/// A document under construction.
#[derive(Debug)]
pub struct Formatter {
    out: String,
    open: Vec<Section>,
    xml: bool,
    pretty: bool,
}

impl Formatter {
    /// An empty document.
    pub fn new(format: Format) -> Formatter {
        Formatter {
            out: String::new(),
            open: Vec::new(),
            xml: matches!(format, Format::Xml | Format::XmlPretty),
            pretty: matches!(format, Format::Plain | Format::JsonPretty | Format::XmlPretty),
        }
    }

    /// Opens an object.
    pub fn open_object_section(&mut self, name: &str) {
        self.open_section(name, false);
    }

    /// Opens an array.
    pub fn open_array_section(&mut self, name: &str) {
        self.open_section(name, true);
    }

    /// Closes the innermost section.
    ///
    /// # Panics
    /// If none is open: opening and closing are paired in code.
    pub fn close_section(&mut self) {
        let section = self.open.pop().expect("a section to close");
        if self.xml {
            if self.pretty {
                self.spaces();
            }
            let _ = write!(self.out, "</{}>", section.name);
            if self.pretty {
                self.out.push('\n');
            }
            return;
        }
        if self.pretty && section.entries > 0 {
            self.line();
        }
        self.out.push(if section.is_array { ']' } else { '}' });
        if self.pretty && self.open.is_empty() {
            self.out.push('\n');
        }
    }

    /// An object whose members `fill` writes.
    pub fn object(&mut self, name: &str, fill: impl FnOnce(&mut Formatter)) {
        self.open_object_section(name);
        fill(self);
        self.close_section();
    }

    /// An array whose elements `fill` writes.
    pub fn array(&mut self, name: &str, fill: impl FnOnce(&mut Formatter)) {
        self.open_array_section(name);
        fill(self);
        self.close_section();
    }

    /// A natural number.
    pub fn dump_unsigned(&mut self, name: &str, value: impl Into<u64>) {
        self.value(name, &value.into().to_string(), false);
    }

    /// An integer.
    pub fn dump_int(&mut self, name: &str, value: impl Into<i64>) {
        self.value(name, &value.into().to_string(), false);
    }

    /// A floating-point number with 17 significant digits.
    pub fn dump_float(&mut self, name: &str, value: f64) {
        self.value(name, &format_g(value, 17), false);
    }

    /// `true` or `false`.
    pub fn dump_bool(&mut self, name: &str, value: bool) {
        self.value(name, if value { "true" } else { "false" }, false);
    }

    /// A text.
    pub fn dump_string(&mut self, name: &str, value: impl AsRef<str>) {
        self.value(name, value.as_ref(), true);
    }

    /// The text that `value` prints.
    pub fn dump_stream(&mut self, name: &str, value: impl Display) {
        self.value(name, &value.to_string(), true);
    }

    /// The text of `value`, written without quotes in JSON.
    pub fn dump_unquoted(&mut self, name: &str, value: impl Display) {
        self.value(name, &value.to_string(), false);
    }

    /// The document; sections still open are closed.
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close_section();
        }
        self.out
    }

    fn open_section(&mut self, name: &str, is_array: bool) {
        let name = &*self.element(name);
        if self.xml {
            self.spaces();
            let _ = write!(self.out, "<{name}>");
            if self.pretty {
                self.out.push('\n');
            }
        } else {
            self.key(name);
            self.out.push(if is_array { '[' } else { '{' });
        }
        self.open.push(Section { name: name.to_string(), is_array, entries: 0 });
    }

    /// A name as the format can have it: of an XML element without spaces.
    fn element<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match self.xml && name.contains(' ') {
            true => name.replace(' ', "_").into(),
            false => name.into(),
        }
    }

    fn value(&mut self, name: &str, value: &str, quoted: bool) {
        let name = &*self.element(name);
        if self.xml {
            self.spaces();
            let _ = write!(self.out, "<{name}>");
            escape_xml(&mut self.out, value);
            let _ = write!(self.out, "</{name}>");
            if self.pretty {
                self.out.push('\n');
            }
            return;
        }
        self.key(name);
        if quoted {
            self.out.push('"');
            escape_json(&mut self.out, value);
            self.out.push('"');
        } else {
            self.out.push_str(value);
        }
    }

    /// Comma, line break and name before a JSON entry.
    fn key(&mut self, name: &str) {
        let (pretty, depth) = (self.pretty, self.open.len());
        let Some(section) = self.open.last_mut() else { return };
        if section.entries > 0 {
            self.out.push(',');
        }
        section.entries += 1;
        let in_object = !section.is_array;
        if pretty {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str("    ");
            }
        }
        if in_object {
            self.out.push('"');
            escape_json(&mut self.out, name);
            self.out.push_str(if pretty { "\": " } else { "\":" });
        }
    }

    fn line(&mut self) {
        self.out.push('\n');
        for _ in 0..self.open.len() {
            self.out.push_str("    ");
        }
    }

    fn spaces(&mut self) {
        if self.pretty {
            for _ in 0..self.open.len() {
                self.out.push(' ');
            }
        }
    }
}

fn escape_json(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
}

fn escape_xml(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            c if ((c as u32) < 0x20 && !matches!(c, '\t' | '\n' | '\r')) || c as u32 == 0x7f => {
                let _ = write!(out, "&#x{:02x};", c as u32);
            }
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(format: Format) -> String {
        let mut f = Formatter::new(format);
        f.open_object_section("top");
        f.dump_unsigned("n", 3u32);
        f.array("list", |f| {
            f.dump_string("x", "a\"b");
            f.dump_float("y", 0.5);
        });
        f.array("empty", |_| {});
        f.object("o", |f| f.dump_bool("b", true));
        f.close_section();
        f.finish()
    }

    #[test]
    fn json_has_no_space() {
        assert_eq!(
            sample(Format::Json),
            r#"{"n":3,"list":["a\"b",0.5],"empty":[],"o":{"b":true}}"#
        );
    }

    #[test]
    fn pretty_json_indents_by_four_and_keeps_empty_sections_closed() {
        assert_eq!(
            sample(Format::JsonPretty),
            "{\n    \"n\": 3,\n    \"list\": [\n        \"a\\\"b\",\n        0.5\n    ],\n    \
             \"empty\": [],\n    \"o\": {\n        \"b\": true\n    }\n}\n"
        );
    }

    /// `pg dump -f xml` had elements called `last update`, which no reader of XML takes.
    #[test]
    fn xml_elements_have_no_spaces_in_their_names() {
        let document = |format| {
            let mut f = Formatter::new(format);
            f.object("ping times", |f| f.dump_string("last update", "a b"));
            f.finish()
        };
        assert_eq!(
            document(Format::Xml),
            "<ping_times><last_update>a b</last_update></ping_times>"
        );
        assert_eq!(document(Format::Json), "{\"last update\":\"a b\"}");
    }

    #[test]
    fn xml_names_every_element() {
        assert_eq!(
            sample(Format::Xml),
            "<top><n>3</n><list><x>a&quot;b</x><y>0.5</y></list><empty></empty>\
             <o><b>true</b></o></top>"
        );
    }
}
