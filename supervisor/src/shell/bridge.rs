//! The supervisor's side of `gridpool bridge`, a helper process that takes jobs of a cluster and runs them here as an
//! ordinary client. The supervisor knows nothing of them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridpool_bridge::{BridgeLine, BridgeSettings};
use gridpool_core::HelperStatus;
use gridpool_core::action::HelperAction;
use gridpool_core::event::{Event, Helper, HelperEvent};
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::status::NatsStatus;

use super::Shell;
use super::confinement::Confinement;
use super::helper::{OwnProgram, Post, Processes, Program, Spawned};
use crate::config::HOST_NAME;

/// The bridge of a pool.
#[derive(Debug)]
pub(super) struct Bridge {
    servers: String,
    host: String,
    said: Arc<Mutex<Said>>,
    processes: Arc<Processes>,
}

/// What the process said last, and the socket to it.
#[derive(Debug, Default)]
struct Said {
    line: BridgeLine<BTreeMap<String, u64>>,
    link: Option<UnixStream>,
}

impl Bridge {
    fn new(
        mut settings: BridgeSettings,
        socket: PathBuf,
        confinement: Confinement,
        post: Post,
    ) -> io::Result<Self> {
        settings.place = place_of(&socket)?;
        settings.machine = fs::read_to_string(HOST_NAME).map_err(unread(HOST_NAME))?.trim().into();
        settings.pid = std::process::id();
        let (servers, host) = (settings.nats.shown(), settings.host.clone());
        let said = Arc::new(Mutex::<Said>::default());
        let own = OwnProgram::new(socket, confinement);
        let starting = Starting { own, settings, said: Arc::clone(&said) };
        let processes = Processes::serve(Helper::Bridge, starting, post)?;
        Ok(Self { servers, host, said, processes })
    }

    /// The process and what it counted.
    pub(super) fn status(&self, core: HelperStatus) -> NatsStatus {
        let BridgeLine { counts, server, why_not, since_s } = self.said.lock().line.clone();
        NatsStatus {
            servers: self.servers.clone(),
            host: self.host.clone(),
            pid: self.processes.pid().unwrap_or(0),
            up: core.is_up,
            restarts: core.restarts,
            server,
            why_not,
            since_s,
            counts,
        }
    }

    /// Whether it is the process of this number. Waits while one is being started.
    pub(super) fn is(&self, pid: u32) -> bool {
        self.processes.is(pid)
    }

    pub(super) fn perform(&self, action: HelperAction) {
        self.processes.perform(action);
    }

    /// The process takes no more jobs, and ends once it has published the results of those that it has.
    pub(super) fn leave(&self) {
        let mut said = self.said.lock();
        if let Some(Err(error)) = said.link.as_mut().map(|link| link.write_all(b"l")) {
            tracing::debug!(%error, "the bridge has ended already");
        }
    }
}

impl Shell {
    /// Takes jobs of a cluster from now on, in a process of its own. Only the first call has an effect.
    ///
    /// # Errors
    /// The system's, if a thread cannot be started.
    pub fn serve_cluster(&self, settings: BridgeSettings) -> io::Result<()> {
        let shared = &self.shared;
        let post = shared.helper_post(Helper::Bridge);
        let (socket, confinement) = (shared.socket.clone(), shared.confinement.clone());
        let bridge = Bridge::new(settings, socket, confinement, post)?;
        shared.bridge.get_or_init(|| bridge);
        shared.post(Event::Helper(Helper::Bridge, HelperEvent::Wanted));
        Ok(())
    }
}

/// What tells this machine from a copy of it, and one container from another.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
const MOUNTS: &str = "/proc/self/ns/mnt";

/// Where a pool is: its socket, which one pool has at a time, and what tells this machine from a copy of it. A pool
/// that is started again there is the same host, and another of the same name is not.
fn place_of(socket: &Path) -> io::Result<String> {
    let boot = fs::read_to_string(BOOT).map_err(unread(BOOT))?;
    let mounts = fs::read_link(MOUNTS).map_err(unread(MOUNTS))?;
    Ok(format!("{} in {} of boot {}", socket.display(), mounts.display(), boot.trim()))
}

fn unread(path: &str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| {
        let why = format!(
            "{path} cannot be read ({error}), and tells this host from others of the cluster: mount all of /proc, or \
             leave out --nats"
        );
        io::Error::new(error.kind(), why)
    }
}

/// How processes of the bridge are started.
struct Starting {
    own: OwnProgram,
    settings: BridgeSettings,
    said: Arc<Mutex<Said>>,
}

impl Program for Starting {
    type Output = UnixStream;

    fn spawn(&mut self) -> io::Result<Spawned<UnixStream>> {
        let (ours, theirs) = UnixStream::pair()?;
        // A few hundred bytes, which the socket takes before they are read.
        let (mut input, settings) = UnixStream::pair()?;
        input.write_all(&serde_json::to_vec(&self.settings)?)?;
        drop(input);
        let child = self.own.command("bridge", settings, theirs).spawn()?;
        *self.said.lock() = Said { link: Some(ours.try_clone()?), line: BridgeLine::default() };
        Ok(Spawned { child, output: ours.try_clone()?, link: Some(ours) })
    }

    fn on_line(&mut self, line: &[u8]) -> Result<bool, String> {
        let line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        self.said.lock().line = line;
        Ok(true)
    }

    fn on_lost(&mut self) {
        self.said.lock().link = None;
    }
}
