//! How a file of shared memory comes into this process: the supervisor opens it, if whoever asks may have it.

use std::fs::File;
use std::os::unix::net::UnixStream;

use axum::http::StatusCode;
use gridpool_client::Secret;
use gridpool_ipc::frame::{self, FrameReader};
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::codec;
use serde::{Deserialize, Serialize};

use crate::gateway::failure::Failure;
use crate::gateway::reason::Reason;

/// Asks for a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenOrder {
    /// As a client writes it for `shm_open`.
    pub key: String,
    /// The client's, if it has one.
    pub token: Option<Secret>,
    /// The client's user, if it came over a Unix socket.
    pub uid: Option<u32>,
}

/// What becomes of it. A file comes as the frame's descriptor.
pub type Opened = Result<(), Unopened>;

/// Why a file is not opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unopened {
    /// Whoever asks may not have it.
    NotAllowed(String),
    /// There is none, or it is nothing of the kind.
    Wrong(String),
}

/// The socket to the supervisor.
#[derive(Debug)]
pub(super) struct Opener(Mutex<FrameReader>);

impl Opener {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self(Mutex::new(FrameReader::with_descriptors(socket)))
    }

    /// The file, for reading and writing. The supervisor never waits for a file, so neither does this.
    pub(super) fn open(&self, order: &OpenOrder) -> Result<File, Failure> {
        let lost =
            |why: String| Failure::unavailable(format!("the supervisor opens no file: {why}"));
        let asked = frame::of(order, 0).map_err(|error| Failure::bad(error.to_string()))?;
        let mut reader = self.0.lock();
        frame::send_all(reader.socket(), &asked, &[]).map_err(|error| lost(error.to_string()))?;
        let answer = reader.read(None).map_err(|error| lost(error.to_string()))?;
        let answer = answer.ok_or_else(|| lost("it does not answer".to_owned()))?;
        drop(reader);
        let opened: Opened =
            codec::decode(&answer.body).map_err(|error| lost(error.to_string()))?;
        match (opened, answer.fds.into_iter().next()) {
            (Ok(()), Some(file)) => Ok(file.into()),
            (Ok(()), None) => Err(lost("it sent none".to_owned())),
            (Err(Unopened::Wrong(why)), _) => Err(Failure::bad(why)),
            (Err(Unopened::NotAllowed(why)), _) => {
                Err(Failure::new(StatusCode::FORBIDDEN, why).because(Reason::Scope))
            }
        }
    }
}
