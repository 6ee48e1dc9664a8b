//! `gridpool top`: a live view of a running pool, with keys for what an operator does about it; with `--nats` of a
//! cluster ([`cluster`]).
//!
//! Four threads sleep until there is work: one waits for keys, one for signals, one for the pool
//! ([`watch`]), and the first draws what has changed. [`History`] reads snapshots, [`input`] handles keys,
//! [`view`] lays out the screen; none of these knows a terminal, a clock or the pool.

mod cluster;
mod input;
mod plain;
mod screen;
mod view;
mod watch;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gridpool_ipc::clock;
use gridpool_protocol::color::Colors;
use gridpool_protocol::exit::cli as exit;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use ratatui_crossterm::crossterm::event;

use super::connect::socket_path;
use super::place::PlaceFlags;
use super::{CommandError, system};
use crate::history::{History, Picture};
use input::{Command, Effect, InputHandler, Key};
use screen::{Screen, TerminalEvent};
use view::Scene;
use watch::{Pool, Word};

/// Least and greatest interval of snapshots, seconds.
const EVERY_MIN: f64 = 0.1;
const EVERY_MAX: f64 = 3_600.0;
/// A snapshot later than this is reported as late.
const LATE_AFTER: Duration = Duration::from_secs(3);
/// How often the delay is shown.
const LATE_EVERY: Duration = Duration::from_secs(1);
/// Most commands that wait to be sent to the pool: more are refused.
const COMMANDS_MAX: usize = 4;

/// Flags of `gridpool top`.
#[derive(Debug, Args)]
pub(super) struct TopFlags {
    /// Seconds from one snapshot of the pool, or of the cluster, to the next.
    #[arg(long, value_name = "SECONDS", default_value = "1", env = "GRIDPOOL_EVERY")]
    #[arg(value_parser = parse_every)]
    every: Duration,
}

fn parse_every(text: &str) -> Result<Duration, String> {
    let seconds =
        text.parse::<f64>().ok().filter(|seconds| (EVERY_MIN..=EVERY_MAX).contains(seconds));
    let wrong = || format!("write a number of seconds from {EVERY_MIN} to {EVERY_MAX}, such as 2");
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// What the other threads send to the first.
#[derive(Debug)]
enum Heard<W> {
    Input(TerminalEvent),
    /// The terminal is closed.
    InputLost(io::Error),
    Signal(Next),
    /// Of what is watched.
    Word(W),
}

/// What a terminal shows.
trait Shown<W> {
    fn draw(&self, screen: &mut Screen) -> io::Result<()>;

    /// How long nothing need be drawn if nothing happens.
    fn timeout(&self) -> Duration;

    fn press(&mut self, key: Key) -> Next;

    fn hear(&mut self, word: W);
}

/// Shows the pool or the cluster until the operator quits; without a terminal, once.
pub(super) fn run(flags: &TopFlags, place: &PlaceFlags) -> Result<u8, CommandError> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let is_terminal = !is_dumb && io::stdout().is_terminal() && io::stdin().is_terminal();
    if let Some(options) = place.cluster().map_err(CommandError::Usage)? {
        return cluster::run(flags.every, &options, is_terminal);
    }
    let socket = socket_path(place.socket())?;
    if !is_terminal {
        return once(flags, socket);
    }
    let pool = Pool::connect(socket)?;
    let (command, commands) = crossbeam_channel::bounded(COMMANDS_MAX);
    let every = flags.every;
    let show = |colors| Show::new(every, command, colors);
    on_terminal(show, |tell| watch::start(pool, every, commands, tell, Heard::Word))
}

/// Takes the terminal over, starts the threads, and shows until the operator quits. `show` hears whether to use colour.
fn on_terminal<W: Send + 'static, S: Shown<W>>(
    show: impl FnOnce(bool) -> S,
    watch: impl FnOnce(Sender<Heard<W>>) -> io::Result<()>,
) -> Result<u8, CommandError> {
    // Before the first thread, so that all inherit the mask: one thread waits for the signals.
    let signals = taken_signals();
    signals.thread_block().map_err(|errno| system("blocking signals")(errno.into()))?;
    let signals = SignalFd::new(&signals);
    let signals = signals.map_err(|errno| system("taking signals")(errno.into()))?;
    let (tell, hear) = crossbeam_channel::unbounded();
    let colors = Colors::of(true).any();
    let mut screen = Screen::enter().map_err(system("the terminal"))?;
    let started = watch(tell.clone())
        .and_then(|()| wait_for_signals(signals, tell.clone()))
        .and_then(|()| wait_for_input(tell));
    started.map_err(system("a thread"))?;
    until_quit(&mut show(colors), &mut screen, &hear)
}

/// Draws and sleeps until something happens, in a loop.
fn until_quit<W>(
    shown: &mut impl Shown<W>,
    screen: &mut Screen,
    hear: &Receiver<Heard<W>>,
) -> Result<u8, CommandError> {
    loop {
        shown.draw(screen).map_err(CommandError::Output)?;
        let mut next = match hear.recv_timeout(shown.timeout()) {
            Ok(heard) => take_in(shown, heard)?,
            Err(RecvTimeoutError::Timeout) => Next::GoOn,
            Err(RecvTimeoutError::Disconnected) => return Ok(exit::OK),
        };
        // Everything that arrived meanwhile is drawn at once.
        while next == Next::GoOn
            && let Ok(heard) = hear.try_recv()
        {
            next = take_in(shown, heard)?;
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

fn take_in<W>(shown: &mut impl Shown<W>, heard: Heard<W>) -> Result<Next, CommandError> {
    match heard {
        Heard::Input(TerminalEvent::Key(key)) => return Ok(shown.press(key)),
        Heard::Input(TerminalEvent::Suspend) => return Ok(Next::Suspend),
        Heard::Input(TerminalEvent::Resized | TerminalEvent::Other) => {}
        Heard::InputLost(error) => return Err(system("the terminal")(error)),
        Heard::Signal(next) => return Ok(next),
        Heard::Word(word) => shown.hear(word),
    }
    Ok(Next::GoOn)
}

/// Two snapshots, for the rates, and what they show.
fn once(flags: &TopFlags, socket: PathBuf) -> Result<u8, CommandError> {
    let mut pool = Pool::connect(socket)?;
    let mut history = History::default();
    history.snapshot(pool.snapshot()?);
    pass(flags.every);
    let second = pool.snapshot().map_err(|error| CommandError::unanswered(error, String::new()))?;
    let picture = history.snapshot(second);
    super::print(|out| plain::write(out, &picture))
}

/// Lets time pass.
fn pass(span: Duration) {
    // The channel never has a message, so the wait ends by its timeout.
    let (_open, never) = crossbeam_channel::bounded::<()>(0);
    let (Ok(()) | Err(_)) = never.recv_timeout(span);
}

/// All signals that end or stop this process and can be waited for, also real-time signals.
fn taken_signals() -> SigSet {
    /// No process can take the first two. The runtime has handlers for the next two, which report a fault of
    /// this process. The rest does not end this process: SIGPIPE is ignored, and the last two stop a process
    /// that does not have the terminal.
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

/// The answer to a signal, by its number.
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

fn wait_for_signals<W: Send + 'static>(
    signals: SignalFd,
    tell: Sender<Heard<W>>,
) -> io::Result<()> {
    let body = move || {
        loop {
            let next = match signals.read_signal() {
                Ok(Some(signal)) => answer_to(signal.ssi_signo),
                Ok(None) | Err(Errno::EINTR) => Next::GoOn,
                // Signals cannot end this process any more, so it must end itself.
                Err(_) => Next::End,
            };
            if tell.send(Heard::Signal(next)).is_err() || next == Next::End {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(body).map(drop)
}

fn wait_for_input<W: Send + 'static>(tell: Sender<Heard<W>>) -> io::Result<()> {
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

/// The state of the display.
#[derive(Debug)]
struct Show {
    every: Duration,
    commands: Sender<Command>,
    colors: bool,
    history: History,
    input: InputHandler,
    picture: Option<Picture>,
    /// When the pool last answered.
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
    fn new(every: Duration, commands: Sender<Command>, colors: bool) -> Self {
        Self {
            every,
            commands,
            colors,
            history: History::default(),
            input: InputHandler::default(),
            picture: None,
            heard_at: clock::now(),
            trouble: None,
        }
    }

    fn give(&mut self, command: Command) {
        if self.commands.try_send(command).is_err() {
            self.input.say("the pool has not taken the last commands yet; try again".to_owned());
        }
    }
}

impl Shown<Word> for Show {
    fn draw(&self, screen: &mut Screen) -> io::Result<()> {
        let silent = self.heard_at.elapsed();
        let late = (silent > self.every + LATE_AFTER)
            .then(|| format!("the pool has not answered for {} s", silent.as_secs()));
        let trouble = late.as_deref().or(self.trouble.as_deref());
        let scene = Scene {
            picture: self.picture.as_ref(),
            input: &self.input,
            trouble,
            colors: self.colors,
        };
        screen.draw(|area, buffer| view::draw(&scene, area, buffer))
    }

    fn timeout(&self) -> Duration {
        late_in(self.every, self.heard_at)
    }

    fn press(&mut self, key: Key) -> Next {
        match self.input.press(key, self.picture.as_ref()) {
            Effect::Nothing => Next::GoOn,
            Effect::Command(command) => {
                self.give(command);
                Next::GoOn
            }
            Effect::Redraw => Next::Repaint,
            Effect::Quit => Next::End,
        }
    }

    fn hear(&mut self, word: Word) {
        self.heard_at = clock::now();
        match word {
            Word::Snapshot(snapshot) => {
                // Taken in while the picture is paused, so that rates are right afterwards.
                let picture = self.history.snapshot(*snapshot);
                self.trouble = None;
                if !self.input.paused() || self.picture.is_none() {
                    self.picture = Some(picture);
                }
            }
            Word::Done(what) => self.input.say(what),
            Word::Trouble(why) => self.trouble = Some(format!("{why} (trying again)")),
            Word::Ended => {
                let says = "the pool was drained and has stopped; top will show the next pool at its \
                            socket";
                self.trouble = Some(says.to_owned());
                self.picture.iter_mut().for_each(Picture::stop);
            }
        }
    }
}

/// When to say, or to say again, that there was no snapshot since `heard_at`.
fn late_in(every: Duration, heard_at: Instant) -> Duration {
    (every + LATE_AFTER).checked_sub(heard_at.elapsed()).unwrap_or(LATE_EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_that_ends_or_stops_it_is_taken_if_it_can_and_should_be() {
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
    fn seconds_between_snapshots_are_read_or_refused_with_a_sentence() {
        assert_eq!(parse_every("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "x", "inf", "nan", "1e9"] {
            assert!(parse_every(text).unwrap_err().contains("a number of seconds"), "{text}");
        }
    }
}
