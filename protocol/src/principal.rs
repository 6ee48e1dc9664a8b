//! Who a job is for: what shares the pool with others, has limits, and owns its keys and receipts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Longest name of a token, bytes.
pub const TOKEN_NAME_BYTES_MAX: usize = 64;

/// Who a job is for. All connections of one principal share one place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Principal {
    /// A user of this machine, on the pool's socket.
    Uid(u32),
    /// An HTTP client that showed a token: the token's name.
    Token(String),
    /// An HTTP client without a token; see [`Principal::of_address`].
    Address(IpAddr),
    /// The pool's own gateway, which finds out whether the pool is ready.
    Gateway,
}

impl Principal {
    /// The principal of an HTTP client without a token. Of an IPv6 address only the first 64 bits count: a
    /// client has all addresses of such a network, as one on this machine has all that loop back.
    #[must_use]
    pub fn of_address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            address if address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64 << 64;
                IpAddr::V6(Ipv6Addr::from_bits(network))
            }
        })
    }

    /// What kind of principal it is, in one word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Uid(_) => "uid",
            Self::Token(_) => "token",
            Self::Address(_) => "address",
            Self::Gateway => "gateway",
        }
    }

    /// Checks a principal that another process names.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Address(_) | Self::Gateway | Self::Uid(_) => Ok(()),
            Self::Token(name) => {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
                let is_short = (1..=TOKEN_NAME_BYTES_MAX).contains(&name.len());
                if is_short && name.bytes().all(is_plain) {
                    return Ok(());
                }
                Err(format!(
                    "a token's name has letters, digits and . _ - @, at most {TOKEN_NAME_BYTES_MAX} of them"
                ))
            }
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uid(uid) => write!(f, "uid {uid}"),
            Self::Token(name) => write!(f, "token {name}"),
            Self::Address(IpAddr::V4(address)) => write!(f, "address {address}"),
            Self::Address(IpAddr::V6(network)) => write!(f, "address {network}/64"),
            Self::Gateway => f.write_str("gateway"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_network_if_a_client_has_all_of_it() {
        let shown = |text: &str| Principal::of_address(text.parse().unwrap()).to_string();
        assert_eq!(shown("10.0.0.1"), "address 10.0.0.1");
        assert_eq!(shown("::ffff:10.0.0.1"), "address 10.0.0.1");
        assert_eq!(shown("2001:db8:1:2:3:4:5:6"), "address 2001:db8:1:2::/64");
        for loops_back in ["127.0.0.1", "127.3.0.6", "::1", "::ffff:127.0.0.2"] {
            assert_eq!(shown(loops_back), "address 127.0.0.1");
        }
        assert_eq!(Principal::Uid(1000).to_string(), "uid 1000");
        assert_eq!(Principal::Token("alice".to_owned()).to_string(), "token alice");
    }

    #[test]
    fn a_token_has_a_short_and_plain_name() {
        assert_eq!(Principal::Token("a.l_i-c@3".to_owned()).check(), Ok(()));
        let long = "a".repeat(TOKEN_NAME_BYTES_MAX + 1);
        for name in ["", &long, "a b", "a\nb", "\u{1b}[31m", "ä"] {
            assert!(Principal::Token(name.to_owned()).check().is_err(), "{name}");
        }
    }
}
