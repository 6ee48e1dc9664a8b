//! Programs over grids as steps: which of them can be, the tensors that they take and give, and how large those are.
//!
//! A tensor has no room for grids of different sizes, and a GPU's host does not look into results between two steps. So
//! a step's program is one whose results have a size that follows from that of the grids.

use crate::batch::{BatchError, BatchLayout};
use crate::limits::{GRID_CELLS_MAX, PROGRAM_BYTES_MAX, SIDE_MAX};
use crate::output::{ItemError, OutputLayout};
use crate::program::{Kind, Program, ProgramError, Ties, Type};
use crate::tensor::{ANY_SIZE, DataType, TensorSpec};

/// The input of a program as a step, and its output: UINT8 `[N, H, W]`, a cell for each byte.
pub const GRIDS: &str = "grids";
/// The other output: UINT8 `[N, 2]`, for each grid 0 and 0, or the code of its error and the op that failed.
pub const STATUS: &str = "status";

/// Why a program cannot be a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GridStepError {
    /// The cells decide how large a result is.
    #[error(
        "the cells decide how large a result of `{op}` is, and in a step the size of the grids does; leave it out, or \
         end with an op that draws, such as fill"
    )]
    Cells {
        /// The op.
        op: String,
    },
    /// Its results are no grids.
    #[error("it gives {gives}, and a step gives grids")]
    Gives {
        /// What it gives.
        gives: Type,
    },
    /// It is too long.
    #[error("it has {bytes} bytes; a program has at most {PROGRAM_BYTES_MAX}")]
    Long {
        /// Its length.
        bytes: usize,
    },
    /// It takes pairs.
    #[error("it takes pairs of grids, and a step takes grids: leave `{op}` out")]
    Pairs {
        /// Its first op.
        op: String,
    },
    /// It does not compile.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// It is a solver.
    #[error("it is a solver, and a step is a chain of ops, such as `rot90 | replace(0, 5)`")]
    Solver,
}

/// Why a step cannot run over a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GridsError {
    /// There are too many.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// They are no grids.
    #[error(
        "a grid has 1 to {SIDE_MAX} rows and columns, and at most {GRID_CELLS_MAX} cells, not {h} x {w}"
    )]
    Grid {
        /// Rows.
        h: u64,
        /// Columns.
        w: u64,
    },
    /// The results would be too large.
    #[error(
        "its results would be {} x {}, and a grid has at most {SIDE_MAX} rows and columns, and {GRID_CELLS_MAX} cells", 
        size[0], size[1]
    )]
    Result {
        /// Rows and columns.
        size: [usize; 2],
    },
}

/// A program over grids that is a step of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridStep {
    program: Program,
}

/// How a step runs over one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridsRun {
    /// The grids; none if the tensor has none.
    pub batch: Option<BatchLayout>,
    /// Rows and columns of each grid.
    pub size: [u8; 2],
    /// Rows and columns of each result.
    pub result: [u8; 2],
}

impl GridStep {
    /// Compiles the program of a step.
    ///
    /// # Errors
    /// [`GridStepError`] if it does not compile, or cannot be a step.
    ///
    /// ```
    /// use gridpool_protocol::tensor::pipeline::GridStep;
    /// assert!(GridStep::compile("rot90 | fill(5, ofcolor(0))").is_ok());
    /// let error = GridStep::compile("rot90 | o_g(5) | argmax(size) | subgrid").unwrap_err();
    /// assert!(error.to_string().starts_with("the cells decide how large a result of `subgrid` is"));
    /// ```
    pub fn compile(text: &str) -> Result<Self, GridStepError> {
        if text.len() > PROGRAM_BYTES_MAX {
            return Err(GridStepError::Long { bytes: text.len() });
        }
        let program = Program::compile(text, Ties::default())?;
        let op = |at: usize| program.steps().get(at).map(ToString::to_string).unwrap_or_default();
        if program.solver().is_some() {
            return Err(GridStepError::Solver);
        }
        if program.takes() == Type::PAIR {
            return Err(GridStepError::Pairs { op: op(0) });
        }
        if program.gives() != Type::one(Kind::Grid) {
            return Err(GridStepError::Gives { gives: program.gives() });
        }
        match program.sizes_of_result([1, 1]) {
            Ok(_) => Ok(Self { program }),
            Err(None) => Err(GridStepError::Solver),
            Err(Some(step)) => Err(GridStepError::Cells { op: step.to_string() }),
        }
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What it takes.
    #[must_use]
    pub fn input(&self) -> TensorSpec {
        spec(GRIDS, &[ANY_SIZE; 3])
    }

    /// What it gives for grids of this shape, as far as that is known.
    ///
    /// # Errors
    /// [`GridsError`] if no tensor of this shape can be run.
    pub fn outputs(&self, grids: &[i64]) -> Result<[TensorSpec; 2], GridsError> {
        let side = |at: usize| grids.get(at).and_then(|&side| u64::try_from(side).ok());
        let count = grids.first().copied().unwrap_or(ANY_SIZE);
        let result = match (side(1), side(2)) {
            (Some(h), Some(w)) => self.run([0, h, w])?.result.map(i64::from),
            _ => [ANY_SIZE; 2],
        };
        Ok([spec(GRIDS, &[count, result[0], result[1]]), spec(STATUS, &[count, 2])])
    }

    /// How it runs over a tensor of this shape.
    ///
    /// # Errors
    /// [`GridsError`] if the tensor has no grids within the limits, or the results would be beyond them.
    pub fn run(&self, [count, h, w]: [u64; 3]) -> Result<GridsRun, GridsError> {
        let wrong = GridsError::Grid { h, w };
        let (Ok(rows), Ok(columns)) = (u8::try_from(h), u8::try_from(w)) else {
            return Err(wrong);
        };
        let cells = usize::from(rows) * usize::from(columns);
        if cells == 0 || cells > GRID_CELLS_MAX {
            return Err(wrong);
        }
        let size = [rows, columns];
        let results = self.program.sizes_of_result(size.map(usize::from));
        let result = results.expect("that of a step is known")[0];
        let sides = result.map(u8::try_from);
        let ([Ok(rows), Ok(columns)], true) = (sides, result[0] * result[1] <= GRID_CELLS_MAX)
        else {
            return Err(GridsError::Result { size: result });
        };
        let batch = match count {
            0 => None,
            _ => Some(self.batch(count, cells as u64)?),
        };
        Ok(GridsRun { batch, size, result: [rows, columns] })
    }

    /// So many grids of so many cells, if they and all between two ops are within the limits of a job.
    fn batch(&self, count: u64, cells: u64) -> Result<BatchLayout, BatchError> {
        let items = u32::try_from(count).unwrap_or(u32::MAX);
        let cells = u32::try_from(count.saturating_mul(cells)).unwrap_or(u32::MAX);
        let batch = BatchLayout::new(items, self.program.grids_per_item(), cells)?;
        OutputLayout::new(&self.program, batch)?;
        Ok(batch)
    }

    /// Why an item has no result; `None` if the status says that it has one.
    #[must_use]
    pub fn error_of(&self, status: [u8; 2]) -> Option<String> {
        let [code, op] = status;
        (code != 0).then(|| match ItemError::in_chain(&self.program, status) {
            Some(error) => error.to_string(),
            None => format!("it has the status {code} of op {op}, which no program gives"),
        })
    }
}

impl GridsRun {
    /// Grids.
    #[must_use]
    pub fn count(&self) -> usize {
        self.batch.map_or(0, |batch| batch.items())
    }

    /// Cells of each result.
    #[must_use]
    pub fn result_cells(&self) -> usize {
        self.result.map(usize::from).iter().product()
    }
}

fn spec(name: &str, shape: &[i64]) -> TensorSpec {
    TensorSpec::new(name, DataType::Uint8, shape)
}
