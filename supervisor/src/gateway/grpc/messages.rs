//! The messages of a call, as they come: each has five bytes before it, a flag and its length.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use bytes::{Buf, BytesMut};
use gridpool_client::Principal;

use crate::gateway::body::{BodyBudget, HeldBytes, Pieces, too_long};
use crate::gateway::failure::Failure;
use crate::gateway::limits::BODY_BYTES_MAX;
use crate::gateway::seats::Seat;

/// Bytes before a message: whether it is compressed, and its length.
pub(super) const PREFIX_BYTES: usize = 5;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Messages<'a> {
    budget: &'a BodyBudget,
    principal: &'a Principal,
    pieces: Pieces<'a>,
    /// What has come of the next message.
    unread: BytesMut,
}

impl<'a> Messages<'a> {
    pub(super) fn new(
        budget: &'a BodyBudget,
        (principal, seat): (&'a Principal, &'a Seat),
        body: Body,
    ) -> Self {
        Self { budget, principal, pieces: Pieces::new(seat, body), unread: BytesMut::new() }
    }

    /// The only message of a call, and what it holds of the memory for bodies.
    pub(super) async fn one(mut self) -> Result<(Bytes, HeldBytes), Failure> {
        let one = self.read(None).await?;
        let one = one.ok_or_else(|| Failure::bad("the call has no message"))?;
        match self.read(None).await? {
            None => Ok(one),
            Some(_) => Err(Failure::bad("the call has more than one message: send one")),
        }
    }

    /// The next message of a stream, for whose beginning the client has `idle`.
    pub(super) async fn next(
        &mut self,
        idle: Duration,
    ) -> Result<Option<(Bytes, HeldBytes)>, Failure> {
        self.read(Some(idle)).await
    }

    /// The next message; `None` at the end.
    async fn read(
        &mut self,
        idle: Option<Duration>,
    ) -> Result<Option<(Bytes, HeldBytes)>, Failure> {
        let mut held = self.budget.held(self.principal);
        held.hold_request(self.unread.len())?;
        loop {
            if let Some(bytes) = length(&self.unread)?
                && self.unread.len() >= PREFIX_BYTES + bytes
            {
                self.unread.advance(PREFIX_BYTES);
                return Ok(Some((self.unread.split_to(bytes).freeze(), held)));
            }
            let piece = match idle.filter(|_| self.unread.is_empty()) {
                Some(idle) => self.pieces.first(idle).await?,
                None => self.pieces.next().await?,
            };
            let Some(data) = piece else {
                return match self.unread.is_empty() {
                    true => Ok(None),
                    false => Err(Failure::bad("the call ended within a message")),
                };
            };
            held.hold_request(self.unread.len() + data.len())?;
            self.unread.extend_from_slice(&data);
        }
    }
}

/// The length of the next message, once it is known.
fn length(unread: &[u8]) -> Result<Option<usize>, Failure> {
    let Some((&[flag, a, b, c, d], _)) = unread.split_first_chunk() else { return Ok(None) };
    if flag != 0 {
        let why = "compressed messages are not served: send them as they are";
        return Err(Failure::new(StatusCode::NOT_IMPLEMENTED, why));
    }
    let bytes = u32::from_be_bytes([a, b, c, d]) as usize;
    if bytes > BODY_BYTES_MAX { Err(too_long()) } else { Ok(Some(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_from_five_bytes_and_bounded() {
        assert_eq!(length(&[0, 0, 0, 1]), Ok(None));
        assert_eq!(length(&[0, 0, 0, 1, 2, 9]), Ok(Some(258)));
        assert!(length(&[1, 0, 0, 0, 0]).unwrap_err().message().contains("compressed"));
        assert!(length(&[0, 255, 0, 0, 0]).unwrap_err().message().contains("fewer items"));
    }
}
