//! Networks for one test: places that are connected by a bridge, each in a network namespace of its own, so that any
//! of them can be cut off. Nothing of it has a name outside of this process, and all of it ends with this process.

use std::fs::File;
use std::io;
use std::process::{Command, id};
use std::rc::Rc;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use std::os::fd::AsRawFd;

/// The link address that nobody has.
const NOBODY: &str = "02:00:00:00:00:01";
/// The bridge that connects all, and another.
const BRIDGES: [&str; 2] = ["bridge0", "bridge1"];

/// A network namespace; it ends with this value and the processes in it.
#[derive(Debug)]
pub(super) struct Namespace {
    file: File,
}

impl Namespace {
    fn new() -> io::Result<Self> {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Self::here()
        });
        made.join().expect("it does not panic")
    }

    /// That of this thread.
    fn here() -> io::Result<Self> {
        Ok(Self { file: File::open("/proc/thread-self/ns/net")? })
    }

    fn enter(&self) {
        setns(&self.file, CloneFlags::CLONE_NEWNET).expect("this process may enter it");
    }

    /// Does something there: also its threads and processes are there.
    pub(super) fn inside<T>(&self, body: impl FnOnce() -> T) -> T {
        /// Goes back at the end, also of a test that fails.
        struct Back(Namespace);
        impl Drop for Back {
            fn drop(&mut self) {
                self.0.enter();
            }
        }
        let _back = Back(Self::here().expect("this thread has a network"));
        self.enter();
        body()
    }

    /// A path that names it to other processes.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", id(), self.file.as_raw_fd())
    }

    fn ip(&self, arguments: &str) -> Result<(), String> {
        let said = self.inside(|| Command::new("ip").args(arguments.split(' ')).output());
        match said {
            Ok(said) if said.status.success() => Ok(()),
            Ok(said) => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&said.stderr))),
            Err(error) => Err(format!("ip {arguments}: {error}")),
        }
    }
}

/// Places that reach each other.
#[derive(Debug)]
pub(super) struct Network {
    hub: Namespace,
    places: Vec<Rc<Namespace>>,
}

impl Network {
    /// So many places. Where the system allows no such networks, it says so, and there is none.
    ///
    /// # Panics
    /// If there is none and `GRIDPOOL_REQUIRE_NETWORKS` is set.
    #[expect(clippy::print_stdout, reason = "a test that does nothing says so")]
    pub(super) fn start(places: usize) -> Option<Self> {
        match Self::made(places) {
            Ok(network) => Some(network),
            Err(why) => {
                let required = std::env::var_os("GRIDPOOL_REQUIRE_NETWORKS").is_some();
                assert!(!required, "GRIDPOOL_REQUIRE_NETWORKS is set, and {why}");
                println!("skipped: this test needs root, `ip` and network namespaces: {why}");
                None
            }
        }
    }

    fn made(places: usize) -> Result<Self, String> {
        let namespace = || Namespace::new().map_err(|error| format!("no namespace: {error}"));
        let hub = namespace()?;
        for bridge in BRIDGES {
            hub.ip(&format!("link add {bridge} type bridge"))?;
            hub.ip(&format!("link set {bridge} up"))?;
        }
        let mut network = Self { hub, places: Vec::new() };
        for place in 0..places {
            let (at, hub) = (namespace()?, &network.hub);
            let link = format!("link add p{place} type veth peer name eth0 netns {}", at.path());
            hub.ip(&link)?;
            hub.ip(&format!("link set p{place} master {} up", BRIDGES[0]))?;
            at.ip("link set lo up")?;
            at.ip(&format!("addr add {}/24 dev eth0", Self::address(place)))?;
            at.ip("link set eth0 up")?;
            network.places.push(Rc::new(at));
        }
        Ok(network)
    }

    /// The address of a place.
    pub(super) fn address(place: usize) -> String {
        format!("10.77.0.{}", place + 1)
    }

    /// The namespace of a place.
    pub(super) fn at(&self, place: usize) -> &Rc<Namespace> {
        &self.places[place]
    }

    /// Cuts a place off. The cable is there: neither end notices.
    pub(super) fn cut(&self, place: usize) {
        self.does(&format!("link set p{place} nomaster"));
    }

    /// Pulls the cable of a place, which it notices.
    pub(super) fn pull(&self, place: usize) {
        self.does(&format!("link set p{place} down"));
    }

    /// Takes places apart: they reach each other and nobody else.
    pub(super) fn part(&self, places: &[usize]) {
        for place in places {
            self.does(&format!("link set p{place} master {}", BRIDGES[1]));
        }
    }

    /// Whatever a place sends is lost; it hears everything.
    pub(super) fn mute(&self, place: usize) {
        self.neighbours(place, &format!("replace {{}} lladdr {NOBODY} dev eth0 nud permanent"));
    }

    /// What was done to a place by [`Self::mute`] is over.
    pub(super) fn unmute(&self, place: usize) {
        self.neighbours(place, "del {} dev eth0");
    }

    /// The place is connected with all others.
    pub(super) fn join(&self, place: usize) {
        self.does(&format!("link set p{place} master {} up", BRIDGES[0]));
    }

    fn neighbours(&self, place: usize, what: &str) {
        for other in (0..self.places.len()).filter(|&other| other != place) {
            let what = what.replace("{}", &Self::address(other));
            self.places[place].ip(&format!("neigh {what}")).expect("a neighbour");
        }
    }

    fn does(&self, what: &str) {
        self.hub.ip(what).expect("the bridge takes it");
    }
}
