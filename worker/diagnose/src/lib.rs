//! The checking side of `gridpool diagnose`: a process that gets a [`Plan`] and prints a [`Line`] for each
//! check.
//!
//! - `environment` checks the driver, NVML and ONNX Runtime.
//! - `batches` makes a pool run every op at every size, and compares.
//! - `models` makes a pool run every model at every size, and compares.
//! - `allocation` asks for memory of every size, and for invalid shapes.
//!
//! A check that fails does not end the process. `gridpool diagnose` says what a check means for the machine,
//! and what to do about it.

mod allocation;
mod batches;
mod environment;
#[cfg(feature = "infer")]
mod models;
mod pooled;

use std::io::{self, Write};

use gridpool_client::ClientError;
#[cfg(not(feature = "infer"))]
use gridpool_protocol::diagnose::Group;
use gridpool_protocol::diagnose::{Check, Line, Plan, Subject};
use gridpool_protocol::exit::cli as exit;

/// Why checking stopped early.
#[derive(Debug, thiserror::Error)]
pub enum DiagnoseError {
    /// The pool does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is no such op.
    #[error("--ops {name}: there is no such op; `gridpool ops` lists them")]
    NoOp {
        /// The name.
        name: String,
    },
    /// The plan is not valid.
    #[error("the plan: {0}")]
    Plan(#[source] serde_json::Error),
    /// Standard output is closed.
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

/// Runs the plan, and prints a line of JSON for each check.
///
/// # Errors
/// [`DiagnoseError`] at the first failure that prevents further checks. Other failures are checks.
pub fn run(plan: &str, out: &mut dyn Write) -> Result<(), DiagnoseError> {
    let plan: Plan = serde_json::from_str(plan).map_err(DiagnoseError::Plan)?;
    let mut report = Report { out };
    match &plan.subject {
        Subject::Environment { uuid, onnxruntime } => {
            environment::run(uuid.as_deref(), onnxruntime.as_deref(), &mut report)
        }
        Subject::Batches { socket, device } => batches::run(&plan, socket, *device, &mut report),
        Subject::Models { .. } => check_models(&plan, &mut report),
        Subject::Allocation { socket, device, uuid } => {
            allocation::run(&plan, socket, *device, uuid.as_deref(), &mut report)
        }
    }
}

#[cfg(feature = "infer")]
fn check_models(plan: &Plan, report: &mut Report<'_>) -> Result<(), DiagnoseError> {
    models::run(plan, report)
}

#[cfg(not(feature = "infer"))]
fn check_models(_: &Plan, report: &mut Report<'_>) -> Result<(), DiagnoseError> {
    let says = "this gridpool-worker was built without models";
    let next = "build it with the feature `infer` to have models";
    report.check(Check::skip(Group::Models, "models", says, next))
}

/// Writes the lines.
struct Report<'a> {
    out: &'a mut dyn Write,
}

impl Report<'_> {
    /// Announces the next step.
    fn doing(&mut self, what: impl Into<String>) -> Result<(), DiagnoseError> {
        self.line(&Line::Doing(what.into()))
    }

    /// Reports a check.
    fn check(&mut self, check: Check) -> Result<(), DiagnoseError> {
        self.line(&Line::Check(check))
    }

    fn line(&mut self, line: &Line) -> Result<(), DiagnoseError> {
        Ok(gridpool_bench::write_line(self.out, line)?)
    }
}

/// The time since `start`, in the unit of checks.
fn us_since(start: std::time::Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}
