//! The turns of requests and calls that run no job. Each principal has a rate of them, as users of the pool's socket
//! have; one over it is answered later, and gives up its connection meanwhile if others need it. Documents and what is
//! refused have one rate, health another, and metrics a third: few ask, and often. So no client gains by sending
//! requests ahead. The TLS handshakes of an address have a fourth.

use std::time::Duration;

use axum::http::Method;
use gridpool_client::Principal;
use gridpool_ipc::clock;
use tokio::time::sleep;

use super::failure::Failure;
use super::limits::{HANDSHAKES_PER_S, HEALTH_PER_S, METRICS_PER_S};
use super::seats::Turn;
use crate::questions::{QUESTIONS_PER_S, Questions};

/// What each principal has asked lately.
#[derive(Debug, Default)]
pub(super) struct Turns {
    documents: Questions<Principal>,
    health: Questions<Principal>,
    metrics: Questions<Principal>,
    handshakes: Questions<Principal>,
}

/// How often a principal may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rate {
    /// For documents, orders and whatever there is not; and be refused.
    Document,
    /// For health.
    Health,
    /// For metrics, which take more work.
    Metrics,
    /// For TLS handshakes, before anything is known of a client but its address.
    Handshake,
}

/// A question that waits. One whose client is gone does not count.
struct Waits<'a> {
    questions: &'a Questions<Principal>,
    principal: &'a Principal,
    per_s: u32,
    is_over: bool,
}

impl Rate {
    /// That of a request over HTTP; `None` for inference, which has it only if it is refused.
    pub(super) fn of(method: &Method, path: &str) -> Option<Self> {
        let is_inference =
            *method == Method::POST && path.starts_with("/v2/models/") && path.ends_with("/infer");
        match path {
            _ if is_inference => None,
            "/metrics" => Some(Self::Metrics),
            path if path.starts_with("/v2/health/") => Some(Self::Health),
            _ => Some(Self::Document),
        }
    }

    fn per_s(self) -> u32 {
        match self {
            Self::Document => QUESTIONS_PER_S,
            Self::Health => HEALTH_PER_S,
            Self::Metrics => METRICS_PER_S,
            Self::Handshake => HANDSHAKES_PER_S,
        }
    }
}

impl Turns {
    /// Waits until a principal's request may be answered, one of several that its connection has, or until its turn to
    /// shake hands: what the seat of the connection does stays as it is.
    pub(super) async fn wait_seated(&self, principal: &Principal, rate: Rate) {
        let (mut waits, wait) = self.take(principal, rate);
        sleep(wait).await;
        waits.is_over = true;
    }

    /// Waits until a principal's request may be answered. Its connection may give up its seat meanwhile.
    pub(super) async fn wait(&self, turn: Turn<'_>, principal: &Principal, rate: Rate) {
        let (mut waits, wait) = self.take(principal, rate);
        if wait > Duration::ZERO {
            turn.waits();
            sleep(wait).await;
            turn.works();
        }
        waits.is_over = true;
    }

    /// Waits until a request with this rate may be answered, or refused. Who is refused shares the rate of its address.
    pub(super) async fn wait_before(
        &self,
        turn: Turn<'_>,
        admitted: &Result<Principal, Failure>,
        rate: Option<Rate>,
    ) {
        let address = turn.seat.peer.principal();
        match (admitted, rate) {
            (Ok(principal), Some(rate)) => self.wait(turn, principal, rate).await,
            (Err(why), _) if why.is_of_client() => self.wait(turn, &address, Rate::Document).await,
            (Ok(_), None) | (Err(_), _) => {}
        }
    }

    fn take<'a>(&'a self, principal: &'a Principal, rate: Rate) -> (Waits<'a>, Duration) {
        let questions = match rate {
            Rate::Document => &self.documents,
            Rate::Health => &self.health,
            Rate::Metrics => &self.metrics,
            Rate::Handshake => &self.handshakes,
        };
        let per_s = rate.per_s();
        let wait = questions.take(principal.clone(), per_s, clock::now());
        (Waits { questions, principal, per_s, is_over: false }, wait)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.questions.give_back(self.principal, self.per_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a request of a principal is answered at once; if not, its client goes.
    fn is_at_once(turns: &Turns, uid: u32, rate: Rate) -> bool {
        let principal = Principal::Uid(uid);
        let (mut waits, wait) = turns.take(&principal, rate);
        waits.is_over = wait == Duration::ZERO;
        waits.is_over
    }

    #[test]
    fn who_asks_faster_than_the_rate_waits_and_others_do_not() {
        let turns = Turns::default();
        let count = |uid, rate| (0..5_000).filter(|_| is_at_once(&turns, uid, rate)).count();
        // Some may have come while this ran.
        let at_once = count(1, Rate::Document);
        assert!((100..200).contains(&at_once), "{at_once}");
        assert!(is_at_once(&turns, 2, Rate::Document));
        let at_once = count(1, Rate::Health);
        assert!((1_000..2_000).contains(&at_once), "its health is not held up by documents");
        let at_once = count(1, Rate::Metrics);
        assert!((100..200).contains(&at_once), "nor are its metrics, by either: {at_once}");
        let at_once = count(1, Rate::Handshake);
        assert!((250..500).contains(&at_once), "nor its handshakes: {at_once}");
        assert!(is_at_once(&turns, 2, Rate::Handshake));
        // Those that did not wait to the end have cost nothing: the next has a short wait.
        let (_, wait) = turns.take(&Principal::Uid(1), Rate::Document);
        assert!(wait <= Duration::from_millis(20), "{wait:?}");
    }

    #[test]
    fn only_inference_has_no_rate_and_health_and_metrics_have_their_own() {
        let of = |path| Rate::of(&Method::POST, path);
        for path in ["/v2/models/a/infer", "/v2/models/a/versions/1/infer"] {
            assert_eq!(of(path), None, "{path}");
        }
        assert_eq!(
            (of("/v2/health/live"), of("/metrics")),
            (Some(Rate::Health), Some(Rate::Metrics))
        );
        for path in [
            "/v2",
            "/v2/models/a",
            "/v2/models/a/ready",
            "/v2/repository/index",
            "/nowhere",
            "/infer",
        ] {
            assert_eq!(of(path), Some(Rate::Document), "{path}");
        }
        assert_eq!(Rate::of(&Method::GET, "/v2/models/a/infer"), Some(Rate::Document));
    }
}
