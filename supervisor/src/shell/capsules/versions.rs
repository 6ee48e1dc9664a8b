//! What a capsule says of the builds that ran: each is asked for once, in the thread that writes capsules.

use std::sync::OnceLock;

use crate::devices::{driver_by, version_by};
use crate::shell::Shared;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Versions {
    worker: OnceLock<String>,
    cuda: OnceLock<String>,
}

impl Versions {
    /// What the worker's binary says of itself.
    pub(super) fn worker(&self, shared: &Shared) -> String {
        let ask = || {
            let mut command = shared.command.lock().program.command();
            version_by(&mut command).unwrap_or_default().trim().to_owned()
        };
        self.worker.get_or_init(ask).clone()
    }

    /// The CUDA version of a driver, which does not change while the driver is loaded; empty without a driver. One
    /// that does not answer after a fault leaves it unknown.
    pub(super) fn cuda(&self, shared: &Shared, driver: &str) -> String {
        let ask = || {
            let mut command = shared.command.lock().program.command();
            driver_by(&mut command).unwrap_or_default().cuda
        };
        match driver.is_empty() {
            true => String::new(),
            false => self.cuda.get_or_init(ask).clone(),
        }
    }
}
