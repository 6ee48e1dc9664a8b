//! NATS servers for one test: one alone, or three as a cluster, each with a folder and ports of its own, and with a
//! network of its own if the test has networks.

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;

use gridpool_client::NatsOptions;
use tempfile::TempDir;

use super::network::Namespace;
use crate::needs::is_installed;
use crate::processes::{Process, free_ports, go_on, stop};
use crate::wait::eventually_so;

/// The port of a server that has a network of its own, and that for the other servers.
const OWN_PORTS: [u16; 2] = [4_222, 6_222];

/// The bytes that a server's streams may ask for. Without it that is a part of the disk that is free.
pub(super) const STORE_BYTES_MAX: u64 = 64 << 30;

/// Whether there is a nats-server; says so if there is none.
pub(crate) fn are_there() -> bool {
    is_installed("nats-server", "nats-server", "GRIDPOOL_REQUIRE_NATS_SERVER")
}

/// The servers; killed when dropped.
pub(crate) struct Servers {
    places: Vec<Place>,
    /// Further lines of their config files.
    lines: String,
    /// What addresses begin with.
    pub(super) scheme: String,
    /// The files that clients need.
    pub(super) credentials: Option<PathBuf>,
    pub(super) ca: Option<PathBuf>,
    /// The client's certificate and its key.
    pub(super) own: Option<[PathBuf; 2]>,
    /// The port through which the first server is reached, if not its own.
    pub(super) through: Option<u16>,
    processes: Vec<Process>,
    folder: TempDir,
}

/// Where a server listens.
struct Place {
    address: String,
    port: u16,
    route: u16,
    network: Option<Rc<Namespace>>,
}

impl Servers {
    /// Starts so many, and waits until they serve.
    pub(crate) fn start(count: usize) -> Self {
        Self::with(count, "nats://", "")
    }

    /// The same with further lines in their config files, and addresses that begin so.
    pub(super) fn with(count: usize, scheme: &str, lines: &str) -> Self {
        let ports = free_ports(2 * count);
        let place = |(&port, &route): (&u16, &u16)| {
            let address = "127.0.0.1".to_owned();
            Place { address, port, route, network: None }
        };
        let places = ports[..count].iter().zip(&ports[count..]).map(place).collect();
        Self::at(places, scheme, lines)
    }

    /// One server in each of these networks, under the address that it has there.
    pub(super) fn across(networks: &[(String, Rc<Namespace>)]) -> Self {
        let [port, route] = OWN_PORTS;
        let place = |(address, network): &(String, Rc<Namespace>)| {
            let (address, network) = (address.clone(), Some(Rc::clone(network)));
            Place { address, port, route, network }
        };
        Self::at(networks.iter().map(place).collect(), "nats://", "")
    }

    fn at(places: Vec<Place>, scheme: &str, lines: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let (lines, scheme) = (lines.to_owned(), scheme.to_owned());
        let mut servers = Self {
            places,
            lines,
            scheme,
            credentials: None,
            ca: None,
            own: None,
            through: None,
            processes: Vec::new(),
            folder,
        };
        let count = servers.places.len();
        servers.processes = (0..count).map(|server| servers.spawn(server)).collect();
        (0..count).for_each(|server| servers.listens(server));
        servers
    }

    fn spawn(&self, server: usize) -> Process {
        let (name, at) = (format!("n{server}"), &self.places[server]);
        let folder = self.folder.path().join(&name);
        let config = self.folder.path().join(format!("{name}.conf"));
        let mut text = format!(
            "server_name: {name}\nlisten: \"{}:{}\"\n{}\n\
             jetstream {{ store_dir: {folder:?}, max_file_store: {STORE_BYTES_MAX} }}\n",
            at.address, at.port, self.lines
        );
        if self.places.len() > 1 {
            let routes: Vec<_> = self.places.iter().map(Place::route).collect();
            text += &format!(
                "cluster {{ name: test, listen: \"{}:{}\", routes: {routes:?} }}\n",
                at.address, at.route
            );
        }
        fs::write(&config, text).expect("a file can be written");
        let log = self.folder.path().join(format!("{name}.log"));
        let log = File::options().create(true).append(true).open(log);
        let log = log.expect("a log can be opened");
        let mut command = Command::new("nats-server");
        command.arg("-c").arg(config).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
        let spawn = || Process::new(command.spawn().expect("nats-server starts"));
        at.inside(spawn)
    }

    /// Waits until a server accepts connections.
    fn listens(&self, server: usize) {
        let at = &self.places[server];
        at.inside(|| {
            let to = (at.address.as_str(), at.port);
            eventually_so("a NATS server", || TcpStream::connect(to).is_ok());
        });
    }

    /// Their addresses, as flags name them.
    pub(super) fn url(&self) -> String {
        let skipped = usize::from(self.through.is_some());
        let others = self.places.iter().skip(skipped).map(|at| at.port);
        let ports = self.through.into_iter().chain(others);
        let url = |(at, port): (&Place, u16)| format!("{}:{port}", at.address);
        let urls: Vec<_> = self.places.iter().zip(ports).map(url).collect();
        format!("{}{}", self.scheme, urls.join(","))
    }

    /// The port of a server.
    pub(super) fn port(&self, server: usize) -> u16 {
        self.places[server].port
    }

    pub(super) fn options(&self) -> NatsOptions {
        let options = NatsOptions::parse(&self.url()).expect("a right address");
        let (credentials, ca) = (self.credentials.clone(), self.ca.clone());
        let [cert, key] = self.own.clone().map_or([None, None], |files| files.map(Some));
        NatsOptions { credentials, ca, cert, key, ..options }
    }

    pub(super) fn pid(&self, server: usize) -> u32 {
        self.processes[server].pid()
    }

    /// Stops a server, which then answers nothing.
    pub(super) fn stop(&self, server: usize) {
        stop(self.pid(server));
    }

    pub(super) fn go_on(&self, server: usize) {
        go_on(self.pid(server));
    }

    /// Kills a server, takes its disk away, and starts it again.
    pub(super) fn lose(&mut self, server: usize) {
        self.processes[server].kill();
        fs::remove_dir_all(self.folder.path().join(format!("n{server}"))).expect("its folder");
        self.processes[server] = self.spawn(server);
        self.listens(server);
    }

    /// Kills a server, as a power cut does.
    pub(super) fn kill(&mut self, server: usize) {
        self.processes[server].kill();
    }

    /// Kills a server, as a power cut does, and starts it again in its folder.
    pub(super) fn restart(&mut self, server: usize) {
        self.processes[server].kill();
        self.processes[server] = self.spawn(server);
        self.listens(server);
    }
}

impl Place {
    fn route(&self) -> String {
        format!("nats://{}:{}", self.address, self.route)
    }

    fn inside<T>(&self, body: impl FnOnce() -> T) -> T {
        match &self.network {
            Some(network) => network.inside(body),
            None => body(),
        }
    }
}
