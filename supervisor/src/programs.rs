//! Programs in files: `@FILE`, and `@FILE:NAME` for one definition of a file. Where only files are meant, the `@` may
//! be left out.
//!
//! Owns how such a name is read. May not know where it was written: on a command line or in a config file.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gridpool_protocol::near;
use gridpool_protocol::program::{Program, ProgramError, Ties};
use gridpool_protocol::solver::Source;

/// Longest file of programs, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Why there is no program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// A file of programs cannot be read, or does not compile.
    #[error("{}: {why}", name_of(file))]
    File { file: PathBuf, why: String },
    /// A text that was typed does not compile.
    #[error("{0}")]
    Typed(ProgramError),
}

/// The text of a program, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramText {
    pub(crate) text: String,
    /// The line of the file that is line 1 of the text.
    pub(crate) first_line: u32,
    /// The file, if it comes from one.
    pub(crate) file: Option<PathBuf>,
}

impl ProgramText {
    /// The program that `named` says: a text, or a file behind `@`.
    pub(crate) fn of(named: &str) -> Result<Self, SourceError> {
        if named.starts_with('@') {
            return Self::file(Path::new(named));
        }
        Ok(Self { text: named.to_owned(), first_line: 1, file: None })
    }

    /// The program of a whole file, or of one definition.
    pub(crate) fn file(named: &Path) -> Result<Self, SourceError> {
        let named = FileName::of(named);
        let text = read(&named.file)?;
        let Some(name) = &named.definition else {
            if let Ok(source) = Source::parse(&text) {
                one_of(&named.file, &source)?;
            }
            return Ok(Self { text, first_line: 1, file: Some(named.file) });
        };
        Self::definition(&named.file, &parse(&named.file, &text)?, name)
    }

    /// The program of one definition of a file that has been read.
    pub(crate) fn definition(
        file: &Path,
        source: &Source<'_>,
        name: &str,
    ) -> Result<Self, SourceError> {
        if let Some((text, first_line)) = source.extract(name) {
            return Ok(Self { text, first_line, file: Some(file.to_owned()) });
        }
        let known = near::names(name, source.definitions().map(|(name, _)| name));
        let close = match known.as_slice() {
            [] => format!("`gridpool check {} --all` lists what it has", file.display()),
            close => format!("close to it: {}", close.join(", ")),
        };
        let why = format!("it has no `def {name}(…):`; {close}");
        Err(SourceError::File { file: file.to_owned(), why })
    }

    pub(crate) fn compile(&self, ties: Ties) -> Result<Program, SourceError> {
        self.program(ties).map_err(|error| self.wrong(error))
    }

    /// The same, without the name of the file in an error.
    pub(crate) fn program(&self, ties: Ties) -> Result<Program, ProgramError> {
        let program = Program::compile(self.text.trim_end(), ties);
        program.map_err(|error| error.from_line(self.first_line))
    }

    /// The error of this text, with the name of its file.
    pub(crate) fn wrong(&self, error: ProgramError) -> SourceError {
        match &self.file {
            Some(file) => wrong(file, &self.text, &error),
            None => SourceError::Typed(error),
        }
    }
}

/// Checks that a file has no more programs than one, so that it needs no name.
fn one_of(file: &Path, source: &Source<'_>) -> Result<(), SourceError> {
    /// Enough to know the file by.
    const NAMED_MAX: usize = 4;
    let programs = source.programs();
    if programs.len() < 2 {
        return Ok(());
    }
    let (count, named) = (programs.len(), programs[..programs.len().min(NAMED_MAX)].join(", "));
    let more = if count > NAMED_MAX { ", …" } else { "" };
    let why = format!(
        "it has {count} programs: name one, `@{}:NAME`; there is {named}{more}",
        file.display()
    );
    Err(SourceError::File { file: file.to_owned(), why })
}

/// What a text is that names a file of programs without the `@` that it needs; none if it names none. A path is
/// relative to `folder`.
pub(crate) fn without_at(text: &str, folder: &Path) -> Option<FileName> {
    let is_word = !text.contains(|next: char| next.is_whitespace() || "()|=@".contains(next));
    let named = FileName::of(&folder.join(text));
    (is_word && text != "-" && (named.file.is_file() || named.file.extension().is_some()))
        .then_some(named)
}

/// The text of a program of a config file: itself, or behind `@` that of a file, whose path is relative to `folder`.
///
/// # Errors
/// A sentence with the file and its line, if it has no program that compiles.
pub(crate) fn program_in(named: &str, folder: &Path) -> Result<String, String> {
    let Some(file) = named.strip_prefix('@') else {
        return match without_at(named, folder) {
            Some(_) if !is_program(named) => Err(format!(
                "`{named}` is no program; that of a file has an `@` before it: write \"@{named}\""
            )),
            Some(_) | None => Ok(named.to_owned()),
        };
    };
    if file == "-" || file.starts_with("-:") {
        return Err(format!(
            "`{named}` is standard input, which a config file cannot name: name a file"
        ));
    }
    let own = ProgramText::file(&folder.join(file));
    let checked = own.and_then(|own| own.compile(Ties::default()).map(|_| own));
    checked.map(|own| own.text.trim_end().to_owned()).map_err(|error| error.to_string())
}

/// A file of programs as a command line names it: `FILE` or `FILE:NAME`, perhaps behind `@`; `-` for standard input.
pub(crate) struct FileName {
    pub(crate) file: PathBuf,
    /// One definition of it.
    pub(crate) definition: Option<String>,
}

impl FileName {
    pub(crate) fn of(named: &Path) -> Self {
        let whole = |file: &Path| Self { file: file.to_owned(), definition: None };
        if named.exists() {
            return whole(named);
        }
        let Some(text) = named.to_str() else { return whole(named) };
        let text = text.strip_prefix('@').unwrap_or(text);
        match text.rsplit_once(':') {
            Some((file, name)) if !Path::new(text).exists() => {
                let definition = Some(name.to_owned()).filter(|name| !name.is_empty());
                Self { file: file.into(), definition }
            }
            Some(_) | None => whole(Path::new(text)),
        }
    }
}

/// The definitions of a file.
pub(crate) fn parse<'t>(file: &Path, text: &'t str) -> Result<Source<'t>, SourceError> {
    Source::parse(text).map_err(|mistakes| wrong(file, text, &mistakes.into()))
}

/// The error of what a file holds.
fn wrong(file: &Path, text: &str, error: &ProgramError) -> SourceError {
    let why = match text.trim_start().chars().next() {
        None => "it is empty: write a program there, such as rot90 | hmirror".to_owned(),
        Some('[' | '{') => "it is JSON, not a program: `gridpool run PROGRAM FILE` reads grids and tasks, `gridpool \
                            search --programs FILE` JSON lines of programs"
            .to_owned(),
        Some(_) => error.to_string(),
    };
    SourceError::File { file: file.to_owned(), why }
}

/// Reads a file of programs, or standard input.
pub(crate) fn read(file: &Path) -> Result<String, SourceError> {
    let wrong = |why| SourceError::File { file: file.to_owned(), why };
    let looks_so = |text: &&str| text.contains(['(', '|', '=']) || is_program(text);
    let failed = |error: io::Error| match file.to_str().filter(looks_so) {
        Some(text) if error.kind() == io::ErrorKind::NotFound => wrong(format!(
            "no file has this name; `gridpool run` takes a program that is typed, and `-` in place of the file reads \
             one from standard input: echo '{text}' | gridpool check -"
        )),
        Some(_) | None if file.as_os_str().is_empty() => {
            wrong("no file is named: write @FILE or @FILE:NAME".to_owned())
        }
        Some(_) | None if error.kind() == io::ErrorKind::IsADirectory => {
            wrong("it is a folder: name a file of programs".to_owned())
        }
        Some(_) | None => wrong(format!("cannot be read: {error}")),
    };
    let mut bytes = Vec::new();
    let read = if is_stdin(file) {
        io::stdin().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        let opened = fs::File::open(file).map_err(failed)?;
        opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)
    };
    if read.map_err(failed)? as u64 > FILE_BYTES_MAX {
        let most = FILE_BYTES_MAX >> 20;
        return Err(wrong(format!("it is longer than {most} MiB, too long for programs")));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.split(|byte| *byte == b'\n').count();
        wrong(format!("line {line}: it is not UTF-8, so no text of programs"))
    })?;
    // Some editors begin a file with a mark.
    Ok(match text.strip_prefix('\u{feff}') {
        Some(text) => text.to_owned(),
        None => text,
    })
}

/// Whether a text is a program.
pub(crate) fn is_program(text: &str) -> bool {
    Program::compile(text, Ties::default()).is_ok()
}

/// Whether a file is standard input.
pub(crate) fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// A file of programs, in a sentence.
pub(crate) fn name_of(file: &Path) -> String {
    match file.to_str() {
        Some("-") => "standard input".to_owned(),
        Some("") => "@".to_owned(),
        Some(_) | None => file.display().to_string(),
    }
}
