//! A call of the command line: its output and its end.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::binaries;
use crate::processes::Process;
use crate::wait::TIMEOUT;

/// A call of `gridpool` that is being put together. It sees no `GRIDPOOL_…` variable of ours.
#[derive(Debug)]
pub(crate) struct Cli {
    command: Command,
    stdin: Vec<u8>,
    folder: TempDir,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A call that is running.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) process: Process,
    stdout: mpsc::Receiver<String>,
    stderr: mpsc::Receiver<String>,
    _folder: TempDir,
}

/// A call whose input stays open, and whose results are read line by line. What else it says is dropped.
#[derive(Debug)]
pub(crate) struct Dialogue {
    pub(crate) process: Process,
    pub(crate) stdin: ChildStdin,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
    pub(crate) _folder: TempDir,
}

/// `gridpool` with these arguments.
pub(crate) fn gridpool<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Cli {
    call(Command::new(binaries::gridpool()), arguments)
}

/// The same program from another place.
pub(crate) fn gridpool_at<A: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
) -> Cli {
    call(Command::new(program), arguments)
}

/// The same, started by a program that changes what a process may do: `prlimit --nofile=64`.
pub(crate) fn gridpool_under(
    by: &[&str],
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Cli {
    let mut command = Command::new(by[0]);
    command.args(&by[1..]).arg(binaries::gridpool());
    call(command, arguments)
}

fn call(mut command: Command, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Cli {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GRIDPOOL_") {
            command.env_remove(name);
        }
    }
    for name in ["CLICOLOR_FORCE", "FORCE_COLOR"] {
        command.env_remove(name);
    }
    command.args(arguments).env("XDG_RUNTIME_DIR", folder.path());
    command.env("XDG_STATE_HOME", folder.path());
    Cli { command, stdin: Vec::new(), folder }
}

impl Cli {
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub(crate) fn args(self, arguments: &[&str]) -> Self {
        arguments.iter().fold(self, |call, argument| call.arg(argument))
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Has it run as another user, which only root can.
    pub(crate) fn of_user(mut self, uid: u32) -> Self {
        self.command.uid(uid).gid(uid);
        self
    }

    pub(crate) fn current_dir(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Starts it, and keeps its input open.
    pub(crate) fn talk(mut self) -> Dialogue {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = self.command.spawn().expect("gridpool can be started");
        let stdin = child.stdin.take().expect("it was piped");
        let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        Dialogue { process: Process::new(child), stdin, lines, _folder: self.folder }
    }

    /// Starts it.
    pub(crate) fn start(self) -> Running {
        self.start_into(Stdio::piped())
    }

    fn start_into(mut self, stdout: Stdio) -> Running {
        self.command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("gridpool can be started");
        let mut stdin = child.stdin.take().expect("it was piped");
        let bytes = self.stdin;
        // It may end without reading all of it.
        thread::spawn(move || drop(stdin.write_all(&bytes)));
        // Nothing to read if it goes elsewhere.
        let stdout = match child.stdout.take() {
            Some(stdout) => read(stdout),
            None => read(std::io::empty()),
        };
        let stderr = read(child.stderr.take().expect("it was piped"));
        Running { process: Process::new(child), stdout, stderr, _folder: self.folder }
    }

    /// Runs it to its end, with standard output closed.
    pub(crate) fn without_stdout(self) -> Finished {
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        self.start_into(writer.into()).finish()
    }

    /// Runs it to its end, with standard output in a file.
    pub(crate) fn into_file(self, file: std::fs::File) -> Finished {
        self.start_into(file.into()).finish()
    }

    /// Runs it to its end: the exit code, what it printed, which need be no text, and what it said.
    pub(crate) fn bytes(mut self) -> (Option<i32>, Vec<u8>, String) {
        let call = self.command.stdin(Stdio::null()).output().expect("gridpool can be started");
        let said = String::from_utf8(call.stderr).expect("gridpool says UTF-8");
        (call.status.code(), call.stdout, said)
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Finished {
        self.start().finish()
    }
}

fn read(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        // The receiver is gone if the test has given up.
        drop(sender.send(String::from_utf8(bytes).expect("gridpool prints UTF-8")));
    });
    receiver
}

impl Running {
    /// Waits for its end and for the end of everything that inherited its output.
    pub(crate) fn finish(mut self) -> Finished {
        let stdout = self.stdout.recv_timeout(TIMEOUT).expect("standard output ends in time");
        let stderr = self.stderr.recv_timeout(TIMEOUT).expect("standard error ends in time");
        Finished { code: self.process.exit().code(), stdout, stderr }
    }
}

impl Finished {
    /// Standard output of a call that must have gone well.
    #[track_caller]
    pub(crate) fn output(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        assert_eq!(self.stderr, "", "a call that goes well has nothing to complain about");
        self.stdout
    }

    /// The JSON document of a call that must have gone well.
    #[track_caller]
    pub(crate) fn document(self) -> Value {
        serde_json::from_str(&self.output()).expect("one JSON document")
    }

    /// Whether it ended with this code and complained in one sentence with all these words.
    #[track_caller]
    pub(crate) fn complains(&self, code: i32, words: &[&str]) {
        let Self { code: got, stdout, stderr } = self;
        assert_eq!(*got, Some(code), "{stdout}{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        assert!(stderr.starts_with("gridpool: ") || stderr.starts_with("error: "), "{stderr}");
        for word in words {
            assert!(stderr.contains(word), "`{word}` is not in: {stderr}");
        }
        assert_eq!(stdout, "", "a call that is refused prints no results");
    }
}
