//! Copies what a worker ran into the form of a capsule. The supervisor reads a client's shared memory through its
//! descriptor, and never maps it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::SystemTime;

use gridpool_core::event;
use gridpool_protocol::message::{Input as Payload, Slice, Work};
use gridpool_protocol::position::{ItemPosition, Position};
use gridpool_protocol::program::{Program, hex};
use gridpool_protocol::receipt::{Attempt, ItemRange};
use gridpool_protocol::status::CapsuleMode;
use gridpool_protocol::tensor::options::ModelPlan;
use nix::errno::Errno;
use nix::sys::uio::pread;
use sha2::{Digest, Sha256};

use super::Begun;
use crate::capsule::{Input, SavedJob, SavedModel, SavedWork, Source};
use crate::shell::arenas::ClientArena;

/// The largest file of a model that is hashed: more would keep capsules waiting for too long.
const MODEL_BYTES_MAX: u64 = 4 << 30;

/// What a job ran, and over what.
#[derive(Debug)]
pub(super) struct Copied {
    work: SavedWork,
    input: Input,
    /// The item of the job that the first of the input is.
    first: u32,
    under_way: Option<ItemRange>,
    is_certain: bool,
}

impl Copied {
    /// Copies one attempt, while less than `left` bytes are taken: first the items that were under way.
    pub(super) fn of(
        begun: &Begun,
        under_way: Option<ItemRange>,
        mode: CapsuleMode,
        left: &mut u64,
        is_live: impl Fn(&Begun) -> bool,
    ) -> Self {
        let submission = &begun.held.submission;
        let (work, per_item) = match &submission.work {
            Work::Model { name } => {
                let name = begun.model.as_deref().unwrap_or(name).to_owned();
                (SavedWork::Model { name }, 1)
            }
            Work::Search { score } => (SavedWork::Search { score: *score }, 2),
            Work::Program { text, ties, steps } => {
                // It was compiled when it was accepted.
                let program = Program::compile(text, *ties).ok();
                let per_item = program.map_or(1, |program| program.grids_per_item());
                let hash = match &begun.held.work {
                    event::Work::Program { hash } => hash.to_string(),
                    event::Work::Model { .. } | event::Work::Search { .. } => String::new(),
                };
                let (text, ties, steps) = (text.clone(), *ties, *steps);
                (SavedWork::Program { text, ties, steps, hash }, per_item)
            }
        };
        let packing = submission.payload.packing;
        let first = under_way.map_or(begun.part.start, |items| items.start);
        let read = |source: &dyn Source, left: &mut u64| {
            Input::of(&work, per_item, packing, (begun.part, first), source, mode, left)
        };
        let ((input, first), is_certain) = match &submission.payload.input {
            Payload::Inline(bytes) => (read(&Private(&bytes.0), left), true),
            Payload::Arena(slice) => {
                let arena = begun.held.arenas.get(&slice.arena);
                let arena = arena.expect("a held job holds its arenas");
                let input = read(&Shared { arena, slice: *slice }, left);
                (input, is_live(begun))
            }
        };
        Self { work, input, first, under_way, is_certain }
    }

    /// The job in the document.
    pub(super) fn job(self, begun: &Begun, attempts: Vec<Attempt>) -> SavedJob {
        let Self { work, input, first, under_way, is_certain } = self;
        let terms = begun.held.submission.terms;
        let is_search = matches!(work, SavedWork::Search { .. });
        let items = begun.held.submission.payload.packing.items();
        SavedJob {
            job: begun.attempt.job.to_string(),
            attempt: begun.attempt.number,
            principal: begun.held.principal.to_string(),
            work,
            items,
            // A search is kept whole.
            part: if is_search { ItemRange { start: 0, end: items } } else { begun.part },
            skipped: first - begun.part.start,
            under_way,
            deadline_ms: terms.deadline_ms,
            priority: terms.priority,
            idempotent: terms.idempotent,
            chaos: terms.chaos.map(Into::into),
            attempts,
            is_certain,
            input,
        }
    }
}

/// The items of each attempt from the first to the last that its worker was at. The attempts are in the order of their
/// dispatch, of which a chunk has some in a row.
pub(super) fn under_way(begun: &[Begun], position: Option<&Position>) -> Vec<Option<ItemRange>> {
    let mut all: Vec<Option<ItemRange>> = vec![None; begun.len()];
    for chunk in position.iter().flat_map(|position| &position.under_way) {
        let at = |item: ItemPosition| begun.iter().position(|one| one.attempt == item.attempt);
        let (Some(first), Some(last)) = (at(chunk.first), at(chunk.last)) else { continue };
        for (at, begun) in begun.iter().enumerate().take(last + 1).skip(first) {
            let ItemRange { start, end } = begun.part;
            let within = |item: u64| u32::try_from(item).unwrap_or(end).clamp(start, end);
            let from = if at == first { within(chunk.first.item) } else { start };
            let to = if at == last { within(chunk.last.item.saturating_add(1)) } else { end };
            let own = all[at].get_or_insert(ItemRange { start: from, end: to });
            *own = ItemRange { start: own.start.min(from), end: own.end.max(to) };
        }
    }
    // A worker that is killed while it records may leave half of a chunk, and one that was overwritten anything.
    all.into_iter().map(|own| own.filter(|items| !items.is_empty())).collect()
}

/// An input in the message.
struct Private<'a>(&'a [u8]);

impl Source for Private<'_> {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = start.checked_add(to.len()).and_then(|end| self.0.get(start..end));
        to.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// An input in shared memory, whose size is sealed.
struct Shared<'a> {
    arena: &'a ClientArena,
    slice: Slice,
}

impl Source for Shared<'_> {
    fn bytes(&self) -> u64 {
        self.slice.bytes
    }

    fn read(&self, offset: u64, mut to: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(to.len() as u64);
        if end.is_none_or(|end| end > self.slice.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = self.slice.offset + offset;
        while !to.is_empty() {
            let offset = i64::try_from(at).map_err(io::Error::other)?;
            match pread(self.arena.as_fd(), to, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => {
                    at += got as u64;
                    to = &mut to[got..];
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// The hashes of models' files, as long as these do not change.
#[derive(Debug, Default)]
pub(super) struct Models(BTreeMap<PathBuf, (u64, Option<SystemTime>, String)>);

impl Models {
    /// A model with the hash of its file; without it, if the file cannot be read.
    pub(super) fn saved(&mut self, plan: ModelPlan) -> SavedModel {
        let sha256 = self.hash(&plan).unwrap_or_else(|error| {
            tracing::debug!(%error, model = plan.name, "the file of a model cannot be hashed");
            String::new()
        });
        SavedModel { plan, sha256 }
    }

    fn hash(&mut self, plan: &ModelPlan) -> io::Result<String> {
        let meta = fs::metadata(&plan.path)?;
        let (bytes, modified) = (meta.len(), meta.modified().ok());
        match self.0.get(&plan.path) {
            Some((known, at, hash)) if (*known, *at) == (bytes, modified) => {
                return Ok(hash.clone());
            }
            Some(_) | None => {}
        }
        if bytes > MODEL_BYTES_MAX {
            return Err(io::Error::other(format!("it has {bytes} bytes")));
        }
        let hash = hash_file(&plan.path)?;
        self.0.insert(plan.path.clone(), (bytes, modified, hash.clone()));
        Ok(hash)
    }
}

/// SHA-256 of a file.
pub(crate) fn hash_file(path: &std::path::Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hex(&hash.finalize())),
            Ok(got) => hash.update(&buffer[..got]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
