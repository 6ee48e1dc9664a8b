//! Runs the items of a capsule once more under NVIDIA's compute-sanitizer, in a worker's binary without a pool: the
//! tool watches one process, and a pool would kill one that is as slow as under it.

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, thread};

use gridpool_ipc::clock;
use gridpool_protocol::replay::ReplayRequest;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Serialize;

use super::ReplayError;
use crate::cli::error::{CommandError, system};
use crate::config::DeviceSelection;

/// The tool.
const TOOL: &str = "compute-sanitizer";
/// Where it is if it is not in `PATH`.
const TOOLKIT: &str = "/usr/local/cuda/bin";
/// What it exits with if it has found something.
const FOUND_CODE: &str = "86";
/// How long a run may take: under the tool, kernels are a hundred times as slow.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Between two looks whether Ctrl-C has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Most bytes of its output that are kept, and lines that are shown.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
const LINES_SHOWN: usize = 40;

/// What the tool said.
#[derive(Debug, Serialize)]
pub(super) struct Sanitized {
    /// Its command line.
    pub(super) command: String,
    /// How it ended.
    pub(super) ended: String,
    /// Errors by its own count, if it says one.
    pub(super) errors: Option<u64>,
    /// Its first lines.
    pub(super) lines: Vec<String>,
}

/// Runs a request on the first of the devices; `None` if Ctrl-C `has_come` before its end.
pub(super) fn run(
    worker: &Path,
    device: &DeviceSelection,
    request: &ReplayRequest,
    has_come: &dyn Fn() -> bool,
) -> Result<Option<Sanitized>, CommandError> {
    let tool = find(env::var_os("PATH").unwrap_or_default()).ok_or(ReplayError::NoSanitizer)?;
    let mut command = Command::new(tool);
    command.args(["--tool", "memcheck", "--error-exitcode", FOUND_CODE]).arg(worker).arg("replay");
    match device {
        DeviceSelection::Cpu(_) => drop(command.arg("--cpu")),
        DeviceSelection::GpuIndex(index) => {
            command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
            command.env("CUDA_VISIBLE_DEVICES", index.to_string());
        }
        DeviceSelection::GpuUuid(uuid) => drop(command.env("CUDA_VISIBLE_DEVICES", uuid)),
        DeviceSelection::AllGpus => drop(command.env("CUDA_VISIBLE_DEVICES", "0")),
    }
    let shown = format!("{command:?}");
    let mut line = serde_json::to_string(request).expect("it is plain data");
    line.push('\n');
    let ended = run_to_end(&mut command, line, TIMEOUT, has_come).map_err(system(TOOL))?;
    let (status, output) = ended;
    if has_come() {
        return Ok(None);
    }
    let lines: Vec<String> = output.lines().map(str::to_owned).collect();
    let errors = lines.iter().rev().find_map(|line| {
        let (_, rest) = line.split_once("ERROR SUMMARY: ")?;
        rest.split_whitespace().next()?.parse().ok()
    });
    let lines = lines.into_iter().take(LINES_SHOWN).collect();
    Ok(Some(Sanitized { command: shown, ended: words(status), errors, lines }))
}

impl Sanitized {
    /// Whether it has found nothing, and the work was run to its end.
    pub(super) fn is_clean(&self) -> bool {
        self.ended == words(Some(ExitStatus::from_raw(0))) && self.errors.unwrap_or(0) == 0
    }
}

fn words(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        None => format!("killed after {} s", TIMEOUT.as_secs()),
        Some((Some(code), _)) => format!("exit code {code}"),
        Some((None, signal)) => format!("signal {}", signal.unwrap_or(0)),
    }
}

/// The tool, if it is installed.
fn find(path: impl AsRef<std::ffi::OsStr>) -> Option<PathBuf> {
    let folders = env::split_paths(&path).chain([PathBuf::from(TOOLKIT)]);
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    folders.map(|folder| folder.join(TOOL)).find(is_program)
}

/// Its exit status, `None` if it was killed, and what it wrote. It is killed with all that it has started, after some
/// time or when Ctrl-C `has_come`, which does not reach its group.
fn run_to_end(
    command: &mut Command,
    line: String,
    within: Duration,
    has_come: &dyn Fn() -> bool,
) -> io::Result<(Option<ExitStatus>, String)> {
    let (output, theirs) = io::pipe()?;
    command.stdin(Stdio::piped()).stdout(theirs.try_clone()?).stderr(theirs);
    command.process_group(0);
    let mut child = command.spawn()?;
    // The ends of the pipe that are ours would keep it open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut stdin = child.stdin.take().expect("it was piped");
    // It may end without reading.
    thread::Builder::new()
        .name("request".into())
        .spawn(move || stdin.write_all(line.as_bytes()))?;
    let (sender, read) = mpsc::channel();
    let reader = move || {
        let mut bytes = Vec::new();
        let mut output = output;
        let taken = output.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        // What is beyond is read and dropped, so that it does not wait.
        let rest = io::copy(&mut output, &mut io::sink());
        let text = String::from_utf8_lossy(&bytes).into_owned();
        drop(sender.send(taken.and(rest).map(|_| text)));
    };
    thread::Builder::new().name("output".into()).spawn(reader)?;
    let until = clock::now() + within;
    loop {
        match read.recv_timeout(LOOK_EVERY.min(clock::until(until))) {
            Ok(text) => return Ok((Some(child.wait()?), text?)),
            Err(_) if clock::until(until).is_zero() || has_come() => {
                return end(&mut child).map(|()| (None, String::new()));
            }
            Err(_) => {}
        }
    }
}

/// Kills the tool, and the worker that it has started.
fn end(child: &mut Child) -> io::Result<()> {
    let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    match killpg(group, Signal::SIGKILL) {
        // None of them is left.
        Ok(()) | Err(Errno::ESRCH) => child.wait().map(drop),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tool_has_started_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, never) = (folder.path().join("pid"), || false);
        let mut command = Command::new("sh");
        command.arg("-c").arg("sleep 1000 & echo $! > \"$0\"; wait").arg(&file);
        let within = Duration::from_secs(2);
        let (status, _) = run_to_end(&mut command, String::new(), within, &never).unwrap();
        assert_eq!(status, None);
        let pid = std::fs::read_to_string(&file).unwrap();
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        // It takes a moment to die, and perhaps nobody waits for it.
        let give_up = clock::now() + Duration::from_secs(30);
        while stat().is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(!clock::until(give_up).is_zero(), "{:?}", stat());
            thread::yield_now();
        }
    }
}
