//! What opens servers: certificates of an authority of our own, and credentials files as `nsc` makes them.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer};
use serde_json::{Value, json};

/// Writes a text, and gives its path.
fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("a file can be written");
    path
}

/// An authority, and a certificate of it for 127.0.0.1.
pub(super) struct Authority {
    pub(super) ca: PathBuf,
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

impl Authority {
    /// The lines of a server with that certificate.
    pub(super) fn lines(&self) -> String {
        format!("cert_file: {:?}, key_file: {:?}", self.cert, self.key)
    }
}

/// Makes an authority and a certificate of it, which is good for a server and for a client.
pub(super) fn authority(folder: &Path, name: &str) -> Authority {
    let key = || rcgen::KeyPair::generate().expect("a key");
    let mut of_authority = CertificateParams::new(Vec::new()).expect("no names");
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own = key();
    let certificate = of_authority.self_signed(&own).expect("it signs itself");
    let issuer = Issuer::new(of_authority, own);
    let of_server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let server = key();
    let signed = of_server.signed_by(&server, &issuer).expect("it signs");
    let ca = file(folder, &format!("{name}-ca.pem"), &certificate.pem());
    let cert = file(folder, &format!("{name}.pem"), &signed.pem());
    let key = file(folder, &format!("{name}-key.pem"), &server.serialize_pem());
    Authority { ca, cert, key }
}

/// Servers' operator, an account with JetStream, and its users.
pub(super) struct Operator {
    operator: KeyPair,
    account: KeyPair,
    system: KeyPair,
}

impl Operator {
    pub(super) fn new() -> Self {
        let (account, system) = (KeyPair::new_account(), KeyPair::new_account());
        Self { operator: KeyPair::new_operator(), account, system }
    }

    /// The lines of a server's config file.
    pub(super) fn lines(&self) -> String {
        let operator = json!({ "type": "operator", "version": 2 });
        let account = |storage: i64| {
            let limits = json!({
                "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
                "leaf": -1, "mem_storage": storage, "disk_storage": storage, "streams": storage, "consumer": storage
            });
            json!({ "type": "account", "version": 2, "limits": limits })
        };
        let sign = |key: &KeyPair, claims: &Value| token(&self.operator, key, claims);
        format!(
            "operator: \"{}\"\nsystem_account: {}\nresolver: MEMORY\n\
             resolver_preload: {{\n{}: \"{}\"\n{}: \"{}\"\n}}\n",
            sign(&self.operator, &operator),
            self.system.public_key(),
            self.account.public_key(),
            sign(&self.account, &account(-1)),
            self.system.public_key(),
            sign(&self.system, &account(0)),
        )
    }

    /// The credentials file of a user who may do that and nothing else.
    pub(super) fn user(&self, folder: &Path, name: &str, rights: [&[String]; 2]) -> PathBuf {
        let user = KeyPair::new_user();
        let [publish, subscribe] = rights.map(|allow| json!({ "allow": allow }));
        let claims = json!({
            "type": "user", "version": 2, "pub": publish, "sub": subscribe, "subs": -1, "data": -1, "payload": -1
        });
        let (token, seed) =
            (token(&self.account, &user, &claims), user.seed().expect("a key has a seed"));
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        file(folder, &format!("{name}.creds"), &text)
    }
}

/// A JSON Web Token about a key.
fn token(issuer: &KeyPair, about: &KeyPair, claims: &Value) -> String {
    let (header, name) = (json!({ "typ": "JWT", "alg": "ed25519-nkey" }), about.public_key());
    let body = json!({
        "jti": name, "iat": 1, "iss": issuer.public_key(), "name": "test", "sub": name, "nats": claims
    });
    let text = |part: &Value| BASE64_URL_SAFE_NO_PAD.encode(part.to_string());
    let text = format!("{}.{}", text(&header), text(&body));
    let signature = issuer.sign(text.as_bytes()).expect("a key signs");
    format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}
