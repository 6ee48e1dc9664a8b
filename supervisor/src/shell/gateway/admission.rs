//! Whom the gateway admits, and how it learns of changes.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use gridpool_ipc::mutex::Mutex;

use super::{HttpError, files, read};
use crate::config::HttpOptions;
use crate::gateway::{DoorPlan, Holders};

/// Whom the gateway admits, and the link to tell it.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) options: HttpOptions,
    pub(super) plan: DoorPlan,
    /// The tokens of the plan.
    pub(super) holders: Arc<Mutex<Arc<Holders>>>,
    /// The files when they were read last.
    pub(super) stamps: files::Stamps,
    pub(super) link: Option<UnixStream>,
}

impl Admission {
    /// Tells the gateway. If that fails, the gateway ends, and the next one is told at its start.
    pub(super) fn tell(&self) -> io::Result<()> {
        let Some(mut link) = self.link.as_ref() else { return Ok(()) };
        let mut line = serde_json::to_vec(&self.plan)?;
        line.push(b'\n');
        link.write_all(&line)
    }

    /// Reads the files again, and tells the gateway if anything is new.
    pub(super) fn reload(&mut self, options: &HttpOptions) -> Result<bool, HttpError> {
        self.stamps = files::stamps(options);
        let plan = read(options)?;
        self.options = options.clone();
        if plan == self.plan {
            return Ok(false);
        }
        self.plan = plan;
        *self.holders.lock() = Arc::new(self.plan.holders());
        if let Err(error) = self.tell() {
            tracing::warn!(%error, "the gateway cannot be told whom to admit: it is started anew");
            self.hang_up();
        }
        Ok(true)
    }

    /// Has the gateway answer the requests that it has, and end. Another one starts then.
    pub(super) fn replace_gateway(&self) {
        if let Some(Err(error)) = self.link.as_ref().map(|link| link.shutdown(Shutdown::Write)) {
            tracing::debug!(%error, "the gateway has ended already");
        }
    }

    /// Ends a gateway that has half a line.
    fn hang_up(&mut self) {
        if let Some(Err(error)) = self.link.take().map(|link| link.shutdown(Shutdown::Both)) {
            tracing::debug!(%error, "the gateway has ended already");
        }
    }
}
