//! What a capsule runs, as units of which each can be left out: items of a program, programs of a search, requests for
//! models.

use std::sync::Arc;
use std::time::Duration;

use gridpool_client::{
    Client, ClientError, Handle, Job, ModelInput, Outputs, PackedInput, PackedOutput, TensorOutputs,
};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::chaos::Chaos;
use gridpool_protocol::message::{Packing, Work};
use gridpool_protocol::program::{Program, Programs, hex};
use gridpool_protocol::replay::ReplayRequest;
use gridpool_protocol::search::{PackedPrograms, ProgramOffsets, Score, SearchLayout};
use gridpool_protocol::shared::SharedSlice;

use super::ReplayError;
use crate::capsule::{Capsule, Input, SavedJob, SavedWork};

/// What a capsule runs.
pub(super) struct Load {
    kind: Kind,
    deadline: Duration,
    /// What the capsule does not have.
    pub(super) lacks: Vec<String>,
}

enum Kind {
    Grids { program: Arc<Program>, items: Vec<Item>, chaos: Option<Chaos> },
    Search { layout: SearchLayout, pairs: Vec<u8>, programs: Vec<Vec<u8>>, chaos: Option<Chaos> },
    Requests(Vec<Request>),
}

/// An item of a program, and the place that it had.
struct Item {
    job: String,
    number: u32,
    input: Grid,
    /// Of a pair.
    output: Option<Grid>,
}

struct Request {
    job: String,
    model: String,
    inputs: Vec<ModelInput>,
}

/// The handles of submitted jobs.
pub(super) enum Handles {
    Grids(Handle<Outputs>),
    Search(Handle<PackedOutput>),
    Requests(Vec<Handle<TensorOutputs>>),
}

fn lacks(why: impl ToString) -> ReplayError {
    ReplayError::Lacks(why.to_string())
}

impl Load {
    pub(super) fn of(capsule: &Capsule) -> Result<Self, ReplayError> {
        let of_job = |job: &SavedJob| Some(format!("{}: {}", job.job, job.input.lacks()?));
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
        let kind = match &first.work {
            SavedWork::Program { text, ties, steps, .. } => {
                let program = Programs::default().compile(text, *ties, *steps).map_err(lacks)?;
                let same = |job: &&&SavedJob| job.work == first.work;
                let items = runnable.iter().filter(same).map(|job| items_of(job, &program));
                let items = items.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
                let chaos =
                    runnable.iter().find_map(|job| chaos_of(job).transpose()).transpose()?;
                Kind::Grids { program, items, chaos }
            }
            SavedWork::Search { score } => search_of(first, *score)?,
            SavedWork::Model { .. } => {
                let requests = runnable.iter().map(|job| request_of(job));
                Kind::Requests(requests.collect::<Result<_, _>>()?)
            }
        };
        let deadline = Duration::from_millis(first.deadline_ms);
        Ok(Self { kind, deadline, lacks: missing })
    }

    /// How many units there are.
    pub(super) fn units(&self) -> usize {
        match &self.kind {
            Kind::Grids { items, .. } => items.len(),
            Kind::Search { programs, .. } => programs.len(),
            Kind::Requests(requests) => requests.len(),
        }
    }

    /// What a unit is.
    pub(super) fn unit(&self) -> &'static str {
        match &self.kind {
            Kind::Grids { .. } => "items",
            Kind::Search { .. } => "programs",
            Kind::Requests(_) => "requests",
        }
    }

    /// Names a unit: `job5 item 3`.
    pub(super) fn name(&self, unit: usize) -> String {
        match &self.kind {
            Kind::Grids { items, .. } => format!("{} item {}", items[unit].job, items[unit].number),
            Kind::Search { .. } => format!("program {unit}"),
            Kind::Requests(requests) => requests[unit].job.clone(),
        }
    }

    /// Whether a worker is to fault on purpose.
    pub(super) fn has_chaos(&self) -> bool {
        match &self.kind {
            Kind::Grids { chaos, .. } | Kind::Search { chaos, .. } => chaos.is_some(),
            Kind::Requests(_) => false,
        }
    }

    /// All items, for a run without a pool.
    pub(super) fn request(&self) -> Result<ReplayRequest, ReplayError> {
        let Kind::Grids { program, items, chaos } = &self.kind else {
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
            chaos: chaos.and_then(|chaos| chaos.strikes(1)),
        })
    }

    /// Submits some of its units, with a deadline of at most `deadline_max`.
    pub(super) fn submit(
        &self,
        client: &Client,
        chosen: &[usize],
        deadline_max: Duration,
    ) -> Result<Handles, ClientError> {
        let deadline = self.deadline.min(deadline_max);
        match &self.kind {
            Kind::Grids { program, items, chaos } => {
                let batch = batch_of(program, chosen.iter().map(|at| &items[*at]))?;
                let job = Job::program(Program::clone(program), batch)?.with_deadline(deadline);
                let job = match chaos {
                    Some(chaos) => job.with_chaos(*chaos),
                    None => job,
                };
                Ok(Handles::Grids(client.submit(job)?))
            }
            Kind::Search { layout, pairs, programs, chaos } => {
                let mut packed = PackedPrograms::default();
                for at in chosen {
                    packed.push(&programs[*at]).map_err(ClientError::Search)?;
                }
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
            Kind::Requests(requests) => {
                let submit = |at: &usize| {
                    let Request { model, inputs, .. } = &requests[*at];
                    let job = Job::model(model.clone(), inputs.iter().cloned());
                    let job = job.map_err(ClientError::Tensors)?;
                    client.submit(job.with_deadline(deadline))
                };
                chosen.iter().map(submit).collect::<Result<_, _>>().map(Handles::Requests)
            }
        }
    }
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
    let item = |at: usize, input: Grid, output: Option<Grid>| Item {
        job: job.job.clone(),
        number: job.part.start + u32::try_from(at).unwrap_or(u32::MAX),
        input,
        output,
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
    let offsets = ProgramOffsets::read(layout, &(0..layout.programs()), &memory).map_err(lacks)?;
    let start = layout.code().start;
    let code = |at: usize| {
        let range = offsets.of(at);
        let mut code = vec![0; range.len()];
        memory.read(start + range.start, &mut code);
        code
    };
    let programs = (0..layout.programs()).map(code).collect();
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
        ModelInput::from_bytes(shape, data.unwrap_or_default()).map_err(lacks)
    };
    let inputs = tensors.iter().map(input).collect::<Result<_, _>>()?;
    Ok(Request { job: job.job.clone(), model: name.clone(), inputs })
}
