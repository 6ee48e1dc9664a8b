//! Seeds about one situation that ordinary seeds seldom reach.

use std::time::Duration;

use gridpool_core::config::{HelperLimits, PoolConfig};
use gridpool_core::event::Helper;

use super::{Swarm, count, plan};
use crate::rates::{Rates, rate};
use crate::rng::Rng;

impl Swarm {
    /// Many small jobs share dispatches, some of them kill their workers, and other faults are as for any
    /// seed.
    pub(super) fn poisoned(rng: &mut Rng) -> Self {
        let any = Self::any(rng);
        let config = PoolConfig {
            queue_jobs_max: 1_000,
            queue_bytes_max: 1 << 40,
            client_jobs_max: 1_000,
            principal_jobs_max: 10_000,
            principal_bytes_max: 1 << 40,
            poison_deaths: rng.pick(&[1, 1, 2, 3]),
            restart_limit: 100,
            join_cost_max: 1_000,
            feed_cost_max: rng.pick(&[0, 20, 1_000]),
            cancel_grace: rng.millis(0, 200),
            ..any.config
        };
        let rates = Rates {
            poisonous: rng.between(20, 300),
            in_flight: rng.between(200, 1_000),
            not_idempotent: 0,
            // So that sometimes no job of a dispatch is left when its worker ends.
            short_deadlines: rng.pick(&[0, 0, 300, 900]),
            drains: 0,
            stops: 0,
            ..any.rates
        };
        Self {
            devices: rng.pick(&[1, 2, 2, 3]),
            steps: 120,
            pause_max: rng.pick(&[0, 1, 5]),
            service_max: rng.pick(&[10, 50, 200]),
            costs: [1, 1, 10],
            programs: 1,
            inline: rng.pick(&[500, 1_000, 1_000]),
            beacons: 1_000,
            exit_lag: rng.pick(&[5, 50, 200]),
            config,
            rates,
            ..any
        }
        .proven_late(rng)
    }

    /// In some, a death is explained long after the jobs moved elsewhere.
    fn proven_late(mut self, rng: &mut Rng) -> Self {
        if rng.chance(500) {
            (self.devices, self.model_jobs) = (2, 0);
            self.config.poison_deaths = 1;
            self.config.attempts_max = 5;
            self.config.kill_timeout = Duration::from_secs(2);
            self.exit_lag = 1_000;
            (self.service_max, self.pause_max) = (100, 20);
            self.inline = 1_000;
            self.rates.in_flight = 1_000;
            (self.rates.short_deadlines, self.rates.crashes) = (0, 0);
        } else if rng.chance(800) {
            // A dying worker answers all of one dispatch and dies with the next outstanding.
            (self.config.feed_cost_max, self.config.join_cost_max) = (1_000, 3);
            self.config.feed_timeout = Duration::from_secs(10);
            self.rates.answers_when_killed = 900;
            (self.inline, self.exit_lag) = (500, 400);
        }
        self
    }

    /// Most processes end before they have done any work.
    pub(super) fn sick(mut self, rng: &mut Rng) -> Self {
        self.config.start_failures_max = count(rng, 1, 2);
        self.config.restart_limit = count(rng, 1, 2);
        self.config.probe_min = Duration::from_millis(rng.pick(&[1, 5, 20]));
        self.config.probe_max = 30 * self.config.probe_min;
        self.rates.start_crashes = rng.between(200, 700);
        self.rates.spawn_is_final = rate(rng, 300);
        self.rates.crashes = rng.between(200, 700);
        self.rates.releases = rng.between(20, 200);
        // So long that a fault that was reported once can be reported again.
        self.pause_max = 400;
        self.rates.device_faults = rng.between(50, 250);
        if rng.chance(200) {
            // Faults are reported of devices on which nothing runs, and which are in service.
            self.rates.spawn_fails = 900;
            self.rates.spawn_is_final = 0;
            self.config.start_failures_max = 100;
            self.config.restart_limit = 100;
        } else if rng.chance(500) {
            self.pause_max = 60;
            self.rates.device_faults = rate(rng, 60);
            // A job has shards on processes that end slowly, on devices out of service.
            self.devices = 2;
            self.config.standbys = 1;
            self.config.restart_limit = 1;
            self.config.shard_cost_min = 1;
            self.config.kill_timeout = Duration::from_millis(1_500);
            self.config.reclaim_timeout = Duration::ZERO;
            self.inline = 0;
            self.beacons = 1_000;
            self.exit_lag = 1_500;
            self.service_max = 10;
            self.rates.start_crashes = rate(rng, 100);
            self.rates.spawn_fails = 0;
            self.rates.spawn_is_final = 0;
            self.rates.start_hangs = 0;
            self.rates.start_mutes = 0;
            self.rates.crashes = rng.between(400, 900);
            self.rates.short_deadlines = 0;
            self.items = [9, 9, 50];
            self.config.queue_jobs_max = 100;
            self.config.queue_bytes_max = 1 << 40;
            self.config.client_jobs_max = 100;
            self.config.principal_jobs_max = 1_000;
            self.config.principal_bytes_max = 1 << 40;
            self.rates.not_idempotent = 0;
            self.rates.indivisible = 0;
        }
        self
    }

    /// Idle workers are silent for so long that others get their jobs.
    pub(super) fn mute(mut self, rng: &mut Rng) -> Self {
        self.devices = count(rng, 2, 3);
        // Dispatches wait behind others only at workers for programs.
        if rng.chance(800) {
            self.model_jobs = 0;
        }
        self.config.heartbeat_suspect = Duration::from_millis(150);
        self.config.heartbeat_kill = Duration::from_millis(700);
        self.config.feed_cost_max = 1_000;
        // Often longer than an idle worker counts as heard: then a job must wait behind another.
        self.config.feed_timeout = rng.millis(10, 600);
        self.rates.endless = rng.between(50, 400);
        self.rates.chaos = rng.between(100, 500);
        self.rates.pauses = rng.between(5, 60);
        self
    }

    /// Changes of models fail on some workers and succeed on others; workers report their models late.
    pub(super) fn changing(mut self, rng: &mut Rng) -> Self {
        self.devices = count(rng, 1, 3);
        self.models = rng.between(1, 3);
        self.model_jobs = rng.pick(&[0, 300, 1_000]);
        self.plans.clear();
        let mut swarm = self.with_plans(rng);
        swarm.steps = 120;
        swarm.config.standbys = count(rng, 0, 2);
        swarm.config.command_timeout = rng.millis(100, 400);
        swarm.rates.model_changes = rng.between(200, 700);
        swarm.rates.load_fails = rng.between(100, 500);
        swarm.rates.late_reports = rng.between(0, 800);
        swarm.rates.unknown_models = 0;
        swarm.rates.wrong_commands = rate(rng, 50);
        swarm.rates.deadly_commands = rate(rng, 100);
        if rng.chance(500) {
            // A worker falls silent during a change, and cannot be killed.
            (swarm.model_jobs, swarm.service_max, swarm.load_max) = (1_000, 200, 600);
            swarm.config.command_timeout = Duration::from_secs(1);
            swarm.config.heartbeat_kill = Duration::from_millis(300);
            swarm.config.kill_timeout = rng.millis(20, 100);
            (swarm.config.poison_deaths, swarm.config.infer_window) = (1, 1);
            swarm.rates.chaos = rng.between(100, 500);
            swarm.rates.unkillable = rng.between(400, 900);
            swarm.rates.not_idempotent = rng.between(200, 600);
        } else if rng.chance(500) {
            // Several changes are made while a worker starts.
            (swarm.devices, swarm.models, swarm.load_max) = (3, 3, 1);
            swarm.config.restart_limit = 100;
            (swarm.rates.crashes, swarm.rates.late_reports) = (300, 900);
            (swarm.rates.load_fails, swarm.rates.model_changes) = (0, 700);
        }
        (swarm.rates.drains, swarm.rates.stops) = (0, 0);
        swarm
    }

    /// A request waits again when its worker's beacon is lost, and the exit, long after, is evidence
    /// against it.
    pub(super) fn accused(mut self, rng: &mut Rng) -> Self {
        (self.models, self.model_jobs) = (1, 900);
        self.plans = vec![plan("m0", 1)];
        (self.devices, self.steps, self.pause_max) = (rng.pick(&[1, 2]), 120, rng.pick(&[5, 20]));
        self.config.infer_window = rng.pick(&[2, 5]);
        (self.config.poison_deaths, self.config.attempts_max) = (3, 5);
        (self.config.restart_limit, self.config.standbys) = (100, rng.pick(&[0, 1]));
        self.config.join_cost_max = 1_000;
        self.clients = rng.between(2, 4);
        (self.config.queue_jobs_max, self.config.client_jobs_max) = (100, 100);
        self.config.principal_jobs_max = 1_000;
        self.config.principal_bytes_max = 1 << 40;
        self.config.queue_bytes_max = 1 << 40;
        self.config.kill_timeout = Duration::from_secs(2);
        (self.inline, self.beacons, self.exit_lag) = (1_000, 1_000, 400);
        self.service_max = rng.pick(&[20, 200]);
        self.rates.poisonous = rng.between(100, 300);
        (self.rates.load_fails, self.rates.model_changes, self.rates.unknown_models) = (0, 0, 0);
        (self.rates.not_idempotent, self.rates.short_deadlines) = (0, 0);
        (self.rates.drains, self.rates.stops) = (0, 0);
        self
    }

    /// An unkillable process takes its device out of service while a standby is busy there.
    pub(super) fn stuck(mut self, rng: &mut Rng) -> Self {
        self.config.standbys = 1;
        self.config.heartbeat_kill = Duration::from_millis(300);
        self.config.kill_timeout = rng.millis(20, 100);
        self.rates.chaos = rng.between(100, 500);
        self.rates.unkillable = rng.between(400, 900);
        self.rates.not_idempotent = rng.between(200, 600);
        self.service_max = 200;
        self
    }

    /// Models are loaded and unloaded, often the last or the first one, and processes end slowly.
    pub(super) fn restless(mut self, rng: &mut Rng) -> Self {
        self.models = rng.between(1, 2);
        self.model_jobs = rng.pick(&[700, 1_000]);
        self.stop_lag = 300;
        self.pause_max = rng.pick(&[5, 20, 60]);
        // Sometimes longer than a process may live without its channel.
        let kills_late = rng.chance(300);
        self.config.kill_timeout = rng.millis(100, if kills_late { 2_500 } else { 300 });
        self.rates.model_losses = rng.between(0, 100);
        self.rates.model_changes = rng.between(100, 500);
        self.rates.stops_ignored = rng.between(0, 800);
        self.rates.start_is_final = rng.between(1, 30);
        if rng.chance(300) {
            // A process that is told to end must be killed, and ends by itself.
            self.rates.stops_ignored = 900;
            self.rates.odd_ends = 900;
            self.rates.final_ends = 500;
        }
        if rng.chance(500) {
            // Cancelled jobs run on for a while.
            self.service_max = 200;
            self.config.infer_cancel_grace = Duration::from_millis(300);
            self.devices = 1;
            self.models = 1;
            self.load_max = 1;
        }
        if rng.chance(300) {
            // Models of one group have several versions, and change one beside another.
            (self.models, self.sharers) = (2, 2);
            self.rates.certain_versions = 500;
            self.rates.kept_versions = 1_000;
            self.rates.model_changes = 500;
        }
        self.rates.cancels = rng.between(0, 400);
        self.rates.unkillable = rng.pick(&[self.rates.unkillable, 300]);
        self.rates.drains = rng.between(5, 40);
        self.with_plans(rng)
    }

    /// Retried requests find that no worker has their model.
    pub(super) fn forgetful(mut self, rng: &mut Rng) -> Self {
        self.models = rng.between(2, 3);
        self.model_jobs = rng.pick(&[700, 1_000]);
        self.devices = count(rng, 1, 2);
        self.service_max = 200;
        self.config.standbys = 0;
        self.config.attempts_max = count(rng, 2, 5);
        self.rates.model_losses = rng.between(100, 400);
        self.rates.model_changes = rng.between(0, 100);
        self.rates.device_errors = rng.between(200, 600);
        self.rates.device_faults = rate(rng, 60);
        if rng.chance(600) {
            // The workers that have the first request's model are full, and others have room for the next.
            (self.devices, self.clients, self.pause_max) = (3, 4, 5);
            (self.load_max, self.config.command_timeout) = (400, Duration::from_secs(1));
            (self.config.infer_window, self.model_jobs) = (2, 1_000);
            (self.config.queue_jobs_max, self.config.client_jobs_max) = (100, 100);
            self.config.principal_jobs_max = 1_000;
            (self.rates.model_losses, self.rates.device_errors) = (300, 0);
        }
        self.with_plans(rng)
    }

    /// There are no faults and every client has a long queue: only fairness matters.
    pub(super) fn crowded(rng: &mut Rng) -> Self {
        Self {
            config: PoolConfig {
                client_jobs_max: 1_000,
                principal_jobs_max: 10_000,
                feed_cost_max: rng.pick(&[0, 10, 100]),
                join_cost_max: rng.pick(&[20, 40, 80]),
                ..PoolConfig::DEFAULT
            },
            devices: 1,
            clients: rng.between(3, 5),
            principals: rng.pick(&[1, 2, 3]),
            for_others: rng.pick(&[0, 0, 200]),
            steps: rng.between(200, 400),
            pause_max: rng.pick(&[0, 1]),
            service_max: 10,
            costs: [10, 10, 10],
            items: [1, 1, 1],
            programs: rng.between(2, 3),
            inline: 500,
            beacons: 1_000,
            exit_lag: 0,
            stop_lag: 30,
            memory_lag: 0,
            hash_lag: 0,
            heartbeat: Duration::from_millis(250),
            models: 0,
            sharers: 0,
            first_kind: 0,
            plans: Vec::new(),
            model_jobs: 0,
            load_max: 1,
            has_helpers: false,
            helper_limits: Helper::ALL.map(HelperLimits::of),
            helper_beat: Duration::from_secs(1),
            rates: Rates::default(),
        }
    }
}
