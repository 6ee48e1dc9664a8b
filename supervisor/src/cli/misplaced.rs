//! Swapped arguments: a file in place of the program, or a program or model in place of a file.
//!
//! Runs only after another error, and replaces its message.

use std::path::{Path, PathBuf};

use gridpool_protocol::program::ProgramError;

use super::error::CommandError;
use super::input::InputError;
use crate::programs::{SourceError, is_program, without_at};

/// The error of a program that does not compile; it may be a file.
pub(super) fn program(text: &str, inputs: &[PathBuf], error: ProgramError) -> CommandError {
    if text.trim().is_empty() {
        let why = "the program is empty: write one, such as 'rot90 | hmirror'";
        return CommandError::Usage(why.to_owned());
    }
    let Some(kind) = kind_of(Path::new(text)) else {
        return missing(text).unwrap_or_else(|| SourceError::Typed(error).into());
    };
    let program = inputs.iter().filter_map(|input| input.to_str()).find(|text| is_program(text));
    CommandError::Misplaced(match program {
        Some(program) => format!(
            "`{text}` is {kind}, not a program: write the program first, '{program}' {text}"
        ),
        None => format!(
            "`{text}` is {kind}, not a program: write the program first, PROGRAM {text}; a program \
             in a file is `@FILE` or `--program FILE`, and one definition of it `@FILE:NAME`"
        ),
    })
}

/// The error of a text that looks like the name of a file, or of one of its definitions; `None` if it does not, or is
/// a file.
pub(super) fn missing(text: &str) -> Option<CommandError> {
    let named = without_at(text, Path::new("")).filter(|_| kind_of(Path::new(text)).is_none())?;
    Some(match named.definition {
        Some(_) if named.file.is_file() => CommandError::Misplaced(format!(
            "`{text}` is no program; one definition of a file has an `@` before it: write @{text}"
        )),
        Some(_) | None => CommandError::NoPrograms(format!(
            "there is no file `{}`, and `{text}` is no program either",
            named.file.display()
        )),
    })
}

/// The error of a missing input; it may be another op of the program.
/// `program` is its text, if that was typed.
pub(super) fn input(program: Option<&str>, inputs: &[PathBuf], error: InputError) -> CommandError {
    let missing = inputs.iter().filter(|input| kind_of(input).is_none());
    let step = missing.filter_map(|input| input.to_str()).find(|text| is_program(text));
    match step {
        Some(step) => CommandError::Misplaced(match program {
            Some(program) => format!(
                "there is no file `{step}`: if it belongs to the program, write '{program} | {step}'"
            ),
            None => format!(
                "there is no file `{step}`, and the program is read from a file already: leave `{step}` out, or write \
                 it there"
            ),
        }),
        None => error.into(),
    }
}

/// The error of a model and an input in each other's places.
pub(super) fn model(model: &str, input: &Path) -> Option<CommandError> {
    let kind = kind_of(Path::new(model)).filter(|_| kind_of(input).is_none())?;
    let other = input.display();
    Some(CommandError::Misplaced(format!(
        "`{model}` is {kind}, not a model's name: write the model first, {other} {model}"
    )))
}

fn kind_of(path: &Path) -> Option<&'static str> {
    if path == Path::new("-") {
        return Some("standard input");
    }
    match path.is_dir() {
        true => Some("a folder"),
        false => path.exists().then_some("a file"),
    }
}
