//! Cuts a text into words, numbers and signs. A line end counts only outside of brackets.

use std::ops::Range;

use super::mistake::Mistake;

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'t> {
    Word(&'t str),
    Number(i64),
    /// One of `( ) , = : | - ;`, `->`, or a sign that the language does not have.
    Sign(&'static str),
    /// The end of a line.
    Line,
    End,
}

/// A token and its place.
#[derive(Clone, Debug)]
pub(super) struct Piece<'t> {
    pub(super) token: Token<'t>,
    pub(super) span: Range<usize>,
}

/// The text without the byte order mark with which some editors begin a file.
pub(crate) fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Bytes of a usual piece with the space behind it, or fewer.
const PIECE_BYTES: usize = 2;

/// The sign with which a text begins, if it begins with one.
fn sign(text: &str) -> Option<&'static str> {
    Some(match text.as_bytes() {
        [b'-', b'>', ..] => "->",
        [b'=', b'=', ..] => "==",
        [b'!', b'=', ..] => "!=",
        [b'<', b'=', ..] => "<=",
        [b'>', b'=', ..] => ">=",
        [b'*', b'*', ..] => "**",
        [b'/', b'/', ..] => "//",
        [b'(', ..] => "(",
        [b')', ..] => ")",
        [b',', ..] => ",",
        [b'=', ..] => "=",
        [b':', ..] => ":",
        [b'|', ..] => "|",
        [b'-', ..] => "-",
        [b';', ..] => ";",
        [b'[', ..] => "[",
        [b']', ..] => "]",
        [b'{', ..] => "{",
        [b'}', ..] => "}",
        [b'+', ..] => "+",
        [b'*', ..] => "*",
        [b'/', ..] => "/",
        [b'%', ..] => "%",
        [b'<', ..] => "<",
        [b'>', ..] => ">",
        [b'.', ..] => ".",
        [b'&', ..] => "&",
        [b'^', ..] => "^",
        [b'@', ..] => "@",
        [b'~', ..] => "~",
        _ => return None,
    })
}

/// The pieces of a text, the last of them `End`. What is no piece is a mistake and left out.
pub(super) fn pieces<'t>(text: &'t str, mistakes: &mut Vec<Mistake>) -> Vec<Piece<'t>> {
    let pieces = Vec::with_capacity(text.len() / PIECE_BYTES);
    let mut lexer = Lexer { text, at: 0, depth: 0, pieces };
    while let Some(next) = lexer.rest().chars().next() {
        if let Err(mistake) = lexer.piece(next) {
            mistakes.push(mistake);
        }
    }
    let end = text.len();
    lexer.pieces.push(Piece { token: Token::Line, span: end..end });
    lexer.pieces.push(Piece { token: Token::End, span: end..end });
    lexer.pieces
}

/// Whether this holds for a token of a text. It is asked for one after the other, until it does.
pub(super) fn any(text: &str, mut holds: impl FnMut(Token<'_>) -> bool) -> bool {
    let mut lexer = Lexer { text, at: 0, depth: 0, pieces: Vec::new() };
    while let Some(next) = lexer.rest().chars().next() {
        // What is no piece is left out.
        drop(lexer.piece(next));
        if lexer.pieces.drain(..).any(|piece| holds(piece.token)) {
            return true;
        }
    }
    false
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    pieces: Vec<Piece<'t>>,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn push(&mut self, token: Token<'t>, length: usize) {
        let span = self.at..self.at + length;
        self.at = span.end;
        self.pieces.push(Piece { token, span });
    }

    fn piece(&mut self, next: char) -> Result<(), Mistake> {
        let rest = self.rest();
        if next.is_ascii_alphabetic() {
            return self.word();
        }
        if next == '\n' {
            if self.depth == 0 {
                self.push(Token::Line, 1);
            } else {
                self.at += 1;
            }
            return Ok(());
        }
        if next.is_whitespace() {
            self.at += next.len_utf8();
            return Ok(());
        }
        if next == '#' {
            self.at += rest.find('\n').unwrap_or(rest.len());
            return Ok(());
        }
        if next == '\\' && rest[1..].starts_with(['\n', '\r']) {
            self.at += if rest[1..].starts_with("\r\n") { 3 } else { 2 };
            return Ok(());
        }
        if next == '"' || next == '\'' {
            return self.string();
        }
        if next.is_alphanumeric() || next == '_' {
            return self.word();
        }
        let start = self.at;
        let Some(sign) = sign(rest) else {
            self.at += next.len_utf8();
            return Err(Mistake::new(start..self.at, format!("`{next}` is not in the language")));
        };
        match sign {
            "(" | "[" | "{" => self.depth += 1,
            ")" | "]" | "}" => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.push(Token::Sign(sign), sign.len());
        Ok(())
    }

    fn word(&mut self) -> Result<(), Mistake> {
        let rest = self.rest();
        let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c.is_alphanumeric());
        let length = rest.find(ends).unwrap_or(rest.len());
        let word = &rest[..length];
        let start = self.at;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let number: Result<i64, _> = word.replace('_', "").parse();
            let Ok(number) = number else {
                self.at += length;
                let message = format!("`{word}` is not a number that fits");
                return Err(Mistake::new(start..self.at, message));
            };
            self.push(Token::Number(number), length);
        } else {
            self.push(Token::Word(word), length);
            // A statement that begins a line ends the brackets that the line before left open.
            if self.depth > 0 && matches!(word, "def" | "return") {
                let before = &self.text[..start];
                let line = before.rfind('\n').map_or(before, |end| &before[end + 1..]);
                if line.trim().is_empty() {
                    self.depth = 0;
                    let at = self.pieces.len() - 1;
                    self.pieces.insert(at, Piece { token: Token::Line, span: start..start });
                }
            }
        }
        Ok(())
    }

    /// Leaves out a string that is a statement of its own: a description.
    fn string(&mut self) -> Result<(), Mistake> {
        let rest = self.rest();
        let quote = &rest[..1];
        let triple = quote.repeat(3);
        let mark = if rest.starts_with(&triple) { triple.as_str() } else { quote };
        let mut inside = &rest[mark.len()..];
        if mark.len() == 1 {
            inside = inside.split('\n').next().unwrap_or("");
        }
        let (start, end) = (self.at, inside.find(mark));
        self.at += mark.len() + end.map_or(inside.len(), |end| end + mark.len());
        if end.is_none() {
            return Err(Mistake::new(start..start + mark.len(), "this string is never closed"));
        }
        match self.pieces.last().map(|piece| &piece.token) {
            None | Some(Token::Line | Token::Sign(":" | ";")) if self.depth == 0 => Ok(()),
            _ => Err(Mistake::new(start..self.at, "there are no strings in the language")),
        }
    }
}
