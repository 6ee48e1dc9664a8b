//! The identities of messages, by which servers know one that they have already.
//!
//! A server 2.10 with copies keeps the identity of a message that it has refused because the stream was full, and calls
//! each later one with it a duplicate, although it has stored none. So a message that was refused is sent again under
//! its next identity. They are the same for all who send it: it is still stored once.

use std::collections::BTreeMap;
use std::fmt::Display;

use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::JobKey;

/// Refused jobs that a client remembers. If there are more, it begins anew: the next try of each may take
/// `UNSTORED_TIMEOUT` for each identity that was refused.
const REFUSED_MAX: usize = 65_536;

/// The identity of a message that servers have refused so often.
pub fn message_id(base: impl Display, refused: u32) -> String {
    match refused {
        0 => base.to_string(),
        times => format!("{base}.{times}"),
    }
}

/// The key of a job by the identity of its message; `None` if it is no job's.
pub(crate) fn key_of(id: &str) -> Option<JobKey> {
    let (key, _) = id.split_once('.').unwrap_or((id, ""));
    u128::from_str_radix(key, 16).ok().map(JobKey)
}

/// How often the servers have refused each job of a client.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<BTreeMap<JobKey, u32>>);

impl Refused {
    /// How often this one.
    pub(crate) fn times(&self, key: JobKey) -> u32 {
        self.0.lock().get(&key).copied().unwrap_or(0)
    }

    /// Once more.
    pub(crate) fn again(&self, key: JobKey) {
        let mut refused = self.0.lock();
        if refused.len() >= REFUSED_MAX && !refused.contains_key(&key) {
            refused.clear();
        }
        *refused.entry(key).or_default() += 1;
    }

    /// It is stored, or nobody sends it again.
    pub(crate) fn forget(&self, key: JobKey) {
        self.0.lock().remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_gives_another_identity_of_the_same_key() {
        let (refused, key) = (Refused::default(), JobKey(0xab));
        let ids = [(); 3].map(|()| {
            let id = message_id(key, refused.times(key));
            refused.again(key);
            id
        });
        assert_eq!(ids[0], key.to_string());
        assert!(ids.iter().all(|id| key_of(id) == Some(key)), "{ids:?}");
        assert!(ids[0] != ids[1] && ids[1] != ids[2], "{ids:?}");
        refused.forget(key);
        assert_eq!(message_id(key, refused.times(key)), ids[0]);
        assert_eq!(key_of("no key"), None);
    }

    #[test]
    fn refused_jobs_are_remembered_up_to_a_limit() {
        let refused = Refused::default();
        (0..=REFUSED_MAX as u128).for_each(|key| refused.again(JobKey(key)));
        assert!(refused.0.lock().len() <= REFUSED_MAX);
        assert_eq!(refused.times(JobKey(REFUSED_MAX as u128)), 1);
    }
}
