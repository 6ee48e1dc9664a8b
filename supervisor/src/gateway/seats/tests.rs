//! Who gets a seat, and who gives one up.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::task::{Context, Waker};

use super::super::turns::{Rate, Turns};
use super::*;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn seats() -> Arc<Seats> {
    Seats::new(Arc::default())
}

/// Connections of the address from which all come.
fn come(seats: &Arc<Seats>, count: usize) -> Vec<Seat> {
    let peer = || Peer::Tcp { ours: ADDRESS, theirs: ADDRESS };
    (0..count).filter_map(|_| seats.take(peer(), true)).collect()
}

/// The same, as if no time passed, however slow this machine is.
fn come_at_once(seats: &Arc<Seats>, count: usize) -> Vec<Seat> {
    let mut all = Vec::new();
    for _ in 0..count {
        for occupant in seats.table.lock().taken.values_mut() {
            if let Phase::Waiting(since) | Phase::Sending(since) = &mut occupant.phase {
                *since = clock::now();
            }
        }
        all.extend(come(seats, 1));
    }
    all
}

fn token(name: &str) -> Principal {
    Principal::Token(name.to_owned())
}

/// Connections whose heads have named a token, and whose bodies come in good time.
fn of_token(seats: &Arc<Seats>, name: &str, count: usize) -> Vec<Seat> {
    let mut all = Vec::new();
    for _ in 0..count {
        let seat = come_at_once(seats, 1).pop().expect("there is a seat to say no from");
        let turn = Turn::from(&seat);
        turn.works();
        turn.is_of(&token(name));
        turn.sends_body(Duration::ZERO);
        all.push(seat);
    }
    all
}

fn ordinary(seats: &[Seat]) -> usize {
    seats.iter().filter(|seat| seat.kind() == Kind::Ordinary).count()
}

#[test]
fn a_token_that_takes_all_that_it_may_leaves_room_for_another_of_its_address() {
    let seats = seats();
    let bad = of_token(&seats, "bad", CONNECTIONS_EACH_MAX + 8);
    assert_eq!(ordinary(&bad), CONNECTIONS_EACH_MAX);
    assert_eq!(bad.last().unwrap().kind(), Kind::Reserved(Reason::ConnectionsOwn));
    let good = of_token(&seats, "good", 100);
    assert_eq!(ordinary(&good), 100);
    assert_eq!(ordinary(&bad), CONNECTIONS_EACH_MAX, "they send in good time");
}

#[test]
fn a_connection_that_is_charged_to_its_token_stays_so_between_requests() {
    let seats = seats();
    let one = of_token(&seats, "one", CONNECTIONS_EACH_MAX);
    one.iter().for_each(|seat| {
        seat.answers();
        seat.flushed();
        Turn::from(seat).works();
        seat.is_unnamed();
    });
    assert_eq!(seats.counts(), [CONNECTIONS_EACH_MAX, 0]);
    assert_eq!(ordinary(&come(&seats, 1)), 1, "the address has room");
    Turn::from(&one[0]).is_of(&token("other"));
    assert_eq!(ordinary(&of_token(&seats, "one", 2)), 1);
}

#[test]
fn connections_without_a_token_give_way_to_those_with_one() {
    let seats = seats();
    let idle = come_at_once(&seats, CONNECTIONS_UNNAMED_MAX + RESERVED_MAX / 2);
    assert_eq!(ordinary(&idle), CONNECTIONS_UNNAMED_MAX);
    assert_eq!(idle.last().unwrap().kind(), Kind::Reserved(Reason::ConnectionsUnnamed));
    let good = of_token(&seats, "good", 10);
    assert_eq!(ordinary(&good), 10, "it gets an ordinary seat once it is known");
    // All seats are taken, by tokens that send and by those who have just come.
    let more = of_token(&seats, "more", CONNECTIONS_MAX - CONNECTIONS_UNNAMED_MAX - 10);
    assert_eq!(seats.counts()[0], CONNECTIONS_MAX);
    let good = of_token(&seats, "good", 5);
    assert_eq!((ordinary(&good), ordinary(&more)), (5, more.len()));
    assert_eq!(seats.counts()[0], CONNECTIONS_MAX);
}

#[test]
fn refused_requests_hold_no_more_seats_than_are_reserved_and_go_first() {
    let seats = seats();
    let bad = of_token(&seats, "bad", CONNECTIONS_EACH_MAX + 3 * RESERVED_MAX);
    assert!(seats.counts()[1] <= RESERVED_MAX, "{:?}", seats.counts());
    let probes = come_at_once(&seats, CONNECTIONS_UNNAMED_MAX + 8);
    bad[CONNECTIONS_EACH_MAX..].iter().for_each(|seat| Turn::from(seat).refuses());
    bad[CONNECTIONS_EACH_MAX..].iter().for_each(|seat| Turn::from(seat).sends_body(Duration::ZERO));
    let last = probes.last().unwrap();
    come_at_once(&seats, RESERVED_MAX / 2);
    assert!(matches!(last.kind(), Kind::Reserved(_)), "it is there still");
    assert!(seats.table.lock().taken.contains_key(&last.number));
}

/// Connections with so many calls that have nothing to do.
fn with_calls(seats: &Arc<Seats>, count: usize, calls: usize) -> Vec<(Arc<Seat>, Vec<Call>)> {
    let begun = |seat: &Arc<Seat>| {
        let call = Call::begin(Arc::clone(seat), Arc::default());
        call.waits();
        call
    };
    let all = come(seats, count).into_iter().map(Arc::new);
    all.map(|seat| (Arc::clone(&seat), (0..calls).map(|_| begun(&seat)).collect())).collect()
}

fn is_there(seats: &Seats, seat: &Seat) -> bool {
    seats.table.lock().taken.contains_key(&seat.number)
}

/// Makes all that has begun seem older.
fn grow_old(seats: &Seats, by: Duration) {
    let older = |when: &mut Instant| *when = when.checked_sub(by).expect("the clock has run");
    for occupant in seats.table.lock().taken.values_mut() {
        older(&mut occupant.since);
        for phase in occupant.calls.values_mut().chain([&mut occupant.phase]) {
            if let Phase::Waiting(since) | Phase::Sending(since) = phase {
                older(since);
            }
        }
    }
}

#[test]
fn a_connection_whose_calls_all_wait_gives_up_its_seat_however_many_they_are() {
    let seats = seats();
    let idle = with_calls(&seats, CONNECTIONS_UNNAMED_MAX, 2);
    assert_eq!(ordinary(&come(&seats, 1)), 0, "they have just come");
    grow_old(&seats, EVICTABLE_AFTER);
    Turn::from(&idle[0].1[1]).works();
    let new = come(&seats, CONNECTIONS_UNNAMED_MAX - 1);
    assert_eq!(ordinary(&new), CONNECTIONS_UNNAMED_MAX - 1);
    assert!(is_there(&seats, &idle[0].0), "one of its calls is worked on");
    assert!(!is_there(&seats, &idle[1].0));
    Turn::from(&idle[0].1[1]).sends_body(EVICTABLE_BEHIND);
    grow_old(&seats, Duration::ZERO);
    assert!(seats.table.lock().taken[&idle[0].0.number].waits().is_some());
}

#[test]
fn whatever_many_clients_do_with_calls_another_gets_an_answer() {
    let seats = seats();
    let all = with_calls(&seats, CONNECTIONS_UNNAMED_MAX, 2);
    all.iter().flat_map(|(_, calls)| calls).for_each(|call| Turn::from(call).works());
    let mut probes = with_calls(&seats, RESERVED_EACH_MAX, 2);
    let first = come(&seats, 1);
    assert_eq!(first.len(), 1, "one that waits gives way");
    Turn::from(&first[0]).works();
    probes.iter().flat_map(|(_, calls)| calls).for_each(|call| Turn::from(call).works());
    assert!(come(&seats, 1).is_empty(), "all have just come");
    grow_old(&seats, RESERVED_FOR);
    let second = come(&seats, 1);
    assert_eq!(second.len(), 1, "none keeps a reserved seat for long");
    // Their principal has no more than its share.
    assert!(seats.counts()[1] <= RESERVED_EACH_MAX);
    probes.clear();
    assert!(seats.counts()[1] <= 2);
}

#[test]
fn a_connection_is_idle_from_the_end_of_its_last_call_on() {
    let seats = seats();
    let (seat, mut calls) = with_calls(&seats, 1, 2).remove(0);
    assert_eq!(seat.idle_since(), None);
    calls.pop();
    assert_eq!(seat.idle_since(), None, "one is left, though it waits");
    calls.clear();
    assert!(seat.idle_since().is_some());
}

#[test]
fn a_connection_is_charged_to_the_token_of_its_first_call() {
    let seats = seats();
    let (seat, calls) = with_calls(&seats, 1, 2).remove(0);
    Turn::from(&calls[0]).is_of(&token("one"));
    Turn::from(&calls[1]).is_of(&token("other"));
    assert_eq!(seats.table.lock().taken[&seat.number].principal, token("one"));
    assert_eq!(seats.counts(), [1, 0]);
}

#[test]
fn a_call_is_held_up_while_another_of_its_connection_is_not_read() {
    let seats = seats();
    let (seat, calls) = with_calls(&seats, 1, 2).remove(0);
    let stall = calls[0].stalls();
    assert!(Turn::from(&calls[1]).is_held_up());
    assert!(!Turn::from(&*seat).is_held_up(), "a request of HTTP is alone");
    drop(stall);
    assert!(!Turn::from(&calls[1]).is_held_up());
}

#[tokio::test]
async fn a_request_that_waits_for_its_turn_gives_up_its_seat() {
    let (seats, turns) = (seats(), Turns::default());
    let asking = come_at_once(&seats, CONNECTIONS_UNNAMED_MAX);
    asking.iter().for_each(|seat| Turn::from(seat).works());
    grow_old(&seats, EVICTABLE_AFTER);
    assert_eq!(ordinary(&come(&seats, 1)), 0, "all are worked on");
    let principal = asking[3].peer.principal();
    let mut cx = Context::from_waker(Waker::noop());
    let mut waits = pin!(async {
        loop {
            turns.wait((&asking[3]).into(), &principal, Rate::Document).await;
        }
    });
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    grow_old(&seats, EVICTABLE_AFTER);
    assert_eq!(ordinary(&come(&seats, 1)), 1);
    assert!(!is_there(&seats, &asking[3]));
}
