//! The identities of messages, by which servers know one that they have already.
//!
//! A server 2.10 with copies keeps the identity of a message that it has refused because the stream was full, and calls
//! each later one with it a duplicate, although it has stored none. So a message that was refused, and then is called a
//! duplicate without a number, is sent again under its next identity. Other servers forget what they refuse, and there
//! it keeps its first one: what another process sends under that is a duplicate.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::JobKey;

use crate::NatsError;

/// How long servers may say that they have a message already, and not under which number: they store it meanwhile, or
/// another of them leads soon, and has it not.
const UNSTORED_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for a message that they have refused: nobody else is likely to have sent it since.
const REFUSED_TIMEOUT: Duration = Duration::from_millis(600);
/// Jobs with another identity than their first that a client remembers. With more, one of them begins anew.
const REMEMBERED_MAX: usize = 65_536;

/// Under which identity a message is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    number: u32,
    was_refused: bool,
}

impl Identity {
    /// As the servers have it.
    pub(crate) fn of(self, message: impl Display) -> String {
        match self.number {
            0 => message.to_string(),
            number => format!("{message}.{number}"),
        }
    }

    /// How long servers may call it a duplicate without a number.
    pub(crate) fn unstored_timeout(self) -> Duration {
        if self.was_refused { REFUSED_TIMEOUT } else { UNSTORED_TIMEOUT }
    }

    /// Takes in why the message is not stored.
    pub fn hear(&mut self, error: &NatsError) {
        if let NatsError::Full(_) = error {
            self.was_refused = true;
        }
        if let NatsError::Unstored = error {
            *self = Self { number: self.number + 1, was_refused: false };
        }
    }

    /// Whether the servers are known to have no message with it.
    pub(crate) fn was_refused(self) -> bool {
        self.was_refused
    }
}

/// The key of a job by the identity of its message; `None` if it is no job's.
pub(crate) fn key_of(id: &str) -> Option<JobKey> {
    let (key, _) = id.split_once('.').unwrap_or((id, ""));
    u128::from_str_radix(key, 16).ok().map(JobKey)
}

/// The identities of a client's jobs that the servers have refused.
#[derive(Debug, Default)]
pub(crate) struct Identities(Mutex<BTreeMap<JobKey, Identity>>);

impl Identities {
    pub(crate) fn of(&self, key: JobKey) -> Identity {
        self.0.lock().get(&key).copied().unwrap_or_default()
    }

    pub(crate) fn set(&self, key: JobKey, identity: Identity) {
        let mut identities = self.0.lock();
        identities.insert(key, identity);
        if identities.len() > REMEMBERED_MAX {
            identities.pop_first();
        }
    }

    /// It is stored.
    pub(crate) fn forget(&self, key: JobKey) {
        self.0.lock().remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Full;

    #[test]
    fn a_message_has_its_first_identity_until_it_is_unstored() {
        let (key, mut identity) = (JobKey(0xab), Identity::default());
        assert_eq!(identity.of(key), key.to_string());
        identity.hear(&NatsError::Full(Full::Jobs));
        assert_eq!(identity.of(key), key.to_string());
        assert_eq!(identity.unstored_timeout(), REFUSED_TIMEOUT);
        identity.hear(&NatsError::Silent);
        identity.hear(&NatsError::Unstored);
        assert_eq!(identity.of(key), format!("{key}.1"));
        assert_eq!(identity.unstored_timeout(), UNSTORED_TIMEOUT);
        assert_eq!(key_of(&identity.of(key)), Some(key));
        assert_eq!(key_of("no key"), None);
    }

    #[test]
    fn identities_are_remembered_up_to_a_limit() {
        let (identities, mut other) = (Identities::default(), Identity::default());
        other.hear(&NatsError::Unstored);
        (0..=REMEMBERED_MAX as u128).for_each(|key| identities.set(JobKey(key), other));
        assert_eq!(identities.0.lock().len(), REMEMBERED_MAX);
        let last = JobKey(REMEMBERED_MAX as u128);
        assert_eq!(identities.of(last), other);
        identities.forget(last);
        assert_eq!(identities.of(last), Identity::default());
    }
}
