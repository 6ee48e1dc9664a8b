//! What the model repository has besides the models that the pool knows. The supervisor reads it, perhaps from a disk
//! that does not answer: then the index has what was read last, and says so.

use std::sync::Arc;
use std::time::Instant;

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Server;
use super::blocking::run_blocking;
use super::desk::Desk;
use super::failure::Failure;
use super::limits::STATUS_TIMEOUT;
use super::observer::PoolView;
use crate::repository::{Listed, Listing};

/// The repository, as it was read last.
#[derive(Debug)]
pub(super) struct Repository {
    desk: Desk,
    /// Held by the one who asks. No more than one thread waits for a disk.
    turn: Arc<tokio::sync::Mutex<()>>,
    latest: Mutex<Option<Read>>,
}

#[derive(Clone, Debug)]
struct Read {
    /// The time just before.
    began: Instant,
    listing: Arc<Listing>,
}

impl Repository {
    pub(super) fn new(desk: Desk) -> Arc<Self> {
        Arc::new(Self { desk, turn: Arc::default(), latest: Mutex::default() })
    }

    fn latest(&self) -> Option<Read> {
        self.latest.lock().clone()
    }

    /// The repository as it is now. Those who wait for their turn share what is read in the next one.
    async fn read(self: &Arc<Self>) -> Result<Arc<Listing>, Failure> {
        let asked = clock::now();
        let turn = Arc::clone(&self.turn).lock_owned().await;
        if let Some(read) = self.latest().filter(|read| read.began >= asked) {
            return Ok(read.listing);
        }
        let own = Arc::clone(self);
        run_blocking(move || {
            let _turn = turn;
            let began = clock::now();
            let (listing, _) = own.desk.ask::<Listing>(&())?;
            let listing = Arc::new(listing);
            *own.latest.lock() = Some(Read { began, listing: Arc::clone(&listing) });
            Ok(listing)
        })
        .await
    }

    /// The repository as far as it is known in time, and what is wrong with that.
    async fn listing(self: &Arc<Self>) -> (Arc<Listing>, Option<String>) {
        let why = match timeout(STATUS_TIMEOUT, self.read()).await {
            Ok(Ok(listing)) => {
                let lacks = listing.lacks.clone();
                return (listing, lacks);
            }
            Ok(Err(failure)) => {
                format!("the model repository cannot be read: {}", failure.message())
            }
            Err(_) => "the model repository does not answer in time".to_owned(),
        };
        match self.latest() {
            Some(read) => (read.listing, Some(format!("{why}: this is how it was before"))),
            None => (Arc::default(), Some(why)),
        }
    }
}

impl Server {
    /// The rows of the index for what the pool is to have, or the repository has, and no worker has had.
    pub(super) async fn never_loaded(&self, view: &PoolView) -> Vec<Value> {
        let unknown = |(name, version): (&str, u32)| {
            let (state, why) = view.why_unknown(name, version);
            row(name, version.to_string(), state, &why)
        };
        let coming: Vec<_> = view.coming().collect();
        let mut rows: Vec<_> = coming.iter().copied().map(unknown).collect();
        let Some(repository) = &self.repository else { return rows };
        let (listing, lacks) = repository.listing().await;
        for Listed { name, versions } in &listing.models {
            let known = view.catalogue.versions(name).map(|own| own.version());
            let own = coming.iter().filter(|(other, _)| other == name).map(|&(_, version)| version);
            let known: Vec<_> = known.chain(own).collect();
            match versions {
                Ok(versions) => {
                    let new = versions.iter().filter(|version| !known.contains(version));
                    rows.extend(new.map(|&version| unknown((name, version))));
                }
                Err(why) if known.is_empty() => {
                    rows.push(row(name, String::new(), UNAVAILABLE, why));
                }
                Err(_) => {}
            }
        }
        // Of no model: it says why there may be others.
        rows.extend(lacks.map(|why| row("", String::new(), UNAVAILABLE, &why)));
        rows
    }
}

/// A row of the index.
fn row(name: &str, version: String, state: &str, reason: &str) -> Value {
    json!({ "name": name, "version": version, "state": state, "reason": reason })
}

/// The state of what cannot be used.
pub(super) const UNAVAILABLE: &str = "UNAVAILABLE";

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    use gridpool_ipc::frame::{self, FrameReader};

    use super::*;

    /// A repository whose supervisor says that it is asked, and answers with what it is then given.
    fn asked_of(said: Sender<()>, listings: Receiver<Listing>) -> Arc<Repository> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            let mut reader = FrameReader::new(ours);
            while let Ok(Some(_)) = reader.read(None) {
                said.send(()).unwrap();
                let Ok(listing) = listings.recv() else { return };
                let bytes = frame::of(&listing, 0).unwrap();
                frame::send_all(reader.socket(), &bytes, &[]).unwrap();
            }
        });
        Repository::new(Desk::new(theirs))
    }

    fn of(name: &str) -> Listing {
        let model = Listed { name: name.to_owned(), versions: Ok(vec![1]) };
        Listing { models: vec![model], lacks: None }
    }

    #[tokio::test]
    async fn those_who_wait_share_what_is_read_next_and_a_lost_repository_is_as_it_was() {
        let ((says, said), (give, given)) = (channel(), channel());
        let repository = asked_of(says, given);
        let first = tokio::spawn({
            let own = Arc::clone(&repository);
            async move { own.listing().await }
        });
        let said = tokio::task::spawn_blocking(move || {
            said.recv().unwrap();
            said
        });
        let said = said.await.unwrap();
        let both = tokio::spawn({
            let own = Arc::clone(&repository);
            async move { tokio::join!(own.listing(), own.listing()) }
        });
        tokio::task::yield_now().await;
        give.send(of("a")).unwrap();
        give.send(of("b")).unwrap();
        assert_eq!(first.await.unwrap(), (Arc::new(of("a")), None));
        let later = (Arc::new(of("b")), None);
        assert_eq!(both.await.unwrap(), (later.clone(), later));
        assert_eq!((said.recv(), said.try_recv().is_err()), (Ok(()), true), "asked once for both");
        drop(give);
        let (listing, why) = repository.listing().await;
        assert_eq!(*listing, of("b"));
        let why = why.unwrap();
        assert!(why.starts_with("the model repository cannot be read: "), "{why}");
        assert!(why.ends_with(": this is how it was before"), "{why}");
    }

    #[tokio::test]
    async fn a_repository_that_does_not_answer_is_said_so() {
        let ((says, _said), (_give, given)) = (channel(), channel());
        let (listing, why) = asked_of(says, given).listing().await;
        assert_eq!(listing.models, []);
        assert_eq!(why.unwrap(), "the model repository does not answer in time");
    }
}
