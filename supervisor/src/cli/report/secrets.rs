//! Takes secrets out of texts that a user sends to others: tokens of gridpool, what stands after `Bearer`, users and
//! passwords in addresses, private keys, and the values of variables and keys whose name says that they are secret.

/// What takes the place of a secret.
const LEFT_OUT: &str = "[left out]";

/// What a token begins with, and its hexadecimal digits.
const TOKEN: &str = "gridpool_";
const TOKEN_DIGITS: usize = 64;

/// A key or a variable whose name has one of these is secret.
const SECRET_NAMES: [&str; 7] =
    ["TOKEN", "PASSWORD", "PASSWD", "SECRET", "CREDENTIAL", "CREDS", "APIKEY"];

const KEY_BEGINS: &str = "-----BEGIN";
const KEY_ENDS: &str = "-----END";

/// The text without secrets.
pub(super) fn without(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut is_key = false;
    for line in text.split_inclusive('\n') {
        let begins = line.contains(KEY_BEGINS) && line.contains("PRIVATE KEY");
        if begins {
            clean += &format!("{LEFT_OUT}\n");
        }
        is_key |= begins;
        if is_key {
            is_key = !line.contains(KEY_ENDS);
            continue;
        }
        clean += &addresses(&after_bearer(&tokens(line)));
    }
    clean
}

/// Whether the value of a variable or a key of this name must not be shown.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_uppercase().replace(['-', '_'], "");
    // A path to a file of secrets is none, and says where to look.
    SECRET_NAMES.iter().any(|secret| name.contains(secret)) && !name.ends_with("FILE")
}

fn tokens(line: &str) -> String {
    let mut parts = line.split(TOKEN);
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        let is_token = digits >= TOKEN_DIGITS;
        clean += TOKEN;
        clean += if is_token { LEFT_OUT } else { &part[..digits] };
        clean += &part[digits..];
    }
    clean
}

/// A word after `Bearer` is a token of somebody.
fn after_bearer(line: &str) -> String {
    const WORD: &str = "bearer ";
    let lower = line.to_ascii_lowercase();
    let Some(at) = lower.find(WORD) else { return line.to_owned() };
    let (before, rest) = line.split_at(at + WORD.len());
    let end = rest.find(|letter: char| !is_of_token(letter)).unwrap_or(rest.len());
    let word = if end == 0 { "" } else { LEFT_OUT };
    format!("{before}{word}{}", after_bearer(&rest[end..]))
}

fn is_of_token(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-._~+/=".contains(letter)
}

/// `nats://user:password@host` becomes `nats://[left out]@host`.
fn addresses(line: &str) -> String {
    let mut parts = line.split("://");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let ends = |letter: char| letter.is_whitespace() || "/\"'<>`,".contains(letter);
        let end = part.find(ends).unwrap_or(part.len());
        let (host, rest) = part.split_at(end);
        clean += "://";
        match host.rsplit_once('@') {
            Some((_, host)) => clean += &format!("{LEFT_OUT}@{host}"),
            None => clean += host,
        }
        clean += rest;
    }
    clean
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_go_and_the_rest_stays() {
        let token = format!("gridpool_{}", "0123456789abcdef".repeat(4));
        let text = format!(
            "{token} and {token}, gridpool_up 1, gridpool_abc\nAuthorization: Bearer abc.def-1, then\n\
             nats://joe:pw@a,nats://b http://c/d@e \"tls://x:y@f:1\"\n-----BEGIN PRIVATE KEY-----\nMIIE\n\
             -----END PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\nMIID\n"
        );
        let clean = without(&text);
        assert_eq!(
            clean,
            "gridpool_[left out] and gridpool_[left out], gridpool_up 1, gridpool_abc\n\
             Authorization: Bearer [left out], then\n\
             nats://[left out]@a,nats://b http://c/d@e \"tls://[left out]@f:1\"\n[left out]\n\
             -----BEGIN CERTIFICATE-----\nMIID\n"
        );
    }

    #[test]
    fn names_say_what_is_secret() {
        for name in ["MY_API_KEY", "GRIDPOOL_TOKEN", "nats_password", "AWS_SECRET_ACCESS_KEY"] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["GRIDPOOL_DEVICES", "GRIDPOOL_HTTP_TOKENS_FILE", "GRIDPOOL_HTTP_KEY"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_password_is_never_left(before in "[ -~]{0,20}", user in "[a-z]{0,5}", after in "[ -~]{0,20}") {
            let text = format!("{before} nats://{user}:hunter2@host {after}");
            prop_assert!(!without(&text).contains("hunter2"), "{text}");
        }

        #[test]
        fn any_text_is_taken(text in "(?s).{0,200}") {
            let clean = without(&text);
            prop_assert_eq!(without(&clean), clean);
        }
    }
}
