//! Where a pool serves HTTP and gRPC, and to whom.
//!
//! Owns the forms of these settings. May not open sockets or read the files that they name.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use gridpool_protocol::handover::Protocol;

use super::{ConfigError, Origins, Overrides, Settings, check_socket};

/// What the address of a Unix socket begins with.
pub(crate) const UNIX: &str = "unix:";
/// Most names and origins that a pool allows.
const NAMES_MAX: usize = 64;
/// Longest name of a host, as DNS has it.
const HOST_BYTES_MAX: usize = 253;

/// Where a pool serves HTTP or gRPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpAddress {
    /// An address of this machine and a port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Who may use HTTP and gRPC, and how both are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpOptions {
    /// Names that a request's `Host` may have, besides the address and `localhost`.
    pub hosts: Vec<String>,
    /// Origins of web pages that may send requests: `https://app.example`.
    pub origins: Vec<String>,
    /// The file of hashed tokens; `None` asks for no token.
    pub tokens: Option<PathBuf>,
    /// The file of certificates; `None` serves without TLS.
    pub cert: Option<PathBuf>,
    /// The file of the certificate's key.
    pub key: Option<PathBuf>,
    /// The group whose members may use the Unix socket.
    pub group: Option<String>,
    /// Whether anyone who reaches an address that is not this machine's own may use the pool.
    /// By default not.
    pub insecure: Option<bool>,
    /// Whether the log has a line for each request. By default not.
    pub access_log: Option<bool>,
    /// Whether clients may name tensors in their own shared memory.
    pub shared_memory: Option<bool>,
}

impl Settings {
    /// Where HTTP and gRPC are served.
    #[must_use]
    pub fn places(&self) -> Vec<(Protocol, &HttpAddress)> {
        let http = self.http.iter().map(|at| (Protocol::Http, at));
        http.chain(self.grpc.iter().map(|at| (Protocol::Grpc, at))).collect()
    }
}

impl HttpOptions {
    /// These, and `other` where they say nothing.
    pub(super) fn over(self, other: Self) -> Self {
        let first = |own: Vec<_>, other| if own.is_empty() { other } else { own };
        Self {
            hosts: first(self.hosts, other.hosts),
            origins: first(self.origins, other.origins),
            tokens: self.tokens.or(other.tokens),
            cert: self.cert.or(other.cert),
            key: self.key.or(other.key),
            group: self.group.or(other.group),
            insecure: self.insecure.or(other.insecure),
            access_log: self.access_log.or(other.access_log),
            shared_memory: self.shared_memory.or(other.shared_memory),
        }
    }

    /// See `insecure`.
    #[must_use]
    pub fn is_insecure(&self) -> bool {
        self.insecure.unwrap_or(false)
    }

    /// See `shared_memory`.
    #[must_use]
    pub fn has_shared_memory(&self) -> bool {
        self.shared_memory.unwrap_or(false)
    }

    /// See `access_log`.
    #[must_use]
    pub fn logs_access(&self) -> bool {
        self.access_log.unwrap_or(false)
    }
}

impl HttpAddress {
    /// Parses `127.0.0.1:8000`, `[::1]:8000`, `localhost:8000` or `unix:/path`. It resolves no other names,
    /// which may hang.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix(UNIX) {
            check_socket(Path::new(path))?;
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        let local = local.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        local.or_else(|| text.parse().ok()).map(Self::Tcp).ok_or_else(|| {
            format!(
                "`{text}` is not an address and port: write 127.0.0.1:8000, 0.0.0.0:8000, [::1]:8000, \
                 localhost:8000 or unix:/path/of/a.sock; for port 0 the system chooses a free port"
            )
        })
    }

    /// The same below `folder`, if it is a relative path.
    pub(super) fn below(self, folder: &Path) -> Self {
        match self {
            Self::Unix(path) => Self::Unix(folder.join(path)),
            Self::Tcp(_) => self,
        }
    }

    /// Whether only this machine can reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl HttpOptions {
    /// Why these do not go together, if they do not; and the setting at fault.
    pub(super) fn clash(&self) -> Option<(&'static str, String)> {
        let needs = |one: &str, other: &str| {
            format!("a certificate and its key go together: add --{other}, or leave out --{one}")
        };
        match (&self.cert, &self.key) {
            (Some(_), None) => Some(("http_cert", needs("http-cert", "http-key"))),
            (None, Some(_)) => Some(("http_key", needs("http-key", "http-cert"))),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }
}

/// Puts the flag of an address over the file's setting.
pub(super) fn resolve_address(
    flags: &Overrides,
    (flag, given): (&'static str, &Option<String>),
    of_file: Option<HttpAddress>,
) -> Result<Option<HttpAddress>, ConfigError> {
    let given = given.as_deref().map(HttpAddress::parse).transpose();
    Ok(given.map_err(|reason| flags.wrong(flag, reason))?.or(of_file))
}

/// Puts the flags about both over the file's settings.
pub(super) fn resolve(
    flags: &Overrides,
    file: HttpOptions,
    origins: &Origins,
) -> Result<HttpOptions, ConfigError> {
    let given = &flags.http_options;
    let hosts = parse_hosts(given.hosts.iter().map(String::as_str));
    let hosts = hosts.map_err(|reason| flags.wrong("--http-host", reason))?;
    let allowed = parse_origins(given.origins.iter().map(String::as_str));
    let allowed = allowed.map_err(|reason| flags.wrong("--http-origin", reason))?;
    let given = HttpOptions { hosts, origins: allowed, ..given.clone() };
    let options = given.over(file);
    match options.clash() {
        None => Ok(options),
        Some((setting, reason)) => {
            Err(origins.of(setting).wrong_in_file(&reason).unwrap_or_else(|| {
                let flag = if setting == "http_cert" { "--http-cert" } else { "--http-key" };
                flags.wrong(flag, reason)
            }))
        }
    }
}

/// Why a group has no socket for its members, if something is served.
pub(super) fn idle_group(
    options: &HttpOptions,
    (http, grpc): (&Option<HttpAddress>, &Option<HttpAddress>),
) -> Option<&'static str> {
    let mut places = http.iter().chain(grpc).peekable();
    let is_unix = |place: &HttpAddress| matches!(place, HttpAddress::Unix(_));
    let is_idle = options.group.is_some() && places.peek().is_some() && !places.any(is_unix);
    is_idle.then_some(
        "a group has no part in an address: serve at a Unix socket with --http unix:/path/of/a.sock, or make tokens \
         with `gridpool token new`",
    )
}

/// Checks that a group has a socket for its members.
pub(super) fn check_group(
    flags: &Overrides,
    options: &HttpOptions,
    places: (&Option<HttpAddress>, &Option<HttpAddress>),
    origins: &Origins,
) -> Result<(), ConfigError> {
    let Some(why) = idle_group(options, places) else { return Ok(()) };
    let in_file = origins.of("http_group").wrong_in_file(why);
    let is_flag = flags.http_options.group.is_some();
    Err(in_file.filter(|_| !is_flag).unwrap_or_else(|| flags.wrong("--http-group", why.to_owned())))
}

/// Checks names that `Host` may have, and puts them in the form in which they are compared.
pub(super) fn parse_hosts<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<String>, String> {
    let parse = |name: &str| {
        let bytes = name.as_bytes();
        let is_name =
            |byte: &u8| byte.is_ascii_alphanumeric() || [b'.', b'-', b'_', b':'].contains(byte);
        let has_port = name.parse::<std::net::IpAddr>().is_err() && name.contains(':');
        if bytes.is_empty() || !bytes.iter().all(is_name) || has_port {
            return Err(format!(
                "`{name}` is not the name of a host: write it as in a URL without scheme and port, such as \
                 gpu.example.org"
            ));
        }
        if bytes.len() > HOST_BYTES_MAX {
            return Err(format!("a host's name has at most {HOST_BYTES_MAX} bytes"));
        }
        Ok(name.trim_end_matches('.').to_ascii_lowercase())
    };
    few(names.into_iter().map(parse).collect::<Result<_, _>>()?)
}

/// Checks origins of web pages.
pub(super) fn parse_origins<'a>(
    origins: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<String>, String> {
    let parse = |origin: &str| {
        let rest = ["https://", "http://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
        let is_host = |rest: &str| {
            let ends = |c: char| "/?#@*".contains(c) || c.is_whitespace() || c.is_control();
            !rest.is_empty() && !rest.contains(ends)
        };
        match rest.is_some_and(is_host) {
            true => Ok(origin.to_ascii_lowercase()),
            false => Err(format!(
                "`{origin}` is not an origin: write scheme, name and port as a browser sends them, such as \
                 https://app.example.org"
            )),
        }
    };
    few(origins.into_iter().map(parse).collect::<Result<_, _>>()?)
}

fn few(names: Vec<String>) -> Result<Vec<String>, String> {
    match names.len() {
        ..=NAMES_MAX => Ok(names),
        many => Err(format!("{many} names: allow at most {NAMES_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_origins_are_read_or_refused_with_a_sentence() {
        let hosts = parse_hosts(["GPU.Example.org.", "10.0.0.1", "::1"]).unwrap();
        assert_eq!(hosts, ["gpu.example.org", "10.0.0.1", "::1"]);
        for wrong in ["", "http://x", "x:80", "a b", "x/"] {
            assert!(parse_hosts([wrong]).unwrap_err().contains("is not the name of a host"));
        }
        assert_eq!(parse_origins(["https://App.example:8"]).unwrap(), ["https://app.example:8"]);
        for wrong in ["", "*", "null", "app.example", "https://", "https://x/", "ftp://x"] {
            assert!(parse_origins([wrong]).unwrap_err().contains("is not an origin"), "{wrong}");
        }
        assert!(parse_hosts(std::iter::repeat_n("x", NAMES_MAX + 1)).is_err());
    }

    #[test]
    fn an_address_is_local_only_if_no_other_machine_reaches_it() {
        let is_local = |text: &str| HttpAddress::parse(text).unwrap().is_local();
        for text in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "unix:/run/x.sock"] {
            assert!(is_local(text), "{text}");
        }
        assert!(is_local("[::ffff:127.0.0.1]:1"));
        for text in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[fe80::1]:1"] {
            assert!(!is_local(text), "{text}");
        }
    }
}
