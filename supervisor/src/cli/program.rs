//! The PROGRAM of a command line: a text, `@FILE`, `@FILE:NAME` for one definition of a file, or `--program FILE`.
//! Where only files are meant, the `@` may be left out.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gridpool_protocol::near;
use gridpool_protocol::program::{Program, ProgramError, Ties};
use gridpool_protocol::solver::{Source, Untraced, traced};

use super::arguments::ProgramFlags;
use super::error::CommandError;
use super::misplaced;

/// Longest file of programs, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The text of a program, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProgramText {
    pub(super) text: String,
    /// The line of the file that is line 1 of the text.
    first_line: u32,
    /// The file, if it comes from one.
    file: Option<PathBuf>,
}

impl ProgramText {
    /// The program that `named` says: a text, or a file behind `@`.
    pub(super) fn of(named: &str) -> Result<Self, CommandError> {
        if named.starts_with('@') {
            return Self::file(Path::new(named));
        }
        Ok(Self { text: named.to_owned(), first_line: 1, file: None })
    }

    /// The program of a whole file, or of one definition.
    pub(super) fn file(named: &Path) -> Result<Self, CommandError> {
        let named = FileName::of(named);
        let text = read(&named.file)?;
        let Some(name) = &named.definition else {
            return Ok(Self { text, first_line: 1, file: Some(named.file) });
        };
        Self::definition(&named.file, &parse(&named.file, &text)?, name)
    }

    /// The program of one definition of a file that has been read.
    pub(super) fn definition(
        file: &Path,
        source: &Source<'_>,
        name: &str,
    ) -> Result<Self, CommandError> {
        if let Some((text, first_line)) = source.extract(name) {
            return Ok(Self { text, first_line, file: Some(file.to_owned()) });
        }
        let known = near::names(name, source.definitions().map(|(name, _)| name));
        let file = file.display();
        let close = match known.as_slice() {
            [] => format!("`gridpool check {file} --all` lists what it has"),
            close => format!("close to it: {}", close.join(", ")),
        };
        Err(CommandError::Usage(format!("{file} has no `def {name}(…):`; {close}")))
    }

    /// The text that computes the value of one statement.
    pub(super) fn up_to(self, typed: Option<&str>) -> Result<Self, CommandError> {
        let Some(typed) = typed else { return Ok(self) };
        // A line is named as the file counts it.
        let counted: Option<u32> = typed.parse().ok();
        let within = counted.and_then(|line| line.checked_add(1)?.checked_sub(self.first_line));
        let line = within.map_or_else(|| typed.to_owned(), |line| line.to_string());
        let text = traced(&self.text, &line).map_err(|error| match error {
            Untraced::Text(mistakes) => self.wrong(mistakes.from_line(self.first_line).into()),
            Untraced::NoStatement { until: _, help } => {
                let file = self.file.as_deref().map(Path::display);
                let place = file.map_or_else(|| "the program".to_owned(), |file| file.to_string());
                CommandError::Usage(format!("{place} has no statement `{typed}`: {help}"))
            }
        })?;
        Ok(Self { text, ..self })
    }

    pub(super) fn compile(&self, ties: Ties) -> Result<Program, CommandError> {
        self.program(ties).map_err(|error| self.wrong(error))
    }

    fn program(&self, ties: Ties) -> Result<Program, ProgramError> {
        let program = Program::compile(self.text.trim_end(), ties);
        program.map_err(|error| error.from_line(self.first_line))
    }

    /// The error of this text, with the name of its file.
    fn wrong(&self, error: ProgramError) -> CommandError {
        match &self.file {
            Some(file) => wrong(file, &self.text, &error),
            None => CommandError::Program(error),
        }
    }
}

/// The text of a program of a config file: itself, or behind `@` that of a file, whose path is relative to `folder`.
///
/// # Errors
/// A sentence with the file and its line, if it has no program that compiles.
pub(crate) fn program_in(named: &str, folder: &Path) -> Result<String, String> {
    let Some(file) = named.strip_prefix('@') else { return Ok(named.to_owned()) };
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
pub(super) struct FileName {
    pub(super) file: PathBuf,
    /// One definition of it.
    pub(super) definition: Option<String>,
}

impl FileName {
    pub(super) fn of(named: &Path) -> Self {
        let whole = |file: &Path| Self { file: file.to_owned(), definition: None };
        if named.exists() {
            return whole(named);
        }
        let Some(text) = named.to_str() else { return whole(named) };
        let text = text.strip_prefix('@').unwrap_or(text);
        match text.rsplit_once(':') {
            Some((file, name)) if !Path::new(text).exists() => {
                Self { file: file.into(), definition: Some(name.to_owned()) }
            }
            Some(_) | None => whole(Path::new(text)),
        }
    }
}

/// The definitions of a file.
pub(super) fn parse<'t>(file: &Path, text: &'t str) -> Result<Source<'t>, CommandError> {
    Source::parse(text).map_err(|mistakes| wrong(file, text, &mistakes.into()))
}

/// The error of what a file holds.
fn wrong(file: &Path, text: &str, error: &ProgramError) -> CommandError {
    let why = match text.trim_start().chars().next() {
        None => "it is empty: write a program there, such as rot90 | hmirror".to_owned(),
        Some('[' | '{') => "it is JSON, not a program: `gridpool run PROGRAM FILE` reads grids and tasks, `gridpool \
                            search --programs FILE` JSON lines of programs"
            .to_owned(),
        Some(_) => error.to_string(),
    };
    CommandError::ProgramFile { file: file.to_owned(), why }
}

/// Reads a file of programs, or standard input.
pub(super) fn read(file: &Path) -> Result<String, CommandError> {
    let wrong = |why| CommandError::ProgramFile { file: file.to_owned(), why };
    let looks_so = |text: &&str| text.contains(['(', '|', '=']) || misplaced::is_program(text);
    let failed = |error: io::Error| match file.to_str().filter(looks_so) {
        Some(text) if error.kind() == io::ErrorKind::NotFound => wrong(format!(
            "no file has this name; `gridpool run` takes a program that is typed, and `-` in place of the file reads \
             one from standard input: echo '{text}' | gridpool check -"
        )),
        Some(_) | None => wrong(format!("cannot be read: {error}")),
    };
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
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
    let source = source.up_to(work.trace.as_deref())?;
    let program = source.program(work.ties).map_err(|error| match source.file {
        Some(_) => source.wrong(error),
        None => misplaced::program(&source.text, &paths, error),
    })?;
    let program = match work.steps {
        None => program,
        Some(steps) => program.with_step_limit(steps).map_err(CommandError::Program)?,
    };
    Ok((program, source.text, paths))
}
