//! The content hash of a job. The supervisor reads the content from the job's message or, through the
//! descriptor, from its arena, which it never maps. It reads only suspects and jobs that look like one on the
//! denylist.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use gridpool_protocol::ids::{ContentHash, JobId};
use gridpool_protocol::message::{Input, Packing, Slice};
use gridpool_protocol::search::{ProgramForm, SearchSize};
use nix::errno::Errno;
use nix::sys::uio::pread;
use sha2::{Digest, Sha256};

use super::Shared;
use super::arenas::ClientArena;
use super::core::NO_WORKER;
use super::held::HeldJob;
use gridpool_core::event::{Event, Work};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Jobs to hash. Each live job is requested at most once at a time, and the number of live jobs is limited.
pub(super) type Requests = Sender<(JobId, Work, Arc<HeldJob>)>;

/// The body of the hashing thread. It ends with the pool.
pub(super) fn serve(requests: &Receiver<(JobId, Work, Arc<HeldJob>)>, shared: &Shared) {
    for (job, work, held) in requests {
        let content = match hash(&work, &held) {
            Ok(content) => Some(content),
            Err(error) => {
                let (attempt, worker) = (0, NO_WORKER);
                tracing::warn!(%job, attempt, worker, %error, "what the job is cannot be read");
                None
            }
        };
        drop(held);
        shared.post(Event::ContentHashed { job, content });
    }
}

/// Hashes a job's work, as the pool knows it, and its input.
pub(super) fn hash(work: &Work, held: &HeldJob) -> io::Result<ContentHash> {
    let mut hash = Sha256::new();
    // Lengths first, so that no two jobs give the same bytes.
    let work = work.to_string();
    hash.update((work.len() as u64).to_le_bytes());
    hash.update(work.as_bytes());
    let payload = &held.submission.payload;
    let numbers = match payload.packing {
        Packing::Grids { items, cells } => vec![items, cells],
        Packing::Search(SearchSize { programs, program_bytes, pairs, cells, form }) => {
            let [form, first] = match form {
                ProgramForm::Listed => [0, 0],
                ProgramForm::Template { first } => [1, first],
                ProgramForm::Alone => [2, 0],
            };
            vec![programs, program_bytes, pairs, cells, form, first]
        }
        Packing::Tensors => vec![],
    };
    numbers.iter().for_each(|number| hash.update(number.to_le_bytes()));
    match &payload.input {
        Input::Inline(bytes) => hash.update(&bytes.0),
        Input::Arena(slice) => {
            let arena = held.arenas.get(&slice.arena);
            read(arena.expect("a held job holds its arenas"), *slice, &mut hash)?;
        }
    }
    Ok(ContentHash(hash.finalize().into()))
}

fn read(arena: &ClientArena, slice: Slice, hash: &mut Sha256) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut at, mut left) = (slice.offset, slice.bytes);
    while left > 0 {
        let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let offset = i64::try_from(at).map_err(io::Error::other)?;
        let got = match pread(arena.as_fd(), &mut buffer[..want], offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => got,
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        hash.update(&buffer[..got]);
        at += got as u64;
        left -= got as u64;
    }
    Ok(())
}
