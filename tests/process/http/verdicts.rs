//! The last verdicts over HTTP: who sees which, and that they are those of the log.

use gridpool_client::{AskedVerdicts, Principal, Secret};
use gridpool_protocol::receipt::Verdict;
use serde_json::{Value, json};

use super::access::{runs, token, tokens, with_tokens};
use super::{Answer, Web, as_request, get, request, served, small, until_ready, with_http};
use crate::command::gridpool;
use crate::jobs::{answer, small_job, submit};
use crate::pool::{Pool, cpu};
use crate::wait::{eventually, eventually_so};

const PATH: &str = "/v2/gridpool/verdicts";

/// What `gridpool jobs --json` prints, without the pool: over HTTP it is the one that is asked.
fn logged(folder: &std::path::Path) -> Vec<Value> {
    let folder = folder.to_str().expect("text");
    let printed = gridpool(["jobs", "--json", "--state-dir", folder]).run().output();
    let mut all: Vec<_> =
        printed.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")).collect();
    all.iter_mut().for_each(|row| {
        row.as_object_mut().expect("an object").remove("pool").expect("its pool");
    });
    all
}

/// The verdicts of an answer without their numbers, which the log has not.
fn rows(answer: &Answer) -> Vec<Value> {
    let mut rows = answer.json()["verdicts"].as_array().expect("verdicts").clone();
    rows.iter_mut().for_each(|row| {
        row.as_object_mut().expect("an object").remove("number").expect("a number");
    });
    rows
}

fn of<'a>(all: &'a [Value], whose: &str) -> Vec<&'a Value> {
    all.iter().filter(|row| row["principal"] == whose).collect()
}

#[test]
fn each_token_sees_its_own_and_an_operator_all_as_the_log_has_them() {
    let setup = with_http(cpu(1));
    let folder = setup.state().join("gridpool");
    let scopes = [("one", "infer"), ("two", "infer"), ("boss", "operate"), ("reader", "metrics")];
    let (pool, headers) = with_tokens(setup, &scopes);
    ["one", "two", "one"].iter().for_each(|name| runs(&pool, &headers[name]));
    let of_user = answer(submit(&pool.client(), small_job(1))).receipt;
    let seen = |name: &str, query: &str| {
        Web::open(&pool).ask("GET", &format!("{PATH}{query}"), &headers[name], b"")
    };
    let all = eventually("the log to have all four", || {
        let all = logged(&folder);
        let shown = rows(&seen("boss", ""));
        if all.len() == 4 && shown == all { Ok(all) } else { Err(format!("{shown:?}")) }
    });
    assert!(all.iter().any(|row| row["receipt"]["key"] == json!(of_user.key)), "not by HTTP alone");
    for (name, whose, count) in [("one", "token one", 2), ("two", "token two", 1)] {
        let shown = rows(&seen(name, ""));
        assert_eq!(shown.iter().collect::<Vec<_>>(), of(&all, whose));
        assert_eq!(shown.len(), count);
    }
    let document = seen("boss", "").json();
    assert_eq!(
        (document["all"].clone(), seen("one", "").json()["all"].clone()),
        (true.into(), false.into())
    );
    let numbers: Vec<_> = document["verdicts"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["number"].clone())
        .collect();
    assert_eq!(numbers.last(), Some(&document["last"]));
    assert_eq!(rows(&seen("boss", &format!("?after={}", numbers[1]))), all[2..]);
    assert_eq!(rows(&seen("boss", "?verdict=others")), [json!(null); 0]);
    assert_eq!(rows(&seen("boss", "?verdict=OK")), all);
    seen("boss", "?verdict=GOOD").complains(400, "none of CANCELLED, DEADLINE");
    seen("boss", "?after=x").complains(400, "no number");
    seen("boss", "?since=1").complains(400, "there are after, job and verdict");
    let found = |name: &str, job: &Value| {
        rows(&seen(name, &format!("?job={}", job.as_str().expect("a text"))))
    };
    for row in &all {
        let named = ["job", "key"].map(|name| found("boss", &row["receipt"][name]));
        assert_eq!(named, [std::slice::from_ref(row), std::slice::from_ref(row)]);
    }
    let own = &rows(&seen("two", ""))[0]["receipt"]["job"];
    assert_eq!((found("two", own).len(), found("one", own).len()), (1, 0), "only its own");
    seen("boss", "?job=17").complains(400, "`17` names no job: write its number (`job17`)");
    seen("reader", "").complains(403, "it needs the scope infer or operate");
    get(&pool, PATH).complains(401, "this needs a token");
}

#[test]
fn a_token_made_anew_sees_no_job_that_came_under_the_old_one() {
    let (pool, headers) = with_tokens(with_http(cpu(1)), &[("one", "infer")]);
    pool.stop("cpu0");
    let mut old = Web::open(&pool);
    let body = as_request(&small()).to_string();
    old.send(&request("POST", "/v2/models/rot90/infer", &headers["one"], body.as_bytes()));
    pool.until_status("the job of the old token to be there", |status| {
        let own = status.principals.iter().find(|own| own.principal == "token one");
        own.is_some_and(|own| own.queued + own.running > 0)
    });
    let made = [("one", "infer"), ("boss", "operate")];
    let made = made.map(|(name, scope)| token(&[name, "--scope", scope]));
    tokens(pool.setup(), &made.each_ref().map(|(_, line)| &**line));
    let [one, boss] = made.map(|(token, _)| format!("Authorization: Bearer {token}\r\n"));
    let seen = |header: &str| Web::open(&pool).ask("GET", PATH, header, b"");
    eventually_so("the new token to be known", || seen(&one).status == 200);
    pool.go_on("cpu0");
    assert_eq!(old.hear().status, 200, "it was let in");
    runs(&pool, &one);
    let all = eventually("both verdicts", || {
        let all = rows(&seen(&boss));
        if of(&all, "token one").len() == 2 { Ok(all) } else { Err(format!("{all:?}")) }
    });
    assert_eq!(rows(&seen(&one)), all[1..], "only its own");
}

/// Asks on the pool's own socket, as no client of a pool's gateway could.
fn refused(pool: &Pool, asked: &AskedVerdicts) -> String {
    pool.observer().verdicts(asked).expect_err("it is refused").to_string()
}

#[test]
fn without_tokens_an_address_sees_its_own_and_nobody_asks_for_another() {
    let pool = served(cpu(1));
    until_ready(&pool);
    runs(&pool, "");
    let of_user = answer(submit(&pool.client(), small_job(1))).receipt;
    assert_eq!(of_user.verdict, Verdict::Ok);
    eventually("the verdict of the address alone", || {
        let shown = rows(&get(&pool, PATH));
        let whose: Vec<_> = shown.iter().map(|row| row["principal"].clone()).collect();
        if whose == ["address 127.0.0.1"] { Ok(()) } else { Err(format!("{shown:?}")) }
    });
    eventually("the verdict of the user, whom the pool's operator sees", || {
        let own = pool.observer().verdicts(&AskedVerdicts::default()).expect("it asks for its own");
        let is_there = own.jobs.iter().any(|(_, job)| job.receipt == of_user);
        if own.is_all && is_there { Ok(()) } else { Err(format!("{own:?}")) }
    });
    let whose = Some(Principal::Uid(0));
    let why = refused(&pool, &AskedVerdicts { whose, ..AskedVerdicts::default() });
    assert!(why.contains("only the pool's own gateway asks for others"), "{why}");
    let token = Some(Secret("gridpool_00".to_owned()));
    let why = refused(&pool, &AskedVerdicts { token, ..AskedVerdicts::default() });
    assert!(why.contains("only the pool's own gateway asks for others"), "{why}");
}

#[test]
fn the_next_pool_shows_what_the_log_has_of_the_one_before() {
    let setup = with_http(cpu(1));
    let folder = setup.state().join("gridpool");
    let pool = setup.start();
    until_ready(&pool);
    answer(submit(&pool.client(), small_job(1)));
    let before = eventually("the log to have it", || {
        let all = logged(&folder);
        if all.len() == 1 { Ok(all) } else { Err(format!("{all:?}")) }
    });
    let last = pool.observer().verdicts(&AskedVerdicts::default()).expect("its own").last;
    let pool = pool.killed().start();
    let next = eventually("the next pool to have read it", || {
        let found = pool.observer().verdicts(&AskedVerdicts::default()).expect("its own");
        if found.jobs.len() == 1 { Ok(found) } else { Err(format!("{found:?}")) }
    });
    assert_eq!(json!(next.jobs[0].1), before[0]);
    assert!(next.last > last, "a page that was open goes on");
}
