//! All entries of a bucket. The library's own list waits for ever if the last change of the bucket removed an entry.

use async_nats::jetstream::kv::Store;
use bytes::Bytes;
use futures_util::TryStreamExt;

use crate::NatsError;

/// The keys that begin so, with their values, in order.
pub(crate) async fn entries(store: &Store, begin: &str) -> Result<Vec<(String, Bytes)>, NatsError> {
    let failed = "a bucket cannot be listed";
    let subjects = store.stream.info_with_subjects(format!("{}{begin}>", store.prefix)).await;
    let subjects = subjects.map_err(NatsError::jetstream(failed))?;
    let subjects: Vec<(String, usize)> =
        subjects.try_collect().await.map_err(NatsError::jetstream(failed))?;
    let mut found = Vec::new();
    for (subject, _) in subjects {
        let key = subject.strip_prefix(&store.prefix).filter(|key| key.starts_with(begin));
        let Some(key) = key else { continue };
        let value = store.get(key).await.map_err(NatsError::jetstream(failed))?;
        found.extend(value.map(|value| (key.to_owned(), value)));
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}
