//! `gridpool report`: one archive for a report of a fault, made of what other commands print. Secrets are left out of
//! every file of it.

mod secrets;

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Cursor, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use clap::Args;
use gridpool_ipc::clock;
use gridpool_protocol::build;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::error::system;
use super::flags::SocketFlag;
use super::output::OutputError;
use super::{CommandError, say, state};
use crate::shell::capsules;
use crate::state::{Kept, StateError};

/// Names the archive.
const FLAG: &str = "--output";
/// How long a command may take. The slowest is `diagnose`, which starts workers.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(180);
/// Most bytes of one file; of a longer log, its end. A longer capsule is left out: a part of it is no JSON.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// The unit of the service, and lines of its log.
const UNIT: &str = "gridpool";
const LOG_LINES: &str = "5000";
/// The most capsules.
const CAPSULES_MAX: usize = 8;
/// Verdicts from the job log.
const JOBS: &str = "1000";

/// What the names of variables begin with that tell how gridpool runs.
const VARIABLES: [&str; 9] =
    ["GRIDPOOL_", "CUDA_", "NVIDIA_", "ORT_", "LD_LIBRARY_PATH", "OMP_", "XDG_", "RUST_", "TERM"];

/// What goes into the report.
#[derive(Debug, Args)]
pub(super) struct ReportFlags {
    /// The archive to write, a zip file; it must not be there. The default is `gridpool-report-TIME.zip` in this
    /// folder.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The config file of the pool.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_CONFIG")]
    config: Option<PathBuf>,
    /// The devices of the pool, for `diagnose`.
    #[arg(long, value_name = "DEVICES", env = "GRIDPOOL_DEVICES")]
    devices: Option<String>,
    /// The pool's state folder; the default is that of `serve`.
    #[arg(long, value_name = "DIR", env = "GRIDPOOL_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// The pool's log, if it is in a file. The default is the journal of the unit `gridpool`, of the system and of this
    /// user.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Add the last capsules of crashes, which hold the programs and inputs of jobs.
    #[arg(long)]
    capsules: bool,
}

/// A file of the archive and what is in it.
struct Section {
    name: String,
    text: String,
}

/// Writes the archive.
pub(super) fn run(flags: &ReportFlags, socket: &SocketFlag) -> Result<u8, CommandError> {
    let now = humantime::format_rfc3339_seconds(clock::time_of_day()).to_string();
    let path = flags.output.clone().unwrap_or_else(|| {
        PathBuf::from(format!("gridpool-report-{}.zip", now.replace([':', '-'], "")))
    });
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&path);
    let flag = FLAG;
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(OutputError::Exists { flag, path }.into());
        }
        Err(source) => return Err(OutputError::Open { flag, path, source }.into()),
    };
    let sections = sections(flags, socket, &now).inspect_err(|_| remove(&path))?;
    complete(file, &path, &sections)?;
    let names: Vec<_> = sections.iter().map(|section| &*section.name).collect();
    say(&format!(
        "{}: {}\nTokens, passwords and keys are left out. It has names of users, hosts, devices and files, and parts \
         of programs and of what workers said: look through it before you send it.",
        path.display(),
        names.join(", ")
    ))
}

/// Writes the whole archive to the file at this path, or removes that.
fn complete(file: File, path: &Path, sections: &[Section]) -> Result<(), OutputError> {
    write(file, sections).map_err(|source| {
        remove(path);
        OutputError::Unwritten { flag: FLAG, path: path.to_owned(), source }
    })
}

/// Half an archive is none, and would be in the way of the next.
fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(file = %path.display(), %error, "the file is incomplete and cannot be removed");
    }
}

fn sections(
    flags: &ReportFlags,
    socket: &SocketFlag,
    now: &str,
) -> Result<Vec<Section>, CommandError> {
    let own = std::env::current_exe().map_err(system("this program's file"))?;
    let gridpool = |arguments: &[&str]| {
        let mut command = Command::new(&own);
        command.args(arguments).env("NO_COLOR", "1");
        for (variable, value) in [
            ("GRIDPOOL_SOCKET", &socket.socket),
            ("GRIDPOOL_CONFIG", &flags.config),
            ("GRIDPOOL_STATE_DIR", &flags.state_dir),
            ("GRIDPOOL_DEVICES", &flags.devices.as_ref().map(PathBuf::from)),
        ] {
            command.envs(value.iter().map(|value| (variable, value)));
        }
        output(command)
    };
    let about = format!("gridpool report of {now}\ngridpool {}\n", build::text());
    let parts = [
        ("about.txt", Printed::just(about)),
        ("environment.txt", Printed::just(environment())),
        ("config.json", gridpool(&["config", "show", "--json"])),
        ("status.json", gridpool(&["status", "--json"])),
        ("models.json", gridpool(&["models", "--json"])),
        ("policy.json", gridpool(&["status", "--policy", "--json"])),
        ("jobs.jsonl", gridpool(&["jobs", "--last", JOBS, "--json"])),
        ("diagnose.json", gridpool(&["diagnose", "--quick", "--json"])),
        ("log.txt", log(flags.log.as_deref())),
    ];
    let problems = parts.iter().filter(|(_, printed)| !printed.problem.is_empty());
    let mut problems: String =
        problems.map(|(name, printed)| format!("{name}: {}\n", printed.problem)).collect();
    let section =
        |(name, printed): (&str, Printed)| Section { name: name.to_owned(), text: printed.text };
    let mut sections: Vec<_> = parts.into_iter().map(section).collect();
    if flags.capsules {
        for (name, text) in capsules(flags.state_dir.as_deref())? {
            match text {
                Ok(text) => sections.push(Section { name, text }),
                Err(why) => problems += &format!("{name}: it is left out: {why}\n"),
            }
        }
    }
    sections.push(Section { name: "problems.txt".to_owned(), text: problems });
    for section in &mut sections {
        section.text = secrets::without(&section.text);
    }
    Ok(sections)
}

/// A capsule's name in the archive, and the whole of it or what keeps it out.
type SavedCapsule = (String, Result<String, String>);

/// The last capsules, the oldest first.
fn capsules(state_dir: Option<&Path>) -> Result<Vec<SavedCapsule>, CommandError> {
    let state = state::to_read(state_dir)?;
    let Some(folder) = state.existing(capsules::FOLDER)? else { return Ok(Vec::new()) };
    let mut kept =
        folder.list().map_err(|error| StateError::Io(folder.path().to_owned(), error))?;
    kept.drain(..kept.len().saturating_sub(CAPSULES_MAX));
    let read = |kept: &Kept| -> io::Result<String> {
        let mut bytes = Vec::new();
        folder.read(&kept.name)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 {
            0..=FILE_BYTES_MAX => String::from_utf8(bytes).map_err(io::Error::other),
            _ => Err(io::Error::other(format!(
                "it has {} bytes, and a file of a report has at most {FILE_BYTES_MAX}: send it by itself",
                kept.bytes
            ))),
        }
    };
    let named = |kept: Kept| {
        let text = read(&kept).map_err(|error| error.to_string());
        (format!("{}/{}", capsules::FOLDER, kept.name), text)
    };
    Ok(kept.into_iter().map(named).collect())
}

fn write(mut file: File, sections: &[Section]) -> io::Result<()> {
    // In memory, as its parts are: one that cannot be written would say so by itself when it is dropped.
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for section in sections {
        archive.start_file(&*section.name, SimpleFileOptions::default().unix_permissions(0o600))?;
        archive.write_all(section.text.as_bytes())?;
    }
    file.write_all(archive.finish()?.get_ref())?;
    file.sync_all()
}

/// The variables that change what gridpool does.
fn environment() -> String {
    let mut text = String::new();
    for (name, value) in std::env::vars_os() {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        if VARIABLES.iter().any(|known| name.starts_with(known)) {
            let value = if secrets::is_secret(&name) { "[left out]".into() } else { value };
            writeln!(text, "{name}={value}").expect("a string takes what is written");
        }
    }
    text
}

/// The end of the log.
fn log(file: Option<&Path>) -> Printed {
    let Some(file) = file else {
        let mut command = Command::new("journalctl");
        // A pool is a service of the system, or of this user's manager.
        command.args(["--unit", UNIT, "--user-unit", UNIT, "--lines", LOG_LINES, "--no-pager"]);
        return output(command);
    };
    let read = || -> io::Result<String> {
        let mut log = File::open(file)?;
        let bytes = log.metadata()?.len();
        log.seek(SeekFrom::Start(bytes.saturating_sub(FILE_BYTES_MAX)))?;
        let mut end = Vec::new();
        log.take(FILE_BYTES_MAX).read_to_end(&mut end)?;
        Ok(String::from_utf8_lossy(&end).into_owned())
    };
    match read() {
        Ok(text) => Printed::just(text),
        Err(error) => Printed {
            text: String::new(),
            problem: format!("{} cannot be read: {error}", file.display()),
        },
    }
}

/// What a command printed, and what was wrong with it: its standard error, and a bad end.
#[derive(Debug, Default)]
struct Printed {
    text: String,
    problem: String,
}

impl Printed {
    fn just(text: String) -> Self {
        Self { text, problem: String::new() }
    }
}

/// Runs a command. One that fails is no failure of the report: why it fails may be what the report is about.
fn output(mut command: Command) -> Printed {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let problem = format!("{command:?} cannot be started: {error}");
            return Printed { text: String::new(), problem };
        }
    };
    let (sender, ends) = crossbeam_channel::bounded(2);
    let pipes: [Box<dyn Read + Send>; 2] = [
        Box::new(child.stdout.take().expect("a pipe")),
        Box::new(child.stderr.take().expect("a pipe")),
    ];
    for (which, pipe) in pipes.into_iter().enumerate() {
        let sender = sender.clone();
        thread::spawn(move || drop(sender.send((which, read_all(pipe)))));
    }
    let until = clock::now() + COMMAND_TIMEOUT;
    let mut read = [String::new(), String::new()];
    let mut is_late = false;
    for _ in 0..read.len() {
        match ends.recv_timeout(clock::until(until)) {
            Ok((which, text)) => read[which] = text,
            Err(_) => is_late = true,
        }
    }
    if is_late && let Err(error) = child.kill() {
        tracing::debug!(%error, "a command that took too long cannot be killed");
    }
    let ended = match child.wait() {
        _ if is_late => format!("it took longer than {} s. ", COMMAND_TIMEOUT.as_secs()),
        Ok(status) if status.success() => String::new(),
        Ok(status) => format!("{status}. "),
        Err(error) => format!("{error}. "),
    };
    let [text, said] = read;
    Printed { text, problem: format!("{ended}{said}").trim_end().to_owned() }
}

/// The beginning of what a pipe gives; the rest is passed over, so that its writer does not wait.
fn read_all(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    let read = pipe.by_ref().take(FILE_BYTES_MAX).read_to_end(&mut bytes);
    let passed = read.and_then(|_| io::copy(&mut pipe, &mut io::sink()));
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    match passed {
        Ok(0) => {}
        Ok(more) => {
            writeln!(text, "\n# and {more} bytes more").expect("a string takes what is written")
        }
        Err(error) => writeln!(text, "\n# it cannot be read: {error}")
            .expect("a string takes what is written"),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_that_cannot_be_written_whole_is_not_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.zip");
        File::create(&path).unwrap();
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let sections = [Section { name: "a".to_owned(), text: "b".to_owned() }];
        let said = complete(full, &path, &sections).unwrap_err().to_string();
        assert!(said.contains("the file was removed"), "{said}");
        assert!(!path.exists());
    }
}
