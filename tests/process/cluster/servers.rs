//! NATS servers for one test: one alone, or three as a cluster, each with a folder and ports of its own.

use std::fs::File;
use std::process::{Command, Stdio};

use gridpool_client::NatsOptions;
use tempfile::TempDir;

use crate::binaries::is_installed;
use crate::processes::{Process, free_ports};
use crate::wait::eventually_so;

/// Whether there is a nats-server; says so if there is none.
pub(super) fn are_there() -> bool {
    is_installed("nats-server", "nats-server", "GRIDPOOL_REQUIRE_NATS_SERVER")
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
