//! Turns, priorities, joining, held principals, and which job is the oldest.

use super::*;

/// The only client of a principal.
fn client(number: u32) -> Owner {
    Owner { principal: Principal::Uid(number), client: ClientId(number.into()) }
}

fn position(job: u64) -> Position {
    Position { priority: Priority::Normal, job: JobId(job), shard: 0 }
}

fn costs(cost: u64) -> Entry {
    Entry { cost, jobs: 1, joins: None }
}

fn joining(program: &str) -> Joining {
    Joining { program: Some(program.into()), suspects: None }
}

fn joins(cost: u64, program: &str) -> Entry {
    Entry { cost, jobs: 1, joins: Some(joining(program)) }
}

/// The next job of any client.
fn next(queue: &mut Queue) -> u64 {
    queue.take(|_| true).unwrap().job.0
}

#[test]
fn a_client_with_many_jobs_does_not_hold_up_one_with_few() {
    let mut queue = Queue::default();
    for job in 0..100 {
        queue.insert(&client(1), position(job), costs(10));
    }
    for _ in 0..50 {
        next(&mut queue);
    }
    queue.insert(&client(2), position(1_000), costs(10));
    queue.insert(&client(2), position(1_001), costs(10));
    let next: Vec<_> = (0..4).map(|_| next(&mut queue)).collect();
    // The newcomer starts level: it does not wait for the other's backlog, and gets nothing for the
    // fifty jobs that ran before it came.
    assert_eq!(next, [50, 1_000, 51, 1_001]);
}

#[test]
fn twenty_connections_of_one_principal_do_not_hold_up_another() {
    let mut queue = Queue::default();
    for job in 0..200 {
        let owner = Owner { principal: Principal::Uid(1), client: ClientId(job % 20) };
        queue.insert(&owner, position(job), costs(10));
    }
    for _ in 0..20 {
        next(&mut queue);
    }
    for job in 1_000..1_010 {
        queue.insert(&client(2), position(job), costs(10));
    }
    let next: Vec<_> = (0..20).map(|_| next(&mut queue)).collect();
    let others = next.iter().filter(|&&job| job < 1_000).count();
    assert_eq!(others, 10, "{next:?}");
    let connections: BTreeSet<_> =
        next.iter().filter(|&&job| job < 1_000).map(|job| job % 20).collect();
    assert_eq!(connections.len(), 10, "connections of one principal take turns: {next:?}");
    assert_eq!((queue.jobs_of(&Principal::Uid(1)), queue.jobs()), (170, 170));
}

#[test]
fn clients_share_by_cost_and_not_by_number_of_jobs() {
    let mut queue = Queue::default();
    for job in 0..10 {
        queue.insert(&client(1), position(job), costs(100));
        queue.insert(&client(2), position(100 + job), costs(25));
    }
    let first: Vec<_> = (0..10).map(|_| next(&mut queue)).collect();
    assert_eq!(first.iter().filter(|&&job| job < 100).count(), 2);
}

#[test]
fn a_retried_job_takes_its_old_place_and_priority_goes_first() {
    let mut queue = Queue::default();
    let client = client(1);
    queue.insert(&client, position(1), costs(1));
    queue.insert(&client, position(2), costs(1));
    assert_eq!(next(&mut queue), 1);
    queue.insert(&client, position(1), costs(1));
    queue.insert(&client, Position { priority: Priority::High, ..position(3) }, costs(1));
    let next: Vec<_> = (0..3).map(|_| next(&mut queue)).collect();
    assert_eq!(next, [3, 1, 2]);
    assert!(queue.is_empty());
}

#[test]
fn the_jobs_of_a_held_principal_wait_aside_and_keep_their_order() {
    let mut queue = Queue::default();
    let program = joining("a");
    for job in 1..=3 {
        queue.insert(&client(1), position(job), joins(10, "a"));
    }
    queue.insert(&client(2), position(9), joins(10, "a"));
    let held = BTreeSet::from([client(1).principal]);
    queue.hold(&held);
    queue.insert(&client(1), position(4), joins(10, "a"));
    assert_eq!(queue.in_order().collect::<Vec<_>>(), [position(9)]);
    assert_eq!((queue.jobs(), queue.jobs_of(&client(1).principal)), (5, 4));
    assert_eq!(queue.principals_with(&client(1).principal), 2);
    assert_eq!(queue.all_jobs(), [1, 2, 3, 4, 9].map(JobId).into());
    assert_eq!(next(&mut queue), 9);
    assert_eq!(queue.take(|_| true), None);
    assert_eq!(queue.take_joining(&program, 100, |_| true), None);
    queue.remove(&client(1), position(2));
    assert!(queue.held().eq(&held) && !queue.is_empty());
    queue.hold(&BTreeSet::new());
    assert_eq!([(); 3].map(|()| next(&mut queue)), [1, 3, 4]);
    assert!(queue.is_empty() && queue.held().next().is_none());
    // The last one may end while it is held.
    queue.insert(&client(1), position(5), costs(1));
    queue.hold(&held);
    queue.remove(&client(1), position(5));
    assert!(queue.is_empty() && queue.held().next().is_none());
}

#[test]
fn a_job_that_must_wait_does_not_block_the_next() {
    let mut queue = Queue::default();
    queue.insert(&client(1), position(1), costs(1));
    queue.insert(&client(1), position(2), costs(1));
    assert_eq!(queue.take_first(|position| position.job != JobId(1)), None);
    assert_eq!(queue.take(|position| position.job != JobId(1)), Some(position(2)));
    queue.remove(&client(1), position(1));
    assert!(queue.is_empty());
}

#[test]
fn a_job_waits_as_long_as_one_of_its_shards_does() {
    let mut queue = Queue::default();
    for shard in 0..3 {
        queue.insert(&client(1), Position { shard, ..position(1) }, costs(1));
        assert_eq!(queue.jobs(), 1);
    }
    queue.insert(&client(1), position(2), costs(1));
    assert_eq!(queue.jobs(), 2);
    assert_eq!([(); 3].map(|()| next(&mut queue)), [1; 3]);
    assert_eq!(queue.jobs(), 1);
}

#[test]
fn a_job_that_joins_has_the_same_program_and_is_charged() {
    let mut queue = Queue::default();
    let program = joining("a");
    queue.insert(&client(1), position(1), joins(10, "b"));
    queue.insert(&client(1), position(2), joins(10, "a"));
    queue.insert(&client(2), position(3), costs(10));
    queue.insert(&client(2), position(4), joins(10, "a"));
    queue.insert(&client(3), position(5), costs(10));
    let mut join = || queue.take_joining(&program, 10, |_| true);
    assert_eq!([join(), join(), join()], [Some(position(2)), Some(position(4)), None]);
    assert_eq!([(); 3].map(|()| next(&mut queue)), [5, 1, 3]);
}

#[test]
fn a_client_that_is_far_ahead_of_one_that_waits_joins_nothing() {
    let mut queue = Queue::default();
    let program = joining("a");
    queue.insert(&client(2), position(9), costs(1));
    for job in 0..10 {
        queue.insert(&client(1), position(job), joins(10, "a"));
    }
    let joined = std::iter::from_fn(|| queue.take_joining(&program, 25, |_| true));
    assert_eq!(joined.count(), 3, "at 0, 10 and 20 ahead");
}

#[test]
fn the_oldest_job_is_found_behind_priorities_clients_and_held_principals() {
    let mut queue = Queue::default();
    assert_eq!(queue.oldest(), None);
    for (owner, job, priority) in [
        (1, 7, Priority::High),
        (1, 4, Priority::Normal),
        (1, 9, Priority::Low),
        (2, 5, Priority::High),
    ] {
        queue.insert(&client(owner), Position { priority, ..position(job) }, costs(1));
    }
    assert_eq!(queue.oldest(), Some(JobId(4)));
    queue.hold(&BTreeSet::from([client(1).principal]));
    assert_eq!(queue.oldest(), Some(JobId(4)), "one that is held waits too");
    queue.insert(&client(1), Position { priority: Priority::Low, ..position(3) }, costs(1));
    assert_eq!(queue.oldest(), Some(JobId(3)));
    queue.remove(&client(1), Position { priority: Priority::Low, ..position(3) });
    queue.remove(&client(1), position(4));
    assert_eq!(queue.oldest(), Some(JobId(5)));
}
