//! What operators do over HTTP: kill a worker, release a device or a job, drain the pool, and read the whole status and
//! whole reports of deaths.
//!
//! All of it needs a token with the scope `operate`, also where other requests need none: on a loopback address every
//! local user could give orders, and a page that gets past the checks of `Host` and `Origin` could too. A token in a
//! header is nothing that a browser adds by itself. The supervisor gets the token and checks it again, so this process
//! cannot give orders of its own.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gridpool_client::{
    AskedVerdicts, Client, ClientError, LoggedJob, Principal, Secret, TokenOrder, Verdict,
};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::Server;
use super::access;
use super::blocking::run_blocking;
use super::failure::Failure;
use super::reason::Reason;
use super::seats::Seat;

/// The orders. Each is a path.
pub(super) const ALL: [&str; 3] = ["drain", "kill", "release"];

/// Gives one of [`ALL`].
pub(super) async fn order(
    what: &'static str,
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
    Extension(seat): Extension<Arc<Seat>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let body = gateway.budget.read_document((&principal, &seat), &headers, body).await?;
    let token = token(&gateway, &headers)?;
    let order = parse(what, &body)?;
    let done =
        ask(&gateway, principal, move |client| client.order_by_token(&token, &order)).await?;
    gateway.watch.hurry();
    Ok(document(&json!({ "done": done })))
}

/// Lists the last deaths, with whole blocks.
pub(super) async fn deaths(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let token = token(&gateway, &headers)?;
    let deaths = ask(&gateway, principal, move |client| client.deaths(0, Some(&token))).await?;
    Ok(document(&json!({ "deaths": deaths })))
}

/// The status as operators see it: with the programs and models that run and that are on the denylist.
pub(super) async fn status(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let token = token(&gateway, &headers)?;
    let status = ask(&gateway, principal, move |client| client.status_by_token(&token)).await?;
    Ok(document(&json!(status)))
}

/// Lists the receipts of the last jobs that came over HTTP or gRPC: those of whoever asks, or all for an operator.
pub(super) async fn receipts(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
) -> Response {
    let is_operator = access::may_operate(&gateway.door.current(), &principal);
    let receipts = gateway.receipts.document(&principal, is_operator);
    document(&json!({ "receipts": receipts, "all": is_operator }))
}

/// Lists the last verdicts of the pool, also of jobs that came another way: those of whoever asks, or all for an
/// operator. The supervisor checks who asks.
pub(super) async fn verdicts(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let mut asked = asked_verdicts(query.as_deref().unwrap_or_default())?;
    match principal.clone() {
        Principal::Token(_) => asked.token = Some(Secret(access::bearer(&headers)?)),
        whose @ (Principal::Address(_) | Principal::Gateway | Principal::Uid(_)) => {
            asked.whose = Some(whose);
        }
    }
    let found = ask(&gateway, principal, move |client| client.verdicts(&asked)).await?;
    let rows = found.jobs.into_iter().map(|(number, job)| {
        let LoggedJob { time, principal, receipt } = job;
        json!({ "number": number, "time": time, "principal": principal, "receipt": receipt })
    });
    let rows: Vec<_> = rows.collect();
    Ok(document(&json!({ "last": found.last, "all": found.is_all, "verdicts": rows })))
}

/// What a query asks for: `after=NUMBER`, `job=JOB`, and `verdict=NAME` or `verdict=others` for all but OK.
fn asked_verdicts(query: &str) -> Result<AskedVerdicts, Failure> {
    let mut asked = AskedVerdicts::default();
    let all = Verdict::ALL;
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(Failure::bad(format!("`{part}` has no `=`: write NAME=VALUE")));
        };
        match (&*plain(name)?, &*plain(value)?) {
            ("after", number) => {
                let wrong = |_| Failure::bad(format!("after={number} is no number of a verdict"));
                asked.after = number.parse().map_err(wrong)?;
            }
            ("job", name) => {
                let job = name.parse();
                asked.job =
                    Some(job.map_err(|error| Failure::bad(format!("job={name}: {error}")))?);
            }
            ("verdict", "others") => {
                asked.verdicts.extend(all.iter().filter(|&&verdict| verdict != Verdict::Ok));
            }
            ("verdict", name) => {
                let named = all.iter().find(|verdict| verdict.name() == name);
                let names = all.map(Verdict::name).join(", ");
                let wrong =
                    || Failure::bad(format!("verdict={name} is none of {names} and others"));
                asked.verdicts.push(*named.ok_or_else(wrong)?);
            }
            (other, _) => {
                return Err(Failure::bad(format!(
                    "`{other}` is unknown: there are after, job and verdict"
                )));
            }
        }
    }
    Ok(asked)
}

/// What a part of a query stands for: `%` and two digits are a byte.
fn plain(text: &str) -> Result<Cow<'_, str>, Failure> {
    percent_decode_str(text).decode_utf8().map_err(|_| {
        Failure::bad(format!(
            "`{text}` is no UTF-8 once its percent signs are read: write %25 for %"
        ))
    })
}

fn document(value: &Value) -> Response {
    let json = HeaderValue::from_static("application/json");
    let sniff = HeaderValue::from_static("nosniff");
    ([(header::CONTENT_TYPE, json), (header::X_CONTENT_TYPE_OPTIONS, sniff)], value.to_string())
        .into_response()
}

/// The token of a request. `access` has found that it has the scope, if the pool has tokens.
fn token(gateway: &Server, headers: &HeaderMap) -> Result<Secret, Failure> {
    if gateway.door.current().tokens.is_none() {
        let why = "orders over HTTP need a token with the scope operate: have the pool started with --http-tokens, or \
                   use `gridpool kill`, `gridpool release` or `gridpool drain` where it runs";
        return Err(Failure::new(StatusCode::FORBIDDEN, why).because(Reason::Scope));
    }
    access::bearer(headers).map(Secret)
}

/// Asks the supervisor for a client, as soon as few of its questions wait for it: each takes a thread.
async fn ask<T: Send + 'static>(
    gateway: &Server,
    principal: Principal,
    what: impl FnOnce(&Client) -> Result<T, ClientError> + Send + 'static,
) -> Result<T, Failure> {
    let client = gateway.observer.client().clone();
    let mut place = gateway.asked.share(principal);
    place.grow_in_time(1).await;
    run_blocking(move || {
        // The thread may outlive the request.
        let _place = place;
        Ok(what(&client)?)
    })
    .await
}

/// The order of a path and a body.
fn parse(what: &str, body: &[u8]) -> Result<TokenOrder, Failure> {
    let asked: Value = match body {
        [] => Value::Null,
        json => serde_json::from_slice(json)
            .map_err(|error| Failure::bad(format!("the body is not valid JSON: {error}")))?,
    };
    let named = |key: &str| {
        let text = asked[key].as_str();
        text.ok_or_else(|| {
            Failure::bad(format!("the body has no `{key}`: send {{\"{key}\": NAME}}"))
        })
    };
    let wrong = |error: String| Failure::bad(error);
    match what {
        "drain" => Ok(TokenOrder::Drain),
        "kill" => {
            let worker = named("worker")?.parse();
            worker.map(TokenOrder::Kill).map_err(|error| wrong(format!("{error}")))
        }
        "release" => {
            let release = named("what")?.parse();
            release.map(TokenOrder::Release).map_err(|error| wrong(format!("{error}")))
        }
        other => {
            Err(Failure::unknown(format!("`{other}` is no order: there are {}", ALL.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_whole_or_refused() {
        assert_eq!(asked_verdicts("").unwrap(), AskedVerdicts::default());
        let asked = asked_verdicts("after=3&verdict=FAILED&verdict=DEADLINE").unwrap();
        assert_eq!((asked.after, asked.verdicts.len()), (3, 2));
        let coded = asked_verdicts("%61fter=%33&verdict=DEVICE%5fLOST").unwrap();
        assert_eq!((coded.after, coded.verdicts), (3, vec![Verdict::DeviceLost]));
        assert_eq!(asked_verdicts("job=job17").unwrap().job, "job17".parse().ok());
        let why = asked_verdicts("job=17").unwrap_err();
        assert!(
            why.message().starts_with("job=17: `17` names no job: write its number"),
            "{why:?}"
        );
        let why = asked_verdicts("verdict=%ff").unwrap_err();
        assert!(why.message().starts_with("`%ff` is no UTF-8"), "{why:?}");
        for half in ["after", "failed", "after=3&others", "verdict"] {
            let why = asked_verdicts(half).unwrap_err();
            assert!(why.message().contains("write NAME=VALUE"), "{half}: {why:?}");
        }
    }

    #[test]
    fn an_order_is_read_or_refused_with_what_to_send() {
        let kill = parse("kill", br#"{"worker": "cpu0#1"}"#).unwrap();
        assert_eq!(kill, TokenOrder::Kill("cpu0#1".parse().unwrap()));
        assert_eq!(parse("drain", b"").unwrap(), TokenOrder::Drain);
        let release = parse("release", br#"{"what": "gpu0"}"#).unwrap();
        assert_eq!(release, TokenOrder::Release("gpu0".parse().unwrap()));
        for (what, body, words) in [
            ("kill", "{}", "the body has no `worker`: send {\"worker\": NAME}"),
            ("kill", "{", "is not valid JSON"),
            ("kill", r#"{"worker": "x"}"#, "`x`"),
            ("release", r#"{"what": ""}"#, "cannot be released: write a device"),
            ("upgrade", "{}", "`upgrade` is no order: there are drain, kill, release"),
        ] {
            let why = parse(what, body.as_bytes()).unwrap_err();
            assert!(why.message().contains(words), "{what} {body}: {why:?}");
        }
    }
}
