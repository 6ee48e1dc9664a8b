//! Tensors of models as `(name, type, shape, bytes)`; the package turns them into arrays.

use gridpool_client::{DataType, Job, ModelInput, Tensor, TensorOutputs};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors;

/// Name, type as the Open Inference Protocol has it, shape, elements in row-major order.
pub(crate) type RawTensor = (String, String, Vec<u64>, Vec<u8>);
/// The same, on its way to Python.
pub(crate) type RawOutput = (String, &'static str, Vec<u64>, Py<PyBytes>);

/// A request to a model.
pub(crate) fn job(model: &str, inputs: Vec<RawTensor>) -> PyResult<Job<TensorOutputs>> {
    let mut list = Vec::with_capacity(inputs.len());
    for (name, datatype, shape, data) in inputs {
        let datatype = datatype.parse::<DataType>();
        let datatype = datatype.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let input = Tensor::new(name, datatype, shape)
            .and_then(|tensor| ModelInput::from_bytes(tensor, data));
        list.push(input.map_err(|error| errors::tensor(&error))?);
    }
    Job::model(model, list).map_err(|error| errors::tensor(&error))
}

/// The outputs of a model, copied.
pub(crate) fn outputs(py: Python<'_>, outputs: &TensorOutputs) -> Vec<RawOutput> {
    let tensors = outputs.tensors().iter().enumerate();
    let raw = tensors.map(|(at, tensor)| {
        let data = PyBytes::new(py, &outputs.data(at)).unbind();
        (tensor.name().to_owned(), tensor.datatype().name(), tensor.shape().to_vec(), data)
    });
    raw.collect()
}
