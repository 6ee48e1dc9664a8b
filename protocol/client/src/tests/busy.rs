//! A client that sends more jobs than the pool takes from it.

use std::sync::mpsc;

use super::*;

fn refuse(server: &Server, submission: &Submission, limit: Limit) {
    let refusal = Refusal::Busy(limit);
    server.say(&ServerMessage::Refused { key: submission.key, refusal });
}

#[test]
fn jobs_beyond_the_limit_are_sent_in_turn_when_others_end() {
    let (told, is_told) = mpsc::channel();
    let script = move |server: &mut Server| {
        let [first, second, third] = [(); 3].map(|()| server.submitted());
        refuse(server, &second, Limit::ClientJobs);
        refuse(server, &third, Limit::ClientJobs);
        server.say(&ServerMessage::Accepted { key: first.key });
        for expected in [&first, &second, &third] {
            let next = if expected.key == first.key { first.clone() } else { server.accept() };
            assert_eq!(next.key, expected.key);
            told.send(()).unwrap();
            server.answer(&next, &packed("y", 7));
        }
    };
    against(script, |client| {
        let [first, second, third] = [(); 3].map(|()| client.send(request(10, 100)).unwrap());
        for handle in [first, second] {
            handle.wait().unwrap();
            is_told.recv_timeout(TIMEOUT).unwrap();
        }
        // Nobody waits for the third: the end of the second has sent it.
        is_told.recv_timeout(TIMEOUT).unwrap();
        third.wait().unwrap();
    });
}

#[test]
fn jobs_that_the_pool_would_refuse_are_not_sent_unless_they_must_not_wait() {
    const JOBS: usize = 50;
    let script = |server: &mut Server| {
        let [first, second] = [(); 2].map(|()| server.submitted());
        refuse(server, &second, Limit::ClientJobs);
        server.say(&ServerMessage::Accepted { key: first.key });
        let mut tried = 0;
        let urgent = loop {
            let next = server.submitted();
            if next.key == JobKey(7) {
                break next;
            }
            // It was sent so late after the last that the pool may have room.
            refuse(server, &next, Limit::ClientJobs);
            tried += 1;
        };
        assert!(tried < JOBS, "{tried} were sent");
        server.answer(&urgent, &packed("y", 7));
        server.answer(&first, &packed("y", 7));
        for _ in 0..=JOBS {
            let next = server.submitted();
            server.answer(&next, &packed("y", 7));
        }
    };
    against(script, |client| {
        let [first, second] = [(); 2].map(|()| client.send(request(10, 100)).unwrap());
        let first = first.accepted().unwrap();
        let others: Vec<_> = (0..JOBS).map(|_| client.send(request(10, 100)).unwrap()).collect();
        client.run(request(10, 100).with_key(JobKey(7)).refuse_if_busy()).unwrap();
        for handle in [first, second].into_iter().chain(others) {
            handle.wait().unwrap();
        }
    });
}

#[test]
fn a_job_that_is_cancelled_or_refused_for_good_gives_its_turn_to_the_next() {
    let (told, is_told) = mpsc::channel();
    let script = move |server: &mut Server| {
        let [first, second, third, fourth] = [(); 4].map(|()| server.submitted());
        for held in [&second, &third, &fourth] {
            refuse(server, held, Limit::PrincipalJobs);
        }
        server.say(&ServerMessage::Accepted { key: first.key });
        assert_eq!(server.hear(), ClientMessage::Cancel { key: second.key });
        server.answer(&first, &packed("y", 7));
        assert_eq!(server.submitted().key, third.key);
        let refusal = Refusal::Invalid("it is wrong".into());
        server.say(&ServerMessage::Refused { key: third.key, refusal });
        let last = server.accept();
        assert_eq!(last.key, fourth.key);
        told.send(()).unwrap();
        server.answer(&last, &packed("y", 7));
    };
    against(script, |client| {
        let [first, second, third, fourth] =
            [(); 4].map(|()| client.send(request(10, 100)).unwrap());
        let first = first.accepted().unwrap();
        second.cancel();
        first.wait().unwrap();
        third.wait().unwrap_err();
        is_told.recv_timeout(TIMEOUT).unwrap();
        fourth.wait().unwrap();
    });
}

#[test]
fn after_a_reconnect_the_end_of_a_job_sends_those_that_were_held() {
    let path = std::env::temp_dir().join(format!("gridpool-held-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let (told, is_told) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut server = Server::greeted(listener.accept().unwrap().0);
        let [first, second] = [(); 2].map(|()| server.submitted());
        refuse(&server, &second, Limit::ClientJobs);
        server.say(&ServerMessage::Accepted { key: first.key });
        drop(server);
        let mut server = Server::greeted(listener.accept().unwrap().0);
        let again = server.accept();
        assert_eq!(again.key, first.key);
        server.answer(&again, &packed("y", 7));
        let next = server.accept();
        assert_eq!(next.key, second.key);
        told.send(()).unwrap();
        server.answer(&next, &packed("y", 7));
        server
    });
    let client = Client::connect(&path).unwrap();
    let [first, second] = [(); 2].map(|()| client.send(request(10, 100)).unwrap());
    first.wait().unwrap();
    // Nobody waits for the second.
    is_told.recv_timeout(TIMEOUT).unwrap();
    second.wait().unwrap();
    drop((client, server.join().unwrap()));
    std::fs::remove_file(&path).unwrap();
}
