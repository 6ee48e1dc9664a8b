//! Bearer tokens: their form, their file, and whose a token is.
//!
//! A token has 256 random bits, so nobody can guess it or its hash. One SHA-256 is therefore the right hash: a slow
//! one protects passwords, which people choose. The file holds hashes, so who reads it cannot use it. A line is
//!
//! ```text
//! NAME SCOPES sha256:HASH [EXPIRY]        # laptop infer,metrics sha256:4f…e1 2027-06-30T00:00:00Z
//! ```

use std::str::FromStr;
use std::time::SystemTime;

use gridpool_protocol::principal::Principal;
use gridpool_protocol::program::{hex, unhex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What every token begins with, so that people and scanners of secrets recognise one.
const PREFIX: &str = "gridpool_";
/// What every hash in the file begins with.
const HASH_PREFIX: &str = "sha256:";
/// Random bytes of a token, and bytes of its hash.
const BYTES: usize = 32;
/// Bytes of the hash by which a log knows a token.
const MARK_BYTES: usize = 8;
/// Most tokens of a file.
pub(super) const TOKENS_MAX: usize = 1_024;

/// What a token may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Run models and programs, and ask about them.
    Infer,
    /// Read metrics and statistics.
    Metrics,
    /// Change the pool.
    Operate,
    /// Register shared memory of this host, and use it.
    Memory,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Infer, Self::Metrics, Self::Operate, Self::Memory];

    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Infer => "infer",
            Self::Metrics => "metrics",
            Self::Operate => "operate",
            Self::Memory => "memory",
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|scope| scope.name() == text).ok_or_else(|| {
            format!(
                "`{text}` is not a scope: write infer, metrics, operate or memory, joined by commas"
            )
        })
    }
}

/// A token that was just made.
#[derive(Debug)]
pub struct NewToken {
    /// The token. Only its owner keeps it.
    pub token: String,
    /// The line for the file of tokens.
    pub line: String,
}

impl NewToken {
    /// Makes a token from random bytes. `expiry` is a date as the file has it.
    ///
    /// # Errors
    /// A sentence if `name` or `expiry` cannot be in the file.
    pub fn new(
        name: &str,
        scopes: &[Scope],
        expiry: Option<&str>,
        random: &[u8; BYTES],
    ) -> Result<Self, String> {
        check_name(name)?;
        let scopes: Vec<_> = scopes.iter().map(|scope| scope.name()).collect();
        let token = format!("{PREFIX}{}", hex(random));
        let mut line = format!("{name} {} {HASH_PREFIX}{}", scopes.join(","), hex(&hash(&token)));
        if let Some(expiry) = expiry {
            line = format!("{line} {expiry}");
        }
        parse_line(&line)?;
        Ok(Self { token, line })
    }
}

/// What a token is known by.
pub(super) type TokenHash = [u8; BYTES];

/// The beginning of a token's hash. It tells a token from another that has its name later, and gives no rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenMark([u8; MARK_BYTES]);

impl TryFrom<String> for TokenMark {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = unhex(&text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or("the mark of a token has 16 hexadecimal digits")
    }
}

impl From<TokenMark> for String {
    fn from(TokenMark(bytes): TokenMark) -> Self {
        hex(&bytes)
    }
}

/// A known token.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) name: String,
    scopes: Vec<Scope>,
    hash: TokenHash,
    expiry: Option<SystemTime>,
}

impl Known {
    /// Whether it may be used for any of these.
    pub(super) fn may(&self, any: &[Scope]) -> bool {
        any.iter().any(|scope| self.scopes.contains(scope))
    }

    /// See the type.
    fn mark(&self) -> TokenMark {
        let mut mark = [0; MARK_BYTES];
        mark.copy_from_slice(&self.hash[..MARK_BYTES]);
        TokenMark(mark)
    }

    /// Whether it is that very token, and not another of its name.
    pub(super) fn is(&self, hash: &TokenHash) -> bool {
        self.hash == *hash
    }
}

/// The tokens of a file.
#[derive(Debug)]
pub(super) struct Tokens(Vec<Known>);

impl Tokens {
    /// Parses the text of a file. `#` begins a comment. A file of comments alone lets nobody in; an empty one may
    /// be one that is just being written. The error has the line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("it is empty: add the line that `gridpool token new` prints, or a comment (`# nobody`) to let \
                        nobody in"
                .to_owned());
        }
        let mut tokens: Vec<Known> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let wrong = |why: String| format!("line {number}: {why}");
            let known = parse_line(line).map_err(wrong)?;
            if tokens.iter().any(|other| other.name == known.name) {
                let why = format!("the name `{}` is there twice: keep one", known.name);
                return Err(wrong(why));
            }
            if tokens.len() == TOKENS_MAX {
                return Err(wrong(format!("one token too many: a file has at most {TOKENS_MAX}")));
            }
            tokens.push(known);
        }
        Ok(Self(tokens))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The mark of the token of this name, also of one that has expired.
    pub(super) fn mark_of(&self, name: &str) -> Option<TokenMark> {
        self.0.iter().find(|known| known.name == name).map(Known::mark)
    }

    /// The token of this name, unless it has expired at `now`.
    pub(super) fn named(&self, name: &str, now: SystemTime) -> Option<&Known> {
        let named = self.0.iter().find(|known| known.name == name);
        named.filter(|known| known.expiry.is_none_or(|expiry| now < expiry))
    }

    /// The token that has this text, unless it has expired at `now`. The time that this takes says nothing
    /// about the known hashes.
    pub(super) fn find(&self, text: &str, now: SystemTime) -> Option<&Known> {
        let hash = hash(text);
        let mut found = None;
        // Compares with every token, and does not stop at the right one.
        for known in &self.0 {
            if bool::from(known.hash.ct_eq(&hash)) {
                found = Some(known);
            }
        }
        found.filter(|known| known.expiry.is_none_or(|expiry| now < expiry))
    }
}

fn parse_line(line: &str) -> Result<Known, String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let (name, scopes, hash, expiry) = match words[..] {
        [name, scopes, hash] => (name, scopes, hash, None),
        [name, scopes, hash, expiry] => (name, scopes, hash, Some(expiry)),
        _ => {
            return Err(format!(
                "write NAME SCOPES {HASH_PREFIX}HASH [EXPIRY], separated by spaces"
            ));
        }
    };
    check_name(name)?;
    let scopes = scopes.split(',').map(Scope::from_str).collect::<Result<Vec<_>, _>>()?;
    let hash = hash
        .strip_prefix(HASH_PREFIX)
        .and_then(|digits| unhex(digits)?.try_into().ok())
        .ok_or_else(|| format!("the hash is {HASH_PREFIX} and {} hexadecimal digits", 2 * BYTES))?;
    let expiry = expiry.map(|text| {
        parse_time(text).map_err(|_| {
            format!("`{text}` is not a time: write 2027-06-30 or 2027-06-30T12:00:00Z, in UTC")
        })
    });
    Ok(Known { name: name.into(), scopes, hash, expiry: expiry.transpose()? })
}

/// A time in UTC, or the beginning of a day.
pub(crate) fn parse_time(text: &str) -> Result<SystemTime, humantime::TimestampError> {
    humantime::parse_rfc3339_weak(text)
        .or_else(|_| humantime::parse_rfc3339_weak(&format!("{text}T00:00:00Z")))
}

fn check_name(name: &str) -> Result<(), String> {
    Principal::Token(name.to_owned()).check()
}

pub(super) fn hash(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_new_token_is_found_by_its_text_alone_and_for_its_scopes() {
        let now = SystemTime::UNIX_EPOCH;
        let one = NewToken::new("one", &[Scope::Infer], None, &[1; 32]).unwrap();
        let two = NewToken::new("two", &[Scope::Metrics, Scope::Operate], None, &[2; 32]).unwrap();
        assert_eq!(one.token.len(), PREFIX.len() + 64);
        assert!(!one.line.contains(&one.token[PREFIX.len()..]), "only its hash is kept");
        let file = format!("# ours\n{}\n\n  {} # a comment\n", one.line, two.line);
        let tokens = Tokens::parse(&file).unwrap();
        let name = |text: &str| tokens.find(text, now).map(|known| known.name.to_string());
        assert_eq!(name(&one.token).as_deref(), Some("one"));
        assert_eq!(name(&two.token).as_deref(), Some("two"));
        for wrong in ["", "x", &one.token[1..], &one.token.to_uppercase(), &one.line] {
            assert_eq!(name(wrong), None, "{wrong}");
        }
        let two = tokens.find(&two.token, now).unwrap();
        assert!(two.may(&[Scope::Infer, Scope::Operate]) && !two.may(&[Scope::Infer]));
        assert!(!two.may(&[]));
    }

    #[test]
    fn a_token_is_unknown_from_its_expiry_on() {
        let made = |expiry| NewToken::new("one", &[Scope::Infer], Some(expiry), &[1; 32]);
        for expiry in ["1970-01-02", "1970-01-02T00:00:00Z"] {
            let one = made(expiry).unwrap();
            let tokens = Tokens::parse(&one.line).unwrap();
            let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert!(tokens.find(&one.token, at(86_399)).is_some(), "{expiry}");
            assert!(tokens.find(&one.token, at(86_400)).is_none(), "{expiry}");
            assert!(tokens.named("one", at(86_399)).is_some(), "{expiry}");
            assert!(tokens.named("one", at(86_400)).is_none(), "{expiry}");
        }
        assert!(made("tomorrow").unwrap_err().contains("is not a time"));
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_number_and_what_to_write() {
        let hash = format!("sha256:{}", "0f".repeat(32));
        let said = |line: &str| Tokens::parse(&format!("\n{line}\n")).unwrap_err();
        for (line, words) in [
            ("one", "line 2: write NAME SCOPES sha256:HASH [EXPIRY]"),
            (&format!("a/b infer {hash}"), "a token's name has letters, digits"),
            (
                &format!("one rule {hash}"),
                "`rule` is not a scope: write infer, metrics, operate or memory",
            ),
            (&format!("one infer, {hash}"), "`` is not a scope"),
            ("one infer sha256:0f", "the hash is sha256: and 64 hexadecimal digits"),
            (&format!("one infer {hash} soon"), "`soon` is not a time"),
            (
                &format!("one infer {hash}\none infer {hash}"),
                "line 3: the name `one` is there twice",
            ),
        ] {
            assert!(said(line).contains(words), "{line}: {}", said(line));
        }
    }
}
