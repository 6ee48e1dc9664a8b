//! The programs that a connection has used, compiled once. Knows nothing of jobs.

use std::collections::VecDeque;
use std::sync::Arc;

use gridpool_protocol::program::{Program, ProgramError, Ties};

/// Programs that are kept; a client that uses more has them compiled again.
const PROGRAMS_KEPT: usize = 16;

/// A program, and its hash in a form that jobs share.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) program: Program,
    pub(super) hash: Arc<str>,
}

/// Programs by text, the latest used first.
#[derive(Debug, Default)]
pub(super) struct Programs(VecDeque<(String, Ties, Arc<Compiled>)>);

impl Programs {
    /// The program of that text.
    pub(super) fn find(&mut self, text: &str, ties: Ties) -> Result<Arc<Compiled>, ProgramError> {
        let is_it = |(known, of, _): &(String, Ties, _)| known == text && *of == ties;
        let entry = match self.0.iter().position(is_it) {
            Some(0) => return Ok(Arc::clone(&self.0[0].2)),
            Some(at) => self.0.remove(at).expect("it was just found"),
            None => {
                let program = Program::compile(text, ties)?;
                let hash = Arc::from(program.hash());
                (text.to_owned(), ties, Arc::new(Compiled { program, hash }))
            }
        };
        let found = Arc::clone(&entry.2);
        self.0.truncate(PROGRAMS_KEPT - 1);
        self.0.push_front(entry);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_compiled_once_and_tie_modes_are_kept_apart() {
        let mut programs = Programs::default();
        let mut find = |text: &str, ties| programs.find(text, ties).unwrap();
        let first = find("rot90", Ties::Cpython);
        let lowest = find("rot90", Ties::Lowest);
        assert!(!Arc::ptr_eq(&first, &lowest));
        assert_ne!(first.hash, lowest.hash);
        assert!(Arc::ptr_eq(&first, &find("rot90", Ties::Cpython)));
        for factor in 1..=PROGRAMS_KEPT {
            find(&format!("upscale({factor})"), Ties::Cpython);
        }
        assert!(!Arc::ptr_eq(&first, &find("rot90", Ties::Cpython)), "the oldest were dropped");
        assert!(programs.0.len() <= PROGRAMS_KEPT);
    }

    #[test]
    fn a_program_that_does_not_compile_is_not_kept() {
        let mut programs = Programs::default();
        assert!(programs.find("rot91", Ties::Cpython).is_err());
        assert!(programs.0.is_empty());
    }
}
