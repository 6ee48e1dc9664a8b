//! What the servers have refused because a user may not do it. They say so beside the request, which gets no answer.

use futures_util::FutureExt;
use tokio::sync::broadcast::{Sender, channel, error::RecvError};

use crate::NatsError;

/// Refusals that may wait to be read.
const WAITING_MAX: usize = 64;
/// How they begin.
const BEGIN: &str = "permissions violation";

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Refusals {
    tell: Sender<String>,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { tell: channel(WAITING_MAX).0 }
    }
}

impl Refusals {
    /// Whether what a server says is a refusal.
    pub(crate) fn is_one(said: &str) -> bool {
        said.to_lowercase().contains(BEGIN)
    }

    /// Takes in a refusal.
    pub(crate) fn hear(&self, said: &str) {
        // Perhaps nobody waits for the answer to that request.
        drop(self.tell.send(said.to_owned()));
    }

    /// The first refusal from now on that has one of these parts, such as a subject in quotes.
    pub(crate) fn of(&self, parts: &[&str]) -> impl Future<Output = NatsError> + Send + use<> {
        let mut told = self.tell.subscribe();
        let parts: Vec<_> = parts.iter().map(|&part| part.to_owned()).collect();
        let is_one = move |said: &str| parts.iter().any(|part| said.contains(part));
        async move {
            loop {
                match told.recv().await {
                    Ok(said) if is_one(&said) => return NatsError::NotAllowed { said },
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        }
    }

    /// What a call gives, unless the servers refuse one of its own subjects meanwhile: what else this connection does
    /// goes on beside it.
    pub(crate) async fn or<T>(
        &self,
        own: &[&str],
        call: impl Future<Output = Result<T, NatsError>>,
    ) -> Result<T, NatsError> {
        let mut refused = std::pin::pin!(self.of(own));
        tokio::select! {
            biased;
            error = &mut refused => Err(error),
            done = call => match refused.now_or_never() {
                Some(error) => Err(error),
                None => done,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_reaches_those_who_wait_for_its_subject() {
        let refusals = Refusals::default();
        assert!(!Refusals::is_one("slow consumer"));
        let (own, other) = (refusals.of(&["gp.job.a"]), refusals.of(&["gp.job.b"]));
        let said = "Permissions Violation for Publish to \"gp.job.a\"";
        assert!(Refusals::is_one(said));
        refusals.hear(said);
        let said = own.now_or_never().expect("it was told").to_string();
        assert!(said.contains("do not allow it") && said.contains("gp.job.a"), "{said}");
        assert!(other.now_or_never().is_none());
        // Those before do not count.
        assert!(refusals.of(&["gp"]).now_or_never().is_none());
    }

    #[test]
    fn a_call_ends_with_a_refusal_of_its_own_and_not_of_others() {
        let refusals = Refusals::default();
        let call = || async {
            tokio::task::yield_now().await;
            Ok(7)
        };
        let refuse = |subject: &str| {
            let said = format!("Permissions Violation for Publish to \"{subject}\"");
            let mut calling = std::pin::pin!(refusals.or(&["\"gp.own."], call()));
            assert!(calling.as_mut().now_or_never().is_none());
            refusals.hear(&said);
            calling.now_or_never().expect("it ends").map_err(|error| error.to_string())
        };
        assert_eq!(refuse("gp.result.1"), Ok(7));
        let said = refuse("gp.own.1").expect_err("it was refused");
        assert!(said.contains("gp.own.1"), "{said}");
    }
}
