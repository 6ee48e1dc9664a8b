//! The log format of all processes of a pool: text for people, or one JSON object per line.

use std::str::FromStr;

use crate::named::named;

/// The variable that selects lines, in the syntax of tracing's `Targets`.
pub const FILTER_VARIABLE: &str = "GRIDPOOL_LOG";
/// The variable that selects the format.
pub const FORMAT_VARIABLE: &str = "GRIDPOOL_LOG_FORMAT";

named! {
    /// A log format.
    #[derive(Default)]
    pub enum LogFormat {
        /// For people.
        #[default]
        Human = "human",
        /// One JSON object per line.
        Json = "json",
    }
}

/// A text that does not name a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a log format: write human or json")]
pub struct ParseFormatError {
    text: String,
}

impl LogFormat {
    /// The format that the environment names. The parent process has checked the variable.
    #[must_use]
    pub fn from_environment() -> Self {
        let said = std::env::var(FORMAT_VARIABLE).ok();
        said.and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

impl FromStr for LogFormat {
    type Err = ParseFormatError;

    fn from_str(text: &str) -> Result<Self, ParseFormatError> {
        Self::from_name(text).ok_or_else(|| ParseFormatError { text: text.to_owned() })
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
