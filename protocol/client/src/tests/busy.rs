//! A client that sends more jobs than the pool takes from it.

use std::sync::mpsc;

use super::*;

/// The pool accepts the first job and refuses the second, then the third is sent, and the first answered. While nobody
/// waits for the second, the client sends it.
fn sends_when_one_ends(third: fn(Job<TensorOutputs>) -> Job<TensorOutputs>, is_sent_at_once: bool) {
    let (told, is_told) = mpsc::channel();
    let (sent, is_sent) = mpsc::channel();
    let script = move |server: &mut Server| {
        let [first, second] = [(); 2].map(|()| server.submitted());
        let refusal = Refusal::Busy(Limit::ClientJobs);
        server.say(&ServerMessage::Refused { key: second.key, refusal });
        server.say(&ServerMessage::Accepted { key: first.key });
        is_sent.recv_timeout(TIMEOUT).unwrap();
        let third = is_sent_at_once.then(|| server.accept());
        server.answer(&first, &packed("y", 7));
        let again = server.accept();
        assert_eq!(again.key, JobKey(2));
        told.send(()).unwrap();
        server.answer(&again, &packed("y", 7));
        let third = third.unwrap_or_else(|| server.accept());
        assert_eq!(third.key, JobKey(3));
        server.answer(&third, &packed("y", 7));
    };
    against(script, |client| {
        let job = |key| request(10, 100).with_key(JobKey(key));
        let [first, second] = [1, 2].map(|key| client.send(job(key)).unwrap());
        let first = first.accepted().unwrap();
        let third = client.send(third(job(3))).unwrap();
        sent.send(()).unwrap();
        first.wait().unwrap();
        // Nobody waits for the second: the end of the first has sent it.
        is_told.recv_timeout(TIMEOUT).unwrap();
        second.wait().unwrap();
        third.wait().unwrap();
    });
}

#[test]
fn jobs_beyond_the_limit_are_sent_in_turn_when_others_end() {
    sends_when_one_ends(|job| job, false);
}

#[test]
fn a_job_that_does_not_wait_for_a_busy_pool_is_sent_at_once() {
    sends_when_one_ends(Job::refuse_if_busy, true);
}

#[test]
fn a_dropped_job_gives_its_turn_to_the_next() {
    let script = |server: &mut Server| {
        let [first, second, third] = [(); 3].map(|()| server.submitted());
        for key in [second.key, third.key] {
            let refusal = Refusal::Busy(Limit::PrincipalJobs);
            server.say(&ServerMessage::Refused { key, refusal });
        }
        server.say(&ServerMessage::Accepted { key: first.key });
        assert_eq!(server.hear(), ClientMessage::Cancel { key: second.key });
        server.answer(&first, &packed("y", 7));
        let again = server.accept();
        assert_eq!(again.key, third.key);
        server.answer(&again, &packed("y", 7));
    };
    against(script, |client| {
        let [first, second, third] = [(); 3].map(|()| client.send(request(10, 100)).unwrap());
        let first = first.accepted().unwrap();
        second.cancel();
        first.wait().unwrap();
        third.wait().unwrap();
    });
}
