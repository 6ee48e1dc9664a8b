//! Quotas of users, the audit of orders, and what clients can make the log grow by.

mod others;

use gridpool_client::ClientError;
use gridpool_ipc::clock;
use gridpool_protocol::message::{ClientMessage, Limit, ModelCommand, Refusal, Release};
use gridpool_protocol::status::PrincipalStatus;
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;
use nix::unistd::geteuid;

use crate::jobs::{PROGRAM, answer, data, heavy_work, job, serves, small_job, submit};
use crate::pool::{Pool, cpu, named};
use crate::raw::{Raw, inline};
use crate::wait::{eventually, eventually_so};

/// The row of the user of these tests.
fn own_row(pool: &Pool) -> PrincipalStatus {
    let own = format!("uid {}", geteuid());
    let rows = pool.status().principals.into_iter();
    rows.into_iter().find(|row| row.principal == own).expect("it is connected")
}

#[test]
fn a_quota_refuses_with_its_name_and_changes_with_the_config() {
    let pool = cpu(1).limits("[quota]\ndefault = 'jobs=2,bytes=1G'\n").start();
    pool.stop("cpu0");
    let client = pool.client();
    let held: Vec<_> = (0..2).map(|seed| submit(&client, small_job(seed))).collect();
    let other = pool.client();
    let refused = other.submit(small_job(3).refuse_if_busy()).map(drop);
    let Err(ClientError::Refused(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal, Refusal::Busy(Limit::QuotaJobs { max: 2 }));
    let call = pool.cli(&["submit", PROGRAM, "--no-wait"]).arg(data("tasks/lines.json")).run();
    call.complains(1, &["BUSY: you may have 2 jobs, by your quota: try again when one of them"]);
    // The command has ended, and its connection soon after it.
    let row = eventually("three connections", || match own_row(&pool) {
        row if row.connections == 3 => Ok(row),
        row => Err(format!("{row:?}")),
    });
    assert_eq!((row.queued + row.running, row.done, row.refused), (2, 0, 2), "{row:?}");
    assert_eq!(row.quota, "jobs=2,bytes=1073741824");
    assert!(row.bytes > 0 && row.kills_left == Some(3), "{row:?}");
    let table = pool.cli(&["status"]).run().output();
    let line = table.lines().find(|line| line.starts_with(&row.principal)).expect("its row");
    assert!(line.ends_with("jobs=2,bytes=1073741824"), "{table}");

    let reload = |quota: &str, says: &str| {
        pool.configure(quota);
        let before = pool.log().len();
        pool.signal(Signal::SIGHUP);
        eventually_so(&format!("the pool to say {says}"), || pool.log()[before..].contains(says));
    };
    reload(
        &format!("[quota]\ndefault = 'jobs=2'\n{} = 'jobs=3,bytes=1'\n", geteuid()),
        "changed=\"quota\"",
    );
    let refused = other.submit(small_job(3).refuse_if_busy()).map(drop);
    let Err(ClientError::Refused(refusal)) = refused else { panic!("{refused:?}") };
    // It would wait for ever.
    let Refusal::Invalid(why) = refusal else { panic!("{refusal:?}") };
    assert!(
        why.contains("all jobs of its principal may have 1, by its quota: submit smaller"),
        "{why}"
    );
    reload("", "changed=\"quota\"");
    reload("[quota]\nroot = 'jobs=many'\n", "line 5: `jobs=many`: write a whole number");
    // Whatever stands in the file, an error is one line of the log.
    reload(
        "[quota]\n\"a\\nINFO all is well\" = 'jobs=1'\n",
        r"there is no user `a\nINFO all is well`",
    );
    let more = submit(&other, small_job(4));
    pool.go_on("cpu0");
    held.into_iter().chain([more]).for_each(|handle| drop(answer(handle)));
    assert_eq!((own_row(&pool).done, own_row(&pool).queued), (3, 0));
}

#[test]
fn device_seconds_are_charged_and_a_user_over_its_quota_is_told_when_to_come_again() {
    let pool = cpu(1).args(&["--quota", "default:device-seconds=0.02/10min"]).start();
    let client = pool.client();
    let (text, grids) = heavy_work();
    answer(submit(&client, job(&text, &grids)));
    let used = own_row(&pool).device_s;
    assert!(used > 0.02, "so much work cost {used}");
    // It says at once that waiting until the deadline is no use.
    let refused =
        client.submit(small_job(1)).and_then(|handle| handle.wait()).expect_err("used up");
    let again = refused.to_string();
    let seconds =
        again.split("used up: try again in ").nth(1).and_then(|rest| rest.split(' ').next());
    let seconds: f64 = seconds.and_then(|text| text.parse().ok()).expect(&again);
    let owed = used - 0.02;
    assert!((seconds - owed * 30_000.0).abs() < 600.0, "{again} where {used} s were used");
}

fn release(what: &str) -> Release {
    what.parse().expect("something to release")
}

/// The lines of the audit.
fn audit(pool: &Pool) -> Vec<String> {
    let log = pool.log();
    log.lines().filter(|line| line.contains(" audit: ")).map(str::to_owned).collect()
}

#[test]
fn each_order_is_one_line_of_the_audit_whatever_the_log_shows() {
    let pool = cpu(1).env("GRIDPOOL_LOG", "off").start();
    let client = pool.client();
    client.kill(named("cpu0"), 9).expect("it is killed");
    client.release(release("gpu7")).expect_err("there is no such device");
    client.release(release("jobs")).expect("it is released");
    client.unload_model("m").expect_err("there is no such model");
    client.drain().expect("it drains");
    let who = format!("uid={} user=", geteuid());
    let pid = format!("pid={} client=client", std::process::id());
    let wanted = [
        "order uid what=\"kill\" on=\"cpu0 with signal 9\" outcome=\"signal 9 sent to cpu0#1",
        "order refused uid what=\"release\" on=\"gpu7\" why=\"the pool has no device gpu7\"",
        "order uid what=\"release\" on=\"jobs\" outcome=\"0 contents taken off the denylist\"",
        "order refused uid what=\"model unload\" on=\"m\" why=\"",
        "order uid what=\"drain\" on=\"\" outcome=\"draining\"",
    ];
    let lines = eventually("the last line to be written", || {
        let lines = audit(&pool);
        if lines.len() >= wanted.len() { Ok(lines) } else { Err(format!("{lines:#?}")) }
    });
    assert_eq!(lines.len(), wanted.len(), "{lines:#?}");
    for (line, wanted) in lines.iter().zip(wanted) {
        let (start, rest) = wanted.split_once(" uid ").expect("the two parts");
        assert!(line.contains(start) && line.contains(rest), "{line}: {wanted}");
        assert!(line.contains(&who) && line.contains(&pid), "{line}: {who}, {pid}");
    }
}

/// Most bytes of log in a minute.
const LOG_BYTES_PER_MINUTE: usize = 1_000_000;

#[test]
fn no_client_can_write_much_into_the_log() {
    const TRIES: u64 = 3_000;
    const ORDERS: u64 = 2_500;
    let pool = cpu(1).start();
    let began = clock::now();
    let socket = pool.socket();
    for number in 0..TRIES {
        // Junk in the place of a hello, a message that only a broken client sends, a version of its own.
        let mut raw = match number % 3 {
            0 => {
                let raw = Raw::connect(&socket);
                raw.send(&[b'x'; 300]);
                raw
            }
            1 => {
                let raw = Raw::greeted(&socket);
                raw.send(&[b'x'; 300]);
                raw
            }
            _ => {
                let raw = Raw::connect(&socket);
                raw.say(&ClientMessage::Hello { version: 1_000_000 });
                raw
            }
        };
        raw.hear_closing();
    }
    let mut raw = Raw::greeted(&socket);
    let mut wrong = inline(1, &random_grids(1, 1));
    "x".repeat(3_000).clone_into(crate::raw::text(&mut wrong));
    for number in 0..ORDERS {
        if number % 100 == 0 {
            raw.say(&ClientMessage::Submit(Box::new(wrong.clone())));
            raw.hear_refused();
        }
        raw.say(&match number < ORDERS / 2 {
            // A name that takes many bytes, and so does the answer.
            true => ClientMessage::Model {
                request: number,
                command: ModelCommand::Unload { name: "\u{1f600}".repeat(256) },
            },
            false => ClientMessage::Release { request: number, release: release("gpu7") },
        });
        raw.hear();
    }
    drop(raw);
    serves(&pool.client());
    let minutes = 1 + usize::try_from(began.elapsed().as_secs() / 60).expect("a short time");
    let written = pool.log().len();
    assert!(written < minutes * LOG_BYTES_PER_MINUTE, "{written} bytes in {minutes} minutes");
    let refused = pool.status().supervisor.refused;
    let of = |reason: &str| refused[reason];
    let ended = of("handshake") + of("protocol");
    assert_eq!(ended, TRIES, "{refused:?}");
    let audited = u64::try_from(audit(&pool).len()).expect("few");
    assert_eq!(of("orders_rate") + audited, ORDERS, "each that was heard is in the audit");
    assert!(audited >= 150, "{audited}");
}
