//! The turns of questions: requests over HTTP and calls of gRPC for documents. Each principal has a rate of them, as
//! users of the pool's socket have; one over it is answered later. Health and metrics have none: few ask, and often.

use std::time::Duration;

use axum::http::Method;
use gridpool_client::Principal;
use gridpool_ipc::clock;
use tokio::time::sleep;

use crate::questions::{QUESTIONS_PER_S, Questions};

/// The questions of each principal.
#[derive(Debug, Default)]
pub(super) struct Turns(Questions<Principal>);

/// A question that waits. One whose client is gone does not count.
struct Waits<'a> {
    turns: &'a Turns,
    principal: &'a Principal,
    is_over: bool,
}

impl Turns {
    /// Waits until a principal's question may be answered.
    pub(super) async fn wait(&self, principal: &Principal) {
        let wait = self.0.take(principal.clone(), QUESTIONS_PER_S, clock::now());
        if wait == Duration::ZERO {
            return;
        }
        let mut waits = Waits { turns: self, principal, is_over: false };
        sleep(wait).await;
        waits.is_over = true;
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.turns.0.give_back(self.principal, QUESTIONS_PER_S);
        }
    }
}

/// Whether a request over HTTP is a question.
pub(super) fn is_question(method: &Method, path: &str) -> bool {
    let is_inference =
        *method == Method::POST && path.starts_with("/v2/models/") && path.ends_with("/infer");
    !is_inference && !path.starts_with("/v2/health/") && path != "/metrics"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Whether a question of a principal is answered at once; if not, its client goes.
    fn is_at_once(turns: &Turns, uid: u32) -> bool {
        let principal = Principal::Uid(uid);
        let waiting = pin!(turns.wait(&principal));
        waiting.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[tokio::test]
    async fn who_asks_faster_than_the_rate_waits_and_others_do_not() {
        let turns = Turns::default();
        let at_once = (0..1_000).filter(|_| is_at_once(&turns, 1)).count();
        // Some may have come while this ran.
        assert!((100..200).contains(&at_once), "{at_once}");
        assert!(is_at_once(&turns, 2));
        // Those that did not wait to the end have cost nothing: the next has a short wait.
        let wait = turns.0.take(Principal::Uid(1), QUESTIONS_PER_S, clock::now());
        assert!(wait <= Duration::from_millis(20), "{wait:?}");
    }

    #[test]
    fn inference_health_and_metrics_are_no_questions() {
        for path in
            ["/v2/models/a/infer", "/v2/models/a/versions/1/infer", "/v2/health/live", "/metrics"]
        {
            assert!(!is_question(&Method::POST, path), "{path}");
        }
        for path in
            ["/v2", "/v2/models/a", "/v2/models/a/ready", "/v2/repository/index", "/nowhere"]
        {
            assert!(is_question(&Method::GET, path), "{path}");
        }
        assert!(is_question(&Method::GET, "/v2/models/a/infer"));
        assert!(is_question(&Method::POST, "/infer"));
    }
}
