//! The results of one job, and views of their bytes for NumPy.
//!
//! A view has NumPy's `__array_interface__`, so an array over it copies nothing and keeps it alive.

use std::sync::Arc;

use gridpool_client::{Answer, ClientError, Receipt};
use gridpool_protocol::output::{Bytes, OutputLayout};
use gridpool_protocol::shared::SharedMemory;
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde::Serialize;

use crate::convert::{Converter, Form};
use crate::errors;
use crate::process::Owned;

/// The results of one job.
#[pyclass(frozen, module = "gridpool._native")]
#[derive(Debug)]
pub(crate) struct Outputs {
    outputs: Arc<Owned<gridpool_client::Outputs>>,
    receipt: Receipt,
}

impl Outputs {
    pub(crate) fn new(outputs: gridpool_client::Outputs, receipt: Receipt) -> Self {
        Self { outputs: Arc::new(Owned::new(outputs)), receipt }
    }

    /// A value as JSON.
    pub(crate) fn json(value: &impl Serialize) -> PyResult<String> {
        serde_json::to_string(value).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// The results, unless they are those of a parent process.
    fn mine(&self) -> PyResult<&gridpool_client::Outputs> {
        if self.outputs.is_mine() {
            return Ok(&self.outputs);
        }
        let text = "these results are in memory that the parent process may use again: copy them before the fork";
        Err(PyRuntimeError::new_err(text))
    }

    fn checked(&self, item: usize) -> PyResult<usize> {
        if item < self.outputs.len() {
            return Ok(item);
        }
        Err(PyIndexError::new_err(format!("there are {} results", self.outputs.len())))
    }

    fn list<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        stop: usize,
        form: Form,
    ) -> PyResult<Bound<'py, PyList>> {
        let outputs = self.mine()?;
        let mut converter = Converter::new(py, outputs, form)?;
        let list = PyList::empty(py);
        for item in start..stop.min(outputs.len()) {
            list.append(converter.item(item)?)?;
        }
        Ok(list)
    }
}

/// Answers as Python objects.
pub(crate) struct Answered;

impl Answered {
    /// The outputs, or the exception of a verdict that is not OK.
    pub(crate) fn of(
        py: Python<'_>,
        answer: Result<Answer<gridpool_client::Outputs>, ClientError>,
    ) -> PyResult<Py<Outputs>> {
        let answer = answer.map_err(|error| errors::client(py, &error))?;
        let partial = answer.partial().cloned();
        let (receipt, outputs) = answer.into_parts();
        if let Some(outputs) = outputs {
            return Py::new(py, Outputs::new(outputs, receipt));
        }
        let class = errors::class_of(receipt.verdict);
        let text = format!("{}: {}", receipt.verdict, receipt.reason);
        let json = Outputs::json(&receipt)?;
        let partial = partial.map(|partial| Py::new(py, Outputs::new(partial, receipt)));
        Err(errors::raise(py, class, (text, json, partial.transpose()?)))
    }
}

#[pymethods]
impl Outputs {
    fn __len__(&self) -> usize {
        self.outputs.len()
    }

    /// The kind of every value.
    #[getter]
    fn kind(&self) -> &'static str {
        self.outputs.layout().kind().name()
    }

    /// The number of values of an item that is a tuple.
    #[getter]
    fn width(&self) -> Option<u8> {
        self.outputs.program().gives().tuple
    }

    /// The program, in its canonical form.
    #[getter]
    fn program(&self) -> &str {
        self.outputs.program().text()
    }

    /// Items with an error in place of a result.
    #[getter]
    fn item_errors(&self) -> u32 {
        self.receipt.item_errors
    }

    /// The receipt, as JSON.
    fn receipt(&self) -> PyResult<String> {
        Self::json(&self.receipt)
    }

    /// Whether the item was done, or has an error of its own.
    fn has(&self, item: usize) -> PyResult<bool> {
        Ok(self.outputs.has(self.checked(item)?))
    }

    /// The error of each item that has one: `(item, code, op, message)`.
    fn errors(&self) -> PyResult<Vec<(usize, &'static str, String, String)>> {
        let outputs = self.mine()?;
        let mut errors = Vec::new();
        for item in (0..outputs.len()).filter(|&item| outputs.has(item)) {
            let error = outputs.item_error(item);
            let error = error.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
            errors.extend(error.map(|e| (item, e.code.name(), e.op, e.message)));
        }
        Ok(errors)
    }

    /// Items as nested lists.
    fn lists<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        stop: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        self.list(py, start, stop, Form::Lists)
    }

    /// Items as arc-dsl has them: tuples and frozensets.
    fn dsl<'py>(&self, py: Python<'py>, start: usize, stop: usize) -> PyResult<Bound<'py, PyList>> {
        self.list(py, start, stop, Form::Dsl)
    }

    /// The bytes of a part, as [`gridpool_protocol::output`] describes it; `None` if these results lack it.
    fn part(&self, name: &str) -> PyResult<Option<View>> {
        let outputs = self.mine()?;
        let layout: &OutputLayout = outputs.layout();
        if name == "starts" && !layout.is_packed() {
            let starts = outputs.starts();
            let starts = starts.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
            let address = starts.as_ptr().addr();
            let outputs = Arc::clone(&self.outputs);
            return Ok(Some(View { outputs, address, bytes: size_of_val(starts) }));
        }
        let range = match name {
            "status" => layout.status(),
            "shapes" => layout.shapes(),
            "origins" => layout.origins(),
            "starts" => layout.offsets(),
            "numbers" => layout.numbers(),
            "palettes" => layout.palettes(),
            "counts" => layout.counts(),
            "labels_low" => layout.labels_low(),
            "labels_high" => layout.labels_high(),
            "cells" => layout.cells(),
            other => {
                return Err(PyValueError::new_err(format!("results have no part {other:?}")));
            }
        };
        if range.is_empty() {
            return Ok(None);
        }
        let start = match outputs.bytes() {
            Bytes::Shared(memory) => SharedMemory::bytes(&**memory).as_ptr().addr(),
            Bytes::Private(bytes) => bytes.as_ptr().addr(),
        };
        let outputs = Arc::clone(&self.outputs);
        Ok(Some(View { outputs, address: start + range.start, bytes: range.len() }))
    }
}

/// Bytes of results. An array over them keeps them alive.
#[pyclass(frozen, module = "gridpool._native")]
#[derive(Debug)]
pub(crate) struct View {
    outputs: Arc<Owned<gridpool_client::Outputs>>,
    address: usize,
    bytes: usize,
}

#[pymethods]
impl View {
    /// NumPy's array interface: the bytes, read only.
    #[getter(__array_interface__)]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if !self.outputs.is_mine() {
            return Err(PyRuntimeError::new_err("these bytes are those of the parent process"));
        }
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("shape", (self.bytes,))?;
        interface.set_item("data", (self.address, true))?;
        Ok(interface)
    }
}
