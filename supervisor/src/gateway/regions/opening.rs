//! How a file of shared memory comes into this process: the supervisor opens it, if whoever asks may have it.

use std::fs::File;

use axum::http::StatusCode;
use gridpool_client::Secret;
use serde::{Deserialize, Serialize};

use crate::gateway::desk::Desk;
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

/// The file, for reading and writing. The supervisor never waits for a file, so neither does this.
pub(super) fn open(desk: &Desk, order: &OpenOrder) -> Result<File, Failure> {
    match desk.ask(order)? {
        (Ok(()), Some(file)) => Ok(file.into()),
        (Ok(()), None) => Err(Failure::internal("the supervisor sent no file")),
        (Err(Unopened::Wrong(why)), _) => Err(Failure::bad(why)),
        (Err(Unopened::NotAllowed(why)), _) => {
            Err(Failure::new(StatusCode::FORBIDDEN, why).because(Reason::Scope))
        }
    }
}
