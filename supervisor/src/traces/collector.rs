//! Where spans are sent: the address of a collector.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The port of OTLP over HTTP.
const PORT: u16 = 4318;
/// Longest address, bytes.
const BYTES_MAX: usize = 1_024;

/// A collector that takes OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collector {
    /// Name or address, an IPv6 address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// What stands before `/v1/traces`, without a slash at its end.
    pub(super) base: String,
}

impl Collector {
    /// The host as a request names it.
    pub(super) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// The error says what to write.
impl FromStr for Collector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            Err(format!(
                "`{text}` {why}: write the address of a collector, such as http://127.0.0.1:4318"
            ))
        };
        if text.starts_with("https://") {
            return wrong(
                "asks for TLS, which traces do not speak; have a collector on this machine send them on with TLS",
            );
        }
        let Some(rest) = text.strip_prefix("http://") else {
            return wrong("does not begin with http://");
        };
        let is_plain = |c: char| c.is_ascii_graphic() && !"?#@\\\"<>".contains(c);
        if text.len() > BYTES_MAX || !rest.chars().all(is_plain) {
            return wrong("has a user, a query or characters that an address has not");
        }
        let (authority, base) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let in_brackets = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match in_brackets {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, port.strip_prefix(':').or(Some(""))),
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let is_host = match in_brackets {
            Some(_) => host.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && !host.contains([':', '[', ']']),
        };
        if !is_host {
            return wrong("names no host");
        }
        let Ok(port) = port.map_or(Ok(PORT), str::parse) else { return wrong("has a wrong port") };
        let base = base.trim_end_matches('/').to_owned();
        Ok(Self { host: host.to_owned(), port, base })
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_its_port_and_path() {
        for (text, shown) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
            ("http://collector", "http://collector:4318"),
            ("http://collector:80/otlp/", "http://collector:80/otlp"),
            ("http://[::1]:1", "http://[::1]:1"),
            ("http://[::1]", "http://[::1]:4318"),
        ] {
            assert_eq!(text.parse::<Collector>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        for wrong in [
            "",
            "collector:4318",
            "https://collector",
            "http://",
            "http://:1",
            "http://a:b",
            "http://a:99999",
            "http://u:p@a:1",
            "http://a b",
            "http://a\r\nX: y",
            "http://[x]:1",
            "http://[::1]1",
            "http://::1",
            "http://a/?q",
        ] {
            let why = wrong.parse::<Collector>().unwrap_err();
            assert!(why.contains("such as http://127.0.0.1:4318"), "{wrong}: {why}");
        }
        assert!("https://x".parse::<Collector>().unwrap_err().contains("TLS"));
    }
}
