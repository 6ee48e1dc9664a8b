//! A set in order, for few members or such as mostly come at the end and go from the beginning: then it costs a
//! quarter of a tree.

use std::collections::VecDeque;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ordered<T>(VecDeque<T>);

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Ord> Ordered<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn first(&self) -> Option<&T> {
        self.0.front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// Adds a member, unless it is there.
    pub(super) fn insert(&mut self, member: T) {
        if self.0.back().is_none_or(|last| *last < member) {
            self.0.push_back(member);
        } else if let Err(at) = self.0.binary_search(&member) {
            self.0.insert(at, member);
        }
    }

    /// Takes a member out, if it is there.
    pub(super) fn remove(&mut self, member: &T) {
        if self.first() == Some(member) {
            self.0.pop_front();
        } else if let Ok(at) = self.0.binary_search(member) {
            self.0.remove(at);
        }
    }

    pub(super) fn pop_first(&mut self) -> Option<T> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_in_order_and_there_once_however_they_come() {
        let mut set = Ordered::default();
        [5, 1, 9, 3, 9, 1].into_iter().for_each(|member| set.insert(member));
        assert!(set.iter().eq(&[1, 3, 5, 9]));
        [1, 5, 7].iter().for_each(|member| set.remove(member));
        assert_eq!((set.first(), set.len(), set.is_empty()), (Some(&3), 2, false));
        assert_eq!([(); 3].map(|()| set.pop_first()), [Some(3), Some(9), None]);
        assert!(set.is_empty());
    }
}
