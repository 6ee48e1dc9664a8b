//! The table `[nats]`: the cluster from which a pool takes jobs, and the limits of its streams.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridpool_bridge::BridgeSettings;
use gridpool_nats::{NatsError, NatsOptions};
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::DeValue;

/// Most signs of a host's name.
const HOST_SIGNS_MAX: usize = 64;
/// Where the system says what this host is called.
pub(crate) const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// What is set of a cluster, by flags or a file; `None` is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsKeys {
    /// The servers: `nats://a,b,c`.
    pub servers: Option<String>,
    /// What the names of streams begin with.
    pub prefix: Option<String>,
    /// The credentials file.
    pub credentials: Option<PathBuf>,
    /// The authorities of the servers' certificates.
    pub ca: Option<PathBuf>,
    /// This program's certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// This host's name.
    pub host: Option<String>,
    /// The numbers, by their names.
    pub numbers: Vec<(&'static str, u64)>,
}

/// A number of the table: its name, its bounds, what it is, where it is found and where it goes.
struct Number {
    name: &'static str,
    least: u64,
    most: u64,
    #[cfg_attr(not(test), expect(dead_code, reason = "a test writes the book's table"))]
    says: &'static str,
    get: fn(&BridgeSettings) -> Option<u64>,
    set: fn(&mut BridgeSettings, u64),
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

const NUMBERS: [Number; 10] = [
    Number {
        name: "ack_wait_s",
        least: 1,
        most: 3_600,
        says: "How soon a vanished host is noticed, seconds",
        get: |of| Some(of.limits.ack_wait.as_secs()),
        set: |to, n| to.limits.ack_wait = Duration::from_secs(n),
    },
    Number {
        name: "cache_bytes_max",
        least: 0,
        most: 1 << 40,
        says: "Bytes of large batches that this host keeps",
        get: |of| Some(of.cache_bytes_max),
        set: |to, n| to.cache_bytes_max = n,
    },
    Number {
        name: "data_bytes_max",
        least: 1 << 20,
        most: 1 << 50,
        says: "Bytes of large batches and results in their stream",
        get: |of| Some(of.limits.data_bytes_max),
        set: |to, n| to.limits.data_bytes_max = n,
    },
    Number {
        name: "deliveries_max",
        least: 1,
        most: 1_000,
        says: "Deliveries from which on a job is watched",
        get: |of| Some(of.deliveries_max.into()),
        set: |to, n| to.deliveries_max = small(n),
    },
    Number {
        name: "jobs_bytes_max",
        least: 1 << 20,
        most: 1 << 50,
        says: "Bytes of jobs that wait or run",
        get: |of| Some(of.limits.jobs_bytes_max),
        set: |to, n| to.limits.jobs_bytes_max = n,
    },
    Number {
        name: "jobs_max",
        least: 1,
        most: 1 << 40,
        says: "Jobs that wait or run",
        get: |of| Some(of.limits.jobs_max),
        set: |to, n| to.limits.jobs_max = n,
    },
    Number {
        name: "replicas",
        least: 1,
        most: 5,
        says: "Copies of everything; 3 with three servers",
        get: |of| u64::try_from(of.limits.replicas).ok(),
        set: |to, n| to.limits.replicas = usize::try_from(n).unwrap_or(1),
    },
    Number {
        name: "results_age_s",
        least: 3_600,
        most: 30 * 24 * 3_600,
        says: "How long a result that nobody reads is kept, seconds",
        get: |of| Some(of.limits.results_age.as_secs()),
        set: |to, n| to.limits.results_age = Duration::from_secs(n),
    },
    Number {
        name: "results_bytes_max",
        least: 1 << 20,
        most: 1 << 50,
        says: "Bytes of results that nobody has read",
        get: |of| Some(of.limits.results_bytes_max),
        set: |to, n| to.limits.results_bytes_max = n,
    },
    Number {
        name: "under_way_max",
        least: 1,
        most: 4_096,
        says: "Jobs that this host has at a time",
        get: |of| of.under_way_max.map(u64::from),
        set: |to, n| to.under_way_max = Some(small(n)),
    },
];

/// The texts of the table, and what they are.
const TEXTS: [(&str, &str, &str); 7] = [
    ("servers", "none", "The servers: nats://a,b,c, or a list of texts. Needed"),
    ("prefix", NatsOptions::PREFIX_DEFAULT, "What the names of streams and subjects begin with"),
    (
        "host",
        "the machine's name",
        "This host's name, which no other pool of the cluster may have: up to 64 letters, digits, _ and -",
    ),
    ("credentials", "none", "The credentials file, as `nsc` makes it"),
    ("ca", "the system's", "The PEM file of the authorities of the servers' certificates"),
    ("cert", "none", "The PEM file of this host's certificate"),
    ("key", "none", "The PEM file of its key"),
];

/// What is wrong in the table, and where.
pub(super) type Wrong = (Range<usize>, String);

impl NatsKeys {
    /// Reads `nats = "nats://a,b"`, or the table. Paths are relative to `folder`. If the file must be whole, the files
    /// that it names must be there, and a certificate has its key.
    pub(super) fn read(
        value: &Spanned<DeValue<'_>>,
        folder: &Path,
        is_whole: bool,
    ) -> Result<Self, Vec<Wrong>> {
        let mut keys = Self::default();
        if let Some(text) = value.get_ref().as_str() {
            keys.servers = Some(text.to_owned());
            return keys.check().map(|()| keys).map_err(|reason| vec![(value.span(), reason)]);
        }
        let Some(table) = value.get_ref().as_table() else {
            let reason = "`nats` is a table, [nats], or a text in quotes".to_owned();
            return Err(vec![(value.span(), reason)]);
        };
        let mut wrong = Vec::new();
        for (key, value) in table {
            let taken = keys.take_in(key.get_ref(), value.get_ref(), folder);
            wrong.extend(
                taken
                    .and_then(|()| keys.check_one(key.get_ref(), is_whole))
                    .err()
                    .map(|reason| (key.span(), reason)),
            );
        }
        if !table.contains_key("servers") {
            let reason = "`[nats]` needs `servers`: servers = \"nats://a,b,c\"".to_owned();
            wrong.push((value.span(), reason));
        }
        let halves = ["cert", "key"].map(|name| table.get_key_value(name));
        if let ([Some((half, _)), None] | [None, Some((half, _))], true) = (halves, is_whole) {
            wrong.push((half.span(), NatsError::Half.to_string()));
        }
        if wrong.is_empty() { Ok(keys) } else { Err(wrong) }
    }

    /// Checks what was just read under this name.
    fn check_one(&self, name: &str, is_whole: bool) -> Result<(), String> {
        let file = match name {
            "servers" => return self.check_servers(),
            "prefix" => return self.check_prefix(),
            "host" => return self.check_host(),
            "credentials" => &self.credentials,
            "ca" => &self.ca,
            "cert" => &self.cert,
            "key" => &self.key,
            _ => return Ok(()),
        };
        match file.as_deref().filter(|file| is_whole && !file.is_file()) {
            Some(file) => Err(format!("there is no file {}, `{name}` of [nats]", file.display())),
            None => Ok(()),
        }
    }

    fn take_in(&mut self, key: &str, value: &DeValue<'_>, folder: &Path) -> Result<(), String> {
        let text = || {
            let wrong = || format!("`{key}` of [nats] needs a text in quotes");
            value.as_str().ok_or_else(wrong)
        };
        match key {
            "servers" => {
                let list = value.as_array().map(|list| {
                    list.iter().map(|one| one.get_ref().as_str()).collect::<Option<Vec<_>>>()
                });
                self.servers = Some(match list {
                    None => text()?.to_owned(),
                    Some(list) => {
                        list.ok_or("`servers` of [nats] needs texts in quotes")?.join(",")
                    }
                });
            }
            "prefix" => self.prefix = Some(text()?.to_owned()),
            "credentials" => self.credentials = Some(folder.join(text()?)),
            "ca" => self.ca = Some(folder.join(text()?)),
            "cert" => self.cert = Some(folder.join(text()?)),
            "key" => self.key = Some(folder.join(text()?)),
            "host" => self.host = Some(text()?.to_owned()),
            name => {
                let number = NUMBERS.iter().find(|number| number.name == name);
                let Some(Number { name, least, most, .. }) = number else {
                    let numbers = NUMBERS.iter().map(|number| number.name);
                    let texts = TEXTS.iter().map(|(name, ..)| *name);
                    let names = texts.chain(numbers).collect::<Vec<_>>().join(", ");
                    return Err(format!(
                        "there is no setting `{key}` of [nats]; those are {names}"
                    ));
                };
                let given = super::file::whole_number(value);
                let given = given.filter(|given| (*least..=*most).contains(given));
                let wrong = || format!("`{name}` of [nats] needs a number from {least} to {most}");
                self.numbers.push((name, given.ok_or_else(wrong)?));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        self.check_servers()?;
        self.check_prefix()?;
        self.check_host()
    }

    fn check_servers(&self) -> Result<(), String> {
        let parse = |servers| NatsOptions::parse(servers).map_err(|error| error.to_string());
        self.servers.as_deref().map_or(Ok(()), |servers| parse(servers).map(drop))
    }

    fn check_prefix(&self) -> Result<(), String> {
        self.prefix.as_deref().map_or(Ok(()), NatsOptions::check_prefix)
    }

    fn check_host(&self) -> Result<(), String> {
        let Some(name) = self.host.as_deref() else { return Ok(()) };
        match as_host(name) {
            right if right == name && !name.is_empty() => Ok(()),
            right if right.contains(|c: char| c.is_ascii_alphanumeric()) => Err(format!(
                "`{name}` is no name of a host: it has up to {HOST_SIGNS_MAX} letters, digits, _ and -, such as \
                 `{right}`"
            )),
            _ => Err(format!(
                "`{name}` is no name of a host: use up to {HOST_SIGNS_MAX} letters, digits, _ and -, such as `alpha`, \
                 or leave it out for the machine's name"
            )),
        }
    }

    /// These, and `file` where they say nothing.
    pub(super) fn over(self, file: Self) -> Self {
        Self {
            servers: self.servers.or(file.servers),
            prefix: self.prefix.or(file.prefix),
            credentials: self.credentials.or(file.credentials),
            ca: self.ca.or(file.ca),
            cert: self.cert.or(file.cert),
            key: self.key.or(file.key),
            host: self.host.or(file.host),
            numbers: file.numbers.into_iter().chain(self.numbers).collect(),
        }
    }

    /// How to reach the servers; `None` if none are named.
    ///
    /// # Errors
    /// A sentence.
    pub fn options(&self) -> Result<Option<NatsOptions>, String> {
        self.check()?;
        let Some(servers) = &self.servers else { return Ok(None) };
        if self.cert.is_some() != self.key.is_some() {
            return Err(NatsError::Half.to_string());
        }
        let options = NatsOptions::parse(servers).map_err(|error| error.to_string())?;
        Ok(Some(NatsOptions {
            prefix: self.prefix.clone().unwrap_or(options.prefix),
            credentials: self.credentials.clone(),
            ca: self.ca.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            ..options
        }))
    }

    /// The settings of the bridge; `None` if no servers are named.
    pub(super) fn resolve(self) -> Result<Option<BridgeSettings>, String> {
        let Some(options) = self.options()? else {
            return match self.host {
                Some(host) => Err(format!(
                    "`{host}` is this host's name in a cluster (--nats-host): name its servers, too, such as \
                     nats://a,b,c, or leave the name out"
                )),
                None => Ok(None),
            };
        };
        let host = match self.host {
            Some(host) => host,
            None => {
                let name = fs::read_to_string(HOST_NAME);
                as_host(name.map_err(|e| format!("{HOST_NAME}: {e}; set --nats-host"))?.trim())
            }
        };
        let mut settings = BridgeSettings::new(options, host);
        for (name, value) in self.numbers {
            let number = NUMBERS.iter().find(|number| number.name == name);
            (number.expect("it was found before").set)(&mut settings, value);
        }
        Ok(Some(settings))
    }
}

/// A name as a host of a cluster may have it: what it may not have is a `-`.
fn as_host(name: &str) -> String {
    let is_right = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.chars().take(HOST_SIGNS_MAX).map(|c| if is_right(c) { c } else { '-' }).collect()
}

/// The table as it counts, without passwords: each key with its value.
pub(crate) fn shown(settings: &BridgeSettings) -> impl Iterator<Item = (&'static str, Value)> {
    let path = |path: &Option<PathBuf>| json!(path.as_ref().map(|at| at.display().to_string()));
    let nats = &settings.nats;
    let texts = TEXTS.map(|(name, ..)| {
        let value = match name {
            "servers" => json!(nats.shown()),
            "prefix" => json!(nats.prefix),
            "host" => json!(settings.host),
            "credentials" => path(&nats.credentials),
            "ca" => path(&nats.ca),
            "cert" => path(&nats.cert),
            _ => path(&nats.key),
        };
        (name, value)
    });
    texts.into_iter().chain(NUMBERS.iter().map(|own| (own.name, json!((own.get)(settings)))))
}

/// The table of the book: key, values, default, meaning.
#[cfg(test)]
pub(crate) fn rows() -> Vec<[String; 4]> {
    let usual = NatsOptions::parse("nats://a").expect("an address");
    let usual = BridgeSettings::new(usual, String::new());
    let texts = TEXTS.map(|(name, default, says)| {
        [format!("`{name}`"), "a text in quotes".to_owned(), default.to_owned(), says.to_owned()]
    });
    let numbers = NUMBERS.map(|Number { name, least, most, says, get, .. }| {
        let default = get(&usual)
            .map_or_else(|| "8 for each device, 64 at most".to_owned(), |n| n.to_string());
        [format!("`{name}`"), format!("{least} to {most}"), default, says.to_owned()]
    });
    texts.into_iter().chain(numbers).collect()
}

#[cfg(test)]
mod tests;
