//! The service of one group on one device: whether the pool starts processes for it, how they died, and what
//! work they did. Knows times and counts; must not know slots.
//!
//! ```text
//!          5 deaths without work in 60 s, 3 failed starts
//!  Open ───────────────────────────────────────────────────► Quarantined ◄─┐
//!   ▲        a set-up that no restart mends: not probed,        │          │ it ends before that
//!   │        before an operator releases it                     │ 1, 5, 15 min, or released
//!   │                                                           ▼          │
//!   └──────────── READY, with every known answer right ────── Probing ─────┘
//! ```
//! A service that is back is on probation: the next death without work quarantines it again.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use gridpool_protocol::ids::{DeviceId, Role, WorkerId};
use gridpool_protocol::metrics::DeviceWork;

use crate::config::PoolConfig;
use crate::event::Timestamp;

/// Each probe of a quarantined service waits this many times as long as the one before.
const PROBE_FACTOR: u32 = 5;

/// Whether the pool starts processes for the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceState {
    /// It does.
    Open,
    /// One process is starting, to test the device.
    Probing,
    /// Not before `probe_at`; without one, not before an operator releases the device.
    Quarantined { probe_at: Option<Timestamp> },
}

/// What a death says about the service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    /// The process was never READY.
    pub(super) at_start: bool,
    /// It answered nothing.
    pub(super) idle: bool,
    /// The next process would end the same way.
    pub(super) is_final: bool,
}

/// The service of one group on one device.
#[derive(Clone, Debug)]
pub(super) struct Service {
    state: ServiceState,
    /// Its latest process, if there was one.
    pub(super) latest: Option<WorkerId>,
    pub(super) last_fault: String,
    /// Whether no process here was ever READY.
    never_ready: bool,
    /// Whether failed starts or a failed probe put it out of service.
    refused: bool,
    start_failures: u32,
    /// Deaths without work, within the restart window.
    idle_deaths: VecDeque<Timestamp>,
    /// Quarantines since work was last done.
    probes: u32,
    /// Quarantines ever.
    quarantines: u64,
    /// The work done.
    pub(super) work: DeviceWork,
    /// The rule that took it out of service last.
    rule: Option<Rule>,
    /// The log says that it is out of service.
    is_out_logged: bool,
}

/// Which rule put a device out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// This many deaths without work within this time.
    Deaths {
        /// How many.
        count: u32,
        /// Within which time.
        within: Duration,
    },
    /// The policy's response to a fault.
    Fault,
    /// A death without work while on probation.
    Probation,
    /// A fault that no restart mends.
    SetUp,
    /// This many starts in a row that failed.
    Starts(u32),
    /// The process that probed it ended.
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
            is_out_logged: false,
        }
    }

    /// That of a new group on a device whose programs have this one: a fault of the device is everybody's.
    pub(super) fn beside(other: &Self) -> Self {
        match (other.state, other.rule) {
            (state @ ServiceState::Quarantined { .. }, rule @ Some(Rule::Fault)) => {
                let last_fault = other.last_fault.clone();
                Self { last_fault, state, rule, probes: other.probes, ..Self::new() }
            }
            (ServiceState::Open | ServiceState::Probing | ServiceState::Quarantined { .. }, _) => {
                Self::new()
            }
        }
    }

    /// It takes the place of another: sums do not begin anew.
    pub(super) fn counts_on_from(&mut self, other: &Self) {
        self.quarantines += other.quarantines;
        (self.latest, self.work) = (other.latest, other.work);
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

    /// Why it runs no jobs, and for how long. With `is_repeated`, the reason is not repeated: another device
    /// has the same fault.
    pub(super) fn why_out(
        &self,
        now: Timestamp,
        (id, role): (DeviceId, Role),
        is_repeated: bool,
    ) -> String {
        let fault = if is_repeated { "for the same reason" } else { &self.last_fault };
        match self.state {
            // The device is well, and runs programs.
            ServiceState::Quarantined { probe_at: None }
                if role == Role::Infer && self.rule == Some(Rule::SetUp) =>
            {
                format!(
                    "no worker for models can start on {id} ({fault}); once that is mended, `gridpool release {id}`"
                )
            }
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

    /// Whether no process was ever READY here: the set-up is wrong, not the device.
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

    /// Counts a death. Returns the rule that now puts the service out, if one does.
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

    /// Puts it out of service because its processes died or did not start.
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

    /// Puts it out of service until it is probed; if `is_final`, until an operator releases it.
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

    /// A process is starting. If the service is out, that process is its probe.
    pub(super) fn begin_start(&mut self) {
        if !self.is_open() {
            self.state = ServiceState::Probing;
        }
    }

    /// Cancels a probe: there is no work for a worker.
    pub(super) fn cancel_probe(&mut self, now: Timestamp) {
        if self.state == ServiceState::Probing {
            self.state = ServiceState::Quarantined { probe_at: Some(now) };
        }
    }

    /// An operator wants it probed now.
    pub(super) fn release(&mut self, now: Timestamp) {
        if let ServiceState::Quarantined { probe_at } = &mut self.state {
            *probe_at = Some(now);
        }
    }

    /// Puts it out of service for a fault of its device, or makes a quarantine final. Returns whether
    /// anything changed.
    pub(super) fn quarantine_for_fault(
        &mut self,
        now: Timestamp,
        is_final: bool,
        config: &PoolConfig,
    ) -> bool {
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

    /// The change that the log has not reported yet, if there is one.
    pub(super) fn take_change(&mut self) -> Option<ServiceChange> {
        match (self.state, self.is_out_logged) {
            (ServiceState::Open, true) => {
                self.is_out_logged = false;
                Some(ServiceChange::Back)
            }
            (ServiceState::Quarantined { probe_at }, false) => {
                self.is_out_logged = true;
                Some(ServiceChange::Out { probe_at })
            }
            (ServiceState::Open, false)
            | (ServiceState::Probing, _)
            | (ServiceState::Quarantined { .. }, true) => None,
        }
    }
}

/// A change of a service, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceChange {
    Back,
    Out { probe_at: Option<Timestamp> },
}
