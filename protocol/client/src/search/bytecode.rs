//! Programs to bytecode, on all cores and in order, without a pool.

use std::sync::Arc;
use std::thread;
use std::vec;

use gridpool_protocol::program::Ties;
use gridpool_protocol::search::Template;

use super::pipeline::{Compiled, Pipeline, Taken, Terms};
use super::{Candidate, ClientError, SEARCH_STEPS_DEFAULT};

/// Why a template has no bytecode.
const TEMPLATE: &str = "it is a template, and bytecode is one program without holes: search for the text itself, or \
                        write a word in the place of each hole";

/// Compiles programs once, for any number of searches of this build ([`Candidate::of_bytecode`]). Programs are read on
/// a thread of its own, no further ahead than a limit. The limit of steps is that of each search.
///
/// ```
/// use gridpool_client::{Candidate, Ties, bytecode};
/// let programs = ["rot90 | hmirror", "O = hmirror(rot90(I))", "rot91", "replace(?a:color, 1)"];
/// let programs = programs.map(|text| Candidate::new("", text));
/// let made: Vec<_> = bytecode(programs, Ties::Cpython).unwrap().map(Result::unwrap).collect();
/// assert_eq!(made[0].1, made[1].1, "they mean the same");
/// assert!(made[2].1.is_err() && made[3].1.is_err());
/// ```
///
/// # Errors
/// [`ClientError::System`] without threads.
pub fn bytecode<I>(programs: I, ties: Ties) -> Result<Bytecode, ClientError>
where
    I: IntoIterator<Item = Candidate>,
    I::IntoIter: Send + 'static,
{
    let single = |candidate: Candidate| match candidate.text().map(Template::parse) {
        Some(Ok(Some(_))) => Candidate::refused(candidate.id, TEMPLATE),
        Some(Ok(None) | Err(_)) | None => candidate,
    };
    let terms = Terms { ties, steps: SEARCH_STEPS_DEFAULT, sharing: false };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let pipeline = Pipeline::start(programs.into_iter().map(single), terms, threads)?;
    Ok(Bytecode { pipeline, ready: Vec::new().into_iter() })
}

/// The name and the bytecode of each program, or why it has none, in the order of the programs ([`bytecode()`]). After
/// an error it ends.
#[derive(Debug)]
pub struct Bytecode {
    pipeline: Arc<Pipeline>,
    ready: vec::IntoIter<Compiled>,
}

impl Iterator for Bytecode {
    type Item = Result<(String, Result<Vec<u8>, String>), ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.ready.next() {
                Some(Compiled::Program { id, made }) => {
                    return Some(Ok((id, made.map(|made| made.bytes))));
                }
                // They were refused.
                Some(Compiled::Template(_)) => continue,
                None => {}
            }
            match self.pipeline.take(None) {
                Taken::Programs(programs) => self.ready = programs.into_iter(),
                Taken::Nothing | Taken::End(Ok(())) => return None,
                Taken::End(Err(why)) => {
                    self.pipeline.stop();
                    return Some(Err(ClientError::System(std::io::Error::other(why))));
                }
            }
        }
    }
}

impl Drop for Bytecode {
    fn drop(&mut self) {
        self.pipeline.stop();
    }
}
