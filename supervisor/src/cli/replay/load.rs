//! What a capsule runs, as units of which each can be left out: items of a program, programs of a search, requests for
//! models or their rows.

use std::sync::Arc;
use std::time::Duration;

use gridpool_client::{
    Client, ClientError, Handle, Job, Outputs, PackedInput, PackedOutput, TensorOutputs,
};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::chaos::Chaos;
use gridpool_protocol::message::{Packing, Work};
use gridpool_protocol::program::{Program, Programs, hex};
use gridpool_protocol::replay::ReplayRequest;
use gridpool_protocol::search::{JobPrograms, Score, SearchLayout};
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::tensor::model::ModelInfo;

use super::ReplayError;
use super::requests::{self, Joined, Member, Request};
use crate::capsule::{Capsule, Input, SavedJob, SavedWork};

/// What a capsule runs.
pub(super) struct Load {
    kind: Kind,
    deadline: Duration,
    /// What the capsule does not have.
    pub(super) lacks: Vec<String>,
    /// Whether that may be what the worker died of.
    pub(super) may_lack_cause: bool,
}

enum Kind {
    Grids {
        program: Arc<Program>,
        items: Vec<Item>,
    },
    Search {
        layout: SearchLayout,
        pairs: Vec<u8>,
        programs: JobPrograms,
        chaos: Option<Chaos>,
    },
    /// Each whole, or cut into rows.
    Requests {
        requests: Vec<Request>,
        are_rows: bool,
    },
}

/// An item of a program, and the place that it had.
struct Item {
    job: String,
    number: u32,
    input: Grid,
    /// Of a pair.
    output: Option<Grid>,
    /// The fault that its job brought on purpose.
    chaos: Option<Chaos>,
}

/// The handles of submitted jobs.
pub(super) enum Handles {
    Grids(Handle<Outputs>),
    Search(Handle<PackedOutput>),
    /// Of each run, and the requests in it.
    Requests(Vec<(Handle<TensorOutputs>, Vec<Member>)>),
}

fn lacks(why: impl ToString) -> ReplayError {
    ReplayError::Lacks(why.to_string())
}

impl Load {
    pub(super) fn of(capsule: &Capsule) -> Result<Self, ReplayError> {
        let is_recorded = capsule.jobs.iter().any(|job| job.under_way.is_some());
        let mut may_lack_cause = false;
        let of_job = |job: &SavedJob| {
            let (lack, may_be_cause) = job.lacks(is_recorded)?;
            may_lack_cause |= may_be_cause;
            Some(format!("{}: {lack}", job.job))
        };
        let mut missing: Vec<String> = capsule.jobs.iter().filter_map(of_job).collect();
        let runnable: Vec<&SavedJob> =
            capsule.jobs.iter().filter(|job| !job.input.is_empty()).collect();
        let Some(first) = runnable.first() else {
            let why = missing.first().cloned();
            return Err(lacks(why.unwrap_or_else(|| "it has no input".to_owned())));
        };
        let uncertain = runnable.iter().filter(|job| !job.is_certain);
        missing.extend(uncertain.map(|job| {
            format!(
                "{}: its client may have changed the input before it was copied, since the job had ended",
                job.job
            )
        }));
        let mut left_out = |job: &SavedJob, why: &str| {
            missing.push(format!("{}: it is left out: {why}", job.job));
        };
        let kind = match &first.work {
            SavedWork::Program { text, ties, steps, .. } => {
                let mut programs = Programs::default();
                let program = programs.compile(text, *ties, *steps).map_err(lacks)?;
                let mut items = Vec::new();
                for job in &runnable {
                    match is_same(job, &program, &mut programs) {
                        true => items.extend(items_of(job, &program)?),
                        false => left_out(job, "it runs another program than the first job"),
                    }
                }
                Kind::Grids { program, items }
            }
            SavedWork::Search { score } => {
                for job in &runnable[1..] {
                    left_out(job, "only the first search is run");
                }
                search_of(first, *score)?
            }
            SavedWork::Model { .. } => {
                let requests = runnable.iter().map(|job| request_of(job));
                Kind::Requests { requests: requests.collect::<Result<_, _>>()?, are_rows: false }
            }
        };
        let deadline = Duration::from_millis(first.deadline_ms);
        Ok(Self { kind, deadline, lacks: missing, may_lack_cause })
    }

    /// How many units there are.
    pub(super) fn units(&self) -> usize {
        match &self.kind {
            Kind::Grids { items, .. } => items.len(),
            Kind::Search { programs, .. } => programs.len(),
            Kind::Requests { requests, .. } => requests.len(),
        }
    }

    /// What a unit is.
    pub(super) fn unit(&self) -> &'static str {
        match &self.kind {
            Kind::Grids { .. } => "items",
            Kind::Search { .. } => "programs",
            Kind::Requests { are_rows: false, .. } => "requests",
            Kind::Requests { are_rows: true, .. } => "rows",
        }
    }

    /// Names a unit: `job5 item 3`.
    pub(super) fn name(&self, unit: usize) -> String {
        match &self.kind {
            Kind::Grids { items, .. } => format!("{} item {}", items[unit].job, items[unit].number),
            Kind::Search { .. } => format!("program {unit}"),
            Kind::Requests { requests, .. } => requests[unit].name.clone(),
        }
    }

    /// Whether a worker is to fault on purpose.
    pub(super) fn has_chaos(&self) -> bool {
        match &self.kind {
            Kind::Grids { items, .. } => items.iter().any(|item| item.chaos.is_some()),
            Kind::Search { chaos, .. } => chaos.is_some(),
            Kind::Requests { .. } => false,
        }
    }

    /// Requests are cut into their rows, where these models take rows: then a unit is a row.
    pub(super) fn cut_rows(&mut self, models: &[ModelInfo]) {
        if let Kind::Requests { requests, are_rows } = &mut self.kind
            && let Some(rows) = requests::cut(requests, models)
        {
            (*requests, *are_rows) = (rows, true);
        }
    }

    /// All items, for a run without a pool.
    pub(super) fn request(&self) -> Result<ReplayRequest, ReplayError> {
        let Kind::Grids { program, items } = &self.kind else {
            return Err(lacks("only items of a program are run under compute-sanitizer"));
        };
        let batch = batch_of(program, items.iter()).map_err(lacks)?;
        let layout = batch.layout().map_err(lacks)?;
        let mut bytes = vec![0; layout.bytes()];
        batch.write_to(layout, &SharedSlice::private(&mut bytes));
        let count = |number: usize| u32::try_from(number).map_err(lacks);
        Ok(ReplayRequest {
            text: program.text().to_owned(),
            ties: program.ties(),
            steps: program.step_limit(),
            items: count(layout.items())?,
            cells: count(layout.cell_count())?,
            batch: hex(&bytes),
            chaos: items.iter().find_map(|item| item.chaos?.strikes(1)),
        })
    }

    /// Submits some of its units, with a deadline of at most `deadline_max`, to a pool with these models.
    pub(super) fn submit(
        &self,
        client: &Client,
        chosen: &[usize],
        deadline_max: Duration,
        models: &[ModelInfo],
    ) -> Result<Handles, ClientError> {
        let deadline = self.deadline.min(deadline_max);
        match &self.kind {
            Kind::Grids { program, items } => {
                let batch = batch_of(program, chosen.iter().map(|at| &items[*at]))?;
                let job = Job::program(Program::clone(program), batch)?.with_deadline(deadline);
                // A fault strikes if an item of a job that brought it is among them.
                let job = match chosen.iter().find_map(|at| items[*at].chaos) {
                    Some(chaos) => job.with_chaos(chaos),
                    None => job,
                };
                Ok(Handles::Grids(client.submit(job)?))
            }
            Kind::Search { layout, pairs, programs, chaos } => {
                let are_neighbours = chosen.windows(2).all(|pair| pair[0] + 1 == pair[1]);
                let packed = match chosen {
                    [first, ..] if are_neighbours => programs.part(*first..first + chosen.len()),
                    _ => programs.some(chosen.iter().copied()).map_err(ClientError::Search)?,
                };
                let (size, score) = (packed.size(layout.batch()), layout.score());
                let layout = SearchLayout::new(size, score).map_err(ClientError::Search)?;
                let mut bytes = vec![0; layout.input_bytes()];
                bytes[..pairs.len()].copy_from_slice(pairs);
                packed.write_to(layout, &SharedSlice::private(&mut bytes));
                let work = (Work::Search { score }, Packing::Search(size));
                let input = PackedInput::Private(Arc::new(bytes));
                let output_bytes = layout.output_bytes() as u64;
                let job = Job::packed(work, input, output_bytes, *chaos).with_deadline(deadline);
                Ok(Handles::Search(client.submit(job)?))
            }
            Kind::Requests { requests, .. } => {
                let chosen = chosen.iter().map(|at| &requests[*at]);
                let runs = Joined::of(chosen, models).map_err(ClientError::Tensors)?;
                let submit = |run: Joined| {
                    let (job, members) = run.job()?;
                    Ok((client.submit(job.with_deadline(deadline))?, members))
                };
                runs.into_iter().map(submit).collect::<Result<_, _>>().map(Handles::Requests)
            }
        }
    }
}

/// Whether a job runs this program, however it is spelled: such jobs share a dispatch.
fn is_same(job: &SavedJob, program: &Program, programs: &mut Programs) -> bool {
    let SavedWork::Program { text, ties, steps, .. } = &job.work else { return false };
    let own = programs.compile(text, *ties, *steps);
    own.is_ok_and(|own| own.hash() == program.hash() && own.ties() == program.ties())
}

fn batch_of<'a>(
    program: &Program,
    items: impl Iterator<Item = &'a Item>,
) -> Result<GridBatch, ClientError> {
    let is_pairs = program.grids_per_item() == 2;
    let mut batch = GridBatch::of_items(program.grids_per_item());
    for Item { input, output, .. } in items {
        match is_pairs {
            true => batch.push_pair(input, output.as_ref())?,
            false => batch.push(input)?,
        }
    }
    Ok(batch)
}

fn items_of(job: &SavedJob, program: &Program) -> Result<Vec<Item>, ReplayError> {
    let grid = |rows: &Vec<Vec<u8>>| Grid::from_rows(rows).map_err(lacks);
    let chaos = chaos_of(job)?;
    let item = |at: usize, input: Grid, output: Option<Grid>| Item {
        job: job.job.clone(),
        number: job.first().saturating_add(u32::try_from(at).unwrap_or(u32::MAX)),
        input,
        output,
        chaos,
    };
    let wrong = || lacks("its program takes other items than it has");
    match (&job.input, program.grids_per_item()) {
        (Input::Grids { grids, .. }, 1) => {
            grids.iter().enumerate().map(|(at, rows)| Ok(item(at, grid(rows)?, None))).collect()
        }
        (Input::Pairs { pairs, .. }, 2) => {
            let one = |(at, pair): (usize, &crate::capsule::SavedPair)| {
                let output = pair.output.as_ref().map(grid).transpose()?;
                Ok(item(at, grid(&pair.input)?, output))
            };
            pairs.iter().enumerate().map(one).collect()
        }
        _ => Err(wrong()),
    }
}

fn search_of(job: &SavedJob, score: Score) -> Result<Kind, ReplayError> {
    let packed = job.input.search().map_err(lacks)?;
    let (size, mut bytes) = packed.ok_or_else(|| lacks("its programs were not kept"))?;
    let layout = SearchLayout::new(size, score).map_err(lacks)?;
    let pairs = bytes[..layout.batch().bytes()].to_vec();
    let memory = SharedSlice::private(&mut bytes);
    let programs = JobPrograms::read(layout, &memory).map_err(lacks)?;
    Ok(Kind::Search { layout, pairs, programs, chaos: chaos_of(job)? })
}

fn chaos_of(job: &SavedJob) -> Result<Option<Chaos>, ReplayError> {
    job.chaos.as_ref().map(|chaos| chaos.chaos().map_err(lacks)).transpose()
}

fn request_of(job: &SavedJob) -> Result<Request, ReplayError> {
    let SavedWork::Model { name } = &job.work else {
        return Err(lacks("it mixes programs with requests for models"));
    };
    let Input::Tensors { tensors } = &job.input else {
        return Err(lacks("a request has no tensors"));
    };
    let input = |tensor: &crate::capsule::SavedTensor| {
        let (shape, data) = tensor.read().map_err(lacks)?;
        Ok((shape, data.unwrap_or_default()))
    };
    let inputs = tensors.iter().map(input).collect::<Result<_, _>>()?;
    Ok(Request { name: job.job.clone(), model: name.clone(), inputs })
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(number: u32, text: &str, chaos: Option<&str>) -> Value {
        json!({
            "job": format!("job{number}"), "attempt": 1, "principal": "uid 0",
            "work": {"kind": "program", "text": text, "ties": "cpython", "steps": 1_000_000, "hash": ""},
            "items": 2, "part": {"start": 0, "end": 2}, "deadline_ms": 1_000, "priority": "normal",
            "idempotent": true, "chaos": chaos.map(|fault| json!({"fault": fault, "attempts": 1})),
            "attempts": [], "is_certain": true,
            "input": {"kind": "grids", "grids": [[[1]], [[2]]], "left_out": 0},
        })
    }

    /// A capsule of a death, with these jobs or one.
    pub(in crate::cli::replay) fn capsule_of(death: Value, jobs: &[Value]) -> Capsule {
        let one = [job(1, "rot90", None)];
        let jobs = if jobs.is_empty() { &one } else { jobs };
        let text = json!({
            "gridpool_capsule": 1, "name": "x", "time": "", "host": "", "gridpool": "", "protocol": 1,
            "worker": "", "driver": "", "mode": "on", "death": death, "jobs": jobs, "models": [],
            "manner": {
                "signal": 11, "exit_code": null, "fault": null, "killed_for": null, "rejected": false,
            },
        });
        Capsule::parse(text.to_string().as_bytes()).expect("it is a capsule")
    }

    #[test]
    fn jobs_of_one_program_run_together_however_it_is_spelled_and_others_are_named() {
        let jobs = [
            job(1, "rot90|hmirror", None),
            job(2, "rot90 | hmirror", Some("segv")),
            job(3, "hmirror", None),
        ];
        let load = Load::of(&capsule_of(json!({}), &jobs)).expect("it can be run");
        let names: Vec<_> = (0..load.units()).map(|unit| load.name(unit)).collect();
        assert_eq!(names, ["job1 item 0", "job1 item 1", "job2 item 0", "job2 item 1"]);
        assert_eq!(load.lacks.len(), 1, "{:?}", load.lacks);
        assert!(load.lacks[0].starts_with("job3: it is left out"), "{:?}", load.lacks);
        // The fault is that of the items of its job alone.
        let Kind::Grids { items, .. } = &load.kind else { panic!("a program has grids") };
        let struck: Vec<_> = items.iter().map(|item| item.chaos.is_some()).collect();
        assert_eq!(struck, [false, false, true, true]);
        assert!(load.has_chaos());
    }
}
