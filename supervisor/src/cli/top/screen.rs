//! The terminal: taken over, and given back as it was on whatever way out. Knows crossterm; may not
//! know what is shown.

use std::io::{self, Stdout, Write};
use std::panic;
use std::sync::Once;

use nix::sys::signal::{SigSet, Signal, raise};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::{Position, Rect};

use super::desk::Key;
use super::view::{Scene, draw};

/// What came from the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Key(Key),
    /// Its size has changed.
    Resized,
    /// Control and Z.
    Suspend,
    /// Nothing that means anything.
    Other,
}

/// The terminal while it is ours.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal over.
    pub(super) fn enter() -> io::Result<Self> {
        give_back_on_panic();
        let entered = take();
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match terminal {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    pub(super) fn draw(&mut self, scene: &Scene<'_>) -> io::Result<()> {
        self.terminal.draw(|frame| draw(scene, frame.area(), frame.buffer_mut()))?;
        Ok(())
    }

    /// Paints everything again with the next picture: something else has written to the terminal.
    pub(super) fn repaint(&mut self) -> io::Result<()> {
        // Not `clear`: that asks the terminal where the cursor is, and the answer would have to come
        // through the thread that waits for keys.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Takes the terminal over again: whoever had it meanwhile may have set it otherwise.
    pub(super) fn retake(&mut self) -> io::Result<()> {
        give_back();
        take()?;
        self.repaint()
    }

    /// Gives the terminal back and stops this process until it is continued.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        // While it is blocked it would wait for the thread that takes signals, and come back here.
        let stop = SigSet::from_iter([Signal::SIGTSTP]);
        stop.thread_unblock()?;
        let raised = raise(Signal::SIGTSTP);
        stop.thread_block()?;
        raised?;
        self.retake()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Of a terminal that is gone nothing can be given back, so errors mean nothing here.
fn give_back() {
    drop(execute!(io::stdout(), LeaveAlternateScreen, Show));
    drop(disable_raw_mode());
    drop(io::stdout().flush());
}

/// A panic ends the process at once (`panic = "abort"`), but first it is written where it can be read.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let next = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            next(info);
        }));
    });
}

/// What an event of the terminal means.
pub(super) fn input(event: &Event) -> Input {
    match event {
        Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) => {
            key(*code, modifiers.contains(KeyModifiers::CONTROL))
        }
        Event::Resize(..) => Input::Resized,
        Event::FocusGained
        | Event::FocusLost
        | Event::Key(_)
        | Event::Mouse(_)
        | Event::Paste(_) => Input::Other,
    }
}

fn key(code: KeyCode, control: bool) -> Input {
    match (code, control) {
        (KeyCode::Char('z'), true) => Input::Suspend,
        (KeyCode::Char('c' | 'd'), true) => Input::Key(Key::Interrupt),
        (KeyCode::Char('l'), true) => Input::Key(Key::Redraw),
        (KeyCode::Char(_), true) => Input::Other,
        (KeyCode::Char(char), false) => Input::Key(Key::Char(char)),
        (KeyCode::Up, _) => Input::Key(Key::Up),
        (KeyCode::Down, _) => Input::Key(Key::Down),
        (KeyCode::Home | KeyCode::PageUp, _) => Input::Key(Key::First),
        (KeyCode::End | KeyCode::PageDown, _) => Input::Key(Key::Last),
        (KeyCode::Esc, _) => Input::Key(Key::Escape),
        _ => Input::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_help_says() {
        let press = |code, modifiers| input(&Event::Key(KeyEvent::new(code, modifiers)));
        let plain = |code| press(code, KeyModifiers::NONE);
        assert_eq!(plain(KeyCode::Char('k')), Input::Key(Key::Char('k')));
        assert_eq!(press(KeyCode::Char('D'), KeyModifiers::SHIFT), Input::Key(Key::Char('D')));
        assert_eq!(plain(KeyCode::Home), Input::Key(Key::First));
        let control = |char| press(KeyCode::Char(char), KeyModifiers::CONTROL);
        assert_eq!(control('c'), Input::Key(Key::Interrupt));
        assert_eq!(control('k'), Input::Other, "it is no `k`");
        assert_eq!(control('z'), Input::Suspend);
        let release = KeyEvent { kind: KeyEventKind::Release, ..KeyCode::Char('k').into() };
        assert_eq!(input(&Event::Key(release)), Input::Other, "it was pressed before");
        assert_eq!(input(&Event::Resize(1, 1)), Input::Resized);
    }
}
