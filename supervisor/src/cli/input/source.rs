//! From INPUT arguments to bytes: files, directories and standard input, in the order typed.
//!
//! Owns the choice of files and the limit of bytes. Of the content it knows only the format, by its first bytes.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::json::{self, Contents};
use super::names::{self, Name};
use super::{Body, Cause, Diagnostic, INPUT_BYTES_MAX, Input, InputError, arrow, format, npy, npz};
use crate::cli::npy::has_magic;

/// Longest name of a file that an error shows whole: a path has fewer bytes.
const NAME_CHARS_MAX: usize = 4_096;

/// Inputs before their names are final.
type Unnamed = Vec<(Name, Body)>;

/// Standard input of the command.
pub struct Stdin<'a> {
    /// Whether it is a terminal, which is read only if `-` is named.
    pub is_terminal: bool,
    /// The bytes.
    pub reader: &'a mut dyn Read,
}

impl std::fmt::Debug for Stdin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stdin").field("is_terminal", &self.is_terminal).finish_non_exhaustive()
    }
}

/// Reads every INPUT argument; without arguments, standard input if something is piped into it.
///
/// A directory gives its `*.json` files in the order of their names, without hidden files and
/// subdirectories.
///
/// # Errors
/// [`InputError`] for the first argument with an error.
pub fn read(arguments: &[PathBuf], stdin: Stdin<'_>) -> Result<Vec<Input>, InputError> {
    let (names, bodies): (Vec<Name>, Vec<Body>) = read_all(arguments, stdin)?.into_iter().unzip();
    let named = names::distinct(names).into_iter().zip(bodies);
    Ok(named.map(|(name, body)| Input { name, body }).collect())
}

fn read_all(arguments: &[PathBuf], stdin: Stdin<'_>) -> Result<Unnamed, InputError> {
    let dash = Path::new("-");
    if arguments.is_empty() {
        return if stdin.is_terminal { Err(InputError::Missing) } else { read_stdin(stdin) };
    }
    if arguments.iter().filter(|argument| *argument == dash).count() > 1 {
        return Err(InputError::StdinTwice);
    }
    let mut stdin = Some(stdin);
    let mut inputs = Vec::new();
    for path in arguments {
        if path == dash
            && let Some(stdin) = stdin.take()
        {
            inputs.append(&mut read_stdin(stdin)?);
        } else if path.is_dir() {
            inputs.append(&mut read_directory(path)?);
        } else {
            inputs.append(&mut read_file(path, Name::fixed(path.display().to_string()))?);
        }
    }
    Ok(inputs)
}

fn read_stdin(stdin: Stdin<'_>) -> Result<Unnamed, InputError> {
    let name = Name::fixed("-".to_owned());
    let bytes = take_bytes(stdin.reader);
    let inputs = bytes.and_then(|bytes| decode(&bytes, Path::new("-"), name));
    inputs.map_err(|diagnostic| bad("standard input".to_owned(), diagnostic))
}

fn read_directory(directory: &Path) -> Result<Unnamed, InputError> {
    let files = task_files(directory)
        .map_err(|diagnostic| bad(directory.display().to_string(), diagnostic))?;
    let mut inputs = Vec::with_capacity(files.len());
    for path in files {
        inputs.append(&mut read_file(&path, Name::of_file(&path))?);
    }
    Ok(inputs)
}

fn task_files(directory: &Path) -> Result<Vec<PathBuf>, Box<Diagnostic>> {
    let entries = fs::read_dir(directory).map_err(unreadable)?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if name.ends_with(b".json") && !name.starts_with(b".") && !path.is_dir() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(Cause::NoTask { hint: ": there is no *.json file directly in it" }.into());
    }
    files.sort_unstable();
    Ok(files)
}

fn read_file(path: &Path, name: Name) -> Result<Unnamed, InputError> {
    let claims = |format: &str| has_extension(path, format);
    let file = File::open(path).map_err(|error| {
        let is_absent = matches!(error.kind(), ErrorKind::InvalidFilename | ErrorKind::NotFound);
        match is_absent {
            true if looks_like_json(path) => Cause::NotAFile.into(),
            true if path.as_os_str().as_encoded_bytes().iter().any(|byte| b"*?".contains(byte)) => {
                Cause::Pattern.into()
            }
            true | false => unreadable(error),
        }
    });
    let inputs = file.and_then(take_bytes).and_then(|bytes| {
        if claims("py") {
            return Err(Cause::Programs.into());
        }
        if claims("npy") && !has_magic(&bytes) && !format::is_zip(&bytes) {
            let reason = "it does not begin with \\x93NUMPY".to_owned();
            return Err(Cause::NotNpy { reason }.into());
        }
        if claims("npz") && !format::is_zip(&bytes) && !has_magic(&bytes) {
            return Err(Cause::NotNpz.into());
        }
        if claims("arrow") && !arrow::has_magic(&bytes) {
            let reason = "it does not begin with ARROW1".to_owned();
            return Err(Cause::NotArrow { reason }.into());
        }
        decode(&bytes, path, name)
    });
    let named = || path.display().to_string().chars().take(NAME_CHARS_MAX).collect();
    inputs.map_err(|diagnostic| bad(named(), diagnostic))
}

fn looks_like_json(path: &Path) -> bool {
    matches!(path.as_os_str().as_encoded_bytes().trim_ascii_start(), [b'[' | b'{', ..])
}

/// All bytes: at least one, at most the limit.
fn take_bytes(reader: impl Read) -> Result<Vec<u8>, Box<Diagnostic>> {
    let mut bytes = Vec::new();
    reader.take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 {
        0 => Err(Cause::Empty.into()),
        length if length > INPUT_BYTES_MAX => Err(Cause::FileTooLarge.into()),
        _ => Ok(bytes),
    }
}

/// The inputs in the bytes of `file`: one with this name, or several tasks with their own names.
fn decode(bytes: &[u8], file: &Path, name: Name) -> Result<Unnamed, Box<Diagnostic>> {
    let contents = if has_magic(bytes) {
        Contents::Grids(npy::grids(bytes)?)
    } else if format::is_zip(bytes) {
        npz::contents(bytes)?
    } else if arrow::has_magic(bytes) {
        arrow::contents(bytes)?
    } else {
        // One line alone may be a whole document, unless the name says otherwise.
        let read = if has_extension(file, "jsonl") { json::lines::read } else { json::read };
        let text = format::text(bytes)?;
        match text.trim_ascii_start() {
            [] | [b'[' | b'{' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n', ..] => read(text)?,
            [..] => return Err(Cause::Unrecognised.into()),
        }
    };
    Ok(match contents {
        Contents::Grids(grids) => vec![(name, Body::Grids(grids))],
        Contents::Pairs(pairs) => vec![(name, Body::Pairs(pairs))],
        Contents::Task(task) => vec![(name, Body::Task(task))],
        Contents::Tasks(tasks) => {
            let named = |(key, task)| (Name::under(file, key), Body::Task(task));
            tasks.into_iter().map(named).collect()
        }
    })
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|has| has == extension)
}

fn bad(file: String, diagnostic: Box<Diagnostic>) -> InputError {
    InputError::Bad { file, diagnostic }
}

fn unreadable(error: io::Error) -> Box<Diagnostic> {
    Cause::Read { reason: error.to_string() }.into()
}
