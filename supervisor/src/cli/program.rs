//! The PROGRAM of a command line: a text, `@FILE`, `@FILE:NAME` for one definition of a file, or `--program FILE`.

use std::path::{Path, PathBuf};

use gridpool_protocol::program::Program;
use gridpool_protocol::solver::{Untraced, traced};

use super::arguments::ProgramFlags;
use super::error::CommandError;
use super::misplaced;
use crate::programs::{ProgramText, SourceError};

/// The text that computes the value of one statement.
fn up_to(source: ProgramText, typed: Option<&str>) -> Result<ProgramText, CommandError> {
    let Some(typed) = typed else { return Ok(source) };
    // A line is named as the file counts it.
    let counted: Option<u32> = typed.parse().ok();
    let within = counted.and_then(|line| line.checked_add(1)?.checked_sub(source.first_line));
    let line = within.map_or_else(|| typed.to_owned(), |line| line.to_string());
    let text = traced(&source.text, &line).map_err(|error| match error {
        Untraced::Text(mistakes) => {
            source.wrong(mistakes.from_line(source.first_line).into()).into()
        }
        Untraced::NoStatement { until: _, help } => {
            let file = source.file.as_deref().map(Path::display);
            let place = file.map_or_else(|| "the program".to_owned(), |file| file.to_string());
            CommandError::Usage(format!("{place} has no statement `{typed}`: {help}"))
        }
    })?;
    Ok(ProgramText { text, ..source })
}

/// The program and the inputs of a command line: `--program FILE` takes the place of PROGRAM.
fn chosen(
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

/// The program of a command line, its text, and the inputs.
pub(super) fn compiled(
    work: &ProgramFlags,
) -> Result<(Program, String, Vec<PathBuf>), CommandError> {
    let (source, paths) =
        chosen(work.program.as_deref(), work.program_file.as_deref(), &work.inputs)?;
    let source = up_to(source, work.trace.as_deref())?;
    let program = source.program(work.ties).map_err(|error| match source.file {
        Some(_) => source.wrong(error).into(),
        None => misplaced::program(&source.text, &paths, error),
    })?;
    let program = match work.steps {
        None => program,
        Some(steps) => program.with_step_limit(steps).map_err(SourceError::Typed)?,
    };
    Ok((program, source.text, paths))
}
