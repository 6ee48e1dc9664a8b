//! Rates of hosts, from what they said over the last seconds. Their own clocks count: they speak between two snapshots.

use std::collections::{BTreeMap, VecDeque};

use gridpool_nats::ClusterStatus;

/// The seconds over which rates are taken: hosts speak every 2 s.
const OVER_S: u64 = 10;
/// The most points of the trend.
const TREND_MAX: usize = 200;

/// What hosts said lately.
#[derive(Debug, Default)]
pub(super) struct History {
    hosts: BTreeMap<String, VecDeque<Said>>,
    trend: VecDeque<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Said {
    uptime_s: u64,
    published: u64,
}

/// A cluster as it is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    pub(super) status: ClusterStatus,
    /// Results in a second of each host, in the order of the hosts; `None` while too little is known.
    pub(super) rates: Vec<Option<f64>>,
    /// Those of all, one for each snapshot.
    pub(super) trend: Vec<f64>,
}

impl Picture {
    /// Results in a second of all hosts.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rates.iter().flatten().copied().reduce(|one, other| one + other)
    }
}

impl History {
    /// Takes a snapshot in, and gives what it shows.
    pub(super) fn snapshot(&mut self, status: ClusterStatus) -> Picture {
        self.hosts.retain(|name, _| status.hosts.iter().any(|host| host.host == *name));
        let rates = status.hosts.iter().map(|host| {
            let (uptime_s, published) = (host.uptime_s, host.counts.published);
            let said = self.hosts.entry(host.host.clone()).or_default();
            let last = said.back();
            if last.is_some_and(|last| last.uptime_s > uptime_s || last.published > published) {
                // Its bridge began again.
                said.clear();
            }
            if said.back().is_none_or(|last| last.uptime_s != uptime_s) {
                said.push_back(Said { uptime_s, published });
            }
            while said.len() > 2 && uptime_s - said[1].uptime_s >= OVER_S {
                said.pop_front();
            }
            let (first, last) = (said.front()?, said.back()?);
            let over = Some(last.uptime_s - first.uptime_s).filter(|&over| over > 0)?;
            Some((last.published - first.published) as f64 / over as f64)
        });
        let rates: Vec<_> = rates.collect();
        let mut picture = Picture { status, rates, trend: Vec::new() };
        self.trend.push_back(picture.rate().unwrap_or(0.0));
        while self.trend.len() > TREND_MAX {
            self.trend.pop_front();
        }
        picture.trend = self.trend.iter().copied().collect();
        picture
    }
}

#[cfg(test)]
mod tests {
    use gridpool_nats::{HostCounts, HostRow};

    use super::*;

    fn status(hosts: &[(&str, u64, u64)]) -> ClusterStatus {
        let host = |&(host, uptime_s, published): &(&str, u64, u64)| {
            let counts = HostCounts { published, ..HostCounts::default() };
            HostRow { host: host.into(), uptime_s, counts, ..HostRow::default() }
        };
        ClusterStatus { hosts: hosts.iter().map(host).collect(), ..ClusterStatus::default() }
    }

    #[test]
    fn a_rate_is_of_the_last_seconds_and_begins_again_with_the_host() {
        let mut history = History::default();
        assert_eq!(history.snapshot(status(&[("a", 1, 50)])).rates, [None]);
        // It has not spoken since.
        assert_eq!(history.snapshot(status(&[("a", 1, 50)])).rates, [None]);
        let two = history.snapshot(status(&[("a", 3, 90), ("b", 1, 0)]));
        assert_eq!((two.rates.clone(), two.rate()), (vec![Some(20.0), None], Some(20.0)));
        for second in 2..40 {
            history.snapshot(status(&[("a", 2 * second + 1, 90)]));
        }
        let idle = history.snapshot(status(&[("a", 99, 90)]));
        assert_eq!(idle.rates, [Some(0.0)]);
        assert_eq!(idle.trend.iter().copied().fold(0.0, f64::max), 20.0);
        assert_eq!(history.snapshot(status(&[("a", 1, 7)])).rates, [None]);
        assert_eq!(history.snapshot(status(&[])).rate(), None);
        assert!(history.hosts.is_empty());
    }
}
