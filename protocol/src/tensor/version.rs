//! Versions of models. A version is a model: it is loaded, served and unloaded like any other, and its full name says
//! which it is. `mlp:2` is version 2 of `mlp`; the full name of version 1 is `mlp`.
//!
//! A request may name a version, also `mlp:1`. If it names none, the version that serves the name runs it, which is the
//! highest that accepts requests.

use std::borrow::Cow;

use crate::tensor::model::{ModelNameError, check_model_name};

/// The version of a model without a number.
pub const FIRST_VERSION: u32 = 1;
/// What stands between the name of a model and its version.
pub const VERSION_MARK: char = ':';

/// A name as someone types it, with or without a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelRef<'a> {
    /// The model's name, without the version.
    pub name: &'a str,
    /// The version, if there is one.
    pub version: Option<u32>,
}

impl<'a> ModelRef<'a> {
    /// Reads `mlp` or `mlp:2`.
    ///
    /// # Errors
    /// [`ModelNameError`] if it is neither.
    pub fn parse(text: &'a str) -> Result<Self, ModelNameError> {
        let Some((name, version)) = text.split_once(VERSION_MARK) else {
            check_model_name(text)?;
            return Ok(Self { name: text, version: None });
        };
        check_model_name(name)?;
        match parse_version(version) {
            Some(version) => Ok(Self { name, version: Some(version) }),
            None => Err(ModelNameError::new(text)),
        }
    }

    /// The version, or the first one.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.version.unwrap_or(FIRST_VERSION)
    }

    /// The full name of that version.
    #[must_use]
    pub fn full_name(&self) -> Cow<'a, str> {
        match self.number() {
            FIRST_VERSION => Cow::Borrowed(self.name),
            version => Cow::Owned(full_name(self.name, version)),
        }
    }
}

/// The full name of a version of a model.
#[must_use]
pub fn full_name(name: &str, version: u32) -> String {
    match version {
        FIRST_VERSION => name.to_owned(),
        _ => format!("{name}{VERSION_MARK}{version}"),
    }
}

/// The name and the version in a full name.
#[must_use]
pub fn split(full_name: &str) -> (&str, u32) {
    let parts = full_name.split_once(VERSION_MARK);
    parts
        .and_then(|(name, version)| Some((name, parse_version(version)?)))
        .unwrap_or((full_name, FIRST_VERSION))
}

/// Reads the number of a version: digits, not all 0, the first not 0.
#[must_use]
pub fn parse_version(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|digit| digit.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}

/// Checks that a text is the full name of a version, in the form that [`full_name`] gives it.
///
/// # Errors
/// [`ModelNameError`] if it is not.
pub fn check_full_name(text: &str) -> Result<(), ModelNameError> {
    match ModelRef::parse(text)? {
        ModelRef { version: Some(FIRST_VERSION), .. } => Err(ModelNameError::new(text)),
        ModelRef { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_written_behind_the_name_except_the_first() {
        for (name, version, full) in [("m", 1, "m"), ("m", 2, "m:2"), ("a.b-c", 4_294_967_295, "")]
        {
            let made = full_name(name, version);
            assert!(full.is_empty() || made == full, "{made}");
            assert_eq!(check_full_name(&made), Ok(()));
            assert_eq!(split(&made), (name, version));
            assert_eq!(ModelRef::parse(&made).unwrap().full_name(), made);
        }
        let one = ModelRef::parse("m:1").unwrap();
        assert_eq!((one.version, &*one.full_name()), (Some(1), "m"));
        assert!(check_full_name("m:1").is_err(), "it has two names otherwise");
    }

    #[test]
    fn other_texts_are_no_versions() {
        for text in [
            "",
            ":",
            "m:",
            ":1",
            "m:0",
            "m:01",
            "m:+1",
            "m:-1",
            "m:1:2",
            "m:x",
            "m:4294967296",
            "a/b:1",
        ] {
            let error = ModelRef::parse(text).unwrap_err();
            assert!(error.to_string().contains("cannot be the name of a model"), "{error}");
        }
    }
}
