//! The programs of a search: JSON lines that are read as they are needed, or the definitions of a file.
//!
//! A bad line has a result in its place, which says what is wrong with it; the others still run.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gridpool_client::{Candidate, Given};
use serde_json::{Map, Value};

use crate::cli::error::CommandError;
use crate::programs::{SourceError, parse, read};

/// Longest line, bytes: a program of the greatest length, each of its bytes escaped.
const LINE_BYTES_MAX: usize = 128 * 1_024;

/// Bytes of the largest file that is looked at whole, to say that it is a task. One of 30 pairs of the largest grids
/// has less than half of that.
const TASK_BYTES_MAX: u64 = 1 << 20;

/// What a line looks like.
const LINE: &str = r#"write {"id": "any name", "program": "rot90 | hmirror"}"#;

/// What to do if a line has no bytecode where it should.
const REMAKE: &str = "take the line as `gridpool compile` prints it";

/// The lines that were no programs.
#[derive(Clone, Debug, Default)]
pub(super) struct BadLines(Arc<AtomicU64>);

impl BadLines {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// See the module's text.
pub(in crate::cli) struct Programs {
    from: Origin,
    bad: BadLines,
}

enum Origin {
    Definitions(vec::IntoIter<Candidate>),
    Lines { reader: BufReader<Box<dyn Read + Send>>, line: u64 },
    Nothing,
}

impl Programs {
    /// Opens a file; `-` is standard input.
    pub(in crate::cli) fn open(path: &Path) -> Result<Self, CommandError> {
        let bad = BadLines::default();
        if path.extension().is_some_and(|extension| extension == "py") {
            return Ok(Self { from: definitions(path)?, bad });
        }
        let reader: Box<dyn Read + Send> = match path == Path::new("-") {
            true => Box::new(io::stdin()),
            false => {
                let failed = |error| SourceError::File {
                    file: path.to_owned(),
                    why: format!("cannot be read: {error}"),
                };
                let mut file = File::open(path).map_err(failed)?;
                if let Some(what) = other_than_lines(&mut file).map_err(failed)? {
                    let name = path.display();
                    return Err(CommandError::NoPrograms(format!("{name} is {what}; {LINE}")));
                }
                Box::new(file)
            }
        };
        Ok(Self::of(reader, bad))
    }

    pub(super) fn of(reader: Box<dyn Read + Send>, bad: BadLines) -> Self {
        Self { from: Origin::Lines { reader: BufReader::new(reader), line: 0 }, bad }
    }

    /// The lines that were no programs so far.
    pub(super) fn bad_lines(&self) -> BadLines {
        self.bad.clone()
    }
}

/// What a file is that is one JSON document, an ARC task or an array, and what to do. Leaves a regular file at its
/// start, and does not read from any other.
fn other_than_lines(file: &mut File) -> io::Result<Option<&'static str>> {
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(TASK_BYTES_MAX).read_to_end(&mut bytes)?;
    file.rewind()?;
    let document: Option<Value> = serde_json::from_slice(&bytes).ok();
    let is_task =
        |fields: &Map<String, Value>| fields.contains_key("train") || fields.contains_key("test");
    Ok(match document {
        Some(Value::Array(_)) => {
            Some("an array: name a file with a program on each line, without brackets around them")
        }
        Some(Value::Object(fields)) if is_task(&fields) => Some(
            "a task, not programs: name it with --tasks, and with --programs a file of definitions, `solvers.py`, or \
             one with a program on each line",
        ),
        Some(_) | None => None,
    })
}

/// Each definition of a file is a program.
fn definitions(path: &Path) -> Result<Origin, SourceError> {
    let text = read(path)?;
    let source = parse(path, &text)?;
    let named = source.definitions().filter_map(|(name, _)| Some((name, source.extract(name)?.0)));
    let all: Vec<_> = named.map(|(name, text)| Candidate::new(name, text)).collect();
    if all.is_empty() {
        let why = "it has no definitions: write `def NAME(I):` for each program".to_owned();
        return Err(SourceError::File { file: path.to_owned(), why });
    }
    Ok(Origin::Definitions(all.into_iter()))
}

impl Iterator for Programs {
    type Item = Candidate;

    fn next(&mut self) -> Option<Candidate> {
        loop {
            let (reader, line) = match &mut self.from {
                Origin::Definitions(all) => return all.next(),
                Origin::Nothing => return None,
                Origin::Lines { reader, line } => (reader, line),
            };
            *line += 1;
            let (bytes, ended) = match next_line(reader) {
                Ok(read) => read,
                Err(error) => (Err(error.to_string()), true),
            };
            let line = *line;
            if ended {
                self.from = Origin::Nothing;
            }
            let read = match &bytes {
                Ok(bytes) if bytes.trim_ascii().is_empty() && ended => return None,
                Ok(bytes) if bytes.trim_ascii().is_empty() => continue,
                Ok(bytes) => candidate(bytes, line),
                Err(why) => Err(why.clone()),
            };
            return Some(read.unwrap_or_else(|why| {
                self.bad.0.fetch_add(1, Ordering::Relaxed);
                Candidate::refused(line.to_string(), format!("line {line}: {why}"))
            }));
        }
    }
}

/// The next line without its end, and whether it is the last. The inner error: it is too long, and was skipped.
fn next_line(reader: &mut impl BufRead) -> io::Result<(Result<Vec<u8>, String>, bool)> {
    let mut bytes = Vec::new();
    let limit = LINE_BYTES_MAX as u64 + 1;
    reader.take(limit).read_until(b'\n', &mut bytes)?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        return Ok((Ok(bytes), false));
    }
    if bytes.len() <= LINE_BYTES_MAX {
        return Ok((Ok(bytes), true));
    }
    let why = format!("it has more than {LINE_BYTES_MAX} bytes; {LINE}");
    Ok((Err(why), skip_line(reader)?))
}

/// Skips the rest of a line. Returns whether the input ends there.
fn skip_line(reader: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let buffer = reader.fill_buf()?;
        let (found, length) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (true, at + 1),
            None => (false, buffer.len()),
        };
        reader.consume(length);
        if found || length == 0 {
            return Ok(!found);
        }
    }
}

/// The program of a line; the error is a sentence.
fn candidate(line: &[u8], number: u64) -> Result<Candidate, String> {
    // Windows writes a mark of its encoding before the first line.
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    let value: Value = serde_json::from_slice(line).map_err(|error| {
        // The parser counts lines of its own.
        let error = error.to_string().replace(" at line 1 column ", ", column ");
        format!("it is not JSON ({error}); {LINE}")
    })?;
    let Value::Object(fields) = value else {
        return Err(format!("it is no JSON object; {LINE}"));
    };
    let is_known = |key: &&String| matches!(key.as_str(), "id" | "program" | "bytecode");
    if let Some(other) = fields.keys().find(|key| !is_known(key)) {
        return Err(format!("it has an unknown field `{other}`; {LINE}"));
    }
    let given = match (fields.get("program"), fields.get("bytecode")) {
        (Some(Value::String(text)), None) => Given::Text(text.clone()),
        (Some(_), None) => return Err(format!("its program is no text; {LINE}")),
        (None, None) => return Err(format!("it has no field `program`; {LINE}")),
        (None, Some(Value::String(text))) => Given::Bytecode(
            STANDARD
                .decode(text)
                .map_err(|error| format!("its bytecode is no base64 ({error}): {REMAKE}"))?,
        ),
        (None, Some(_)) => return Err(format!("its bytecode is no text: {REMAKE}")),
        (Some(_), Some(_)) => {
            return Err("it has a program and bytecode: leave one of them out".to_owned());
        }
    };
    let id = match fields.get("id") {
        None => number.to_string(),
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        Some(_) => return Err(format!("its id is neither a text nor a number; {LINE}")),
    };
    Ok(Candidate { id, program: Ok(given) })
}
