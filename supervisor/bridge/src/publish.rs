//! Results on their way into the stream.

use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_nats::{
    Carried, Conviction, Found, Identity, NatsError, Outcome, Published, RETRY_EVERY, Store,
};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::Inline;
use gridpool_protocol::receipt::{Receipt, Verdict};
use tokio::time::sleep;

use crate::counts::count;
use crate::taken::{Done, Taken};
use crate::{Bridge, FULL_PAUSE_MAX};

/// How long a server may take to store a result before the next try.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long after a job's deadline its result is given up: its client has DEADLINE.
const GIVE_UP_AFTER: Duration = Duration::from_secs(600);
/// Tries to convict a content for all hosts.
const CONVICT_TRIES: usize = 3;

/// What is to be stored, and what of it is.
struct Storing {
    receipt: Receipt,
    output: Option<Vec<u8>>,
    /// Where the output lies.
    carried: Option<Carried>,
    /// The digest and the bytes of an output of which pieces may lie in the stream.
    pieces: Option<([u8; 32], u64)>,
    /// Tells it from other tries, also of this host.
    attempt: String,
    /// Of its tries: the servers may keep those that they have refused.
    identity: Identity,
    /// The pool has run the job.
    has_run: bool,
}

impl Storing {
    /// Stores this verdict alone.
    fn without_output(&mut self, verdict: Verdict, error: &NatsError) {
        self.receipt.verdict = verdict;
        self.receipt.reason = format!("its result could not be stored: {}", Chain(error));
        self.receipt.attempts.clear();
        (self.output, self.carried) = (None, None);
        self.attempt.push_str(".bare");
    }
}

impl Bridge {
    /// Publishes a result: tries until the stream has one for the job. What does not fit there, or finds no room by the
    /// job's deadline, leaves its verdict.
    pub(crate) async fn publish(&self, taken: &Taken, done: Done) {
        if done.convicts {
            // Before anybody hears of the verdict, and sends the job again.
            self.convict(taken, &done).await;
        }
        let attempt = format!("{}.{}", self.settings.host, taken.delivered);
        let (mut receipt, output) = (*done.receipt, done.output);
        if receipt.verdict == Verdict::Poison {
            // Who takes it back names the hash that the cluster has.
            receipt.reason += &format!("; {}", Conviction::advice(taken.job.content));
        }
        let (identity, has_run) = (Identity::default(), !receipt.attempts.is_empty());
        let mut storing =
            Storing { receipt, output, carried: None, pieces: None, attempt, identity, has_run };
        self.store_surely(taken, &mut storing).await;
        if let Some(pieces) = storing.pieces {
            self.remove_unnamed(taken.job.key, pieces).await;
        }
    }

    /// Removes the pieces of this host's result, unless the job's result names them, and waits to be read: it may be of
    /// another host, have no output, or have been read, with its own pieces removed. One try: pieces that stay are too
    /// old some time.
    async fn remove_unnamed(&self, key: JobKey, (digest, bytes): ([u8; 32], u64)) {
        let removed = async {
            let found = self.streams.results.find_surely(key).await?;
            if let Some(Outcome::Done {
                output: Some(Carried::Pieces { digest: named, .. }), ..
            }) = found.map(|found| found.outcome)
                && named == digest
            {
                return Ok(());
            }
            self.streams.data.remove(Store::name_of_result(key, &digest), bytes).await
        };
        if let Err(error) = removed.await {
            let error = Chain(&error).to_string();
            tracing::debug!(error, job = %key, "pieces of a result that nobody reads stay");
        }
    }

    /// Tries until the stream has a result for the job, or it is given up.
    async fn store_surely(&self, taken: &Taken, storing: &mut Storing) {
        let (key, mut is_bare, mut heard) = (taken.job.key, false, String::new());
        let mut is_there = false;
        let mut pause = RETRY_EVERY;
        loop {
            let error = match self.store(taken, storing).await {
                Ok(Published::Stored(_) | Published::Duplicate) => {
                    if matches!(storing.carried, Some(Carried::Pieces { .. })) {
                        storing.pieces = None;
                    }
                    return count(&self.counts.published);
                }
                Ok(Published::Taken) => return self.count_second(key, storing.has_run).await,
                Err(error) => error,
            };
            let said = Chain(&error).to_string();
            if error.is_final() && is_bare {
                return tracing::error!(error = said, job = %key, "its verdict cannot be stored");
            }
            if error.is_final() {
                is_bare = true;
                storing.without_output(Verdict::Failed, &error);
                continue;
            }
            if said == heard {
                tracing::debug!(error = said, job = %key, "its result still waits");
            } else {
                tracing::warn!(error = said, job = %key, "its result waits to be stored");
                heard.clone_from(&said);
            }
            // Its client may have given up, or another host may have been faster.
            if let Ok(true) = self.streams.results.are_there(key).await {
                if is_there {
                    return self.count_second(key, storing.has_run).await;
                }
                // Or it is its own, and the reply was lost: another try says whose it is.
                is_there = true;
                continue;
            }
            storing.identity.hear(&error);
            let deadline = taken.job.terms.deadline();
            if taken.age() > deadline + GIVE_UP_AFTER {
                return tracing::error!(error = said, job = %key, "no result of it is stored");
            }
            if taken.left().is_none() && storing.output.is_some() {
                storing.without_output(Verdict::Deadline, &error);
            }
            sleep(pause).await;
            // Each try sends pieces to a server that has room for none.
            if matches!(error, NatsError::Full(_)) && storing.pieces.is_some() {
                pause = (2 * pause).min(FULL_PAUSE_MAX);
            }
        }
    }

    /// Counts a result that was not stored, as the job has another: of a host, or of its client, which names none.
    async fn count_second(&self, key: JobKey, has_run: bool) {
        let is_of_host = match self.streams.results.find_surely(key).await {
            Ok(Some(Found {
                outcome: Outcome::Done { receipt, .. } | Outcome::Read { receipt, .. },
                ..
            })) => !receipt.host.is_empty(),
            Ok(None) => true,
            Err(error) => {
                tracing::debug!(error = Chain(&error).to_string(), job = %key, "whose result it has");
                true
            }
        };
        match is_of_host {
            false => count(&self.counts.unwanted),
            true if has_run => count(&self.counts.duplicates),
            true => count(&self.counts.known),
        }
    }

    async fn convict(&self, taken: &Taken, done: &Done) {
        let (content, job) = (taken.job.content, taken.job.key.to_string());
        let (host, reason) = (self.settings.host.clone(), done.receipt.reason.clone());
        let pool = done.pool.map(|pool| pool.to_string()).unwrap_or_default();
        let release = Conviction::advice(content);
        tracing::error!(job, of_pool = pool, release, "a job is convicted for all hosts");
        let why = Conviction { host, job, reason, pool };
        for _ in 0..CONVICT_TRIES {
            match self.streams.poison.convict(content, &why).await {
                Ok(()) => return,
                Err(error) => {
                    let error = Chain(&error).to_string();
                    tracing::warn!(error, "a conviction is not known to other hosts");
                }
            }
            sleep(RETRY_EVERY).await;
        }
    }

    /// One try. Keeps where a large result lies.
    async fn store(&self, taken: &Taken, storing: &mut Storing) -> Result<Published, NatsError> {
        let until = clock::now() + PUBLISH_TIMEOUT;
        if let (None, Some(output)) = (&storing.carried, &storing.output) {
            let data = &self.streams.data;
            let carried = if output.len() <= data.inline_bytes_max() {
                Carried::Inline(Inline(output.clone()))
            } else {
                let (digest, packed) = (Store::digest(output), output.clone().into());
                let name = Store::name_of_result(taken.job.key, &digest);
                storing.pieces = Some((digest, output.len() as u64));
                data.put(name, &packed, until).await?;
                Carried::Pieces { digest, bytes: output.len() as u64 }
            };
            storing.carried = Some(carried);
        }
        let (content, carried) = (Some(taken.job.content), storing.carried.clone());
        let outcome = Outcome::done(content, storing.receipt.clone(), carried);
        let attempt = Some((&*storing.attempt, storing.identity));
        self.streams.results.publish(taken.job.key, attempt, &outcome, until).await
    }
}
