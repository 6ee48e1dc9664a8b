//! The meaning of keys: select a row, ask a question, give a command. Pure: the effect depends only on the key
//! and the picture on the screen.

use crate::history::{DeviceGroup, Picture, Row};

/// A key with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    First,
    Last,
    Escape,
    /// Control and C, or D.
    Interrupt,
    /// Control and L.
    Redraw,
    Char(char),
}

/// A command to the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// SIGKILL for exactly this process.
    Kill(String),
    Drain,
    /// Probe this device now.
    Release(String),
}

/// The effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// At most the picture changes.
    Nothing,
    Command(Command),
    /// Redraw everything.
    Redraw,
    Quit,
}

/// The operator's selection, the open question, and the last message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InputHandler {
    /// The selected worker's device and role; `None` before the first key.
    chosen: Option<(DeviceGroup, usize)>,
    /// A command that waits for a yes.
    asked: Option<Command>,
    /// The result of the last command.
    message: Option<String>,
    helps: bool,
    paused: bool,
}

impl InputHandler {
    /// The selected row: the first if none is selected or the selected one is gone.
    pub(super) fn chosen(&self, picture: &Picture) -> usize {
        let is_chosen = |row: &Row| {
            self.chosen
                .as_ref()
                .is_some_and(|(place, nth)| (place, *nth) == (&row.device_group, row.nth))
        };
        picture.rows.iter().position(is_chosen).unwrap_or(0)
    }

    pub(super) fn question(&self) -> Option<String> {
        Some(match self.asked.as_ref()? {
            Command::Kill(worker) => format!("SIGKILL to {worker}? y: yes, any other key: no"),
            Command::Drain => {
                "drain: finish all accepted jobs, then stop the pool? y: yes, any other key: no"
                    .to_owned()
            }
            Command::Release(device) => format!("release {device}? y: yes, any other key: no"),
        })
    }

    pub(super) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    pub(super) fn helps(&self) -> bool {
        self.helps
    }

    pub(super) fn paused(&self) -> bool {
        self.paused
    }

    /// Shows the result of a command.
    pub(super) fn say(&mut self, message: String) {
        self.message = Some(message);
    }

    /// Handles a key; `picture` is the picture on the screen, if there is one yet.
    pub(super) fn press(&mut self, key: Key, picture: Option<&Picture>) -> Effect {
        if key == Key::Interrupt {
            return Effect::Quit;
        }
        if let Some(command) = self.asked.take() {
            let yes = matches!(key, Key::Char('y' | 'Y'));
            return if yes { Effect::Command(command) } else { Effect::Nothing };
        }
        // The operator has read the message by now.
        self.message = None;
        match key {
            Key::Char('q' | 'Q') => return Effect::Quit,
            Key::Escape if !self.helps => return Effect::Quit,
            Key::Redraw => return Effect::Redraw,
            Key::Char('?' | 'h') => self.helps = !self.helps,
            Key::Escape => self.helps = false,
            Key::Char('p' | ' ') => self.paused = !self.paused,
            Key::Char('d') => self.asked = Some(Command::Drain),
            Key::Up | Key::Down | Key::First | Key::Last | Key::Char(_) | Key::Interrupt => {
                return picture.map_or(Effect::Nothing, |picture| self.press_on_row(key, picture));
            }
        }
        Effect::Nothing
    }

    fn press_on_row(&mut self, key: Key, picture: &Picture) -> Effect {
        let at = self.chosen(picture);
        let Some(row) = picture.rows.get(at) else { return Effect::Nothing };
        let last = picture.rows.len() - 1;
        match key {
            Key::Up => self.choose(picture, at.saturating_sub(1)),
            Key::Down => self.choose(picture, (at + 1).min(last)),
            Key::First => self.choose(picture, 0),
            Key::Last => self.choose(picture, last),
            Key::Char('k') if row.own.pid == 0 => {
                self.say(format!("{} has no process now", row.device_group.device));
            }
            Key::Char('k') => {
                // The question names the process now: the selection may move before the answer.
                self.choose(picture, at);
                self.asked = Some(Command::Kill(row.own.name.clone()));
            }
            Key::Char('r') => {
                return Effect::Command(Command::Release(row.device_group.device.clone()));
            }
            Key::Char(_) | Key::Escape | Key::Interrupt | Key::Redraw => {}
        }
        Effect::Nothing
    }

    fn choose(&mut self, picture: &Picture, at: usize) {
        self.chosen = picture.rows.get(at).map(|row| (row.device_group.clone(), row.nth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::{pictures, snapshot, worker};

    /// Three workers on two devices; the last has no process.
    fn picture() -> Picture {
        let mut rows =
            vec![worker("cpu0#1", "grid"), worker("cpu0#2", "grid"), worker("cpu1#4", "grid")];
        rows[2].pid = 0;
        pictures([snapshot(1.0, rows)]).remove(0)
    }

    fn press(input: &mut InputHandler, keys: &str) -> Vec<Effect> {
        let picture = picture();
        keys.chars().map(|key| input.press(Key::Char(key), Some(&picture))).collect()
    }

    #[test]
    fn a_kill_is_asked_once_and_hits_the_process_that_was_shown() {
        let mut input = InputHandler::default();
        let picture = picture();
        assert_eq!(input.press(Key::Down, Some(&picture)), Effect::Nothing);
        assert_eq!(press(&mut input, "k"), [Effect::Nothing]);
        assert_eq!(input.question().unwrap(), "SIGKILL to cpu0#2? y: yes, any other key: no");
        assert_eq!(press(&mut input, "y"), [Effect::Command(Command::Kill("cpu0#2".to_owned()))]);
        assert_eq!(input.question(), None);
        assert_eq!(
            press(&mut input, "yy"),
            [Effect::Nothing, Effect::Nothing],
            "only one yes counts"
        );
    }

    #[test]
    fn any_other_key_than_y_means_no_and_has_no_other_effect() {
        for key in ['n', 'q', 'k', 'd', 'p', '\n'] {
            let mut input = InputHandler::default();
            press(&mut input, "d");
            assert!(input.question().unwrap().starts_with("drain: "), "{key}");
            assert_eq!(press(&mut input, &key.to_string()), [Effect::Nothing], "{key}");
            assert_eq!(input, InputHandler::default(), "{key}");
        }
        let mut input = InputHandler::default();
        assert_eq!(press(&mut input, "dy")[1], Effect::Command(Command::Drain));
    }

    #[test]
    fn a_device_without_a_process_is_not_killed_but_may_be_released() {
        let mut input = InputHandler::default();
        input.press(Key::Last, Some(&picture()));
        assert_eq!(press(&mut input, "k"), [Effect::Nothing]);
        assert_eq!((input.question(), input.message()), (None, Some("cpu1 has no process now")));
        assert_eq!(press(&mut input, "r"), [Effect::Command(Command::Release("cpu1".to_owned()))]);
        assert_eq!(input.message(), None, "the next key clears it");
    }

    #[test]
    fn the_mark_stays_on_its_worker_and_within_the_rows() {
        let (mut input, picture) = (InputHandler::default(), picture());
        let mut go = |key| {
            input.press(key, Some(&picture));
            input.chosen(&picture)
        };
        let way = [Key::Up, Key::Down, Key::Down, Key::Down, Key::First, Key::Last].map(&mut go);
        assert_eq!(way, [0, 1, 2, 2, 0, 2]);
        let next = worker("cpu1#5", "grid");
        let later = pictures([snapshot(2.0, vec![worker("cpu0#1", "grid"), next])]).remove(0);
        assert_eq!(input.chosen(&later), 1, "the next process of the same device");
        let gone = pictures([snapshot(2.0, vec![worker("cpu0#1", "grid")])]).remove(0);
        assert_eq!(input.chosen(&gone), 0);
    }

    #[test]
    fn quit_help_and_pause_work_with_and_without_a_pool() {
        let mut input = InputHandler::default();
        for (key, helps, paused) in [('?', true, false), ('p', true, true), ('?', false, true)] {
            assert_eq!(input.press(Key::Char(key), None), Effect::Nothing);
            assert_eq!((input.helps(), input.paused()), (helps, paused), "{key}");
        }
        for key in ['k', 'r', 'x'] {
            assert_eq!(input.press(Key::Char(key), None), Effect::Nothing, "there is no row");
        }
        press(&mut input, "?");
        assert_eq!(input.press(Key::Escape, None), Effect::Nothing, "it closes the help");
        assert!(!input.helps());
        for key in [Key::Escape, Key::Interrupt, Key::Char('q')] {
            assert_eq!(input.press(key, None), Effect::Quit);
        }
        press(&mut input, "k");
        assert_eq!(input.press(Key::Interrupt, None), Effect::Quit, "even while it asks");
    }
}
