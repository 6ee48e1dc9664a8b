//! Runs the work of a capsule in a pool of its own: once, with one attempt. What its worker died of, the capsule of
//! that pool says.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, thread};

use gridpool_client::{Client, Outputs, TensorOutputs};
use gridpool_ipc::clock;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::output::{ItemError, Output};
use gridpool_protocol::receipt::{Attempt, AttemptOutcome, Receipt};
use gridpool_protocol::status::{CapsuleMode, WorkerState, WorkerStatus};
use gridpool_protocol::tensor::Tensor;
use gridpool_protocol::tensor::model::ModelInfo;

use super::ReplayError;
use super::load::{Handles, Load};
use super::requests::{Tensors, outputs_of};
use crate::capsule::{Capsule, Manner, SUFFIX};
use crate::cli::error::{CommandError, system};
use crate::cli::in_own_pool;
use crate::cli::private::is_settled;
use crate::config::{CapsuleOptions, DeviceSelection, Settings, StateDir};
use crate::shell::capsules::{FOLDER, hash_file};

/// How long the workers may take to be READY.
const READY_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a worker that lost its job may take to end and to be replaced.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks at the pool.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Runs the work of one capsule.
pub(super) struct Replayer {
    settings: Settings,
    worker: PathBuf,
    deadline_max: Duration,
    /// What could not be checked, a sentence each.
    pub(super) unchecked: Vec<String>,
}

/// What came of a run.
pub(super) struct Run {
    pub(super) receipts: Vec<Receipt>,
    /// How the worker ended, if it did.
    pub(super) manner: Option<Manner>,
    pub(super) results: Option<Results>,
    /// The models of its pool.
    pub(super) models: Vec<ModelInfo>,
}

/// The results of a run in which every job was OK.
#[derive(Debug, PartialEq)]
pub(super) enum Results {
    Items(Vec<Result<Output, ItemError>>),
    Bytes(Vec<u8>),
    Tensors(Vec<Tensors>),
}

impl Replayer {
    /// By these settings, with the models of the capsule.
    pub(super) fn new(
        capsule: &Capsule,
        settings: Settings,
        worker: PathBuf,
        deadline_max: Duration,
    ) -> Result<Self, ReplayError> {
        let (mut models, mut unchecked) = (Vec::new(), Vec::new());
        for saved in &capsule.models {
            let mut plan = saved.plan.clone();
            // Its devices may not be here.
            (plan.options.devices, plan.options.device_count) = (None, None);
            if plan.options.pipeline.is_none() {
                unchecked.extend(check_file(&plan.name, &plan.path, &saved.sha256)?);
            }
            models.push(plan);
        }
        let mut limits = settings.limits.clone();
        limits.attempts_max = 1;
        limits.standbys = 0;
        let capsules = CapsuleOptions { mode: CapsuleMode::Shapes, ..CapsuleOptions::default() };
        let settings = Settings { models, limits, capsules, repository: None, ..settings };
        Ok(Self { settings, worker, deadline_max, unchecked })
    }

    /// The worker's binary.
    pub(super) fn worker(&self) -> &Path {
        &self.worker
    }

    /// Runs some units on these devices.
    pub(super) fn run(
        &self,
        load: &Load,
        chosen: &[usize],
        devices: &[DeviceSelection],
    ) -> Result<Run, CommandError> {
        let scratch = tempfile::Builder::new().prefix("gridpool-replay-").tempdir();
        let scratch = scratch.map_err(system("a folder for the run"))?;
        // Made with a private mode.
        let state = scratch.path().join("state");
        let settings = Settings {
            devices: devices.to_vec(),
            state_dir: StateDir::At(state.clone()),
            allow_chaos: self.settings.allow_chaos || load.has_chaos(),
            ..self.settings.clone()
        };
        let mut ran = None;
        in_own_pool(&settings, |client| {
            until_ready(client, devices)?;
            let models: Vec<_> = client.models()?.into_iter().map(|row| row.model).collect();
            let handles = load.submit(client, chosen, self.deadline_max, &models)?;
            let (receipts, results) = wait(handles)?;
            if results.is_none() {
                until_settled(client)?;
            }
            ran = Some((receipts, results, models));
            Ok(exit::OK)
        })?;
        let (receipts, results, models) = ran.expect("it was run, else that was an error");
        let manner = manner_in(&state.join(FOLDER)).map_err(system("the folder of the run"))?;
        if let Some(worker) = lost(&receipts).filter(|_| manner.is_none()) {
            return Err(ReplayError::Unexplained { worker: worker.to_owned() }.into());
        }
        Ok(Run { receipts, manner, results, models })
    }
}

/// Checks that the file of a model is what it was; a sentence if that is not known.
fn check_file(name: &str, path: &Path, sha256: &str) -> Result<Option<String>, ReplayError> {
    let wrong =
        |why: String| ReplayError::Model { name: name.to_owned(), path: path.to_owned(), why };
    let now = hash_file(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if sha256.is_empty() {
        let file = path.display();
        return Ok(Some(format!(
            "the model `{name}` could not be checked: the capsule has no SHA-256 of {file}"
        )));
    }
    if now == sha256 {
        return Ok(None);
    }
    Err(wrong(format!("has changed since: its SHA-256 was {sha256} and is {now}")))
}

/// Waits until every worker serves.
fn until_ready(client: &Client, devices: &[DeviceSelection]) -> Result<(), CommandError> {
    let rows = until(client, READY_TIMEOUT, |status| status.workers.iter().all(is_settled))?;
    let is_out = |state| state == WorkerState::Quarantined;
    match rows.workers.iter().find(|row| is_out(row.state)).or_else(|| rows.workers.first()) {
        Some(row) if !is_settled(row) || is_out(row.state) => {
            let devices = devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let why = match row.last_fault.is_empty() {
                true => format!("{} is not READY", row.name),
                false => row.last_fault.clone(),
            };
            Err(ReplayError::NoWorker { devices, why }.into())
        }
        Some(_) | None => Ok(()),
    }
}

/// Waits until no worker runs anything or is about to end: then its death is known.
fn until_settled(client: &Client) -> Result<(), CommandError> {
    let moves = |state| matches!(state, WorkerState::Busy | WorkerState::Stopping);
    let is_over = |row: &WorkerStatus| !moves(row.state);
    let status = until(client, END_TIMEOUT, |status| status.workers.iter().all(is_over))?;
    match status.workers.iter().find(|row| !is_over(row)) {
        Some(row) => Err(ReplayError::Unsettled { worker: row.name.clone() }.into()),
        None => Ok(()),
    }
}

/// Waits until the status is so, or the time is up; no event tells of it, so it polls.
fn until(
    client: &Client,
    within: Duration,
    is_so: impl Fn(&gridpool_protocol::status::Status) -> bool,
) -> Result<gridpool_protocol::status::Status, CommandError> {
    let last: Instant = clock::now() + within;
    loop {
        let status = client.status()?;
        if is_so(&status) || clock::until(last).is_zero() {
            return Ok(status);
        }
        thread::park_timeout(LOOK_EVERY);
    }
}

/// Waits for all verdicts. There are results if every job was OK.
fn wait(handles: Handles) -> Result<(Vec<Receipt>, Option<Results>), CommandError> {
    match handles {
        Handles::Grids(handle) => {
            let (receipt, outputs) = handle.wait()?.into_parts();
            let results = outputs.map(|outputs| items(&outputs)).transpose()?;
            Ok((vec![receipt], results.map(Results::Items)))
        }
        Handles::Search(handle) => {
            let (receipt, output) = handle.wait()?.into_parts();
            let bytes = output.map(|output| output.to_vec()).transpose();
            let bytes = bytes.map_err(|error| malformed(&error))?;
            Ok((vec![receipt], bytes.map(Results::Bytes)))
        }
        Handles::Requests(handles) => {
            let (mut receipts, mut results) = (Vec::new(), Some(Vec::new()));
            for (handle, members) in handles {
                let (receipt, outputs) = handle.wait()?.into_parts();
                receipts.push(receipt);
                match (&mut results, outputs) {
                    (Some(results), Some(outputs)) => {
                        results.extend(outputs_of(&members, tensors(&outputs)));
                    }
                    (_, _) => results = None,
                }
            }
            let in_order = |mut results: Vec<(usize, Tensors)>| {
                results.sort_by_key(|(place, _)| *place);
                Results::Tensors(results.into_iter().map(|(_, outputs)| outputs).collect())
            };
            Ok((receipts, results.map(in_order)))
        }
    }
}

fn malformed(error: &(dyn std::error::Error + 'static)) -> CommandError {
    system("the results")(io::Error::other(Chain(error).to_string()))
}

fn items(outputs: &Outputs) -> Result<Vec<Result<Output, ItemError>>, CommandError> {
    let count = outputs.layout().values_count() / outputs.layout().width().max(1);
    (0..count).map(|at| outputs.item(at).map_err(|error| malformed(&error))).collect()
}

fn tensors(outputs: &TensorOutputs) -> Tensors {
    let copy = |(at, tensor): (usize, &Tensor)| {
        let mut bytes = vec![0; tensor.bytes()];
        outputs.copy_to(at, 0, &mut bytes);
        (tensor.clone(), bytes)
    };
    outputs.tensors().iter().enumerate().map(copy).collect()
}

/// The worker that one of these jobs has lost.
fn lost(receipts: &[Receipt]) -> Option<&str> {
    let is_lost = |attempt: &&Attempt| {
        matches!(attempt.outcome, AttemptOutcome::Hang | AttemptOutcome::WorkerDied)
    };
    let mut attempts = receipts.iter().flat_map(|receipt| &receipt.attempts);
    attempts.find(is_lost).map(|attempt| &*attempt.worker)
}

/// How the worker ended by the capsule in this folder, if there is one. The first death is that of the work: the pool
/// gives it one attempt.
fn manner_in(folder: &Path) -> io::Result<Option<Manner>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        // Others are not whole.
        if path.to_string_lossy().ends_with(SUFFIX) {
            files.push((entry.metadata()?.modified()?, path));
        }
    }
    files.sort();
    let Some((_, path)) = files.first() else { return Ok(None) };
    let capsule = Capsule::read(std::fs::File::open(path)?).map_err(io::Error::other)?;
    Ok(Some(capsule.manner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capsule_that_is_not_whole_yet_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".x.json.new-1"), "{").unwrap();
        assert_eq!(manner_in(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_model_without_a_hash_is_run_and_said_to_be_unchecked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("m.onnx");
        std::fs::write(&file, "x").unwrap();
        let hash = hash_file(&file).unwrap();
        assert_eq!(check_file("m", &file, &hash).unwrap(), None);
        let told = check_file("m", &file, "").unwrap().unwrap();
        assert!(told.starts_with("the model `m` could not be checked"), "{told}");
        check_file("m", &file, "00").unwrap_err();
    }

    #[test]
    fn a_lost_worker_is_found_in_the_receipts() {
        let attempt = |worker: &str, outcome| {
            let part = gridpool_protocol::receipt::ItemRange { start: 0, end: 1 };
            let device = gridpool_protocol::receipt::DeviceInfo::default();
            Attempt::unreported(worker, device, part, outcome, String::new())
        };
        let of = |attempts| [Receipt { attempts, ..Receipt::default() }];
        let preempted = attempt("cpu0#1", AttemptOutcome::Preempted);
        assert_eq!(lost(&of(vec![preempted.clone()])), None);
        let hung = attempt("cpu0#2", AttemptOutcome::Hang);
        assert_eq!(lost(&of(vec![preempted, hung])), Some("cpu0#2"));
    }
}
