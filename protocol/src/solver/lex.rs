//! Cuts a text into words, numbers and signs. A line end counts only outside of brackets.

use std::ops::Range;

use super::mistake::Mistake;
use super::python::look_alike;

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'t> {
    Word(&'t str),
    Number(i64),
    /// A string, which only a description and a type may be.
    Text,
    /// One of `( ) , = : | - ;`, or a sign that the language does not have.
    Sign(char),
    /// `->`, or two signs that are one in Python.
    Signs(&'static str),
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

/// The two signs with which a text begins, if they are one in Python.
fn signs(text: &[u8]) -> Option<&'static str> {
    Some(match text {
        [b'-', b'>', ..] => "->",
        [b'=', b'=', ..] => "==",
        [b'!', b'=', ..] => "!=",
        [b'<', b'=', ..] => "<=",
        [b'>', b'=', ..] => ">=",
        [b':', b'=', ..] => ":=",
        [b'*', b'*', ..] => "**",
        [b'/', b'/', ..] => "//",
        _ => return None,
    })
}

/// A character of a hole's name and its kind, `?a:color`.
fn is_of_hole(next: char) -> bool {
    next.is_ascii_alphanumeric() || matches!(next, '?' | '_' | ':')
}

/// What it hides may be a part of the program.
pub(super) const UNCLOSED_STRING: &str = "this string is never closed";

/// Bytes of the letters before a string that begins a text, `r` or `f` for instance; `None` if no string does.
fn string_prefix(text: &str) -> Option<usize> {
    let letters = text.bytes().take_while(|byte| b"rRbBfFuU".contains(byte)).count();
    let is_string = letters <= 2 && text[letters..].starts_with(['"', '\'']);
    is_string.then_some(letters)
}

/// What follows the mark that opens a string at the start of a text, and that mark.
fn opened(text: &str) -> (&str, &str) {
    let is_triple = text.starts_with("\"\"\"") || text.starts_with("'''");
    let (mark, inside) = text.split_at(if is_triple { 3 } else { 1 });
    (inside, mark)
}

/// Bytes of the string that begins a text with its quotes; `None` if it is never closed.
pub(crate) fn string_length(text: &str) -> Option<usize> {
    let (inside, mark) = opened(text);
    let mut at = 0;
    while !inside[at..].starts_with(mark) {
        let mut signs = inside[at..].chars();
        let sign = signs.next().filter(|sign| mark.len() > 1 || *sign != '\n')?;
        at += sign.len_utf8();
        if sign == '\\' {
            at += signs.next()?.len_utf8();
        }
    }
    Some(at + 2 * mark.len())
}

/// Bytes of the word, or of the number, at the start of a text.
fn word_length(text: &str) -> usize {
    let is_ascii = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let length = text.bytes().position(|byte| !is_ascii(byte)).unwrap_or(text.len());
    if text.as_bytes().get(length).is_none_or(u8::is_ascii) {
        return length;
    }
    let ends = |c: char| !(c == '_' || c.is_alphanumeric());
    text.find(ends).unwrap_or(text.len())
}

/// Gives the pieces of a text, one after the other. What is no piece is a mistake; where it stands for a value or a
/// sign, one comes in its place, so that one mistake is not told as two.
pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
    /// Brackets that are open.
    pub(super) depth: usize,
    /// Whether the last line has ended.
    is_over: bool,
    pub(super) mistakes: Vec<Mistake>,
}

/// A token, if one begins here.
type Found<'t> = Result<Option<Token<'t>>, Box<Refused<'t>>>;

/// What is no token.
struct Refused<'t> {
    mistake: Mistake,
    /// The token that comes in its place.
    instead: Option<Token<'t>>,
}

impl<'t> Refused<'t> {
    fn new(mistake: Mistake, instead: Option<Token<'t>>) -> Box<Self> {
        Box::new(Self { mistake, instead })
    }

    /// What stands for a value.
    fn value(mistake: Mistake) -> Box<Self> {
        Self::new(mistake, Some(Token::Number(0)))
    }
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0, depth: 0, is_over: false, mistakes: Vec::new() }
    }

    /// The next piece. The last line ends with the text; behind it is `End`, however often one asks.
    pub(super) fn next(&mut self) -> Piece<'t> {
        loop {
            let start = self.at;
            match self.token() {
                Ok(Some(token)) => return Piece { token, span: start..self.at },
                Ok(None) => {}
                Err(refused) => {
                    self.mistakes.push(refused.mistake);
                    if let Some(token) = refused.instead {
                        return Piece { token, span: start..self.at };
                    }
                }
            }
        }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Goes on by so many bytes, which are no token.
    fn skip(&mut self, bytes: usize) -> Found<'t> {
        self.at += bytes;
        Ok(None)
    }

    fn token(&mut self) -> Found<'t> {
        let Some(next) = self.text.as_bytes().get(self.at) else {
            let is_over = std::mem::replace(&mut self.is_over, true);
            return Ok(Some(if is_over { Token::End } else { Token::Line }));
        };
        match next {
            b'A'..=b'Z' | b'a'..=b'z' | b'_' => match string_prefix(self.rest()) {
                Some(letters) => self.string(letters),
                None => Ok(Some(self.word())),
            },
            b'0'..=b'9' => self.number(),
            b'\n' => {
                self.at += 1;
                Ok((self.depth == 0).then_some(Token::Line))
            }
            b' ' => self.skip(1),
            b'#' => {
                let rest = self.rest();
                self.skip(rest.find(['\n', '\r']).unwrap_or(rest.len()))
            }
            b'"' | b'\'' => self.string(0),
            _ => self.sign(),
        }
    }

    /// Signs, and what is not of ASCII.
    fn sign(&mut self) -> Found<'t> {
        let rest = self.rest();
        if let Some(signs) = signs(rest.as_bytes()) {
            self.at += signs.len();
            return Ok(Some(Token::Signs(signs)));
        }
        let Some(written) = rest.chars().next() else { return Ok(None) };
        let alike = look_alike(written);
        let next = alike.unwrap_or(written);
        match next {
            '(' | '[' | '{' => self.depth += 1,
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            ',' | '=' | ':' | '|' | '-' | ';' | '+' | '*' | '/' | '%' | '<' | '>' | '.' | '&'
            | '^' | '@' | '~' => {}
            '\\' if rest[1..].starts_with("\r\n") => return self.skip(3),
            '\\' if rest[1..].starts_with(['\n', '\r']) => return self.skip(2),
            _ if next.is_alphanumeric() => return Ok(Some(self.word())),
            // Python begins a line behind it.
            '\r' if !matches!(rest.as_bytes(), [b'\r'] | [b'\r', b'\n', ..]) => {
                return self.unknown(next);
            }
            _ if next.is_whitespace() => return self.skip(next.len_utf8()),
            _ => return self.unknown(next),
        }
        let start = self.at;
        self.at += written.len_utf8();
        if alike.is_none() {
            return Ok(Some(Token::Sign(next)));
        }
        let mistake = Mistake::new(start..self.at, format!("`{written}` is not in the language"));
        let mistake = mistake.with_help(format!("write `{next}`"));
        Err(Refused::new(mistake, Some(Token::Sign(next))))
    }

    /// A character that no token begins with.
    fn unknown(&mut self, next: char) -> Found<'t> {
        let rest = self.rest();
        if rest.starts_with("```") {
            let fence = rest.lines().next().unwrap_or(rest);
            let mistake = Mistake::new(self.at..self.at + fence.len(), "a program has no fences");
            self.at += fence.len();
            return Err(Refused::new(mistake.with_help("leave this line out"), None));
        }
        if next == '?' {
            let length = rest.find(|next| !is_of_hole(next)).unwrap_or(rest.len());
            let hole = self.at..self.at + length;
            self.at = hole.end;
            let mistake = Mistake::new(hole, "only a template has holes");
            let mistake = mistake.with_help("`gridpool search` runs templates with holes");
            return Err(Refused::value(mistake));
        }
        let span = self.at..self.at + next.len_utf8();
        self.at = span.end;
        // What cannot be seen is named by its number.
        let is_seen = next == '`' || next.escape_debug().len() == 1;
        let mistake = if is_seen {
            Mistake::new(span, format!("`{next}` is not in the language"))
        } else {
            let message = format!("the character U+{:04X} is not in the language", u32::from(next));
            Mistake::new(span, message).with_help(match next {
                '\r' => "end lines by a line feed, U+000A",
                _ => "delete it: it cannot be seen",
            })
        };
        let instead = (next == '\r' && self.depth == 0).then_some(Token::Line);
        Err(Refused::new(mistake, instead))
    }

    fn number(&mut self) -> Found<'t> {
        let (rest, start) = (self.rest(), self.at);
        let word = &rest[..word_length(rest)];
        self.at += word.len();
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let fraction = &rest[word.len()..];
        if fraction.starts_with('.') && fraction.as_bytes().get(1).is_some_and(is_digit) {
            self.at += 1 + word_length(&fraction[1..]);
            let message = format!("`{}` is no whole number", &self.text[start..self.at]);
            return Err(Refused::value(Mistake::new(start..self.at, message)));
        }
        let number = if word.contains('_') { word.replace('_', "").parse() } else { word.parse() };
        if let Ok(number) = number {
            // As in Python.
            let has_zeros = word.starts_with('0') && number != 0;
            if !has_zeros && !word.contains("__") && !word.ends_with('_') {
                return Ok(Some(Token::Number(number)));
            }
            let mistake = Mistake::new(start..self.at, format!("`{word}` is no number"));
            let help = format!("write {number}");
            return Err(Refused::new(mistake.with_help(help), Some(Token::Number(number))));
        }
        let is_number = word.bytes().all(|byte| byte == b'_' || is_digit(&byte));
        let (message, instead) = if is_number {
            (format!("`{word}` is not a number that fits"), Token::Number(0))
        } else {
            let message = format!("`{word}` is no decimal number, and names begin with a letter");
            (message, Token::Word(word))
        };
        Err(Refused::new(Mistake::new(start..self.at, message), Some(instead)))
    }

    fn word(&mut self) -> Token<'t> {
        let rest = self.rest();
        let word = &rest[..word_length(rest)];
        // A statement that begins a line ends the brackets that the line before left open.
        if self.depth > 0 && matches!(word, "def" | "return") {
            let before = &self.text[..self.at];
            let line = before.rfind('\n').map_or(before, |end| &before[end + 1..]);
            if line.trim().is_empty() {
                self.depth = 0;
                return Token::Line;
            }
        }
        self.at += word.len();
        Token::Word(word)
    }

    /// A string behind so many letters.
    fn string(&mut self, letters: usize) -> Found<'t> {
        let (rest, start) = (&self.rest()[letters..], self.at);
        if let Some(length) = string_length(rest) {
            self.at += letters + length;
            return Ok(Some(Token::Text));
        }
        let (inside, mark) = opened(rest);
        let line = inside.lines().next().unwrap_or("");
        let length = if mark.len() > 1 { inside.len() } else { line.len() };
        self.at += letters + mark.len() + length;
        let opens = start..start + letters + mark.len();
        Err(Refused::value(Mistake::new(opens, UNCLOSED_STRING)))
    }
}
