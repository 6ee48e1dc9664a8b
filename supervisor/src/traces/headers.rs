//! What is sent to a collector beside spans: headers, such as one with a key. Their values are secrets: they are in no
//! log, no status and no command line.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use toml::de::DeValue;
use ureq::http::{HeaderName, HeaderValue};

/// The variable that OpenTelemetry has for them. It is read if traces are sent, and begins none.
pub const VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// Headers, and bytes of all names and values.
const HEADERS_MAX: usize = 32;
pub(super) const HEADERS_BYTES_MAX: usize = 8 << 10;
/// What this program says itself, and what frames a request.
const OWN: [&str; 6] =
    ["connection", "content-length", "content-type", "host", "transfer-encoding", "user-agent"];

/// Headers by their names. Nothing but `all` shows a value.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Headers(BTreeMap<String, String>);

impl Headers {
    /// Reads the text of the variable: `NAME=VALUE,NAME=VALUE`, values with `%` and two digits for other signs.
    ///
    /// # Errors
    /// What to write, without a value.
    pub fn of_variable(text: &str) -> Result<Self, String> {
        let mut headers = Self::default();
        for (number, pair) in (1..).zip(text.split(',').filter(|pair| !pair.trim().is_empty())) {
            let wrong = || format!("write NAME=VALUE,NAME=VALUE: number {number} is none");
            let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
            headers.add(name.trim(), &decoded(value.trim()).ok_or_else(wrong)?)?;
        }
        Ok(headers)
    }

    /// Reads the table `[traces]`: `headers = { NAME = "VALUE" }`.
    ///
    /// # Errors
    /// What to write, without a value.
    pub(crate) fn of_table(value: &DeValue<'_>) -> Result<Self, String> {
        const WRONG: &str = "[traces] has headers = { NAME = \"VALUE\" } and nothing else";
        let table = value.as_table().ok_or(WRONG)?;
        let mut headers = Self::default();
        for (key, value) in table {
            if key.get_ref() != "headers" {
                return Err(format!(
                    "there is no setting `{}` of [traces]: {WRONG}",
                    key.get_ref()
                ));
            }
            for (name, value) in value.get_ref().as_table().ok_or(WRONG)? {
                let text = value.get_ref().as_str();
                let wrong = || format!("the header `{}` needs a text in quotes", name.get_ref());
                headers.add(name.get_ref(), text.ok_or_else(wrong)?)?;
            }
        }
        Ok(headers)
    }

    fn add(&mut self, name: &str, value: &str) -> Result<(), String> {
        let known = HeaderName::from_bytes(name.as_bytes());
        let known = known.map_err(|_| format!("`{name}` is no name of a header"))?;
        if OWN.contains(&known.as_str()) {
            return Err(format!("the header `{known}` is set by gridpool: leave it out"));
        }
        let is_text = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !is_text || HeaderValue::from_str(value).is_err() {
            return Err(format!("the value of the header `{known}` has a sign that none may have"));
        }
        let name = known.as_str().to_owned();
        if self.0.insert(name.clone(), value.to_owned()).is_some() {
            return Err(format!("the header `{name}` is there twice: keep one"));
        }
        let bytes: usize = self.0.iter().map(|(name, value)| name.len() + value.len()).sum();
        match self.0.len() <= HEADERS_MAX && bytes <= HEADERS_BYTES_MAX {
            true => Ok(()),
            false => Err(format!(
                "a collector gets at most {HEADERS_MAX} headers of {HEADERS_BYTES_MAX} bytes in all"
            )),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names, which may be shown.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Names and values, for the request.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// Their names alone.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A text without its `%41`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match first {
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                let digits = std::str::from_utf8(digits).ok()?;
                u8::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?
            }
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_the_standard_says_and_shown_without_values() {
        let headers = Headers::of_variable("Api-Key=sw%6Frdfish%2C, x-tenant = a=b ,").unwrap();
        let all: Vec<_> = headers.all().collect();
        assert_eq!(all, [("api-key", "swordfish,"), ("x-tenant", "a=b")]);
        assert_eq!(format!("{headers:?}"), r#"{"api-key", "x-tenant"}"#);
        assert!(Headers::of_variable("").unwrap().is_empty());
    }

    #[test]
    fn what_no_request_can_have_is_refused_without_its_value() {
        let long = format!("a={}", "x".repeat(HEADERS_BYTES_MAX));
        let many: Vec<_> = (0..=HEADERS_MAX).map(|n| format!("h{n}=hunter2")).collect();
        for (text, words) in [
            ("hunter2", "number 1 is none"),
            ("a=b,c=%hunter2", "number 2 is none"),
            ("a=hunter2%", "number 1 is none"),
            ("a=hunter2%+1", "number 1 is none"),
            ("a=hunter2%0d%0aX: y", "has a sign that none may have"),
            ("a b=hunter2", "`a b` is no name of a header"),
            ("Host=hunter2", "`host` is set by gridpool"),
            ("a=hunter2,A=x", "`a` is there twice"),
            (&long, "of 8192 bytes in all"),
            (&many.join(","), "at most 32 headers"),
        ] {
            let why = Headers::of_variable(text).unwrap_err();
            assert!(why.contains(words) && !why.contains("hunter2"), "{text}: {why}");
        }
    }

    #[test]
    fn the_table_has_texts_by_name() {
        let read = |text: &str| {
            let table = toml::de::DeTable::parse(text).unwrap();
            Headers::of_table(table.get_ref()["traces"].get_ref())
        };
        let headers = read("[traces]\nheaders = { \"api-key\" = \"hunter2\" }").unwrap();
        assert_eq!(headers.all().collect::<Vec<_>>(), [("api-key", "hunter2")]);
        for (text, words) in [
            ("traces = \"hunter2\"", "headers = { NAME"),
            ("[traces]\nheaders = \"hunter2\"", "headers = { NAME"),
            ("[traces]\nheader = { a = \"hunter2\" }", "no setting `header` of [traces]"),
            ("[traces]\nheaders = { a = 1 }", "`a` needs a text in quotes"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(words) && !why.contains("hunter2"), "{text}: {why}");
        }
    }
}
