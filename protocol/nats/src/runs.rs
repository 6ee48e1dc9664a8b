//! Notes of runs, beside the convictions: which hosts began to run a job, and never said how it ended.
//!
//! How often a job was delivered says little: a host that is busy gives it back. So a host that runs a job which was
//! delivered often says so first, and takes the note away however the run ends. What stays is of a host that vanished.
//! A job that left a note runs alone on its host from then on; two hosts that vanish with it alone convict it.

use std::collections::BTreeSet;

use async_nats::jetstream::kv::{CreateErrorKind, Store};
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use gridpool_protocol::ids::JobKey;
use serde::{Deserialize, Serialize};

use crate::NatsError;
use crate::bucket::entries;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Runs {
    store: Store,
}

/// A note of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    host: String,
    alone: bool,
}

/// What earlier runs of a job have left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Runs whose hosts vanished.
    pub vanished: usize,
    /// The hosts that vanished while it ran there alone, each once.
    pub alone: BTreeSet<String>,
}

impl Left {
    fn of(notes: impl IntoIterator<Item = Note>) -> Self {
        let mut left = Self::default();
        for note in notes {
            left.vanished += 1;
            if note.alone {
                left.alone.insert(note.host);
            }
        }
        left
    }
}

impl Runs {
    pub(crate) fn new(store: Store) -> Self {
        Self { store }
    }

    /// What earlier runs of a job have left behind.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn left(&self, key: JobKey) -> Result<Left, NatsError> {
        let notes = entries(&self.store, &format!("run.{key}.")).await?;
        let read = |value: &[u8]| serde_json::from_slice(value).ok();
        Ok(Left::of(notes.iter().filter_map(|(_, value)| read(value))))
    }

    /// Notes that this delivery of a job begins to run.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn begin(
        &self,
        (key, delivery): (JobKey, i64),
        host: &str,
        alone: bool,
    ) -> Result<(), NatsError> {
        let note = Note { host: host.to_owned(), alone };
        let value = serde_json::to_vec(&note).expect("texts have a JSON form");
        let put = self.store.put(format!("run.{key}.{delivery}"), value.into()).await;
        put.map(drop).map_err(NatsError::jetstream("a run cannot be noted"))
    }

    /// Takes the note of this delivery away.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn end(&self, (key, delivery): (JobKey, i64)) -> Result<(), NatsError> {
        self.forget(&format!("run.{key}.{delivery}")).await
    }

    /// Takes all notes of a job away: it has its result.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn end_all(&self, key: JobKey) -> Result<(), NatsError> {
        for (note, _) in entries(&self.store, &format!("run.{key}.")).await? {
            self.forget(&note).await?;
        }
        Ok(())
    }

    /// Notes that a job which may run only once goes to a pool. Returns whether it is the first time.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn starts_once(&self, key: JobKey) -> Result<bool, NatsError> {
        match self.store.create(format!("started.{key}"), "1".into()).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(NatsError::jetstream("a start cannot be noted")(error)),
        }
    }

    /// Takes that note away: the pool has not run it, or the job has its result.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn never_started(&self, key: JobKey) -> Result<(), NatsError> {
        self.forget(&format!("started.{key}")).await
    }

    /// Removes a note from the bucket by its number, for the reason that [`crate::Store::remove`] names: convictions
    /// and other notes must stay. It leaves no mark, as nobody follows it, unless the bucket is of a build that let
    /// nobody delete.
    async fn forget(&self, key: &str) -> Result<(), NatsError> {
        let failed = "a note of a run cannot be removed";
        let stream = &self.store.stream;
        let subject = format!("{}{key}", self.store.prefix);
        let there = match stream.get_last_raw_message_by_subject(&subject).await {
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => return Ok(()),
            there => there.map_err(NatsError::jetstream(failed))?,
        };
        if let Err(error) = stream.delete_message(there.sequence).await {
            tracing::debug!(%error, key, "a mark takes the place of a note");
            self.store.purge(key).await.map_err(NatsError::jetstream(failed))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_that_vanished_with_a_job_alone_count_and_each_once() {
        let note = |host: &str, alone| Note { host: host.to_owned(), alone };
        assert_eq!(Left::of([]), Left::default());
        let left = Left::of([note("a", false), note("b", true), note("b", true)]);
        assert_eq!((left.vanished, left.alone.len()), (3, 1));
        let left = Left::of([note("b", true), note("c", true)]);
        assert_eq!(left.alone.into_iter().collect::<Vec<_>>(), ["b", "c"]);
    }
}
