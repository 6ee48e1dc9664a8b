//! `gridpool replay`: runs a capsule again in pools of its own, says whether it dies again and where results part, and
//! looks for the smallest part of it that still dies.
//!
//! Owns the order of the steps. [`crate::capsule`] reads the document, `load` makes jobs of it, `run` runs them.

mod bisect;
mod difference;
mod error;
mod load;
mod machine;
mod report;
mod requests;
mod run;
mod sanitizer;

use std::fs::{self, DirEntry, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::ids::DeviceKind;

use super::error::CommandError;
use super::flags::{PoolFlags, parse_seconds, whole};
use super::interrupt::Interrupt;
use super::progress::Progress;
use crate::capsule::{Capsule, SUFFIX};
use crate::config::{DeviceSelection, Settings, StateDir};
use crate::devices;
use crate::shell::capsules::FOLDER;
use bisect::smallest;
use error::Kept;
pub(super) use error::ReplayError;
use load::Load;
use machine::Machine;
use report::{Bisected, Report};
use run::Replayer;

/// The last lines of `--help`.
pub(super) const CODES: &str = "\
Exits with 0 if no worker died and the results agree, 1 if one died again or they part, 65 if
the capsule cannot be run, or no worker died but what it died of may have been left out of it.
The book says what a capsule holds: Capsules of crashes.";

/// A tool under which the work is run once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Under {
    /// NVIDIA's checker of memory accesses in kernels.
    ComputeSanitizer,
}

/// Flags of `gridpool replay`.
#[derive(Debug, Args)]
pub(super) struct ReplayFlags {
    /// The capsule: a file, or its name as the log and receipts have it.
    capsule: PathBuf,
    /// Look for the fewest items (programs of a search, rows of requests for models) that still end a worker the same
    /// way.
    #[arg(long)]
    bisect: bool,
    /// Most runs of --bisect.
    #[arg(long, value_name = "N", default_value = "200", value_parser = whole::<u32>(1..=100_000))]
    runs: u32,
    /// Run a program's items once more under this tool, on the first of the devices, without a pool.
    #[arg(long, value_enum)]
    under: Option<Under>,
    /// Longest deadline of a job, seconds: one with a longer deadline gets this.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_deadline)]
    deadline: Duration,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// No progress bar.
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn run(flags: &ReplayFlags, pool: &PoolFlags) -> Result<u8, CommandError> {
    let overrides = pool.overrides(None);
    let names_devices = overrides.devices.is_some();
    let settings = Settings::resolve(overrides, pool.config.as_deref())?;
    let path = find(&flags.capsule, &settings.state_dir);
    let broken = |error| ReplayError::Capsule { path: path.clone(), error };
    let file = File::open(&path).map_err(|source| {
        let kind = source.kind();
        if kind == ErrorKind::NotFound {
            let kept = kept(&settings.state_dir);
            ReplayError::Missing { typed: flags.capsule.clone(), kept }
        } else if kind == ErrorKind::PermissionDenied {
            ReplayError::NotAllowed { path: path.clone() }
        } else {
            ReplayError::Open { path: path.clone(), source }
        }
    })?;
    let capsule = Capsule::read(file).map_err(broken)?;
    let mut load = Load::of(&capsule)?;
    // Before a pool has threads, which inherit the blocked signal.
    let interrupt = Interrupt::new()?;
    let worker = devices::worker_binary(settings.worker_bin.as_deref())?;
    let device = match names_devices {
        true => settings.devices.clone(),
        false => {
            let is_here = |one: &DeviceSelection| {
                devices::resolve(std::slice::from_ref(one), &worker).is_ok()
            };
            let (device, lack) = device_of(&capsule, is_here);
            load.lacks.extend(lack);
            vec![device]
        }
    };
    let is_cpu = |one: &DeviceSelection| matches!(one, DeviceSelection::Cpu(_));
    let replayer = Replayer::new(&capsule, settings, worker, flags.deadline)?;
    load.lacks.extend(replayer.unchecked.iter().cloned());
    let mut report = Report::new(&capsule, &load);
    let all: Vec<usize> = (0..load.units()).collect();
    // The reference first: it says what is right.
    let places = [vec![DeviceSelection::Cpu(1)], device.clone()];
    let places = if device.iter().all(is_cpu) { &places[1..] } else { &places[..] };
    let then = Machine::of(&capsule);
    let here = Machine::here(replayer.worker(), then.has_driver());
    let (mut results, mut models) = (Vec::new(), Vec::new());
    for devices in places {
        let mut run = replayer.run(&load, &all, devices)?;
        models = std::mem::take(&mut run.models);
        report.differs = here.clone().on_device_of(&run.receipts).differs_from(&then);
        results.push(report.ran(devices, run));
    }
    if let [one, other] = &mut results[..]
        && let (Some(one), Some(other)) = (one.take(), other.take())
    {
        report.difference = difference::first(&one, &other);
    }
    // Now it ends what runs, and what was found is printed.
    interrupt.stops(|| ());
    if flags.bisect && report.last_died() {
        load.cut_rows(&models);
        report.bisected = Some(bisect(flags, &replayer, &load, &device, &report, &interrupt)?);
    }
    if let Some(Under::ComputeSanitizer) = flags.under
        && !interrupt.has_come()
    {
        let request = load.request()?;
        let has_come = || interrupt.has_come();
        report.sanitized = sanitizer::run(replayer.worker(), &device[0], &request, &has_come)?;
    }
    match flags.json {
        true => super::say_json(&report)?,
        false => super::say(report.text().trim_end())?,
    };
    Ok(if interrupt.has_come() { exit::INTERRUPTED } else { report.code() })
}

/// Looks for the smallest part that still dies as the whole has.
fn bisect(
    flags: &ReplayFlags,
    replayer: &Replayer,
    load: &Load,
    device: &[DeviceSelection],
    report: &Report,
    interrupt: &Interrupt,
) -> Result<Bisected, CommandError> {
    let manner = report.last_manner().cloned().unwrap_or_default();
    let progress = Progress::new(load.units() as u64, flags.quiet || flags.json);
    let mut left = load.units();
    let found = smallest(load.units(), flags.runs, |chosen| {
        if interrupt.has_come() {
            return Ok(None);
        }
        let run = replayer.run(load, chosen, device)?;
        let dies = run.manner.is_some_and(|own| own.is_like(&manner));
        if dies && chosen.len() < left {
            progress.advance((left - chosen.len()) as u64);
            left = chosen.len();
        }
        Ok::<_, CommandError>(Some(dies))
    })?;
    progress.finish();
    let names = found.units.iter().map(|unit| load.name(*unit)).collect();
    Ok(Bisected {
        units: load.unit().to_owned(),
        of: load.units(),
        names,
        runs: found.runs,
        is_done: found.is_done,
    })
}

/// The file of a capsule: as typed, or in the state folder.
fn find(typed: &Path, state: &StateDir) -> PathBuf {
    let is_name = typed.components().count() == 1 && !typed.exists();
    match state.of_service().filter(|_| is_name) {
        None => typed.to_owned(),
        Some((folder, _)) => {
            let name = typed.as_os_str().to_string_lossy();
            folder.join(FOLDER).join(format!("{}{SUFFIX}", name.trim_end_matches(SUFFIX)))
        }
    }
}

/// What capsules a state folder has, as far as a message has room.
fn kept(state: &StateDir) -> Kept {
    const SHOWN_MAX: usize = 3;
    let Some((state, _)) = state.of_service() else {
        return Kept { folder: None, latest: Ok(Vec::new()) };
    };
    let folder = state.join(FOLDER);
    let names = fs::read_dir(&folder).map(|files| {
        let name =
            |file: DirEntry| Some(file.file_name().to_str()?.strip_suffix(SUFFIX)?.to_owned());
        let mut names: Vec<_> = files.map_while(Result::ok).filter_map(name).collect();
        // They begin with their time.
        names.sort_by(|one, other| other.cmp(one));
        names.truncate(SHOWN_MAX);
        names
    });
    Kept { folder: Some(folder), latest: names }
}

/// The device on which it died: of a GPU that one if it is here, else the first, and a sentence about that.
fn device_of(
    capsule: &Capsule,
    is_here: impl Fn(&DeviceSelection) -> bool,
) -> (DeviceSelection, Option<String>) {
    let of =
        |key: &str| capsule.death.get(key).and_then(|value| value.as_str()).unwrap_or_default();
    let is_gpu = of("device").starts_with(&DeviceKind::Gpu.to_string());
    if !is_gpu {
        return (DeviceSelection::Cpu(1), None);
    }
    let own = DeviceSelection::GpuUuid(of("uuid").to_owned());
    if is_here(&own) {
        return (own, None);
    }
    let (device, uuid) = (of("device"), of("uuid"));
    let lack = format!("the GPU that it died on, {device} {uuid}, is not here: GPU 0 is taken");
    (DeviceSelection::GpuIndex(0), Some(lack))
}

/// Reads a deadline in which something can run.
fn parse_deadline(text: &str) -> Result<Duration, String> {
    match parse_seconds(text)? {
        Duration::ZERO => {
            Err("a deadline of 0 has already passed: write 60, for example".to_owned())
        }
        span => Ok(span),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_runs_with_a_deadline_of_0() {
        assert_eq!(parse_deadline("0.5"), Ok(Duration::from_millis(500)));
        assert!(parse_deadline("0").unwrap_err().contains("has already passed"));
    }

    #[test]
    fn it_runs_on_the_gpu_on_which_it_died_if_that_is_here() {
        let capsule =
            |device: &str| load::tests::capsule_of(json!({"device": device, "uuid": "GPU-3"}), &[]);
        let own = DeviceSelection::GpuUuid("GPU-3".to_owned());
        let gpu = capsule("gpu3");
        assert_eq!(device_of(&gpu, |one| *one == own), (own.clone(), None));
        let (device, lack) = device_of(&gpu, |_| false);
        assert_eq!(device, DeviceSelection::GpuIndex(0));
        assert!(lack.is_some_and(|lack| lack.contains("gpu3 GPU-3, is not here")));
        assert_eq!(device_of(&capsule("cpu0"), |_| true), (DeviceSelection::Cpu(1), None));
    }
}
