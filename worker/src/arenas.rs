//! The arenas that the supervisor has sent to this worker, and the thread that receives them on the lifeline, and
//! what it cancels.
//! When the lifeline closes, the supervisor is gone and the worker ends.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, PoisonError};
use std::thread;
use std::time::Duration;

use gridpool_device::fault::end_process;
use gridpool_ipc::arena::{Arena, ArenaMap};
use gridpool_ipc::clock;
use gridpool_ipc::frame::{Frame, FrameError, FrameReader};
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::codec;
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::ids::ArenaId;
use gridpool_protocol::message::{OnLifeline, SharedArena};

use crate::cancels::Cancels;

/// How long a job waits for an arena that the supervisor sent before it.
const ARENA_TIMEOUT: Duration = Duration::from_secs(5);

/// Arenas by name. A map lives until its last user drops it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arenas {
    shared: Arc<SharedArenas>,
}

#[derive(Debug, Default)]
struct SharedArenas {
    maps: Mutex<BTreeMap<ArenaId, Arc<ArenaMap>>>,
    arrived: Condvar,
}

impl Arenas {
    /// Receives arenas from then on.
    ///
    /// # Errors
    /// A message, if there is no thread for it.
    pub(crate) fn take_from(lifeline: UnixStream, cancels: Cancels) -> Result<Self, String> {
        let arenas = Self::default();
        let taker = arenas.clone();
        let mut reader = FrameReader::with_descriptors(lifeline);
        // Answers go out on this socket.
        reader.sleep_in_poll();
        thread::Builder::new()
            .name("lifeline".into())
            .spawn(move || taker.serve(reader, &cancels))
            .map_err(|error| format!("no thread for the lifeline: {error}"))?;
        Ok(arenas)
    }

    /// An arena that the supervisor has sent. Waits for its arrival if necessary.
    #[must_use]
    pub(crate) fn find(&self, id: ArenaId) -> Option<Arc<ArenaMap>> {
        let until = clock::now() + ARENA_TIMEOUT;
        let mut maps = self.shared.maps.lock();
        loop {
            if let Some(map) = maps.get(&id) {
                return Some(Arc::clone(map));
            }
            let left = clock::until(until);
            if left.is_zero() {
                return None;
            }
            let waited = self.shared.arrived.wait_timeout(maps, left);
            maps = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Forgets an arena and returns its map, if it is known.
    #[must_use]
    pub(crate) fn forget(&self, id: ArenaId) -> Option<Arc<ArenaMap>> {
        self.shared.maps.lock().remove(&id)
    }

    /// The body of the thread: it runs until the supervisor is gone.
    fn serve(&self, mut reader: FrameReader, cancels: &Cancels) -> ! {
        loop {
            let taken = match reader.read(None) {
                Ok(Some(frame)) => self.take(frame, cancels),
                Ok(None) => Ok(()),
                Err(FrameError::Closed) => end_process(exit::OK),
                Err(error) => Err(Chain(&error).to_string()),
            };
            if let Err(error) = taken {
                tracing::error!(error, "lifeline");
                end_process(exit::PROTOCOL);
            }
        }
    }

    fn take(&self, frame: Frame, cancels: &Cancels) -> Result<(), String> {
        let message = codec::decode(&frame.body).map_err(|error| Chain(&error).to_string())?;
        let SharedArena { arena, bytes } = match message {
            OnLifeline::Arena(arena) => arena,
            OnLifeline::Cancel { attempt } => {
                cancels.cancel(attempt);
                return Ok(());
            }
        };
        let fd = frame.fds.into_iter().next().ok_or("an arena without its descriptor")?;
        let map = Arena::accept(fd, bytes).and_then(|arena| arena.map());
        let map = Arc::new(map.map_err(|error| Chain(&error).to_string())?);
        self.shared.maps.lock().insert(arena, map);
        self.shared.arrived.notify_all();
        Ok(())
    }
}
