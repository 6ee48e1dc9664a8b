//! Futures under a minimal executor.

use std::collections::VecDeque;
use std::future::IntoFuture;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};

use super::*;

/// Unparks the thread that waits.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future.into_future());
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn one_thread_awaits_many_answers_in_any_order() {
    const REQUESTS: usize = 20;
    let script = |server: &mut Server| {
        let asked: Vec<_> = (0..REQUESTS).map(|_| server.accept()).collect();
        asked.iter().rev().for_each(|asked| server.answer(asked, &packed("y", 7)));
    };
    against(script, |client| {
        let send = |_| client.send(request(10, 100)).unwrap().into_future();
        let mut futures: VecDeque<_> = (0..REQUESTS).map(send).collect();
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        while let Some(mut future) = futures.pop_front() {
            match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(answer) => gives(answer.unwrap(), 7),
                Poll::Pending => {
                    futures.push_back(future);
                    thread::park_timeout(Duration::from_millis(10));
                }
            }
        }
    });
}

#[test]
fn a_future_and_a_thread_wait_on_one_connection() {
    let (told, tell) = mpsc::channel();
    let script = move |server: &mut Server| {
        let [first, second] = [server.accept(), server.accept()];
        server.answer(&first, &packed("y", 7));
        tell.recv_timeout(TIMEOUT).unwrap();
        server.answer(&second, &packed("y", 8));
    };
    against(script, |client| {
        let first = client.submit(request(10, 100)).unwrap();
        let second = client.submit(request(10, 100)).unwrap();
        let awaited = thread::spawn(move || block_on(second));
        gives(first.wait().unwrap(), 7);
        told.send(()).unwrap();
        gives(awaited.join().unwrap().unwrap(), 8);
    });
}

#[test]
fn a_future_that_is_dropped_cancels_its_job() {
    let script = |server: &mut Server| {
        let asked = server.accept();
        assert_eq!(server.hear(), ClientMessage::Cancel { key: asked.key });
    };
    against(script, |client| {
        let mut future = client.submit(request(10, 100)).unwrap().into_future();
        let waker = Waker::noop();
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(waker)).is_pending());
    });
}

#[test]
fn a_job_that_a_busy_pool_refuses_is_submitted_again_while_its_future_waits() {
    against(often_busy, |client| {
        gives(block_on(client.send(request(10, 100)).unwrap()).unwrap(), 7);
        let refused = client.send(request(10, 100).refuse_if_busy()).unwrap();
        let error = block_on(refused).unwrap_err();
        assert!(matches!(error, ClientError::Refused(Refusal::Busy(_))), "{error}");
    });
}

#[test]
fn futures_end_if_the_connection_is_lost_for_good() {
    let script = |server: &mut Server| {
        let asked = server.accept();
        server.say(&ServerMessage::Closing { reason: format!("no more after {}", asked.key) });
    };
    against(script, |client| {
        let handle = client.submit(request(10, 100)).unwrap();
        let error = block_on(handle).unwrap_err();
        assert!(matches!(error, ClientError::Closed(_)), "{error}");
        let error = client.send(request(10, 100)).and_then(block_on).unwrap_err();
        assert!(matches!(error, ClientError::Closed(_)), "{error}");
    });
}
