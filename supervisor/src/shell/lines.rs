//! Lines from an untrusted process. Each has a maximum length. After the process has ended, it waits for no more.

use std::io::{self, Read};
use std::os::fd::AsFd;

use gridpool_protocol::monitor::LINE_BYTES_MAX;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::pidfd::PidFd;

/// The result of waiting for a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A line, without its end.
    Line(Vec<u8>),
    /// The process has ended, or closed its output.
    Closed,
    /// The line is longer than the limit.
    TooLong,
}

/// The output of a process.
#[derive(Debug)]
pub(super) struct Lines<R> {
    source: R,
    /// Bytes that are not a whole line yet.
    rest: Vec<u8>,
}

impl<R: Read + AsFd> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, rest: Vec::new() }
    }

    /// Waits for the next line, until the process has ended. It does not wait for another process that still
    /// holds the other end.
    pub(super) fn next(&mut self, process: &PidFd) -> io::Result<Next> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let mut line: Vec<u8> = self.rest.drain(..=end).collect();
                line.pop();
                return Ok(Next::Line(line));
            }
            if self.rest.len() >= LINE_BYTES_MAX {
                return Ok(Next::TooLong);
            }
            if !self.wait(process)? {
                return Ok(Next::Closed);
            }
            let mut bytes = [0; LINE_BYTES_MAX];
            let room = LINE_BYTES_MAX - self.rest.len();
            match self.source.read(&mut bytes[..room]) {
                Ok(0) => return Ok(Next::Closed),
                Ok(count) => self.rest.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until there are bytes to read. Returns `false` if there are none and the process has ended.
    fn wait(&self, process: &PidFd) -> io::Result<bool> {
        loop {
            let mut fds = [
                PollFd::new(self.source.as_fd(), PollFlags::POLLIN),
                PollFd::new(process.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) => return Ok(fds[0].any() == Some(true)),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn lines() -> (UnixStream, Lines<UnixStream>, PidFd) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours, Lines::new(theirs), PidFd::open(std::process::id()).unwrap())
    }

    #[test]
    fn lines_come_whole_however_they_were_cut() {
        let (mut writer, mut lines, process) = lines();
        for piece in ["on", "e\ntwo\nth", "ree\n", "\n", "the rest"] {
            writer.write_all(piece.as_bytes()).unwrap();
        }
        drop(writer);
        for want in ["one", "two", "three", ""] {
            assert_eq!(lines.next(&process).unwrap(), Next::Line(want.into()));
        }
        assert_eq!(lines.next(&process).unwrap(), Next::Closed);
    }

    #[test]
    fn a_line_may_be_as_long_as_the_bound_and_no_longer() {
        let longest = "x".repeat(LINE_BYTES_MAX - 1) + "\n";
        let (mut writer, mut lines, process) = lines();
        writer.write_all(longest.as_bytes()).unwrap();
        writer.write_all(format!("x{longest}").as_bytes()).unwrap();
        assert!(matches!(lines.next(&process).unwrap(), Next::Line(line) if line.len() == 4_095));
        assert_eq!(lines.next(&process).unwrap(), Next::TooLong);
    }

    #[test]
    fn a_process_that_has_ended_is_not_waited_for_though_its_pipe_is_open() {
        let (mut writer, mut lines, _) = lines();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = PidFd::open(child.id()).unwrap();
        process.wait(None).unwrap();
        writer.write_all(b"one\nhalf").unwrap();
        assert_eq!(lines.next(&process).unwrap(), Next::Line("one".into()));
        assert_eq!(lines.next(&process).unwrap(), Next::Closed);
        child.wait().unwrap();
    }
}
