//! Reading for futures by a runtime that watches the socket, in place of a thread of the client: an answer then wakes
//! no thread but the one that takes it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use super::busy::READS_MAX;
use super::connection::Connection;
use super::{Client, ClientError, link};

/// Whoever has this reads the socket of a client for its futures. It is the socket's descriptor, to be watched for
/// something to read, and keeps the connection open. Once it is dropped, which it must be if the connection is lost, a
/// thread of the client reads again.
#[derive(Debug)]
pub struct Watch {
    connection: Arc<Connection>,
    /// The connection that it is of.
    epoch: u64,
    socket: UnixStream,
}

impl Client {
    /// Has the caller read this client's socket for its futures: it calls [`Watch::poll_read`] whenever there is
    /// something to read, and [`Watch::wake_late`] once in a while. `None` without a connection, or if another does so.
    ///
    /// # Errors
    /// [`ClientError::System`] if there is no descriptor left.
    pub fn watch(&self) -> Result<Option<Watch>, ClientError> {
        let connection = Arc::clone(&self.connection);
        let state = connection.lock();
        let (socket, epoch) = (connection.wire.socket()?, connection.wire.epoch());
        let Some(socket) = socket else { return Ok(None) };
        if connection.is_watched.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        drop(state);
        Ok(Some(Watch { connection, epoch, socket }))
    }
}

impl Watch {
    /// Reads what has come, without waiting for more, and wakes the futures that it is for. Returns whether that was
    /// all. While another thread reads, this is pending.
    ///
    /// # Errors
    /// [`ClientError::Lost`]: the connection is lost, and this of no more use.
    pub fn poll_read(&self, context: &mut Context<'_>) -> Poll<Result<bool, ClientError>> {
        let polled = self.poll_arrived(context);
        self.connection.leave(self.connection.lock());
        polled
    }

    fn poll_arrived(&self, context: &mut Context<'_>) -> Poll<Result<bool, ClientError>> {
        let mut state = self.connection.lock();
        for _ in 0..READS_MAX {
            if self.epoch != self.connection.wire.epoch() {
                return Poll::Ready(Err(ClientError::Lost));
            }
            let Some(mut reader) = state.reader.take() else {
                state.watcher = Some(context.waker().clone());
                return Poll::Pending;
            };
            drop(state);
            let received = link::receive_arrived(&mut reader);
            let is_news = matches!(received, Ok(Some(_)));
            state = self.connection.lock();
            let handled = received.and_then(|received| state.on_messages(&mut reader, received));
            state.put_back(reader);
            if handled.is_err() {
                drop(self.connection.tell(state));
                // The next who reads finds that, and reconnects.
                self.connection.wire.hang_up();
                return Poll::Ready(Err(ClientError::Lost));
            }
            let is_refused = state.has_refused();
            state = self.connection.tell(state);
            if is_refused {
                drop(state);
                // It sends the job again, after a pause.
                self.connection.have_thread_read()?;
                state = self.connection.lock();
            }
            if !is_news {
                return Poll::Ready(Ok(true));
            }
        }
        Poll::Ready(Ok(false))
    }

    /// Ends the futures whose time is over.
    pub fn wake_late(&self) {
        self.connection.lock().wake_late();
        self.connection.wake();
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.connection.is_watched.store(false, Ordering::Release);
        let waits = self.connection.lock().futures > 0;
        if waits && self.connection.have_thread_read().is_err() {
            // Futures find that themselves when they are polled.
            let mut state = self.connection.lock();
            state.wake_all();
            drop(self.connection.tell(state));
        }
    }
}
