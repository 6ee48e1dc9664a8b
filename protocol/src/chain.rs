//! An error and its causes in one line.

use std::error::Error;
use std::fmt;

/// Prints an error, then each of its sources after a colon.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
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
}
