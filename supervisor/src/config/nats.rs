//! The table `[nats]`: the cluster from which a pool takes jobs, and the limits of its streams.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridpool_bridge::BridgeSettings;
use gridpool_nats::{NatsError, NatsOptions};
use toml::de::DeValue;

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

/// A number of the table: its name, its bounds, and where it goes.
struct Number {
    name: &'static str,
    least: u64,
    most: u64,
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
        set: |to, n| to.limits.ack_wait = Duration::from_secs(n),
    },
    Number {
        name: "cache_bytes_max",
        least: 0,
        most: 1 << 40,
        set: |to, n| to.cache_bytes_max = n,
    },
    Number {
        name: "data_bytes_max",
        least: 1 << 20,
        most: 1 << 50,
        set: |to, n| to.limits.data_bytes_max = n,
    },
    Number {
        name: "deliveries_max",
        least: 1,
        most: 1_000,
        set: |to, n| to.deliveries_max = small(n),
    },
    Number {
        name: "jobs_bytes_max",
        least: 1 << 20,
        most: 1 << 50,
        set: |to, n| to.limits.jobs_bytes_max = n,
    },
    Number { name: "jobs_max", least: 1, most: 1 << 40, set: |to, n| to.limits.jobs_max = n },
    Number {
        name: "replicas",
        least: 1,
        most: 5,
        set: |to, n| to.limits.replicas = usize::try_from(n).unwrap_or(1),
    },
    Number {
        name: "results_age_s",
        least: 3_600,
        most: 30 * 24 * 3_600,
        set: |to, n| to.limits.results_age = Duration::from_secs(n),
    },
    Number {
        name: "results_bytes_max",
        least: 1 << 20,
        most: 1 << 50,
        set: |to, n| to.limits.results_bytes_max = n,
    },
    Number {
        name: "under_way_max",
        least: 1,
        most: 4_096,
        set: |to, n| to.under_way_max = Some(small(n)),
    },
];

impl NatsKeys {
    /// Reads `nats = "nats://a,b"`, or the table. Paths are relative to `folder`.
    pub(super) fn read(value: &DeValue<'_>, folder: &Path) -> Result<Self, String> {
        let mut keys = Self::default();
        if let Some(text) = value.as_str() {
            keys.servers = Some(text.to_owned());
            return keys.check().map(|()| keys);
        }
        let table = value.as_table().ok_or("`nats` is a table, [nats], or a text in quotes")?;
        for (key, value) in table {
            keys.take_in(key.get_ref(), value.get_ref(), folder)?;
        }
        match keys.servers {
            None => Err("`[nats]` needs `servers`: servers = \"nats://a,b,c\"".to_owned()),
            Some(_) => keys.check().map(|()| keys),
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
                    let others = ["servers", "prefix", "credentials", "ca", "cert", "key", "host"];
                    let names: Vec<_> = others.into_iter().chain(numbers).collect();
                    let names = names.join(", ");
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
        if let Some(servers) = &self.servers {
            NatsOptions::parse(servers).map_err(|error| error.to_string())?;
        }
        self.prefix.as_deref().map_or(Ok(()), NatsOptions::check_prefix)
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
        let Some(options) = self.options()? else { return Ok(None) };
        let host = match self.host {
            Some(host) => host,
            None => {
                let name = fs::read_to_string(HOST_NAME);
                name.map_err(|e| format!("{HOST_NAME}: {e}; set --nats-host"))?.trim().to_owned()
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

#[cfg(test)]
mod tests {
    use toml::de::DeTable;

    use super::*;

    fn read(text: &str) -> Result<NatsKeys, String> {
        let table = DeTable::parse(text).unwrap();
        NatsKeys::read(table.get_ref()["nats"].get_ref(), Path::new("/etc/gridpool"))
    }

    #[test]
    fn the_table_and_the_short_form_are_read() {
        let short = read("nats = \"nats://a,b,c\"").unwrap().resolve().unwrap().unwrap();
        assert_eq!(short.nats.servers.len(), 3);
        assert_eq!(short.limits.replicas, 3, "three servers keep three copies");
        assert!(!short.host.is_empty());
        let long = read(
            "[nats]\nservers = [\"nats://a\"]\nprefix = \"team\"\ncredentials = \"pool.creds\"\nhost = \"h1\"\n\
             jobs_max = 10\nack_wait_s = 5\nunder_way_max = 3\ncert = \"pool.pem\"\nkey = \"/k/pool-key.pem\"",
        );
        let long = long.unwrap().resolve().unwrap().unwrap();
        assert_eq!(long.nats.credentials.unwrap(), Path::new("/etc/gridpool/pool.creds"));
        assert_eq!(long.nats.cert.unwrap(), Path::new("/etc/gridpool/pool.pem"));
        assert_eq!(long.nats.key.unwrap(), Path::new("/k/pool-key.pem"));
        assert_eq!((long.nats.prefix.as_str(), long.host.as_str()), ("team", "h1"));
        assert_eq!((long.limits.jobs_max, long.limits.replicas), (10, 1));
        assert_eq!((long.limits.ack_wait.as_secs(), long.under_way_max), (5, Some(3)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, said) in [
            ("nats = 1", "a table"),
            ("nats = \"a\"", "nats://HOST:PORT"),
            ("[nats]\nprefix = \"x\"", "needs `servers`"),
            ("[nats]\nservers = \"nats://a\"\nprefix = \"a.b\"", "no prefix"),
            ("[nats]\nservers = \"nats://a\"\njobs_max = 0", "from 1 to"),
            ("[nats]\nservers = \"nats://a\"\nwhat = 1", "no setting `what`"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
    }

    #[test]
    fn a_certificate_has_a_key() {
        let file = read("[nats]\nservers = \"nats://a\"\ncert = \"c.pem\"").unwrap();
        assert!(file.options().unwrap_err().contains("--nats-key"));
        let flags = NatsKeys { key: Some("k.pem".into()), ..NatsKeys::default() };
        assert!(flags.over(file).options().is_ok());
    }

    #[test]
    fn flags_go_over_the_file() {
        let file = read("[nats]\nservers = \"nats://a\"\nprefix = \"x\"\njobs_max = 10").unwrap();
        let flags = NatsKeys { servers: Some("nats://b".to_owned()), ..NatsKeys::default() };
        let both = flags.over(file).resolve().unwrap().unwrap();
        assert_eq!(both.nats.servers, ["nats://b"]);
        assert_eq!((both.nats.prefix.as_str(), both.limits.jobs_max), ("x", 10));
        assert_eq!(NatsKeys::default().resolve().unwrap(), None);
    }
}
