//! Programs over grids as steps: which of them can be, the tensors that they take and give, and how large those are.
//!
//! A tensor has one size, and a GPU's host does not look into results between two steps. So either the size of all
//! results follows from that of the grids, or the step says in what size of tensor its results lie, each in the upper
//! left corner with its size beside it.

use sha2::{Digest, Sha256};

use super::StepProgram;
use crate::batch::{BatchError, BatchLayout};
use crate::limits::{GRID_CELLS_MAX, PROGRAM_BYTES_MAX, SIDE_MAX};
use crate::output::{ItemError, ItemErrorCode, NO_OP, OutputLayout};
use crate::program::{Kind, Program, ProgramError, Ties, Type, hex};
use crate::tensor::{ANY_SIZE, DataType, TensorSpec};

/// The input of a program as a step, and its output: UINT8 `[N, H, W]`, a cell for each byte.
pub const GRIDS: &str = "grids";
/// Another output: UINT8 `[N, 2]`, for each grid 0 and 0, or the code of its error and the op that failed.
pub const STATUS: &str = "status";
/// An input and an output: INT64 `[N, 2]`, rows and columns of each grid, which lies in the upper left corner.
pub const SIZES: &str = "sizes";

/// The highest instruction that a status names: it stands for all behind it, too.
const INSTRUCTION_MAX: u8 = NO_OP - 1;

/// Why a program cannot be a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GridStepError {
    /// The cells decide how large a result is.
    #[error(
        "the cells decide how large a result of `{op}` is: add `result = [ROWS, COLUMNS]`, the size that its results \
         fit into"
    )]
    Cells {
        /// The op.
        op: String,
    },
    /// Its results are no grids.
    #[error(
        "it gives {gives}, and a step gives one grid for each: end with an op that gives a grid, such as fill"
    )]
    Gives {
        /// What it gives.
        gives: String,
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
    /// No grid has the size of the results.
    #[error(
        "its `result` is {} x {}, and a grid has 1 to {SIDE_MAX} rows and columns, and at most {GRID_CELLS_MAX} cells",
        size[0], size[1]
    )]
    Result {
        /// Rows and columns.
        size: [u8; 2],
    },
    /// It takes sizes, and says none of its results.
    #[error(
        "it takes `{SIZES}`, so its results have several sizes: add `result = [ROWS, COLUMNS]`, the size that they fit \
         into"
    )]
    Sizes,
    /// It is a solver.
    #[error(
        "it is a solver, whose cells decide how large a result is: add `result = [ROWS, COLUMNS]`, the size that its \
         results fit into"
    )]
    Solver,
}

impl GridStepError {
    /// Whether it is of the program, not of what the step says beside it.
    #[must_use]
    pub fn is_of_program(&self) -> bool {
        match self {
            Self::Cells { .. }
            | Self::Gives { .. }
            | Self::Long { .. }
            | Self::Pairs { .. }
            | Self::Program(_)
            | Self::Solver => true,
            Self::Result { .. } | Self::Sizes => false,
        }
    }
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
    /// Rows and columns of the tensor of results, if they do not follow from those of the grids.
    result: Option<[u8; 2]>,
    /// Whether it takes the size of each grid.
    takes_sizes: bool,
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
    /// Compiles the program of a step whose results have the size that follows from that of the grids.
    ///
    /// # Errors
    /// As [`GridStep::new`].
    ///
    /// ```
    /// use gridpool_protocol::tensor::pipeline::GridStep;
    /// assert!(GridStep::compile("rot90 | fill(5, ofcolor(0))").is_ok());
    /// let error = GridStep::compile("rot90 | o_g(5) | argmax(size) | subgrid").unwrap_err();
    /// assert!(error.to_string().starts_with("the cells decide how large a result of `subgrid` is"));
    /// ```
    pub fn compile(text: &str) -> Result<Self, GridStepError> {
        Self::new(&text.into(), false)
    }

    /// Compiles the program of a step, which may take the size of each grid.
    ///
    /// # Errors
    /// [`GridStepError`] if it does not compile, or cannot be a step.
    pub fn new(program: &StepProgram, takes_sizes: bool) -> Result<Self, GridStepError> {
        let &StepProgram { ref text, result } = program;
        if text.len() > PROGRAM_BYTES_MAX {
            return Err(GridStepError::Long { bytes: text.len() });
        }
        if let Some(size) = result
            && !(1..=GRID_CELLS_MAX).contains(&area(size))
        {
            return Err(GridStepError::Result { size });
        }
        let program = Program::compile(text, Ties::default())?;
        let op = |at: usize| program.steps().get(at).map(ToString::to_string).unwrap_or_default();
        if program.takes() == Type::PAIR {
            return Err(GridStepError::Pairs { op: op(0) });
        }
        if program.gives() != Type::one(Kind::Grid) {
            let of_solver = program.solver().map(|solver| solver.code().gives().to_string());
            let gives = of_solver.unwrap_or_else(|| program.gives().to_string());
            return Err(GridStepError::Gives { gives });
        }
        match (result, program.sizes_of_result([1, 1])) {
            (Some(_), _) => {}
            (None, Err(None)) => return Err(GridStepError::Solver),
            (None, Err(Some(step))) => return Err(GridStepError::Cells { op: step.to_string() }),
            (None, Ok(_)) if takes_sizes => return Err(GridStepError::Sizes),
            (None, Ok(_)) => {}
        }
        Ok(Self { program, result, takes_sizes })
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// SHA-256 of what it does to a grid: the hash of the program, and of the size of its results, if it says one.
    #[must_use]
    pub fn hash(&self) -> String {
        let program = self.program.hash();
        match self.result {
            None => program.to_owned(),
            Some([rows, columns]) => {
                hex(&Sha256::digest(format!("gridpool step 1\n{program}\n{rows} {columns}\n")))
            }
        }
    }

    /// Whether it takes the size of each grid.
    #[must_use]
    pub fn takes_sizes(&self) -> bool {
        self.takes_sizes
    }

    /// Whether it says in what size of tensor its results lie, and gives the size of each.
    #[must_use]
    pub fn gives_sizes(&self) -> bool {
        self.result.is_some()
    }

    /// What it takes: the grids, and perhaps their sizes.
    #[must_use]
    pub fn inputs(&self) -> Vec<TensorSpec> {
        let grids = cells(&[ANY_SIZE; 3]);
        if self.takes_sizes { vec![grids, sizes(ANY_SIZE)] } else { vec![grids] }
    }

    /// What it gives for grids of this shape, as far as that is known: the results, their statuses, and perhaps their
    /// sizes.
    ///
    /// # Errors
    /// [`GridsError`] if no tensor of this shape can be run.
    pub fn outputs(&self, grids: &[i64]) -> Result<Vec<TensorSpec>, GridsError> {
        let side = |at: usize| grids.get(at).and_then(|&side| u64::try_from(side).ok());
        let count = grids.first().copied().unwrap_or(ANY_SIZE);
        let result = match (side(1), side(2)) {
            (Some(h), Some(w)) => Some(self.run([0, h, w])?.result),
            _ => self.result,
        };
        let result = result.map_or([ANY_SIZE; 2], |size| size.map(i64::from));
        let status = TensorSpec::new(STATUS, DataType::Uint8, [count, 2]);
        let mut outputs = vec![cells(&[count, result[0], result[1]]), status];
        outputs.extend(self.gives_sizes().then(|| sizes(count)));
        Ok(outputs)
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
        let result = match self.result {
            Some(result) => result,
            None => self.result_of(size)?,
        };
        let batch = match count {
            0 => None,
            _ => Some(self.batch(count, cells as u64)?),
        };
        Ok(GridsRun { batch, size, result })
    }

    /// The size that follows from that of the grids.
    fn result_of(&self, size: [u8; 2]) -> Result<[u8; 2], GridsError> {
        let results = self.program.sizes_of_result(size.map(usize::from));
        let result = results.expect("that of a step is known")[0];
        let sides = result.map(u8::try_from);
        match (sides, result[0] * result[1] <= GRID_CELLS_MAX) {
            ([Ok(rows), Ok(columns)], true) => Ok([rows, columns]),
            _ => Err(GridsError::Result { size: result }),
        }
    }

    /// So many grids of so many cells, if they and all between two ops are within the limits of a job.
    fn batch(&self, count: u64, cells: u64) -> Result<BatchLayout, BatchError> {
        let items = u32::try_from(count).unwrap_or(u32::MAX);
        let cells = u32::try_from(count.saturating_mul(cells)).unwrap_or(u32::MAX);
        let batch = BatchLayout::new(items, self.program.grids_per_item(), cells)?;
        if let Some(size) = self.result {
            let cells = count.saturating_mul(area(size) as u64);
            BatchLayout::new(items, 1, u32::try_from(cells).unwrap_or(u32::MAX))?;
        }
        OutputLayout::new(&self.program, batch)?;
        Ok(batch)
    }

    /// Why an item has no result; `None` if the status says that it has one.
    #[must_use]
    pub fn error_of(&self, status: [u8; 2]) -> Option<String> {
        let [code, at] = status;
        if code == 0 {
            return None;
        }
        let found = match (status, self.result) {
            (GridsRun::BAD_SIZE, Some(_)) => {
                Some(format!("input: its size in `{SIZES}` does not fit the tensor"))
            }
            (GridsRun::NO_ROOM, Some([rows, columns])) => Some(format!(
                "its result is larger than {rows} x {columns}, the `result` of the step"
            )),
            _ => self.failed_at(status),
        };
        Some(found.unwrap_or_else(|| {
            format!("it has the status {code} of op {at}, which no program gives")
        }))
    }

    /// Why an item has no result whose status says that its size is not within the tensor.
    #[must_use]
    pub fn bad_size([rows, columns]: [i64; 2], plane: [u8; 2]) -> String {
        format!(
            "input: its size in `{SIZES}` is {rows} x {columns}, and the tensor has room for 1 x 1 to {} x {}",
            plane[0], plane[1]
        )
    }

    /// What went wrong in an op or an instruction.
    fn failed_at(&self, status: [u8; 2]) -> Option<String> {
        let [_, at] = status;
        let error = ItemError::in_chain(&self.program, status)?;
        match self.program.solver() {
            Some(_) if at == INSTRUCTION_MAX => {
                Some(format!("one of its instructions from {at} on: {}", error.message))
            }
            Some(solver) if at != NO_OP => {
                let (op, line) = solver.place(at.into())?;
                Some(format!("{op} in line {line}: {}", solver.reason(at.into(), error.code)))
            }
            Some(_) | None => Some(error.to_string()),
        }
    }
}

impl GridsRun {
    /// The status of a grid whose size is not within the tensor.
    pub const BAD_SIZE: [u8; 2] = [ItemErrorCode::BadShape as u8, NO_OP];
    /// The status of a grid whose result is larger than the step says.
    pub const NO_ROOM: [u8; 2] = [ItemErrorCode::Overflow as u8, NO_OP];

    /// The status of an item of a solver that failed in an instruction.
    #[must_use]
    pub fn status_of(code: u8, instruction: u32) -> [u8; 2] {
        [code, u8::try_from(instruction).unwrap_or(INSTRUCTION_MAX).min(INSTRUCTION_MAX)]
    }

    /// Grids.
    #[must_use]
    pub fn count(&self) -> usize {
        self.batch.map_or(0, |batch| batch.items())
    }

    /// Cells of each result.
    #[must_use]
    pub fn result_cells(&self) -> usize {
        area(self.result)
    }

    /// Cells of each grid.
    #[must_use]
    pub fn area(&self) -> usize {
        area(self.size)
    }
}

fn area(size: [u8; 2]) -> usize {
    size.map(usize::from).iter().product()
}

fn cells(shape: &[i64]) -> TensorSpec {
    TensorSpec::new(GRIDS, DataType::Uint8, shape)
}

fn sizes(count: i64) -> TensorSpec {
    TensorSpec::new(SIZES, DataType::Int64, [count, 2])
}
