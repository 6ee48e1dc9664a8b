//! A cache of compiled programs, since clients send the same few again and again.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Program, ProgramError, Ties};

/// The number of cached programs. Compiling one again takes microseconds.
const PROGRAMS_KEPT: usize = 16;

/// Programs by their text as received, tie mode and limit of steps, the most recently used first.
#[derive(Debug, Default)]
pub struct Programs(VecDeque<(String, Ties, u32, Arc<Program>)>);

impl Programs {
    /// Returns the program of a text from the cache, or compiles it.
    ///
    /// # Errors
    /// As for [`Program::compile`] and, if the limit is not the default, [`Program::with_step_limit`].
    pub fn compile(
        &mut self,
        text: &str,
        ties: Ties,
        steps: u32,
    ) -> Result<Arc<Program>, ProgramError> {
        let is_it = |(known, of, limit, _): &(String, Ties, u32, _)| {
            known == text && *of == ties && *limit == steps
        };
        let known = self.0.iter().position(is_it).and_then(|at| self.0.remove(at));
        let entry = match known {
            Some(entry) => entry,
            None => {
                let program = Program::compile(text, ties)?;
                let is_default = program.step_limit() == steps;
                let program = if is_default { program } else { program.with_step_limit(steps)? };
                (text.to_owned(), ties, steps, Arc::new(program))
            }
        };
        let program = Arc::clone(&entry.3);
        self.0.truncate(PROGRAMS_KEPT - 1);
        self.0.push_front(entry);
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{STEPS_DEFAULT, STEPS_MAX};

    #[test]
    fn a_program_is_compiled_once_and_tie_modes_are_kept_apart() {
        let mut programs = Programs::default();
        let mut compile = |text: &str, ties| programs.compile(text, ties, STEPS_DEFAULT).unwrap();
        let first = compile("rot90", Ties::Cpython);
        let lowest = compile("rot90", Ties::Lowest);
        assert!(!Arc::ptr_eq(&first, &lowest));
        assert_ne!(first.hash(), lowest.hash());
        assert!(Arc::ptr_eq(&first, &compile("rot90", Ties::Cpython)));
        for factor in 1..=PROGRAMS_KEPT {
            compile(&format!("upscale({factor})"), Ties::Cpython);
        }
        assert!(!Arc::ptr_eq(&first, &compile("rot90", Ties::Cpython)), "the oldest were dropped");
        assert!(programs.0.len() <= PROGRAMS_KEPT);
    }

    #[test]
    fn the_cache_keeps_programs_by_text_and_ties() {
        let mut programs = Programs::default();
        for _ in 0..3 {
            for factor in 1..=20 {
                for ties in [Ties::Cpython, Ties::Lowest] {
                    let text = format!("upscale({factor}) | mostcolor");
                    let program = programs.compile(&text, ties, STEPS_DEFAULT).unwrap();
                    assert_eq!((program.text(), program.ties()), (text.as_str(), ties));
                }
            }
        }
        assert!(programs.compile("rot90 |", Ties::Lowest, STEPS_DEFAULT).is_err());
        assert_eq!(programs.0.len(), PROGRAMS_KEPT);
        let first = programs.compile("rot90", Ties::Lowest, STEPS_DEFAULT).unwrap();
        let again = programs.compile("rot90", Ties::Lowest, STEPS_DEFAULT).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
    }

    #[test]
    fn a_program_that_does_not_compile_is_not_kept() {
        let mut programs = Programs::default();
        assert!(programs.compile("rot91", Ties::Cpython, STEPS_DEFAULT).is_err());
        assert!(programs.0.is_empty());
    }

    #[test]
    fn a_limit_of_steps_makes_another_program_and_is_checked() {
        let mut programs = Programs::default();
        let mut limited = |text, steps| programs.compile(text, Ties::Cpython, steps);
        let usual = limited("O = rot90(I)", STEPS_DEFAULT).unwrap();
        let short = limited("O = rot90(I)", 7).unwrap();
        assert_eq!((usual.step_limit(), short.step_limit()), (STEPS_DEFAULT, 7));
        assert_ne!(usual.hash(), short.hash());
        assert!(Arc::ptr_eq(&short, &limited("O = rot90(I)", 7).unwrap()));
        for steps in [0, STEPS_MAX + 1] {
            let said = limited("O = rot90(I)", steps).unwrap_err().to_string();
            assert!(said.contains("from 1 to 100000000"), "{said}");
        }
        assert!(limited("rot90", 7).unwrap_err().to_string().contains("only a solver"));
    }
}
