//! What an argument of a command must look like: `key=value`, `key prefix x`, `key regex x`.

use core::fmt;
use std::collections::BTreeMap;

use regex_lite::Regex;

use super::cursor::Cursor;

/// A condition on one argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Constraint {
    /// This text.
    Equal(String),
    /// Begins with this text.
    Prefix(String),
    /// Matches this extended regular expression as a whole. One that does not compile matches
    /// nothing.
    Regex(String),
}

/// Conditions on the arguments of a command, by argument.
pub(crate) type Arguments = BTreeMap<String, Constraint>;

impl Constraint {
    /// Whether the argument's value fits.
    pub fn matches(&self, value: &str) -> bool {
        match self {
            Constraint::Equal(text) => text == value,
            Constraint::Prefix(text) => value.starts_with(text.as_str()),
            Constraint::Regex(text) => {
                Regex::new(&format!("^(?:{text})$")).is_ok_and(|regex| regex.is_match(value))
            }
        }
    }
}

/// Whether every constrained argument is there and fits.
pub(crate) fn all_match(arguments: &Arguments, given: &BTreeMap<String, String>) -> bool {
    arguments
        .iter()
        .all(|(key, constraint)| given.get(key).is_some_and(|value| constraint.matches(value)))
}

/// Reads `key=value [key=value]...` and the other two forms.
pub(crate) fn read_arguments(c: &mut Cursor<'_>) -> Option<Arguments> {
    let pair = |c: &mut Cursor<'_>| {
        let key = c.word()?;
        let constraint = c
            .attempt(|c| {
                c.spaces();
                let equals = c.literal("=");
                c.spaces();
                if equals { c.word().map(Constraint::Equal) } else { None }
            })
            .or_else(|| {
                c.attempt(|c| {
                    let found = c.keyword("prefix") && c.spaces();
                    if found { c.word().map(Constraint::Prefix) } else { None }
                })
            })
            .or_else(|| {
                c.attempt(|c| {
                    let found = c.keyword("regex") && c.spaces();
                    if found { c.word().map(Constraint::Regex) } else { None }
                })
            })?;
        Some((key, constraint))
    };
    let mut arguments = Arguments::from([c.attempt(pair)?]);
    while let Some((key, constraint)) = c.attempt(|c| if c.spaces() { pair(c) } else { None }) {
        arguments.insert(key, constraint);
    }
    Some(arguments)
}

/// Quotes a word that is not plain.
pub(crate) fn quoted(text: &str) -> String {
    if text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        text.to_owned()
    } else {
        format!("\"{text}\"")
    }
}

/// Prints ` key=value` and the other two forms.
pub(crate) fn write_arguments(f: &mut fmt::Formatter<'_>, arguments: &Arguments) -> fmt::Result {
    for (key, constraint) in arguments {
        let key = quoted(key);
        match constraint {
            Constraint::Equal(text) => write!(f, " {key}={}", quoted(text))?,
            Constraint::Prefix(text) => write!(f, " {key} prefix {}", quoted(text))?,
            Constraint::Regex(text) => write!(f, " {key} regex {}", quoted(text))?,
        }
    }
    Ok(())
}
