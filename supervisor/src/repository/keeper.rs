//! Loads and unloads what a repository has, one model at a time: when it changes, or when a client asks.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use gridpool_client::{Client, ClientError, ModelState};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::message::{Refusal, RepositoryCommand};
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::version::{VERSION_MARK, split};

use super::watch::Watch;
use super::{Repository, RepositoryMode, scan};

/// Called with the result of a request.
type Answer = Box<dyn FnOnce(Result<String, Refusal>) + Send>;

enum Order {
    /// A client asks.
    Request(RepositoryCommand, Answer),
    /// The repository has changed; these files are not whole yet.
    Changed(BTreeSet<PathBuf>),
}

/// The thread that keeps the pool's models as the repository has them.
#[derive(Debug)]
pub(crate) struct Keeper {
    orders: Sender<Order>,
    mode: RepositoryMode,
}

impl Keeper {
    /// Follows a repository, for the pool at `socket`.
    pub(crate) fn start(repository: Repository, socket: PathBuf) -> io::Result<Self> {
        let folder = std::path::absolute(&repository.folder)?;
        let (orders, received) = mpsc::channel();
        let mode = repository.mode;
        if mode == RepositoryMode::Poll {
            // What changed since the pool's settings were read.
            drop(orders.send(Order::Changed(BTreeSet::new())));
            // It is watched before it is read again, so that no change is missed.
            let mut watch = Watch::start(&folder)?;
            let changed = orders.clone();
            thread::Builder::new().name("repository".into()).spawn(move || {
                loop {
                    let unfinished = match watch.next() {
                        Ok(unfinished) => unfinished,
                        Err(error) => {
                            tracing::error!(%error, "the model repository is watched no more");
                            return;
                        }
                    };
                    if changed.send(Order::Changed(unfinished)).is_err() {
                        return;
                    }
                }
            })?;
        }
        let work = Work { folder, socket, known: BTreeSet::new(), said: BTreeMap::new() };
        thread::Builder::new().name("keeper".into()).spawn(move || work.run(&received))?;
        Ok(Self { orders, mode })
    }

    /// Does what a client asks, and calls `answer` when it is done.
    pub(crate) fn ask(
        &self,
        command: RepositoryCommand,
        answer: impl FnOnce(Result<String, Refusal>) + Send + 'static,
    ) {
        match self.mode {
            RepositoryMode::Request => {
                let order = Order::Request(command, Box::new(answer));
                if let Err(mpsc::SendError(Order::Request(_, answer))) = self.orders.send(order) {
                    answer(Err(Refusal::Unable(
                        "the model repository is followed no more".to_owned(),
                    )));
                }
            }
            RepositoryMode::Poll | RepositoryMode::Start => {
                answer(Err(Refusal::NotAllowed(NOT_BY_REQUEST.to_owned())));
            }
        }
    }
}

/// Why a request for a change is refused.
pub(crate) const NOT_BY_REQUEST: &str = "models are not loaded or unloaded on request: the pool was not started with \
                                         --model-repository DIR --repository request";

struct Work {
    folder: PathBuf,
    socket: PathBuf,
    /// Models that the repository had before.
    known: BTreeSet<String>,
    /// The last complaint about each model, so that it stands in the log once.
    said: BTreeMap<String, String>,
}

impl Work {
    fn run(mut self, orders: &Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Request(command, answer) => {
                    let result = self.perform(&command);
                    answer(result);
                }
                Order::Changed(mut unfinished) => {
                    let mut requests = Vec::new();
                    // Of many changes only the last look counts.
                    for next in orders.try_iter() {
                        match next {
                            Order::Changed(later) => unfinished = later,
                            Order::Request(command, answer) => requests.push((command, answer)),
                        }
                    }
                    self.follow(&unfinished);
                    for (command, answer) in requests {
                        answer(self.perform(&command));
                    }
                }
            }
        }
    }

    fn perform(&mut self, command: &RepositoryCommand) -> Result<String, Refusal> {
        let unable = |error: ClientError| match error {
            ClientError::Refused(refusal) => refusal,
            other => Refusal::Unable(Chain(&other).to_string()),
        };
        match command {
            RepositoryCommand::Load { name } => {
                let found = scan::model(&self.folder, name)
                    .map_err(|error| Refusal::Invalid(error.to_string()))?;
                found.warnings.iter().for_each(|why| tracing::warn!("{why}"));
                let said = self.settle(name, &found.versions).map_err(unable)?;
                Ok(if said.is_empty() { format!("`{name}` serves as it should") } else { said })
            }
            RepositoryCommand::Unload { name } => {
                let names = scan::names(&self.folder)
                    .map_err(|error| Refusal::Unable(error.to_string()))?;
                if !names.contains(name) {
                    return Err(Refusal::Invalid(format!("the repository has no model `{name}`")));
                }
                self.client().and_then(|client| client.unload_model(name)).map_err(unable)
            }
        }
    }

    /// The repository has changed: the pool follows.
    fn follow(&mut self, unfinished: &BTreeSet<PathBuf>) {
        let names = match scan::names(&self.folder) {
            Ok(names) => names,
            Err(error) => return self.complain("", error.to_string()),
        };
        for name in &names {
            let followed = match scan::model(&self.folder, name) {
                // It comes again when the file is closed.
                Ok(found) if found.versions.iter().any(|plan| unfinished.contains(&plan.path)) => {
                    continue;
                }
                Ok(found) => {
                    self.known.insert(name.clone());
                    self.settle(name, &found.versions).map_err(|error| Chain(&error).to_string())
                }
                // It may be on its way.
                Err(error) => Err(error.to_string()),
            };
            match followed {
                Ok(said) => {
                    self.said.remove(name);
                    if !said.is_empty() {
                        tracing::info!(model = name, "{said}");
                    }
                }
                Err(why) => self.complain(name, why),
            }
        }
        let gone: Vec<_> =
            self.known.iter().filter(|name| !names.contains(name)).cloned().collect();
        for name in gone {
            match self.client().and_then(|client| client.unload_model(&name)) {
                Ok(said) => tracing::info!(model = name, "{said}"),
                Err(error) => self.complain(&name, Chain(&error).to_string()),
            }
            self.known.remove(&name);
        }
    }

    fn complain(&mut self, name: &str, why: String) {
        if self.said.get(name) != Some(&why) {
            tracing::warn!(model = name, "model repository: {why}");
            self.said.insert(name.to_owned(), why);
        }
    }

    /// Loads the versions that should serve and do not, the lowest first, then unloads those that should not. So a
    /// later version takes over before the one before it goes. Returns what was done; nothing if nothing was.
    fn settle(&mut self, name: &str, versions: &[ModelPlan]) -> Result<String, ClientError> {
        let client = self.client()?;
        let rows = client.models()?;
        let own = || rows.iter().map(|row| &row.model).filter(|info| split(&info.name).0 == name);
        let has = |full: &str, state| own().any(|info| info.name == full && info.state == state);
        let mut said = Vec::new();
        let mut failed = None;
        for plan in versions {
            if has(&plan.name, ModelState::Ready) {
                continue;
            }
            let number = split(&plan.name).1;
            // Without its number the first version would be the next one.
            let typed = format!("{name}{VERSION_MARK}{number}");
            if has(&plan.name, ModelState::Unavailable) {
                said.push(client.unload_model(&typed)?);
            }
            match client.load_model(ModelPlan { name: typed, ..plan.clone() }) {
                Ok(done) => said.push(done),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let stays = |full: &str| versions.iter().any(|plan| plan.name == full);
        let extra: BTreeSet<_> = own().map(|info| &info.name).filter(|full| !stays(full)).collect();
        for full in extra {
            let typed = format!("{name}{VERSION_MARK}{}", split(full).1);
            said.push(client.unload_model(&typed)?);
        }
        Ok(said.join("; "))
    }

    /// A connection to the pool, which is its own.
    fn client(&self) -> Result<Client, ClientError> {
        Client::builder().socket(&self.socket).spin(Duration::ZERO).connect()
    }
}
