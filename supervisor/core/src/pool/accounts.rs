//! What each principal has in the pool, what it has used, and whether its quota allows one more job.
//!
//! The time that a worker spends on attempts is charged to their principals when the attempts end, whatever came of
//! them. A quota of device time may so be overdrawn by the jobs that were accepted; more are refused until the
//! rest is paid back.

use std::collections::BTreeMap;
use std::time::Duration;

use gridpool_protocol::message::Limit;
use gridpool_protocol::principal::Principal;

use crate::event::{JobRequest, Timestamp};
use crate::quota::{Quota, Quotas, Rate};

/// Principals whose sums are kept, if no more have jobs.
pub(super) const ACCOUNTS_MAX: usize = 256;

/// All accounts.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    pub(super) quotas: Quotas,
    all: BTreeMap<Principal, Account>,
    /// The sums of those that are no longer kept.
    others: Sums,
    /// The number of the latest change of any.
    changes: u64,
}

/// The account of one principal.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Jobs without a verdict, of both groups.
    pub(super) jobs: u64,
    /// Bytes of their inputs and results.
    pub(super) bytes: u64,
    pub(super) sums: Sums,
    /// Device time that was not paid back at `charged`.
    owed: Duration,
    charged: Timestamp,
    /// The number of its latest change.
    change: u64,
}

/// What a principal has had since the pool started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) done: u64,
    pub(super) refused: u64,
    pub(super) device_time: Duration,
}

impl Account {
    /// Device time that is not paid back.
    fn owed(&self, now: Timestamp, rate: Option<Rate>) -> Duration {
        let paid = |rate: Rate| rate.in_span(now.since(self.charged));
        rate.map_or(Duration::ZERO, |rate| self.owed.saturating_sub(paid(rate)))
    }
}

impl Accounts {
    fn of_mut(&mut self, now: Timestamp, principal: &Principal) -> &mut Account {
        if self.all.len() >= ACCOUNTS_MAX && !self.all.contains_key(principal) {
            self.forget_one(now);
        }
        self.changes += 1;
        let account = self.all.entry(principal.clone()).or_default();
        account.change = self.changes;
        account
    }

    /// Forgets the account without jobs that has not changed for longest, if there is one; first those that owe
    /// nothing.
    fn forget_one(&mut self, now: Timestamp) {
        let idle = self.all.iter().filter(|(_, account)| account.jobs == 0);
        let least = idle.min_by_key(|&(principal, account)| {
            let owed = account.owed(now, self.quotas.of(principal).device_time);
            (!owed.is_zero(), account.change)
        });
        let Some(principal) = least.map(|(principal, _)| principal.clone()) else { return };
        if let Some(Account { sums, .. }) = self.all.remove(&principal) {
            let Sums { done, refused, device_time } = &mut self.others;
            *done += sums.done;
            *refused += sums.refused;
            *device_time += sums.device_time;
        }
    }

    /// Why the quota never allows a job, if so: however few others there are, it would go over it.
    pub(super) fn why_never(
        &self,
        JobRequest { principal, bytes, jobs, .. }: &JobRequest,
    ) -> Option<String> {
        let Quota { jobs_max, bytes_max, device_time: _ } = self.quotas.of(principal);
        if jobs_max.is_some_and(|max| u64::from(*jobs) > max) {
            return Some("this principal may have no jobs, by its quota".to_owned());
        }
        let max = bytes_max.filter(|max| bytes > max)?;
        Some(format!(
            "this job has {bytes} bytes, with its results, and all jobs of its principal may have {max}, by its quota: \
             submit smaller batches"
        ))
    }

    /// Which quota a job would go over, if any.
    pub(super) fn limit(&self, now: Timestamp, request: &JobRequest) -> Option<Limit> {
        let quota = self.quotas.of(&request.principal);
        let none = Account::default();
        let own = self.all.get(&request.principal).unwrap_or(&none);
        let Quota { jobs_max, bytes_max, device_time } = quota;
        if let Some(rate) = device_time {
            let owed = own.owed(now, device_time);
            if owed >= rate.time {
                // Rounded up: at that time the job is accepted.
                let again = rate.span_of(owed - rate.time).as_millis() + 1;
                let again_ms = u64::try_from(again).unwrap_or(u64::MAX);
                return Some(Limit::QuotaDeviceTime { again_ms });
            }
        }
        let jobs = u64::from(request.jobs);
        if let Some(max) = jobs_max.filter(|&max| own.jobs + jobs > max) {
            return Some(Limit::QuotaJobs { max });
        }
        let max = bytes_max.filter(|&max| own.bytes.saturating_add(request.bytes) > max)?;
        Some(Limit::QuotaBytes { max })
    }

    /// A job is accepted.
    pub(super) fn accept(&mut self, now: Timestamp, request: &JobRequest) {
        let own = self.of_mut(now, &request.principal);
        own.jobs += u64::from(request.jobs);
        own.bytes = own.bytes.saturating_add(request.bytes);
    }

    /// Jobs are refused.
    pub(super) fn refuse(&mut self, now: Timestamp, principal: &Principal, jobs: u32) {
        self.of_mut(now, principal).sums.refused += u64::from(jobs);
    }

    /// A job has its verdict.
    pub(super) fn finish(&mut self, now: Timestamp, request: &JobRequest) {
        let own = self.of_mut(now, &request.principal);
        own.jobs -= u64::from(request.jobs);
        own.bytes = own.bytes.saturating_sub(request.bytes);
        own.sums.done += u64::from(request.jobs);
    }

    /// A worker has spent this time on an attempt.
    pub(super) fn charge(&mut self, now: Timestamp, principal: &Principal, time: Duration) {
        let rate = self.quotas.of(principal).device_time;
        let own = self.of_mut(now, principal);
        own.owed = own.owed(now, rate) + rate.map_or(Duration::ZERO, |_| time);
        own.charged = now;
        own.sums.device_time += time;
    }

    /// All accounts that are kept.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Principal, &Account)> {
        self.all.iter()
    }

    pub(super) fn get(&self, principal: &Principal) -> Option<&Account> {
        self.all.get(principal)
    }

    /// The sums of those that are not.
    pub(super) fn others(&self) -> Sums {
        self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_accounts_are_kept_than_have_jobs_or_the_limit_and_no_sum_is_lost() {
        let mut accounts = Accounts::default();
        let rate = Rate { time: Duration::from_secs(1), per: Duration::from_secs(60) };
        accounts.quotas.default.device_time = Some(rate);
        let now = Timestamp::default();
        let uid = |uid: usize| Principal::Uid(u32::try_from(uid).unwrap());
        accounts.charge(now, &uid(0), Duration::from_secs(5));
        (1..2 * ACCOUNTS_MAX).for_each(|own| accounts.refuse(now, &uid(own), 1));
        assert_eq!(accounts.iter().count(), ACCOUNTS_MAX);
        assert!(accounts.all.contains_key(&uid(0)), "what it owes is not forgotten");
        assert!(!accounts.all.contains_key(&uid(1)), "the oldest of the others is");
        let kept: u64 = accounts.iter().map(|(_, account)| account.sums.refused).sum();
        assert_eq!(kept + accounts.others().refused, 2 * ACCOUNTS_MAX as u64 - 1);
    }
}
