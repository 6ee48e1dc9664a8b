//! `gridpool infer` and `gridpool models`: sends one request to a model, and lists the models.
//!
//! Owns the order of the steps: it checks flags and files before it connects to a pool.

mod answer;
mod error;
mod file;
mod fit;
mod models;
mod npy;
mod npz;
mod value;

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use gridpool_client::{Answer, Client, ClientError, Job, ModelInput, TensorOutputs};
use gridpool_ipc::clock;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::limits::ARENA_BYTES_MAX;
use gridpool_protocol::message::{DeviceModel, Refusal};
use gridpool_protocol::receipt::Verdict;

use super::connect::left_of;
use super::flags::{QueueFlags, parse_seconds, whole};
use super::misplaced;
use super::output;
use super::{CommandError, columns, say_json, traceparent};
pub(super) use error::InferError;
use error::{ArraysError, FILE_BYTES_MAX};
use file::OutputFile;
use npz::Arrays;

/// The last lines of `infer --help`.
pub(super) const FORMATS: &str = "\
INPUT holds one array for each input of the model, under the input's name: numpy.savez('in.npz', x=x).
A BF16 array has the type ml_dtypes.bfloat16, or it is the bits as numpy.uint16 viewed as 'V2'; infer
writes BF16 outputs in the second form. In JSON, the strings \"NaN\", \"Infinity\" and \"-Infinity\"
stand for the numbers that JSON cannot write.";

/// Flags of `gridpool infer`.
#[derive(Debug, Args)]
pub(super) struct InferFlags {
    /// The model, as `gridpool models` lists it.
    model: String,
    /// An .npz with an array for each input, or an .npy for a model with one input; `-` is standard input.
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Write the outputs to this file: `.npz`, `.npy` of a model with one output, or `.json` (the document of --json).
    /// With `-` they go to standard output, as an .npz, and the report to standard error.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Most bytes of all outputs; the default is the size that the model declares, or 16 MiB if it
    /// declares none.
    #[arg(long, value_name = "BYTES", env = "GRIDPOOL_OUTPUT_BYTES")]
    #[arg(value_parser = whole::<u64>(1..=ARENA_BYTES_MAX))]
    output_bytes: Option<u64>,
    /// Seconds from the request's submission to its verdict; a deadline of 0 has already passed.
    #[arg(long, value_name = "SECONDS", default_value = "30", env = "GRIDPOOL_DEADLINE")]
    #[arg(value_parser = parse_seconds)]
    deadline: Duration,
    #[command(flatten)]
    queue: QueueFlags,
    /// Print one JSON document: outputs and receipt. With --output it leaves out the outputs' data.
    #[arg(long)]
    json: bool,
}

/// Sends one request. Calls `connect` once flags and files are checked, with how long to wait for a cluster;
/// `None` if not, nor for a pool. It says whether it is a cluster.
pub(super) fn run(
    flags: &InferFlags,
    connect: impl FnOnce(Option<Duration>) -> Result<(Client, bool), CommandError>,
) -> Result<u8, CommandError> {
    let arrays = read(&flags.input).map_err(|error| {
        misplaced::model(&flags.model, &flags.input).unwrap_or_else(|| error.into())
    })?;
    let file = flags.output.as_deref().map(|path| OutputFile::open(path, flags.json));
    let file = file.transpose()?;
    let started = clock::now();
    let (client, is_cluster) = connect((!flags.queue.no_wait).then_some(flags.deadline))?;
    let rows = client.models()?;
    let tensors = match fit::find(&rows, &flags.model)? {
        Some(info) => {
            file.as_ref().map_or(Ok(()), |file| file.holds(info.outputs.len()))?;
            fit::fit(info, arrays)?
        }
        None => fit::unchecked(arrays)?,
    };
    let job = ModelInput::from_tensors(tensors).and_then(|inputs| Job::model(&flags.model, inputs));
    let job = job.map_err(InferError::Tensors)?;
    let deadline = match is_cluster {
        true => left_of(flags.deadline, started),
        false => flags.deadline,
    };
    let job = job.with_deadline(deadline).with_priority(flags.queue.priority);
    let (trace, trace_state) = traceparent::of_environment();
    let job = job.with_trace(trace).with_trace_state(trace_state);
    let job = if flags.queue.no_wait { job.refuse_if_busy() } else { job };
    let job = match flags.output_bytes {
        Some(bytes) => job.with_output_bytes(bytes),
        None => job,
    };
    let answer = client.submit(job).map_err(refused)?.wait()?;
    let mut out = io::BufWriter::new(output::report_beside(file.as_ref().map(|file| &file.place)));
    file.map_or(Ok(()), |file| file.write(&answer))?;
    print(flags, &answer, &mut out).map_err(CommandError::Output)?;
    match answer.verdict() == Verdict::Ok {
        true => Ok(exit::OK),
        false => Err(InferError::verdict(&flags.model, &answer.receipt).into()),
    }
}

/// A refusal by the pool is a usage error; a worker's error comes with the verdict instead.
fn refused(error: ClientError) -> CommandError {
    let ClientError::Refused(Refusal::Invalid(why)) = error else { return error.into() };
    CommandError::Usage(why)
}

/// Prints the models.
pub(super) fn print_models(rows: &[DeviceModel], json: bool) -> Result<u8, CommandError> {
    if json {
        return say_json(&models::ModelsDocument { models: rows });
    }
    super::print(|out| write!(out, "{}", models::table(rows, columns())))
}

fn print(
    flags: &InferFlags,
    answer: &Answer<TensorOutputs>,
    out: &mut dyn Write,
) -> io::Result<()> {
    if flags.json {
        answer::write_json(out, answer, flags.output.is_none())?;
    } else {
        answer::write(out, &flags.model, answer)?;
    }
    out.flush()
}

/// The arrays of a file, or of standard input.
fn read(path: &Path) -> Result<Arrays, InferError> {
    let (name, read) = if path == Path::new("-") {
        let stdin = io::stdin().lock();
        if stdin.is_terminal() {
            return Err(InferError::Terminal);
        }
        ("standard input".to_owned(), take(stdin))
    } else {
        (
            path.display().to_string(),
            std::fs::File::open(path).map_err(ArraysError::Read).and_then(take),
        )
    };
    let arrays = read.and_then(Arrays::read);
    arrays.map_err(|cause| InferError::Input { file: name, cause: Box::new(cause) })
}

/// All bytes, up to the limit.
fn take(reader: impl Read) -> Result<Vec<u8>, ArraysError> {
    let mut bytes = Vec::new();
    reader.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(ArraysError::Read)?;
    if bytes.len() as u64 > FILE_BYTES_MAX { Err(ArraysError::FileTooLarge) } else { Ok(bytes) }
}
