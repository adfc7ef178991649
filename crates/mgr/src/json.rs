//! JSON as Ceph's modules in Python write it: ASCII, with blanks after commas and colons on one
//! line, or indented by 4 with sorted keys.

use serde_json::Value;

/// On one line, keys in their order.
pub(crate) fn compact(value: &Value) -> String {
    let mut out = String::new();
    write(value, None, &mut out);
    out
}

/// Over lines, keys sorted.
pub(crate) fn indented(value: &Value) -> String {
    let mut out = String::new();
    write(value, Some(0), &mut out);
    out
}

/// An object on one line with its keys in the given order; the values are JSON already.
pub(crate) fn object(pairs: &[(&str, String)]) -> String {
    let pair = |(key, value): &(&str, String)| format!("{}: {value}", quoted(key));
    format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(", "))
}

/// A text in quotes.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' '..='~' => out.push(c),
            c => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out += &format!("\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
    out
}

fn write(value: &Value, depth: Option<usize>, out: &mut String) {
    let inner = depth.map(|depth| depth + 1);
    let line = |out: &mut String, depth: Option<usize>| {
        if let Some(depth) = depth {
            out.push('\n');
            out.push_str(&" ".repeat(4 * depth));
        }
    };
    let comma = |out: &mut String, first: bool| match (first, depth) {
        (true, _) => {}
        (false, None) => out.push_str(", "),
        (false, Some(_)) => out.push(','),
    };
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                comma(out, i == 0);
                line(out, inner);
                write(item, inner, out);
            }
            line(out, depth);
            out.push(']');
        }
        Value::Object(pairs) if !pairs.is_empty() => {
            out.push('{');
            let mut pairs: Vec<_> = pairs.iter().collect();
            if depth.is_some() {
                pairs.sort_by_key(|(key, _)| *key);
            }
            for (i, (key, item)) in pairs.into_iter().enumerate() {
                comma(out, i == 0);
                line(out, inner);
                *out += &quoted(key);
                out.push_str(": ");
                write(item, inner, out);
            }
            line(out, depth);
            out.push('}');
        }
        Value::String(text) => *out += &quoted(text),
        other => *out += &other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn as_python_writes_it() {
        let value = json!({"b": [1, 2.0, null], "a": "é\"", "c": {}, "d": []});
        let one = r#"{"b": [1, 2.0, null], "a": "\u00e9\"", "c": {}, "d": []}"#;
        assert_eq!(compact(&value), one);
        assert_eq!(
            indented(&json!({"b": [1], "a": []})),
            "{\n    \"a\": [],\n    \"b\": [\n        1\n    ]\n}"
        );
    }
}
