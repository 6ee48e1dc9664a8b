//! The verdicts of a program, and the comparison of a share of them with another machine's.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use gridpool_protocol::search::{CellScore, PairStatus};

/// The verdicts of a program: one for each pair, in the order of the pairs. Clones share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdicts {
    statuses: Arc<[u8]>,
    scores: Option<Arc<[u16]>>,
}

impl Verdicts {
    /// Verdicts of these bytes, each of which is a status, and numbers, each of which is a score.
    pub(super) fn new(statuses: &[u8], scores: Option<&[u16]>) -> Self {
        Self { statuses: statuses.into(), scores: scores.map(Arc::from) }
    }

    /// How it ended on each pair.
    pub fn statuses(&self) -> impl ExactSizeIterator<Item = PairStatus> {
        let status = |byte: &u8| PairStatus::from_byte(*byte);
        self.statuses.iter().map(move |byte| status(byte).expect("`Outcomes` has looked at each"))
    }

    /// The same as bytes: [`PairStatus::byte`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.statuses
    }

    /// How near each result is, if that was asked for ([`Search::score`](super::Search::score)).
    #[must_use]
    pub fn scores(&self) -> Option<impl ExactSizeIterator<Item = CellScore>> {
        let score = |number: &u16| CellScore::from_number(*number);
        let scores = self.scores.as_ref()?;
        Some(scores.iter().map(move |number| score(number).expect("`Outcomes` has looked at each")))
    }

    /// The same as numbers: [`CellScore::number`].
    #[must_use]
    pub fn score_numbers(&self) -> Option<&[u16]> {
        self.scores.as_deref()
    }

    /// Whether each pair has the expected grid.
    #[must_use]
    pub fn solves_all(&self) -> bool {
        self.statuses.iter().all(|byte| *byte == PairStatus::EQUAL)
    }

    /// Pairs with the expected grid.
    #[must_use]
    pub fn equal_count(&self) -> usize {
        self.statuses.iter().filter(|byte| **byte == PairStatus::EQUAL).count()
    }
}

/// Another machine: takes the bytes of a program and the number of a pair, and gives the verdict. The error, a
/// sentence, says why it cannot.
pub type Checker = Box<dyn FnMut(&[u8], usize) -> Result<(PairStatus, CellScore), String> + Send>;

/// Compares a share of the verdicts with another machine's. One difference ends the search with
/// [`ClientError::WrongVerdict`](crate::ClientError::WrongVerdict), and a verdict that the other machine does not give
/// with [`ClientError::CheckFailed`](crate::ClientError::CheckFailed).
pub struct Check {
    /// How many of a million verdicts are compared.
    per_million: u64,
    checker: Checker,
    random: u64,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("per_million", &self.per_million).finish_non_exhaustive()
    }
}

/// Why a comparison ends a search, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CheckError {
    /// The machines give different verdicts.
    Differs(String),
    /// The other machine gives none.
    Failed(String),
}

/// As many random numbers as are compared with a share.
const MILLION: u64 = 1_000_000;

impl Check {
    /// Compares this share of the verdicts, from 0 to 1, chosen at random by `seed`.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to a million"
    )]
    pub fn new(fraction: f64, seed: u64, checker: Checker) -> Self {
        let per_million = (fraction.clamp(0.0, 1.0) * 1e6).ceil() as u64;
        Self { per_million, checker, random: seed }
    }

    /// Compares some verdicts of a program, whose bytes `program` gives. Returns how many.
    pub(super) fn compare<'p>(
        &mut self,
        program: impl Fn() -> Cow<'p, [u8]>,
        verdicts: &Verdicts,
    ) -> Result<u64, CheckError> {
        let mut compared = 0;
        for (pair, status) in verdicts.statuses().enumerate() {
            if self.next() % MILLION >= self.per_million {
                continue;
            }
            compared += 1;
            let (want, want_score) =
                (self.checker)(&program(), pair).map_err(CheckError::Failed)?;
            let score = verdicts.scores().and_then(|mut scores| scores.nth(pair));
            if status != want || score.is_some_and(|score| score != want_score) {
                let (got, want) = (status.name(), want.name());
                return Err(CheckError::Differs(format!(
                    "on pair {pair} the pool says {got} and the reference {want} ({score:?} and {want_score:?})"
                )));
            }
        }
        Ok(compared)
    }

    /// The next number of SplitMix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
