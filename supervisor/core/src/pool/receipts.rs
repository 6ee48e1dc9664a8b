//! Encoded receipts, one behind the other in the order of their verdicts. The oldest go first, so memory is written and
//! given back in order: each receipt in memory of its own costs a job several times as much.

use std::collections::VecDeque;
use std::ops::Range;

use gridpool_protocol::codec;
use gridpool_protocol::receipt::Receipt;

/// Receipts that lie together. Most have 300 bytes.
const PAGE_BYTES: usize = 64 << 10;
/// With less room than this left, the next receipt begins a page. If it needs more, its page grows.
const ROOM_MIN: usize = 4 << 10;

/// Where a receipt lies until the next event, and as long as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    page: u64,
    bytes: Range<usize>,
}

impl Place {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Receipts {
    pages: VecDeque<Vec<u8>>,
    /// The number of the oldest page.
    first: u64,
    /// An empty page for later.
    spare: Option<Vec<u8>>,
}

impl Receipts {
    /// Adds a receipt. `None` if it is longer than a message may be.
    pub(super) fn add(&mut self, receipt: &Receipt) -> Option<Place> {
        let length = codec::append(receipt, self.page()).ok()?;
        Some(self.last(length))
    }

    /// Adds one that is encoded already.
    pub(super) fn add_encoded(&mut self, receipt: &[u8]) -> Place {
        self.page().extend_from_slice(receipt);
        self.last(receipt.len())
    }

    /// The page that has room.
    fn page(&mut self) -> &mut Vec<u8> {
        if self.pages.back().is_none_or(|page| page.len() + ROOM_MIN > PAGE_BYTES) {
            let empty = self.spare.take().unwrap_or_else(|| Vec::with_capacity(PAGE_BYTES));
            self.pages.push_back(empty);
        }
        self.pages.back_mut().expect("there is one now")
    }

    /// The place of the last receipt.
    fn last(&self, length: usize) -> Place {
        let end = self.pages.back().map_or(0, Vec::len);
        let last = self.pages.len() as u64 - 1;
        Place { page: self.first + last, bytes: end - length..end }
    }

    /// A receipt by its place.
    pub(super) fn get(&self, place: &Place) -> &[u8] {
        let at = usize::try_from(place.page - self.first).expect("pages are in memory");
        &self.pages[at][place.bytes.clone()]
    }

    /// Gives back the memory of all before this one, or all if none is remembered.
    pub(super) fn forget_before(&mut self, oldest: Option<&Place>) {
        let keep = oldest.map_or(self.first + self.pages.len() as u64, |oldest| oldest.page);
        while self.first < keep {
            let mut page = self.pages.pop_front().expect("a page that is remembered is there");
            self.first += 1;
            page.clear();
            self.spare = Some(page).filter(|page| page.capacity() <= PAGE_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_stay_where_they_are_and_pages_go_with_the_last_of_theirs() {
        let mut receipts = Receipts::default();
        let bytes = |number: u8| vec![number; 10_000];
        let places: Vec<_> = (0..20).map(|number| receipts.add_encoded(&bytes(number))).collect();
        let pages = receipts.pages.len();
        assert!(places.iter().zip(0..).all(|(place, number)| receipts.get(place) == bytes(number)));
        receipts.forget_before(Some(&places[10]));
        assert_eq!(receipts.pages.len(), pages - 1);
        assert!(places[10..].iter().zip(10..).all(|(place, n)| receipts.get(place) == bytes(n)));
        receipts.forget_before(None);
        assert!(receipts.pages.is_empty());
        let large = receipts.add_encoded(&[1; 2 * PAGE_BYTES]);
        assert_eq!(receipts.get(&large), [1; 2 * PAGE_BYTES]);
    }
}
