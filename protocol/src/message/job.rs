//! A question about one job, and its answer.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, JobKey};
use crate::receipt::Receipt;

/// What the number of a job begins with.
const NUMBER: &str = "job";
/// Hexadecimal digits of a key.
const KEY_DIGITS: usize = 32;

/// A job, as a receipt names it. Reads and prints as `job17`, or as the 32 hexadecimal digits of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobSelector {
    /// The client's key.
    Key(JobKey),
    /// The supervisor's number.
    Number(JobId),
}

impl fmt::Display for JobSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Number(job) => job.fmt(f),
        }
    }
}

/// A text that names no job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` names no job: write its number (`job17`) or the {KEY_DIGITS} hexadecimal digits of its key"
)]
pub struct ParseJobSelectorError {
    text: String,
}

impl FromStr for JobSelector {
    type Err = ParseJobSelectorError;

    fn from_str(text: &str) -> Result<Self, ParseJobSelectorError> {
        let number = text.strip_prefix(NUMBER).and_then(|own| without_place(own).parse().ok());
        let is_key = text.len() == KEY_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let key = if is_key { u128::from_str_radix(text, 16).ok() } else { None };
        let name = number.map(|number| Self::Number(JobId(number)));
        let name = name.or_else(|| key.map(|key| Self::Key(JobKey(key))));
        name.ok_or_else(|| ParseJobSelectorError { text: text.to_owned() })
    }
}

/// The number of a job of a bundle, `17.3`, without its place among the others.
#[must_use]
pub fn without_place(number: &str) -> &str {
    match number.split_once('.') {
        Some((bundle, place)) if place.parse::<u32>().is_ok() => bundle,
        Some(_) | None => number,
    }
}

/// What a job is doing, or what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Its receipt: once it has its verdict, the one that its client has got; before, what is known so far, whose
    /// `verdict` means nothing.
    pub receipt: Receipt,
    /// Whether it has its verdict.
    pub has_ended: bool,
    /// The workers that run it now; none while it waits.
    pub workers: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_a_bundle_is_known_by_the_number_of_the_bundle() {
        assert_eq!("job17.3".parse(), Ok(JobSelector::Number(JobId(17))));
        for text in ["job17.", "job17.x", "job.3", "job17.3.1"] {
            text.parse::<JobSelector>().unwrap_err();
        }
    }

    #[test]
    fn a_name_reads_as_it_prints() {
        for text in ["job17", "0123456789abcdef0123456789abcdef"] {
            assert_eq!(text.parse::<JobSelector>().unwrap().to_string(), text);
        }
        for text in ["", "17", "job", "job-1", "+123456789abcdef0123456789abcdef", "0123"] {
            let why = text.parse::<JobSelector>().unwrap_err().to_string();
            assert!(why.contains("job17"), "{why}");
        }
    }
}
