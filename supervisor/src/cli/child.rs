//! A process that measures or looks for a command, in a role of the worker's binary: started, read line
//! by line, and never waited for without an end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use gridpool_protocol::clock;
use serde::de::DeserializeOwned;

/// How long what a process complains of may take to be read once it has ended.
const COMPLAINT_PATIENCE: Duration = Duration::from_secs(2);
/// How long one that was killed may take to be gone: longer it takes only in the kernel.
const ENDING: Duration = Duration::from_secs(5);
/// Lines that may wait to be read.
const LINES_MAX: usize = 64;
/// Bytes of its complaints that are kept.
const COMPLAINT_BYTES_MAX: u64 = 64 * 1024;

/// Why such a process did not do it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChildError {
    /// It ended with an error of its own.
    #[error("{complaint}")]
    Ended {
        /// What it said last, or how it ended.
        complaint: String,
        /// Its exit code, if it had one.
        code: Option<i32>,
    },
    /// It could not be started, told, or waited for.
    #[error("{program}")]
    System {
        /// The binary and its role.
        program: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It says nothing any more.
    #[error("{program} has said nothing for {} s, and was ended", silence_max.as_secs())]
    Silent {
        /// The binary and its role.
        program: String,
        /// How long it may be silent.
        silence_max: Duration,
    },
    /// What it says is nothing that this program knows.
    #[error("{program} is of another build than this program")]
    Strange {
        /// The binary and its role.
        program: String,
        /// What is wrong with what it says.
        #[source]
        source: serde_json::Error,
    },
}

/// A process that prints a line of JSON for each thing it does.
#[derive(Debug)]
pub(super) struct Helper {
    program: String,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<io::Result<String>>,
    complaint: Receiver<String>,
    silence_max: Duration,
}

impl Helper {
    /// Starts the worker's binary in a role, with no GPU to be seen but `uuid`. It must say something
    /// every `silence_max`.
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
        let (said, complaint) = crossbeam_channel::bounded(1);
        let read_lines = move || {
            for text in BufReader::new(stdout).lines() {
                if line.send(text).is_err() {
                    return;
                }
            }
        };
        let read_complaint = move || {
            let mut text = String::new();
            let read = stderr.take(COMPLAINT_BYTES_MAX).read_to_string(&mut text);
            // Whoever has given up on the process does not listen either.
            drop(said.send(read.map_or_else(|error| error.to_string(), |_| text)));
        };
        thread::Builder::new().name("helper".into()).spawn(read_lines).map_err(system)?;
        thread::Builder::new().name("complaints".into()).spawn(read_complaint).map_err(system)?;
        Ok(Self { program, child, stdin, lines, complaint, silence_max })
    }

    /// Tells it something, on a line.
    pub(super) fn tell(&mut self, what: &impl serde::Serialize) -> Result<(), ChildError> {
        let text = serde_json::to_string(what).map_err(io::Error::other);
        let told = text.and_then(|text| writeln!(self.stdin, "{text}"));
        match told {
            Ok(()) => Ok(()),
            // It has ended: its own words say more.
            Err(_) => Err(self.ended()),
        }
    }

    /// The next thing it says; `None` once it has ended well.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ChildError> {
        match self.lines.recv_timeout(self.silence_max) {
            Ok(Ok(line)) => serde_json::from_str(&line)
                .map(Some)
                .map_err(|source| ChildError::Strange { program: self.program.clone(), source }),
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

    /// The answer to what it was told; its end is none.
    pub(super) fn answer<T: DeserializeOwned>(&mut self) -> Result<T, ChildError> {
        let answer = self.next()?;
        answer.ok_or_else(|| ChildError::Ended {
            complaint: format!("{} ended before it had answered", self.program),
            code: Some(0),
        })
    }

    /// Why it has ended.
    fn ended(&mut self) -> ChildError {
        let status = match self.child.wait() {
            Ok(status) => status,
            Err(source) => return ChildError::System { program: self.program.clone(), source },
        };
        let said = self.complaint.recv_timeout(COMPLAINT_PATIENCE).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        let complaint = match last {
            Some(line) => line.to_owned(),
            None => format!("{}: {status}", self.program),
        };
        ChildError::Ended { complaint, code: status.code() }
    }
}

impl Drop for Helper {
    /// Nothing that it still says is wanted. One that sits in the kernel for good is left behind.
    fn drop(&mut self) {
        let killed = self.child.kill();
        let until = clock::now() + ENDING;
        // Its end of the pipe is closed when it is gone.
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
            Ok(None) => tracing::warn!(program = self.program, "a helper does not end: it is left"),
            Err(error) => tracing::warn!(%error, "a helper could not be ended"),
        }
    }
}
