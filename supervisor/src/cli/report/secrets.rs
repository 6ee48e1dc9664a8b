//! Takes secrets out of texts that a user sends to others: tokens of gridpool, what stands after `Bearer` and
//! `Authorization: Basic`, users and passwords in addresses, private keys, credentials of NATS, and tokens with a
//! signature (JWT). And tells which variables are secret by their name.

/// What takes the place of a secret.
const LEFT_OUT: &str = "[left out]";

/// What a token begins with, and its hexadecimal digits.
const TOKEN: &str = "gridpool_";
const TOKEN_DIGITS: usize = 64;

/// A variable whose name has one of these is secret.
const SECRET_NAMES: [&str; 7] =
    ["TOKEN", "PASSWORD", "PASSWD", "SECRET", "CREDENTIAL", "CREDS", "APIKEY"];

/// What stands before a word that is secret, in small letters.
const BEFORE: [&str; 2] = ["bearer ", "authorization: basic "];

/// What is secret between lines of this kind: keys, and both parts of a credentials file of NATS.
const KEYS: [&str; 3] = ["PRIVATE KEY", "NKEY SEED", "USER JWT"];
/// The seed of a key of NATS: its first letter, and all its letters and digits.
const SEED: char = 'S';
const SEED_LENGTH: usize = 58;
/// What a signed token (JWT) begins with, `{\"` in base64.
const JWT: &str = "eyJ";

const KEY_BEGINS: &str = "-----BEGIN";
const KEY_ENDS: &str = "-----END";
/// Longest private key, lines. What is longer is no key, but somebody's words about one.
const KEY_LINES_MAX: usize = 200;

/// The text without secrets.
pub(super) fn without(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    // Lines of a private key that may still come.
    let mut of_key = 0_usize;
    for line in text.split_inclusive('\n') {
        let is_key = || KEYS.iter().any(|key| line.contains(key));
        if of_key == 0 && line.contains(KEY_BEGINS) && is_key() {
            clean += &format!("{LEFT_OUT}\n");
            of_key = KEY_LINES_MAX;
        }
        match of_key {
            0 => clean += &addresses(&credentials(&after_words(&tokens(line)))),
            _ if line.contains(KEY_ENDS) => of_key = 0,
            _ => of_key -= 1,
        }
    }
    clean
}

/// Whether the value of a variable of this name must not be shown.
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
fn after_words(line: &str) -> String {
    BEFORE.iter().fold(line.to_owned(), |line, before| after(&line, before))
}

fn after(line: &str, before: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let (mut clean, mut from) = (String::new(), 0);
    while let Some(at) = lower[from..].find(before) {
        let word = from + at + before.len();
        let length = line[word..].find(|letter| !is_of_token(letter)).unwrap_or(line.len() - word);
        clean += &line[from..word];
        clean += if length == 0 { "" } else { LEFT_OUT };
        from = word + length;
    }
    clean + &line[from..]
}

/// Seeds of keys and signed tokens are known by their form, wherever they stand.
fn credentials(line: &str) -> String {
    let is_seed = |word: &str| {
        let is_of_seed = |byte: u8| byte.is_ascii_uppercase() || (b'2'..=b'7').contains(&byte);
        word.len() == SEED_LENGTH && word.starts_with(SEED) && word.bytes().all(is_of_seed)
    };
    let is_signed = |word: &str| {
        word.starts_with(JWT) && word.matches('.').count() == 2 && word.len() > 2 * JWT.len()
    };
    let mut clean = String::with_capacity(line.len());
    for part in line.split_inclusive(|letter| !is_of_token(letter)) {
        // It ends with the sign after the word, if there is one.
        let word = part.trim_end_matches(|letter| !is_of_token(letter)).trim_end_matches('.');
        // A variable or a setting may stand before it.
        let value = word.rsplit('=').next().unwrap_or_default();
        match is_seed(value) || is_signed(value) {
            true => {
                clean += &word[..word.len() - value.len()];
                clean += LEFT_OUT;
                clean += &part[word.len()..];
            }
            false => clean += part,
        }
    }
    clean
}

fn is_of_token(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-._~+/=".contains(letter)
}

/// `nats://user:password@host` becomes `nats://[left out]@host`. A password may have any sign but white space, `@` and
/// `://` too: what stands between the first `://` and the last `@` of a word is left out, also hosts of a list.
fn addresses(line: &str) -> String {
    const BEGINS: &str = "://";
    let mut clean = String::with_capacity(line.len());
    for word in line.split_inclusive(char::is_whitespace) {
        let from = word.find(BEGINS).map(|at| at + BEGINS.len());
        match from.zip(word.rfind('@')).filter(|(from, to)| from <= to) {
            Some((from, to)) => {
                clean += &word[..from];
                clean += LEFT_OUT;
                clean += &word[to..];
            }
            None => clean += word,
        }
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
             nats://joe:pw@a,nats://b http://c/d \"tls://x:y@f:1\" nats://u:p/a,s\"s@h\n\
             nats://:pw://@h nats://a,nats://u:p,q://r@b,nats://c\n\
             -----BEGIN PRIVATE KEY-----\nMIIE\n\
             -----END PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\nMIID\n"
        );
        let clean = without(&text);
        assert_eq!(
            clean,
            "gridpool_[left out] and gridpool_[left out], gridpool_up 1, gridpool_abc\n\
             Authorization: Bearer [left out], then\n\
             nats://[left out]@a,nats://b http://c/d \"tls://[left out]@f:1\" nats://[left out]@h\n\
             nats://[left out]@h nats://[left out]@b,nats://c\n[left out]\n\
             -----BEGIN CERTIFICATE-----\nMIID\n"
        );
    }

    #[test]
    fn credentials_of_nats_and_signed_tokens_go_wherever_they_stand() {
        let seed = format!("SUA{}", "A2".repeat(28))[..SEED_LENGTH].to_owned();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\neyJ0.eyJq.c2ln\n------END NATS USER JWT------\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n\
             the seed {seed}, seed=\"{seed}\" SEED={seed}; jwt=eyJ0eXAi.eyJqdGki.c2lnbmVk.\n\
             eyJ alone, SUPERVISOR, Authorization: Basic aHVudGVyMg==, a basic text\n"
        );
        assert_eq!(
            without(&text),
            "[left out]\n[left out]\nthe seed [left out], seed=\"[left out]\" SEED=[left out]; jwt=[left out].\n\
             eyJ alone, SUPERVISOR, Authorization: Basic [left out], a basic text\n"
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

    #[test]
    fn words_about_a_key_do_not_empty_the_log_and_many_words_are_taken() {
        let mut text = "-----BEGIN PRIVATE KEY-----\n".to_owned();
        (0..1_000).for_each(|line| text += &format!("line {line}\n"));
        assert!(without(&text).ends_with("line 999\n"));
        let many = "bearer x ".repeat(1 << 20);
        assert!(!without(&many).contains('x'));
    }

    proptest! {
        #[test]
        fn a_password_is_never_left(
            before in "[ -~]{0,20}", user in "[a-z]{0,5}", more in "[!-~]{0,9}", after in "[ -~]{0,20}",
        ) {
            let text = format!("{before} nats://{user}:hunter2{more}@host {after}");
            prop_assert!(!without(&text).contains("hunter2"), "{text}");
        }

        #[test]
        fn any_text_is_taken(text in "(?s).{0,200}") {
            let clean = without(&text);
            prop_assert_eq!(without(&clean), clean);
        }
    }
}
