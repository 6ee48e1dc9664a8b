//! An error and its causes in one line.

use std::error::Error;
use std::fmt;

/// Prints an error, then each of its sources after a colon, but for those that the error before has said already.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = self.0.to_string();
        f.write_str(&told)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !told.ends_with(&text) {
                write!(f, ": {text}")?;
                told = text;
            }
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::DecodeError;

    #[test]
    fn causes_follow_after_colons() {
        let error = DecodeError::Malformed("no room".into());
        assert_eq!(Chain(&error).to_string(), "malformed message: no room");
    }

    #[test]
    fn what_an_error_says_of_its_cause_is_not_said_twice() {
        #[derive(Debug, thiserror::Error)]
        #[error("{words}")]
        struct Told {
            words: &'static str,
            source: Option<Box<Self>>,
        }
        let told = |words, source: Option<Told>| Told { words, source: source.map(Box::new) };
        let error = told("refused", None);
        let error = told("connecting: refused", Some(told("io: refused", Some(error))));
        assert_eq!(Chain(&error).to_string(), "connecting: refused: io: refused");
    }
}
