//! How a flag or a variable says true or false.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};

/// Reads `true`, `false` or a word that means one of them; its error names the two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Truth;

impl TypedValueParser for Truth {
    type Value = bool;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<bool, clap::Error> {
        TypedValueParser::parse_ref(&parse, command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(["true", "false"].map(PossibleValue::new).into_iter()))
    }
}

fn parse(text: &str) -> Result<bool, String> {
    match text.to_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(true),
        "false" | "f" | "no" | "n" | "off" | "0" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_true_or_false_or_refused_with_what_to_write() {
        assert_eq!(["YES", "0"].map(parse), [Ok(true), Ok(false)]);
        assert_eq!(parse("maybe").unwrap_err(), "write true or false");
    }
}
