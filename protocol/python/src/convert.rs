//! Results as Python objects: nested lists, or the tuples and frozensets of arc-dsl.

use std::collections::BTreeMap;

use gridpool_client::{ObjectCell, Output, PatchCell};
use gridpool_protocol::output::{ItemError, MalformedOutput};
use gridpool_protocol::program;
use gridpool_protocol::solver::Kind;
use gridpool_protocol::solver::value::{NO_VECTOR, NOTHING, Value};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFrozenSet, PyInt, PyList, PyTuple};

use crate::colors::Colors;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Nested lists.
    Lists,
    /// As arc-dsl returns them.
    Dsl,
}

/// Writes the results of one job.
pub(crate) struct Converter<'a, 'py> {
    py: Python<'py>,
    outputs: &'a gridpool_client::Outputs,
    form: Form,
    colors: &'static Colors,
    cells: Vec<u8>,
    /// Whether each item is one grid.
    grids: bool,
    /// Tuples that were made before: a tuple cannot change, so one serves for all.
    places: BTreeMap<(i32, i32), Bound<'py, PyAny>>,
    valued: BTreeMap<(u8, i32, i32), Bound<'py, PyAny>>,
    error: Bound<'py, PyAny>,
}

impl<'a, 'py> Converter<'a, 'py> {
    pub(crate) fn new(
        py: Python<'py>,
        outputs: &'a gridpool_client::Outputs,
        form: Form,
    ) -> PyResult<Self> {
        let gives = outputs.program().gives();
        Ok(Self {
            py,
            outputs,
            form,
            colors: Colors::get(py),
            cells: Vec::new(),
            grids: gives.kind == program::Kind::Grid && gives.tuple.is_none(),
            places: BTreeMap::new(),
            valued: BTreeMap::new(),
            error: py.import("gridpool._errors")?.getattr("ItemError")?,
        })
    }

    /// One item: its result, or its error.
    pub(crate) fn item(&mut self, item: usize) -> PyResult<Bound<'py, PyAny>> {
        if self.grids {
            let mut cells = std::mem::take(&mut self.cells);
            let shape = self.outputs.grid_into(item, &mut cells).map_err(malformed)?;
            let made = match shape {
                Ok(sides) => self.grid(sides, &cells),
                Err(error) => self.error(error),
            };
            self.cells = cells;
            return made;
        }
        match self.outputs.item(item).map_err(malformed)? {
            Ok(output) => self.output(output),
            Err(error) => self.error(error),
        }
    }

    fn error(&self, error: ItemError) -> PyResult<Bound<'py, PyAny>> {
        self.error.call1((error.code.name(), error.op, error.message))
    }

    fn grid(&self, [height, width]: [usize; 2], cells: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let (py, colors) = (self.py, self.colors);
        let rows = (0..height).map(|row| &cells[row * width..(row + 1) * width]);
        Ok(match self.form {
            Form::Lists => {
                let row = |row: &[u8]| PyList::new(py, row.iter().map(|&c| colors.int(py, c)));
                PyList::new(py, rows.map(row).collect::<PyResult<Vec<_>>>()?)?.into_any()
            }
            Form::Dsl => {
                let row = |row: &[u8]| PyTuple::new(py, row.iter().map(|&c| colors.int(py, c)));
                PyTuple::new(py, rows.map(row).collect::<PyResult<Vec<_>>>()?)?.into_any()
            }
        })
    }

    fn output(&mut self, output: Output) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        Ok(match output {
            Output::Colors(colors) => {
                let ints = colors.iter().map(|&color| self.colors.int(py, color));
                match self.form {
                    Form::Lists => PyList::new(py, ints)?.into_any(),
                    Form::Dsl => PyFrozenSet::new(py, ints)?.into_any(),
                }
            }
            Output::Flag(flag) => PyBool::new(py, flag).to_owned().into_any(),
            Output::Grid(grid) => self.grid([grid.h(), grid.w()], grid.cells())?,
            Output::Number(number) => PyInt::new(py, number).into_any(),
            Output::Object(cells) => self.object(&cells)?,
            Output::Objects(objects) => {
                let made = objects.iter().map(|cells| self.object(cells));
                let made = made.collect::<PyResult<Vec<_>>>()?;
                match self.form {
                    Form::Lists => PyList::new(py, made)?.into_any(),
                    Form::Dsl => PyFrozenSet::new(py, made)?.into_any(),
                }
            }
            Output::Patch(cells) => {
                let places = cells.iter().map(|&PatchCell { row, col }| self.place(row, col));
                let places = places.collect::<PyResult<Vec<_>>>()?;
                match self.form {
                    Form::Lists => PyList::new(py, places)?.into_any(),
                    Form::Dsl => PyFrozenSet::new(py, places)?.into_any(),
                }
            }
            Output::Tuple(values) => {
                let made = values.into_iter().map(|value| self.output(value));
                PyTuple::new(py, made.collect::<PyResult<Vec<_>>>()?)?.into_any()
            }
            Output::Value(kind, value) => self.value(&kind, &value)?,
            Output::Vector { row, col } => self.place(row, col)?,
        })
    }

    /// What a solver gives, as arc-dsl gives it. With lists, grids and sets are lists, and tuples stay tuples.
    fn value(&mut self, kind: &Kind, value: &Value) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let pair = |(first, second): (Bound<'py, PyAny>, Bound<'py, PyAny>)| {
            Ok((first, second).into_pyobject(py)?.into_any())
        };
        match (kind, value) {
            (_, Value::Number(NOTHING)) => Ok(py.None().into_bound(py)),
            (Kind::Flag, &Value::Number(flag)) => {
                Ok(PyBool::new(py, flag != 0).to_owned().into_any())
            }
            (_, &Value::Number(number)) => Ok(PyInt::new(py, number).into_any()),
            (_, &Value::Vector(NO_VECTOR)) => Ok(PyTuple::empty(py).into_any()),
            (_, &Value::Vector([row, col])) => self.place(row.into(), col.into()),
            (_, &Value::Cell(color, place)) => match (self.form, place) {
                (Form::Lists, [row, col]) if place != NO_VECTOR => {
                    Ok((color, row, col).into_pyobject(py)?.into_any())
                }
                (Form::Lists | Form::Dsl, _) => {
                    let color = PyInt::new(py, color).into_any();
                    pair((color, self.value(&Kind::Vector, &Value::Vector(place))?))
                }
            },
            (_, Value::Grid(grid)) => {
                let rows = grid.rows().map(|row| self.sequence(row));
                let rows = rows.collect::<PyResult<Vec<_>>>()?;
                self.sequence(rows)
            }
            (Kind::Pair(kinds), Value::Pair(values)) => {
                pair((self.value(&kinds.0, &values.0)?, self.value(&kinds.1, &values.1)?))
            }
            (Kind::Set(of), Value::Set(list)) => {
                let made = list.values().iter().map(|value| self.value(of, value));
                let made = made.collect::<PyResult<Vec<_>>>()?;
                match self.form {
                    Form::Lists => Ok(PyList::new(py, made)?.into_any()),
                    Form::Dsl => Ok(PyFrozenSet::new(py, made)?.into_any()),
                }
            }
            (Kind::Tuple(of), Value::Tuple(list)) => {
                let made = list.values().iter().map(|value| self.value(of, value));
                Ok(PyTuple::new(py, made.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }
            (_, Value::Pair(_) | Value::Set(_) | Value::Tuple(_)) => {
                Err(PyRuntimeError::new_err(format!("a value that is no {kind}")))
            }
        }
    }

    /// A list or a tuple, as rows and grids are.
    fn sequence<T, I>(&self, values: I) -> PyResult<Bound<'py, PyAny>>
    where
        T: IntoPyObject<'py>,
        I: IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
    {
        match self.form {
            Form::Lists => Ok(PyList::new(self.py, values)?.into_any()),
            Form::Dsl => Ok(PyTuple::new(self.py, values)?.into_any()),
        }
    }

    /// `{(color, (row, col)), …}`, or `[(color, row, col), …]`.
    fn object(&mut self, cells: &[ObjectCell]) -> PyResult<Bound<'py, PyAny>> {
        let made = cells.iter().map(|&cell| self.cell(cell));
        let made = made.collect::<PyResult<Vec<_>>>()?;
        Ok(match self.form {
            Form::Lists => PyList::new(self.py, made)?.into_any(),
            Form::Dsl => PyFrozenSet::new(self.py, made)?.into_any(),
        })
    }

    fn cell(&mut self, cell: ObjectCell) -> PyResult<Bound<'py, PyAny>> {
        let ObjectCell { color, row, col } = cell;
        if let Some(made) = self.valued.get(&(color, row, col)) {
            return Ok(made.clone());
        }
        let made = match self.form {
            Form::Lists => (color, row, col).into_pyobject(self.py)?.into_any(),
            Form::Dsl => {
                let place = self.place(row, col)?;
                (color, place).into_pyobject(self.py)?.into_any()
            }
        };
        self.valued.insert((color, row, col), made.clone());
        Ok(made)
    }

    fn place(&mut self, row: i32, col: i32) -> PyResult<Bound<'py, PyAny>> {
        if let Some(made) = self.places.get(&(row, col)) {
            return Ok(made.clone());
        }
        let made = (row, col).into_pyobject(self.py)?.into_any();
        self.places.insert((row, col), made.clone());
        Ok(made)
    }
}

fn malformed(error: MalformedOutput) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
