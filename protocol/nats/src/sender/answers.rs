//! Results on their way to the client.

use std::sync::Arc;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{Destination, Inline, ServerMessage};
use gridpool_protocol::receipt::{Receipt, Verdict};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::Agent;
use super::jobs::{Sending, VERDICT_TIMEOUT};
use crate::{Carried, Found, NatsError, Outcome, Store};

/// How long reading a large result may take.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it is tried to remove the pieces of a result that was read, and the pause between: servers may be busy.
const REMOVE_TRIES: u32 = 3;
const REMOVE_PAUSE: Duration = Duration::from_secs(1);
/// What is wrong with a result that has no place.
const LARGER: &str = "it is larger than was asked for";

impl Agent {
    /// Tells the client the result, and the cluster that it was read.
    pub(super) async fn answer(
        self: &Arc<Self>,
        sending: &Sending,
        found: Found,
        runtime: &Handle,
    ) {
        let key = sending.submission.key;
        let Found { sequence, mut outcome } = found;
        let (Outcome::Done { receipt, .. } | Outcome::Read { receipt, .. }) = &mut outcome;
        if receipt.items == 0 {
            // No pool has had it.
            receipt.items = sending.submission.payload.packing.items();
        }
        let (content, receipt, carried) = match outcome {
            Outcome::Read { receipt, .. } => return self.say_read(key, receipt),
            Outcome::Done { content, receipt, output } => (content, receipt, output),
        };
        let pieces = match &carried {
            Some(Carried::Pieces { digest, bytes }) => {
                Some((Store::name_of_result(key, digest), *bytes))
            }
            Some(Carried::Inline(_)) | None => None,
        };
        let (receipt, output, is_read) = match self.place(sending, carried).await {
            Ok(output) => (receipt, output, true),
            Err(error) => {
                if let Some(receipt) = self.was_read(key).await {
                    return self.say_read(key, receipt);
                }
                let reason = format!("its result cannot be read: {}", Chain(&error));
                let failed = Receipt { verdict: Verdict::Failed, reason, ..*receipt };
                // The result stays as it is: who asks for the key again may be able to read it.
                (Box::new(failed), None, false)
            }
        };
        let mark = receipt.clone();
        self.outbox.say(&ServerMessage::Done { key, receipt, output, replayed: false });
        if sequence > 0 && is_read {
            let agent = Arc::clone(self);
            self.aside(runtime, "a mark", async move {
                let until = clock::now() + VERDICT_TIMEOUT;
                agent.streams.results.mark_read(key, (sequence, content, &mark), until).await?;
                // Who still reads them finds the mark.
                match pieces {
                    Some(pieces) => agent.remove(pieces).await,
                    None => Ok(()),
                }
            });
        }
    }

    /// Removes the pieces of a result that was read. Those that stay after a few tries are too old some time.
    async fn remove(&self, (name, bytes): ([u8; 32], u64)) -> Result<(), NatsError> {
        let mut tried = self.streams.data.remove(name, bytes).await;
        for _ in 1..REMOVE_TRIES {
            if tried.is_ok() {
                break;
            }
            sleep(REMOVE_PAUSE).await;
            tried = self.streams.data.remove(name, bytes).await;
        }
        tried
    }

    /// Tells the client the verdict of a job whose result was read before.
    fn say_read(&self, key: JobKey, receipt: Box<Receipt>) {
        self.outbox.say(&ServerMessage::Done { key, receipt, output: None, replayed: true });
    }

    /// The receipt of a job whose result was read by another.
    async fn was_read(&self, key: JobKey) -> Option<Box<Receipt>> {
        match self.streams.results.find_surely(key).await {
            Ok(Some(Found { outcome: Outcome::Read { receipt, .. }, .. })) => Some(receipt),
            Ok(Some(_) | None) => None,
            Err(error) => {
                tracing::debug!(%error, %key, "whether a result was read");
                None
            }
        }
    }

    /// Puts a packed result where the client wants it.
    async fn place(
        &self,
        sending: &Sending,
        carried: Option<Carried>,
    ) -> Result<Option<Inline>, NatsError> {
        let bytes = match carried {
            None => return Ok(None),
            Some(Carried::Inline(bytes)) => bytes.0,
            Some(Carried::Pieces { bytes, .. }) if bytes > sending.output_bytes_max() => {
                return Err(NatsError::Data { bytes, why: LARGER.to_owned() });
            }
            Some(Carried::Pieces { digest, bytes }) => {
                self.fetch(sending.submission.key, digest, bytes).await?
            }
        };
        match (sending.submission.payload.output, &sending.output) {
            (Destination::Arena(slice), Some(map)) => {
                let size = bytes.len() as u64;
                match map.all().part(slice.offset, slice.bytes) {
                    Some(memory) if size <= slice.bytes => memory.write(0, &bytes),
                    Some(_) | None => {
                        return Err(NatsError::Data { bytes: size, why: LARGER.to_owned() });
                    }
                }
                Ok(None)
            }
            (Destination::Arena(_) | Destination::Inline, _) => Ok(Some(Inline(bytes))),
        }
    }

    /// Reads a large result; tries again while the servers do not answer.
    async fn fetch(&self, key: JobKey, digest: [u8; 32], bytes: u64) -> Result<Vec<u8>, NatsError> {
        let (name, until) = (Store::name_of_result(key, &digest), clock::now() + OUTPUT_TIMEOUT);
        loop {
            match self.streams.data.get(name, digest, bytes).await {
                Err(error @ NatsError::Data { .. }) if self.was_read(key).await.is_some() => {
                    return Err(error);
                }
                Err(error) if !clock::until(until).is_zero() => {
                    tracing::debug!(%error, "reading a result again");
                    sleep(Duration::from_millis(500)).await;
                }
                read => return read,
            }
        }
    }
}
