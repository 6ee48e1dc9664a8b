//! The service of one role on one device: whether processes are started for it, what those that were
//! started have died of, and what was done. Knows times and counts; may not know slots.
//!
//! ```text
//!          5 deaths without work in 60 s, 3 failed starts
//!  Open ───────────────────────────────────────────────────► Quarantined ◄─┐
//!   ▲        a set-up that no restart mends: not probed,        │          │ it ends before that
//!   │        before an operator releases it                     │ 1, 5, 15 min, or released
//!   │                                                           ▼          │
//!   └──────────── READY, with every known answer right ────── Probing ─────┘
//! ```
//! A service that is back is on probation: the next death without work puts it out again.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use gridpool_protocol::ids::{DeviceId, WorkerId};
use gridpool_protocol::metrics::DeviceWork;

use crate::config::PoolConfig;
use crate::event::Timestamp;

/// How much longer a quarantined service waits for each next probe.
const PROBE_FACTOR: u32 = 5;

/// Whether processes are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceState {
    /// They are.
    Open,
    /// One process is starting, to see whether the device works.
    Probing,
    /// None before `probe_at`; if there is no such time, none before an operator releases the device.
    Quarantined { probe_at: Option<Timestamp> },
}

/// A death, as far as it says something about the service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    /// The process was never READY.
    pub(super) at_start: bool,
    /// It answered nothing.
    pub(super) idle: bool,
    /// The next one would end the same way.
    pub(super) is_final: bool,
}

/// The service of one role on one device.
#[derive(Clone, Debug)]
pub(super) struct Service {
    state: ServiceState,
    /// Its latest process, if there was one.
    pub(super) latest: Option<WorkerId>,
    pub(super) last_fault: String,
    /// Whether no process here was ever READY.
    never_ready: bool,
    /// Whether it was put out by starts that failed.
    refused: bool,
    start_failures: u32,
    /// Deaths without work, within the restart window.
    idle_deaths: VecDeque<Timestamp>,
    /// Quarantines since work was last done.
    probes: u32,
    /// Quarantines ever.
    quarantines: u64,
    /// What was done.
    pub(super) work: DeviceWork,
    /// Why it was put out last.
    rule: Option<Rule>,
    /// It was said in the log that it is out.
    is_told_out: bool,
}

/// Which rule put a device out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// This many deaths without work within this time.
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
    /// This many starts in a row that failed.
    Starts(u32),
    /// The process that probed it has ended.
    Probe,
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
            Self::Probe => f.write_str("the end of the process that was to try it"),
        }
    }
}

impl Service {
    pub(super) fn new() -> Self {
        Self {
            state: ServiceState::Open,
            latest: None,
            last_fault: String::new(),
            never_ready: true,
            refused: false,
            start_failures: 0,
            idle_deaths: VecDeque::new(),
            probes: 0,
            quarantines: 0,
            work: DeviceWork::default(),
            rule: None,
            is_told_out: false,
        }
    }

    pub(super) fn state(&self) -> ServiceState {
        self.state
    }

    pub(super) fn quarantines(&self) -> u64 {
        self.quarantines
    }

    pub(super) fn rule(&self) -> Option<Rule> {
        self.rule
    }

    /// The number of its latest process; 0 before the first.
    pub(super) fn generation(&self) -> u32 {
        self.latest.map_or(0, |latest| latest.generation)
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == ServiceState::Open
    }

    /// Its last fault, without the name of the process.
    pub(super) fn unnamed_fault(&self, id: DeviceId) -> &str {
        let named = self.last_fault.strip_prefix(&format!("{id}#"));
        named.map_or(&self.last_fault, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()))
    }

    /// Why no job can count on it, and for how long. `is_told` says that another device has the same fault,
    /// which is told already.
    pub(super) fn why_out(&self, now: Timestamp, id: DeviceId, is_told: bool) -> String {
        let fault = if is_told { "for the same reason" } else { &self.last_fault };
        match self.state {
            ServiceState::Open => self.last_fault.clone(),
            ServiceState::Probing => format!("{id} is being tried again ({fault})"),
            ServiceState::Quarantined { probe_at: None } => {
                format!("{id} is out of service until `gridpool release {id}` ({fault})")
            }
            ServiceState::Quarantined { probe_at: Some(at) } => {
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
        self.state = ServiceState::Open;
    }

    /// A process has answered a job.
    pub(super) fn worked(&mut self) {
        self.idle_deaths.clear();
        self.probes = 0;
    }

    /// A death that is the device's own fault. Says by which rule that is enough to put it out, if it is.
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

    /// Out of service, until it is probed; if `is_final`, until an operator releases it.
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
        self.state = ServiceState::Quarantined { probe_at };
        self.probes = self.probes.saturating_add(1);
        self.quarantines += 1;
        self.start_failures = 0;
        self.idle_deaths.clear();
    }

    /// A process is started to see whether the device works, if that is what the service needs.
    pub(super) fn begin_start(&mut self) {
        if !self.is_open() {
            self.state = ServiceState::Probing;
        }
    }

    /// The probe that is under way is called off: there is nothing that a worker could do.
    pub(super) fn call_off(&mut self, now: Timestamp) {
        if self.state == ServiceState::Probing {
            self.state = ServiceState::Quarantined { probe_at: Some(now) };
        }
    }

    /// An operator says that it is worth a probe.
    pub(super) fn release(&mut self, now: Timestamp) {
        if let ServiceState::Quarantined { probe_at } = &mut self.state {
            *probe_at = Some(now);
        }
    }

    /// Out of service for a fault of its device. If it is out already, what is worse stands; what is
    /// not as bad changes nothing. Says whether this did.
    pub(super) fn put_out(&mut self, now: Timestamp, is_final: bool, config: &PoolConfig) -> bool {
        match &mut self.state {
            ServiceState::Open | ServiceState::Probing => {
                self.quarantine(now, Rule::Fault, is_final, config);
            }
            ServiceState::Quarantined { .. } if !is_final => return false,
            ServiceState::Quarantined { probe_at } => {
                *probe_at = None;
                self.rule = Some(Rule::Fault);
            }
        }
        true
    }

    /// What the log is to say: that it is out, that it is back, or nothing new.
    pub(super) fn tell(&mut self) -> Option<Told> {
        match (self.state, self.is_told_out) {
            (ServiceState::Open, true) => {
                self.is_told_out = false;
                Some(Told::Back)
            }
            (ServiceState::Quarantined { probe_at }, false) => {
                self.is_told_out = true;
                Some(Told::Out { probe_at })
            }
            (ServiceState::Open, false)
            | (ServiceState::Probing, _)
            | (ServiceState::Quarantined { .. }, true) => None,
        }
    }
}

/// What is told of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Back,
    Out { probe_at: Option<Timestamp> },
}
