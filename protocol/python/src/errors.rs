//! Errors of the client as the exceptions of `gridpool._errors`.

use std::error::Error;

use gridpool_client::{
    BatchError, ClientError, Limit, ProgramError, Refusal, TensorError, Verdict,
};
use gridpool_protocol::chain::Chain;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;

/// An exception of the package, by the name of its class.
pub(crate) fn raise<A>(py: Python<'_>, class: &str, arguments: A) -> PyErr
where
    A: for<'py> pyo3::call::PyCallArgs<'py>,
{
    let made = py.import("gridpool._errors").and_then(|module| module.getattr(class));
    made.and_then(|class| class.call1(arguments)).map_or_else(|error| error, PyErr::from_value)
}

/// A batch that is no batch, at a place.
pub(crate) fn bad_input(
    py: Python<'_>,
    why: &str,
    grid: Option<usize>,
    row: Option<usize>,
    column: Option<usize>,
) -> PyErr {
    raise(py, "BadInput", (why, grid, row, column))
}

/// The error of one of many batches.
pub(crate) fn in_batch(py: Python<'_>, error: PyErr, batch: usize) -> PyErr {
    let value = error.value(py);
    match value.hasattr("_of_batch") {
        Ok(true) => value.call_method1("_of_batch", (batch,)).err().unwrap_or(error),
        Ok(false) | Err(_) => error,
    }
}

/// A program that does not compile.
pub(crate) fn program(py: Python<'_>, text: &str, error: &ProgramError) -> PyErr {
    let span = error.span();
    // In characters, as Python counts.
    let at = |byte: usize| text.get(..byte).map_or(byte, |before| before.chars().count());
    let place = (at(span.start), at(span.end));
    raise(py, "ProgramError", (error.to_string(), error.message(), text, place.0, place.1))
}

/// A batch that the client refuses.
pub(crate) fn batch(py: Python<'_>, error: &BatchError) -> PyErr {
    let grid = match error {
        BatchError::Shape { grid, .. } | BatchError::Length { grid, .. } => Some(*grid),
        // The enum may grow; no other error is about one grid of the caller.
        BatchError::Empty
        | BatchError::Items { .. }
        | BatchError::ItemType { .. }
        | BatchError::Cells { .. }
        | BatchError::Values { .. }
        | BatchError::Capacity { .. }
        | BatchError::Bytes { .. }
        | BatchError::Offset { .. }
        | BatchError::Grids { .. }
        | BatchError::Full { .. }
        | _ => None,
    };
    bad_input(py, &error.to_string(), grid, None, None)
}

/// Tensors that are no input of a model.
pub(crate) fn tensor(error: &TensorError) -> PyErr {
    PyValueError::new_err(Chain(error).to_string())
}

/// A failed call of the client.
pub(crate) fn client(py: Python<'_>, error: &ClientError) -> PyErr {
    let text = Chain(error as &(dyn Error + 'static)).to_string();
    match error {
        ClientError::Batch(error) => batch(py, error),
        ClientError::Refused(refusal) => refused(py, refusal, &text),
        ClientError::NoPool { .. } => raise(py, "NoPool", (text,)),
        ClientError::NotAllowed { .. }
        | ClientError::OtherUser { .. }
        | ClientError::Replaceable { .. } => raise(py, "NotAllowed", (text,)),
        ClientError::Closed(_) | ClientError::Connection(_) | ClientError::Lost => {
            raise(py, "ConnectionLost", (text,))
        }
        ClientError::Silent => raise(py, "Silent", (text,)),
        ClientError::Memory(_) => PyMemoryError::new_err(text),
        ClientError::System(_) => PyOSError::new_err(text),
        // The others are faults of pool or client; the enum may grow.
        ClientError::Malformed(_)
        | ClientError::Taken
        | ClientError::Tensors(_)
        | ClientError::Unexpected(_)
        | ClientError::Version { .. }
        | _ => raise(py, "Error", (text,)),
    }
}

fn refused(py: Python<'_>, refusal: &Refusal, text: &str) -> PyErr {
    match refusal {
        Refusal::Busy(Limit::Arenas) => {
            let text =
                format!("{text}: drop results and loaded batches, or copy what you need of them");
            raise(py, "Busy", (text, None::<f64>))
        }
        Refusal::Busy(limit) => {
            let again_in = limit.again_in().map(|span| span.as_secs_f64());
            raise(py, "Busy", (text, again_in))
        }
        Refusal::Draining => raise(py, "Busy", (text, None::<f64>)),
        Refusal::NotAllowed(_) => raise(py, "NotAllowed", (text,)),
        Refusal::Poison(_) => raise(py, "Poison", (text,)),
        Refusal::Bundled | Refusal::Invalid(_) | Refusal::KeyInUse(_) | Refusal::Unable(_) => {
            raise(py, "Refused", (text,))
        }
    }
}

/// The class of a verdict that is not OK.
pub(crate) fn class_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Cancelled => "Cancelled",
        Verdict::Deadline => "Deadline",
        Verdict::DeviceLost => "DeviceLost",
        Verdict::Failed | Verdict::Ok => "Failed",
        Verdict::Poison => "Poison",
    }
}
