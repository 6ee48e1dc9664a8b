//! What each principal has, has used and may have. The time of a worker is divided among the attempts that it runs
//! together, whenever that changes; an attempt is charged when it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gridpool_core::Core;
use gridpool_core::event::{JobRequest, Timestamp};
use gridpool_core::quota::{Quota, Quotas, Rate};
use gridpool_protocol::message::Limit;
use gridpool_protocol::principal::Principal;
use gridpool_protocol::status::PrincipalStatus;

use super::jobs::Job;
use super::outstanding::Sent;
use super::{Broken, Model, holds};

/// What the model knows of principals beside their jobs.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    pub(super) quotas: Quotas,
    pub(super) all: BTreeMap<Principal, Account>,
}

#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) done: u64,
    pub(super) refused: u64,
    used: Duration,
    /// What was over its quota at that time and has not been paid back.
    owed: (Duration, Timestamp),
}

impl Account {
    fn owes(&self, now: Timestamp, rate: Rate) -> Duration {
        let (owed, at) = self.owed;
        let paid = now.since(at).as_nanos() * rate.time.as_nanos() / rate.per.as_nanos();
        owed.saturating_sub(Duration::from_nanos(u64::try_from(paid).expect("an age")))
    }
}

impl Model {
    pub(super) fn account_of(&mut self, principal: &Principal) -> &mut Account {
        self.accounts.all.entry(principal.clone()).or_default()
    }

    pub(super) fn quotas_set(&mut self, quotas: &Quotas) {
        self.coverage.hit("quota: others");
        self.accounts.quotas = quotas.clone();
    }

    /// A worker has answered an attempt, or is lost with it.
    pub(super) fn attempt_is_charged(&mut self, now: Timestamp, sent: &Sent) {
        let principal = self.accepted[&sent.attempt.job].clone();
        let rate = self.accounts.quotas.of(&principal).device_time;
        let time = sent.spent();
        let own = self.account_of(&principal);
        own.used += time;
        own.owed = match rate {
            Some(rate) => (own.owes(now, rate) + time, now),
            None => (Duration::ZERO, now),
        };
    }

    /// Whether a job would go over its quota even if it were the only one.
    pub(super) fn never_has_the_quota(&mut self, request: &JobRequest) -> bool {
        let Quota { jobs_max, bytes_max, .. } = self.accounts.quotas.of(&request.principal);
        let is_forbidden = jobs_max.is_some_and(|max| u64::from(request.jobs) > max);
        let is_too_large = bytes_max.is_some_and(|max| request.bytes > max);
        if is_forbidden {
            self.coverage.hit("refuse: no jobs by quota");
        } else if is_too_large {
            self.coverage.hit("refuse: larger than the quota");
        }
        is_forbidden || is_too_large
    }

    /// The quota that a job would go over.
    pub(super) fn quota_reached(&mut self, now: Timestamp, request: &JobRequest) -> Option<Limit> {
        let Quota { jobs_max, bytes_max, device_time } =
            self.accounts.quotas.of(&request.principal);
        let own = self.jobs.values().filter(|job| job.request.principal == request.principal);
        let (jobs, bytes) =
            own.fold((0, 0), |(jobs, bytes), job| (jobs + job.count(), bytes + job.request.bytes));
        if let (Some(rate), Some(own)) = (device_time, self.accounts.all.get(&request.principal))
            && let Some(over) = own.owes(now, rate).checked_sub(rate.time)
        {
            self.coverage.hit("refuse: BUSY quota of device time");
            let again = over.as_nanos() * rate.per.as_nanos() / rate.time.as_nanos();
            let again_ms = u64::try_from(again / 1_000_000).expect("an age") + 1;
            return Some(Limit::QuotaDeviceTime { again_ms });
        }
        match (jobs_max, bytes_max) {
            (Some(max), _) if jobs + u64::from(request.jobs) > max => {
                self.coverage.hit("refuse: BUSY quota of jobs");
                Some(Limit::QuotaJobs { max })
            }
            (_, Some(max)) if bytes + request.bytes > max => {
                self.coverage.hit("refuse: BUSY quota of bytes");
                Some(Limit::QuotaBytes { max })
            }
            _ => None,
        }
    }

    pub(super) fn the_status_shows_what_each_principal_has(
        &self,
        now: Timestamp,
        core: &Core,
    ) -> Result<(), Broken> {
        let row = |(principal, account): (&Principal, &Account)| {
            let jobs = || self.jobs.values().filter(|job| job.request.principal == *principal);
            let queued = jobs().filter(|job| job.waits()).map(Job::count).sum();
            let own = self.kills.iter().filter(|((_, who), _)| who == principal);
            let spent = own.map(|(_, back)| back.iter().filter(|&&at| at > now).count());
            let left = self.config.kills_max - spent.max().unwrap_or(0);
            PrincipalStatus {
                principal: principal.to_string(),
                queued,
                running: jobs().map(Job::count).sum::<u64>() - queued,
                done: account.done,
                refused: account.refused,
                bytes: jobs().map(|job| job.request.bytes).sum(),
                device_s: account.used.as_secs_f64(),
                kills_left: Some(u32::try_from(left).expect("there are few")),
                quota: self.accounts.quotas.of(principal).to_string(),
                ..PrincipalStatus::default()
            }
        };
        let due: Vec<_> = self.accounts.all.iter().map(row).collect();
        let told: Vec<_> =
            core.principals(now, &BTreeSet::new()).into_iter().map(|(_, row)| row).collect();
        let rule = "the_status_shows_what_each_principal_has";
        holds(rule, told == due, || format!("told {told:?}, {due:?} is due"))
    }
}
