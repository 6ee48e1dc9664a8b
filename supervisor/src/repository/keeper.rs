//! Loads and unloads what a repository has, models side by side: when it changes, or when a client asks.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::message::{Refusal, RepositoryCommand};
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::version::split;

use super::pool::{Asked, FileOf, Pool};
use super::turns::Turns;
use super::watch::Watch;
use super::{Repository, RepositoryMode, scan};

/// Called with the result of a request.
type Answer = Box<dyn FnOnce(Result<String, Refusal>) + Send>;

enum Order {
    /// A client asks.
    Request(RepositoryCommand, Answer),
    /// The repository has changed; these files are not whole yet.
    Changed(BTreeSet<PathBuf>),
    /// The work of a model has ended.
    Ended { name: String, news: Option<News> },
}

/// What is to be done about a model.
enum Work {
    /// A client asks.
    Load(RepositoryCommand, Answer),
    /// It is to serve as the repository has it. These files are not whole yet.
    Follow(Arc<BTreeSet<PathBuf>>),
    /// It has left the repository.
    Leave,
}

/// What became of a model that was followed.
enum News {
    /// It serves as it should; a sentence, if something was done.
    Followed(String),
    /// It does not.
    Failed(String),
    /// It was unloaded, because it has left.
    Left(Result<String, String>),
}

/// The thread that keeps the pool's models as the repository has them.
#[derive(Debug)]
pub(crate) struct Keeper {
    orders: Sender<Order>,
    mode: RepositoryMode,
}

impl Keeper {
    /// Follows a repository, for the pool at `socket`, which has these models now; `file_of` says which file the model
    /// of a full name has, if the pool is to have it.
    pub(crate) fn start(
        repository: Repository,
        socket: PathBuf,
        has: &[ModelPlan],
        file_of: FileOf,
    ) -> io::Result<Self> {
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
        let own = has.iter().filter(|plan| plan.path.starts_with(&folder));
        let known = own.map(|plan| split(&plan.name).0.to_owned()).collect();
        let pool = Arc::new(Pool::new(folder, socket, has, file_of));
        let (turns, ended) = (Turns::default(), orders.clone());
        let keeping = Keeping { pool, turns, ended, known, said: BTreeMap::new() };
        thread::Builder::new().name("keeper".into()).spawn(move || keeping.run(&received))?;
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

/// The state of the keeper's thread.
struct Keeping {
    pool: Arc<Pool>,
    turns: Turns<Work>,
    /// Where the threads of models say that they have ended.
    ended: Sender<Order>,
    /// Models that the repository had before.
    known: BTreeSet<String>,
    /// The last complaint about each model, so that it stands in the log once.
    said: BTreeMap<String, String>,
}

impl Keeping {
    fn run(mut self, orders: &Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Request(command, answer) => {
                    let name = command.name().to_owned();
                    match command {
                        RepositoryCommand::Load { .. } => {
                            self.turns.push(name, Work::Load(command, answer));
                        }
                        // It may end a load that is under way.
                        RepositoryCommand::Unload { .. } => self.unload(name, answer),
                    }
                }
                Order::Changed(unfinished) => self.follow(unfinished),
                Order::Ended { name, news } => {
                    self.turns.end(&name);
                    self.tell(name, news);
                }
            }
            while let Some((name, work)) = self.turns.begin() {
                self.begin(name, work);
            }
        }
    }

    /// Does the work of a model on a thread of its own: it may take long.
    fn begin(&self, name: String, work: Work) {
        let (pool, ended, own) = (Arc::clone(&self.pool), self.ended.clone(), name.clone());
        let body = move || {
            let news = pool.work(&own, work);
            // Without the keeper nobody waits for it.
            drop(ended.send(Order::Ended { name: own, news }));
        };
        if let Err(error) = thread::Builder::new().name("load".into()).spawn(body) {
            let news = Some(News::Failed(format!("a thread to load it: {error}")));
            drop(self.ended.send(Order::Ended { name, news }));
        }
    }

    fn unload(&self, name: String, answer: Answer) {
        let pool = Arc::clone(&self.pool);
        let (answer, own) = (Arc::new(Mutex::new(Some(answer))), name.clone());
        let late = Arc::clone(&answer);
        let tell = move |result| {
            if let Some(answer) = answer.lock().take() {
                answer(result);
            }
        };
        let body = move || tell(pool.perform(&RepositoryCommand::Unload { name: own }));
        if let Err(error) = thread::Builder::new().name("unload".into()).spawn(body)
            && let Some(answer) = late.lock().take()
        {
            answer(Err(Refusal::Unable(format!("a thread to unload `{name}`: {error}"))));
        }
    }

    /// The repository has changed: the pool follows.
    fn follow(&mut self, unfinished: BTreeSet<PathBuf>) {
        let scan::Names { models: names, others } = match scan::names(&self.pool.folder) {
            Ok(names) => names,
            Err(error) => return self.complain("", error.to_string()),
        };
        self.said.remove("");
        for (name, error) in others {
            self.complain(&name, error.to_string());
        }
        let unfinished = Arc::new(unfinished);
        for name in &names {
            // What waits looks at the folder when it begins, and has to know which files are whole by then.
            let follow = Work::Follow(Arc::clone(&unfinished));
            match self.turns.waiting(name, |work| matches!(work, Work::Follow(_))) {
                Some(waiting) => *waiting = follow,
                None => self.turns.push(name.clone(), follow),
            }
        }
        let gone = self.known.iter().filter(|name| !names.contains(name));
        for name in gone.cloned().collect::<Vec<_>>() {
            self.known.remove(&name);
            self.turns.push(name, Work::Leave);
        }
    }

    fn tell(&mut self, name: String, news: Option<News>) {
        match news {
            None => {}
            Some(News::Followed(said)) => {
                self.said.remove(&name);
                if !said.is_empty() {
                    tracing::info!(model = name, "{said}");
                }
                self.known.insert(name);
            }
            Some(News::Left(Ok(said))) => tracing::info!(model = name, "{said}"),
            Some(News::Failed(why) | News::Left(Err(why))) => self.complain(&name, why),
        }
    }

    fn complain(&mut self, name: &str, why: String) {
        if self.said.get(name) != Some(&why) {
            tracing::warn!(model = name, "model repository: {why}");
            self.said.insert(name.to_owned(), why);
        }
    }
}

impl Pool {
    fn work(&self, name: &str, work: Work) -> Option<News> {
        match work {
            Work::Load(command, answer) => {
                answer(self.perform(&command));
                None
            }
            Work::Follow(unfinished) => match scan::model(&self.folder, name) {
                // It comes again when the file is closed.
                Ok(found) if found.versions.iter().any(|plan| unfinished.contains(&plan.path)) => {
                    None
                }
                Ok(found) => Some(match self.settle(name, &found.versions, Asked::ByChange) {
                    Ok(said) => News::Followed(said),
                    Err(error) => News::Failed(Chain(&error).to_string()),
                }),
                // It may be on its way.
                Err(error) => Some(News::Failed(error.to_string())),
            },
            // An operator may have unloaded it.
            Work::Leave if !self.has_loaded(name) => None,
            Work::Leave => {
                Some(News::Left(self.unload(name).map_err(|error| Chain(&error).to_string())))
            }
        }
    }
}
