//! The PROGRAM of a command line: a text, `@FILE`, `@FILE:NAME` for one definition of a file, or `--program FILE`.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gridpool_protocol::near;
use gridpool_protocol::program::{Program, ProgramError, Ties};
use gridpool_protocol::solver::{Source, traced};

use super::error::CommandError;

/// Longest file of programs, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The text of a program, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProgramText {
    pub(super) text: String,
    /// The line of the file that is line 1 of the text.
    first_line: u32,
}

impl ProgramText {
    /// The program that `named` says: a text, or a file behind `@`.
    pub(super) fn of(named: &str) -> Result<Self, CommandError> {
        let Some(named) = named.strip_prefix('@') else {
            return Ok(Self { text: named.to_owned(), first_line: 1 });
        };
        let (file, definition) = match named.rsplit_once(':') {
            Some((file, definition)) if !Path::new(named).exists() => (file, Some(definition)),
            Some(_) | None => (named, None),
        };
        let text = read(Path::new(file))?;
        match definition {
            None => Ok(Self { text, first_line: 1 }),
            Some(definition) => Self::definition(file, &text, definition),
        }
    }

    /// The program of a whole file.
    pub(super) fn file(file: &Path) -> Result<Self, CommandError> {
        Ok(Self { text: read(file)?, first_line: 1 })
    }

    fn definition(file: &str, text: &str, name: &str) -> Result<Self, CommandError> {
        let source =
            Source::parse(text).map_err(|mistakes| CommandError::Program(mistakes.into()))?;
        match source.extract(name) {
            Some((text, first_line)) => Ok(Self { text, first_line }),
            None => {
                let known = near::names(name, source.definitions().map(|(name, _)| name));
                let close = match known.as_slice() {
                    [] => format!("`gridpool check {file} --all` lists what it has"),
                    close => format!("close to it: {}", close.join(", ")),
                };
                Err(CommandError::Usage(format!("{file} has no `def {name}(…):`; {close}")))
            }
        }
    }

    /// The text that computes the value of one statement.
    pub(super) fn up_to(self, line: Option<&str>) -> Result<Self, CommandError> {
        let Some(line) = line else { return Ok(self) };
        // A line is named as the file counts it.
        let counted: Option<u32> = line.parse().ok();
        let within = counted.and_then(|line| (line + 1).checked_sub(self.first_line));
        let line = within.map_or_else(|| line.to_owned(), |line| line.to_string());
        let first_line = self.first_line;
        let text = traced(&self.text, &line)
            .map_err(|mistakes| CommandError::Program(mistakes.from_line(first_line).into()))?;
        Ok(Self { text, first_line })
    }

    pub(super) fn compile(&self, ties: Ties) -> Result<Program, ProgramError> {
        Program::compile(self.text.trim_end(), ties)
            .map_err(|error| error.from_line(self.first_line))
    }
}

/// Reads a file of programs, or standard input.
pub(super) fn read(file: &Path) -> Result<String, CommandError> {
    let failed = |error: io::Error| CommandError::Usage(format!("{}: {error}", file.display()));
    let mut text = String::new();
    let read = if file == Path::new("-") {
        io::stdin().take(FILE_BYTES_MAX + 1).read_to_string(&mut text)
    } else {
        let opened = fs::File::open(file).map_err(failed)?;
        opened.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)
    };
    if read.map_err(failed)? as u64 > FILE_BYTES_MAX {
        let most = FILE_BYTES_MAX >> 20;
        let file = file.display();
        return Err(CommandError::Usage(format!(
            "{file} is longer than {most} MiB, too long for programs"
        )));
    }
    Ok(text)
}

/// The program and the inputs of a command line: `--program FILE` takes the place of PROGRAM.
pub(super) fn chosen(
    program: Option<&str>,
    file: Option<&Path>,
    inputs: &[PathBuf],
) -> Result<(ProgramText, Vec<PathBuf>), CommandError> {
    match (file, program) {
        (Some(file), program) => {
            let inputs = program.map(PathBuf::from).into_iter().chain(inputs.iter().cloned());
            Ok((ProgramText::file(file)?, inputs.collect()))
        }
        (None, Some(program)) => Ok((ProgramText::of(program)?, inputs.to_vec())),
        (None, None) => Err(CommandError::Usage(
            "say what to run: a PROGRAM such as 'rot90', @FILE:NAME, or --program FILE".to_owned(),
        )),
    }
}
