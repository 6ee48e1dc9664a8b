//! The standard error of a worker process. A thread reads it, passes the lines to our log with the worker's name,
//! and keeps the last lines for the death report.
//!
//! It is a socket, not a pipe. After the process has ended we can shut our end down, so a process that it started
//! and left behind delays nothing.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::WorkerId;

use crate::logging;

/// Longest line that is passed on; the rest of a longer one is left out, and [`CUT`] is in its place.
const LINE_BYTES_MAX: usize = 8 << 10;
/// See [`LINE_BYTES_MAX`].
const CUT: &str = " … (the rest of this line is left out)";
/// Lines that are kept.
const LINES_KEPT: usize = 20;
/// Longest line that is kept, in characters.
const KEPT_CHARS_MAX: usize = 400;
/// Lines of one worker that are passed on in each [`WINDOW`]; more are dropped and counted.
const LINES_PER_WINDOW: u32 = 100;
/// See [`LINES_PER_WINDOW`].
const WINDOW: Duration = Duration::from_secs(1);
/// How long the thread may take to read the rest after the process has ended. It normally takes no time, even if
/// our own log has no reader.
const REST_TIMEOUT: Duration = Duration::from_millis(200);

/// The standard error of one worker.
#[derive(Debug)]
pub(super) struct Stderr {
    socket: UnixStream,
    last: Arc<Mutex<VecDeque<String>>>,
    /// Disconnected once all is read.
    over: Receiver<()>,
}

impl Stderr {
    /// Reads all that `worker` writes to the other end of `socket`, from now on.
    pub(super) fn follow(worker: WorkerId, socket: UnixStream) -> io::Result<Self> {
        let last = Arc::default();
        let (reads, over) = crossbeam_channel::bounded(0);
        let mut reader = Reader {
            worker,
            socket: socket.try_clone()?,
            last: Arc::clone(&last),
            gate: Gate::default(),
            _reads: reads,
        };
        thread::Builder::new().name(format!("{worker} stderr")).spawn(move || reader.read_all())?;
        Ok(Self { socket, last, over })
    }

    /// Returns the last lines of a process that has ended, the newest last.
    pub(super) fn close(self) -> Vec<String> {
        // Bytes in the socket can still be read.
        if let Err(error) = self.socket.shutdown(Shutdown::Both) {
            tracing::debug!(%error, "standard error was closed already");
        }
        if self.over.recv_timeout(REST_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::debug!("standard error is not read to its end: the lines so far have to do");
        }
        self.last.lock().drain(..).collect()
    }
}

struct Reader {
    worker: WorkerId,
    socket: UnixStream,
    last: Arc<Mutex<VecDeque<String>>>,
    gate: Gate,
    /// Dropped at the end.
    _reads: crossbeam_channel::Sender<()>,
}

impl Reader {
    fn read_all(&mut self) {
        let mut lines = Splitter::default();
        let mut bytes = [0; 8 << 10];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => lines.push(&bytes[..count], |line| self.take(line)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nothing more for a while, of a worker that has written too much before.
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    self.report();
                }
                Err(error) => {
                    tracing::debug!(worker = %self.worker, %error, "reading standard error");
                    break;
                }
            }
        }
        lines.end(|line| self.take(line));
        self.report();
    }

    /// One line, whatever is in it.
    fn take(&mut self, line: &[u8]) {
        let line = readable(line);
        if line.is_empty() {
            return;
        }
        {
            let mut last = self.last.lock();
            if last.len() == LINES_KEPT {
                last.pop_front();
            }
            last.push_back(shortened(&line));
        }
        let now = clock::now();
        if self.gate.is_over(now) {
            self.report();
        }
        if !self.gate.admits(now) {
            return self.wake_up_later();
        }
        let worker = self.worker;
        if !logging::pass_on(worker, &line) {
            tracing::warn!(%worker, line, "standard error");
        }
    }

    /// Logs the number of dropped lines, if there are any.
    fn report(&mut self) {
        let dropped = std::mem::take(&mut self.gate.dropped);
        if dropped == 0 {
            return;
        }
        let worker = self.worker;
        tracing::warn!(%worker, dropped, "lines of its standard error were left out: too many");
        if let Err(error) = self.socket.set_read_timeout(None) {
            tracing::debug!(%worker, %error, "a time limit cannot be lifted");
        }
    }

    /// Logs the dropped lines when the worker has fallen silent.
    fn wake_up_later(&self) {
        if self.gate.dropped == 1
            && let Err(error) = self.socket.set_read_timeout(Some(WINDOW))
        {
            tracing::debug!(worker = %self.worker, %error, "a time limit cannot be set");
        }
    }
}

/// Passes a number of lines in each window, and counts the others.
#[derive(Debug, Default)]
struct Gate {
    since: Option<Instant>,
    passed: u32,
    dropped: u64,
}

impl Gate {
    fn is_over(&self, now: Instant) -> bool {
        self.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW)
    }

    fn admits(&mut self, now: Instant) -> bool {
        if self.is_over(now) {
            (self.since, self.passed) = (Some(now), 0);
        }
        if self.passed == LINES_PER_WINDOW {
            self.dropped += 1;
            return false;
        }
        self.passed += 1;
        true
    }
}

/// Cuts bytes into lines of bounded length.
#[derive(Debug, Default)]
struct Splitter {
    line: Vec<u8>,
    /// Whether the line was longer.
    is_cut: bool,
}

impl Splitter {
    fn push(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let text = piece.strip_suffix(b"\n");
            let room = LINE_BYTES_MAX - self.line.len();
            let more = text.unwrap_or(piece);
            self.is_cut |= more.len() > room;
            self.line.extend(&more[..more.len().min(room)]);
            if text.is_some() {
                self.give(&mut take);
            }
        }
    }

    /// The rest after the last line.
    fn end(&mut self, mut take: impl FnMut(&[u8])) {
        if !self.line.is_empty() {
            self.give(&mut take);
        }
    }

    fn give(&mut self, take: &mut impl FnMut(&[u8])) {
        if std::mem::take(&mut self.is_cut) {
            self.line.extend(CUT.bytes());
        }
        take(&self.line);
        self.line.clear();
    }
}

/// The text of a line, without characters that control a terminal.
fn readable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    match text.contains(|c: char| c.is_control() && c != '\t') {
        false => text.to_owned(),
        true => text
            .chars()
            .map(|c| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c })
            .collect(),
    }
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(KEPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use gridpool_protocol::ids::{DeviceId, DeviceKind, Group};

    use super::*;

    fn worker() -> WorkerId {
        let device = DeviceId { kind: DeviceKind::Cpu, index: 0 };
        WorkerId { device, group: Group::Grid, generation: 3 }
    }

    #[test]
    fn bytes_are_cut_into_lines_however_they_come_and_long_ones_are_cut_short() {
        let mut lines = Vec::new();
        let mut splitter = Splitter::default();
        let long = vec![b'x'; 3 * LINE_BYTES_MAX];
        let whole = vec![b'y'; LINE_BYTES_MAX];
        for piece in [b"a\nb".as_slice(), b"c\n", &long, &long, b"\n", &whole, b"\n\nrest"] {
            splitter.push(piece, |line| lines.push(line.to_vec()));
        }
        splitter.end(|line| lines.push(line.to_vec()));
        assert_eq!(lines[..2], [b"a".to_vec(), b"bc".to_vec()]);
        assert_eq!(lines[2].strip_suffix(CUT.as_bytes()), Some(&long[..LINE_BYTES_MAX]));
        assert_eq!(lines[3..], [whole, b"".to_vec(), b"rest".to_vec()]);
    }

    #[test]
    fn a_line_is_text_that_does_nothing_to_a_terminal() {
        assert_eq!(readable(b"a\xff\x1b[2J\tb \r"), "a\u{fffd}\u{fffd}[2J\tb");
        assert_eq!(shortened(&"ä".repeat(KEPT_CHARS_MAX + 1)).chars().count(), KEPT_CHARS_MAX + 1);
    }

    #[test]
    fn so_many_lines_pass_in_a_window_and_the_others_are_counted() {
        let (mut gate, start) = (Gate::default(), clock::now());
        let passed = (0..3 * LINES_PER_WINDOW).filter(|_| gate.admits(start)).count();
        assert_eq!(passed, LINES_PER_WINDOW as usize);
        assert_eq!(gate.dropped, u64::from(2 * LINES_PER_WINDOW));
        assert!(!gate.is_over(start) && gate.is_over(start + WINDOW));
        assert!(gate.admits(start + WINDOW));
    }

    #[test]
    fn the_last_lines_are_kept_although_the_other_end_is_still_open() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let stderr = Stderr::follow(worker(), ours).unwrap();
        for number in 0..3 * LINES_KEPT {
            writeln!(theirs, "line {number}").unwrap();
        }
        theirs.write_all(b"last words").unwrap();
        let last = stderr.close();
        assert_eq!(last.len(), LINES_KEPT);
        assert_eq!(last[LINES_KEPT - 1], "last words");
        assert_eq!(last[LINES_KEPT - 2], format!("line {}", 3 * LINES_KEPT - 1));
        let error = theirs.write_all(b"more").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
