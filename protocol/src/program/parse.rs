//! Parses a text to calls: `name(arg, …) | name | …`. Every piece keeps its place in the text for errors.
//!
//! ```text
//! program  = call { "|" call }
//! call     = name [ "(" [ argument { "," argument } ] ")" ]
//! argument = number | "true" | "false" | program
//! ```

use std::ops::Range;

use super::error::{ProgramError, short};
use crate::limits::{PROGRAM_BYTES_MAX, PROGRAM_DEPTH_MAX};

/// A name with arguments, and its place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) span: Range<usize>,
    pub(super) arguments: Vec<Argument>,
    /// From the name to the closing bracket.
    pub(super) whole: Range<usize>,
}

/// One argument and its place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    pub(super) value: Value,
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Calls(Vec<Call>),
    Flag(bool),
    Number(i64),
}

/// Parses a whole program. `signature` returns an op's signature, for errors.
pub(super) fn calls(
    text: &str,
    signature: fn(&str) -> Option<String>,
) -> Result<Vec<Call>, ProgramError> {
    let mut parser = Parser { text, at: 0, signature };
    if text.len() > PROGRAM_BYTES_MAX {
        return Err(ProgramError::new(
            "",
            0..0,
            format!(
                "the program has {} bytes; at most {PROGRAM_BYTES_MAX} are allowed",
                text.len()
            ),
        ));
    }
    let calls = parser.chain(0)?;
    let Some(other) = parser.next() else { return Ok(calls) };
    let message = match other {
        ')' => "this bracket closes nothing".to_owned(),
        ',' => "a comma stands between arguments only; ops are joined by `|`".to_owned(),
        _ => format!("expected `|` or the end, found `{other}`"),
    };
    let help = "write `|` between ops, and arguments in brackets: replace(1, 7)".to_owned();
    let error = parser.error(parser.here(), message);
    Err(error.with_any_help(other.is_ascii_alphanumeric().then_some(help)))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    signature: fn(&str) -> Option<String>,
}

impl Parser<'_> {
    /// Calls joined by `|`.
    fn chain(&mut self, depth: usize) -> Result<Vec<Call>, ProgramError> {
        let mut calls = vec![self.call(depth)?];
        while self.next() == Some('|') {
            self.advance();
            calls.push(self.call(depth)?);
        }
        Ok(calls)
    }

    fn call(&mut self, depth: usize) -> Result<Call, ProgramError> {
        let (name, span) = self.word();
        if name.is_empty() {
            let message = match self.next() {
                None => "expected an op, found the end".to_owned(),
                Some('#') => "expected an op, found a comment".to_owned(),
                Some(found) => format!("expected an op, found `{found}`"),
            };
            let error = self.error(self.here(), message);
            let brackets = "brackets stand only after the name of an op".to_owned();
            return Err(error.with_any_help((self.next() == Some('(')).then_some(brackets)));
        }
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.error(span, format!("expected an op, found the number `{name}`")));
        }
        let mut call = Call { name, whole: span.clone(), span, arguments: Vec::new() };
        if self.next() == Some('(') {
            self.arguments(&mut call, depth)?;
        }
        Ok(call)
    }

    fn arguments(&mut self, call: &mut Call, depth: usize) -> Result<(), ProgramError> {
        let open = self.here();
        if depth == PROGRAM_DEPTH_MAX {
            let message = format!("arguments nest deeper than {PROGRAM_DEPTH_MAX}");
            return Err(self.error(open, message));
        }
        self.advance();
        if self.next() == Some(')') {
            self.advance();
            call.whole.end = self.at;
            return Ok(());
        }
        loop {
            if let Some(help) = self.vector_help(&call.name) {
                let message = "expected an op or a number, found `(`".to_owned();
                return Err(self.error(self.here(), message).with_help(help));
            }
            call.arguments.push(self.argument(depth + 1)?);
            match self.next() {
                Some(',') => self.advance(),
                Some(')') => {
                    self.advance();
                    call.whole.end = self.at;
                    return Ok(());
                }
                Some(found) => {
                    let message = format!("expected `,` or `)`, found `{found}`");
                    let error = self.error(self.here(), message);
                    let named = (found == '=').then(|| self.named_help(call, open.end));
                    return Err(error.with_any_help(named));
                }
                None => return Err(self.error(open, "this bracket is never closed".to_owned())),
            }
        }
    }

    /// What to write instead of brackets around numbers.
    fn vector_help(&mut self, name: &str) -> Option<String> {
        let inner = self.next().and_then(|_| self.text[self.at..].strip_prefix('('))?;
        let is_number = |c: char| c == '-' || c.is_ascii_digit();
        let signature = (self.signature)(name)?;
        let help = format!("vectors are written as plain numbers: {signature}");
        inner.trim_start().starts_with(is_number).then_some(help)
    }

    /// What to write instead of `name=value`. The parser has read the name and is at the `=`.
    fn named_help(&self, call: &Call, open: usize) -> String {
        let name = call.arguments.last().map_or(open, |argument| argument.span.start);
        let rest = self.text[self.at + 1..].trim_start();
        let length = rest.find([',', ')', '(', '|', '=']).unwrap_or(rest.len());
        let more = if rest[length..].starts_with(',') { ", …" } else { "" };
        let value = match rest[..length].trim_end() {
            "" => return "arguments have no names here: write the value alone".to_owned(),
            "True" | "T" => "true",
            "False" | "F" => "false",
            value => value,
        };
        let call = format!("{}({}{value}", call.name, &self.text[open..name]);
        format!("arguments have no names here: write {}{more})", short(&call))
    }

    fn argument(&mut self, depth: usize) -> Result<Argument, ProgramError> {
        let negative = self.next() == Some('-');
        let start = self.at;
        if negative {
            self.advance();
        }
        let back = self.at;
        let (word, mut span) = self.word();
        if negative {
            span.start = start;
        }
        let value = if word.starts_with(|c: char| c.is_ascii_digit()) {
            let number: i64 = word.parse().map_err(|_| {
                self.error(span.clone(), format!("`{word}` is not a number that fits"))
            })?;
            let number = if negative { -number } else { number };
            if word.starts_with('0') && number != 0 {
                let error = self.error(span, format!("`{word}` is no number"));
                return Err(error.with_help(format!("write {number}")));
            }
            Value::Number(number)
        } else if negative {
            return Err(self.error(span, "expected a number after `-`".to_owned()));
        } else {
            match word.as_str() {
                "true" => Value::Flag(true),
                "false" => Value::Flag(false),
                "True" | "False" | "T" | "F" => {
                    let message = format!("write `true` or `false` instead of `{word}`");
                    return Err(self.error(span, message));
                }
                _ => {
                    self.at = back;
                    let calls = self.chain(depth)?;
                    span.end = calls.last().map_or(span.end, |call| call.whole.end);
                    Value::Calls(calls)
                }
            }
        };
        Ok(Argument { value, span })
    }

    /// The word of letters, digits and `_` here, perhaps empty.
    fn word(&mut self) -> (String, Range<usize>) {
        self.skip_space();
        let rest = &self.text[self.at..];
        let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let span = self.at..self.at + length;
        self.at = span.end;
        (self.text[span.clone()].to_owned(), span)
    }

    fn next(&mut self) -> Option<char> {
        self.skip_space();
        self.text[self.at..].chars().next()
    }

    fn advance(&mut self) {
        self.at += self.text[self.at..].chars().next().map_or(0, char::len_utf8);
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// The character here, or the empty place at the end.
    fn here(&self) -> Range<usize> {
        let length = self.text[self.at..].chars().next().map_or(0, char::len_utf8);
        self.at..self.at + length
    }

    fn error(&self, span: Range<usize>, message: String) -> ProgramError {
        ProgramError::new(self.text, span, message)
    }
}
