//! Memory, sizes and shapes: what there is must be given and hold what is written, what there is not
//! must be refused with the error that is meant for it, and all must serve on afterwards.
//!
//! - `shapes` asks the client library, `submissions` the pool, `refusals` makes checks of both.
//! - `arenas` asks the pool for shared memory, over `wire`, which says what the library does not.
//! - `device` asks a GPU's driver for memory, in this process.

mod arenas;
mod device;
mod refusals;
mod shapes;
mod submissions;
mod wire;

use std::path::Path;

use gridpool_protocol::clock;
use gridpool_protocol::diagnose::{Check, Group, Plan};
use gridpool_protocol::ids::{DeviceId, DeviceKind};

use super::{DiagnoseError, Report, us_since};

/// Asks for all of it.
pub(super) fn look(
    plan: &Plan,
    socket: &Path,
    device: DeviceId,
    uuid: Option<&str>,
    report: &mut Report<'_>,
) -> Result<(), DiagnoseError> {
    let mut one = |doing: &str, look: &dyn Fn() -> Vec<Check>| {
        report.doing(doing)?;
        let started = clock::now();
        let checks = look();
        let us = us_since(started);
        for (at, check) in checks.into_iter().enumerate() {
            // Of several that one look has found, the first has the time.
            let us = if at == 0 { us } else { 0 };
            report.check(check.on(device).took(us))?;
        }
        Ok::<_, DiagnoseError>(())
    };
    one("shapes, by the client", &|| vec![shapes::grids(), shapes::tensors()])?;
    one("grid shapes, by the pool", &|| vec![submissions::grids(socket, device)])?;
    one("tensor shapes, by the pool", &|| vec![submissions::tensors(socket, device)])?;
    one("shared memory of the pool", &|| arenas::look(socket, plan.quick))?;
    match (device.kind, uuid) {
        (DeviceKind::Gpu, Some(uuid)) => one("memory of the GPU", &|| device::look(uuid)),
        (DeviceKind::Gpu, None) => one("memory of the GPU", &|| {
            let says = "not tried: it was not said which GPU this process may see";
            let next = "run `gridpool diagnose`, which says so";
            vec![Check::skip(Group::Allocation, "device memory", says, next)]
        }),
        // Its memory is the host's, which arenas have been made of.
        (DeviceKind::Cpu, _) => Ok(()),
    }
}
