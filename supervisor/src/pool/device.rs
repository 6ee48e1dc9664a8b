//! What all seats of a device have in common: the numbers of its processes, whether it is in service,
//! and what its processes have died of. Knows times and counts; may not know seats.
//!
//! ```text
//!          5 deaths without work in 60 s, 3 failed starts
//!  Open ───────────────────────────────────────────────────► Quarantined ◄─┐
//!   ▲        a set-up that no restart mends: not tried again,   │          │ it ends before that
//!   │        before somebody releases it                        │ 1, 5, 15 min, or released
//!   │                                                           ▼          │
//!   └──────────── READY, with every known answer right ────── Probing ─────┘
//! ```
//! A device that is back is on probation: the next death without work puts it out again.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{DeviceId, WorkerId};
use gridpool_protocol::metrics::Work;

use super::config::PoolConfig;
use super::event::Timestamp;
use super::xid::Incidents;

/// How much longer a device in quarantine waits for each next try.
const PROBE_FACTOR: u32 = 5;

/// Whether processes are started on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// They are.
    Open,
    /// One process is starting, to see whether the device works.
    Probing,
    /// None before `probe_at`; if there is no such time, none before somebody releases it.
    Quarantined { probe_at: Option<Timestamp> },
}

/// A death, as far as it says something about the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    /// The process was never READY.
    pub(super) at_start: bool,
    /// It answered nothing.
    pub(super) idle: bool,
    /// The next one would end the same way.
    pub(super) is_final: bool,
}

/// One device.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    pub(super) service: Service,
    pub(super) last_fault: String,
    /// The number of the latest process.
    pub(super) generation: u32,
    /// The number of the next one, and how much more that of the one after it is.
    next: u32,
    step: u32,
    /// Whether no process here was ever READY.
    never_ready: bool,
    /// Whether it was put out of service by starts that failed.
    refused: bool,
    start_failures: u32,
    /// Deaths without work, within the restart window.
    idle_deaths: VecDeque<Timestamp>,
    /// Quarantines since work was last done.
    probes: u32,
    /// Quarantines ever.
    pub(super) quarantines: u64,
    /// When a process here was last killed, or died, and which.
    pub(super) lost: Option<(Timestamp, WorkerId)>,
    /// What the driver has told of it last, and when.
    pub(super) driver_said: Option<(Timestamp, FaultCode)>,
    /// What was done on it.
    pub(super) work: Work,
    /// What the driver has told of it.
    pub(super) incidents: Incidents,
    /// Why it was put out of service last.
    pub(super) rule: Option<Rule>,
}

/// Which rule put a device out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// So many deaths without work within this time.
    Deaths {
        /// How many.
        count: u32,
        /// Within what.
        within: Duration,
    },
    /// What is done about the fault that was met or told.
    Fault,
    /// A death without work since it is back.
    Probation,
    /// A fault that no restart mends.
    SetUp,
    /// So many starts that failed, none between that did not.
    Starts(u32),
    /// The process that was to show that it works has ended.
    Trial,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deaths { count, within } => {
                let deaths = if *count == 1 { "death" } else { "deaths" };
                write!(f, "{count} {deaths} without work in {} s", within.as_secs_f64())
            }
            Self::Fault => f.write_str("the response to this fault"),
            Self::Probation => f.write_str("a death without work on probation"),
            Self::SetUp => f.write_str("a set-up that no restart mends"),
            Self::Starts(1) => f.write_str("1 failed start"),
            Self::Starts(count) => write!(f, "{count} failed starts"),
            Self::Trial => f.write_str("the end of the process that was to try it"),
        }
    }
}

impl Device {
    pub(super) fn new(id: DeviceId) -> Self {
        Self {
            id,
            service: Service::Open,
            last_fault: String::new(),
            generation: 0,
            next: 1,
            step: 1,
            never_ready: true,
            refused: false,
            start_failures: 0,
            idle_deaths: VecDeque::new(),
            probes: 0,
            quarantines: 0,
            lost: None,
            driver_said: None,
            work: Work::default(),
            incidents: Incidents::default(),
            rule: None,
        }
    }

    /// The name of the process that was started last.
    pub(super) fn latest(&self) -> WorkerId {
        WorkerId { device: self.id, generation: self.generation }
    }

    /// Has its processes numbered so.
    pub(super) fn number(&mut self, first: u32, step: u32) {
        (self.next, self.step) = (first, step);
    }

    /// The next process's number.
    pub(super) fn next_generation(&mut self) -> u32 {
        self.generation = self.next;
        self.next += self.step;
        self.generation
    }

    pub(super) fn is_open(&self) -> bool {
        self.service == Service::Open
    }

    /// Why nobody can count on it, and for how long.
    pub(super) fn why_out(&self, now: Timestamp) -> String {
        let (id, fault) = (self.id, &self.last_fault);
        match self.service {
            Service::Open => fault.clone(),
            Service::Probing => format!("{id} is being tried again ({fault})"),
            Service::Quarantined { probe_at: None } => {
                format!("{id} is out of service until `gridpool release {id}` ({fault})")
            }
            Service::Quarantined { probe_at: Some(at) } => {
                let seconds = at.since(now).as_secs_f64().ceil();
                format!("{id} is out of service and tried again in {seconds} s ({fault})")
            }
        }
    }

    /// Whether every process refused to start, so that the set-up is wrong and not the device.
    pub(super) fn is_misconfigured(&self) -> bool {
        !self.is_open() && self.never_ready && self.refused
    }

    /// A process is READY: it has passed every known-answer test.
    pub(super) fn ready(&mut self) {
        self.never_ready = false;
        self.start_failures = 0;
        self.service = Service::Open;
    }

    /// A process has answered a job.
    pub(super) fn worked(&mut self) {
        self.idle_deaths.clear();
        self.probes = 0;
    }

    /// A death that is the device's own fault. Says by which rule it is enough, if it is.
    pub(super) fn note(
        &mut self,
        now: Timestamp,
        death: Death,
        config: &PoolConfig,
    ) -> Option<Rule> {
        self.start_failures += u32::from(death.at_start);
        if death.idle {
            self.idle_deaths.push_back(now);
        }
        while self.idle_deaths.front().is_some_and(|&at| now.since(at) > config.restart_window) {
            self.idle_deaths.pop_front();
        }
        let idle_deaths = u32::try_from(self.idle_deaths.len()).unwrap_or(u32::MAX);
        if death.is_final {
            Some(Rule::SetUp)
        } else if self.start_failures >= config.start_failures_max {
            Some(Rule::Starts(self.start_failures))
        } else if idle_deaths >= config.restart_limit {
            Some(Rule::Deaths { count: idle_deaths, within: config.restart_window })
        } else {
            (self.probes > 0 && death.idle).then_some(Rule::Probation)
        }
    }

    /// Out of service because of how its processes end, or do not even start.
    pub(super) fn refuse(
        &mut self,
        now: Timestamp,
        rule: Rule,
        is_final: bool,
        config: &PoolConfig,
    ) {
        self.refused = true;
        self.quarantine(now, rule, is_final, config);
    }

    /// Out of service, until it is tried again; if `is_final`, until somebody releases it.
    pub(super) fn quarantine(
        &mut self,
        now: Timestamp,
        rule: Rule,
        is_final: bool,
        config: &PoolConfig,
    ) {
        self.rule = Some(rule);
        let factor = PROBE_FACTOR.saturating_pow(self.probes);
        let wait = config.probe_min.saturating_mul(factor).min(config.probe_max);
        let probe_at = (!is_final).then(|| now.after(wait));
        self.service = Service::Quarantined { probe_at };
        self.probes = self.probes.saturating_add(1);
        self.quarantines += 1;
        self.start_failures = 0;
        self.idle_deaths.clear();
    }

    /// The try that is under way is called off: there is nothing that the device could do.
    pub(super) fn call_off(&mut self, now: Timestamp) {
        if self.service == Service::Probing {
            self.service = Service::Quarantined { probe_at: Some(now) };
        }
    }

    /// Somebody says that it is worth a try.
    pub(super) fn release(&mut self, now: Timestamp) {
        if let Service::Quarantined { probe_at } = &mut self.service {
            *probe_at = Some(now);
        }
    }
}
