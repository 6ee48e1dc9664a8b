//! Takes over the terminal, and restores it on every way out. Knows crossterm; may not know the picture.

use std::io::{self, Stdout, Write};
use std::panic;
use std::sync::Once;

use nix::sys::signal::{SigSet, Signal, raise};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Position, Rect};
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use super::input::Key;

/// An event of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TerminalEvent {
    Key(Key),
    /// Its size has changed.
    Resized,
    /// Control and Z.
    Suspend,
    /// An event without a meaning.
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

    pub(super) fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame.area(), frame.buffer_mut()))?;
        Ok(())
    }

    /// Paints everything again with the next picture: something else has written to the terminal.
    pub(super) fn repaint(&mut self) -> io::Result<()> {
        // Not `clear`: that asks the terminal where the cursor is, and the answer would have to come
        // through the thread that waits for keys.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Takes over the terminal again, since another process may have changed its settings.
    pub(super) fn retake(&mut self) -> io::Result<()> {
        give_back();
        take()?;
        self.repaint()
    }

    /// Restores the terminal and stops this process until it is continued.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        // A blocked signal would go to the thread that takes signals, and come back here.
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

/// Restores the terminal. Ignores errors: a closed terminal needs no restoring.
fn give_back() {
    drop(execute!(io::stdout(), LeaveAlternateScreen, Show));
    drop(disable_raw_mode());
    drop(io::stdout().flush());
}

/// Restores the terminal before a panic is printed; the panic then ends the process (`panic = "abort"`).
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

/// The meaning of an event of the terminal.
pub(super) fn input(event: &Event) -> TerminalEvent {
    match event {
        Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) => {
            key(*code, modifiers.contains(KeyModifiers::CONTROL))
        }
        Event::Resize(..) => TerminalEvent::Resized,
        Event::FocusGained
        | Event::FocusLost
        | Event::Key(_)
        | Event::Mouse(_)
        | Event::Paste(_) => TerminalEvent::Other,
    }
}

fn key(code: KeyCode, control: bool) -> TerminalEvent {
    match (code, control) {
        (KeyCode::Char('z'), true) => TerminalEvent::Suspend,
        (KeyCode::Char('c' | 'd'), true) => TerminalEvent::Key(Key::Interrupt),
        (KeyCode::Char('l'), true) => TerminalEvent::Key(Key::Redraw),
        (KeyCode::Char(_), true) => TerminalEvent::Other,
        (KeyCode::Char(char), false) => TerminalEvent::Key(Key::Char(char)),
        (KeyCode::Up, _) => TerminalEvent::Key(Key::Up),
        (KeyCode::Down, _) => TerminalEvent::Key(Key::Down),
        (KeyCode::Home | KeyCode::PageUp, _) => TerminalEvent::Key(Key::First),
        (KeyCode::End | KeyCode::PageDown, _) => TerminalEvent::Key(Key::Last),
        (KeyCode::Esc, _) => TerminalEvent::Key(Key::Escape),
        _ => TerminalEvent::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_help_says() {
        let press = |code, modifiers| input(&Event::Key(KeyEvent::new(code, modifiers)));
        let plain = |code| press(code, KeyModifiers::NONE);
        assert_eq!(plain(KeyCode::Char('k')), TerminalEvent::Key(Key::Char('k')));
        assert_eq!(
            press(KeyCode::Char('D'), KeyModifiers::SHIFT),
            TerminalEvent::Key(Key::Char('D'))
        );
        assert_eq!(plain(KeyCode::Home), TerminalEvent::Key(Key::First));
        let control = |char| press(KeyCode::Char(char), KeyModifiers::CONTROL);
        assert_eq!(control('c'), TerminalEvent::Key(Key::Interrupt));
        assert_eq!(control('k'), TerminalEvent::Other, "Control and K is not `k`");
        assert_eq!(control('z'), TerminalEvent::Suspend);
        let release = KeyEvent { kind: KeyEventKind::Release, ..KeyCode::Char('k').into() };
        assert_eq!(input(&Event::Key(release)), TerminalEvent::Other, "only the press counts");
        assert_eq!(input(&Event::Resize(1, 1)), TerminalEvent::Resized);
    }
}
