//! The processes of a helper, one after the other: spawns, reads and kills them when the core says so, and
//! posts what they do. `gateway` and `monitor` say how each helper is started and what its lines mean.
//!
//! No thread waits for a helper under the core's lock, and no job depends on one.

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use gridpool_core::action::{HelperAction, HelperEnd};
use gridpool_core::event::{Helper, HelperEvent};
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::log::FORMAT_VARIABLE;

use super::confinement::{Confinement, Inherits};
use super::lines::{Lines, Next};
use super::pidfd::PidFd;
use super::pinned::Pinned;
use crate::logging;

/// How long a process that has closed its output may take to end, before it counts as one that lives on.
const END_TIMEOUT: Duration = Duration::from_millis(250);

/// Hands a helper's event to the core.
pub(super) type Post = Box<dyn Fn(HelperEvent) + Send>;

/// What is special about a helper.
pub(super) trait Program: Send + 'static {
    /// The pipe or socket that it writes lines to.
    type Output: Read + AsFd;

    /// Starts a process.
    fn spawn(&mut self) -> io::Result<Spawned<Self::Output>>;

    /// Handles a line from the process. Returns whether it is a sign of life; the error says why the line is
    /// not of the protocol.
    fn on_line(&mut self, line: &[u8]) -> Result<bool, String>;

    /// The process is lost: it ended or broke the protocol.
    fn on_lost(&mut self) {}

    /// The process has ended.
    fn on_ended(&mut self) {}
}

/// This program, as which the gateway, the bridge and the tracer run.
pub(super) struct OwnProgram {
    program: Pinned,
    socket: PathBuf,
    confinement: Confinement,
}

impl OwnProgram {
    pub(super) fn new(socket: PathBuf, confinement: Confinement) -> Self {
        Self { program: Pinned::own(), socket, confinement }
    }

    /// A process with this command. It reads `given`, and `link` is its end of the link to the supervisor. Drop this
    /// once it runs: only the child holds its end of the link then, so we see it close.
    pub(super) fn command(
        &self,
        name: &str,
        given: impl Into<OwnedFd>,
        link: UnixStream,
    ) -> Command {
        let mut command = self.program.command();
        self.confinement.restrict(&mut command, Inherits::Gateway);
        command
            .arg(name)
            .arg("--socket")
            .arg(&self.socket)
            .args(["--supervisor-pid", &std::process::id().to_string()])
            .args(["--sandbox", self.confinement.mode.name()])
            .stdin(Stdio::from(given.into()))
            .stdout(Stdio::from(OwnedFd::from(link)))
            .env(FORMAT_VARIABLE, logging::format().name())
            .process_group(0);
        command
    }
}

/// A process that was started.
pub(super) struct Spawned<Output> {
    pub(super) child: Child,
    pub(super) output: Output,
    /// The socket whose shutdown asks the process to end, if it has one.
    pub(super) link: Option<UnixStream>,
}

/// The processes of one helper.
#[derive(Debug)]
pub(super) struct Processes {
    helper: Helper,
    starts: Sender<()>,
    state: Mutex<State>,
    /// Held while a process is started, until `state` has it.
    starting: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    process: Option<Process>,
    /// The core has killed a process that does not exist yet.
    is_doomed: bool,
}

#[derive(Debug)]
struct Process {
    pid: u32,
    pidfd: PidFd,
    link: Option<UnixStream>,
}

impl Processes {
    /// Starts the thread that spawns and reads them. A process dies with the thread that spawned it, so
    /// the thread lives as long as the pool.
    pub(super) fn serve(
        helper: Helper,
        program: impl Program,
        post: Post,
    ) -> io::Result<Arc<Self>> {
        // The core starts one process at a time.
        let (starts, requests) = crossbeam_channel::bounded(1);
        let processes =
            Arc::new(Self { helper, starts, state: Mutex::default(), starting: Mutex::default() });
        let for_thread = Arc::clone(&processes);
        let name = helper.to_string().replace("the ", "");
        thread::Builder::new()
            .name(name)
            .spawn(move || for_thread.serve_starts(&requests, program, &post))?;
        Ok(processes)
    }

    /// The number of the process, if there is one.
    pub(super) fn pid(&self) -> Option<u32> {
        self.state.lock().process.as_ref().map(|process| process.pid)
    }

    /// The same. Waits while one is being started: it may have connected already.
    pub(super) fn pid_once_started(&self) -> Option<u32> {
        let _starting = self.starting.lock();
        self.pid()
    }

    /// Whether the process has this number.
    pub(super) fn is(&self, pid: u32) -> bool {
        self.pid_once_started() == Some(pid)
    }

    /// Performs an action of the core. Never blocks.
    pub(super) fn perform(&self, action: HelperAction) {
        let helper = self.helper;
        let mut state = self.state.lock();
        match action {
            HelperAction::Start => {
                state.is_doomed = false;
                self.starts.try_send(()).expect("the core starts one process at a time");
            }
            HelperAction::Kill { reason } => {
                match reason {
                    HelperEnd::Unwanted => tracing::debug!("{helper} is killed"),
                    HelperEnd::DoesNotStop | HelperEnd::Silent => {
                        tracing::warn!(%reason, "{helper} is killed");
                    }
                    // It may have ended.
                    HelperEnd::Lost(_) => tracing::warn!(%reason, "{helper} is lost"),
                }
                match &state.process {
                    Some(process) => process.pidfd.kill(helper),
                    None => state.is_doomed = true,
                }
            }
            HelperAction::Stop => {
                tracing::debug!("{helper} is told to end");
                let link = state.process.as_ref().and_then(|process| process.link.as_ref());
                if let Some(Err(error)) = link.map(|link| link.shutdown(Shutdown::Write)) {
                    tracing::debug!(%error, "{helper} has ended already");
                }
            }
        }
    }

    /// The body of the thread: one process for each request.
    fn serve_starts(&self, requests: &Receiver<()>, mut program: impl Program, post: &Post) {
        let helper = self.helper;
        for () in requests {
            let starting = self.starting.lock();
            let spawned = program.spawn().and_then(|spawned| self.take_up(spawned));
            drop(starting);
            let (mut child, pidfd, output) = match spawned {
                Ok(spawned) => spawned,
                Err(error) => {
                    tracing::warn!(%error, "{helper} cannot be started");
                    post(HelperEvent::SpawnFailed);
                    continue;
                }
            };
            let why = listen(&mut Lines::new(output), &pidfd, &mut program, post);
            program.on_lost();
            post(HelperEvent::Lost { why });
            // Until it is reaped, no other process has its number.
            if let Err(error) = pidfd.wait(None) {
                tracing::error!(%error, "waiting for {helper}");
            }
            self.state.lock().process = None;
            match child.wait() {
                Ok(status) => tracing::debug!(%status, "{helper} has ended"),
                Err(error) => tracing::error!(%error, "waiting for {helper}"),
            }
            program.on_ended();
            post(HelperEvent::Exited);
        }
    }

    /// Keeps the process, so that the core can kill it.
    fn take_up<Output>(&self, spawned: Spawned<Output>) -> io::Result<(Child, PidFd, Output)> {
        let Spawned { mut child, output, link } = spawned;
        let opened = PidFd::open(child.id()).and_then(|pidfd| Ok((pidfd.try_clone()?, pidfd)));
        let (own, pidfd) = match opened {
            Ok(both) => both,
            Err(error) => {
                // It has not been reaped, so the number is still its own.
                child.kill()?;
                child.wait()?;
                return Err(error);
            }
        };
        let mut state = self.state.lock();
        if state.is_doomed {
            own.kill(self.helper);
        }
        state.process = Some(Process { pid: child.id(), pidfd: own, link });
        drop(state);
        Ok((child, pidfd, output))
    }
}

/// Reads a process's lines until the process is lost, and returns why.
fn listen(
    lines: &mut Lines<impl Read + AsFd>,
    process: &PidFd,
    program: &mut impl Program,
    post: &Post,
) -> String {
    loop {
        match lines.next(process) {
            Ok(Next::Line(line)) => match program.on_line(&line) {
                Ok(true) => post(HelperEvent::Heard),
                Ok(false) => {}
                Err(why) => return format!("it wrote a line that is not of the protocol: {why}"),
            },
            Ok(Next::Closed) => return how_it_closed(process),
            Ok(Next::TooLong) => return "it wrote a line that is too long".to_owned(),
            Err(error) => return format!("its output cannot be read: {error}"),
        }
    }
}

/// Why no more lines come from a process that has closed its output.
fn how_it_closed(process: &PidFd) -> String {
    match process.ended(END_TIMEOUT) {
        Ok(Some(how)) => how,
        Ok(None) => "it closed its output and lived on".to_owned(),
        Err(error) => format!("it closed its output; how it ended is unknown: {error}"),
    }
}
