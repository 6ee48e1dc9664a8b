//! How a pool hands everything over to its successor, and what the successor makes of it.

use gridpool_protocol::handover::JobNews;

use super::*;
use crate::event::{HandOver, Predecessor};

const GATEWAY: u64 = 7;

fn begun() -> Event {
    Event::HandOver(HandOver::Begun)
}

fn done() -> Event {
    Event::HandOver(HandOver::Done { stay: vec![ClientId(GATEWAY)] })
}

fn connected(client: u64) -> Event {
    Event::Client(ClientId(client), ClientEvent::Connected)
}

fn gone(client: u64) -> Event {
    Event::Client(ClientId(client), ClientEvent::Gone)
}

/// A pool with the clients 1 and 2 and the gateway's connection.
fn pool(devices: u32) -> Rig {
    let mut rig = Rig::new(devices);
    for client in [1, 2, GATEWAY] {
        rig.tell(connected(client));
    }
    rig
}

impl Rig {
    /// The clients that it has let go.
    fn let_go(&self) -> Vec<u64> {
        let client = |action: &Action| {
            let Action::LetGo { client } = action else { return None };
            Some(client.0)
        };
        self.actions().filter_map(client).collect()
    }

    /// What it has told its successor: the key, and L(ive), E(nded) or V(erdict).
    fn told(&self) -> Vec<(u128, char)> {
        let news = |news: JobNews| match news {
            JobNews::Live((_, key)) => (key.0, 'L'),
            JobNews::Ended((_, key)) => (key.0, 'E'),
            JobNews::Verdict { name: (_, key), .. } => (key.0, 'V'),
        };
        self.news().map(news).collect()
    }

    fn news(&self) -> impl Iterator<Item = JobNews> {
        self.actions().filter_map(|action| {
            let Action::Tell(news) = action else { return None };
            Some(news.clone())
        })
    }

    /// Passes to this pool what another has told it, from number `from` on.
    fn hear(&mut self, other: &Self, from: usize) {
        for news in other.news().skip(from) {
            self.tell(Event::Predecessor(Predecessor::Told(news)));
        }
    }

    fn has_left(&self) -> bool {
        self.count(|action| matches!(action, Action::Leave { .. })) == 1
    }

    fn replays(&self) -> Vec<Verdict> {
        let verdict = |action: &Action| {
            let Action::Replay { receipt, .. } = action else { return None };
            Some(receipt.verdict)
        };
        self.actions().filter_map(verdict).collect()
    }
}

#[test]
fn what_has_not_begun_is_given_back_and_what_runs_is_finished() {
    let mut rig = pool(1);
    rig.submit(1);
    rig.submit(2);
    rig.submit_as(2, 3, |request| request.idempotent = false);
    rig.tell(begun());
    rig.tell(done());
    assert_eq!(rig.verdicts(2), [Verdict::Cancelled]);
    assert_eq!(
        (rig.verdicts(1), rig.verdicts(3)),
        (vec![], vec![]),
        "one runs, one may not run again"
    );
    rig.answer(0);
    rig.answer(0);
    assert_eq!((rig.verdicts(1), rig.verdicts(3)), (vec![Verdict::Ok], vec![Verdict::Ok]));
    rig.tell(gone(GATEWAY));
    rig.die(0, ExitStatus::Code(0));
    assert!(rig.has_left());
    rig.assert_counters_add_up(0);
}

#[test]
fn a_replaced_pool_stops_when_it_is_asked_to_end_for_the_second_time() {
    let mut rig = pool(1);
    rig.submit(1);
    rig.tell(begun());
    rig.tell(done());
    rig.wait_ms(5_000);
    rig.tell(Event::EndRequested);
    rig.wait_ms(999);
    rig.tell(Event::EndRequested);
    assert_eq!((rig.kills(), rig.verdicts(1)), (0, vec![]));
    assert!(rig.core.drained_by().is_some());
    rig.wait_ms(1);
    rig.tell(Event::EndRequested);
    assert_eq!(rig.core.drained_by(), None);
    assert_eq!((rig.kills(), rig.verdicts(1)), (1, vec![Verdict::Cancelled]));
}

#[test]
fn a_job_that_lost_its_worker_is_not_given_back() {
    let mut rig = pool(1);
    rig.submit(1);
    rig.tell(begun());
    rig.die(0, SIGKILL);
    rig.tell(done());
    assert_eq!(rig.verdicts(1), []);
    rig.wait_ms(200);
    rig.ready(0);
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
}

#[test]
fn a_client_goes_when_all_its_jobs_have_their_verdicts_and_submits_nothing_more() {
    let mut rig = pool(2);
    rig.submit(1);
    rig.submit(2);
    rig.tell(begun());
    assert_eq!(rig.let_go(), [0; 0]);
    rig.tell(done());
    assert_eq!(rig.let_go(), [2], "it has none; the gateway stays");
    rig.submit(4);
    rig.answer(0);
    assert_eq!(rig.let_go(), [2]);
    rig.answer(1);
    assert_eq!(rig.let_go(), [2, 1]);
    rig.tell(connected(3));
    assert_eq!(rig.let_go(), [2, 1, 3], "it came too late");
    assert_eq!(rig.count(|action| matches!(action, Action::Discard { .. })), 1);
    assert_eq!((rig.refusals().len(), rig.core.counters().accepted), (0, 2));
}

#[test]
fn the_gateway_submits_to_its_end_and_the_workers_wait_for_it() {
    let mut rig = pool(1);
    rig.submit_as(GATEWAY, 1, |_| {});
    rig.submit_as(GATEWAY, 2, |_| {});
    rig.tell(begun());
    rig.tell(done());
    rig.answer(0);
    rig.answer(0);
    rig.wait_ms(1_000);
    rig.submit_as(GATEWAY, 3, |_| {});
    rig.answer(0);
    let all = [1, 2, 3].map(|key| rig.verdicts(key));
    assert_eq!(all, [[Verdict::Ok], [Verdict::Ok], [Verdict::Ok]]);
    assert_eq!(rig.count(|action| matches!(action, Action::Stop { .. })), 0);
    rig.tell(gone(GATEWAY));
    assert_eq!(rig.count(|action| matches!(action, Action::Stop { .. })), 1);
}

#[test]
fn the_successor_is_told_of_every_job_before_its_client() {
    let mut rig = pool(1);
    rig.submit(1);
    rig.answer(0);
    rig.submit(2);
    rig.submit(3);
    assert_eq!(rig.told(), []);
    rig.tell(begun());
    assert_eq!(rig.told(), [(1, 'V'), (2, 'L'), (3, 'L')]);
    rig.submit(4);
    rig.answer(0);
    assert_eq!(rig.told()[3..], [(4, 'L'), (2, 'V')]);
    rig.tell(done());
    // The third job runs, the fourth is given back: no verdict of it may be remembered.
    assert_eq!(rig.told()[5..], [(4, 'E')]);
    rig.tell(gone(1));
    rig.answer(0);
    assert_eq!(rig.told()[6..], [(3, 'E')], "nobody waits for it");
    let position = |is_it: &dyn Fn(&Action) -> bool| rig.actions().position(is_it);
    let told = position(&|action| matches!(action, Action::Tell(JobNews::Ended(_))));
    let given = position(&|action| matches!(action, Action::Finish { key: JobKey(4), .. }));
    assert!(told < given);
}

#[test]
fn a_hand_over_that_fails_changes_nothing_and_another_may_follow() {
    let mut rig = pool(1);
    rig.submit(1);
    rig.submit(2);
    // Not out of order.
    rig.tell(done());
    rig.tell(begun());
    rig.tell(Event::HandOver(HandOver::Failed));
    let told = rig.told().len();
    rig.submit(3);
    (0..3).for_each(|_| rig.answer(0));
    assert_eq!(
        [1, 2, 3].map(|key| rig.verdicts(key)),
        [[Verdict::Ok], [Verdict::Ok], [Verdict::Ok]]
    );
    assert_eq!((rig.told().len(), rig.let_go().len()), (told, 0));
    rig.tell(begun());
    assert_eq!(rig.told()[told..], [(1, 'V'), (2, 'V'), (3, 'V')]);
    rig.tell(done());
    rig.tell(Event::HandOver(HandOver::Failed));
    assert!(rig.core.is_replaced() && rig.core.is_draining(), "it is too late for that");
}

#[test]
fn a_replaced_pool_that_takes_too_long_gives_the_rest_back_too() {
    let mut rig = pool(1);
    rig.submit_as(1, 1, |request| request.deadline = Duration::from_secs(600));
    rig.submit_as(2, 2, |request| {
        (request.idempotent, request.deadline) = (false, Duration::from_secs(600));
    });
    rig.tell(begun());
    rig.tell(done());
    rig.wait(PoolConfig::DEFAULT.drain_timeout);
    assert_eq!(
        (rig.verdicts(1), rig.verdicts(2)),
        (vec![Verdict::Cancelled], vec![Verdict::Cancelled])
    );
    assert_eq!(rig.told()[2..], [(1, 'E'), (2, 'V')], "what may run once is not run again");
    assert_eq!(rig.let_go(), [1, 2]);
}

/// A pool that runs one job of client 1, and its successor.
fn two_pools() -> (Rig, Rig) {
    let (mut old, mut new) = (pool(1), pool(1));
    old.submit(1);
    old.tell(begun());
    new.hear(&old, 0);
    (old, new)
}

#[test]
fn a_job_that_runs_in_the_old_pool_is_not_begun_by_the_new_one() {
    let (mut old, mut new) = two_pools();
    new.submit_as(1, 1, |_| {});
    // The same again, the same from another connection, and the key of another principal.
    new.submit_as(1, 1, |_| {});
    assert_eq!(new.count(|action| matches!(action, Action::Discard { .. })), 1);
    new.submit_as(2, 1, |request| request.principal = Principal::Uid(1));
    // And another job under the key.
    new.submit_as(1, 1, |request| request.fingerprint = 5);
    assert_eq!(new.refusals(), [&Refusal::KeyInUse(JobKey(1)); 2]);
    assert_eq!(new.runs(0), None);
    new.submit_as(2, 1, |_| {});
    new.answer(0);
    assert_eq!(new.verdicts(1), [Verdict::Ok]);
    old.answer(0);
    new.hear(&old, 1);
    assert_eq!(new.replays(), [Verdict::Ok]);
    assert_eq!((new.runs(0), new.core.counters().accepted), (None, 1));
    // And later ones are answered from memory, but not under another job's name.
    new.submit(1);
    assert_eq!(new.replays().len(), 2);
    new.submit_as(1, 1, |request| request.fingerprint = 5);
    assert_eq!(new.refusals().len(), 3);
}

#[test]
fn a_job_that_was_given_back_runs_in_the_new_pool() {
    for ends in [false, true] {
        let (mut old, mut new) = two_pools();
        new.submit(1);
        match ends {
            // The old pool ends without a word.
            true => new.tell(Event::Predecessor(Predecessor::Gone)),
            false => {
                old.tell(gone(1));
                old.answer(0);
                new.hear(&old, 1);
            }
        }
        assert_eq!(new.runs(0).map(|(_, number)| number), Some(1));
        new.answer(0);
        assert_eq!((new.verdicts(1), new.replays()), (vec![Verdict::Ok], vec![]));
        // Nothing of it is left.
        new.submit(1);
        assert_eq!(new.replays(), [Verdict::Ok]);
    }
}

#[test]
fn a_submission_that_waits_for_the_old_pool_can_be_cancelled_and_its_client_can_go() {
    let (_, mut new) = two_pools();
    new.submit(1);
    new.cancel(1);
    assert_eq!((new.verdicts(1), new.runs(0)), (vec![Verdict::Cancelled], None));
    let (old, mut new) = two_pools();
    new.submit(1);
    new.tell(gone(1));
    assert_eq!(new.count(|action| matches!(action, Action::Discard { .. })), 1);
    drop(old);
    new.tell(Event::Predecessor(Predecessor::Gone));
    assert_eq!((new.runs(0), new.core.counters().accepted), (None, 0));
}
