//! A bounded queue of log lines, and the thread that writes them to standard error. A full queue drops lines
//! and counts them, so that no thread waits for a slow reader. The count is written once there is room again.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Condvar, PoisonError};
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Most texts in the queue; a text is a line or a death report.
pub(super) const TEXTS_MAX: usize = 4_096;
/// Lines of the audit that the queue takes beyond that. A user's orders have a limit.
const AUDIT_TEXTS_MAX: usize = 4_096;
/// Most bytes in the queue.
pub(super) const BYTES_MAX: usize = 1 << 20;

/// For limits of bytes in a minute.
const MINUTE: Duration = Duration::from_secs(60);

/// The queue.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState {
    texts: VecDeque<Vec<u8>>,
    /// Bytes of all texts in the queue.
    bytes: usize,
    /// Dropped lines. The queue takes no other text before it reports them, so the report is in their place.
    left_out: u64,
    is_writing: bool,
    /// What may be written in a minute, of each source.
    minutes: [Option<Minute>; 2],
}

/// Where lines come from. Each source has its own limit of a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Source {
    /// This process, about orders: without such a limit, and with room of its own in the queue.
    Audit,
    /// This process.
    #[default]
    Own,
    /// Workers.
    Workers,
}

/// A limit of bytes in a minute.
#[derive(Debug)]
struct Minute {
    bytes_max: usize,
    bytes: usize,
    began: Instant,
    /// Lines that were dropped for it, and not reported.
    left_out: u64,
}

impl Minute {
    /// What may still be written, now.
    fn left(&mut self) -> usize {
        let now = clock::now();
        if now.duration_since(self.began) >= MINUTE {
            (self.began, self.bytes) = (now, 0);
        }
        self.bytes_max.saturating_sub(self.bytes)
    }
}

impl Queue {
    pub(super) const fn new() -> Self {
        let texts = VecDeque::new();
        let minutes = [const { None }; 2];
        let state = QueueState { texts, bytes: 0, left_out: 0, is_writing: false, minutes };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Takes a text, or counts its lines. Never waits for a reader.
    pub(super) fn put(&self, source: Source, text: &[u8]) {
        self.state.lock().take(source, text);
        self.changed.notify_all();
    }

    /// From now on takes at most so many bytes of each source in a minute.
    pub(super) fn limit(&self, bytes_max: usize) {
        let began = clock::now();
        let minute = || Some(Minute { bytes_max, bytes: 0, began, left_out: 0 });
        self.state.lock().minutes = [minute(), minute()];
    }

    /// Waits until all texts are written, up to a timeout. Returns whether they are.
    pub(super) fn flush(&self, timeout: Duration) -> bool {
        let is_left = |state: &mut QueueState| state.is_writing || !state.is_empty();
        let waited = self.changed.wait_timeout_while(self.state.lock(), timeout, is_left);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Writes all texts, for ever. `missing` makes the report of dropped lines.
    pub(super) fn serve(&self, mut out: impl Write, missing: impl Fn(u64) -> String) -> ! {
        let mut state = self.state.lock();
        loop {
            if let Some(count) = state.take_left_out() {
                let text = missing(count).into_bytes();
                state.bytes += text.len();
                state.texts.push_back(text);
            }
            let Some(text) = state.texts.pop_front() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.bytes -= text.len();
            state.is_writing = true;
            drop(state);
            // The process goes on without a log once standard error is closed.
            drop(out.write_all(&text));
            state = self.state.lock();
            state.is_writing = false;
            if state.is_empty() {
                self.changed.notify_all();
            }
        }
    }
}

impl QueueState {
    fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.left_out == 0
    }

    /// Takes a text, or counts its lines.
    fn take(&mut self, source: Source, text: &[u8]) {
        let lines = text.split_inclusive(|&byte| byte == b'\n').count() as u64;
        let has_room = self.left_out == 0
            && self.texts.len() < TEXTS_MAX
            && self.bytes.saturating_add(text.len()) <= BYTES_MAX;
        let (minute, has_room) = match source {
            Source::Audit => (None, self.texts.len() < TEXTS_MAX + AUDIT_TEXTS_MAX),
            Source::Own => (self.minutes[0].as_mut(), has_room),
            Source::Workers => (self.minutes[1].as_mut(), has_room),
        };
        if let Some(minute) = minute {
            if text.len() > minute.left() {
                minute.left_out += lines;
                return;
            }
            minute.bytes += text.len();
        }
        if has_room {
            self.bytes += text.len();
            self.texts.push_back(text.to_vec());
        } else {
            self.left_out += lines;
        }
    }

    /// The number of dropped lines, once there is room for many more: otherwise every second line could be
    /// such a report.
    fn take_left_out(&mut self) -> Option<u64> {
        if self.texts.len() > TEXTS_MAX / 2 || self.bytes > BYTES_MAX / 2 {
            return None;
        }
        let over = self.minutes.iter_mut().flatten().filter_map(|minute| {
            let is_time = minute.left_out > 0 && minute.left() >= minute.bytes_max / 2;
            is_time.then(|| std::mem::take(&mut minute.left_out))
        });
        let count = over.sum::<u64>() + std::mem::take(&mut self.left_out);
        (count > 0).then_some(count)
    }
}

/// Standard error without the lock of the standard library. A writer may hang, and a panic must not wait for
/// its lock.
#[derive(Debug)]
pub(super) struct Unlocked;

impl Write for Unlocked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stderr = io::stderr();
        loop {
            match nix::unistd::write(&stderr, bytes) {
                // The parent process has made it non-blocking.
                Err(Errno::EAGAIN) => {
                    let mut wanted = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
                    match poll(&mut wanted, PollTimeout::NONE) {
                        Ok(_) | Err(Errno::EINTR) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// More than any of these tests needs.
    const TIMEOUT: Duration = Duration::from_secs(60);

    fn missing(count: u64) -> String {
        format!("{count} lines are missing\n")
    }

    /// A queue whose thread writes to a pipe, and the end to read from.
    fn piped() -> (Arc<Queue>, BufReader<io::PipeReader>) {
        let (reader, writer) = io::pipe().unwrap();
        let queue = Arc::new(Queue::new());
        let for_thread = Arc::clone(&queue);
        thread::spawn(move || for_thread.serve(writer, missing));
        (queue, BufReader::new(reader))
    }

    fn next(reader: &mut BufReader<io::PipeReader>) -> String {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    #[test]
    fn dropped_lines_are_counted_and_reported_in_their_place() {
        // More lines than the pipe and the queue hold; no thread reads the pipe, and `put` must not wait.
        for (length, count) in [(10, 20_000_u64), (5_000, 1_000)] {
            let (queue, mut reader) = piped();
            let fill = "x".repeat(length);
            (0..count)
                .for_each(|number| queue.put(Source::Own, format!("{number} {fill}\n").as_bytes()));
            assert!(!queue.flush(Duration::ZERO), "the lines are more than a pipe holds");
            {
                let state = queue.state.lock();
                assert!(state.texts.len() <= TEXTS_MAX && state.bytes <= BYTES_MAX);
            }
            let (mut seen, mut told) = (0, 0);
            while seen + told < count {
                let line = next(&mut reader);
                let (number, rest) = line.split_once(' ').unwrap();
                let number: u64 = number.parse().unwrap();
                if rest == "lines are missing" {
                    told += number;
                } else {
                    assert_eq!(number, seen + told, "in order, and every missing line is reported");
                    seen += 1;
                }
            }
            assert!(seen > 0 && told > 0, "{seen} of {count}, {told} missing");
            queue.put(Source::Own, b"later\n");
            assert_eq!(next(&mut reader), "later");
            assert!(queue.flush(TIMEOUT), "all is written");
        }
    }

    #[test]
    fn all_lines_of_a_block_are_counted() {
        let queue = Queue::new();
        queue.put(Source::Own, &vec![b'x'; BYTES_MAX + 1]);
        queue.put(Source::Own, b"died\n    next\n    stderr\n");
        assert_eq!(queue.state.lock().take_left_out(), Some(4));
        assert_eq!(queue.state.lock().take_left_out(), None);
    }

    #[test]
    fn lines_over_the_limit_of_a_minute_are_dropped_and_counted_once() {
        let (queue, mut reader) = piped();
        queue.limit(1_000);
        (0..1_000).for_each(|_| queue.put(Source::Own, b"twenty bytes a line\n"));
        (0..50).for_each(|_| assert_eq!(next(&mut reader), "twenty bytes a line"));
        assert_eq!(queue.state.lock().minutes[0].as_ref().unwrap().left_out, 950);
        queue.put(Source::Workers, b"of a worker\n");
        assert_eq!(next(&mut reader), "of a worker", "the other source has its own limit");
        // The minute is over.
        queue.state.lock().minutes[0].as_mut().unwrap().began -= MINUTE;
        queue.put(Source::Workers, b"one more\n");
        let said = [next(&mut reader), next(&mut reader)];
        assert!(said.iter().any(|line| line.contains("950")), "{said:?}");
    }

    #[test]
    fn the_audit_is_complete_whatever_else_is_dropped() {
        let (queue, mut reader) = piped();
        queue.limit(100);
        for number in 0..100 {
            queue.put(Source::Own, b"twenty bytes a line\n");
            queue.put(Source::Audit, format!("order {number}\n").as_bytes());
        }
        let lines = (0..105).map(|_| next(&mut reader));
        let orders: Vec<_> = lines.filter(|line| line.starts_with("order")).collect();
        assert_eq!(orders.len(), 100);
        assert_eq!(orders[99], "order 99");
        // Nobody reads.
        let queue = Queue::new();
        (0..3 * AUDIT_TEXTS_MAX).for_each(|_| queue.put(Source::Audit, b"order\n"));
        let state = queue.state.lock();
        assert_eq!(state.texts.len() as u64 + state.left_out, 3 * AUDIT_TEXTS_MAX as u64);
        assert_eq!(state.texts.len(), TEXTS_MAX + AUDIT_TEXTS_MAX);
    }

    #[test]
    fn a_closed_log_delays_no_thread() {
        let (queue, reader) = piped();
        drop(reader);
        (0..100).for_each(|_| queue.put(Source::Own, &[b'x'; 4_096]));
        assert!(queue.flush(TIMEOUT));
    }
}
