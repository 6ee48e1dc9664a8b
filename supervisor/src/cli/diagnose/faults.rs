//! One fault on purpose, and what became of it: the judgement of `gridpool chaos`, as a check.

use std::path::Path;

use gridpool_protocol::chaos::{ChaosFault, DeviceFault};
use gridpool_protocol::client::Client;
use gridpool_protocol::diagnose::{Check, Group};

use crate::cli::CommandError;
use crate::cli::chaos::{self, Report};
use crate::shell::PoolDevice;

/// A kernel writes where it may not, and its context is lost; on a CPU the process.
const FAULT: DeviceFault = DeviceFault::Oob;

/// Has the pool at `socket`, which takes jobs with faults, meet one.
pub(super) fn recovery(socket: &Path, device: &PoolDevice) -> Check {
    let fault = ChaosFault::Device(FAULT);
    let client = Client::connect(socket).map_err(CommandError::from);
    judge(fault, client.and_then(|client| chaos::trial(&client, fault))).on(device.id)
}

fn judge(fault: ChaosFault, report: Result<Report, CommandError>) -> Check {
    let name = format!("fault {}", fault.name());
    let again = format!(
        "see it happen: `gridpool serve --allow-chaos` and `gridpool chaos {}`; the supervisor's \
         log says how the worker ended",
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
