//! Quotas of principals, and what they are charged.

use gridpool_protocol::message::Limit;
use gridpool_protocol::status::PrincipalStatus;

use super::*;
use crate::quota::{Quota, Quotas, Rate};

const ANNA: Principal = Principal::Uid(1);

fn quotas(own: Quota) -> Event {
    Event::QuotasSet(Quotas { default: Quota::default(), own: [(ANNA, own)].into() })
}

impl Rig {
    /// The row of a user.
    fn row(&self, uid: u32) -> PrincipalStatus {
        let rows = self.core.principals(self.now, &BTreeSet::new());
        let own = rows.into_iter().find(|(who, _)| *who == Some(Principal::Uid(uid)));
        own.expect("it has had jobs").1
    }

    /// The device's worker runs for so long, and answers.
    fn answer_after(&mut self, ms: u64) {
        self.wait_ms(ms);
        self.answer(0);
    }
}

#[test]
fn the_quotas_of_jobs_and_bytes_count_all_connections_of_a_user_until_the_verdict() {
    let mut rig = Rig::new(1);
    let quota = Quota { jobs_max: Some(2), bytes_max: Some(250), ..Quota::default() };
    rig.tell(quotas(quota));
    rig.submit(1);
    let submit = |rig: &mut Rig, client, key, bytes| {
        rig.submit_as(client, key, |request| (request.principal, request.bytes) = (ANNA, bytes));
    };
    submit(&mut rig, 2, 2, 151);
    assert_eq!(rig.refusals(), [&Refusal::Busy(Limit::QuotaBytes { max: 250 })]);
    submit(&mut rig, 2, 3, 150);
    submit(&mut rig, 3, 4, 0);
    assert_eq!(rig.refusals()[1..], [&Refusal::Busy(Limit::QuotaJobs { max: 2 })]);
    rig.submit_as(9, 5, |_| {});
    assert_eq!(rig.refusals().len(), 2, "another user");
    let PrincipalStatus { queued, running, done, refused, bytes, quota, .. } = rig.row(1);
    assert_eq!((queued, running, done, refused, bytes), (1, 1, 0, 2, 250));
    assert_eq!(quota, "jobs=2,bytes=250");
    rig.answer(0);
    submit(&mut rig, 3, 6, 100);
    assert_eq!(rig.refusals().len(), 2);
}

#[test]
fn a_job_that_alone_goes_over_its_quota_is_refused_for_good() {
    let mut rig = Rig::new(1);
    let submit = |rig: &mut Rig, bytes_max, jobs_max| {
        rig.tell(quotas(Quota { bytes_max, jobs_max, ..Quota::default() }));
        rig.submit_as(2, 2, |request| (request.principal, request.bytes) = (ANNA, 251));
    };
    submit(&mut rig, Some(250), None);
    submit(&mut rig, None, Some(0));
    submit(&mut rig, Some(251), Some(1));
    let [Refusal::Invalid(large), Refusal::Invalid(none)] = &rig.refusals()[..] else {
        panic!("{:?}", rig.refusals())
    };
    assert!(large.starts_with("this job has 251 bytes, with its results, and all jobs"), "{large}");
    assert_eq!(none, "this principal may have no jobs, by its quota");
}

#[test]
fn device_time_is_charged_when_an_attempt_ends_and_paid_back_at_the_rate_of_the_quota() {
    let mut rig = Rig::new(1);
    let rate = Rate { time: Duration::from_secs(1), per: Duration::from_secs(10) };
    rig.tell(quotas(Quota { device_time: Some(rate), ..Quota::default() }));
    rig.submit(1);
    rig.submit(2);
    rig.answer_after(2_000);
    rig.submit(3);
    let again_ms = 10_001;
    assert_eq!(rig.refusals(), [&Refusal::Busy(Limit::QuotaDeviceTime { again_ms })]);
    rig.submit_as(2, 4, |_| {});
    assert_eq!(rig.refusals().len(), 1, "another user");
    // What was accepted runs: it is charged, too.
    rig.answer_after(1_000);
    rig.submit(5);
    let owed_ms = (2_000 - 100) + 1_000;
    let again_ms = (owed_ms - 1_000) * 10 + 1;
    assert_eq!(rig.refusals()[1..], [&Refusal::Busy(Limit::QuotaDeviceTime { again_ms })]);
    rig.answer(0);
    rig.wait_ms(again_ms - 1);
    rig.submit(6);
    assert_eq!(rig.refusals().len(), 3);
    rig.wait_ms(1);
    rig.submit(7);
    assert_eq!(rig.refusals().len(), 3);
    assert!((rig.row(1).device_s - 3.0).abs() < 1e-6, "{:?}", rig.row(1));
}

#[test]
fn jobs_that_run_together_share_the_time_by_their_cost_and_those_behind_pay_from_their_turn() {
    let mut rig = Rig::with(1, |config| {
        (config.feed_cost_max, config.join_cost_max) = (1_000, 1_000);
    });
    // The second waits behind the first.
    rig.submit_as(3, 1, |_| {});
    rig.submit_as(3, 4, |_| {});
    for (client, key, cost) in [(1, 2, 30), (2, 3, 10)] {
        rig.submit_as(client, key, |request| request.cost = cost);
    }
    rig.answer_after(600);
    rig.answer_after(400);
    // These two wait behind it, and now run together.
    rig.answer_after(400);
    // The one that is left runs alone.
    rig.answer_after(100);
    let used = [1, 2, 3].map(|uid| (rig.row(uid).device_s * 1e3).round());
    assert_eq!(used, [300.0, 200.0, 1_000.0]);
}

#[test]
fn a_worker_that_dies_or_is_killed_has_cost_its_jobs_the_time_until_its_end() {
    let mut rig = Rig::new(1);
    rig.submit_as(1, 1, |request| request.deadline = Duration::from_millis(500));
    rig.wait_ms(750);
    rig.wait_ms(250);
    rig.die(0, SIGKILL);
    assert!((rig.row(1).device_s - 1.0).abs() < 1e-6, "{:?}", rig.row(1));
    assert_eq!(rig.row(1).kills_left, Some(2));
    assert_eq!((rig.row(1).done, rig.row(1).running), (1, 0));
}
