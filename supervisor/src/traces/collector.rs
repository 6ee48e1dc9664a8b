//! Where spans are sent: the address of a collector, and the headers that it asks for.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::str::FromStr;

use serde::{Serialize, Serializer};
use ureq::http::Uri;

use super::headers::{HEADERS_BYTES_MAX, Headers};

/// Longest address, bytes.
const BYTES_MAX: usize = 1_024;
/// Longest line of headers: each sign may take six bytes of JSON.
const HEADER_LINE_MAX: u64 = 8 * HEADERS_BYTES_MAX as u64;

/// A collector that takes OTLP over HTTP, by its address without the path `/v1/traces`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    address: String,
    headers: Headers,
}

impl Collector {
    /// Where a batch is sent.
    pub(super) fn endpoint(&self) -> String {
        format!("{self}/v1/traces")
    }

    /// Whether it is asked over TLS.
    pub(super) fn has_tls(&self) -> bool {
        self.address.starts_with("https://")
    }

    /// The same, which gets these headers with each message.
    #[must_use]
    pub fn with_headers(self, headers: Headers) -> Self {
        Self { headers, ..self }
    }

    /// The headers as the supervisor writes them to its tracer: one line.
    pub(crate) fn header_line(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(&self.headers)?;
        line.push(b'\n');
        Ok(line)
    }

    /// The same, with the headers that the supervisor writes first.
    pub(super) fn read_headers(self, link: impl Read) -> io::Result<Self> {
        let mut line = Vec::new();
        // Nothing may follow it, so it may be read ahead.
        BufReader::new(link.take(HEADER_LINE_MAX)).read_until(b'\n', &mut line)?;
        Ok(self.with_headers(serde_json::from_slice(&line)?))
    }

    /// What it gets with each message.
    pub(super) fn headers(&self) -> &Headers {
        &self.headers
    }
}

/// The error says what to write.
impl FromStr for Collector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "`{text}` {why}: write the address of a collector, such as http://127.0.0.1:4318"
            )
        };
        if text.len() > BYTES_MAX {
            return Err(wrong("is too long"));
        }
        let address: Uri =
            text.parse().map_err(|error| wrong(&format!("is no address ({error})")))?;
        if !matches!(address.scheme_str(), Some("http" | "https")) {
            return Err(wrong("does not begin with http:// or https://"));
        }
        let authority = address.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') || address.query().is_some() {
            return Err(wrong("has a user or a query"));
        }
        let Some(host) = address.host().filter(|host| !host.is_empty()) else {
            return Err(wrong("names no host"));
        };
        // The parser takes any text for a port.
        let port = authority.strip_prefix(host).unwrap_or_default();
        if !port.is_empty() && port[1..].parse::<u16>().is_err() {
            return Err(wrong("has a wrong port"));
        }
        let address = text.trim_end_matches('/').to_owned();
        Ok(Self { address, headers: Headers::default() })
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl Serialize for Collector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_its_port_and_path() {
        for (text, endpoint) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://collector", "https://collector/v1/traces"),
            ("http://collector:80/otlp/", "http://collector:80/otlp/v1/traces"),
            ("http://[::1]:1", "http://[::1]:1/v1/traces"),
        ] {
            let collector: Collector = text.parse().unwrap();
            assert_eq!(collector.endpoint(), endpoint);
            assert_eq!(collector.has_tls(), text.starts_with("https"));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        for wrong in [
            "",
            "collector:4318",
            "ftp://collector",
            "http://",
            "http://:1",
            "http://a:b",
            "http://a:",
            "http://a:99999",
            "http://u:p@a:1",
            "http://a b",
            "http://a\r\nX: y",
            "http://[::1]1",
            "http://a/?q",
        ] {
            let why = wrong.parse::<Collector>().unwrap_err();
            assert!(why.contains("such as http://127.0.0.1:4318"), "{wrong}: {why}");
        }
    }
}
