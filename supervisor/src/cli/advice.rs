//! Advice on what to type, which the command line adds to errors of the client library.

use std::borrow::Borrow;
use std::error::Error;
use std::fmt;

use gridpool_client::ClientError;

/// An error of the library, with advice in terms of commands and flags.
#[derive(Debug)]
pub(super) struct Advised<E>(pub(super) E);

impl<E: Borrow<ClientError>> fmt::Display for Advised<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.0.borrow();
        error.fmt(f)?;
        if matches!(error, ClientError::NoPool { .. }) {
            f.write_str(": start one with `gridpool serve`, or name its socket with --socket")?;
        }
        Ok(())
    }
}

impl<E: Borrow<ClientError> + fmt::Debug> Error for Advised<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.borrow().source()
    }
}
