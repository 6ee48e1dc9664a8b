//! What a corrupt worker may send: any bytes on its lifeline, with descriptors that nothing asks for.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use gridpool_ipc::channel::ReplyReader;
use gridpool_ipc::frame;
use gridpool_protocol::message::FromWorker;

use super::any::every_variant;
use super::client_frame::none_stays_open;
use super::message::encoded;

/// More than this need not lie in a socket at once.
const STREAM_BYTES_MAX: usize = 64 * 1024;

/// The first byte says how many descriptors come with the stream, which is the rest.
pub(crate) fn run(bytes: &[u8]) {
    let Some((&fds, stream)) = bytes.split_first() else { return };
    let stream = &stream[..stream.len().min(STREAM_BYTES_MAX)];
    let (theirs, ours) = UnixStream::pair().expect("a pair of sockets");
    let (pipe, sent) = std::io::pipe().expect("a pipe");
    let fds = vec![sent.as_fd(); usize::from(fds % 4)];
    frame::send_all(&theirs, stream, &fds).expect("there is room");
    drop(fds);
    drop(sent);
    theirs.shutdown(Shutdown::Write).expect("it is open");
    let mut reader = ReplyReader::new(ours);
    while reader.recv().is_ok() {}
    // Descriptors that were sent unread go with their socket.
    drop((reader, theirs));
    none_stays_open(pipe);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let frames = encoded(&every_variant::<FromWorker>());
    let streams = frames.iter().map(|body| [&[0][..], &frame::pack(body, 0)].concat());
    let all = frames.iter().flat_map(|body| frame::pack(body, 0)).collect::<Vec<_>>();
    streams.chain([[&[3][..], &all].concat(), [&[1][..], &frame::pack(b"", 1)].concat()]).collect()
}
