//! Where HTTP is served: addresses that others reach, TLS, Unix sockets.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gridpool_ipc::clock;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{Web, gateway_pid, http, request, tcp, with_http};
use crate::command::gridpool;
use crate::needs::{is_met, is_root};
use crate::pool::{Pool, Setup, cpu};
use crate::wait::{TIMEOUT, eventually};

const LIVE: &str = "/v2/health/live";

#[test]
fn an_address_that_others_reach_needs_tokens_or_a_word_that_it_does_not() {
    let serve =
        |arguments: &[&str]| gridpool(["serve", "--devices", "cpu:1"]).args(arguments).run();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let said = serve(&["--http", address]);
        said.complains(78, &["everyone who reaches", "gridpool token new", "--insecure"]);
    }
    let pool = cpu(1).args(&["--http", "0.0.0.0:0", "--insecure"]).start();
    let address = http(&pool).address.replace("0.0.0.0", "127.0.0.1");
    eventually("an answer", || {
        let mut web = Web::over(TcpStream::connect(&address).expect("it listens"));
        let status = web.ask("GET", LIVE, "", b"").status;
        if status == 200 { Ok(()) } else { Err(status) }
    });
    assert!(pool.log().contains("anyone who reaches this address can run jobs"));
}

// ---- TLS ----

/// A certificate for localhost, its key, and the files of both.
fn certificate(folder: &Path) -> (CertificateDer<'static>, PathBuf, PathBuf) {
    let names = vec!["localhost".to_owned()];
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(names).expect("a certificate can be made");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        let new = path.with_extension("new");
        fs::write(&new, text).expect("a file can be written");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("a mode can be set");
        fs::rename(&new, &path).expect("a file can be renamed");
        path
    };
    let key = file("key.pem", &signing_key.serialize_pem());
    (cert.der().clone(), file("cert.pem", &cert.pem()), key)
}

pub(super) fn with_tls(setup: Setup) -> (Setup, CertificateDer<'static>) {
    let (trusted, cert, key) = certificate(setup.folder());
    let path = |path: &Path| path.to_str().expect("readable").to_owned();
    let setup = with_http(setup).args(&["--http-cert", &path(&cert), "--http-key", &path(&key)]);
    (setup, trusted)
}

type Secure = Web<StreamOwned<ClientConnection, TcpStream>>;

/// A connection that trusts only this certificate.
fn secure(
    pool: &Pool,
    trusted: &CertificateDer<'static>,
    version: &'static rustls::SupportedProtocolVersion,
) -> Secure {
    secure_over(tcp(pool), trusted, version)
}

fn secure_over(
    stream: TcpStream,
    trusted: &CertificateDer<'static>,
    version: &'static rustls::SupportedProtocolVersion,
) -> Secure {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_protocol_versions(&[version]).expect("a version");
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(config, name).expect("a configuration");
    Web::over(StreamOwned::new(connection, stream))
}

/// An address of this machine that does not loop back: all that do are one client. No packet is sent for it.
fn other_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|own| own.ip())
}

#[test]
fn tls_serves_what_plain_http_serves_and_a_new_certificate_is_used_at_once() {
    let (setup, first) = with_tls(cpu(1));
    let pool = setup.start();
    let live = request("GET", LIVE, "", b"");
    eventually("an answer", || {
        let mut web = secure(&pool, &first, &rustls::version::TLS13);
        let status = web.ask("GET", LIVE, "", b"").status;
        if status == 200 { Ok(()) } else { Err(status) }
    });
    assert_eq!(
        secure(&pool, &first, &rustls::version::TLS12).ask("GET", LIVE, "", b"").status,
        200
    );
    assert!(http(&pool).tls);
    for (scheme, status) in [("https", 200), ("http", 403)] {
        let host = "127.0.0.1";
        let mut web = secure(&pool, &first, &rustls::version::TLS13);
        let head = format!("GET /v2 HTTP/1.1\r\nHost: {host}\r\nOrigin: {scheme}://{host}\r\n\r\n");
        web.send(head.as_bytes());
        assert_eq!(web.hear().status, status, "the page has the scheme of the connection");
    }
    let status = pool.cli(&["status"]).run().output();
    assert!(status.contains("https://127.0.0.1:"), "{status}");
    // Plain HTTP gets no answer there.
    let mut plain = Web::open(&pool);
    plain.send(&live);
    let said = plain.closes();
    assert!(!said.starts_with(b"HTTP/"), "{said:?}");
    // A client that does not shake hands does not hold the connection.
    drop(Web::open(&pool).closes());
    let (second, _, _) = certificate(pool.folder());
    eventually("the new certificate", || {
        let mut web = secure(&pool, &second, &rustls::version::TLS13);
        let sent = web.stream.write_all(&live);
        let heard = sent.and_then(|()| web.stream.read(&mut [0; 1]));
        heard.map_err(|error| error.to_string())
    });
}

#[test]
fn an_address_that_shakes_hands_too_often_waits_and_another_does_not() {
    const HANDSHAKES_PER_S: u32 = 250;
    const ROUND: u32 = 300;
    // Long before the last: one that came after all of them and has to wait for them finds it answered.
    const LATE: usize = 275;
    let own = other_address();
    if !is_met(own.is_some(), "GRIDPOOL_REQUIRE_ADDRESS", "all addresses here loop back") {
        return;
    }
    let (setup, trusted) = with_tls(cpu(1));
    let pool = setup.args(&["--http", "0.0.0.0:0", "--insecure"]).start();
    gateway_pid(&pool);
    let address = http(&pool).address.replace("0.0.0.0", "127.0.0.1");
    let theirs = address.replace("127.0.0.1", &own.expect("it was just met").to_string());
    let mut shaken = 0;
    let since = clock::now();
    // What is no TLS ends a handshake, and its connection, as soon as it begins.
    let garbage = || {
        let mut web = Web::over(TcpStream::connect(&address).expect("the gateway listens"));
        web.stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
        web.send(b"GET / HTTP/1.1\r\n\r\n");
        web
    };
    let other = || {
        let stream = TcpStream::connect(&theirs).expect("the gateway listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
        secure_over(stream, &trusted, &rustls::version::TLS13)
    };
    // On a busy machine the first may have had their turn before the other's answer comes.
    eventually("another address to be served before those that came earlier", || {
        let flood: Vec<_> = (0..ROUND).map(|_| garbage()).collect();
        shaken += ROUND;
        // One may come between them by chance, several do not.
        for _ in 0..5 {
            assert_eq!(other().ask("GET", LIVE, "", b"").status, 200);
        }
        let late = &flood[LATE].stream;
        late.set_nonblocking(true).expect("an option can be set");
        let seen = late.peek(&mut [0]);
        late.set_nonblocking(false).expect("an option can be set");
        flood.into_iter().for_each(|web| drop(web.closes()));
        match seen {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            ended => Err(format!("{ended:?} after {shaken}")),
        }
    });
    let least = Duration::from_secs(1) * (shaken - HANDSHAKES_PER_S) / HANDSHAKES_PER_S;
    assert!(since.elapsed() >= least, "{shaken} handshakes take {least:?} at least");
    let page = String::from_utf8(other().ask("GET", "/metrics", "", b"").body).expect("text");
    let counted = format!("gridpool_http_refused_total{{reason=\"handshake\"}} {shaken}\n");
    assert!(page.contains(&counted), "not {shaken}: {page}");
}

#[test]
fn a_key_that_others_may_read_and_half_a_pair_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, cert, key) = certificate(folder.path());
    let serve = |with_key: bool| {
        let call =
            gridpool(["serve", "--devices", "cpu:1", "--http", "127.0.0.1:0", "--http-cert"]);
        let call = call.arg(&cert);
        if with_key { call.arg("--http-key").arg(&key).run() } else { call.run() }
    };
    serve(false).complains(2, &["--http-cert: a certificate and its key go together"]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("a mode can be set");
    serve(true).complains(78, &["--http-key: ", "has the mode 644", "chmod 600"]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a mode can be set");
    fs::write(&key, "no key").expect("a file can be written");
    serve(true).complains(78, &["has no private key in PEM"]);
}

// ---- Unix sockets ----

#[test]
fn a_unix_socket_serves_our_user_alone_and_is_removed_in_the_end() {
    let setup = cpu(1);
    let path = setup.folder().join("http.sock");
    let pool = setup.args(&["--http", &format!("unix:{}", path.display())]).start();
    let open = || {
        let stream = UnixStream::connect(&path).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
        Web::over(stream)
    };
    eventually("an answer", || {
        let status = open().ask("GET", "/v2/health/ready", "", b"").status;
        if status == 200 { Ok(()) } else { Err(status) }
    });
    // No page can reach it, so its clients may name any host.
    let named = |host: &str, more: &str| {
        let mut web = open();
        web.send(format!("GET /v2 HTTP/1.1\r\nHost: {host}\r\n{more}\r\n").as_bytes());
        web.hear().status
    };
    assert_eq!(named("whatever", ""), 200);
    // But through a proxy that passes Host on: one whose name was made to mean the proxy is not our own.
    assert_eq!(named("evil.example", "Origin: http://evil.example\r\n"), 403);
    assert_eq!(named("localhost:80", "Origin: http://localhost:80\r\n"), 200);
    let meta = fs::symlink_metadata(&path).expect("it is there");
    assert_eq!(meta.mode() & 0o777, 0o600);
    gateway_pid(&pool);
    let status = pool.cli(&["status"]).run().output();
    assert!(status.contains(&format!("unix:{}: served", path.display())), "{status}");
    // Another pool cannot take it.
    let other = gridpool(["serve", "--devices", "cpu:1", "--http"]);
    let other = other.arg(format!("unix:{}", path.display())).run();
    other.complains(69, &["another supervisor is running", "--http unix:"]);
    if is_root() {
        // Even if someone opens its mode.
        for place in [&path, pool.folder()] {
            fs::set_permissions(place, fs::Permissions::from_mode(0o777))
                .expect("a mode can be set");
        }
        let mut foreign = std::process::Command::new("curl");
        foreign.args(["--silent", "--max-time", "10", "--unix-socket"]).arg(&path);
        foreign.arg("http://localhost/v2");
        std::os::unix::process::CommandExt::uid(&mut foreign, 65_534);
        let said = String::from_utf8(foreign.output().expect("curl").stdout).expect("text");
        assert!(said.contains("the user 65534 may not use this pool"), "{said}");
    }
    // A cleaner of old files removes it. The next gateway serves a new one.
    fs::set_permissions(pool.folder(), fs::Permissions::from_mode(0o700)).expect("a mode");
    fs::remove_file(&path).expect("it is there");
    eventually("HTTP at a new socket", || {
        let connected = UnixStream::connect(&path).map_err(|error| error.to_string())?;
        connected.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
        match Web::over(connected).ask("GET", LIVE, "", b"").status {
            200 => Ok(()),
            other => Err(other.to_string()),
        }
    });
    assert!(pool.log().contains("HTTP: the socket was removed, and is served again"));
    pool.observer().drain().expect("the pool accepts the command");
    pool.ends_well();
    assert!(!path.exists() && !path.with_extension("sock.lock").exists());
}

#[test]
fn a_group_may_use_a_unix_socket_that_is_given_to_it() {
    let setup = cpu(1);
    let path = setup.folder().join("http.sock");
    let group = nix::unistd::Group::from_gid(nix::unistd::getegid()).expect("groups can be read");
    let group = group.expect("ours has a name");
    let at = format!("unix:{}", path.display());
    let pool = setup.args(&["--http", &at, "--http-group", &group.name]).start();
    let meta = fs::symlink_metadata(&path).expect("it is there");
    assert_eq!((meta.mode() & 0o777, meta.gid()), (0o660, group.gid.as_raw()));
    let at = format!("unix:{}", pool.folder().join("other.sock").display());
    let wrong =
        gridpool(["serve", "--devices", "cpu:1", "--http", &at, "--http-group", "none-such"]);
    wrong.run().complains(78, &["the group `none-such`: there is no such group"]);
}
