//! Handles that are polled: `try_wait`.

use std::sync::mpsc;

use super::*;

/// Polls until the answer is there.
fn poll(handle: &mut Handle<TensorOutputs>) -> Result<Answer<TensorOutputs>, ClientError> {
    loop {
        if let Some(answer) = handle.try_wait()? {
            return Ok(answer);
        }
        thread::yield_now();
    }
}

#[test]
fn a_handle_gives_its_answer_once_when_it_has_come() {
    let (told, tell) = mpsc::channel();
    let script = move |server: &mut Server| {
        let asked = server.accept();
        tell.recv_timeout(TIMEOUT).unwrap();
        server.answer(&asked, &packed("y", 7));
        // The key is free again, and the first handle must leave its second job alone.
        let again = server.accept();
        assert_eq!(asked.key, again.key);
        server.answer(&again, &packed("y", 8));
    };
    against(script, |client| {
        let mut handle = client.send(request(10, 100).with_key(JobKey(7))).unwrap();
        assert!(handle.try_wait().unwrap().is_none());
        told.send(()).unwrap();
        gives(poll(&mut handle).unwrap(), 7);
        let again = client.submit(request(10, 100).with_key(JobKey(7))).unwrap();
        handle.cancel();
        assert!(matches!(handle.try_wait(), Err(ClientError::Taken)));
        assert!(matches!(handle.wait(), Err(ClientError::Taken)));
        gives(again.wait().unwrap(), 8);
    });
}

#[test]
fn a_wait_for_some_time_ends_without_an_answer_and_the_next_one_has_it() {
    let (told, tell) = mpsc::channel();
    let script = move |server: &mut Server| {
        let asked = server.accept();
        tell.recv_timeout(TIMEOUT).unwrap();
        server.answer(&asked, &packed("y", 7));
    };
    against(script, |client| {
        let mut handle = client.send(request(10, 100)).unwrap();
        assert!(handle.wait_for(Duration::from_millis(20)).unwrap().is_none());
        assert!(handle.wait_for(Duration::ZERO).unwrap().is_none());
        told.send(()).unwrap();
        gives(handle.wait_for(TIMEOUT).unwrap().unwrap(), 7);
        assert!(matches!(handle.wait_for(TIMEOUT), Err(ClientError::Taken)));
    });
}

#[test]
fn polling_submits_again_to_a_busy_pool_and_returns_a_final_refusal() {
    against(often_busy, |client| {
        gives(poll(&mut client.send(request(10, 100)).unwrap()).unwrap(), 7);
        let error = poll(&mut client.send(request(10, 100).refuse_if_busy()).unwrap()).unwrap_err();
        assert!(matches!(error, ClientError::Refused(Refusal::Busy(_))), "{error}");
    });
}

#[test]
fn polling_does_not_wait_for_a_reconnect() {
    let path = std::env::temp_dir().join(format!("gridpool-polling-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let (told, tell) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut first = Server::greeted(listener.accept().unwrap().0);
        first.accept();
        drop(first);
        // The client's new connection is not answered before the client has polled.
        tell.recv_timeout(TIMEOUT).unwrap();
        let mut second = Server::greeted(listener.accept().unwrap().0);
        let again = second.accept();
        second.answer(&again, &packed("y", 7));
        second
    });
    let client = Client::connect(&path).unwrap();
    let mut handle = client.submit(request(10, 100)).unwrap();
    while client.connection.wire.is_open() {
        assert!(handle.try_wait().unwrap().is_none());
        thread::yield_now();
    }
    assert!(handle.try_wait().unwrap().is_none());
    told.send(()).unwrap();
    gives(poll(&mut handle).unwrap(), 7);
    drop(server.join().unwrap());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_job_that_is_cancelled_while_the_pool_is_busy_is_not_submitted_again() {
    let script = |server: &mut Server| {
        let submission = server.submitted();
        // Longer than the test may take.
        let refusal = Refusal::Busy(Limit::Kills { back_s: 600 });
        server.say(&ServerMessage::Refused { key: submission.key, refusal });
        let next = server.hear();
        assert!(matches!(next, ClientMessage::Cancel { key } if key == submission.key), "{next:?}");
    };
    against(script, |client| {
        let handle =
            client.send(request(10, 100).with_deadline(Duration::from_secs(3_600))).unwrap();
        let canceller = handle.canceller();
        thread::scope(|scope| {
            let waiting = scope.spawn(move || handle.wait().unwrap_err());
            // Also if it has not heard of the refusal yet.
            canceller.cancel();
            let error = waiting.join().unwrap();
            assert!(matches!(error, ClientError::Refused(Refusal::Busy(_))), "{error}");
        });
    });
}
