//! `gridpool infer` and `gridpool models`: asks a model once, and says which models there are.
//!
//! Owns the order of things: all that can be wrong before a pool is touched is found before it is.

mod answer;
mod error;
mod fit;
mod models;
mod npy;
mod npz;
mod value;

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use gridpool_protocol::client::{Client, ClientError, InferAnswer, InferJob};
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::limits::ARENA_BYTES_MAX;
use gridpool_protocol::message::{DeviceModel, Refusal};
use gridpool_protocol::receipt::Verdict;
use tempfile::NamedTempFile;

use super::arguments::parse_seconds;
use super::{CommandError, columns, say_json};
use error::Flaw;
pub(super) use error::InferError;
use npz::Arrays;

/// What is said below the flags.
pub(super) const FORMATS: &str = "\
INPUT holds an array for each input of the model, under its name: numpy.savez('in.npz', x=x). A BF16
array is one of ml_dtypes.bfloat16, or its bits as numpy.uint16, viewed as 'V2'; so are BF16 outputs
written. In JSON, numbers that JSON has no word for are the strings \"NaN\", \"Infinity\" and
\"-Infinity\".";

/// What to ask, and what to do with the answer.
#[derive(Debug, Args)]
pub(super) struct InferFlags {
    /// The model, as `gridpool models` lists it.
    model: String,
    /// An .npz with an array for each input; for a model with one input an .npy does; `-` is standard
    /// input.
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Write the outputs to this .npz.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Room for the outputs; without this, what the model says that they take, or 16 MiB where it does
    /// not say.
    #[arg(long, value_name = "BYTES", env = "GRIDPOOL_OUTPUT_BYTES")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=ARENA_BYTES_MAX))]
    output_bytes: Option<u64>,
    /// Seconds from the request's submission to its verdict; 0 has passed already.
    #[arg(long, value_name = "SECONDS", default_value = "30", env = "GRIDPOOL_DEADLINE")]
    #[arg(value_parser = parse_seconds, allow_negative_numbers = true)]
    deadline: Duration,
    /// Say BUSY at once where the pool is full, instead of trying again until the deadline.
    #[arg(long)]
    no_wait: bool,
    /// Print one JSON document: outputs, without their data where --output has it, and receipt.
    #[arg(long)]
    json: bool,
}

/// Asks a model once. `connect` is called when all that was typed is good.
pub(super) fn run(
    flags: &InferFlags,
    connect: impl FnOnce() -> Result<Client, CommandError>,
) -> Result<u8, CommandError> {
    let arrays = read(&flags.input)?;
    let file = flags.output.as_deref().map(Draft::new).transpose()?;
    let client = connect()?;
    let rows = client.models()?;
    let tensors = match fit::find(&rows, &flags.model)? {
        Some(info) => fit::fit(info, arrays)?,
        None => fit::unchecked(arrays)?,
    };
    let job = InferJob::new(&flags.model, tensors).map_err(InferError::Tensors)?;
    let job = job.with_deadline(flags.deadline);
    let job = if flags.no_wait { job.refuse_if_busy() } else { job };
    let job = match flags.output_bytes {
        Some(bytes) => job.with_output_bytes(bytes),
        None => job,
    };
    let answer = client.infer(job).map_err(refused)?.wait()?;
    if let (Some(file), Some(outputs)) = (file, &answer.outputs) {
        file.write(|out| npz::write(out, outputs))?;
    }
    print(flags, &answer)?;
    match answer.verdict() {
        Verdict::Ok => Ok(exit::OK),
        Verdict::Cancelled
        | Verdict::Deadline
        | Verdict::DeviceLost
        | Verdict::Failed
        | Verdict::Poison => Err(InferError::verdict(&flags.model, &answer.receipt).into()),
    }
}

/// What the pool refuses was typed wrong; whatever a worker has to say comes with the verdict.
fn refused(error: ClientError) -> CommandError {
    let ClientError::Refused(Refusal::Invalid(why)) = error else { return error.into() };
    CommandError::Order(why)
}

/// Says which models there are.
pub(super) fn print_models(rows: &[DeviceModel], json: bool) -> Result<u8, CommandError> {
    if json {
        return say_json(&models::Document { models: rows });
    }
    write!(io::stdout(), "{}", models::table(rows, columns())).map_err(CommandError::Output)?;
    Ok(exit::OK)
}

fn print(flags: &InferFlags, answer: &InferAnswer) -> Result<(), CommandError> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if flags.json {
        answer::write_json(&mut out, answer, flags.output.is_none())
    } else {
        answer::write(&mut out, &flags.model, answer)
    };
    written.and_then(|()| out.flush()).map_err(CommandError::Output)
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
        (path.display().to_string(), std::fs::File::open(path).map_err(Flaw::Read).and_then(take))
    };
    let arrays = read.and_then(Arrays::read);
    arrays.map_err(|flaw| InferError::Input { file: name, flaw: Box::new(flaw) })
}

/// All bytes, if they are not over the limit.
fn take(reader: impl Read) -> Result<Vec<u8>, Flaw> {
    let mut bytes = Vec::new();
    reader.take(npz::FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Flaw::Read)?;
    if bytes.len() as u64 > npz::FILE_BYTES_MAX { Err(Flaw::FileTooLarge) } else { Ok(bytes) }
}

/// What the names of files begin with that are not whole yet.
const DRAFT: &str = ".gridpool-draft-";

/// A file that gets its name when all of it is written.
struct Draft<'a> {
    path: &'a Path,
    file: NamedTempFile,
}

impl<'a> Draft<'a> {
    fn new(path: &'a Path) -> Result<Self, InferError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        let failed = |source| InferError::Output { path: path.to_owned(), source };
        if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let mut builder = tempfile::Builder::new();
        // As any new file: the umask takes from it.
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let file = builder.prefix(DRAFT).permissions(all).tempfile_in(folder);
        Ok(Self { path, file: file.map_err(failed)? })
    }

    fn write(
        mut self,
        write: impl FnOnce(&mut std::fs::File) -> io::Result<()>,
    ) -> Result<(), InferError> {
        let failed = |source| InferError::Output { path: self.path.to_owned(), source };
        write(self.file.as_file_mut()).map_err(failed)?;
        self.file.persist(self.path).map_err(|error| failed(error.error))?;
        Ok(())
    }
}
