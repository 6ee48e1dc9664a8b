//! Whom the gateway admits: web pages, names of hosts, tokens and their scopes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::{Answer, Web, as_request, get, small, until_ready, until_status_of, with_http};
use crate::command::gridpool;
use crate::pool::{Pool, Setup, cpu};
use crate::wait::{eventually, eventually_so};

const INFER: &str = "/v2/models/rot90/infer";

/// Asks over a connection of its own, with headers that include Host.
fn ask(pool: &Pool, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let mut web = Web::open(pool);
    let length = body.len();
    web.send(
        format!("{method} {path} HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
            .as_bytes(),
    );
    web.hear()
}

fn body() -> String {
    as_request(&small()).to_string()
}

// ---- web pages ----

#[test]
fn a_name_that_is_not_ours_reaches_nothing() {
    let setup = with_http(cpu(1)).args(&["--http-host", "gpu.example.org"]);
    let pool = setup.start();
    until_ready(&pool);
    // A page on evil.example, whose name was made to mean 127.0.0.1.
    for (host, status) in [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("gpu.example.org", 200),
        ("GPU.example.org.:443", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("gpu.example.org.evil", 421),
        ("10.0.0.1", 421),
        ("", 421),
    ] {
        for path in ["/v2/health/live", "/metrics", "/v2/models/rot90"] {
            let answer = ask(&pool, "GET", path, &format!("Host: {host}\r\n"), "");
            assert_eq!(answer.status, status, "{host}: {answer:?}");
        }
    }
    let said = ask(&pool, "POST", INFER, "Host: evil.example\r\n", &body());
    said.complains(421, "have the pool started with --http-host evil.example");
    ask(&pool, "GET", "/v2", "", "").complains(400, "the request has no Host");
    let twice = "Host: localhost\r\nHost: evil.example\r\n";
    ask(&pool, "GET", "/v2", twice, "").complains(400, "more than one Host");
    let twice =
        "Host: localhost\r\nOrigin: https://app.example.org\r\nOrigin: https://evil.example\r\n";
    ask(&pool, "GET", "/v2", twice, "").complains(400, "more than one Origin");
    let absolute = ask(&pool, "GET", "http://evil.example/v2", "Host: localhost\r\n", "");
    absolute.complains(421, "evil.example");
    // Health checks of HTTP/1.0 name no host.
    let mut old = Web::open(&pool);
    old.send(b"GET /v2/health/live HTTP/1.0\r\n\r\n");
    assert!(old.closes().starts_with(b"HTTP/1.0 200"));
}

#[test]
fn a_web_page_reaches_nothing_unless_its_origin_is_allowed() {
    let setup = with_http(cpu(1)).env("GRIDPOOL_HTTP_ORIGIN", "https://app.example,http://b:8");
    let pool = setup.start();
    until_ready(&pool);
    let at = |method, path, headers: &str, text: &str| {
        ask(&pool, method, path, &format!("Host: localhost\r\n{headers}"), text)
    };
    let others = ["https://evil.example", "null", "http://localhost:81", "https://app.example:444"];
    for origin in others {
        let header = format!("Origin: {origin}\r\nContent-Type: application/json\r\n");
        let answer = at("POST", INFER, &header, &body());
        answer.complains(403, "requests of web pages are not served");
        assert_eq!(answer.header("access-control-allow-origin"), None);
        let asked = format!("Origin: {origin}\r\nAccess-Control-Request-Method: POST\r\n");
        let answer = at("OPTIONS", INFER, &asked, "");
        assert_eq!(answer.status, 403);
        assert!(!answer.headers.iter().any(|(name, _)| name.starts_with("access-control")));
    }
    // The page of this server itself has the name and the port that it asks.
    let own = |origin: &str, host: &str, more: &str| {
        let json = "Content-Type: application/json\r\n";
        let headers = format!("Host: {host}\r\nOrigin: {origin}\r\n{more}{json}");
        ask(&pool, "POST", INFER, &headers, &body())
    };
    for (origin, host, more, status) in [
        ("http://localhost:8000", "localhost:8000", "", 200),
        ("http://LOCALHOST:8000", "localhost:8000", "Sec-Fetch-Site: same-origin\r\n", 200),
        ("http://127.0.0.1", "127.0.0.1", "", 200),
        // Another server, at the port of HTTPS.
        ("https://127.0.0.1", "127.0.0.1", "", 403),
        ("http://localhost", "localhost:8000", "", 403),
        ("http://localhost:8000", "127.0.0.1:8000", "", 403),
        ("http://localhost:8000", "localhost:8000", "Sec-Fetch-Site: cross-site\r\n", 403),
        ("localhost:8000", "localhost:8000", "", 403),
        ("http://evil.example", "evil.example", "", 421),
    ] {
        let answer = own(origin, host, more);
        assert_eq!(answer.status, status, "{origin} {host}: {answer:?}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    // An image or a link, for which a browser sends no Origin.
    for site in ["cross-site", "same-site"] {
        let header = format!("Sec-Fetch-Site: {site}\r\n");
        at("GET", "/metrics", &header, "").complains(403, "Sec-Fetch-Site says so");
        // A link leads to the page, and to nothing else.
        let visit = format!("{header}Sec-Fetch-Mode: navigate\r\n");
        assert_eq!(at("GET", "/", &visit, "").status, 200);
        for path in ["/metrics", "/v2", "/v2/gridpool/receipts"] {
            at("GET", path, &visit, "").complains(403, "Sec-Fetch-Site says so");
        }
        at("GET", "/page.js", &header, "").complains(403, "Sec-Fetch-Site says so");
    }
    assert_eq!(at("GET", "/metrics", "Sec-Fetch-Site: none\r\n", "").status, 200);
    for origin in ["https://app.example", "http://b:8"] {
        let header = format!("Origin: {origin}\r\nContent-Type: application/json\r\n");
        let answer = at("POST", INFER, &header, &body());
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
        let asked = at("OPTIONS", INFER, &format!("Origin: {origin}\r\n"), "");
        assert_eq!((asked.status, asked.header("vary")), (204, Some("origin")));
        let names = asked.header("access-control-allow-headers").expect("the names of headers");
        for name in ["content-type", "authorization", "traceparent"] {
            assert!(names.contains(name), "{names}");
        }
    }
}

#[test]
fn a_body_that_a_page_may_send_without_asking_is_refused() {
    let pool = super::served(cpu(1));
    for kind in [
        "application/x-www-form-urlencoded",
        "Text/Plain; charset=utf-8",
        "multipart/form-data; boundary=x",
    ] {
        let headers = format!("Host: localhost\r\nContent-Type: {kind}\r\n");
        let answer = ask(&pool, "POST", INFER, &headers, &body());
        answer.complains(415, "as `curl --json @FILE` does");
        assert_eq!(answer.header("connection"), None, "the body was read");
    }
}

// ---- tokens ----

/// A file of tokens in the pool's folder, which only we may read.
pub(super) fn tokens(setup: &Setup, lines: &[&str]) -> PathBuf {
    let path = setup.folder().join("tokens");
    // As an editor does it: a new file in the old one's place.
    let new = path.with_extension("new");
    fs::write(&new, lines.join("\n")).expect("a file can be written");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("a mode can be set");
    fs::rename(&new, &path).expect("a file can be renamed");
    path
}

/// A new token and its line.
pub(super) fn token(arguments: &[&str]) -> (String, String) {
    let made = gridpool(["token", "new"]).args(arguments).args(&["--json"]).run().document();
    let text = |key: &str| made[key].as_str().expect("a text").to_owned();
    (text("token"), text("line"))
}

/// A pool with HTTP and tokens of these names and scopes, and the header that shows each.
pub(super) fn with_tokens(
    setup: Setup,
    scopes: &[(&'static str, &str)],
) -> (Pool, BTreeMap<&'static str, String>) {
    let made = scopes.iter().map(|&(name, scope)| (name, token(&[name, "--scope", scope])));
    let made: Vec<_> = made.collect();
    let lines: Vec<_> = made.iter().map(|(_, (_, line))| &**line).collect();
    let file = tokens(&setup, &lines);
    let pool = setup.args(&["--http-tokens", file.to_str().expect("readable")]).start();
    until_ready(&pool);
    let header =
        |(name, (token, _)): (_, (String, _))| (name, format!("Authorization: Bearer {token}\r\n"));
    (pool, made.into_iter().map(header).collect())
}

/// A job that ends well.
pub(super) fn runs(pool: &Pool, header: &str) {
    let body = as_request(&small()).to_string();
    let answer = Web::open(pool).ask("POST", "/v2/models/rot90/infer", header, body.as_bytes());
    assert_eq!(answer.status, 200);
}

fn with_token(pool: &Pool, method: &str, path: &str, token: &str) -> Answer {
    let header = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n");
    ask(pool, method, path, &header, if path == INFER { &BODY } else { "" })
}

static BODY: std::sync::LazyLock<String> = std::sync::LazyLock::new(body);

#[test]
fn a_request_needs_a_token_with_the_scope_of_its_path() {
    let (user, user_line) = token(&["user"]);
    let (both, both_line) = token(&["both", "--scope", "metrics,operate"]);
    let (old, old_line) = token(&["old", "--expires", "2990-01-01"]);
    let old_line = old_line.replace("2990", "2020");
    let setup = with_http(cpu(1));
    let file = tokens(&setup, &["# ours", &user_line, &both_line, &old_line]);
    let pool = setup.args(&["--http-tokens", file.to_str().expect("readable")]).start();
    // Load balancers have no token.
    until_ready(&pool);
    assert_eq!(get(&pool, "/v2/health/live").status, 200);
    for (method, path, for_user, for_both) in [
        ("POST", INFER, 200, 403),
        ("GET", "/v2", 200, 200),
        ("GET", "/v2/models/rot90", 200, 403),
        ("GET", "/v2/models/rot90/ready", 200, 403),
        ("GET", "/v2/models/stats", 200, 200),
        ("POST", "/v2/repository/index", 200, 200),
        ("POST", "/v2/repository/models/rot90/load", 403, 501),
        ("POST", "/v2/repository/models/rot90/unload", 403, 501),
        ("GET", "/metrics", 403, 200),
        ("GET", "/v2/gridpool/events", 403, 200),
        ("GET", "/v2/gridpool/receipts", 200, 200),
        ("GET", "/v2/gridpool/verdicts", 200, 200),
        ("GET", "/v2/gridpool/deaths", 403, 200),
        ("GET", "/v2/gridpool/status", 403, 200),
        ("POST", "/v2/gridpool/kill", 403, 400),
        ("GET", "/nowhere", 404, 404),
    ] {
        let status = |token: &str| with_token(&pool, method, path, token).status;
        assert_eq!((status(&user), status(&both)), (for_user, for_both), "{path}");
        let bare = ask(&pool, method, path, "Host: localhost\r\n", "");
        bare.complains(401, "send Authorization: Bearer TOKEN");
        assert_eq!(bare.header("www-authenticate"), Some("Bearer realm=\"gridpool\""));
        for wrong in [&old, &user[1..], "", "x"] {
            let answer = with_token(&pool, method, path, wrong);
            answer.complains(401, "the token is unknown or has expired");
            let challenge = answer.header("www-authenticate").expect("a challenge");
            assert!(challenge.ends_with("error=\"invalid_token\""), "{challenge}");
        }
    }
    let refused = with_token(&pool, "GET", "/metrics", &user);
    refused.complains(403, "the token `user` may not do this: it needs the scope metrics");
    let challenge = refused.header("www-authenticate").expect("a challenge");
    assert!(challenge.contains("insufficient_scope"), "{challenge}");
    let basic = "Host: localhost\r\nAuthorization: Basic eDp5\r\n";
    ask(&pool, "GET", "/v2", basic, "").complains(401, "must be Bearer");
    let twice = format!("{basic}Authorization: Bearer {both}\r\n");
    ask(&pool, "GET", "/metrics", &twice, "").complains(400, "more than one Authorization");
    let named = "reason=\"scope\" refused=1 last=token both";
    eventually_so("a refusal to be told with its token", || pool.log().contains(named));
    assert!(!pool.log().contains(&user) && !pool.log().contains(&both), "no token is logged");
    let page = String::from_utf8(with_token(&pool, "GET", "/metrics", &both).body).expect("text");
    assert!(page.contains("{route=\"infer\",status=\"401\"}"), "{page}");
}

#[test]
fn a_file_of_tokens_that_changes_is_used_at_once_and_one_that_is_wrong_is_not() {
    let (one, one_line) = token(&["one"]);
    let (two, two_line) = token(&["two"]);
    let setup = with_http(cpu(1));
    let file = tokens(&setup, &[&one_line]);
    let pool = setup.args(&["--http-tokens", file.to_str().expect("readable")]).start();
    until_ready(&pool);
    let status = |token: &str| with_token(&pool, "GET", "/v2", token).status;
    assert_eq!((status(&one), status(&two)), (200, 401));
    tokens(pool.setup(), &[&two_line]);
    eventually("the new file to be used", || match (status(&one), status(&two)) {
        (401, 200) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // Half a file: what was read before stays in use.
    tokens(pool.setup(), &["two infer"]);
    eventually("a warning", || {
        let log = pool.log();
        let is_told = log.contains("what was read before stays in use") && log.contains("line 1");
        if is_told { Ok(()) } else { Err(log) }
    });
    assert_eq!((status(&one), status(&two)), (401, 200));
    // The next gateway gets the same.
    crate::processes::signal(super::gateway_pid(&pool), nix::sys::signal::Signal::SIGKILL);
    until_status_of(&pool, "/v2/health/live", 200);
    assert_eq!((status(&one), status(&two)), (401, 200));
    // The last token is revoked too, and nobody may do what needed none.
    tokens(pool.setup(), &["# nobody"]);
    eventually("the file without a token to be used", || match (status(&one), status(&two)) {
        (401, 401) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(get(&pool, "/v2").status, 401);
    assert!(pool.log().contains("has no token, so nobody may use HTTP and gRPC"), "{}", pool.log());
    tokens(pool.setup(), &[&one_line]);
    eventually("a token to be used", || match (status(&one), status(&two)) {
        (200, 401) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_file_that_others_may_read_is_refused_with_what_to_type() {
    let (_, line) = token(&["one"]);
    let setup = cpu(1);
    let file = tokens(&setup, &[&line]);
    let serve = || {
        let call =
            gridpool(["serve", "--devices", "cpu:1", "--http", "127.0.0.1:0", "--http-tokens"]);
        call.arg(&file).run()
    };
    let path = file.display();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("a mode can be set");
    let why = format!("--http-tokens: {path} has the mode 644: other users may read or change it");
    serve().complains(78, &[&why, &format!("chmod 600 {path}")]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a mode can be set");
    fs::write(&file, "one infer x\n").expect("a file can be written");
    serve().complains(78, &["line 1: the hash is sha256: and 64 hexadecimal digits"]);
    fs::remove_file(&file).expect("a file can be removed");
    serve().complains(78, &["--http-tokens: ", "No such file"]);
    gridpool(["token", "new", "a b"]).run().complains(2, &["a token's name has letters"]);
    gridpool(["token", "new", "a", "--scope", "all"]).run().complains(2, &["is not a scope"]);
}
