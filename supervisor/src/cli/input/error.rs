//! Why an input was refused: one sentence that names file, task, pair, row and column.
//!
//! Owns the words. May not read anything.

use std::fmt;

use gridpool_protocol::batch::GridError;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::limits::COLOR_MAX;

use super::source::INPUT_BYTES_MAX;

/// Why the INPUT arguments gave no grids.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// A file, or standard input, holds no good data.
    #[error("{file}: {flaw}")]
    Bad {
        /// The path as typed, or `standard input`.
        file: String,
        /// What is wrong in it, and where.
        flaw: Box<Flaw>,
    },
    /// No INPUT was named and nothing is piped in.
    #[error(
        "no input: name an ARC task file, a directory of them, a JSON array of grids or of pairs \
         or a .npy file, or pipe one of them into standard input"
    )]
    Missing,
    /// The program takes pairs, and there are none.
    #[error(
        "{input}: the program takes pairs, and this holds {}: give a task, a directory of tasks or \
         an array of pairs, [{{\"input\": grid, \"output\": grid}}]{}",
        if *.grids == 1 { "1 plain grid".to_owned() } else { format!("{grids} plain grids") },
        .instead.as_ref().map_or(String::new(), |program| format!(", or run `{program}` on it"))
    )]
    NeedsPairs {
        /// The input's name.
        input: String,
        /// How many grids it holds.
        grids: usize,
        /// The program over grids that does the same to each, if there is one.
        instead: Option<String>,
    },
    /// `-` was named more than once.
    #[error("`-` is named twice, but standard input can be read only once")]
    StdinTwice,
}

impl InputError {
    /// The exit code of the command.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Bad { .. } | Self::NeedsPairs { .. } => exit::DATA,
            Self::Missing | Self::StdinTwice => exit::USAGE,
        }
    }
}

/// What is wrong in a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Where, as far as it could be told.
    pub place: Place,
    /// What.
    pub cause: Cause,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place != Place::default() {
            write!(f, "{}: ", self.place)?;
        }
        self.cause.fmt(f)
    }
}

impl From<Cause> for Box<Flaw> {
    fn from(cause: Cause) -> Self {
        Self::new(Flaw { place: Place::default(), cause })
    }
}

/// A place in a file, from the outside in. All numbers count from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The task, in a file of many.
    pub task: Option<String>,
    /// The section of the task.
    pub section: Option<Section>,
    /// The pair of the section, or of a list of pairs.
    pub pair: Option<usize>,
    /// The side of the pair.
    pub side: Option<Side>,
    /// The grid, in a list of grids.
    pub grid: Option<usize>,
    /// The row of the grid.
    pub row: Option<usize>,
    /// The column of the row.
    pub column: Option<usize>,
}

/// `task 007bbfb7, train pair 1, input, row 2, column 0`, as far as each part is known.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = self.pair.map(|pair| format!("pair {pair}"));
        let pair = match (self.section, pair) {
            (Some(section), Some(pair)) => Some(format!("{section} {pair}")),
            (Some(section), None) => Some(section.to_string()),
            (None, pair) => pair,
        };
        let parts = [
            self.task.as_ref().map(|task| format!("task {}", task.escape_debug())),
            pair,
            self.side.map(|side| side.to_string()),
            self.grid.map(|grid| format!("grid {grid}")),
            self.row.map(|row| format!("row {row}")),
            self.column.map(|column| format!("column {column}")),
        ];
        let known: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&known.join(", "))
    }
}

/// A section of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The pairs to solve.
    Test,
    /// The pairs to learn from.
    Train,
}

impl Section {
    /// The section's key in a task file.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Train => "train",
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// A side of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The grid before.
    Input,
    /// The grid after.
    Output,
}

impl Side {
    /// The side's key in a task file.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// What is wrong at a place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// A pair where a list of them should be.
    #[error("this is one pair where a list of pairs should be: put it into [ ]")]
    BarePair,
    /// A list of grids holds something that looks like a row.
    #[error("this is one grid where a list of grids should be: put it into one more pair of [ ]")]
    BareGrid,
    /// A cell is no colour.
    #[error("{found} is not a colour from 0 to {COLOR_MAX}")]
    Color {
        /// What stands there.
        found: String,
    },
    /// A `.npy` array has another element type.
    #[error("its cells are {found}; gridpool reads uint8: convert the array with astype('uint8')")]
    Dtype {
        /// The element type, as NumPy calls it where that is known.
        found: String,
    },
    /// A key stands twice in one object.
    #[error("the key `{key}` stands there twice")]
    DuplicateKey {
        /// The key.
        key: &'static str,
    },
    /// A file without a byte.
    #[error("it is empty: expected JSON or a .npy array")]
    Empty,
    /// A file that is larger than [`INPUT_BYTES_MAX`].
    #[error("it has more than {INPUT_BYTES_MAX} bytes, the most that is read: split it")]
    FileTooLarge,
    /// A grid in a list of pairs.
    #[error("this is a grid in a list of pairs: keep grids and pairs in files of their own")]
    GridAmongPairs,
    /// A pair has no input, or another key is missing.
    #[error("the key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// Sections and tasks side by side.
    #[error("it is both a task (`train`, `test`) and a collection of tasks by name: keep one")]
    Mixed,
    /// A `.npy` array has neither two nor three dimensions.
    #[error("its shape is {shape}; expected (grids, rows, columns) or (rows, columns)")]
    Ndim {
        /// The shape as NumPy prints it.
        shape: String,
    },
    /// A list of grids is empty.
    #[error("it holds no grid")]
    NoGrid,
    /// A task has no pair at all.
    #[error("it has no pair in `train` or `test`")]
    NoPair,
    /// A directory or a collection holds no task.
    #[error("it holds no task{hint}")]
    NoTask {
        /// What was looked for.
        hint: &'static str,
    },
    /// Not JSON. Lines and columns count from 1, as editors do.
    #[error("line {line}, column {column}: not JSON: {reason}")]
    NotJson {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
        /// What the parser says.
        reason: String,
    },
    /// Not a `.npy` array, or a broken one.
    #[error("not a .npy array: {reason}")]
    NotNpy {
        /// What is wrong.
        reason: String,
    },
    /// A pair in a list of grids.
    #[error("this is a pair in a list of grids: keep grids and pairs in files of their own")]
    PairAmongGrids,
    /// The operating system gave no bytes.
    #[error("cannot be read: {reason}")]
    Read {
        /// What it says.
        reason: String,
    },
    /// Rows that make no grid.
    #[error(transparent)]
    Shape(#[from] GridError),
    /// A `.npy` array with fewer bytes than its shape needs.
    #[error("it is cut off: {missing} bytes of the array are missing")]
    Truncated {
        /// How many bytes are missing.
        missing: usize,
    },
    /// Something of another type.
    #[error("expected {wanted}, found {found}")]
    Type {
        /// What should stand there.
        wanted: &'static str,
        /// What stands there.
        found: String,
    },
    /// A key that nobody asked for holds data that would be lost.
    #[error("there is no key `{key}` here: {wanted}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The keys that there are.
        wanted: &'static str,
    },
}
