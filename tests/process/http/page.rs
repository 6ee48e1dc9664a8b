//! The page of the gateway: its files, its stream of events, and orders with a token.

use gridpool_protocol::chaos::Chaos;
use gridpool_protocol::receipt::Verdict;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::access::{runs, token, tokens, with_tokens};
use super::{
    Web, as_request, gateway_pid, get, post, request, served, small, tcp, until_ready, with_http,
};
use crate::jobs::{PROGRAM, answer, small_job, submit};
use crate::pool::{Pool, cpu};
use crate::processes::{all_gone, signal};
use crate::wait::{eventually, eventually_so};

/// Pages that the gateway serves at once, and those of one client.
const PAGES_EACH_MAX: usize = 24;

/// A stream of events of the page.
struct Events(Web);

impl Events {
    fn open(pool: &Pool, headers: &str) -> Self {
        let mut web = Web::over(tcp(pool));
        web.send(&request("GET", "/v2/gridpool/events", headers, b""));
        let head = web.hear();
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
        Self(web)
    }

    /// The next event; `None` at the end of the stream.
    fn next(&mut self) -> Option<(String, Value)> {
        loop {
            let text = String::from_utf8_lossy(&self.0.rest).into_owned();
            if let Some((event, at)) = parse(&text) {
                self.0.rest.drain(..at);
                return Some(event);
            }
            if text.contains("\r\n0\r\n\r\n") || text == "0\r\n\r\n" || !self.0.more() {
                return None;
            }
        }
    }

    /// The next event of a name.
    fn until(&mut self, name: &str) -> Value {
        loop {
            let (own, data) = self.next().expect("the stream goes on");
            if own == name {
                return data;
            }
        }
    }
}

/// The first whole event in the text, and where it ends. Sizes of chunks stand between events.
fn parse(text: &str) -> Option<((String, Value), usize)> {
    let begin = text.find("event: ")?;
    let end = begin + text[begin..].find("\n\n")?;
    let (name, data) = text[begin + 7..end].split_once("\ndata: ")?;
    // A chunk may end within the data only at its own end, since each update is one.
    let data = serde_json::from_str(data).ok()?;
    Some(((name.to_owned(), data), end + 2))
}

#[test]
fn its_files_need_no_token_and_let_a_browser_run_nothing_else() {
    let (_, line) = token(&["one", "--scope", "operate"]);
    let setup = with_http(cpu(1));
    let file = tokens(&setup, &[&line]);
    let pool = setup.args(&["--http-tokens", file.to_str().expect("readable")]).start();
    until_ready(&pool);
    for (path, kind) in
        [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")]
    {
        let answer = get(&pool, path);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), Some(&*format!("{kind}; charset=utf-8")));
        let policy = answer.header("content-security-policy").expect("a policy");
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "form-action 'none'",
        ] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        Web::open(&pool).ask("POST", path, "", b"{}").complains(405, "the path does not take");
    }
    get(&pool, "/v2/gridpool/events").complains(401, "this needs a token");
}

#[test]
fn events_tell_what_the_status_says_and_then_each_death() {
    let pool = served(cpu(2));
    let mut events = Events::open(&pool, "");
    let (first, timeline) = events.next().expect("an event");
    assert_eq!(first, "timeline");
    assert!(timeline["fine"].is_array() && timeline["coarse"].is_array(), "{timeline}");
    eventually("the same as the status", || {
        let (state, status) = (events.until("state"), pool.status());
        let told = &state["status"];
        let rows = |of: &Value| {
            let rows = of["workers"].as_array().expect("rows").iter();
            let key =
                |row: &Value| (row["name"].clone(), row["state"].clone(), row["jobs_done"].clone());
            rows.map(key).collect::<Vec<_>>()
        };
        let status = serde_json::to_value(status).expect("it is JSON");
        let same = rows(told) == rows(&status) && told["counters"] == status["counters"];
        if same { Ok(()) } else { Err(format!("{told} {status}")) }
    });
    pool.observer()
        .kill("cpu0".parse::<gridpool_protocol::ids::DeviceId>().expect("a device"), 9)
        .expect("the pool kills it");
    let deaths = events.until("deaths");
    assert_eq!(deaths[0]["worker"], "cpu0#1", "{deaths}");
    let block = deaths[0]["block"].as_str().expect("a text");
    assert!(block.starts_with("worker died worker=cpu0#1 pid="), "{block}");
    assert!(block.contains("\n    ended      signal 9 (SIGKILL), as client"), "{block}");
    assert!(pool.log().contains(block.lines().nth(2).expect("a line")), "{block}");
    let point = loop {
        let point = events.until("point");
        if point["point"]["doing"].as_str().is_some_and(|doing| doing.contains('d')) {
            break point;
        }
    };
    let names = json!(["cpu0 grid", "cpu1 grid"]);
    // The names come with the timeline, and again if they change.
    if timeline["lines"] == names {
        assert_eq!(point["lines"], Value::Null);
    }
    let mut other = Events::open(&pool, "");
    assert_eq!(other.until("timeline")["lines"], names);
    assert_eq!(other.until("point")["lines"], Value::Null);
    // One that comes later has the same.
    let mut later = Events::open(&pool, "");
    assert_eq!(later.until("deaths"), deaths);
}

/// The end of each second in which a worker was replaced, as a page is told first.
fn replaced_at(pool: &Pool) -> Vec<u64> {
    let timeline = Events::open(pool, "").until("timeline");
    let points = timeline["fine"].as_array().expect("points").iter();
    let has = |point: &&Value| point["doing"].as_str().is_some_and(|doing| doing.contains('d'));
    points.filter(has).map(|point| point["at_ms"].as_u64().expect("a time")).collect()
}

#[test]
fn the_timeline_outlives_the_gateway_and_an_upgrade_of_the_pool() {
    let pool = served(cpu(1));
    pool.cli(&["kill", "cpu0"]).run().output();
    let seen = eventually("the restart in the timeline", || match &*replaced_at(&pool) {
        [] => Err("it is not there"),
        seen => Ok(seen.to_vec()),
    });
    let gateway = gateway_pid(&pool);
    signal(gateway, Signal::SIGKILL);
    eventually_so("another gateway", || gateway_pid(&pool) != gateway);
    until_ready(&pool);
    assert_eq!(replaced_at(&pool), seen);
    let gateway = gateway_pid(&pool);
    pool.cli(&["upgrade"]).run().output();
    // Until then it may answer for the old pool.
    all_gone(&[gateway]);
    until_ready(&pool);
    assert_eq!(replaced_at(&pool), seen);
}

#[test]
fn a_client_has_so_many_pages_and_no_more() {
    let pool = served(cpu(1));
    let mut pages: Vec<_> = (0..PAGES_EACH_MAX).map(|_| Events::open(&pool, "")).collect();
    for page in &mut pages {
        page.until("state");
    }
    let words = "BUSY: 24 pages of yours are open already";
    get(&pool, "/v2/gridpool/events").complains(503, words);
    assert_eq!(get(&pool, "/v2/health/ready").status, 200, "pages take no other places");
    assert_eq!(post(&pool, "/v2/models/rot90/infer", &as_request(&small())).status, 200);
    pages.pop();
    eventually("a place to be free", || {
        let mut web = Web::open(&pool);
        let answer = web.ask("GET", "/v2/gridpool/events", "", b"");
        if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    });
    let metrics = String::from_utf8(get(&pool, "/metrics").body).expect("text");
    let refused =
        metrics.lines().find(|line| line.contains("reason=\"pages_own\"")).expect("a row");
    assert!(!refused.ends_with(" 0"), "{refused}");
}

#[test]
fn a_stream_ends_when_the_pool_drains_or_its_token_is_taken_back() {
    let (one, one_line) = token(&["one", "--scope", "metrics"]);
    let (new, new_line) = token(&["one", "--scope", "metrics"]);
    let (two, two_line) = token(&["two", "--scope", "metrics"]);
    let setup = with_http(cpu(1));
    let file = tokens(&setup, &[&one_line, &two_line]);
    let pool = setup.args(&["--http-tokens", file.to_str().expect("readable")]).start();
    until_ready(&pool);
    let open = |token: &str| Events::open(&pool, &format!("Authorization: Bearer {token}\r\n"));
    let mut second = open(&two);
    second.until("state");
    // First the same name gets another token, then it has none.
    for (token, lines) in [(one, [&*two_line, &new_line].as_slice()), (new, &[&two_line])] {
        let mut first = open(&token);
        first.until("state");
        tokens(pool.setup(), lines);
        let why = first.until("refused");
        let why = why.as_str().expect("a sentence");
        assert!(why.contains("the token `one` was taken back"), "{why}");
        assert_eq!(first.next(), None);
    }
    pool.observer().drain().expect("the pool accepts the command");
    second.until("end");
    assert_eq!(second.next(), None);
    pool.ends_well();
}

#[test]
fn orders_need_a_token_with_the_scope_operate_that_the_supervisor_knows() {
    let (user, user_line) = token(&["user", "--scope", "infer,metrics"]);
    let (boss, boss_line) = token(&["boss", "--scope", "operate"]);
    let setup = with_http(cpu(2));
    let file = tokens(&setup, &[&user_line, &boss_line]);
    let pool = setup.args(&["--http-tokens", file.to_str().expect("readable")]).start();
    until_ready(&pool);
    let order = |what: &str, token: &str, body: &Value| {
        let header = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
        let path = format!("/v2/gridpool/{what}");
        Web::open(&pool).ask("POST", &path, &header, body.to_string().as_bytes())
    };
    let name = || pool.status().workers[0].name.clone();
    let kill = json!({"worker": "cpu0"});
    order("kill", &user, &kill).complains(403, "it needs the scope operate");
    post(&pool, "/v2/gridpool/kill", &kill).complains(401, "this needs a token");
    assert_eq!(name(), "cpu0#1", "nothing was done");
    let killed = order("kill", &boss, &kill);
    assert_eq!(killed.status, 200, "{killed:?}");
    assert!(
        killed.json()["done"].as_str().is_some_and(|done| done.contains("signal 9 sent to cpu0#1"))
    );
    eventually_so("another worker", || name() == "cpu0#2");
    order("kill", &boss, &json!({"worker": "gpu7"})).complains(400, "there is no worker gpu7 now");
    order("release", &boss, &json!({"what": "cpu0"})).complains(400, "");
    order("upgrade", &boss, &json!({})).complains(404, "there is no such path");
    let get_as = |token: &str, what: &str| {
        let header = format!("Authorization: Bearer {token}\r\n");
        Web::open(&pool).ask("GET", &format!("/v2/gridpool/{what}"), &header, b"")
    };
    get_as(&boss, "upgrade").complains(404, "there is no such path");
    get_as(&boss, "kill").complains(405, "use POST for infer");
    let whole = |token: &str| get_as(token, "deaths");
    whole(&user).complains(403, "it needs the scope operate");
    assert_eq!(whole(&boss).json()["deaths"][0]["worker"], "cpu0#1");
    let audit: Vec<_> =
        pool.log().lines().filter(|line| line.contains(" audit: ")).map(str::to_owned).collect();
    assert!(audit[0].contains("token=\"boss\"") && audit[0].contains("what=\"kill\""), "{audit:?}");
    assert!(!pool.log().contains(&boss), "no token is logged");
    assert_eq!(order("drain", &boss, &json!({})).json(), json!({"done": "draining"}));
    pool.ends_well();
}

#[test]
fn what_runs_and_what_is_refused_is_named_for_a_token_with_the_scope_operate_alone() {
    let setup = with_http(cpu(1)).env("GRIDPOOL_ALLOW_CHAOS", "1");
    let (pool, headers) = with_tokens(setup, &[("user", "infer,metrics"), ("boss", "operate")]);
    let client = pool.client();
    let deadly = Chaos { fault: "segv".parse().expect("it is a fault"), attempts: 2 };
    let answer = answer(submit(&client, small_job(52).with_chaos(deadly)));
    assert_eq!(answer.verdict(), Verdict::Poison, "{:?}", answer.receipt);
    let endless = Chaos { fault: "endless".parse().expect("it is a fault"), attempts: 1 };
    let running = submit(&client, small_job(53).with_chaos(endless));
    pool.until_status("the other to run", |status| status.workers[0].run.is_some());
    let asked =
        |name: &str| Web::open(&pool).ask("GET", "/v2/gridpool/status", &headers[name], b"");
    asked("user").complains(403, "it needs the scope operate");
    let whole = asked("boss").json();
    let (run, denied) = (&whole["workers"][0]["run"], &whole["denylist"]["latest"][0]);
    assert_eq!(run["what"], PROGRAM, "{whole}");
    assert_eq!(
        (&denied["what"], &denied["items"]),
        (&json!(answer.receipt.program_hash), &json!(5))
    );
    let content = denied["content"].as_str().expect("a hash");
    assert!(answer.receipt.reason.contains(&format!("gridpool release {content}")), "{whole}");
    let mut events = Events::open(&pool, &headers["user"]);
    let told = loop {
        let told = events.until("state")["status"].take();
        if told["workers"][0]["run"] != Value::Null {
            break told;
        }
    };
    assert_eq!(told["workers"][0]["run"]["what"], "", "{told}");
    assert_eq!(told["denylist"]["contents"], 1);
    let shown = &told["denylist"]["latest"][0];
    assert_eq!((&shown["content"], &shown["what"]), (&json!(content), &json!("")));
    // The client's own connection may show no token.
    let token = gridpool_client::Secret("gridpool_00".to_owned());
    let why = pool.observer().status_by_token(&token).unwrap_err();
    assert!(why.to_string().contains("only the pool's own gateway passes tokens on"), "{why}");
    drop(running);
}

#[test]
fn without_tokens_nobody_orders_over_http() {
    let pool = served(cpu(1));
    for (what, body) in
        [("kill", json!({"worker": "cpu0"})), ("drain", json!({})), ("release", json!({}))]
    {
        let path = format!("/v2/gridpool/{what}");
        post(&pool, &path, &body).complains(403, "have the pool started with --http-tokens");
    }
    get(&pool, "/v2/gridpool/deaths").complains(403, "have the pool started with --http-tokens");
    assert_eq!(pool.status().workers[0].name, "cpu0#1");
    // The connection to the pool's socket of any other client passes no tokens on either.
    let token = gridpool_client::Secret("gridpool_00".to_owned());
    let why =
        pool.observer().order_by_token(&token, &gridpool_client::TokenOrder::Drain).unwrap_err();
    assert!(why.to_string().contains("only the pool's own gateway passes tokens on"), "{why}");
}

#[test]
fn receipts_are_shown_to_whom_their_jobs_were_for_and_to_operators() {
    let scopes = [("one", "infer"), ("two", "infer"), ("boss", "operate")];
    let (pool, headers) = with_tokens(with_http(cpu(1)), &scopes);
    ["one", "two", "one"].iter().for_each(|name| runs(&pool, &headers[name]));
    let mut failing = as_request(&small());
    failing["parameters"] = json!({"timeout": 1});
    let late = Web::open(&pool).ask(
        "POST",
        "/v2/models/rot90/infer",
        &headers["two"],
        failing.to_string().as_bytes(),
    );
    let seen = |name: &str| {
        let shown =
            Web::open(&pool).ask("GET", "/v2/gridpool/receipts", &headers[name], b"").json();
        let rows = shown["receipts"].as_array().expect("rows").clone();
        rows.iter()
            .map(|row| (row["principal"].clone(), row["receipt"]["verdict"].clone()))
            .collect::<Vec<_>>()
    };
    let (one, two) = (json!("token one"), json!("token two"));
    let ok = json!("OK");
    assert_eq!(seen("one"), [(one.clone(), ok.clone()), (one.clone(), ok.clone())]);
    let all = seen("boss");
    assert_eq!(all.iter().filter(|(whose, _)| *whose == one).count(), 2);
    assert!(all.contains(&(two.clone(), ok)), "{all:?}");
    if late.status == 504 {
        assert!(seen("two").contains(&(two, json!("DEADLINE"))), "one that failed is kept too");
    }
}
