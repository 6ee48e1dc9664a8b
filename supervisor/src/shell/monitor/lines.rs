//! Lines from a process that may say anything, or nothing: each bounded, each awaited for a bounded
//! time.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::ChildStdout;
use std::time::Instant;

use gridpool_protocol::clock;
use gridpool_protocol::monitor::LINE_BYTES_MAX;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// What came of waiting for a line.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::shell) enum Next {
    /// A line, without its end.
    Line(Vec<u8>),
    /// None, in the time given.
    Silent,
    /// None, and none will come.
    Closed,
    /// One that is longer than any may be.
    TooLong,
}

/// The output of a process.
#[derive(Debug)]
pub(in crate::shell) struct Lines<R = ChildStdout> {
    source: R,
    /// What was read and is no whole line yet.
    rest: Vec<u8>,
}

impl<R: Read + AsFd> Lines<R> {
    pub(in crate::shell) fn new(source: R) -> Self {
        Self { source, rest: Vec::new() }
    }

    /// Waits for the next line until that moment.
    pub(in crate::shell) fn next(&mut self, until: Instant) -> io::Result<Next> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let mut line: Vec<u8> = self.rest.drain(..=end).collect();
                line.pop();
                return Ok(Next::Line(line));
            }
            if self.rest.len() >= LINE_BYTES_MAX {
                return Ok(Next::TooLong);
            }
            if !self.wait(until)? {
                return Ok(Next::Silent);
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

    /// Waits until there is something to read; `false` if there is nothing at that moment.
    fn wait(&self, until: Instant) -> io::Result<bool> {
        loop {
            // Rounded up: a wait of less than a millisecond would be a busy loop.
            let left = clock::until(until).as_millis().saturating_add(1);
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.source.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(0) if clock::now() < until => {}
                Ok(ready) => return Ok(ready > 0),
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
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn lines() -> (UnixStream, Lines<UnixStream>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours, Lines::new(theirs))
    }

    #[test]
    fn lines_come_whole_however_they_were_cut() {
        let (mut writer, mut lines) = lines();
        for piece in ["on", "e\ntwo\nth", "ree\n", "\n", "the rest"] {
            writer.write_all(piece.as_bytes()).unwrap();
        }
        drop(writer);
        let until = clock::now() + PATIENCE;
        for want in ["one", "two", "three", ""] {
            assert_eq!(lines.next(until).unwrap(), Next::Line(want.into()));
        }
        assert_eq!(lines.next(until).unwrap(), Next::Closed);
    }

    #[test]
    fn a_line_may_be_as_long_as_the_bound_and_no_longer() {
        let until = clock::now() + PATIENCE;
        let longest = "x".repeat(LINE_BYTES_MAX - 1) + "\n";
        let (mut writer, mut lines) = lines();
        writer.write_all(longest.as_bytes()).unwrap();
        writer.write_all(format!("x{longest}").as_bytes()).unwrap();
        assert!(matches!(lines.next(until).unwrap(), Next::Line(line) if line.len() == 4_095));
        assert_eq!(lines.next(until).unwrap(), Next::TooLong);
    }

    #[test]
    fn who_says_nothing_or_no_end_of_a_line_is_silent() {
        let (mut writer, mut lines) = lines();
        writer.write_all(b"half a line").unwrap();
        assert_eq!(lines.next(clock::now() + Duration::from_millis(5)).unwrap(), Next::Silent);
        writer.write_all(b"\n").unwrap();
        assert_eq!(lines.next(clock::now()).unwrap(), Next::Line("half a line".into()));
    }
}
