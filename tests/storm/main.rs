//! A short storm over real processes, and the proof that its checker sees what it is there to see.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gridpool_protocol::output::OutputLayout;
use gridpool_tests::harness::binaries;
use gridpool_tests::storm::board::Board;
use gridpool_tests::storm::chaos::SignalMix;
use gridpool_tests::storm::checker::{Broken, Violation, check};
use gridpool_tests::storm::proxy::{Proxy, Tamper};
use gridpool_tests::storm::server::{RULES, Server, Setup};
use gridpool_tests::storm::wire_client::{JobMix, WireClient};
use gridpool_tests::storm::workload::Workload;
use gridpool_tests::storm::{Options, run};

/// Workers that end in the ordinary test, and the time after which it ends with fewer.
const KILLS: u64 = 300;
const TIME_MAX: Duration = Duration::from_secs(20);

fn setup() -> Setup {
    let bin_dir = binaries::gridpool().parent().map(PathBuf::from).expect("cargo's folder");
    Setup { bin_dir, devices: "cpu:2".to_owned(), standby: 0 }
}

/// `STORM_SEED`, or a number of this run.
fn seed() -> u64 {
    let given = std::env::var("STORM_SEED").ok();
    given.map_or_else(|| u64::from(std::process::id()), |seed| seed.parse().expect("a number"))
}

#[test]
#[expect(clippy::print_stdout, reason = "the report; the seed that replays its decisions first")]
fn no_job_is_lost_or_doubled_or_wrong_while_workers_die_and_clients_do_their_worst() {
    let options = Options {
        setup: setup(),
        program: Path::new(env!("CARGO_BIN_EXE_storm")).to_owned(),
        seed: seed(),
        warm_up: 60,
        kills: KILLS,
        time_max: TIME_MAX,
        wire_clients: 4,
        library_clients: 2,
        processes: 2,
        hostiles: 2,
        hostile_every: Duration::from_millis(20),
        signals: SignalMix::SHORT,
    };
    println!("STORM_SEED={}", options.seed);
    let report = run(&options).expect("the pool starts");
    println!("{report}");
    assert!(report.faults().is_empty(), "STORM_SEED={}\n{report}", options.seed);
}

/// What the checker says of a client whose replies go through a relay.
fn seen_through(tamper: Tamper) -> Vec<Violation> {
    const JOBS: usize = 30;
    let server = Server::start(&setup()).expect("the pool starts");
    let proxy = Proxy::open(&server.socket(), tamper).expect("a socket");
    let (workload, board) = (Workload::new(5, false), Board::default());
    let mut wire_client = WireClient::enter(&proxy.socket(), &workload, JobMix::PLAIN, &board, 77)
        .expect("the relay lets it in");
    let history = wire_client.round(JOBS, || false);
    drop(wire_client);
    proxy.close().expect("the relay ends with its client");
    assert_eq!(server.stop(), [""; 0]);
    check(&history, RULES)
}

#[test]
fn a_relay_that_changes_nothing_is_not_seen() {
    assert_eq!(seen_through(Tamper::Nothing), []);
}

#[test]
fn a_relay_that_drops_doubles_swaps_or_changes_replies_is_found_out() {
    let workload = Workload::new(5, false);
    let plain = workload.plain(0);
    let layout = plain.batch().layout().expect("it has a tag");
    let layout = OutputLayout::new(plain.program(), layout).expect("it is small");
    let cases = [
        (Tamper::Drop, Broken::Lost, "accepted, and no verdict"),
        (Tamper::Double, Broken::Doubled, "2 verdicts"),
        (Tamper::Swap, Broken::Wrong, "it has the result of"),
        (Tamper::Swap, Broken::Mixed, "its receipt is of"),
        (Tamper::WrongByte { at: layout.cells().start }, Broken::Wrong, "its result is nobody's"),
        (Tamper::ReuseBuffer, Broken::Wrong, "it has the result of"),
    ];
    for (tamper, kind, words) in cases {
        let found = seen_through(tamper);
        let named = found.iter().filter(|v| v.kind == kind && v.seen.contains(words)).count();
        // Each third of thirty; but once as many are lost as it has under way, a client sends no more.
        let least = if tamper == Tamper::Drop { JobMix::PLAIN.depth } else { 10 };
        assert!(named >= least, "{tamper:?}: {found:?}");
    }
}
