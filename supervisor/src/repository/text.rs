//! Reads protobuf's text format, of which `config.pbtxt` is written: fields with numbers, words, texts, messages and
//! lists. Knows no schema. Every error has its line and column.

use std::fmt;
use std::iter::Peekable;
use std::str::CharIndices;

/// How deep messages may lie in each other.
const DEPTH_MAX: usize = 16;

/// A place in the text, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    line: usize,
    column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// What is wrong with the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {reason}")]
pub(super) struct TextError {
    at: Place,
    reason: String,
}

impl TextError {
    pub(super) fn new(at: Place, reason: impl Into<String>) -> Self {
        Self { at, reason: reason.into() }
    }
}

/// A field. One that is written as a list is here once for each of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) at: Place,
    pub(super) value: Value,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A number or a word, as it is written.
    Bare(String),
    /// A text in quotes.
    Text(String),
    Message(Vec<Field>),
}

impl Field {
    fn expects(&self, what: &str) -> TextError {
        TextError::new(self.at, format!("`{}` needs {what}", self.name))
    }

    /// A text in quotes.
    pub(super) fn text(&self) -> Result<&str, TextError> {
        match &self.value {
            Value::Text(text) => Ok(text),
            Value::Bare(_) | Value::Message(_) => Err(self.expects("a text in quotes")),
        }
    }

    /// A word, such as `TYPE_FP32`.
    pub(super) fn word(&self) -> Result<&str, TextError> {
        match &self.value {
            Value::Bare(word) => Ok(word),
            Value::Text(_) | Value::Message(_) => Err(self.expects("a word without quotes")),
        }
    }

    /// A whole number of this type.
    pub(super) fn number<N: std::str::FromStr>(&self) -> Result<N, TextError> {
        let number = self.word().ok().and_then(|word| word.parse().ok());
        number.ok_or_else(|| self.expects("a whole number that is not too large"))
    }

    /// The fields of a message.
    pub(super) fn message(&self) -> Result<&[Field], TextError> {
        match &self.value {
            Value::Message(fields) => Ok(fields),
            Value::Bare(_) | Value::Text(_) => Err(self.expects("a message in braces")),
        }
    }
}

/// The fields of a text.
pub(super) fn parse(text: &str) -> Result<Vec<Field>, TextError> {
    let mut parser = Parser { text, chars: text.char_indices().peekable() };
    let fields = parser.fields(0, None)?;
    Ok(fields)
}

struct Parser<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
}

impl Parser<'_> {
    /// Where the next character is.
    fn here(&mut self) -> Place {
        let at = self.chars.peek().map_or(self.text.len(), |&(at, _)| at);
        let before = &self.text[..at];
        let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = 1 + before.bytes().filter(|&byte| byte == b'\n').count();
        Place { line, column: 1 + before[begin..].chars().count() }
    }

    fn wrong<T>(&mut self, reason: impl Into<String>) -> Result<T, TextError> {
        let at = self.here();
        Err(TextError::new(at, reason))
    }

    /// The next character that is no space and in no comment.
    fn peek(&mut self) -> Option<char> {
        loop {
            match self.chars.peek()?.1 {
                '#' => while self.chars.next_if(|&(_, c)| c != '\n').is_some() {},
                c if c.is_whitespace() => drop(self.chars.next()),
                c => return Some(c),
            }
        }
    }

    fn takes(&mut self, wanted: char) -> bool {
        let is_it = self.peek() == Some(wanted);
        if is_it {
            self.chars.next();
        }
        is_it
    }

    /// Fields up to a closing mark, or to the end of the text.
    fn fields(&mut self, depth: usize, end: Option<char>) -> Result<Vec<Field>, TextError> {
        if depth > DEPTH_MAX {
            return self.wrong(format!("messages lie at most {DEPTH_MAX} deep in each other"));
        }
        let mut fields = Vec::new();
        loop {
            match (self.peek(), end) {
                (None, None) => return Ok(fields),
                (None, Some(end)) => {
                    return self.wrong(format!("the text ends where `{end}` should stand"));
                }
                (Some(c), Some(end)) if c == end => {
                    self.chars.next();
                    return Ok(fields);
                }
                (Some(_), _) => self.field(depth, &mut fields)?,
            }
            // Between two fields.
            while self.takes(',') || self.takes(';') {}
        }
    }

    fn field(&mut self, depth: usize, fields: &mut Vec<Field>) -> Result<(), TextError> {
        self.peek();
        let at = self.here();
        let name = self.bare();
        if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return Err(TextError::new(at, "the name of a field should stand here"));
        }
        let has_colon = self.takes(':');
        let mut add = |value| fields.push(Field { name: name.clone(), at, value });
        // Only messages need no colon.
        if !has_colon && !matches!(self.peek(), Some('{' | '<' | '[')) {
            return self.wrong(format!("a `:` should stand behind `{name}`"));
        }
        if self.takes('[') {
            if self.takes(']') {
                return Ok(());
            }
            loop {
                if !has_colon && !matches!(self.peek(), Some('{' | '<')) {
                    return self.wrong(format!("a `:` should stand behind `{name}`"));
                }
                add(self.value(depth)?);
                if self.takes(']') {
                    return Ok(());
                }
                if !self.takes(',') {
                    return self.wrong("a `,` or a `]` should stand here");
                }
            }
        }
        add(self.value(depth)?);
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Value, TextError> {
        match self.peek() {
            Some('{') => {
                self.chars.next();
                self.fields(depth + 1, Some('}')).map(Value::Message)
            }
            Some('<') => {
                self.chars.next();
                self.fields(depth + 1, Some('>')).map(Value::Message)
            }
            Some('"' | '\'') => {
                let mut text = self.quoted()?;
                // Texts that follow each other are one.
                while matches!(self.peek(), Some('"' | '\'')) {
                    text += &self.quoted()?;
                }
                Ok(Value::Text(text))
            }
            Some(_) | None => match self.bare() {
                word if word.is_empty() => self.wrong("a value should stand here"),
                word => Ok(Value::Bare(word)),
            },
        }
    }

    /// A word or a number.
    fn bare(&mut self) -> String {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
        let mut word = String::new();
        while let Some((_, c)) = self.chars.next_if(|&(_, c)| is_part(c)) {
            word.push(c);
        }
        word
    }

    fn quoted(&mut self) -> Result<String, TextError> {
        let at = self.here();
        let quote = self.chars.next().map_or('"', |(_, quote)| quote);
        let mut text = String::new();
        loop {
            match self.chars.next().map(|(_, c)| c) {
                None | Some('\n') => {
                    return Err(TextError::new(at, "the text in quotes does not end on its line"));
                }
                Some(c) if c == quote => return Ok(text),
                Some('\\') => match self.chars.next().map(|(_, c)| c) {
                    Some(c @ ('"' | '\'' | '\\')) => text.push(c),
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some(_) | None => {
                        return Err(TextError::new(
                            at,
                            "behind a `\\` in a text stands `n`, `t`, `\\` or a quote",
                        ));
                    }
                },
                Some(c) => text.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(fields: &[Field]) -> String {
        let one = |field: &Field| match &field.value {
            Value::Bare(word) => format!("{}={word}", field.name),
            Value::Text(text) => format!("{}={text:?}", field.name),
            Value::Message(fields) => format!("{}({})", field.name, short(fields)),
        };
        fields.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_form_of_a_field_is_read() {
        let text = r#"
            name: "m" 'n' # a comment { with a brace
            max_batch_size: 8;
            input [ { name: "x", dims: [ -1, 4 ] }, { name: 'y\'"' dims: 3 dims: 4 } ]
            output { data_type: TYPE_FP32 }
            instance_group: < count: 2 >, empty: []
            dynamic_batching { }
        "#;
        let want = "name=\"mn\" max_batch_size=8 input(name=\"x\" dims=-1 dims=4) \
                    input(name=\"y'\\\"\" dims=3 dims=4) output(data_type=TYPE_FP32) \
                    instance_group(count=2) dynamic_batching()";
        assert_eq!(short(&parse(text).unwrap()), want);
        assert_eq!(parse("  # nothing\n").unwrap(), []);
    }

    #[test]
    fn an_error_has_its_line_and_column() {
        for (text, why) in [
            ("a: 1\n  b", "line 2, column 4: a `:` should stand behind `b`"),
            ("a {\n b: 1", "line 2, column 6: the text ends where `}` should stand"),
            ("a: }", "line 1, column 4: a value should stand here"),
            ("é: 1", "line 1, column 1: the name of a field should stand here"),
            ("a: \"x\n\"", "line 1, column 4: the text in quotes does not end"),
            ("a: \"\\q\"", "line 1, column 4: behind a `\\`"),
            ("a [1]", "line 1, column 4: a `:` should stand behind `a`"),
            ("a: [1 2]", "line 1, column 7: a `,` or a `]`"),
            ("}", "line 1, column 1: the name of a field"),
            (&"a {".repeat(40), "at most 16 deep"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_value_has_the_type_that_its_reader_wants_or_the_error_says_which() {
        let fields = parse("a: 3 b: \"t\" c { } d: true e: 99999999999").unwrap();
        assert_eq!(fields[0].number::<u32>(), Ok(3));
        assert_eq!(fields[1].text(), Ok("t"));
        assert_eq!(fields[2].message(), Ok([].as_slice()));
        let wrong = fields[4].number::<u32>().unwrap_err().to_string();
        assert_eq!(wrong, "line 1, column 27: `e` needs a whole number that is not too large");
        assert!(fields[0].text().is_err() && fields[1].number::<u32>().is_err());
        assert!(fields[2].word().is_err() && fields[0].message().is_err());
    }
}
