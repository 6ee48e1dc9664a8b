//! Injects one fault, and turns the report of `gridpool chaos` into a check.

use std::path::Path;

use gridpool_client::Client;
use gridpool_protocol::chaos::{ChaosFault, DeviceFault};
use gridpool_protocol::diagnose::{Check, Group};

use crate::cli::CommandError;
use crate::cli::chaos::{self, Report};
use crate::shell::PoolDevice;

/// A kernel writes out of bounds: on a GPU the context is lost, on a CPU the process.
const FAULT: DeviceFault = DeviceFault::Oob;

/// Injects a fault into the pool at `socket`, which allows that.
pub(super) fn recovery(socket: &Path, device: &PoolDevice) -> Check {
    let fault = ChaosFault::Device(FAULT);
    let client = Client::connect(socket).map_err(CommandError::from);
    judge(fault, client.and_then(|client| chaos::inject_once(&client, fault))).on(device.id)
}

fn judge(fault: ChaosFault, report: Result<Report, CommandError>) -> Check {
    let name = format!("fault {}", fault.name());
    let again = format!(
        "reproduce it with `gridpool serve --allow-chaos` and `gridpool chaos {}`; the supervisor's log \
         says how the worker ended",
        fault.name()
    );
    let report = match report {
        Ok(report) => report,
        Err(error) => return Check::fail(Group::Faults, name, error.to_string(), again),
    };
    let says = report.sentence();
    if report.recovered {
        Check::pass(Group::Faults, name, says)
    } else {
        Check::fail(Group::Faults, name, says, again)
    }
}
