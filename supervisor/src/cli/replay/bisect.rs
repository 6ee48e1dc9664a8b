//! Delta debugging: the smallest part of a set that still fails, by runs over parts of it.

/// What a bisection has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The smallest part that fails: without any chunk of it, it does not.
    pub(super) units: Vec<usize>,
    /// The runs that it took.
    pub(super) runs: u32,
    /// Nothing of it can be left out, one by one. If not, the runs were used up, or the caller has stopped.
    pub(super) is_done: bool,
}

/// The smallest part of `0..count`, which fails as a whole, that `fails` too. It says `None` to stop.
///
/// # Errors
/// That of `fails`.
pub(super) fn smallest<E>(
    count: usize,
    runs_max: u32,
    mut fails: impl FnMut(&[usize]) -> Result<Option<bool>, E>,
) -> Result<Found, E> {
    let mut units: Vec<usize> = (0..count).collect();
    let (mut runs, mut chunks) = (0, 2);
    'smaller: while units.len() > 1 {
        let size = units.len().div_ceil(chunks);
        let parts: Vec<Vec<usize>> = units.chunks(size).map(<[usize]>::to_vec).collect();
        // A chunk alone, then all but a chunk; with two chunks that is the same.
        let without = |left_out: usize| {
            let kept = parts.iter().enumerate().filter(move |&(at, _)| at != left_out);
            kept.flat_map(|(_, part)| part.iter().copied()).collect::<Vec<_>>()
        };
        let alone = parts.iter().cloned().map(|part| (part, 2));
        let rests = (0..parts.len()).filter(|_| parts.len() > 2);
        let rests = rests.map(|at| (without(at), chunks.saturating_sub(1).max(2)));
        for (part, next) in alone.chain(rests) {
            if runs == runs_max {
                return Ok(Found { units, runs, is_done: false });
            }
            runs += 1;
            match fails(&part)? {
                None => return Ok(Found { units, runs: runs - 1, is_done: false }),
                Some(false) => {}
                Some(true) => {
                    (units, chunks) = (part, next);
                    continue 'smaller;
                }
            }
        }
        if size == 1 {
            break;
        }
        chunks = units.len().min(chunks * 2);
    }
    Ok(Found { units, runs, is_done: true })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Fails if all culprits are there.
    fn found(count: usize, culprits: &[usize], runs_max: u32) -> Found {
        let fails = |part: &[usize]| {
            assert!(!part.is_empty() && part.is_sorted());
            Ok::<_, Infallible>(Some(culprits.iter().all(|one| part.contains(one))))
        };
        smallest(count, runs_max, fails).unwrap()
    }

    #[test]
    fn one_culprit_among_many_is_found_in_logarithmic_runs() {
        for culprit in [0, 1, 77, 4_095] {
            let found = found(4_096, &[culprit], 1_000);
            assert_eq!((found.units, found.is_done), (vec![culprit], true));
            assert!(found.runs <= 2 * 12, "{}", found.runs);
        }
    }

    #[test]
    fn culprits_that_only_fail_together_are_all_found() {
        for culprits in [&[3, 900][..], &[0, 500, 999], &[7, 8, 9, 10]] {
            let found = found(1_000, culprits, 100_000);
            assert_eq!((&*found.units, found.is_done), (culprits, true));
        }
        let all: Vec<usize> = (0..9).collect();
        assert_eq!(found(9, &all, 1_000).units, all);
    }

    #[test]
    fn nothing_is_left_out_of_one_and_the_runs_are_bounded() {
        assert_eq!(found(1, &[0], 10), Found { units: vec![0], runs: 0, is_done: true });
        let cut = found(1_000, &[3, 900], 5);
        assert_eq!((cut.runs, cut.is_done), (5, false));
        let stopped = smallest(8, 10, |_| Ok::<_, Infallible>(None)).unwrap();
        assert_eq!((stopped.units.len(), stopped.runs, stopped.is_done), (8, 0, false));
    }
}
