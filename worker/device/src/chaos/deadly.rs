//! A program that kills its worker, to test the code that looks for one. With `GRIDPOOL_TEST_DEADLY=4f2a` a grid
//! worker aborts when a search has a program whose hash begins so.
//!
//! This is a test hook only: no program that was verified can kill the reference, and no test may wait for one that
//! kills a GPU. The worker reads it once, after the self-test, and warns that it is set. The supervisor withholds it
//! unless it allows chaos.

use gridpool_protocol::chaos::DEADLY_VARIABLE as VARIABLE;

use crate::search::SearchAttempt;

/// Which program is deadly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadly {
    /// How its hash begins.
    hash: String,
}

impl Deadly {
    /// What the environment of this process asks for: nothing, outside tests.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        let hash = std::env::var(VARIABLE).ok().filter(|hash| !hash.is_empty())?;
        tracing::warn!(hook = %hash, "{VARIABLE} is set: a program kills this worker on purpose");
        Some(Self { hash })
    }

    /// Aborts the process if the attempt has the program.
    pub(super) fn strike(&self, attempt: &SearchAttempt<'_>) {
        let Ok(input) = attempt.read() else { return };
        let is_it = |program: usize| {
            let code = input.program(program);
            code.is_some_and(|code| code.hash().starts_with(&self.hash))
        };
        if (0..attempt.programs().len()).any(is_it) {
            std::process::abort();
        }
    }
}
