//! NATS servers for one test: one alone, or three as a cluster, each with a folder and ports of its own.

use std::fs::File;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use gridpool_client::NatsOptions;
use tempfile::TempDir;

use crate::processes::Process;
use crate::wait::eventually_so;

/// If it is set, a missing nats-server is a failure.
const REQUIRED: &str = "GRIDPOOL_REQUIRE_NATS_SERVER";

/// Whether there is a nats-server; says so if there is none.
#[expect(clippy::print_stdout, reason = "the test says that it was skipped")]
pub(super) fn are_there() -> bool {
    let found = Command::new("nats-server").arg("--version").stdout(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        assert!(
            std::env::var_os(REQUIRED).is_none(),
            "{REQUIRED} is set and there is no nats-server: apt-get install nats-server"
        );
        println!("skipped: there is no nats-server (apt-get install nats-server)");
    }
    is_there
}

/// The servers; killed when dropped.
pub(super) struct Servers {
    ports: Vec<u16>,
    routes: Vec<u16>,
    processes: Vec<Process>,
    folder: TempDir,
}

impl Servers {
    /// Starts so many, and waits until they serve.
    pub(super) fn start(count: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let all = free_ports(2 * count);
        let (ports, routes) = (all[..count].to_vec(), all[count..].to_vec());
        let mut servers = Self { ports, routes, processes: Vec::new(), folder };
        servers.processes = (0..count).map(|server| servers.spawn(server)).collect();
        (0..count).for_each(|server| servers.listens(server));
        servers
    }

    fn spawn(&self, server: usize) -> Process {
        let name = format!("n{server}");
        let folder = self.folder.path().join(&name);
        let log = self.folder.path().join(format!("{name}.log"));
        let log = File::options().create(true).append(true).open(log);
        let log = log.expect("a log can be opened");
        let mut command = Command::new("nats-server");
        command.arg("-js").arg("-sd").arg(folder).args(["-a", "127.0.0.1", "-n", &name]);
        command.args(["-p", &self.ports[server].to_string()]);
        if self.routes.len() > 1 {
            let url = |port: &u16| format!("nats://127.0.0.1:{port}");
            let routes: Vec<_> = self.routes.iter().map(url).collect();
            command.args(["--cluster_name", "test", "--cluster", &routes[server]]);
            command.args(["--routes", &routes.join(",")]);
        }
        let copy = log.try_clone().expect("a descriptor");
        command.stdin(Stdio::null()).stdout(copy).stderr(log);
        Process::new(command.spawn().expect("nats-server starts"))
    }

    /// Waits until a server accepts connections.
    fn listens(&self, server: usize) {
        let at = ("127.0.0.1", self.ports[server]);
        eventually_so("a NATS server", || std::net::TcpStream::connect(at).is_ok());
    }

    /// Their addresses, as flags name them.
    pub(super) fn url(&self) -> String {
        let url = |port: &u16| format!("127.0.0.1:{port}");
        format!("nats://{}", self.ports.iter().map(url).collect::<Vec<_>>().join(","))
    }

    pub(super) fn options(&self) -> NatsOptions {
        NatsOptions::parse(&self.url()).expect("a right address")
    }

    pub(super) fn pid(&self, server: usize) -> u32 {
        self.processes[server].pid()
    }

    /// Kills a server, as a power cut does, and starts it again in its folder.
    pub(super) fn restart(&mut self, server: usize) {
        self.processes[server].kill();
        self.processes[server] = self.spawn(server);
        self.listens(server);
    }
}

/// Ports that are free now. Another process may take one before the server does; then the test fails.
fn free_ports(count: usize) -> Vec<u16> {
    let listen = |_| TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listeners: Vec<_> = (0..count).map(listen).collect();
    let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
    listeners.iter().map(port).collect()
}
