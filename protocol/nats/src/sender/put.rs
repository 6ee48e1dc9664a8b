//! Puts jobs into the stream: once more if there may be room, and under another identity if the servers do not store
//! what they have refused before.

use std::time::Instant;

use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use gridpool_ipc::clock;
use gridpool_protocol::ids::JobKey;

use crate::NatsError;
use crate::message_id::Identities;
use crate::publish::{Full, Link, Published, publish};

/// A job on its way into the stream.
pub(super) struct Put<'a> {
    pub(super) link: &'a Link,
    pub(super) subject: String,
    /// Its message, encoded.
    pub(super) payload: Bytes,
    pub(super) key: JobKey,
    /// Whether it may run more than once.
    pub(super) idempotent: bool,
    pub(super) deadline: Instant,
}

impl Put<'_> {
    /// Tries until the deadline. In a full stream, `make_room` is awaited once, and says whether there may be room now;
    /// `has_ended` says whether a job that is called a duplicate has its result.
    pub(super) async fn send<Ended: Future<Output = bool>>(
        &self,
        identities: &Identities,
        make_room: impl Future<Output = bool>,
        has_ended: impl Fn() -> Ended,
    ) -> Result<Published, NatsError> {
        let mut make_room = Some(make_room);
        loop {
            let mut identity = identities.of(self.key);
            let message = || PublishMessage::build().payload(self.payload.clone());
            let named = Some((self.key.to_string(), identity));
            let (link, subject) = (self.link, &self.subject);
            let sent =
                publish(link, subject, message, named, (Full::JobBytes, self.deadline)).await;
            match &sent {
                Err(error @ NatsError::Full(_)) => {
                    identity.hear(error);
                    identities.set(self.key, identity);
                    let may_fit = match make_room.take() {
                        Some(make_room) => make_room.await,
                        None => false,
                    };
                    if !may_fit {
                        return sent;
                    }
                }
                Err(error @ NatsError::Unstored) if !clock::until(self.deadline).is_zero() => {
                    if has_ended().await {
                        return Ok(Published::Duplicate);
                    }
                    // Another process may have sent it just now. One that may run only once is not risked.
                    if self.idempotent || identity.was_refused() {
                        identity.hear(error);
                        identities.set(self.key, identity);
                    }
                }
                Ok(_) | Err(_) => return sent,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::*;
    use crate::scripted::{DUPLICATE, FULL, Scripted, stored};

    /// What putting a job gives, beside servers that answer so.
    fn put(
        server: &Scripted,
        identities: &Identities,
        (idempotent, within): (bool, Duration),
        has_ended: bool,
    ) -> Result<Published, NatsError> {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let link = server.link().await;
            let (subject, payload) = ("jobs".to_owned(), Bytes::from("words"));
            let (key, deadline) = (JobKey(0xab), clock::now() + within);
            let put = Put { link: &link, subject, payload, key, idempotent, deadline };
            put.send(identities, async { true }, || async { has_ended }).await
        })
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn servers_that_forget_what_they_refuse_get_it_under_its_first_identity() {
        let mut given = 0;
        let server = Scripted::start(move |_| {
            given += 1;
            if given < 3 { FULL.to_owned() } else { stored(7) }
        });
        let identities = Identities::default();
        let full = put(&server, &identities, (false, LONG), false);
        assert!(matches!(full, Err(NatsError::Full(Full::Jobs))), "{full:?}");
        let taken = put(&server, &identities, (false, LONG), false);
        assert!(matches!(taken, Ok(Published::Stored(7))), "{taken:?}");
        assert_eq!(server.ids(), [(); 3].map(|()| JobKey(0xab).to_string()));
    }

    #[test]
    fn servers_that_remember_what_they_refuse_get_it_under_the_next() {
        let mut refused = BTreeSet::new();
        let server = Scripted::start(move |id| match (refused.len(), refused.contains(id)) {
            (_, true) => DUPLICATE.to_owned(),
            (2, false) => stored(7),
            (_, false) => {
                refused.insert(id.to_owned());
                FULL.to_owned()
            }
        });
        let identities = Identities::default();
        let full = put(&server, &identities, (false, LONG), false);
        assert!(matches!(full, Err(NatsError::Full(Full::Jobs))), "{full:?}");
        let taken = put(&server, &identities, (false, LONG), false);
        assert!(matches!(taken, Ok(Published::Stored(7))), "{taken:?}");
        let key = JobKey(0xab).to_string();
        let mut ids = server.ids();
        ids.dedup();
        assert_eq!(ids, [key.clone(), format!("{key}.1"), format!("{key}.2")]);
    }

    #[test]
    fn what_another_process_has_sent_is_not_sent_under_another_identity() {
        let server = Scripted::start(|_| DUPLICATE.to_owned());
        let within = Duration::from_millis(700);
        let identities = Identities::default();
        let unstored = put(&server, &identities, (false, within), false);
        assert!(matches!(unstored, Err(NatsError::Unstored)), "{unstored:?}");
        assert_eq!(identities.of(JobKey(0xab)), Identities::default().of(JobKey(0xab)));
        // It has ended meanwhile, and the servers need not say under which number it was.
        let mut refused = identities.of(JobKey(0xab));
        refused.hear(&NatsError::Full(Full::Jobs));
        identities.set(JobKey(0xab), refused);
        let ended = put(&server, &identities, (false, LONG), true);
        assert!(matches!(ended, Ok(Published::Duplicate)), "{ended:?}");
    }
}
