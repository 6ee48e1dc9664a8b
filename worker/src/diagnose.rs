//! The looking side of `gridpool diagnose`: a process that is given a [`Plan`] and prints a [`Line`]
//! for each thing that it finds.
//!
//! - `environment` asks for the driver, NVML and ONNX Runtime, whatever state they are in.
//! - `batches` has a pool run every op at every size, and compares.
//! - `models` has a pool run every model at every size, and compares.
//! - `allocation` asks for memory of every size, and for shapes that there are not.
//!
//! Nothing here ends at the first thing that is wrong: that is a check that fails. What a check means
//! for the machine, and what is done about it, is for `gridpool diagnose` to say.

mod allocation;
mod batches;
mod environment;
#[cfg(feature = "infer")]
mod models;
mod pooled;

use std::io::{self, Write};

use gridpool_protocol::client::ClientError;
#[cfg(not(feature = "infer"))]
use gridpool_protocol::diagnose::Group;
use gridpool_protocol::diagnose::{Check, Line, Plan, Subject};
use gridpool_protocol::exit::cli as exit;

/// Why the looking came to an end before its end.
#[derive(Debug, thiserror::Error)]
pub enum DiagnoseError {
    /// The pool cannot be talked to.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No op has such a name.
    #[error("--ops {name}: there is no such op; `gridpool ops` lists them")]
    NoOp {
        /// What was asked for.
        name: String,
    },
    /// What it is told is no plan.
    #[error("the plan: {0}")]
    Plan(#[source] serde_json::Error),
    /// Nobody reads what it finds.
    #[error("standard output")]
    Output(#[from] io::Error),
}

impl DiagnoseError {
    /// The exit code of the process.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoOp { .. } => exit::USAGE,
            Self::Client(_) | Self::Output(_) | Self::Plan(_) => exit::INTERNAL,
        }
    }
}

/// Looks at what the plan says, a line of JSON for each thing.
///
/// # Errors
/// [`DiagnoseError`] at the first thing that keeps it from going on; what is wrong is a check.
pub fn run(plan: &str, out: &mut dyn Write) -> Result<(), DiagnoseError> {
    let plan: Plan = serde_json::from_str(plan).map_err(DiagnoseError::Plan)?;
    let mut report = Report { out };
    match &plan.subject {
        Subject::Environment { uuid, onnxruntime } => {
            environment::look(uuid.as_deref(), onnxruntime.as_deref(), &mut report)
        }
        Subject::Batches { socket, device } => batches::look(&plan, socket, *device, &mut report),
        Subject::Models { .. } => look_at_models(&plan, &mut report),
        Subject::Allocation { socket, device, uuid } => {
            allocation::look(&plan, socket, *device, uuid.as_deref(), &mut report)
        }
    }
}

#[cfg(feature = "infer")]
fn look_at_models(plan: &Plan, report: &mut Report<'_>) -> Result<(), DiagnoseError> {
    models::look(plan, report)
}

#[cfg(not(feature = "infer"))]
fn look_at_models(_: &Plan, report: &mut Report<'_>) -> Result<(), DiagnoseError> {
    let says = "this gridpool-worker was built without models";
    let next = "build it with the feature `infer` to have models";
    report.check(Check::skip(Group::Models, "models", says, next))
}

/// Where the lines go.
struct Report<'a> {
    out: &'a mut dyn Write,
}

impl Report<'_> {
    /// Says what comes next.
    fn doing(&mut self, what: impl Into<String>) -> Result<(), DiagnoseError> {
        self.line(&Line::Doing(what.into()))
    }

    /// Says what was found.
    fn check(&mut self, check: Check) -> Result<(), DiagnoseError> {
        self.line(&Line::Check(check))
    }

    fn line(&mut self, line: &Line) -> Result<(), DiagnoseError> {
        let text = serde_json::to_string(line).map_err(io::Error::other)?;
        writeln!(self.out, "{text}")?;
        Ok(self.out.flush()?)
    }
}

/// Since a moment, in the unit of checks.
fn us_since(start: std::time::Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}
