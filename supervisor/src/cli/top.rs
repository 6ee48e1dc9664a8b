//! `gridpool top`: a running pool at a glance, again and again, with keys for what an operator does
//! about what he sees.
//!
//! Four threads, each of which sleeps until there is something for it: one waits for keys, one for
//! signals, one for the pool ([`watch`]), and the first draws whatever has changed. What looks mean is
//! in [`model`], what keys mean in [`desk`], what stands where in [`view`]; none of these knows a
//! terminal, a clock or the pool.

mod columns;
mod desk;
mod model;
mod plain;
mod screen;
mod view;
mod watch;
mod words;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gridpool_protocol::client::ClientError;
use gridpool_protocol::clock;
use gridpool_protocol::exit::cli as exit;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use ratatui::crossterm::event;

use super::{CommandError, show, system};
use desk::{Deed, Desk, Order};
use model::{History, Picture};
use screen::{Input, Screen};
use view::Scene;
use watch::{Pool, Word};

#[cfg(test)]
pub(super) use model::tests::worker as a_worker;

/// Looks come no faster and no slower than that, seconds.
const EVERY_MIN: f64 = 0.1;
const EVERY_MAX: f64 = 3_600.0;
/// A look that is so late is said to be.
const LATE_AFTER: Duration = Duration::from_secs(3);
/// How often it is said how late.
const LATE_EVERY: Duration = Duration::from_secs(1);
/// Orders that the pool has not been told yet: more are refused.
const ORDERS_MAX: usize = 4;

/// What may be typed after `gridpool top`.
#[derive(Debug, Args)]
pub(super) struct TopFlags {
    /// Seconds from one look at the pool to the next.
    #[arg(long, value_name = "SECONDS", default_value = "1", env = "GRIDPOOL_EVERY")]
    #[arg(value_parser = parse_every, allow_negative_numbers = true)]
    every: Duration,
}

fn parse_every(text: &str) -> Result<Duration, String> {
    let seconds =
        text.parse::<f64>().ok().filter(|seconds| (EVERY_MIN..=EVERY_MAX).contains(seconds));
    let wrong = || format!("write a number of seconds from {EVERY_MIN} to {EVERY_MAX}, such as 2");
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// What the first thread hears from the others.
#[derive(Debug)]
enum Heard {
    Input(Input),
    /// The terminal says no more.
    InputLost(io::Error),
    Signal(Next),
    Pool(Word),
}

/// Shows the pool until somebody quits; without a terminal, once.
pub(super) fn run(flags: &TopFlags, socket: PathBuf) -> Result<u8, CommandError> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if is_dumb || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return once(flags, socket);
    }
    let pool = Pool::connect(socket)?;
    // Before any thread is started, so that all inherit it: signals are for the thread that waits.
    let signals = taken_signals();
    signals.thread_block().map_err(|errno| system("blocking signals")(errno.into()))?;
    let signals = SignalFd::new(&signals);
    let signals = signals.map_err(|errno| system("taking signals")(errno.into()))?;
    let (tell, hear) = crossbeam_channel::unbounded();
    let (order, orders) = crossbeam_channel::bounded(ORDERS_MAX);
    let colors = show::wants_color(true, std::env::var_os("NO_COLOR").as_deref());
    let mut screen = Screen::enter().map_err(system("the terminal"))?;
    let started = watch::start(pool, flags.every, orders, tell.clone(), Heard::Pool)
        .and_then(|()| wait_for_signals(signals, tell.clone()))
        .and_then(|()| wait_for_input(tell));
    started.map_err(system("a thread"))?;
    Show::new(flags.every, order, colors).run(&mut screen, &hear)
}

/// Two looks, for the rates, and what they show.
fn once(flags: &TopFlags, socket: PathBuf) -> Result<u8, CommandError> {
    let mut pool = Pool::connect(socket)?;
    let mut history = History::default();
    history.look(pool.look()?);
    // Nothing is ever sent: to wait on it is to wait for time alone.
    let (_open, never) = crossbeam_channel::bounded::<()>(0);
    let second = match never.recv_timeout(flags.every) {
        Ok(()) | Err(RecvTimeoutError::Disconnected) => Err(ClientError::Lost),
        Err(RecvTimeoutError::Timeout) => pool.look(),
    };
    let picture = history.look(second?);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = plain::write(&mut out, &picture).and_then(|()| out.flush());
    written.map_err(CommandError::Output)?;
    Ok(exit::OK)
}

/// All that would end or stop this process and can be waited for, those of real time included.
fn taken_signals() -> SigSet {
    /// Nobody can take the first two. Those of the next two that are not faults of this process are
    /// left too: for its own the runtime has handlers, which say what was the matter. The rest ends
    /// nothing: a pipe's is ignored, and two stop what has no right to the terminal.
    const LEFT: [Signal; 10] = [
        Signal::SIGKILL,
        Signal::SIGSTOP,
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGPIPE,
        Signal::SIGCHLD,
        Signal::SIGURG,
        Signal::SIGWINCH,
        Signal::SIGTTIN,
        Signal::SIGTTOU,
    ];
    let mut taken = SigSet::all();
    LEFT.into_iter().for_each(|signal| taken.remove(signal));
    taken
}

/// What is done about a signal, by its number.
fn answer_to(signal: u32) -> Next {
    let is = |known: Signal| i32::try_from(signal).is_ok_and(|number| number == known as i32);
    if is(Signal::SIGCONT) {
        Next::Retake
    } else if is(Signal::SIGTSTP) {
        Next::Suspend
    } else {
        Next::End
    }
}

fn wait_for_signals(signals: SignalFd, tell: Sender<Heard>) -> io::Result<()> {
    let body = move || {
        loop {
            let next = match signals.read_signal() {
                Ok(Some(signal)) => answer_to(signal.ssi_signo),
                Ok(None) | Err(Errno::EINTR) => Next::GoOn,
                // Who cannot be ended by a signal any more must not stay.
                Err(_) => Next::End,
            };
            if tell.send(Heard::Signal(next)).is_err() || next == Next::End {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(body).map(drop)
}

fn wait_for_input(tell: Sender<Heard>) -> io::Result<()> {
    let body = move || {
        loop {
            let heard = match event::read() {
                Ok(event) => Heard::Input(screen::input(&event)),
                Err(error) => Heard::InputLost(error),
            };
            let is_over = matches!(heard, Heard::InputLost(_));
            if tell.send(heard).is_err() || is_over {
                return;
            }
        }
    };
    thread::Builder::new().name("input".into()).spawn(body).map(drop)
}

/// What is shown, and what has come of it so far.
#[derive(Debug)]
struct Show {
    every: Duration,
    order: Sender<Order>,
    colors: bool,
    history: History,
    desk: Desk,
    picture: Option<Picture>,
    /// When the last word came from the pool.
    heard_at: Instant,
    trouble: Option<String>,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    Retake,
    Repaint,
    Suspend,
    End,
}

impl Show {
    fn new(every: Duration, order: Sender<Order>, colors: bool) -> Self {
        Self {
            every,
            order,
            colors,
            history: History::default(),
            desk: Desk::default(),
            picture: None,
            heard_at: clock::now(),
            trouble: None,
        }
    }

    /// Draws, sleeps until something has happened, and again.
    fn run(mut self, screen: &mut Screen, hear: &Receiver<Heard>) -> Result<u8, CommandError> {
        let late_at = self.every + LATE_AFTER;
        loop {
            self.draw(screen).map_err(CommandError::Output)?;
            let age = self.heard_at.elapsed();
            let patience = late_at.checked_sub(age).unwrap_or(LATE_EVERY);
            let mut next = match hear.recv_timeout(patience) {
                Ok(heard) => self.hear(heard)?,
                Err(RecvTimeoutError::Timeout) => Next::GoOn,
                Err(RecvTimeoutError::Disconnected) => return Ok(exit::OK),
            };
            // All that has come meanwhile is drawn at once.
            while next == Next::GoOn
                && let Ok(heard) = hear.try_recv()
            {
                next = self.hear(heard)?;
            }
            let done = match next {
                Next::GoOn => Ok(()),
                Next::Retake => screen.retake(),
                Next::Repaint => screen.repaint(),
                Next::Suspend => screen.suspend(),
                Next::End => return Ok(exit::OK),
            };
            done.map_err(CommandError::Output)?;
        }
    }

    fn draw(&self, screen: &mut Screen) -> io::Result<()> {
        let silent = self.heard_at.elapsed();
        let late = (silent > self.every + LATE_AFTER)
            .then(|| format!("the pool has not answered for {} s", silent.as_secs()));
        let trouble = late.as_deref().or(self.trouble.as_deref());
        screen.draw(&Scene {
            picture: self.picture.as_ref(),
            desk: &self.desk,
            trouble,
            colors: self.colors,
        })
    }

    fn hear(&mut self, heard: Heard) -> Result<Next, CommandError> {
        match heard {
            Heard::Input(Input::Key(key)) => {
                return Ok(match self.desk.press(key, self.picture.as_ref()) {
                    Deed::Nothing => Next::GoOn,
                    Deed::Order(order) => {
                        self.give(order);
                        Next::GoOn
                    }
                    Deed::Redraw => Next::Repaint,
                    Deed::Quit => Next::End,
                });
            }
            Heard::Input(Input::Suspend) => return Ok(Next::Suspend),
            Heard::Input(Input::Resized | Input::Other) => {}
            Heard::InputLost(error) => return Err(system("the terminal")(error)),
            Heard::Signal(next) => return Ok(next),
            Heard::Pool(word) => self.hear_pool(word),
        }
        Ok(Next::GoOn)
    }

    fn give(&mut self, order: Order) {
        if self.order.try_send(order).is_err() {
            self.desk.say("the pool has not taken the last orders yet; try again".to_owned());
        }
    }

    fn hear_pool(&mut self, word: Word) {
        self.heard_at = clock::now();
        match word {
            Word::Look(look) => {
                // Looked at while the picture stands still, so that rates are right after it.
                let picture = self.history.look(*look);
                self.trouble = None;
                if !self.desk.paused() || self.picture.is_none() {
                    self.picture = Some(picture);
                }
            }
            Word::Done(what) => self.desk.say(what),
            Word::Trouble(why) => self.trouble = Some(format!("{why} (trying again)")),
            Word::Ended => {
                let says = "the pool was drained and has stopped; whatever is started at its \
                            socket is shown";
                self.trouble = Some(says.to_owned());
                self.picture.iter_mut().for_each(Picture::stop);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_that_ends_or_stops_it_is_taken_but_those_that_nobody_can_or_should_take() {
        let taken = taken_signals();
        let left: Vec<_> = Signal::iterator().filter(|&signal| !taken.contains(signal)).collect();
        let ends = |signal: &Signal| {
            use Signal::{SIGCHLD, SIGPIPE, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
            ![SIGCHLD, SIGPIPE, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH].contains(signal)
        };
        let left: Vec<_> = left.into_iter().filter(ends).collect();
        use Signal::{SIGBUS, SIGKILL, SIGSEGV, SIGSTOP};
        assert_eq!(left, [SIGBUS, SIGKILL, SIGSEGV, SIGSTOP]);
        let number = |signal: Signal| u32::try_from(signal as i32).unwrap();
        assert_eq!(answer_to(number(Signal::SIGTSTP)), Next::Suspend);
        assert_eq!(answer_to(number(Signal::SIGCONT)), Next::Retake);
        assert_eq!([answer_to(number(Signal::SIGABRT)), answer_to(40)], [Next::End; 2]);
    }

    #[test]
    fn seconds_between_looks_are_read_or_refused_with_a_sentence() {
        assert_eq!(parse_every("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "x", "inf", "nan", "1e9"] {
            assert!(parse_every(text).unwrap_err().contains("a number of seconds"), "{text}");
        }
    }
}
