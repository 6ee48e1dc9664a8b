//! `gridpool top --nats`: a live view of a cluster: its hosts with their devices and rates, what waits in the stream,
//! and what is convicted. It gives no orders: those go to one pool, on its host.

mod history;
mod view;

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gridpool_ipc::clock;
use gridpool_nats::{Cluster, ClusterStatus, HOST_EVERY, NatsError, NatsOptions};
use gridpool_protocol::chain::Chain;

use super::input::Key;
use super::screen::Screen;
use super::{CommandError, Heard, LATE_AFTER, Next, Shown, late_in, on_terminal, pass};
use history::{History, Picture};
use view::{Scene, plain};

/// Between two tries to reach servers that do not answer.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Every host has spoken once more after this time.
const SPOKEN_AFTER: Duration = HOST_EVERY.saturating_add(Duration::from_millis(500));

/// The cluster's answer, or why there is none.
type Word = Result<Box<ClusterStatus>, String>;

/// Shows a cluster until the operator quits; without a terminal, once.
pub(super) fn run(
    every: Duration,
    options: &NatsOptions,
    is_terminal: bool,
) -> Result<u8, CommandError> {
    let cluster = Cluster::connect(options)?;
    let servers = options.shown();
    if !is_terminal {
        return once(&cluster, every, &servers);
    }
    let show = |colors| Show {
        every,
        colors,
        servers,
        history: History::default(),
        picture: None,
        heard_at: clock::now(),
        trouble: None,
        first: Cell::new(0),
        helps: false,
        paused: false,
    };
    on_terminal(show, |tell| {
        let body = move || watch(&cluster, every, &tell);
        thread::Builder::new().name("watch".into()).spawn(body).map(drop)
    })
}

/// Two snapshots, for the rates, and what they show.
fn once(cluster: &Cluster, every: Duration, servers: &str) -> Result<u8, CommandError> {
    let mut history = History::default();
    history.snapshot(cluster.status()?);
    pass(every.max(SPOKEN_AFTER));
    let picture = history.snapshot(cluster.status()?);
    super::super::print(|out| {
        plain(&picture, servers).iter().try_for_each(|line| writeln!(out, "{line}"))
    })
}

/// The body of the thread that asks the cluster. It ends with the display.
fn watch(cluster: &Cluster, every: Duration, tell: &Sender<Heard<Word>>) {
    let mut next = clock::now();
    loop {
        let (word, wait) = match cluster.status() {
            Ok(status) => (Ok(Box::new(status)), every),
            Err(error) => (Err(said(&error)), RETRY_EVERY.max(every)),
        };
        if tell.send(Heard::Word(word)).is_err() {
            return;
        }
        // A missed snapshot is not made up for.
        next = (next + wait).max(clock::now());
        pass(clock::until(next));
    }
}

fn said(error: &NatsError) -> String {
    format!("{} (trying again)", Chain(error))
}

/// The state of the display.
struct Show {
    every: Duration,
    colors: bool,
    servers: String,
    history: History,
    picture: Option<Picture>,
    /// When the cluster last answered.
    heard_at: Instant,
    trouble: Option<String>,
    /// The first line of the body that is shown; drawing lowers it to what there is.
    first: Cell<usize>,
    helps: bool,
    paused: bool,
}

impl Shown<Word> for Show {
    fn draw(&self, screen: &mut Screen) -> std::io::Result<()> {
        let silent = self.heard_at.elapsed();
        let late = (silent > self.every + LATE_AFTER)
            .then(|| format!("the NATS servers have not answered for {} s", silent.as_secs()));
        let trouble = match (late, &self.trouble) {
            (Some(late), Some(why)) => Some(format!("{late}: {why}")),
            (late, why) => late.or_else(|| why.clone()),
        };
        let scene = Scene {
            picture: self.picture.as_ref(),
            servers: &self.servers,
            trouble: trouble.as_deref(),
            first: self.first.get(),
            helps: self.helps,
            paused: self.paused,
            colors: self.colors,
        };
        screen.draw(|area, buffer| self.first.set(view::draw(&scene, area, buffer)))
    }

    fn timeout(&self) -> Duration {
        late_in(self.every, self.heard_at)
    }

    fn press(&mut self, key: Key) -> Next {
        match key {
            Key::Interrupt | Key::Char('q' | 'Q') => return Next::End,
            Key::Escape if !self.helps => return Next::End,
            Key::Escape => self.helps = false,
            Key::Redraw => return Next::Repaint,
            Key::Char('?' | 'h') => self.helps = !self.helps,
            Key::Char('p' | ' ') => self.paused = !self.paused,
            Key::Up => self.first.set(self.first.get().saturating_sub(1)),
            Key::Down => {
                let last = self.picture.as_ref().map_or(0, |picture| view::rows(picture).len());
                self.first.set((self.first.get() + 1).min(last.saturating_sub(1)));
            }
            Key::First => self.first.set(0),
            Key::Last => {
                let last = self.picture.as_ref().map_or(0, |picture| view::rows(picture).len());
                self.first.set(last.saturating_sub(1));
            }
            Key::Char(_) => {}
        }
        Next::GoOn
    }

    fn hear(&mut self, word: Word) {
        match word {
            Ok(status) => {
                self.heard_at = clock::now();
                // Taken in while the picture is paused, so that rates are right afterwards.
                let picture = self.history.snapshot(*status);
                self.trouble = None;
                if !self.paused || self.picture.is_none() {
                    self.picture = Some(picture);
                }
            }
            Err(why) => self.trouble = Some(why),
        }
    }
}
