//! Work on the models of a repository: that of one model in order, that of different models side by side, so that a
//! model that takes long to load holds up no other.

use std::collections::{BTreeSet, VecDeque};

/// Most models that are loaded or unloaded side by side.
pub(super) const SIDE_BY_SIDE_MAX: usize = 16;

/// Which work waits for which.
#[derive(Debug)]
pub(super) struct Turns<T> {
    /// What waits, in order.
    waiting: VecDeque<(String, T)>,
    /// The models whose work is under way.
    busy: BTreeSet<String>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), busy: BTreeSet::new() }
    }
}

impl<T> Turns<T> {
    /// Adds work for a model.
    pub(super) fn push(&mut self, name: String, work: T) {
        self.waiting.push_back((name, work));
    }

    /// Such work that waits for a model already.
    pub(super) fn waiting(&mut self, name: &str, is_such: impl Fn(&T) -> bool) -> Option<&mut T> {
        let mut own = self.waiting.iter_mut().filter(|(own, _)| own == name).map(|(_, work)| work);
        own.find(|work| is_such(work))
    }

    /// The next work that may begin. It counts as under way from here on.
    pub(super) fn begin(&mut self) -> Option<(String, T)> {
        if self.busy.len() >= SIDE_BY_SIDE_MAX {
            return None;
        }
        let at = self.waiting.iter().position(|(name, _)| !self.busy.contains(name))?;
        let (name, work) = self.waiting.remove(at)?;
        self.busy.insert(name.clone());
        Some((name, work))
    }

    /// The work of a model that was under way has ended.
    pub(super) fn end(&mut self, name: &str) {
        self.busy.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_take_turns_only_with_themselves_and_few_at_a_time() {
        let mut turns = Turns::default();
        for (name, work) in [("a", 1), ("a", 2), ("b", 3)] {
            turns.push(name.to_owned(), work);
        }
        assert_eq!(turns.waiting("b", |&work| work == 2), None);
        *turns.waiting("a", |&work| work == 2).unwrap() = 4;
        assert_eq!(turns.begin(), Some(("a".to_owned(), 1)));
        assert_eq!(turns.begin(), Some(("b".to_owned(), 3)), "it passes the one that waits");
        assert_eq!(turns.begin(), None);
        turns.end("a");
        assert_eq!(turns.begin(), Some(("a".to_owned(), 4)), "as it was changed");
        (0..20).for_each(|number| turns.push(format!("m{number}"), number));
        assert_eq!(std::iter::from_fn(|| turns.begin()).count(), SIDE_BY_SIDE_MAX - 2);
    }
}
