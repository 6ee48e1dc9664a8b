//! `gridpool compile`: programs to bytecode, a JSON line for each, without a pool.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use gridpool_client::{Candidate, bytecode};
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::program::Ties;
use serde_json::json;

use super::error::CommandError;
use super::misplaced;
use super::say_json;
use super::search::programs::Programs;
use super::search::report::Report;
use super::search::some_can_run;
use crate::programs::{FileName, ProgramText, is_program, name_of};

/// What to compile.
#[derive(Debug, Args)]
pub(super) struct CompileFlags {
    /// A program: the text of a solver or a chain of ops, or `@FILE:NAME`, a definition of a file. Its id is its number
    /// or NAME. A file without `@`, or `-`, is read as that of --programs.
    #[arg(required_unless_present = "programs")]
    program: Vec<String>,
    /// Programs as `gridpool search` takes them: JSON lines `{"id": …, "program": …}` of a file, or of standard input
    /// if it is `-`; or a file of definitions, `solvers.py`. Templates have no bytecode.
    #[arg(long, value_name = "FILE")]
    programs: Option<PathBuf>,
    /// How to choose between equally common colours: cpython (as the reference does) or lowest. A search of the
    /// bytecode has the same.
    #[arg(long, default_value = "cpython", env = "GRIDPOOL_TIES")]
    ties: Ties,
}

/// Where programs come from.
enum Source {
    File(String, Programs),
    /// The command line.
    Typed(Vec<Candidate>),
}

/// The programs of a command line, in their order.
#[derive(Default)]
struct Sources(Vec<Source>);

impl Sources {
    fn file(&mut self, path: &Path) -> Result<(), CommandError> {
        self.0.push(Source::File(name_of(path), Programs::open(path)?));
        Ok(())
    }

    fn typed(&mut self, program: Candidate) {
        match self.0.last_mut() {
            Some(Source::Typed(all)) => all.push(program),
            Some(Source::File(..)) | None => self.0.push(Source::Typed(vec![program])),
        }
    }

    fn named(&mut self, number: usize, named: &str) -> Result<(), CommandError> {
        let path = Path::new(named);
        // An op may have the name of a folder.
        let is_op = || path.is_dir() && is_program(named);
        if named == "-" || path.exists() && !is_op() {
            return self.file(path);
        }
        if let Some(missing) = misplaced::missing(named) {
            return Err(missing);
        }
        let ProgramText { text, .. } = ProgramText::of(named)?;
        let definition = named.starts_with('@').then(|| FileName::of(Path::new(named)).definition);
        let id = definition.flatten().unwrap_or_else(|| number.to_string());
        self.typed(Candidate::new(id, text));
        Ok(())
    }

    /// The files, in a sentence.
    fn files(&self) -> String {
        let file = |source: &Source| match source {
            Source::File(name, _) => Some(name.clone()),
            Source::Typed(_) => None,
        };
        self.0.iter().filter_map(file).collect::<Vec<_>>().join(", ")
    }
}

/// Compiles all programs and prints their bytecode as it is made. It is an error if one of them has none.
pub(super) fn run(flags: &CompileFlags) -> Result<u8, CommandError> {
    let mut sources = Sources::default();
    for (number, named) in (1..).zip(&flags.program) {
        sources.named(number, named)?;
    }
    flags.programs.as_deref().map_or(Ok(()), |path| sources.file(path))?;
    let files = sources.files();
    let (mut requested, mut typed, mut of_files) = (0, 0, 0);
    for source in sources.0 {
        match source {
            Source::File(name, programs) => {
                of_files += compile(&name, programs, flags.ties, &mut requested)?;
            }
            Source::Typed(programs) => typed += compile("", programs, flags.ties, &mut requested)?,
        }
    }
    // What was typed is no file's data.
    let of_typed = |error: CommandError| match (typed, of_files) {
        (1.., 0) => CommandError::Usage(error.to_string()),
        _ => error,
    };
    all_have_bytecode(&files, requested, typed + of_files).map_err(of_typed)?;
    Ok(exit::OK)
}

/// Compiles the programs of a file, or those typed, and counts them. Returns how many are refused.
fn compile<I>(from: &str, programs: I, ties: Ties, requested: &mut u64) -> Result<u64, CommandError>
where
    I: IntoIterator<Item = Candidate>,
    I::IntoIter: Send + 'static,
{
    let mut report = Report::new(from.to_owned(), true, true, false);
    let mut refused = 0;
    for made in bytecode(programs, ties)? {
        let (id, made) = made?;
        *requested += 1;
        match made {
            Ok(bytes) => {
                say_json(&json!({ "id": id, "bytecode": STANDARD.encode(bytes) }))?;
            }
            Err(why) => {
                refused += 1;
                report.tell(&id, &format!("is refused: {why}"));
            }
        }
    }
    if let Some(more) = report.untold() {
        // If standard error is closed, the exit code must do.
        drop(writeln!(io::stderr(), "gridpool: {more} more programs are refused"));
    }
    Ok(refused)
}

/// The error of programs some of which have no bytecode. A search has a result for such a program; here it is missing
/// in what was printed, so a script must hear of it.
fn all_have_bytecode(from: &str, requested: u64, refused: u64) -> Result<(), CommandError> {
    some_can_run(from, requested, refused)?;
    match refused {
        0 => Ok(()),
        _ => Err(CommandError::NoPrograms(format!(
            "{refused} of {requested} programs have no bytecode: see why above"
        ))),
    }
}
