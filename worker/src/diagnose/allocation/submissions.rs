//! Sizes and shapes that there are not, said to the pool by a client that follows no rules: each must be
//! refused, or end in a verdict that says why, and the worker must serve on.

use std::path::Path;

use gridpool_protocol::batch::{BatchLayout, Grid, GridBatch};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::{Client, ClientError, InferJob};
use gridpool_protocol::diagnose::{Check, Group};
use gridpool_protocol::ids::{ArenaId, DeviceId, JobKey};
use gridpool_protocol::limits::{ARENA_BYTES_MIN, INLINE_BYTES_MAX};
use gridpool_protocol::message::{
    Call, Destination, InferSubmission, Inline, Input, ModelCall, Payload, Priority, Slice,
    Submission,
};
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};
use gridpool_protocol::tensor::{DataType, Tensor, TensorError, TensorLayout};

use super::refusals::{Case, check};
use super::wire::{Outcome, Wire, WireError};

const NEXT: &str = "look at the pool's log";
const GRIDS: &str = "grid shapes, by the pool";
const TENSORS: &str = "tensor shapes, by the pool";
const DEADLINE_MS: u64 = 60_000;
/// The arena that slices are said to lie in: of the least size, so that no byte is behind it.
const ARENA_BYTES: u64 = ARENA_BYTES_MIN;
/// Bytes of a packed set of tensors before the first tensor, and of a tensor before its name.
const SET_HEAD_BYTES: usize = 16;
const TENSOR_HEAD_BYTES: usize = 4;

/// Jobs of programs.
pub(super) fn grids(socket: &Path, device: DeviceId) -> Check {
    let tried = Wire::connect(socket).and_then(|mut wire| {
        let before = workers(socket, device);
        let mut cases = Vec::new();
        let arena = wire.arena(ARENA_BYTES)?.map_err(|refusal| {
            WireError::Unexpected(format!("{ARENA_BYTES} bytes of shared memory with: {refusal}"))
        })?;
        for (at, (what, spoil)) in (1..).zip(JOBS) {
            let mut job = job(at);
            spoil(&mut job, arena.0);
            cases.push((what, came(wire.submit(job)?)));
        }
        let good = wire.submit(job(u128::MAX))?;
        cases.extend(served(&good, &before, &workers(socket, device)));
        Ok(cases)
    });
    match tried {
        Ok(cases) => check(GRIDS, "the pool, and its worker serves on", &cases),
        Err(error) => broken(GRIDS, &error),
    }
}

fn broken(name: &str, error: &WireError) -> Check {
    let says = format!("the pool ended the connection: {}", Chain(error));
    Check::fail(Group::Allocation, name, says, NEXT)
}

/// The case that all is as before is one only if it is not.
fn served(good: &Outcome, before: &[String], after: &[String]) -> Option<Case> {
    let (was, is) = (before.join(", "), after.join(", "));
    let worker = (was != is).then(|| format!("the workers were {was}, and are {is}"));
    let wrong = match good {
        Outcome::Refused(refusal) => Some(format!("a good job is refused: {refusal}")),
        Outcome::Done(receipt) if receipt.verdict != Verdict::Ok => {
            Some(format!("a good job ends {}: {}", receipt.verdict, receipt.reason))
        }
        Outcome::Done(_) => worker,
    };
    wrong.map(|why| ("afterwards", Err(why)))
}

/// The processes on the device; none if the pool does not say.
fn workers(socket: &Path, device: DeviceId) -> Vec<String> {
    let status = Client::connect(socket).and_then(|client| client.status());
    let rows = status.map(|status| status.workers).unwrap_or_default();
    let own = format!("{device}#");
    let mut names: Vec<_> = rows.into_iter().map(|row| row.name).collect();
    names.retain(|name| name.starts_with(&own));
    names.sort_unstable();
    names
}

/// What a refusal, or a verdict that is none of OK, said.
fn came(outcome: Outcome) -> Result<String, String> {
    match outcome {
        Outcome::Refused(refusal) => Ok(refusal.to_string()),
        Outcome::Done(receipt) => match receipt.verdict {
            Verdict::Failed => Ok(format!("{}: {}", receipt.verdict, receipt.reason)),
            Verdict::Ok => Err("it was run".to_owned()),
            Verdict::Cancelled | Verdict::Deadline | Verdict::DeviceLost | Verdict::Poison => {
                Err(format!("it ended {}: {}", receipt.verdict, receipt.reason))
            }
        },
    }
}

/// A good job of three grids, inline.
fn job(key: u128) -> Submission {
    let (layout, bytes) = packed();
    let items = u32::try_from(layout.items()).expect("three");
    let cells = u32::try_from(layout.cell_count()).expect("a few");
    let payload =
        Payload { items, cells, input: Input::Inline(Inline(bytes)), output: Destination::Inline };
    Submission {
        key: key_of(key),
        call: Call { program: "rot90".to_owned(), ties: Ties::Cpython, payload },
        deadline_ms: DEADLINE_MS,
        priority: Priority::Normal,
        idempotent: true,
        chaos: None,
    }
}

/// Keys of this process: those of another look at the same pool are others.
fn key_of(number: u128) -> JobKey {
    JobKey(u128::from(std::process::id()) << 96 ^ number)
}

fn packed() -> (BatchLayout, Vec<u8>) {
    let rows = [[1, 2, 3], [4, 5, 6]];
    let grid = Grid::from_rows(&rows).expect("it is a grid");
    let batch = GridBatch::from_grids([&grid, &grid, &grid]).expect("three small grids");
    let layout = batch.layout().expect("it has items");
    let mut bytes = vec![0; layout.bytes()];
    batch.write_to(layout, &SharedSlice::private(&mut bytes));
    (layout, bytes)
}

type Spoil = fn(&mut Submission, ArenaId);

/// What is done to a good job, in words and in fact.
const JOBS: [(&str, Spoil); 19] = [
    ("0 items", |job, _| job.call.payload.items = 0),
    ("-1 items", |job, _| job.call.payload.items = u32::MAX),
    ("0 cells", |job, _| job.call.payload.cells = 0),
    ("-1 cells", |job, _| job.call.payload.cells = u32::MAX),
    ("fewer cells than items", |job, _| job.call.payload.cells = 2),
    ("more cells than its bytes hold", |job, _| job.call.payload.cells = 1_000),
    ("a batch of no bytes", |job, _| job.call.payload.input = Input::Inline(Inline::default())),
    ("a batch that is cut off", |job, _| shorten(job)),
    ("a batch of more bytes than travel inline", |job, _| {
        job.call.payload.input = Input::Inline(Inline(vec![0; INLINE_BYTES_MAX + 16]));
    }),
    ("a grid of 0 x 3", |job, _| set(job, 0, &[0, 3])),
    ("a grid of 255 x 255", |job, _| set(job, 0, &[255, 255])),
    ("an offset of -1", |job, _| set_offset(job, 1, u32::MAX)),
    ("an offset of i32::MIN", |job, _| set_offset(job, 2, 1 << 31)),
    ("a slice of an arena that there is not", |job, _| slice(job, ArenaId(u64::MAX), 0, 4_096)),
    ("a slice of 0 bytes", |job, arena| slice(job, arena, 0, 0)),
    ("a slice at -1", |job, arena| slice(job, arena, u64::MAX, 64)),
    ("a slice of -1 bytes", |job, arena| slice(job, arena, 0, u64::MAX)),
    ("a slice from 2^63 whose end is 0 in 64 bits", |job, arena| {
        slice(job, arena, 1 << 63, 1 << 63);
    }),
    ("a slice one byte longer than its arena", |job, arena| {
        slice(job, arena, 0, ARENA_BYTES + 1);
    }),
];

fn bytes(job: &mut Submission) -> &mut Vec<u8> {
    match &mut job.call.payload.input {
        Input::Inline(Inline(bytes)) => bytes,
        Input::Arena(_) => unreachable!("a good job is inline"),
    }
}

fn shorten(job: &mut Submission) {
    let bytes = bytes(job);
    bytes.truncate(bytes.len() - 16);
}

fn set(job: &mut Submission, at: usize, values: &[u8]) {
    bytes(job)[at..at + values.len()].copy_from_slice(values);
}

fn set_offset(job: &mut Submission, which: usize, offset: u32) {
    let (layout, _) = packed();
    set(job, layout.offsets().start + 4 * which, &offset.to_le_bytes());
}

fn slice(job: &mut Submission, arena: ArenaId, offset: u64, bytes: u64) {
    job.call.payload.input = Input::Arena(Slice { arena, offset, bytes });
}

/// Requests of a model, if the pool has one.
pub(super) fn tensors(socket: &Path, device: DeviceId) -> Check {
    let models = match Client::connect(socket).and_then(|client| client.models()) {
        Ok(models) => models,
        Err(error) => {
            let says = format!("the pool does not say which models it has: {}", Chain(&error));
            return Check::fail(Group::Allocation, TENSORS, says, NEXT);
        }
    };
    let mut ready = models
        .into_iter()
        .map(|row| row.model)
        .filter(|model| model.state == ModelState::Ready && !model.inputs.is_empty());
    let Some(model) = ready.next() else {
        let says = "not tried: the pool serves no model, so no worker looks at tensors";
        let next = "name a model with --model, and repeat it";
        return Check::skip(Group::Allocation, TENSORS, says, next);
    };
    match requests(socket, device, &model) {
        Ok(cases) => check(TENSORS, "the pool, and its worker serves on", &cases),
        Err(error) => broken(TENSORS, &error),
    }
}

fn requests(socket: &Path, device: DeviceId, model: &ModelInfo) -> Result<Vec<Case>, WireError> {
    let mut wire = Wire::connect(socket)?;
    let before = workers(socket, device);
    let name = &model.inputs[0].name;
    let mut cases = Vec::new();
    for (at, (what, sides)) in (1..).zip(SIDES) {
        let packed = claiming(name, model.inputs[0].datatype, sides);
        let request = request(&model.name, 1_000 + at, packed);
        cases.push((what, came(wire.infer(request)?)));
    }
    let cut = claiming(name, model.inputs[0].datatype, &[1]);
    let cut = cut[..SET_HEAD_BYTES + 2].to_vec();
    cases.push(("a header that is cut off", came(wire.infer(request(&model.name, 2_000, cut))?)));
    match zeros(socket, model) {
        Ok(good) => cases.extend(served(&good, &before, &workers(socket, device))),
        Err(why) => cases.push(("afterwards", Err(why))),
    }
    Ok(cases)
}

/// What becomes of a good request: zeros of the shapes that the model was warmed with.
fn zeros(socket: &Path, model: &ModelInfo) -> Result<Outcome, String> {
    let specs = model.inputs.iter().zip(&model.trial_shapes);
    let tensors = specs.map(|(spec, shape)| {
        let tensor = Tensor::new(spec.name.clone(), spec.datatype, shape.clone())?;
        let bytes = tensor.bytes();
        Ok((tensor, vec![0; bytes]))
    });
    let tensors = tensors.collect::<Result<Vec<_>, TensorError>>();
    let job = tensors.and_then(|tensors| InferJob::new(model.name.clone(), tensors));
    let job = job.map_err(|error| error.to_string())?;
    let answer = Client::connect(socket).and_then(|client| client.infer(job)?.wait());
    match answer {
        Ok(answer) => Ok(Outcome::Done(Box::new(answer.receipt))),
        Err(ClientError::Refused(refusal)) => Ok(Outcome::Refused(refusal)),
        Err(error) => Err(Chain(&error).to_string()),
    }
}

/// Shapes that a header may claim, and none can have.
const SIDES: [(&str, &[u64]); 6] = [
    ("a dimension of -1", &[u64::MAX]),
    ("a dimension of i64::MIN", &[1 << 63]),
    ("2^32 x 2^32, which is 0 in 64 bits", &[1 << 32, 1 << 32]),
    ("2^33 x 2^33 x 2^33", &[1 << 33, 1 << 33, 1 << 33]),
    ("more bytes than were sent", &[1 << 20]),
    ("no dimension where the model has some, or too many", &[1; 16]),
];

/// Packed tensors with one that claims this shape: a header of a good set, with other sides in it.
fn claiming(name: &str, datatype: DataType, sides: &[u64]) -> Vec<u8> {
    let honest = Tensor::new(name, datatype, vec![1; sides.len()]).expect("a small tensor");
    let layout = TensorLayout::new(vec![honest]).expect("one small tensor");
    let data = vec![0; datatype.bytes()];
    let mut packed = layout.pack(&[&data]).expect("its data is as long as it says");
    let at = SET_HEAD_BYTES + TENSOR_HEAD_BYTES + name.len();
    for (axis, side) in sides.iter().enumerate() {
        packed[at + 8 * axis..at + 8 * axis + 8].copy_from_slice(&side.to_le_bytes());
    }
    packed
}

fn request(model: &str, key: u128, packed: Vec<u8>) -> InferSubmission {
    let (input, output) = (Input::Inline(Inline(packed)), Destination::Inline);
    InferSubmission {
        key: key_of(key),
        call: ModelCall { model: model.to_owned(), input, output },
        deadline_ms: DEADLINE_MS,
        priority: Priority::Normal,
        idempotent: true,
    }
}
