//! The job log: verdicts with their receipts outlive the pool, whatever ends it, and `gridpool jobs` lists them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gridpool_protocol::chaos::Chaos;
use gridpool_protocol::receipt::{Receipt, Verdict};
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::command::gridpool;
use crate::jobs::{PROGRAM, answer, job, small_job, submit};
use crate::pool::{Pool, Setup, cpu};
use crate::wait::eventually;

/// What `gridpool jobs --json` prints of a state folder.
fn logged(folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let folder = folder.to_str().expect("text");
    let cli = gridpool(["jobs", "--json", "--state-dir", folder]).args(arguments);
    cli.run().output().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

pub(crate) fn receipts(folder: &Path, arguments: &[&str]) -> Vec<Receipt> {
    let receipt =
        |line: &Value| serde_json::from_value(line["receipt"].clone()).expect("a receipt");
    logged(folder, arguments).iter().map(receipt).collect()
}

/// Runs jobs until there is one more verdict of each kind: OK, and POISON.
fn work(pool: &Pool, seed: u64) -> [Receipt; 2] {
    let client = pool.client();
    let fine = answer(submit(&client, small_job(seed))).receipt;
    let chaos = Chaos { fault: "segv".parse().expect("a fault"), attempts: 2 };
    let poison = job(PROGRAM, &random_grids(seed, 3)).with_chaos(chaos);
    let poison = answer(submit(&client, poison)).receipt;
    assert_eq!([fine.verdict, poison.verdict], [Verdict::Ok, Verdict::Poison]);
    [fine, poison]
}

#[test]
fn verdicts_outlive_a_pool_that_is_killed_and_one_that_ends() {
    let setup = cpu(1).env("GRIDPOOL_ALLOW_CHAOS", "1");
    let folder = setup.state().join("gridpool");
    let pool = setup.start();
    let mut given = work(&pool, 1).to_vec();
    // The log is written aside, and so may be a moment late.
    eventually("the log to have the last verdict", || {
        let seen = receipts(&folder, &[]);
        if seen == given { Ok(()) } else { Err(format!("{seen:?}")) }
    });
    let pool = pool.killed().start();
    given.extend(work(&pool, 2));
    // A pool that ends has written everything.
    pool.signal(Signal::SIGTERM);
    let _folder = pool.ended();
    assert_eq!(receipts(&folder, &[]), given);

    let poison: Vec<_> = given.iter().filter(|it| it.verdict == Verdict::Poison).cloned().collect();
    assert_eq!(receipts(&folder, &["--failed"]), poison);
    assert_eq!(receipts(&folder, &["--failed", "--last", "1"]), poison[1..]);
    assert_eq!(receipts(&folder, &[&given[2].key]), given[2..3]);
    assert_eq!(receipts(&folder, &["--since", "2020-01-01"]), given);
    assert_eq!(receipts(&folder, &["--since", "2999-01-01"]), []);

    let line = &logged(&folder, &[&given[1].key])[0];
    let me = format!("uid {}", nix::unistd::getuid());
    assert_eq!(line["principal"], me);
    let list = |job: &[&str]| {
        gridpool(["jobs", "--state-dir", folder.to_str().expect("text")]).args(job).run()
    };
    let none = list(&["job999"]);
    let said = format!("no such job is in the log in {}\n", folder.join("jobs").display());
    assert_eq!((none.code, &*none.stdout), (Some(1), &*said));
    list(&["--last", "0"]).complains(2, &["--last", "from 1 to"]);
    list(&["nonsense"]).complains(2, &["'nonsense'", "it is no job", "such as job7"]);
    let table = list(&[]).output();
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(table.lines().nth(2).is_some_and(|line| line.contains("POISON")), "{table}");

    let files = std::fs::read_dir(folder.join("jobs")).expect("the log is there");
    for file in files.map(|file| file.expect("it can be listed")) {
        let mode = file.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file:?}");
    }
}

#[test]
fn jobs_of_pools_that_share_a_folder_are_told_apart() {
    let setup = cpu(1);
    let folder = setup.state().join("gridpool");
    let folder = folder.to_str().expect("text");
    let other = cpu(1).env("GRIDPOOL_STATE_DIR", folder);
    let sockets = [&setup, &other].map(|setup| setup.socket().to_str().expect("text").to_owned());
    let list =
        |flags: &[&str]| gridpool(["jobs", "--state-dir", folder]).args(flags).run().output();
    let run = |setup: Setup, seed| {
        let pool = setup.start();
        answer(submit(&pool.client(), small_job(seed)));
        pool.signal(Signal::SIGTERM);
        pool.ended();
    };
    // The default folder is made by the pool that has it.
    run(setup.clone(), 4);
    assert!(!list(&[]).contains("POOL"), "one pool needs no column");
    run(other.clone(), 5);

    let both = list(&[]);
    assert!(both.lines().next().is_some_and(|head| head.contains("POOL")), "{both}");
    assert!(sockets.iter().all(|socket| both.contains(socket)), "{both}");
    for socket in &sockets {
        let one = list(&["--socket", socket]);
        assert_eq!((one.lines().count(), one.contains("POOL")), (2, false), "{one}");
        let [line] = &*logged(Path::new(folder), &["--socket", socket]) else { panic!("{one}") };
        assert_eq!(line["pool"], **socket);
    }
    assert_eq!(logged(Path::new(folder), &["--socket", "/no/such.sock"]), [Value::Null; 0]);
    let none = list(&["--socket", "/no/such.sock"]);
    assert!(none.starts_with("no such job of the pool at /no/such.sock is in the log"), "{none}");
}

#[test]
fn a_pool_without_a_state_folder_logs_nothing_and_the_command_says_so() {
    let setup = cpu(1).env("GRIDPOOL_STATE_DIR", "none");
    let folder = setup.state().join("gridpool");
    let pool = setup.start();
    answer(submit(&pool.client(), small_job(3)));
    pool.signal(Signal::SIGTERM);
    let _folder = pool.ended();
    assert!(!folder.exists());
    let missing = folder.to_str().expect("text");
    gridpool(["jobs", "--state-dir", missing])
        .run()
        .complains(2, &["there is no state folder", "--state-dir"]);
    gridpool(["jobs", "--state-dir", "none"]).run().complains(2, &["--state-dir"]);
    gridpool(["jobs", "--since", "noon"]).run().complains(2, &["10m"]);
}
