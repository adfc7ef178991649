//! `ceph.conf`: INI with sections, comments by `#` or `;`, values in quotes if need be, lines
//! continued by a backslash (`src/common/ConfUtils.cc` at v16.2).
//!
//! Settings before the first section belong to `global`. Names may be written with spaces. In a
//! repeated section the later setting wins.

use std::collections::BTreeMap;
use std::fmt;

/// The section of all daemons and clients.
const GLOBAL: &str = "global";

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfError {
    /// Line number from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// A parsed file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfFile {
    sections: BTreeMap<String, BTreeMap<String, String>>,
}

impl ConfFile {
    /// Parses a file's text.
    pub fn parse(text: &str) -> Result<ConfFile, ConfError> {
        let mut file = ConfFile::default();
        let mut section = GLOBAL.to_owned();
        for line in lines(text) {
            match line.meaning()? {
                Meaning::Nothing => {}
                Meaning::Section(name) => {
                    file.sections.entry(name.clone()).or_default();
                    section = name;
                }
                Meaning::Setting(name, value) => {
                    file.sections.entry(section.clone()).or_default().insert(name, value);
                }
            }
        }
        Ok(file)
    }

    /// The value of a name in one section.
    pub fn get(&self, section: &str, name: &str) -> Option<&str> {
        self.sections.get(section)?.get(name).map(String::as_str)
    }

    /// Names of the sections.
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        self.sections.keys().map(String::as_str)
    }

    /// Settings of one section.
    pub fn settings(&self, section: &str) -> impl Iterator<Item = (&str, &str)> {
        self.sections.get(section).into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

/// The file's text with `name` set for all daemons: in each section of all of them or of one kind that sets it, and at
/// the beginning of `[global]` if that does not. What single daemons and clients are told stays.
pub fn with_setting(text: &str, name: &str, value: &str) -> Result<String, ConfError> {
    const SECTIONS: [&str; 4] = [GLOBAL, "mon", "mgr", "osd"];
    let set = format!("{name} = {}\n", quoted(value));
    let mut section = GLOBAL.to_owned();
    let mut new = String::new();
    let mut is_global = false;
    // Where `[global]` begins.
    let mut begin = None;
    for line in lines(text) {
        match line.meaning()? {
            Meaning::Setting(of, _) if of == name && SECTIONS.contains(&&*section) => {
                is_global |= section == GLOBAL;
                new.push_str(&set);
                continue;
            }
            Meaning::Section(to) => section = to,
            _ => {}
        }
        new.push_str(line.raw);
        if !line.raw.ends_with('\n') {
            new.push('\n');
        }
        if begin.is_none() && section == GLOBAL && line.text.trim_start().starts_with('[') {
            begin = Some(new.len());
        }
    }
    match begin {
        _ if is_global => {}
        Some(at) => new.insert_str(at, &set),
        None => new.insert_str(0, &format!("[{GLOBAL}]\n{set}")),
    }
    Ok(new)
}

/// A value as it is written, so that [`ConfFile::parse`] and Ceph find it again. It has no line's end in it.
pub fn quoted(value: &str) -> String {
    /// To Ceph a comment begins within quotes, too, unless a backslash is before it.
    const ESCAPED: [char; 4] = ['\\', '"', '#', ';'];
    if value.trim() == value && !value.contains(ESCAPED) && !value.contains('\'') {
        return value.to_owned();
    }
    let mut text = "\"".to_owned();
    for c in value.chars() {
        if ESCAPED.contains(&c) {
            text.push('\\');
        }
        text.push(c);
    }
    text + "\""
}

/// A line with those that continue it.
struct Line<'a> {
    /// From 1.
    number: usize,
    /// All of them, with their ends.
    raw: &'a str,
    /// What they say together.
    text: String,
}

enum Meaning {
    Nothing,
    Section(String),
    Setting(String, String),
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut rest = text.trim_start_matches('\u{feff}');
    let mut next = 1;
    std::iter::from_fn(move || {
        let (begin, number) = (rest, next);
        let mut text = String::new();
        loop {
            let len = rest.find('\n').map_or(rest.len(), |at| at + 1);
            let (line, after) = rest.split_at(len);
            if line.is_empty() {
                break;
            }
            (rest, next) = (after, next + 1);
            text.push_str(line.trim_end_matches('\n').trim_end_matches('\r'));
            if !goes_on(&text) {
                break;
            }
            text.pop();
        }
        let raw = &begin[..begin.len() - rest.len()];
        (!raw.is_empty()).then_some(Line { number, raw, text })
    })
}

/// Whether a line goes on in the next: by a backslash at its end that is not escaped, nor in a comment.
fn goes_on(line: &str) -> bool {
    let (mut value, mut quote) = (None, None);
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        match (c, quote) {
            ('\\', _) => {
                if chars.next().is_none() {
                    return true;
                }
            }
            (c, Some(q)) if c == q => quote = None,
            (_, Some(_)) => {}
            ('#' | ';', None) => return false,
            ('=', None) if value.is_none() => value = Some(at + 1),
            // A value is in quotes if it begins with one.
            ('"' | '\'', None) if value.is_some_and(|from| line[from..at].trim().is_empty()) => {
                quote = Some(c);
            }
            _ => {}
        }
    }
    false
}

impl Line<'_> {
    fn meaning(&self) -> Result<Meaning, ConfError> {
        let error = |reason| ConfError { line: self.number, reason };
        let line = self.text.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            return Ok(Meaning::Nothing);
        }
        if let Some(rest) = line.strip_prefix('[') {
            let (name, after) = rest
                .split_once(']')
                .ok_or_else(|| error("a section starts with '[' but has no ']'"))?;
            let after = after.trim();
            if !after.is_empty() && !after.starts_with(['#', ';']) {
                return Err(error("text after a section's ']'"));
            }
            return match name.trim() {
                "" => Err(error("a section without a name")),
                name => Ok(Meaning::Section(name.to_owned())),
            };
        }
        let (name, value) =
            line.split_once('=').ok_or_else(|| error("neither [section] nor name = value"))?;
        let name = normalize_name(name);
        if name.is_empty() {
            return Err(error("no name before '='"));
        }
        if name.contains(['#', ';']) {
            return Err(error("a comment inside a name"));
        }
        let value = parse_value(value.trim()).map_err(error)?;
        Ok(Meaning::Setting(name, value))
    }
}

/// `mon  host ` is `mon_host`.
fn normalize_name(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join("_")
}

fn parse_value(text: &str) -> Result<String, &'static str> {
    let mut chars = text.chars();
    if let Some(quote @ ('"' | '\'')) = text.chars().next() {
        chars.next();
        let mut value = String::new();
        let mut closed = false;
        while let Some(c) = chars.next() {
            match c {
                '\\' => value.push(chars.next().ok_or("a backslash at the end of the file")?),
                c if c == quote => {
                    closed = true;
                    break;
                }
                c => value.push(c),
            }
        }
        if !closed {
            return Err("a quoted value without its closing quote");
        }
        let rest = chars.as_str().trim();
        if !rest.is_empty() && !rest.starts_with(['#', ';']) {
            return Err("text after a quoted value");
        }
        return Ok(value);
    }
    let mut value = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped) => value.push(escaped),
                None => value.push('\\'),
            },
            '#' | ';' => break,
            c => value.push(c),
        }
    }
    Ok(value.trim_end().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialect() {
        let file = ConfFile::parse(
            "fsid = x\n[global]\n\tmon host = a, \\\n  b ; where\n# c\n[osd.0] # first\n\
             osd_data = \"/a b;c\"\nosd data = /d\\;e\nk=\n",
        )
        .unwrap();
        assert_eq!(file.get("global", "fsid"), Some("x"));
        assert_eq!(file.get("global", "mon_host"), Some("a,   b"));
        assert_eq!(file.get("osd.0", "osd_data"), Some("/d;e"));
        assert_eq!(file.get("osd.0", "k"), Some(""));
    }

    /// A backslash at the end of a comment, or one that is escaped, took the next setting away.
    #[test]
    fn lines_go_on_as_ceph_conf_has_it() {
        let text = "[global]\na = 1 # see C:\\\nb = 2\nc = x\\\\\nd = \"p;\\\nq\" # \\\ne = 'it' \\\n\nf = 6\n";
        let file = ConfFile::parse(text).unwrap();
        let values = ["a", "b", "c", "d", "e", "f"].map(|name| file.get("global", name).unwrap());
        assert_eq!(values, ["1", "2", "x\\", "p;q", "it", "6"]);
    }

    /// A setting was put in front of those that the file had, so that it had no effect.
    #[test]
    fn a_setting_takes_the_place_of_others() {
        let text = "a = 0\n# a = 9\n[osd]\nb=1\n a = \\\n 2\n[osd.1]\na = 3\n[client]\na = 4\n\
                    [global]\nc = 5\n[mon]";
        let set = |name, value| with_setting(text, name, value).unwrap();
        let new = ConfFile::parse(&set("a", "x y;\\#\"'")).unwrap();
        let values =
            ["global", "osd", "osd.1", "client", "mon"].map(|section| new.get(section, "a"));
        let value = Some("x y;\\#\"'");
        assert_eq!(values, [value, value, Some("3"), Some("4"), None]);
        assert_eq!((new.get("osd", "b"), new.get("global", "c")), (Some("1"), Some("5")));
        let new = ConfFile::parse(&set("b", " 7")).unwrap();
        assert_eq!((new.get("global", "b"), new.get("osd", "b")), (Some(" 7"), Some(" 7")));
        assert_eq!(with_setting("", "b", "7").unwrap(), "[global]\nb = 7\n");
        assert_eq!(with_setting("[osd]", "b", "7").unwrap(), "[global]\nb = 7\n[osd]\n");
        assert_eq!(with_setting("a\n", "b", "7").unwrap_err().line, 1);
        assert!(
            set("d", "1").contains("# a = 9\n") && set("d", "1").contains("[global]\nd = 1\nc")
        );
    }

    /// A value with `;` or `#` was in quotes without a backslash before them: our own parser found it again, and every
    /// Ceph client refused the whole file.
    #[test]
    fn what_begins_a_comment_is_escaped_within_quotes() {
        // Each found again by ceph-conf of 16.2 as it is here.
        for (value, text) in [
            ("a;b", r#""a\;b""#),
            ("#1", r##""\#1""##),
            (r#"a"b\c"#, r#""a\"b\\c""#),
            ("it's", "\"it's\""),
            ("a=b, c", "a=b, c"),
        ] {
            assert_eq!(quoted(value), text);
            let file = ConfFile::parse(&format!("k = {text}\n")).unwrap();
            assert_eq!(file.get("global", "k"), Some(value));
        }
    }

    #[test]
    fn errors_name_the_line() {
        assert_eq!(ConfFile::parse("\n[global\n").unwrap_err().line, 2);
        assert_eq!(ConfFile::parse("[a]\nnonsense\n").unwrap_err().line, 2);
        assert!(ConfFile::parse("a = \"b\n").is_err());
    }
}
