//! A child process that measures or checks for a command, in a role of the worker's binary. It answers in
//! lines of JSON; every wait for it has a timeout.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use gridpool_ipc::clock;
use serde::de::DeserializeOwned;

/// How long reading a child's standard error may take after its end.
const STDERR_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a killed child may take to end; only one that hangs in the kernel takes longer.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Most lines that wait to be read.
const LINES_MAX: usize = 64;
/// Most bytes of standard error that are kept.
const STDERR_BYTES_MAX: u64 = 64 * 1024;

/// Why a child gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChildError {
    /// It ended with an error of its own.
    #[error("{message}")]
    Ended {
        /// Its last line on standard error, or how it ended.
        message: String,
        /// Its exit code, if it had one.
        code: Option<i32>,
    },
    /// The system failed to start it, write to it, or wait for it.
    #[error("{program}")]
    System {
        /// The binary and its role.
        program: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// It has printed nothing for too long.
    #[error("{program} printed nothing for {} s and was killed", silence_max.as_secs())]
    Silent {
        /// The binary and its role.
        program: String,
        /// How long it may be silent.
        silence_max: Duration,
    },
    /// Its answer is not in this program's format.
    #[error("{program} is of another build than this program: install both from one build")]
    OtherBuild {
        /// The binary and its role.
        program: String,
        /// Why its answer cannot be parsed.
        #[source]
        source: serde_json::Error,
    },
}

/// A child process that prints a line of JSON for each step.
#[derive(Debug)]
pub(super) struct ChildProcess {
    program: String,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<io::Result<String>>,
    stderr: Receiver<String>,
    silence_max: Duration,
}

impl ChildProcess {
    /// Starts the worker's binary in a role; it sees no GPU but `uuid`. It must print a line every
    /// `silence_max`.
    pub(super) fn start(
        worker: &Path,
        role: &[&str],
        uuid: &str,
        silence_max: Duration,
    ) -> Result<Self, ChildError> {
        let program =
            [&worker.display().to_string(), role.first().copied().unwrap_or_default()].join(" ");
        let system = |source| ChildError::System { program: program.clone(), source };
        let mut child = Command::new(worker)
            .args(role)
            .args(["--supervisor-pid", &std::process::id().to_string()])
            .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
            .env("CUDA_VISIBLE_DEVICES", uuid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(system)?;
        let stdin = child.stdin.take().expect("it was piped");
        let stdout = child.stdout.take().expect("it was piped");
        let stderr = child.stderr.take().expect("it was piped");
        let (line, lines) = crossbeam_channel::bounded(LINES_MAX);
        let (send_stderr, stderr_text) = crossbeam_channel::bounded(1);
        let read_lines = move || {
            for text in BufReader::new(stdout).lines() {
                if line.send(text).is_err() {
                    return;
                }
            }
        };
        let read_stderr = move || {
            let mut text = String::new();
            let read = stderr.take(STDERR_BYTES_MAX).read_to_string(&mut text);
            // The receiver may be gone: the command has given up on the child.
            drop(send_stderr.send(read.map_or_else(|error| error.to_string(), |_| text)));
        };
        thread::Builder::new().name("helper".into()).spawn(read_lines).map_err(system)?;
        thread::Builder::new().name("stderr".into()).spawn(read_stderr).map_err(system)?;
        Ok(Self { program, child, stdin, lines, stderr: stderr_text, silence_max })
    }

    /// Sends it a line of JSON.
    pub(super) fn send(&mut self, what: &impl serde::Serialize) -> Result<(), ChildError> {
        let text = serde_json::to_string(what).map_err(io::Error::other);
        let told = text.and_then(|text| writeln!(self.stdin, "{text}"));
        match told {
            Ok(()) => Ok(()),
            // It has ended; its own error says more.
            Err(_) => Err(self.ended()),
        }
    }

    /// Its next line; `None` once it has ended without an error.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ChildError> {
        match self.lines.recv_timeout(self.silence_max) {
            Ok(Ok(line)) => serde_json::from_str(&line)
                .map(Some)
                .map_err(|source| ChildError::OtherBuild { program: self.program.clone(), source }),
            Ok(Err(source)) => Err(ChildError::System { program: self.program.clone(), source }),
            Err(RecvTimeoutError::Timeout) => {
                let silence_max = self.silence_max;
                Err(ChildError::Silent { program: self.program.clone(), silence_max })
            }
            Err(RecvTimeoutError::Disconnected) => match self.child.wait() {
                Ok(status) if status.success() => Ok(None),
                Ok(_) | Err(_) => Err(self.ended()),
            },
        }
    }

    /// Its next line; an error if it has ended.
    pub(super) fn answer<T: DeserializeOwned>(&mut self) -> Result<T, ChildError> {
        let answer = self.next()?;
        answer.ok_or_else(|| ChildError::Ended {
            message: format!("{} ended without an answer", self.program),
            code: Some(0),
        })
    }

    /// The error with which it has ended.
    fn ended(&mut self) -> ChildError {
        let status = match self.child.wait() {
            Ok(status) => status,
            Err(source) => return ChildError::System { program: self.program.clone(), source },
        };
        let said = self.stderr.recv_timeout(STDERR_TIMEOUT).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        let message = match last {
            Some(line) => line.to_owned(),
            None => format!("{}: {status}", self.program),
        };
        ChildError::Ended { message, code: status.code() }
    }
}

impl Drop for ChildProcess {
    /// Kills it. A child that hangs in the kernel is left behind.
    fn drop(&mut self) {
        let killed = self.child.kill();
        let until = clock::now() + KILL_TIMEOUT;
        // Standard error is closed when the child is gone.
        let is_gone = loop {
            match self.lines.recv_timeout(clock::until(until)) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) => break false,
            }
        };
        let ended = killed.and_then(|()| match is_gone {
            true => self.child.wait().map(Some),
            false => self.child.try_wait(),
        });
        match ended {
            Ok(Some(_)) => {}
            Ok(None) => tracing::warn!(program = self.program, "a killed child does not end"),
            Err(error) => tracing::warn!(%error, "a child could not be killed"),
        }
    }
}
