//! Who may do what: TLS, credentials, and the permissions that the book names, no more and no less.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gridpool_client::{ClientError, Handle, Verdict};
use gridpool_tests::oracle::samples::random_grids;
use tempfile::tempdir;

use super::credentials::{Operator, authority};
use super::servers::{Servers, are_there};
use super::{client, host, serving, until};
use crate::binaries;
use crate::command::{Finished, gridpool};
use crate::jobs::{PROGRAM, answer, as_json, as_npy, is_right, job, small_job, submit};
use crate::wait::eventually;

/// The rights of pools or of clients as the book has them: to publish, and to subscribe.
fn rights(who: &str) -> [Vec<String>; 2] {
    let book = binaries::root().join("docs/src/guide/cluster.md");
    let book = fs::read_to_string(book).expect("the book is there");
    let begin = format!("| {who} |");
    let row = book.lines().find_map(|line| line.strip_prefix(&begin)).expect("a row of rights");
    let cell = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let cells: Vec<Vec<String>> = row.split('|').take(2).map(cell).collect();
    cells.try_into().expect("two cells")
}

/// All but one of them.
fn without(rights: &[Vec<String>; 2], kind: usize, at: usize) -> [Vec<String>; 2] {
    let mut fewer = rights.clone();
    fewer[kind].remove(at);
    fewer
}

/// The lines of users with a password, and these rights.
fn users(users: &[(String, [Vec<String>; 2])]) -> String {
    let user = |(name, [publish, subscribe]): &(String, [Vec<String>; 2])| {
        format!(
            "{{ user: {name:?}, password: pw, permissions: {{ publish: {publish:?}, subscribe: {subscribe:?} }} }}"
        )
    };
    let users: Vec<_> = users.iter().map(user).collect();
    format!("authorization {{ users: [\n{}\n] }}", users.join(",\n"))
}

/// A job by the command line.
fn submitted(arguments: &[&str]) -> Finished {
    let grids = as_json(&random_grids(1, 2));
    gridpool(["submit"]).args(arguments).args(&["rot90", "-"]).stdin(grids).run()
}

#[test]
fn servers_with_certificates_serve_those_who_trust_their_authority() {
    if !are_there() {
        return;
    }
    let folder = tempdir().expect("a folder");
    let right = authority(folder.path(), "right");
    let (ca, other) = (right.ca.clone(), authority(folder.path(), "other").ca);
    let mut servers = Servers::with(1, "tls://", &format!("tls {{ {} }}", right.lines()));
    servers.ca = Some(ca.clone());
    let _pool = serving(&servers, "one", &format!("ca = {ca:?}"));
    let url = servers.url();
    let ca = ca.to_str().expect("UTF-8");
    assert!(submitted(&["--nats", &url, "--nats-ca", ca]).output().contains("OK"));
    let other = other.to_str().expect("UTF-8");
    let refused = ["certificate", "--nats-ca"];
    submitted(&["--nats", &url, "--nats-ca", other]).complains(69, &refused);
    submitted(&["--nats", &url]).complains(69, &refused);
    // It is not spoken to without TLS, either.
    let plain = url.replace("tls://", "nats://");
    submitted(&["--nats", &plain]).complains(69, &refused);
}

#[test]
fn servers_that_want_a_certificate_get_it_from_pools_and_clients() {
    if !are_there() {
        return;
    }
    let folder = tempdir().expect("a folder");
    let (server, own) = (authority(folder.path(), "server"), authority(folder.path(), "own"));
    let wants = format!("tls {{ {}, ca_file: {:?}, verify: true }}", server.lines(), own.ca);
    let mut servers = Servers::with(1, "tls://", &wants);
    servers.ca = Some(server.ca.clone());
    servers.own = Some([own.cert.clone(), own.key.clone()]);
    let lines = format!("ca = {:?}\ncert = {:?}\nkey = {:?}", server.ca, own.cert, own.key);
    let _pool = serving(&servers, "one", &lines);
    let grids = random_grids(1, 2);
    is_right(&answer(submit(&client(&servers), job(PROGRAM, &grids))), PROGRAM, &grids);
    let (url, path) = (servers.url(), |path: &Path| path.display().to_string());
    let with = |files: &[(&str, &Path)]| {
        let ca = path(&server.ca);
        let mut arguments = vec!["--nats", &url, "--nats-ca", &ca];
        let files: Vec<_> = files.iter().map(|(flag, file)| (*flag, path(file))).collect();
        arguments.extend(files.iter().flat_map(|(flag, file)| [*flag, file.as_str()]));
        submitted(&arguments)
    };
    let (cert, key) = ("--nats-cert", "--nats-key");
    assert!(with(&[(cert, &own.cert), (key, &own.key)]).output().contains("OK"));
    // None, and one that they do not trust.
    let wanted = ["client certificate", "--nats-cert"];
    with(&[]).complains(69, &wanted);
    with(&[(cert, &server.cert), (key, &server.key)]).complains(69, &wanted);
    // Files that are none.
    with(&[(cert, &own.cert)]).complains(2, &["two files", "--nats-key"]);
    let missing = folder.path().join("none.pem");
    with(&[(cert, &missing), (key, &own.key)]).complains(78, &["none.pem cannot be read"]);
    with(&[(cert, &own.key), (key, &own.key)]).complains(78, &["has no certificate in PEM"]);
    with(&[(cert, &own.cert), (key, &own.cert)]).complains(78, &["has no private key in PEM"]);
    // Only the attempt to connect finds that out.
    with(&[(cert, &own.cert), (key, &server.key)])
        .complains(69, &["is not that of the certificate"]);
}

#[test]
fn a_password_may_have_any_sign() {
    if !are_there() {
        return;
    }
    let lines = "authorization { user: \"me@home\", password: \"p:/@%ä\" }";
    let servers = Servers::with(1, "nats://me%40home:p%3a%2F%40%25%C3%A4@", lines);
    let _pool = serving(&servers, "one", "");
    let url = servers.url();
    assert!(submitted(&["--nats", &url]).output().contains("OK"));
    let wrong = url.replace("%25", "%");
    submitted(&["--nats", &wrong]).complains(2, &["write %25 for a percent sign"]);
}

#[test]
fn a_flag_wins_over_the_variable_of_another_place() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "");
    let (url, socket) = (servers.url(), pool.socket().display().to_string());
    let nowhere = "nats://127.0.0.1:1";
    let task = crate::jobs::data("tasks/one_cell.json").display().to_string();
    let commands: [&[&str]; 3] =
        [&["submit", "rot90", "-"], &["top"], &["search", "--tasks", &task, "--programs", "-"]];
    let call = |command: &[&str]| {
        let input = if command[0] == "search" {
            br#"{"id": "a", "program": "rot90"}"#.to_vec()
        } else {
            as_json(&random_grids(1, 2)).into()
        };
        gridpool(command).stdin(input)
    };
    for command in commands {
        call(command).args(&["--socket", &socket]).env("GRIDPOOL_NATS", nowhere).run().output();
        call(command).args(&["--nats", &url]).env("GRIDPOOL_SOCKET", "/nowhere").run().output();
        let both = call(command).args(&["--nats", &url, "--socket", &socket]).run();
        both.complains(2, &["--socket", "cannot be used with", "--nats"]);
        let variables = call(command).env("GRIDPOOL_SOCKET", &socket).env("GRIDPOOL_NATS", nowhere);
        // Those that wait for a cluster need not.
        let at_once: &[&str] = if command[0] == "top" { &[] } else { &["--no-wait"] };
        variables.args(at_once).run().complains(69, &["no NATS server"]);
    }
    // A model is asked for in the pool, which has none.
    let infer = |more: &[&str]| {
        let input = as_npy(&[random_grids(1, 1).remove(0)]);
        gridpool(["infer", "none", "-", "--socket", &socket]).args(more).stdin(input)
    };
    let said = infer(&[]).env("GRIDPOOL_NATS", nowhere).run().stderr;
    assert!(said.contains("no worker of this pool"), "{said}");
    infer(&["--nats", &url]).run().complains(2, &["cannot be used with"]);
}

#[test]
fn credentials_files_open_what_they_are_for_and_nothing_else() {
    if !are_there() {
        return;
    }
    let (folder, operator) = (tempdir().expect("a folder"), Operator::new());
    let mut servers = Servers::with(1, "nats://", &operator.lines());
    let creds = |name: &str, rights: &[Vec<String>; 2]| {
        operator.user(folder.path(), name, [&rights[0], &rights[1]])
    };
    servers.credentials = Some(creds("client", &rights("clients")));
    let pool = creds("pool", &rights("pools"));
    let _pool = serving(&servers, "one", &format!("credentials = {pool:?}"));
    let grids = random_grids(1, 4_000);
    is_right(&answer(submit(&client(&servers), job(PROGRAM, &grids))), PROGRAM, &grids);
    let url = servers.url();
    submitted(&["--nats", &url]).complains(69, &["authorization", "--nats-credentials"]);
    let other = Operator::new();
    let all = rights("clients");
    let foreign = other.user(folder.path(), "foreign", [&all[0], &all[1]]);
    let foreign = foreign.to_str().expect("UTF-8");
    submitted(&["--nats", &url, "--nats-credentials", foreign])
        .complains(69, &["authorization", "--nats-credentials"]);
    let fewer = creds("fewer", &without(&all, 0, 0));
    let fewer = fewer.to_str().expect("UTF-8");
    let refused = submitted(&["--nats", &url, "--nats-credentials", fewer]);
    assert_ne!(refused.code, Some(0), "{}", refused.stderr);
    for words in ["do not allow it to this user", ".normal.grid"] {
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
}

#[test]
fn a_client_needs_the_rights_that_the_book_names() {
    if !are_there() {
        return;
    }
    let all = rights("clients");
    let everything = [vec![">".to_owned()], vec![">".to_owned()]];
    let mut named = vec![("pool".to_owned(), everything), ("client".to_owned(), all.clone())];
    let missing: Vec<_> =
        (0..2).flat_map(|kind| (0..all[kind].len()).map(move |at| (kind, at))).collect();
    for &(kind, at) in &missing {
        named.push((format!("without-{kind}-{at}"), without(&all, kind, at)));
    }
    let mut servers = Servers::with(1, "nats://pool:pw@", &users(&named));
    let pool = serving(&servers, "one", "under_way_max = 1");
    servers.scheme = "nats://client:pw@".to_owned();
    // With them it can do everything.
    let able = client(&servers);
    let large = random_grids(3, 4_000);
    is_right(&answer(submit(&able, job(PROGRAM, &large))), PROGRAM, &large);
    pool.stop("cpu0");
    let patient = || small_job(1).with_deadline(Duration::from_secs(600));
    let cancelled = submit(&able, patient());
    cancelled.cancel();
    assert_eq!(answer(cancelled).verdict(), Verdict::Cancelled);
    pool.go_on("cpu0");
    assert_eq!(until(&servers, "the host", |status| status.hosts.len() == 1).convicted, []);
    let url = servers.url();
    let task = crate::jobs::data("tasks/one_cell.json");
    let search = gridpool(["search", "--nats", &url, "--programs", "-", "--tasks"]).arg(task);
    search.stdin(br#"{"id": "a", "program": "rot90"}"#.as_slice()).run().output();
    // Without one of them, something fails, and the reason is said.
    for (kind, at) in missing {
        let right = all[kind][at].trim_end_matches(".>");
        servers.scheme = format!("nats://without-{kind}-{at}:pw@");
        let said = match right {
            // Its cancellations reach no host; that a result was read is not noted; results are looked up.
            // The log says so.
            "gridpool.cancel" => continue,
            // What the servers refuse may be told to a command just as it ends.
            "gridpool.result" | "gridpool.note" => eventually("its log to say so", || {
                let said = submitted(&["--nats", &servers.url()]).stderr;
                if said.contains(right) { Ok(said) } else { Err(said) }
            }),
            "gridpool.data" => {
                let grids = random_grids(at as u64 + 17, 4_000);
                match client(&servers).submit(job(PROGRAM, &grids)).and_then(Handle::wait) {
                    Err(ClientError::Refused(why)) => why.to_string(),
                    other => panic!("{other:?}"),
                }
            }
            _ => {
                let finished = submitted(&["--nats", &servers.url()]);
                assert_ne!(finished.code, Some(0), "{right}: {}", finished.stderr);
                finished.stderr
            }
        };
        assert!(said.contains("allow") && said.contains(right), "{right}: {said}");
    }
}

#[test]
fn a_pool_needs_the_rights_that_the_book_names() {
    if !are_there() {
        return;
    }
    let all = rights("pools");
    let mut named = vec![
        ("pool".to_owned(), all.clone()),
        ("client".to_owned(), [vec![">".to_owned()], vec![">".to_owned()]]),
    ];
    let missing: Vec<_> =
        (0..2).flat_map(|kind| (0..all[kind].len()).map(move |at| (kind, at))).collect();
    for &(kind, at) in &missing {
        named.push((format!("without-{kind}-{at}"), without(&all, kind, at)));
    }
    let mut servers = Servers::with(1, "nats://pool:pw@", &users(&named));
    let able = serving(&servers, "able", "");
    servers.scheme = "nats://client:pw@".to_owned();
    let sender = client(&servers);
    let large = random_grids(3, 4_000);
    is_right(&answer(submit(&sender, job(PROGRAM, &large))), PROGRAM, &large);
    drop(able);
    for (kind, at) in missing {
        let right = all[kind][at].trim_end_matches(".>");
        servers.scheme = format!("nats://without-{kind}-{at}:pw@");
        // A job that is watched from its first delivery on, so that its host notes it.
        let pool = host(&servers, &format!("unable{kind}{at}"), "deliveries_max = 1").start();
        let deadline = Duration::from_secs(600);
        let sent = sender.send(job(PROGRAM, &random_grids(at as u64, 2)).with_deadline(deadline));
        eventually("the pool to say what it may not do", || {
            let log = pool.log();
            let is_said = log.lines().any(|line| line.contains("allow") && line.contains(right));
            if is_said { Ok(()) } else { Err(format!("without {right}:\n{log}")) }
        });
        drop(pool.killed());
        sent.expect("it is sent").cancel();
    }
}
