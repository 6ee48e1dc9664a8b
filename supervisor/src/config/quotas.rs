//! Quotas of principals as an operator writes them: `alice:jobs=100,bytes=1G,device-seconds=60/min` on the command
//! line, `alice = "jobs=100,bytes=1G,device-seconds=60/min"` under `[quota]`.

use std::collections::BTreeMap;
use std::time::Duration;

use gridpool_core::quota::{Quota, Quotas, Rate};
use gridpool_protocol::principal::Principal;
use nix::unistd::User;

/// Most quotas of one config, flags included.
const QUOTAS_MAX: usize = 1_024;
/// Longest span of a rate.
const SPAN_MAX_S: f64 = 86_400.0;
/// Most seconds of a rate.
const SECONDS_MAX: f64 = 1e9;

/// Whose a quota is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    /// Everybody's without one.
    Default,
    Own(Principal),
}

/// One quota as it was written. What it does not name is as in the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenQuota {
    /// `default`, a user, `token:NAME` or `address:ADDRESS`.
    pub who: String,
    /// Its limits.
    pub limits: String,
    whose: Whose,
    jobs_max: Option<Option<u64>>,
    bytes_max: Option<Option<u64>>,
    device_time: Option<Option<Rate>>,
}

/// The number of a user, by name or number.
pub(super) fn parse_user(name: &str) -> Result<u32, String> {
    if let Ok(uid) = name.parse() {
        return Ok(uid);
    }
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(format!(
            "there is no user `{name}` on this machine: write a name that `getent passwd` lists, or a number"
        )),
        Err(errno) => Err(format!("the user `{name}` cannot be looked up: {errno}")),
    }
}

impl WrittenQuota {
    /// Reads `WHO:LIMITS`.
    pub(super) fn parse_flag(text: &str) -> Result<Self, String> {
        let (who, limits) = text.rsplit_once(':').ok_or_else(|| {
            format!("`{text}` is not a quota: write WHO:LIMITS, such as default:jobs=100,bytes=1G")
        })?;
        Self::parse(who, limits)
    }

    /// Reads the limits of `who`.
    pub(super) fn parse(who: &str, limits: &str) -> Result<Self, String> {
        let mut quota = Self {
            who: who.to_owned(),
            limits: limits.to_owned(),
            whose: Whose::parse(who)?,
            jobs_max: None,
            bytes_max: None,
            device_time: None,
        };
        for part in limits.split(',').map(str::trim) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name {
                "jobs" => put(&mut quota.jobs_max, name, value, parse_count)?,
                "bytes" => put(&mut quota.bytes_max, name, value, parse_bytes)?,
                "device-seconds" => put(&mut quota.device_time, name, value, parse_rate)?,
                _ => {
                    return Err(format!(
                        "`{part}` is not a limit of a quota: write jobs=100, bytes=1G or \
                         device-seconds=60/min, with commas between them"
                    ));
                }
            }
        }
        Ok(quota)
    }
}

impl Whose {
    fn parse(who: &str) -> Result<Self, String> {
        let token = who.strip_prefix("token:").map(|name| Principal::Token(name.to_owned()));
        let address = who.strip_prefix("address:").map(|address| {
            let parsed = address.parse().map(Principal::of_address);
            parsed.map_err(|_| format!("`{address}` is not an IP address"))
        });
        let principal = match (who, token, address) {
            ("default", ..) => return Ok(Self::Default),
            (_, Some(token), _) => token,
            (_, None, Some(address)) => address?,
            (user, None, None) => Principal::Uid(parse_user(user)?),
        };
        principal.check()?;
        Ok(Self::Own(principal))
    }
}

/// Sets a limit that is named for the first time; `none` lifts that of the default.
fn put<T>(
    place: &mut Option<Option<T>>,
    name: &str,
    value: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<(), String> {
    if place.is_some() {
        return Err(format!("`{name}` is there twice: keep one"));
    }
    let example = match name {
        "jobs" => "a whole number, such as 100",
        "bytes" => "a whole number, perhaps with K, M, G or T, such as 1G",
        _ => "seconds in a span, such as 60/min, 5/10s or 3600/h",
    };
    *place = Some(match value {
        "none" => None,
        value => {
            let wrong = || format!("`{name}={value}`: write {example}, or none");
            Some(parse(value).ok_or_else(wrong)?)
        }
    });
    Ok(())
}

fn parse_count(text: &str) -> Option<u64> {
    text.parse().ok()
}

fn parse_bytes(text: &str) -> Option<u64> {
    const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(*unit));
    let (number, shift) =
        unit.map_or((text, 0), |(unit, shift)| (text.strip_suffix(*unit).unwrap_or(text), *shift));
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn parse_rate(text: &str) -> Option<Rate> {
    let (seconds, span) = text.split_once('/')?;
    let (count, unit) = span.split_at(span.find(|c: char| c.is_ascii_alphabetic())?);
    let count = if count.is_empty() { 1.0 } else { count.parse().ok()? };
    let unit = match unit {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    let time = span_of(seconds.parse().ok()?, SECONDS_MAX)?;
    Some(Rate { time, per: span_of(count * unit, SPAN_MAX_S)? })
}

/// So many seconds, at least a millisecond.
fn span_of(seconds: f64, max: f64) -> Option<Duration> {
    (0.001..=max).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

/// Puts the flags over the file: each quota of `who` is the flag's if there is one.
pub(super) fn merge(
    file: Vec<WrittenQuota>,
    flags: Vec<WrittenQuota>,
) -> Result<Vec<WrittenQuota>, String> {
    let mut all = BTreeMap::new();
    for quotas in [file, flags] {
        let mut seen = BTreeMap::new();
        for quota in quotas {
            if let Some(other) = seen.insert(quota.whose.clone(), quota.who.clone()) {
                return Err(format!("`{other}` and `{}` are the same: keep one", quota.who));
            }
            all.insert(quota.whose.clone(), quota);
        }
    }
    match all.len() {
        ..=QUOTAS_MAX => Ok(all.into_values().collect()),
        many => Err(format!("{many} quotas: write at most {QUOTAS_MAX}")),
    }
}

/// What the pool is told.
#[must_use]
pub fn quotas_of(written: &[WrittenQuota]) -> Quotas {
    let quota = |written: &WrittenQuota, default: Quota| Quota {
        jobs_max: written.jobs_max.unwrap_or(default.jobs_max),
        bytes_max: written.bytes_max.unwrap_or(default.bytes_max),
        device_time: written.device_time.unwrap_or(default.device_time),
    };
    let default = written.iter().find(|written| written.whose == Whose::Default);
    let default = default.map_or_else(Quota::default, |own| quota(own, Quota::default()));
    let own = written.iter().filter_map(|written| match &written.whose {
        Whose::Default => None,
        Whose::Own(principal) => Some((principal.clone(), quota(written, default))),
    });
    // Without a limit: whether the pool is ready is asked whatever users may have.
    let gateway = (Principal::Gateway, Quota::default());
    Quotas { default, own: own.chain([gateway]).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        let written = WrittenQuota::parse_flag(text).unwrap();
        let quotas = quotas_of(std::slice::from_ref(&written));
        let own = quotas.own.iter().find(|(who, _)| **who != Principal::Gateway).unzip();
        format!("{:?} {}", own.0, own.1.copied().unwrap_or(quotas.default))
    }

    #[test]
    fn a_quota_is_read_from_one_text() {
        let all = parsed("default:jobs=100,bytes=1G,device-seconds=60/min");
        assert_eq!(all, "None jobs=100,bytes=1073741824,device-seconds=60/60s");
        assert_eq!(parsed("root:jobs=1"), "Some(Uid(0)) jobs=1");
        assert_eq!(parsed("65534:bytes=4K"), "Some(Uid(65534)) bytes=4096");
        assert_eq!(parsed("token:ci:jobs=2"), "Some(Token(\"ci\")) jobs=2");
        assert_eq!(parsed("address:::1:jobs=2"), "Some(Address(127.0.0.1)) jobs=2");
        for (text, seconds) in [("5/10s", "5/10s"), ("0.5/s", "0.5/1s"), ("3600/h", "3600/3600s")] {
            let said = parsed(&format!("0:device-seconds={text}"));
            assert_eq!(said, format!("Some(Uid(0)) device-seconds={seconds}"));
        }
    }

    #[test]
    fn a_wrong_quota_is_refused_with_what_to_write() {
        for (text, want) in [
            ("jobs=1", "is not a quota: write WHO:LIMITS"),
            ("nobody-of-that-name:jobs=1", "there is no user `nobody-of-that-name`"),
            ("token::jobs=1", "a token's name has letters, digits and . _ - @"),
            ("token:a\nb:jobs=1", "a token's name has letters, digits and . _ - @"),
            ("address:x:jobs=1", "`x` is not an IP address"),
            ("0:", "is not a limit of a quota: write jobs=100"),
            ("0:job=1", "`job=1` is not a limit of a quota"),
            ("0:jobs=many", "`jobs=many`: write a whole number, such as 100, or none"),
            ("0:jobs=1,jobs=2", "`jobs` is there twice"),
            ("0:bytes=1X", "such as 1G"),
            ("0:bytes=99999999T", "such as 1G"),
            ("0:device-seconds=60", "such as 60/min"),
            ("0:device-seconds=0/min", "such as 60/min"),
            ("0:device-seconds=1/week", "such as 60/min"),
            ("0:device-seconds=1/99h", "such as 60/min"),
            ("0:device-seconds=nan/s", "such as 60/min"),
        ] {
            let said = WrittenQuota::parse_flag(text).unwrap_err();
            assert!(said.contains(want), "{text}: {said}");
        }
    }

    #[test]
    fn an_own_quota_has_the_default_where_it_says_nothing_and_a_flag_goes_over_the_file() {
        let parse = |texts: &[&str]| {
            texts.iter().map(|text| WrittenQuota::parse_flag(text).unwrap()).collect::<Vec<_>>()
        };
        let file = parse(&["default:jobs=9,bytes=1K", "1:jobs=none", "2:jobs=3"]);
        let quotas = quotas_of(&merge(file.clone(), parse(&["2:bytes=2K"])).unwrap());
        let shown = [1, 2, 3].map(|uid| quotas.of(&Principal::Uid(uid)).to_string());
        assert_eq!(shown, ["bytes=1024", "jobs=9,bytes=2048", "jobs=9,bytes=1024"]);
        assert_eq!(quotas.of(&Principal::Gateway), Quota::default());
        let twice = merge(file, parse(&["root:jobs=1", "0:jobs=2"])).unwrap_err();
        assert_eq!(twice, "`root` and `0` are the same: keep one");
    }
}
