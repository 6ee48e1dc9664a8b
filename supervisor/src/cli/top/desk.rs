//! What keys do: which row is chosen, what is asked, and what is ordered. Pure: a key and the picture
//! that was seen give what is to be done.

use super::model::{Picture, Place, Row};

/// A key, as far as it means anything here.
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

/// What the pool is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// SIGKILL for this process and no later one.
    Kill(String),
    Drain,
    /// Try this device now.
    Release(String),
}

/// What a key brings about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// No more than that the picture may look different.
    Nothing,
    Order(Order),
    /// Paint everything again.
    Redraw,
    Quit,
}

/// What the operator has chosen and is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Desk {
    /// A worker of a place; none before the first key.
    chosen: Option<(Place, usize)>,
    /// An order that waits for a yes.
    asked: Option<Order>,
    /// What came of the last order.
    message: Option<String>,
    helps: bool,
    paused: bool,
}

impl Desk {
    /// The row that is chosen: the first if none is, or if the one that was is no more.
    pub(super) fn chosen(&self, picture: &Picture) -> usize {
        let is_chosen = |row: &Row| {
            self.chosen
                .as_ref()
                .is_some_and(|(place, seat)| (place, *seat) == (&row.place, row.seat))
        };
        picture.rows.iter().position(is_chosen).unwrap_or(0)
    }

    pub(super) fn question(&self) -> Option<String> {
        Some(match self.asked.as_ref()? {
            Order::Kill(worker) => format!("SIGKILL to {worker}? y: yes, any other key: no"),
            Order::Drain => {
                "drain: the pool finishes what it has accepted, then stops? y: yes, any other key: no"
                    .to_owned()
            }
            Order::Release(device) => format!("release {device}? y: yes, any other key: no"),
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

    /// Says what came of an order.
    pub(super) fn say(&mut self, message: String) {
        self.message = Some(message);
    }

    /// A key was pressed while this was to be seen; nothing if there was nothing yet.
    pub(super) fn press(&mut self, key: Key, picture: Option<&Picture>) -> Deed {
        if key == Key::Interrupt {
            return Deed::Quit;
        }
        if let Some(order) = self.asked.take() {
            let yes = matches!(key, Key::Char('y' | 'Y'));
            return if yes { Deed::Order(order) } else { Deed::Nothing };
        }
        // Whatever was said is read by now.
        self.message = None;
        match key {
            Key::Char('q' | 'Q') => return Deed::Quit,
            Key::Escape if !self.helps => return Deed::Quit,
            Key::Redraw => return Deed::Redraw,
            Key::Char('?' | 'h') => self.helps = !self.helps,
            Key::Escape => self.helps = false,
            Key::Char('p' | ' ') => self.paused = !self.paused,
            Key::Char('d') => self.asked = Some(Order::Drain),
            Key::Up | Key::Down | Key::First | Key::Last | Key::Char(_) | Key::Interrupt => {
                return picture.map_or(Deed::Nothing, |picture| self.press_on_row(key, picture));
            }
        }
        Deed::Nothing
    }

    fn press_on_row(&mut self, key: Key, picture: &Picture) -> Deed {
        let at = self.chosen(picture);
        let Some(row) = picture.rows.get(at) else { return Deed::Nothing };
        let last = picture.rows.len() - 1;
        match key {
            Key::Up => self.choose(picture, at.saturating_sub(1)),
            Key::Down => self.choose(picture, (at + 1).min(last)),
            Key::First => self.choose(picture, 0),
            Key::Last => self.choose(picture, last),
            Key::Char('k') if row.pid == 0 => {
                self.say(format!("{} has no process now", row.place.device));
            }
            Key::Char('k') => {
                // The one that is named is the one that was seen, wherever the mark goes meanwhile.
                self.choose(picture, at);
                self.asked = Some(Order::Kill(row.name.clone()));
            }
            Key::Char('r') => return Deed::Order(Order::Release(row.place.device.clone())),
            Key::Char(_) | Key::Escape | Key::Interrupt | Key::Redraw => {}
        }
        Deed::Nothing
    }

    fn choose(&mut self, picture: &Picture, at: usize) {
        self.chosen = picture.rows.get(at).map(|row| (row.place.clone(), row.seat));
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{look, pictures, worker};
    use super::*;

    /// Three workers on two devices; the last has no process.
    fn picture() -> Picture {
        let mut rows =
            vec![worker("cpu0#1", "grid"), worker("cpu0#2", "grid"), worker("cpu1#4", "grid")];
        rows[2].pid = 0;
        pictures([look(1.0, rows)]).remove(0)
    }

    fn press(desk: &mut Desk, keys: &str) -> Vec<Deed> {
        let picture = picture();
        keys.chars().map(|key| desk.press(Key::Char(key), Some(&picture))).collect()
    }

    #[test]
    fn a_kill_is_asked_once_and_goes_to_the_process_that_was_seen() {
        let mut desk = Desk::default();
        let picture = picture();
        assert_eq!(desk.press(Key::Down, Some(&picture)), Deed::Nothing);
        assert_eq!(press(&mut desk, "k"), [Deed::Nothing]);
        assert_eq!(desk.question().unwrap(), "SIGKILL to cpu0#2? y: yes, any other key: no");
        assert_eq!(press(&mut desk, "y"), [Deed::Order(Order::Kill("cpu0#2".to_owned()))]);
        assert_eq!(desk.question(), None);
        assert_eq!(press(&mut desk, "yy"), [Deed::Nothing, Deed::Nothing], "it was said once");
    }

    #[test]
    fn any_other_key_than_y_is_a_no_and_nothing_else() {
        for key in ['n', 'q', 'k', 'd', 'p', '\n'] {
            let mut desk = Desk::default();
            press(&mut desk, "d");
            assert!(desk.question().unwrap().starts_with("drain: "), "{key}");
            assert_eq!(press(&mut desk, &key.to_string()), [Deed::Nothing], "{key}");
            assert_eq!(desk, Desk::default(), "{key}");
        }
        let mut desk = Desk::default();
        assert_eq!(press(&mut desk, "dy")[1], Deed::Order(Order::Drain));
    }

    #[test]
    fn a_device_without_a_process_is_not_killed_but_may_be_released() {
        let mut desk = Desk::default();
        desk.press(Key::Last, Some(&picture()));
        assert_eq!(press(&mut desk, "k"), [Deed::Nothing]);
        assert_eq!((desk.question(), desk.message()), (None, Some("cpu1 has no process now")));
        assert_eq!(press(&mut desk, "r"), [Deed::Order(Order::Release("cpu1".to_owned()))]);
        assert_eq!(desk.message(), None, "the next key clears it");
    }

    #[test]
    fn the_mark_stays_on_its_worker_and_within_the_rows() {
        let (mut desk, picture) = (Desk::default(), picture());
        let mut go = |key| {
            desk.press(key, Some(&picture));
            desk.chosen(&picture)
        };
        let way = [Key::Up, Key::Down, Key::Down, Key::Down, Key::First, Key::Last].map(&mut go);
        assert_eq!(way, [0, 1, 2, 2, 0, 2]);
        let next = worker("cpu1#5", "grid");
        let later = pictures([look(2.0, vec![worker("cpu0#1", "grid"), next])]).remove(0);
        assert_eq!(desk.chosen(&later), 1, "the next process of the same device");
        let gone = pictures([look(2.0, vec![worker("cpu0#1", "grid")])]).remove(0);
        assert_eq!(desk.chosen(&gone), 0);
    }

    #[test]
    fn it_ends_helps_and_pauses_with_or_without_a_pool() {
        let mut desk = Desk::default();
        for (key, helps, paused) in [('?', true, false), ('p', true, true), ('?', false, true)] {
            assert_eq!(desk.press(Key::Char(key), None), Deed::Nothing);
            assert_eq!((desk.helps(), desk.paused()), (helps, paused), "{key}");
        }
        for key in ['k', 'r', 'x'] {
            assert_eq!(desk.press(Key::Char(key), None), Deed::Nothing, "there is no row");
        }
        press(&mut desk, "?");
        assert_eq!(desk.press(Key::Escape, None), Deed::Nothing, "it closes the help");
        assert!(!desk.helps());
        for key in [Key::Escape, Key::Interrupt, Key::Char('q')] {
            assert_eq!(desk.press(key, None), Deed::Quit);
        }
        press(&mut desk, "k");
        assert_eq!(desk.press(Key::Interrupt, None), Deed::Quit, "even while it asks");
    }
}
