//! Reading for a thread that must not wait.

use std::os::fd::OwnedFd;

use nix::sys::socket::MsgFlags;

use super::{FrameError, FrameReader};

impl FrameReader {
    /// Reads what has arrived, and hands the body of the next frame to `with`; `None` if there is no whole frame. It
    /// never waits, also not for the rest of one.
    ///
    /// # Errors
    /// As for [`FrameReader::read`].
    pub fn read_arrived_with<T>(
        &mut self,
        with: impl FnOnce(&[u8], Vec<OwnedFd>) -> T,
    ) -> Result<Option<T>, FrameError> {
        while self.next_frame()?.is_none() {
            self.make_room();
            match self.receive(MsgFlags::MSG_DONTWAIT)? {
                None => return Ok(None),
                Some(0) if self.filled.is_empty() => return Err(FrameError::Closed),
                Some(0) => return Err(FrameError::Truncated),
                Some(_) => {}
            }
        }
        self.take_frame_with(with)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::super::{pack, send_some};
    use super::*;

    #[test]
    fn a_frame_is_read_when_all_of_it_has_arrived_and_never_waited_for() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut reader = FrameReader::new(ours);
        let mut read = || reader.read_arrived_with(|body, _| body.to_vec());
        assert!(read().unwrap().is_none());
        let frames = [pack(b"one", 0), pack(b"two", 0)].concat();
        let (first, rest) = frames.split_at(frames.len() - 1);
        send_some(&theirs, first, &[]).unwrap();
        assert_eq!(read().unwrap().as_deref(), Some(&b"one"[..]));
        assert!(read().unwrap().is_none(), "half a frame");
        send_some(&theirs, rest, &[]).unwrap();
        assert_eq!(read().unwrap().as_deref(), Some(&b"two"[..]));
        send_some(&theirs, first, &[]).unwrap();
        drop(theirs);
        assert_eq!(read().unwrap().as_deref(), Some(&b"one"[..]));
        assert!(matches!(read(), Err(FrameError::Truncated)));
    }
}
