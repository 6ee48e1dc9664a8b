//! `[limits]`: one key for every field of [`PoolConfig`], with its bounds.
//!
//! Owns the table of keys. Of TOML it knows only keys and numbers.
//!
//! A time is in seconds or milliseconds, by the key's suffix: `kill_timeout_s` and `kill_timeout_ms` set the
//! same field.

use std::ops::RangeInclusive;
use std::time::Duration;

use gridpool_ipc::spin::{SPIN_DEFAULT, SPIN_MAX};
use gridpool_protocol::limits::HEARTBEAT_EVERY;
use gridpool_protocol::near;

use gridpool_core::config::PoolConfig;

/// Most requests in flight on a worker. Its channel must have room for them, for the cancellation of each, and
/// for a model command.
pub(crate) const INFER_WINDOW_MAX: u64 = 40;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// The time of two beacons: a shorter limit would kill healthy workers.
const HEARTBEAT_MS_MIN: u64 = 500;
const _: () = assert!(HEARTBEAT_MS_MIN as u128 == 2 * HEARTBEAT_EVERY.as_millis());
/// A thread never spins longer.
const SPIN_US_MAX: u64 = 1_000;
const _: () = assert!(SPIN_US_MAX as u128 == SPIN_MAX.as_micros());
const _: () = assert!(PoolConfig::DEFAULT.spin_us as u128 == SPIN_DEFAULT.as_micros());

/// One field of the pool's config, and its bounds.
struct Limit {
    name: &'static str,
    field: Field,
    /// In the field's unit; a time in milliseconds.
    bounds: RangeInclusive<u64>,
}

enum Field {
    /// Bytes, or the cost of jobs.
    Bytes(fn(&mut PoolConfig) -> &mut u64),
    Count(fn(&mut PoolConfig) -> &mut u32),
    Size(fn(&mut PoolConfig) -> &mut usize),
    Time(fn(&mut PoolConfig) -> &mut Duration),
}

/// The limits: the kind of each, its field, which has its name, and its bounds.
macro_rules! limits {
    ($($kind:ident $field:ident $bounds:expr;)*) => {
        const LIMITS: &[Limit] = &[$(Limit {
            name: stringify!($field),
            field: Field::$kind(|config| &mut config.$field),
            bounds: $bounds,
        }),*];
    };
}

limits! {
    Size queue_jobs_max 1..=1_000_000;
    Bytes queue_bytes_max 1 << 20..=64 << 30;
    Size client_jobs_max 1..=1_000_000;
    Size principal_jobs_max 1..=1_000_000;
    Bytes principal_bytes_max 1 << 20..=64 << 30;
    Size user_connections_max 1..=256;
    Size kills_max 1..=1_000_000;
    Time kill_refill 1..=HOUR_MS;
    Count attempts_max 1..=1_000;
    Count poison_deaths 1..=1_000;
    Size denylist_max 1..=1_000_000;
    Size verdicts_kept 0..=10_000_000;
    Size verdict_bytes_max 1 << 16..=16 << 30;
    Count restart_limit 1..=1_000;
    Time restart_window 1_000..=DAY_MS;
    Count start_failures_max 1..=1_000;
    Time backoff_min 1..=HOUR_MS;
    Time backoff_max 1..=HOUR_MS;
    Count standbys 0..=4;
    Time probe_min 10..=DAY_MS;
    Time probe_max 10..=DAY_MS;
    Time incident_window 0..=HOUR_MS;
    Time incident_repeat_window 0..=DAY_MS;
    Time reclaim_timeout 0..=HOUR_MS;
    Time ready_timeout 100..=HOUR_MS;
    Time heartbeat_suspect HEARTBEAT_MS_MIN..=HOUR_MS;
    Time heartbeat_kill HEARTBEAT_MS_MIN..=HOUR_MS;
    Time heartbeat_start HEARTBEAT_MS_MIN..=HOUR_MS;
    Time cancel_grace 0..=HOUR_MS;
    Time kill_timeout 10..=HOUR_MS;
    Time drain_timeout 0..=DAY_MS;
    Time upgrade_timeout 1..=HOUR_MS;
    Bytes shard_cost_min 1..=1 << 40;
    Count shards_per_device 1..=64;
    Bytes feed_cost_max 0..=1 << 40;
    Time feed_timeout 1..=HOUR_MS;
    Count infer_window 1..=INFER_WINDOW_MAX;
    Time infer_cancel_grace 0..=HOUR_MS;
    Time infer_ready_timeout 100..=DAY_MS;
    Time command_timeout 1_000..=DAY_MS;
    Time load_timeout 1_000..=DAY_MS;
    Bytes model_bytes_max 0..=1 << 50;
    Bytes join_cost_max 0..=1 << 40;
    Time known_answer_every 10..=DAY_MS;
    Bytes worker_memory_growth_max 0..=1 << 50;
    Count worker_descriptors_growth_max 0..=1_000_000;
    Count spin_us 0..=SPIN_US_MAX;
}

/// A key of `[limits]`: the limit and the key's unit.
#[derive(Clone, Copy)]
pub(super) struct Key {
    limit: &'static Limit,
    /// The milliseconds in a unit of a time; otherwise 1.
    unit: u64,
}

impl Key {
    /// The limit that `key` sets.
    pub(super) fn find(key: &str) -> Result<Self, String> {
        for limit in LIMITS {
            match (&limit.field, key.strip_prefix(limit.name)) {
                (Field::Time(_), Some("_s")) => return Ok(Self { limit, unit: 1_000 }),
                (Field::Time(_), Some("_ms")) => return Ok(Self { limit, unit: 1 }),
                (Field::Time(_), Some("")) => {
                    return Err(format!("`{key}` is a time: write {key}_s or {key}_ms"));
                }
                (Field::Bytes(_) | Field::Count(_) | Field::Size(_), Some("")) => {
                    return Ok(Self { limit, unit: 1 });
                }
                (_, _) => {}
            }
        }
        Err(format!("there is no limit `{key}`{}", suggestion(key)))
    }

    /// Name of the field, without the suffix of a time.
    pub(super) fn name(self) -> &'static str {
        self.limit.name
    }

    /// Sets the field, if `number` is within its bounds.
    pub(super) fn set(self, config: &mut PoolConfig, number: Option<u64>) -> Result<(), String> {
        let value = number.and_then(|number| number.checked_mul(self.unit));
        let value = value.filter(|value| self.limit.bounds.contains(value)).ok_or_else(|| {
            let min = self.limit.bounds.start().div_ceil(self.unit);
            let max = self.limit.bounds.end() / self.unit;
            format!("needs a whole number from {min} to {max}")
        })?;
        let too_wide = |_| "is too large".to_owned();
        match self.limit.field {
            Field::Bytes(field) => *field(config) = value,
            Field::Count(field) => *field(config) = value.try_into().map_err(too_wide)?,
            Field::Size(field) => *field(config) = value.try_into().map_err(too_wide)?,
            Field::Time(field) => *field(config) = Duration::from_millis(value),
        }
        Ok(())
    }
}

/// Every limit of a config: its name, without the suffix of a time, and its value; a time is in milliseconds.
pub fn list(config: &PoolConfig) -> Vec<LimitValue> {
    let mut config = config.clone();
    let value = |limit: &Limit| {
        let (value, is_time) = match limit.field {
            Field::Bytes(field) => (*field(&mut config), false),
            Field::Count(field) => (u64::from(*field(&mut config)), false),
            Field::Size(field) => (u64::try_from(*field(&mut config)).unwrap_or(u64::MAX), false),
            Field::Time(field) => {
                (u64::try_from(field(&mut config).as_millis()).unwrap_or(u64::MAX), true)
            }
        };
        LimitValue { name: limit.name, value, is_time }
    };
    LIMITS.iter().map(value).collect()
}

/// A limit and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitValue {
    /// The name of its field in [`PoolConfig`].
    pub name: &'static str,
    /// Its value; a time is in milliseconds.
    pub value: u64,
    /// Whether it is a time.
    pub is_time: bool,
}

impl LimitValue {
    /// The setting whose number it is.
    pub fn key(&self) -> String {
        let unit = if self.is_time { "_ms" } else { "" };
        format!("limits.{}{unit}", self.name)
    }
}

/// Two limits that contradict each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Clash {
    /// Their names.
    pub(super) limits: [&'static str; 2],
    /// The rule between them.
    pub(super) reason: String,
}

/// The rules between limits that do not hold.
pub(super) fn check(config: &PoolConfig) -> Vec<Clash> {
    let mut clashes = Vec::new();
    if config.backoff_min > config.backoff_max {
        let reason = format!(
            "backoff_min ({:?}) must not be above backoff_max ({:?})",
            config.backoff_min, config.backoff_max
        );
        clashes.push(Clash { limits: ["backoff_min", "backoff_max"], reason });
    }
    if config.heartbeat_suspect >= config.heartbeat_kill {
        let reason = format!(
            "heartbeat_suspect ({:?}) must be below heartbeat_kill ({:?})",
            config.heartbeat_suspect, config.heartbeat_kill
        );
        clashes.push(Clash { limits: ["heartbeat_suspect", "heartbeat_kill"], reason });
    }
    clashes
}

/// `; close to it: …`, or all keys if none is close.
fn suggestion(key: &str) -> String {
    let keys: Vec<String> = LIMITS
        .iter()
        .map(|limit| match limit.field {
            Field::Time(_) => format!("{}_s", limit.name),
            Field::Bytes(_) | Field::Count(_) | Field::Size(_) => limit.name.to_owned(),
        })
        .collect();
    let stem = key.strip_suffix("_ms").or_else(|| key.strip_suffix("_s")).unwrap_or(key);
    let close = near::names(stem, LIMITS.iter().map(|limit| limit.name));
    let key_of = |name: &str| {
        let mut all = LIMITS.iter().zip(&keys);
        all.find(|(limit, _)| limit.name == name).map(|(_, key)| key.as_str())
    };
    let close: Vec<&str> = close.into_iter().filter_map(key_of).collect();
    if close.is_empty() {
        return format!("; the limits are {}", keys.join(", "));
    }
    format!("; close to it: {}", close.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(config: &mut PoolConfig, key: &str, number: u64) -> Result<(), String> {
        Key::find(key)?.set(config, Some(number))
    }

    #[test]
    fn every_field_of_the_pool_config_has_a_key() {
        let fields = format!("{:#?}", PoolConfig::DEFAULT);
        let fields: Vec<&str> =
            fields.lines().filter_map(|line| line.trim().split_once(": ")).map(|f| f.0).collect();
        let names: Vec<&str> = LIMITS.iter().map(|limit| limit.name).collect();
        assert_eq!(names, fields, "supervisor/src/config/limits.rs and pool/config.rs differ");
    }

    #[test]
    fn every_key_sets_its_own_field_and_no_other() {
        for limit in LIMITS {
            let mut config = PoolConfig::DEFAULT;
            let suffix = if matches!(limit.field, Field::Time(_)) { "_ms" } else { "" };
            let number = *limit.bounds.end();
            set(&mut config, &format!("{}{suffix}", limit.name), number).unwrap();
            let (before, after) = (format!("{:#?}", PoolConfig::DEFAULT), format!("{config:#?}"));
            let changed: Vec<&str> = before
                .lines()
                .zip(after.lines())
                .filter(|(before, after)| before != after)
                .filter_map(|(_, after)| after.trim().split(':').next())
                .collect();
            assert_eq!(changed, [limit.name]);
        }
    }

    #[test]
    fn the_defaults_are_within_the_bounds() {
        assert_eq!(check(&PoolConfig::DEFAULT), []);
        for (limit, LimitValue { value, .. }) in LIMITS.iter().zip(list(&PoolConfig::DEFAULT)) {
            assert!(limit.bounds.contains(&value), "{} = {value}", limit.name);
        }
    }

    #[test]
    fn seconds_and_milliseconds_set_the_same_field() {
        let mut config = PoolConfig::DEFAULT;
        set(&mut config, "drain_timeout_s", 7).unwrap();
        assert_eq!(config.drain_timeout, Duration::from_secs(7));
        set(&mut config, "drain_timeout_ms", 70).unwrap();
        assert_eq!(config.drain_timeout, Duration::from_millis(70));
    }

    #[test]
    fn errors_have_the_bounds_in_the_keys_unit_and_name_close_keys() {
        let mut config = PoolConfig::DEFAULT;
        let mut error = |key, number| set(&mut config, key, number).expect_err(key);
        assert_eq!(error("attempts_max", 0), "needs a whole number from 1 to 1000");
        assert_eq!(error("heartbeat_kill_s", 4_000), "needs a whole number from 1 to 3600");
        assert_eq!(error("heartbeat_kill_ms", 1), "needs a whole number from 500 to 3600000");
        assert_eq!(error("drain_timeout_s", u64::MAX), "needs a whole number from 0 to 86400");
        assert_eq!(
            error("attemps_max", 1),
            "there is no limit `attemps_max`; close to it: attempts_max"
        );
        assert_eq!(
            error("drain_timeout", 1),
            "`drain_timeout` is a time: write drain_timeout_s or drain_timeout_ms"
        );
        assert_eq!(
            error("backof_max_ms", 1),
            "there is no limit `backof_max_ms`; close to it: backoff_max_s"
        );
        assert!(error("x", 1).starts_with("there is no limit `x`; the limits are queue_jobs_max,"));
        config.backoff_min = Duration::from_secs(31);
        config.heartbeat_suspect = Duration::from_secs(5);
        let reasons: Vec<_> = check(&config).into_iter().map(|clash| clash.reason).collect();
        let want = [
            "backoff_min (31s) must not be above backoff_max (30s)",
            "heartbeat_suspect (5s) must be below heartbeat_kill (5s)",
        ];
        assert_eq!(reasons, want);
    }

    #[test]
    fn the_generated_limits_match_the_code() {
        const CONFIG: &str = include_str!("../../core/src/config.rs");
        let says = crate::generated::fields(CONFIG, "PoolConfig");
        let rows = LIMITS.iter().zip(list(&PoolConfig::DEFAULT)).map(|(limit, default)| {
            let says = says.iter().find(|field| field.name == limit.name).expect(limit.name);
            let (unit, write): (_, fn(u64) -> String) = match limit.field {
                Field::Time(_) => ("_s", time_words),
                Field::Bytes(_) => ("", binary_words),
                Field::Count(_) | Field::Size(_) => ("", |number| number.to_string()),
            };
            let bounds = [limit.bounds.start(), limit.bounds.end()].map(|&bound| write(bound));
            let key = format!("`{}{unit}`", limit.name);
            [key, write(default.value), bounds.join(" to "), says.says.clone()]
        });
        let text = crate::generated::table(["key", "default", "bounds", "meaning"], rows);
        crate::generated::check("reference/config.md", "limits", &text);
    }

    fn time_words(ms: u64) -> String {
        const UNITS: [(u64, &str); 4] = [(DAY_MS, "d"), (HOUR_MS, "h"), (1_000, "s"), (1, "ms")];
        let unit = UNITS.iter().find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit));
        unit.map_or_else(|| "0 s".to_owned(), |(unit, name)| format!("{} {name}", ms / unit))
    }

    /// A number, and its value with a binary prefix if it is a power of 1,024.
    fn binary_words(number: u64) -> String {
        const UNITS: [(u32, &str); 5] =
            [(50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
        let of = |(power, _): &&(u32, &str)| number > 0 && number.trailing_zeros() >= *power;
        let unit = UNITS.iter().find(of);
        unit.map_or_else(
            || number.to_string(),
            |(power, name)| format!("{} {name}", number >> power),
        )
    }
}
