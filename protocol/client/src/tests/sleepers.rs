//! Threads that share a client: which of them are woken.

use std::sync::Barrier;

use super::*;

/// Threads that wait at the same time.
const THREADS: u64 = 16;

/// How often this thread has slept.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn an_answer_wakes_the_thread_that_waits_for_it_and_one_reads_for_the_others() {
    let (told, tell) = std::sync::mpsc::channel::<()>();
    let script = move |server: &mut Server| {
        let asked: Vec<_> = (0..THREADS).map(|_| server.submitted()).collect();
        // From the first thread to the last that sent: each is the next to have its answer, or the one that reads.
        for own in asked {
            server.answer(&own, &packed("y", 7));
            tell.recv_timeout(TIMEOUT).unwrap();
        }
    };
    against(script, |client| {
        let sent = Barrier::new(usize::try_from(THREADS).unwrap());
        let wait = || {
            let handle = client.send(request(10, 100)).unwrap();
            sent.wait();
            let before = sleeps();
            gives(handle.wait().unwrap(), 7);
            let slept = sleeps() - before;
            told.send(()).unwrap();
            slept
        };
        let slept: u64 = thread::scope(|scope| {
            let waiting: Vec<_> = (0..THREADS).map(|_| scope.spawn(wait)).collect();
            waiting.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        // Each sleeps once; who reads sleeps for each message. If all were woken by each, it would be 136.
        assert!(slept < 6 * THREADS, "{slept}");
    });
}

#[test]
fn the_next_thread_reads_when_the_one_that_read_has_its_answer_or_gives_up() {
    let (told, tell) = std::sync::mpsc::channel::<()>();
    let script = move |server: &mut Server| {
        let asked: Vec<_> = (0..3).map(|_| server.submitted()).collect();
        tell.recv_timeout(TIMEOUT).unwrap();
        // The first one reads no more.
        server.answer(&asked[1], &packed("y", 7));
        tell.recv_timeout(TIMEOUT).unwrap();
        server.answer(&asked[2], &packed("y", 7));
        server.answer(&asked[0], &packed("y", 7));
    };
    against(script, |client| {
        let [mut first, second, third] = [(); 3].map(|()| client.send(request(10, 100)).unwrap());
        let is_read = || client.connection.lock().reader.is_none();
        thread::scope(|scope| {
            let first = scope.spawn(move || {
                let wait = Duration::from_millis(200);
                assert!(first.wait_for(wait).unwrap().is_none());
                first
            });
            while !is_read() {
                thread::yield_now();
            }
            let second = scope.spawn(|| gives(second.wait().unwrap(), 7));
            let third = scope.spawn(|| gives(third.wait().unwrap(), 7));
            let first = first.join().unwrap();
            told.send(()).unwrap();
            second.join().unwrap();
            told.send(()).unwrap();
            third.join().unwrap();
            gives(first.wait().unwrap(), 7);
        });
    });
}
