//! A cursor over a capability's text: the words all four grammars share. Every reader leaves the
//! cursor where it was when it finds nothing.

/// A place in a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Cursor<'a> {
        Cursor { rest: text }
    }

    /// What has not been read.
    pub(crate) fn rest(&self) -> &'a str {
        self.rest
    }

    /// Reads this very text.
    pub(crate) fn literal(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Skips white space; whether there was any.
    pub(crate) fn spaces(&mut self) -> bool {
        let rest = self.rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
        let any = rest.len() != self.rest.len();
        self.rest = rest;
        any
    }

    /// Reads as `read` does, or nothing at all.
    pub(crate) fn attempt<T>(
        &mut self,
        read: impl FnOnce(&mut Cursor<'a>) -> Option<T>,
    ) -> Option<T> {
        let mut ahead = *self;
        let value = read(&mut ahead)?;
        *self = ahead;
        Some(value)
    }

    /// White space, then this word.
    pub(crate) fn keyword(&mut self, word: &str) -> bool {
        self.attempt(|c| (c.spaces() && c.literal(word)).then_some(())).is_some()
    }

    /// `=` or white space.
    pub(crate) fn equals_or_spaces(&mut self) -> bool {
        self.literal("=") || self.spaces()
    }

    fn while_in(&mut self, allowed: impl Fn(char) -> bool) -> Option<String> {
        let end = self.rest.find(|c| !allowed(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then(|| word.to_owned())
    }

    fn quoted(&mut self) -> Option<String> {
        self.attempt(|c| {
            let quote = c.rest.chars().next().filter(|q| matches!(q, '"' | '\''))?;
            let (inside, rest) = c.rest[1..].split_once(quote)?;
            c.rest = rest;
            Some(inside.to_owned())
        })
    }

    /// A word, or a quoted text that is not empty.
    pub(crate) fn word(&mut self) -> Option<String> {
        self.attempt(|c| c.word_or_empty().filter(|word| !word.is_empty()))
    }

    /// A word, or a quoted text that may be empty.
    pub(crate) fn word_or_empty(&mut self) -> Option<String> {
        self.quoted().or_else(|| {
            self.while_in(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-'))
        })
    }

    /// `*` or `all`.
    pub(crate) fn wildcard(&mut self) -> bool {
        self.literal("*") || self.literal("all")
    }

    /// White space, `network`, white space, a network.
    pub(crate) fn network(&mut self) -> Option<super::Network> {
        self.attempt(|c| {
            let found = c.keyword("network") && c.spaces();
            let text = if found {
                c.while_in(|c| c.is_ascii_hexdigit() || matches!(c, '/' | '.' | ':' | '[' | ']'))
            } else {
                None
            };
            text.map(super::Network::new)
        })
    }

    /// `r`, `w`, `x` in this order, at least one.
    pub(crate) fn rwx(&mut self) -> Option<[bool; 3]> {
        let found = ["r", "w", "x"].map(|letter| self.literal(letter));
        found.contains(&true).then_some(found)
    }
}

/// Reads `grant [, grant]...` with `,` or `;` between; the grants, and what could not be read.
pub(crate) fn grants<'a, T>(
    text: &'a str,
    grant: impl Fn(&mut Cursor<'a>) -> Option<T>,
) -> (Vec<T>, &'a str) {
    let mut cursor = Cursor::new(text);
    let mut found = Vec::new();
    let spaced = |c: &mut Cursor<'a>| {
        c.attempt(|c| {
            c.spaces();
            let value = grant(c)?;
            c.spaces();
            Some(value)
        })
    };
    while let Some(value) = match found.is_empty() {
        true => spaced(&mut cursor),
        false => {
            cursor.attempt(|c| if c.literal(",") || c.literal(";") { spaced(c) } else { None })
        }
    } {
        found.push(value);
    }
    (found, cursor.rest())
}
