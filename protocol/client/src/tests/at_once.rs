//! Jobs that are sent by threads that must not wait: `try_send`.

use std::sync::mpsc;

use super::*;

fn try_send(client: &Client, job: &Job<TensorOutputs>) -> Option<Handle<TensorOutputs>> {
    client.try_send(job).unwrap()
}

#[test]
fn a_job_is_sent_at_once_if_its_memory_was_lent_before() {
    let script = |server: &mut Server| {
        for _ in 0..2 {
            let small = server.submitted();
            assert_eq!(server.input(&small), packed("x", 10));
            server.answer(&small, &packed("y", 7));
            let large = server.submitted();
            assert_eq!(server.input(&large), packed("x", LARGE));
            server.answer(&large, &packed("y", LARGE));
        }
    };
    against(script, |client| {
        let (small, large) = (request(10, 100), request(LARGE, 2 * LARGE));
        gives(try_send(client, &small).unwrap().wait().unwrap(), 7);
        assert!(try_send(client, &large).is_none(), "the pool would have to lend memory");
        gives(client.send(large.clone()).unwrap().wait().unwrap(), LARGE);
        gives(try_send(client, &small).unwrap().wait().unwrap(), 7);
        gives(try_send(client, &large).unwrap().wait().unwrap(), LARGE);
        assert_eq!(client.arenas_made(), 2);
    });
}

#[test]
fn a_job_whose_outputs_have_no_known_size_is_not_sent_at_once() {
    // It would hear a query.
    let script = |server: &mut Server| {
        let named = server.submitted();
        server.answer(&named, &packed("y", 7));
    };
    against(script, |client| {
        let (x, data) = tensor("x", 10);
        let job = Job::model("m", [ModelInput::from_bytes(x, data).unwrap()]).unwrap();
        assert!(try_send(client, &job).is_none());
        gives(try_send(client, &job.with_output_bytes(100)).unwrap().wait().unwrap(), 7);
    });
}

#[test]
fn nothing_is_sent_at_once_to_a_pool_that_does_not_read() {
    let (told, tell) = mpsc::channel();
    let script = move |server: &mut Server| {
        let sent: usize = tell.recv_timeout(TIMEOUT).unwrap();
        for _ in 0..=sent {
            let asked = server.submitted();
            server.answer(&asked, &packed("y", 7));
        }
    };
    against(script, |client| {
        const MANY: usize = 10_000;
        let job = request(1_000, 100);
        let sent: Vec<_> = (0..MANY).map_while(|_| try_send(client, &job)).collect();
        assert!((1..MANY).contains(&sent.len()), "{} were sent", sent.len());
        assert!(try_send(client, &job).is_none());
        told.send(sent.len()).unwrap();
        sent.into_iter().for_each(|own| gives(own.wait().unwrap(), 7));
        gives(try_send(client, &job).unwrap().wait().unwrap(), 7);
    });
}

#[test]
fn nothing_is_sent_at_once_while_the_client_reconnects() {
    let path = std::env::temp_dir().join(format!("gridpool-at-once-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let (told, tell) = mpsc::channel::<()>();
    let (opens, opened) = mpsc::channel::<()>();
    let server = thread::spawn(move || {
        let mut first = Server::greeted(listener.accept().unwrap().0);
        first.submitted();
        drop(first);
        let mut second = Server::greeted(listener.accept().unwrap().0);
        // The client has its new connection, and waits for the memory of the job.
        let frame = second.reader.read(Some(TIMEOUT)).unwrap().unwrap();
        let message = codec::decode(&frame.body).unwrap();
        let ClientMessage::CreateArena { request, bytes } = message else { panic!("{message:?}") };
        opens.send(()).unwrap();
        tell.recv_timeout(TIMEOUT).unwrap();
        second.make_arena(request, bytes);
        for bytes in [LARGE, 7] {
            let asked = second.submitted();
            second.answer(&asked, &packed("y", bytes));
        }
    });
    let client = Client::connect(&path).unwrap();
    let large = client.send(request(LARGE, 100)).unwrap();
    let small = request(10, 100);
    thread::scope(|scope| {
        let waits = scope.spawn(|| large.wait().unwrap());
        opened.recv_timeout(TIMEOUT).unwrap();
        assert!(client.connection.wire.is_open());
        assert!(try_send(&client, &small).is_none());
        told.send(()).unwrap();
        gives(waits.join().unwrap(), LARGE);
    });
    gives(try_send(&client, &small).unwrap().wait().unwrap(), 7);
    server.join().unwrap();
    std::fs::remove_file(&path).unwrap();
}
