//! A runtime that watches the socket reads for futures.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};

use super::*;

/// Says that it was woken.
struct Tell(mpsc::Sender<()>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        // The test may have ended.
        self.0.send(()).unwrap_or(());
    }
}

fn waker() -> (Waker, mpsc::Receiver<()>) {
    let (tell, told) = mpsc::channel();
    (Arc::new(Tell(tell)).into(), told)
}

#[test]
fn futures_are_read_for_by_whoever_watches_and_by_no_thread() {
    let (told, tell) = mpsc::channel::<()>();
    let (says, said) = mpsc::channel::<()>();
    let script = move |server: &mut Server| {
        let asked = server.submitted();
        tell.recv_timeout(TIMEOUT).unwrap();
        server.answer(&asked, &packed("y", 7));
        says.send(()).unwrap();
        let asked = server.submitted();
        server.answer(&asked, &packed("y", 8));
    };
    against(script, |client| {
        let watch = client.watch().unwrap().unwrap();
        assert!(client.watch().unwrap().is_none(), "one reads");
        let (waker, woken) = waker();
        let mut context = Context::from_waker(&waker);
        let mut future = client.send(request(10, 100)).unwrap().into_future();
        assert!(Pin::new(&mut future).poll(&mut context).is_pending());
        assert!(matches!(watch.poll_read(&mut context), Poll::Ready(Ok(true))), "nothing yet");
        told.send(()).unwrap();
        said.recv_timeout(TIMEOUT).unwrap();
        assert!(woken.recv_timeout(Duration::from_millis(50)).is_err(), "no thread reads");
        assert!(matches!(watch.poll_read(&mut context), Poll::Ready(Ok(true))));
        woken.recv_timeout(TIMEOUT).unwrap();
        let Poll::Ready(answer) = Pin::new(&mut future).poll(&mut context) else {
            panic!("no answer")
        };
        gives(answer.unwrap(), 7);
        // A thread reads again for a future that waits already.
        let mut future = client.send(request(10, 100)).unwrap().into_future();
        if Pin::new(&mut future).poll(&mut context).is_pending() {
            drop(watch);
            woken.recv_timeout(TIMEOUT).unwrap();
        }
        let Poll::Ready(answer) = Pin::new(&mut future).poll(&mut context) else {
            panic!("no answer")
        };
        gives(answer.unwrap(), 8);
    });
}

#[test]
fn whoever_watches_is_woken_when_a_thread_has_read() {
    let script = |server: &mut Server| {
        let [first, second] = [server.submitted(), server.submitted()];
        server.answer(&first, &packed("y", 7));
        server.answer(&second, &packed("y", 8));
    };
    against(script, |client| {
        let watch = client.watch().unwrap().unwrap();
        let reader = client.connection.lock().reader.take().unwrap();
        let (waker, woken) = waker();
        let mut context = Context::from_waker(&waker);
        assert!(watch.poll_read(&mut context).is_pending(), "another thread has the reading side");
        client.connection.lock().put_back(reader);
        client.connection.wake();
        woken.recv_timeout(TIMEOUT).unwrap();
        assert!(watch.poll_read(&mut context).is_ready());
        // A thread that waits reads, too.
        let second = [7, 8].map(|bytes| (client.send(request(10, 100)).unwrap(), bytes));
        second.into_iter().for_each(|(handle, bytes)| gives(handle.wait().unwrap(), bytes));
    });
}

#[test]
fn a_lost_connection_ends_the_watch_and_a_thread_reconnects() {
    let path = std::env::temp_dir().join(format!("gridpool-watch-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        let mut first = Server::greeted(listener.accept().unwrap().0);
        first.submitted();
        drop(first);
        let mut second = Server::greeted(listener.accept().unwrap().0);
        let asked = second.submitted();
        second.answer(&asked, &packed("y", 7));
        second
    });
    let client = Client::connect(&path).unwrap();
    let watch = client.watch().unwrap().unwrap();
    let (waker, woken) = waker();
    let mut context = Context::from_waker(&waker);
    let mut future = client.send(request(10, 100)).unwrap().into_future();
    assert!(Pin::new(&mut future).poll(&mut context).is_pending());
    while !matches!(watch.poll_read(&mut context), Poll::Ready(Err(ClientError::Lost))) {
        thread::yield_now();
    }
    drop(watch);
    woken.recv_timeout(TIMEOUT).unwrap();
    let Poll::Ready(answer) = Pin::new(&mut future).poll(&mut context) else { panic!("no answer") };
    gives(answer.unwrap(), 7);
    // As long as that is there.
    let server = server.join().unwrap();
    assert!(client.watch().unwrap().is_some(), "the new connection can be watched");
    drop(server);
    std::fs::remove_file(&path).unwrap();
}
