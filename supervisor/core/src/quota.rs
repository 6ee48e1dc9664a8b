//! What an operator allows each principal: jobs, bytes, and time on the devices.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use gridpool_protocol::principal::Principal;

/// What one principal may have at a time, over both roles. `None` is no limit of this kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Jobs without a verdict, waiting or running.
    pub jobs_max: Option<u64>,
    /// Bytes of the inputs and results of those jobs. Its shared memory has the same limit.
    pub bytes_max: Option<u64>,
    /// Time on the devices.
    pub device_time: Option<Rate>,
}

/// So much time in every span. What is over it is paid back at this rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Above zero.
    pub time: Duration,
    /// Above zero.
    pub per: Duration,
}

impl Rate {
    /// How much is paid back in `span`.
    pub(crate) fn in_span(self, span: Duration) -> Duration {
        scaled(span, self.time, self.per)
    }

    /// How long it takes to pay `time` back.
    pub(crate) fn span_of(self, time: Duration) -> Duration {
        scaled(time, self.per, self.time)
    }
}

/// `span * by / over`, without the rest of a nanosecond.
fn scaled(span: Duration, by: Duration, over: Duration) -> Duration {
    let nanos = span.as_nanos().saturating_mul(by.as_nanos()) / over.as_nanos().max(1);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// As a config file writes it: `jobs=100,bytes=1048576,device-seconds=60/60s`. Nothing without a limit.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |Rate { time, per }| {
            format!("device-seconds={}/{}s", time.as_secs_f64(), per.as_secs_f64())
        };
        let parts = [
            self.jobs_max.map(|max| format!("jobs={max}")),
            self.bytes_max.map(|max| format!("bytes={max}")),
            self.device_time.map(rate),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

/// The quota of every principal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// That of a principal without one of its own.
    pub default: Quota,
    /// Whole quotas: what one lacks is no limit.
    pub own: BTreeMap<Principal, Quota>,
}

impl Quotas {
    /// The quota of a principal.
    #[must_use]
    pub fn of(&self, principal: &Principal) -> Quota {
        self.own.get(principal).copied().unwrap_or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_paid_back_at_the_rate_of_the_quota() {
        let rate = Rate { time: Duration::from_secs(6), per: Duration::from_secs(60) };
        assert_eq!(rate.in_span(Duration::from_secs(30)), Duration::from_secs(3));
        assert_eq!(rate.span_of(Duration::from_secs(3)), Duration::from_secs(30));
        let tiny = Rate { time: Duration::from_nanos(1), per: Duration::MAX };
        assert_eq!(tiny.span_of(Duration::MAX), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn a_quota_is_shown_as_it_is_written() {
        let rate = Rate { time: Duration::from_millis(500), per: Duration::from_secs(60) };
        let quota = Quota { jobs_max: Some(9), bytes_max: Some(1 << 20), device_time: Some(rate) };
        assert_eq!(quota.to_string(), "jobs=9,bytes=1048576,device-seconds=0.5/60s");
        assert_eq!(Quota::default().to_string(), "");
    }
}
