//! Threads that do for the gateway what it may not do with files. Each ends with the gateway's end of its socket.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use gridpool_ipc::frame::{self, FrameError, FrameReader};
use gridpool_protocol::codec;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Answers every question. Returns the gateway's end.
pub(super) fn serve<Q: DeserializeOwned, A: Serialize>(
    name: &'static str,
    mut answer: impl FnMut(Q) -> (A, Option<File>) + Send + 'static,
) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let answer_all = move || {
        if let Err(error) = answer_all(ours, &mut answer) {
            tracing::warn!(%error, "the gateway gets no more answers about {name}");
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(answer_all)?;
    Ok(theirs)
}

fn answer_all<Q: DeserializeOwned, A: Serialize>(
    socket: UnixStream,
    answer: &mut impl FnMut(Q) -> (A, Option<File>),
) -> io::Result<()> {
    let mut reader = FrameReader::new(socket);
    loop {
        let frame = match reader.read(None) {
            Ok(Some(frame)) => frame,
            Ok(None) | Err(FrameError::Closed) => return Ok(()),
            Err(error) => return Err(io::Error::other(error)),
        };
        let (said, file) = answer(codec::decode(&frame.body).map_err(io::Error::other)?);
        let sent: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        let bytes = frame::of(&said, sent.len()).map_err(io::Error::other)?;
        match frame::send_all(reader.socket(), &bytes, &sent) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            sent => sent?,
        }
    }
}
