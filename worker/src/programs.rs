//! Programs that this worker has compiled: clients send the same few again and again.

use std::rc::Rc;

use gridpool_protocol::program::{Program, ProgramError, Ties};

/// Programs kept. A client that works with more compiles some again, which takes microseconds.
const PROGRAMS_MAX: usize = 16;

/// The last few programs, the latest first.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    latest: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// As it came, which need not be the canonical text.
    text: String,
    ties: Ties,
    program: Rc<Program>,
}

impl Programs {
    /// The program of a text, compiled or known.
    pub(crate) fn compile(&mut self, text: &str, ties: Ties) -> Result<Rc<Program>, ProgramError> {
        let found = self.latest.iter().position(|kept| kept.ties == ties && kept.text == text);
        if let Some(at) = found {
            self.latest[..=at].rotate_right(1);
        } else {
            let program = Rc::new(Program::compile(text, ties)?);
            self.latest.truncate(PROGRAMS_MAX - 1);
            self.latest.insert(0, Kept { text: text.to_owned(), ties, program });
        }
        Ok(Rc::clone(&self.latest[0].program))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_the_program_of_that_text_and_ties() {
        let mut programs = Programs::default();
        for _ in 0..3 {
            for factor in 1..=20 {
                for ties in [Ties::Cpython, Ties::Lowest] {
                    let text = format!("upscale({factor}) | mostcolor");
                    let program = programs.compile(&text, ties).unwrap();
                    assert_eq!((program.text(), program.ties()), (text.as_str(), ties));
                }
            }
        }
        assert!(programs.compile("rot90 |", Ties::Lowest).is_err());
        assert_eq!(programs.latest.len(), PROGRAMS_MAX);
        let first = programs.compile("rot90", Ties::Lowest).unwrap();
        let again = programs.compile("rot90", Ties::Lowest).unwrap();
        assert!(Rc::ptr_eq(&first, &again));
    }
}
