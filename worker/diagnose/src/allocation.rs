//! Memory, sizes and shapes. Memory that is available must be given and must hold what is written. Sizes that
//! are not must be refused with the right error. All checks use the client library, as a user does.
//!
//! - `refusals` asks the library for invalid sizes.
//! - `arenas` makes the pool hold and run batches of growing size.
//! - `device` asks a GPU's driver for memory, in this process.

mod arenas;
mod device;
mod refusals;

use std::path::Path;

use gridpool_ipc::clock;
use gridpool_protocol::diagnose::{Check, Group, Plan};
use gridpool_protocol::ids::{DeviceId, DeviceKind};

use super::{DiagnoseError, Report, us_since};

/// Runs all of them.
pub(super) fn run(
    plan: &Plan,
    socket: &Path,
    device: DeviceId,
    uuid: Option<&str>,
    report: &mut Report<'_>,
) -> Result<(), DiagnoseError> {
    let mut one = |doing: &str, run: &dyn Fn() -> Vec<Check>| {
        report.doing(doing)?;
        let started = clock::now();
        let checks = run();
        let us = us_since(started);
        for (at, check) in checks.into_iter().enumerate() {
            // If a step gives several checks, the first has its time.
            let us = if at == 0 { us } else { 0 };
            report.check(check.on(device).took(us))?;
        }
        Ok::<_, DiagnoseError>(())
    };
    one("shapes, by the client", &|| vec![refusals::grids(), refusals::tensors()])?;
    one("shared memory of the pool", &|| arenas::run(socket, device, plan.quick))?;
    match (device.kind, uuid) {
        (DeviceKind::Gpu, Some(uuid)) => one("memory of the GPU", &|| device::run(uuid)),
        (DeviceKind::Gpu, None) => one("memory of the GPU", &|| {
            let says = "not tried: no GPU was named for this process";
            let next = "run `gridpool diagnose`, which names it";
            vec![Check::skip(Group::Allocation, "device memory", says, next)]
        }),
        // The memory of a CPU device is the host's, which `arenas` has checked.
        (DeviceKind::Cpu, _) => Ok(()),
    }
}
