//! The log format of all processes of a pool: text for people, or one JSON object per line.

use std::fmt;
use std::str::FromStr;

/// The variable that selects lines, in the syntax of tracing's `Targets`.
pub const FILTER_VARIABLE: &str = "GRIDPOOL_LOG";
/// The variable that selects the format.
pub const FORMAT_VARIABLE: &str = "GRIDPOOL_LOG_FORMAT";

/// A log format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Human,
    /// One JSON object per line.
    Json,
}

/// A text that does not name a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a log format: write human or json")]
pub struct ParseFormatError {
    text: String,
}

impl LogFormat {
    /// Its text on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Json => "json",
        }
    }

    /// The format that the environment names. The parent process has checked the variable.
    #[must_use]
    pub fn from_environment() -> Self {
        let said = std::env::var(FORMAT_VARIABLE).ok();
        said.and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LogFormat {
    type Err = ParseFormatError;

    fn from_str(text: &str) -> Result<Self, ParseFormatError> {
        let all = [Self::Human, Self::Json];
        let found = all.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| ParseFormatError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_read_as_it_is_printed_and_others_are_refused_with_what_to_write() {
        for format in [LogFormat::Human, LogFormat::Json] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "xml".parse::<LogFormat>().unwrap_err();
        assert_eq!(error.to_string(), "`xml` is not a log format: write human or json");
    }
}
