//! What the supervisor does for this process with files, which it can open none of: a question on a socket, an answer
//! after it, perhaps with a descriptor. The supervisor's side is `shell::gateway::desk`.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use gridpool_ipc::frame::{self, FrameReader};
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::codec;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::failure::Failure;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Desk(Mutex<FrameReader>);

impl Desk {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self(Mutex::new(FrameReader::with_descriptors(socket)))
    }

    /// Asks, and waits for the answer. One question at a time.
    pub(super) fn ask<A: DeserializeOwned>(
        &self,
        question: &impl Serialize,
    ) -> Result<(A, Option<OwnedFd>), Failure> {
        let lost = |why: String| {
            Failure::unavailable(format!("the supervisor does not look at files: {why}"))
        };
        let asked = frame::of(question, 0).map_err(|error| Failure::bad(error.to_string()))?;
        let mut reader = self.0.lock();
        frame::send_all(reader.socket(), &asked, &[]).map_err(|error| lost(error.to_string()))?;
        let answer = reader.read(None).map_err(|error| lost(error.to_string()))?;
        drop(reader);
        let answer = answer.ok_or_else(|| lost("it does not answer".to_owned()))?;
        let said = codec::decode(&answer.body).map_err(|error| lost(error.to_string()))?;
        Ok((said, answer.fds.into_iter().next()))
    }
}
