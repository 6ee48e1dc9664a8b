//! Bodies of responses as they are written.

use std::io;

use super::body::HeldBytes;
use super::failure::Failure;
use super::limits::REPLY_BYTES_MAX;

/// A response body that is being written. It holds memory as it grows, up to a limit.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    bytes: Vec<u8>,
    held: &'a mut HeldBytes,
    /// Why writing stopped.
    failure: Option<Failure>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(held: &'a mut HeldBytes) -> Self {
        Self { bytes: Vec::new(), held, failure: None }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Makes room for `more` bytes, so that writing them moves nothing.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), Failure> {
        let bytes = self.bytes.len() + more;
        if bytes > REPLY_BYTES_MAX {
            return Err(Failure::bad(format!(
                "the answer would have more than {REPLY_BYTES_MAX} bytes: send fewer rows at once, name the \
                 outputs that you want, or, over HTTP, ask for them with binary_data, which takes less"
            )));
        }
        if bytes > self.bytes.capacity() {
            self.held.hold(bytes)?;
            self.bytes.reserve_exact(more);
        }
        Ok(())
    }

    /// The body, or why there is none. `written` is the writer's result.
    pub(super) fn finish(self, written: io::Result<()>) -> Result<Vec<u8>, Failure> {
        match (self.failure, written) {
            (Some(failure), _) => Err(failure),
            // A tensor holds a number that JSON cannot express.
            (None, Err(error)) => Err(Failure::bad(error.to_string())),
            (None, Ok(())) => Ok(self.bytes),
        }
    }
}

impl io::Write for Draft<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (have, more) = (self.bytes.len(), bytes.len());
        if have + more > self.bytes.capacity() {
            // Double the size, so that many small pieces cause few moves.
            let ample = more.max(have.min(REPLY_BYTES_MAX.saturating_sub(have)));
            if let Err(failure) = self.reserve(ample) {
                self.failure = Some(failure);
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        self.bytes.extend_from_slice(bytes);
        Ok(more)
    }

    /// JSON is written in many small pieces, for most of which there is room.
    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.bytes.capacity() - self.bytes.len() {
            return self.write(bytes).map(drop);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
