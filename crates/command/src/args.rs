//! The arguments of one command as they arrive: a JSON object of `prefix` and named values
//! (`src/common/cmdparse.cc` at v16.2).

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::{ArgType, Format, Signature};

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum ArgValue {
    /// Text.
    String(String),
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Texts.
    Strings(Vec<String>),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f64>),
}

/// Why a command's JSON is refused (EINVAL).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseError {
    /// No string, or an empty one.
    Empty,
    /// Not a JSON object.
    NotJson,
    /// A value of a kind no command takes.
    BadValue {
        /// The argument.
        field: String,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::Empty => f.write_str("no command specified"),
            ParseError::NotJson => f.write_str("unparseable JSON"),
            ParseError::BadValue { field } => write!(f, "bad type of value for '{field}'"),
        }
    }
}

/// An argument is of the wrong kind, out of its range, or missing (EINVAL).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadArgument {
    /// The argument.
    pub field: String,
}

impl fmt::Display for BadArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad or missing field '{}'", self.field)
    }
}

/// The named values of one command.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommandMap {
    values: BTreeMap<String, ArgValue>,
}

impl CommandMap {
    /// Parses a command's strings (they are joined: the tool sends one).
    pub fn parse(command: &[impl AsRef<[u8]>]) -> Result<CommandMap, ParseError> {
        let text: Vec<u8> = command.iter().flat_map(AsRef::as_ref).copied().collect();
        if text.is_empty() {
            return Err(ParseError::Empty);
        }
        // Ceph reads the first value and leaves what follows: `rbd perf image iostat` of 16.2 ends its
        // command with a quote too many.
        let mut values = serde_json::Deserializer::from_slice(&text).into_iter::<Value>();
        let Some(Ok(Value::Object(object))) = values.next() else {
            return Err(ParseError::NotJson);
        };
        let mut values = BTreeMap::new();
        for (key, value) in object {
            let value =
                convert(&value).ok_or_else(|| ParseError::BadValue { field: key.clone() })?;
            values.insert(key, value);
        }
        Ok(CommandMap { values })
    }

    /// The command's words; empty if there are none.
    pub fn prefix(&self) -> &str {
        match self.values.get("prefix") {
            Some(ArgValue::String(prefix)) => prefix,
            _ => "",
        }
    }

    /// Whether a prefix was given at all.
    pub fn has_prefix(&self) -> bool {
        matches!(self.values.get("prefix"), Some(ArgValue::String(_)))
    }

    /// The wanted output form.
    pub fn format(&self) -> Format {
        match self.values.get("format") {
            Some(ArgValue::String(name)) => Format::parse(name),
            _ => Format::Plain,
        }
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ArgValue)> {
        self.values.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The raw value.
    pub fn value(&self, key: &str) -> Option<&ArgValue> {
        self.values.get(key)
    }

    /// Sets a value.
    pub fn set(&mut self, key: &str, value: ArgValue) {
        self.values.insert(key.to_string(), value);
    }

    /// Whether the argument was given.
    pub fn contains(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// A text, if given.
    pub fn opt_string(&self, key: &str) -> Result<Option<String>, BadArgument> {
        match self.values.get(key) {
            None => Ok(None),
            Some(ArgValue::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(bad(key)),
        }
    }

    /// A text.
    pub fn string(&self, key: &str) -> Result<String, BadArgument> {
        self.opt_string(key)?.ok_or_else(|| bad(key))
    }

    /// A whole number, if given.
    pub fn opt_int(&self, key: &str) -> Result<Option<i64>, BadArgument> {
        match self.values.get(key) {
            None => Ok(None),
            Some(ArgValue::Int(n)) => Ok(Some(*n)),
            Some(_) => Err(bad(key)),
        }
    }

    /// A whole number.
    pub fn int(&self, key: &str) -> Result<i64, BadArgument> {
        self.opt_int(key)?.ok_or_else(|| bad(key))
    }

    /// A number, if given; a whole one will do.
    pub fn opt_float(&self, key: &str) -> Result<Option<f64>, BadArgument> {
        match self.values.get(key) {
            None => Ok(None),
            Some(ArgValue::Float(n)) => Ok(Some(*n)),
            Some(ArgValue::Int(n)) => Ok(Some(*n as f64)),
            Some(_) => Err(bad(key)),
        }
    }

    /// A number.
    pub fn float(&self, key: &str) -> Result<f64, BadArgument> {
        self.opt_float(key)?.ok_or_else(|| bad(key))
    }

    /// A flag; false if not given. Older tools send `--name-of-flag` as text.
    pub fn flag(&self, key: &str) -> bool {
        match self.values.get(key) {
            Some(ArgValue::Bool(b)) => *b,
            Some(ArgValue::String(text)) => {
                text == "true"
                    || text.strip_prefix("--").is_some_and(|t| t.replace('-', "_") == key)
            }
            Some(ArgValue::Strings(texts)) => texts
                .iter()
                .any(|text| text.strip_prefix("--").is_some_and(|t| t.replace('-', "_") == key)),
            _ => false,
        }
    }

    /// Texts of a repeated argument; none if not given. A single text counts as one.
    pub fn strings(&self, key: &str) -> Result<Vec<String>, BadArgument> {
        match self.values.get(key) {
            None => Ok(Vec::new()),
            Some(ArgValue::Strings(texts)) => Ok(texts.clone()),
            Some(ArgValue::String(text)) => Ok(vec![text.clone()]),
            Some(ArgValue::Ints(numbers)) if numbers.is_empty() => Ok(Vec::new()),
            Some(_) => Err(bad(key)),
        }
    }

    /// Numbers of a repeated argument.
    pub fn floats(&self, key: &str) -> Result<Vec<f64>, BadArgument> {
        match self.values.get(key) {
            None => Ok(Vec::new()),
            Some(ArgValue::Floats(numbers)) => Ok(numbers.clone()),
            Some(ArgValue::Ints(numbers)) => Ok(numbers.iter().map(|n| *n as f64).collect()),
            Some(ArgValue::Float(number)) => Ok(vec![*number]),
            Some(ArgValue::Int(number)) => Ok(vec![*number as f64]),
            Some(_) => Err(bad(key)),
        }
    }

    /// Checks kinds, choices and ranges against the signature.
    pub fn check(&self, signature: &Signature) -> Result<(), BadArgument> {
        for arg in signature.args() {
            let Some(value) = self.values.get(&arg.name) else {
                if arg.required {
                    return Err(bad(&arg.name));
                }
                continue;
            };
            let in_range = |n: f64| {
                arg.range.is_none_or(|(low, high)| n >= low && high.is_none_or(|high| n <= high))
            };
            let good = match (arg.kind, value) {
                (ArgType::Int, ArgValue::Int(n)) => in_range(*n as f64),
                (ArgType::Int, ArgValue::Ints(ns)) => ns.iter().all(|n| in_range(*n as f64)),
                (ArgType::Float, ArgValue::Int(n)) => in_range(*n as f64),
                (ArgType::Float, ArgValue::Float(n)) => in_range(*n),
                (ArgType::Float, ArgValue::Floats(ns)) => ns.iter().all(|n| in_range(*n)),
                (ArgType::Float, ArgValue::Ints(ns)) => ns.iter().all(|n| in_range(*n as f64)),
                (ArgType::Int | ArgType::Float, _) => false,
                (ArgType::Choices, ArgValue::String(word)) => arg.choices.contains(word),
                (ArgType::Choices, ArgValue::Strings(words)) => {
                    words.iter().all(|word| arg.choices.contains(word))
                }
                (ArgType::Choices, _) => false,
                _ => true,
            };
            if !good {
                return Err(bad(&arg.name));
            }
        }
        Ok(())
    }
}

fn bad(field: &str) -> BadArgument {
    BadArgument { field: field.to_string() }
}

fn convert(value: &Value) -> Option<ArgValue> {
    Some(match value {
        Value::String(text) => ArgValue::String(text.clone()),
        Value::Bool(b) => ArgValue::Bool(*b),
        Value::Number(n) => match n.as_i64() {
            Some(n) => ArgValue::Int(n),
            None => ArgValue::Float(n.as_f64()?),
        },
        Value::Array(items) => match items.first() {
            None => ArgValue::Strings(Vec::new()),
            Some(Value::String(_)) => ArgValue::Strings(
                items.iter().map(|v| v.as_str().map(str::to_string)).collect::<Option<_>>()?,
            ),
            Some(_) => match items.iter().map(Value::as_i64).collect::<Option<Vec<_>>>() {
                Some(ints) => ArgValue::Ints(ints),
                None => ArgValue::Floats(items.iter().map(Value::as_f64).collect::<Option<_>>()?),
            },
        },
        Value::Null | Value::Object(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rbd perf image iostat` of 16.2 sends a quote too many; it was refused as no JSON.
    #[test]
    fn what_follows_the_first_value_is_left() {
        let text = r#"{"prefix": "rbd perf image stats", "sort_by": "write_ops"}""#;
        let map = CommandMap::parse(&[format!("{text}\"")]).unwrap();
        assert_eq!(map.prefix(), "rbd perf image stats");
        assert!(CommandMap::parse(&["\"x\"".to_owned()]).is_err());
        assert!(CommandMap::parse(&[text[..20].to_owned()]).is_err());
    }

    #[test]
    fn values_keep_their_kinds() {
        let map = CommandMap::parse(&[
            r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"x":["a","b"],"yes_i":true,"f":0.5,"format":"json"}"#.to_string(),
        ])
        .unwrap();
        assert_eq!(map.prefix(), "osd pool create");
        assert_eq!(map.string("pool"), Ok("p".to_string()));
        assert_eq!(map.int("pg_num"), Ok(8));
        assert_eq!(map.strings("x"), Ok(vec!["a".to_string(), "b".to_string()]));
        assert!(map.flag("yes_i"));
        assert_eq!(map.float("f"), Ok(0.5));
        assert_eq!(map.format(), Format::Json);
        assert_eq!(map.int("pool").unwrap_err().to_string(), "bad or missing field 'pool'");
        assert_eq!(map.opt_int("none"), Ok(None));
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(CommandMap::parse(&[""; 0]), Err(ParseError::Empty));
        assert_eq!(CommandMap::parse(&["{".to_string()]), Err(ParseError::NotJson));
        assert_eq!(CommandMap::parse(&["[1]".to_string()]), Err(ParseError::NotJson));
    }
}
