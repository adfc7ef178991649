//! `ceph.conf`: INI with sections, comments by `#` or `;`, values in quotes if need be, lines
//! continued by a backslash (`src/common/ConfUtils.cc` at v16.2).
//!
//! Settings before the first section belong to `global`. Names may be written with spaces. In a
//! repeated section the later setting wins.

use std::collections::BTreeMap;
use std::fmt;

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
        let mut section = "global".to_string();
        let mut lines = text.trim_start_matches('\u{feff}').lines().enumerate();
        while let Some((index, first)) = lines.next() {
            let error = |reason| ConfError { line: index + 1, reason };
            let mut line = first.trim_end_matches('\r').to_string();
            while line.ends_with('\\') && !line.trim_start().starts_with(['#', ';']) {
                line.pop();
                match lines.next() {
                    Some((_, next)) => line.push_str(next.trim_end_matches('\r')),
                    None => break,
                }
            }
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let (name, after) = rest
                    .split_once(']')
                    .ok_or_else(|| error("a section starts with '[' but has no ']'"))?;
                let after = after.trim();
                if !after.is_empty() && !after.starts_with(['#', ';']) {
                    return Err(error("text after a section's ']'"));
                }
                section = name.trim().to_string();
                if section.is_empty() {
                    return Err(error("a section without a name"));
                }
                file.sections.entry(section.clone()).or_default();
                continue;
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
            file.sections.entry(section.clone()).or_default().insert(name, value);
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

    #[test]
    fn errors_name_the_line() {
        assert_eq!(ConfFile::parse("\n[global\n").unwrap_err().line, 2);
        assert_eq!(ConfFile::parse("[a]\nnonsense\n").unwrap_err().line, 2);
        assert!(ConfFile::parse("a = \"b\n").is_err());
    }
}
