//! Errors of inputs: one sentence that names file, task, pair, row and column. May not read anything.

use std::fmt;

use gridpool_protocol::batch::GridError;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::limits::COLOR_MAX;

/// Largest file, standard input, or arrays of an `.npz`: room for a `.npy` of a million 30 x 30 grids.
pub const INPUT_BYTES_MAX: u64 = 1 << 30;

/// Why the INPUT arguments gave no grids.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// A file, or standard input, holds bad data.
    #[error("{file}: {diagnostic}")]
    Bad {
        /// The path as typed, or `standard input`.
        file: String,
        /// The error in it, and its place.
        diagnostic: Box<Diagnostic>,
    },
    /// No INPUT is named and nothing is piped in.
    #[error(
        "no input: name an ARC task file, a directory of them, a JSON array of grids or of pairs, JSON \
         lines of them, or a .npz, .npy or .arrow file, or pipe one of them into standard input"
    )]
    Missing,
    /// The program takes pairs, and the input has grids.
    #[error(
        "{input}: the program takes pairs, and this holds {}: give a task, a directory of tasks or \
         an array of pairs, [{{\"input\": grid, \"output\": grid}}]{}",
        if *.grids == 1 { "1 plain grid".to_owned() } else { format!("{grids} plain grids") },
        .instead.as_ref().map_or(String::new(), |program| format!(", or run `{program}` on it"))
    )]
    NeedsPairs {
        /// The input's name.
        input: String,
        /// The number of its grids.
        grids: usize,
        /// The program that does the same to each grid, if there is one.
        instead: Option<String>,
    },
    /// `-` is named more than once.
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

/// An error in a file, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The place, as far as known.
    pub place: Location,
    /// The error.
    pub cause: Cause,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place != Location::default() {
            write!(f, "{}: ", self.place)?;
        }
        self.cause.fmt(f)
    }
}

impl From<Cause> for Box<Diagnostic> {
    fn from(cause: Cause) -> Self {
        Self::new(Diagnostic { place: Location::default(), cause })
    }
}

/// A place in a file, from the outside in. All numbers start at 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
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

/// `task 007bbfb7, train pair 1, input, row 2, column 0`, without the unknown words.
impl fmt::Display for Location {
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

/// The kind of an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// An Arrow table without one column of grids.
    #[error(
        "its columns are {columns}: give one column of grids, lists of lists of integers, or the columns \
         `input` and `output`"
    )]
    ArrowColumns {
        /// Names and types.
        columns: String,
    },
    /// A pair in place of a list of pairs.
    #[error("this is one pair, not a list of pairs: put it into [ ]")]
    BarePair,
    /// A list of grids holds something that looks like a row.
    #[error("this is one grid, not a list of grids: put it into one more pair of [ ]")]
    BareGrid,
    /// A cell is not a colour.
    #[error("{found} is not a colour from 0 to {COLOR_MAX}")]
    Color {
        /// What stands there.
        found: String,
    },
    /// A `.npy` array has another element type.
    #[error(
        "its cells are {found}; gridpool reads integers: convert the array with astype('uint8')"
    )]
    Dtype {
        /// NumPy's name of the element type, if known.
        found: String,
    },
    /// An object has a key twice.
    #[error("the key `{key}` is there twice")]
    DuplicateKey {
        /// The key.
        key: &'static str,
    },
    /// An empty file.
    #[error("it is empty: expected JSON, a .npz, a .npy array or an Arrow file")]
    Empty,
    /// A file that is larger than [`INPUT_BYTES_MAX`].
    #[error("it has more than {INPUT_BYTES_MAX} bytes: split it into several files")]
    FileTooLarge,
    /// A grid in a list of pairs.
    #[error("this is a grid in a list of pairs: put grids and pairs into separate files")]
    GridAmongPairs,
    /// A pair has no input, or another key is missing.
    #[error("the key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// An object with both sections and tasks.
    #[error("it is both a task (`train`, `test`) and a collection of tasks by name: keep one")]
    Mixed,
    /// A `.npy` array has neither two nor three dimensions.
    #[error("its shape is {shape}; expected (grids, rows, columns) or (rows, columns)")]
    Ndim {
        /// The shape in NumPy's format.
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
    /// Not an Arrow file, or a broken or compressed one.
    #[error(
        "not an Arrow file that gridpool reads: {reason}; write it without compression, with pyarrow.ipc.new_file"
    )]
    NotArrow {
        /// The reader's error.
        reason: String,
    },
    /// Not JSON. Lines and columns start at 1, as in editors.
    #[error("line {line}, column {column}: not JSON: {reason}")]
    NotJson {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
        /// The parser's error.
        reason: String,
    },
    /// Not a `.npy` array, or a broken one.
    #[error("not a .npy array: {reason}")]
    NotNpy {
        /// The error.
        reason: String,
    },
    /// Not a zip, though its name says so.
    #[error("not an .npz: it is no zip; write it with numpy.savez(FILE, cells=cells, sizes=sizes)")]
    NotNpz,
    /// A null where a grid or a row belongs.
    #[error("null is no grid: leave it out")]
    Null,
    /// JSON where the name of a file belongs.
    #[error(
        "no file has this name; grids are read from standard input if INPUT is `-`: \
         `echo '[[[1, 2]]]' | gridpool run PROGRAM -`"
    )]
    NotAFile,
    /// A `.npy` array of Python objects.
    #[error(
        "its cells are Python objects, which NumPy uses for grids of several shapes: write JSON instead, \
         json.dump([grid.tolist() for grid in grids], file)"
    )]
    Objects,
    /// An `.npz` of other arrays.
    #[error("{}", npz_words(.arrays))]
    Npz {
        /// The names of its arrays, at least one.
        arrays: Vec<String>,
    },
    /// A compressed file.
    #[error(
        "it is compressed with {format}: unpack it first, `{unpack} FILE | gridpool run PROGRAM -`"
    )]
    Packed {
        /// The format.
        format: &'static str,
        /// The program that unpacks it.
        unpack: &'static str,
    },
    /// A pattern that the shell has left as it is.
    #[error("no file has this name, and your shell has found none that fits the pattern")]
    Pattern,
    /// Python.
    #[error(
        "it is a file of programs, not of grids: it stands in the place of PROGRAM, `@FILE:NAME`, and of `gridpool \
         solve` before the tasks"
    )]
    Programs,
    /// Neither JSON nor another format.
    #[error("it begins as no JSON, .npz, .npy array or Arrow file does")]
    Unrecognised,
    /// A pair in a list of grids.
    #[error("this is a pair in a list of grids: put grids and pairs into separate files")]
    PairAmongGrids,
    /// The operating system cannot read it.
    #[error("cannot be read: {reason}")]
    Read {
        /// The system's error.
        reason: String,
    },
    /// The array `sizes` of an `.npz`, beside `cells`.
    #[error(
        "array `sizes` {what}: it has the rows and columns of each grid, as in [[3, 3], [5, 2]]"
    )]
    Sizes {
        /// What is wrong.
        what: String,
    },
    /// The rows do not make a grid.
    #[error(transparent)]
    Shape(#[from] GridError),
    /// Lines of tasks.
    #[error(
        "each line is a task; JSON lines hold grids or pairs only: give each task a name, \
         {{\"NAME\": task, ...}}, or its own file"
    )]
    TaskLines,
    /// A `.npy` array with fewer bytes than its shape needs.
    #[error("it ends too early: {missing} bytes of the array are missing")]
    Truncated {
        /// The number of missing bytes.
        missing: usize,
    },
    /// A value of another type.
    #[error("expected {wanted}, found {found}")]
    Type {
        /// The type that belongs there.
        wanted: &'static str,
        /// What stands there.
        found: String,
    },
    /// Text that is not UTF-8.
    #[error("it is UTF-16, and JSON is UTF-8: convert it with `iconv -f UTF-16 -t UTF-8`")]
    Utf16,
    /// A zip that cannot be opened.
    #[error("the archive is damaged or cut off ({reason}): write or copy it again")]
    BrokenZip {
        /// What the reader of zips says.
        reason: String,
    },
    /// A zip without arrays.
    #[error("it is a zip archive: unpack it and name the files in it")]
    Zip,
    /// An unknown key whose data would be lost.
    #[error("there is no key `{key}` here: {wanted}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The known keys.
        wanted: &'static str,
    },
}

/// Most arrays of an `.npz` that an error names.
const ARRAYS_SHOWN_MAX: usize = 8;

fn npz_words(arrays: &[String]) -> String {
    let first = &arrays[0];
    let shown: Vec<_> =
        arrays.iter().take(ARRAYS_SHOWN_MAX).map(|name| format!("`{name}`")).collect();
    let more = match arrays.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = shown.join(", ");
    format!(
        "this .npz holds {shown}{more}; a program takes the arrays `cells` and `sizes`, or one array: save that \
         alone, numpy.save('{first}.npy', numpy.load(FILE)['{first}'])"
    )
}
