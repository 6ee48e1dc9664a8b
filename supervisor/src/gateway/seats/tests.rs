//! Who gets a seat, and who gives one up.

use std::net::{IpAddr, Ipv4Addr};

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

fn token(name: &str) -> Principal {
    Principal::Token(name.to_owned())
}

/// Connections whose heads have named a token, and whose bodies come in good time.
fn of_token(seats: &Arc<Seats>, name: &str, count: usize) -> Vec<Seat> {
    let mut all = Vec::new();
    for _ in 0..count {
        let seat = come(seats, 1).pop().expect("there is a seat to say no from");
        seat.works();
        seat.is_of(&token(name));
        seat.sends_body(Duration::ZERO);
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
        seat.works();
        seat.is_unnamed();
    });
    assert_eq!(seats.counts(), [CONNECTIONS_EACH_MAX, 0]);
    assert_eq!(ordinary(&come(&seats, 1)), 1, "the address has room");
    one[0].is_of(&token("other"));
    assert_eq!(ordinary(&of_token(&seats, "one", 2)), 1);
}

#[test]
fn connections_without_a_token_give_way_to_those_with_one() {
    let seats = seats();
    let idle = come(&seats, CONNECTIONS_UNNAMED_MAX + RESERVED_MAX / 2);
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
    let probes = come(&seats, CONNECTIONS_UNNAMED_MAX + 8);
    bad[CONNECTIONS_EACH_MAX..].iter().for_each(Seat::refuses);
    bad[CONNECTIONS_EACH_MAX..].iter().for_each(|seat| seat.sends_body(Duration::ZERO));
    let last = probes.last().unwrap();
    come(&seats, RESERVED_MAX / 2);
    assert!(matches!(last.kind(), Kind::Reserved(_)), "it is there still");
    assert!(seats.table.lock().taken.contains_key(&last.number));
}
