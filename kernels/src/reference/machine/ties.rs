//! The commonest and the rarest of values, and which of equals.

use std::collections::BTreeMap;

use gridpool_protocol::program::Ties;
use gridpool_protocol::solver::value::Value;

/// Entries beside a slot that CPython tries before it jumps.
const BESIDE: usize = 9;
/// Slots of the smallest table.
const SLOTS_MIN: usize = 8;

/// The commonest value; of equals the first in the order of `ties`.
pub(super) fn commonest(values: &[Value], ties: Ties) -> Option<Value> {
    best(values, ties, |count, best| count > best)
}

/// The rarest value; of equals the first in the order of `ties`.
pub(super) fn rarest(values: &[Value], ties: Ties) -> Option<Value> {
    best(values, ties, |count, best| count < best)
}

fn best(values: &[Value], ties: Ties, is_better: impl Fn(usize, usize) -> bool) -> Option<Value> {
    let mut sorted: Vec<&Value> = values.iter().collect();
    sorted.sort_by(|one, two| one.canonical(two));
    let numbers: Option<Vec<i32>> = values
        .iter()
        .map(|value| match value {
            Value::Number(number) => Some(*number),
            _ => None,
        })
        .collect();
    let mut counts: Vec<(&Value, usize)> = Vec::new();
    for value in sorted {
        match counts.last_mut() {
            Some((last, count)) if *last == value => *count += 1,
            Some(_) | None => counts.push((value, 1)),
        }
    }
    if let (Some(numbers), Ties::Cpython) = (numbers, ties) {
        let places: BTreeMap<i32, usize> = cpython_order(numbers)
            .into_iter()
            .enumerate()
            .map(|(at, number)| (number, at))
            .collect();
        counts.sort_by_key(|(value, _)| match value {
            Value::Number(number) => places.get(number).copied().unwrap_or(usize::MAX),
            _ => usize::MAX,
        });
    }
    let first =
        counts.into_iter().reduce(|best, next| if is_better(next.1, best.1) { next } else { best });
    first.map(|(value, _)| value.clone())
}

/// The commonest colour of cells; of equals the first in the order of `ties`.
pub(super) fn common_color(cells: impl Iterator<Item = i32>, ties: Ties) -> Option<i32> {
    color(cells, ties, |count, best| count > best)
}

/// The rarest colour of cells; of equals the first in the order of `ties`.
pub(super) fn rare_color(cells: impl Iterator<Item = i32>, ties: Ties) -> Option<i32> {
    color(cells, ties, |count, best| count < best)
}

fn color(
    cells: impl Iterator<Item = i32>,
    ties: Ties,
    is_better: impl Fn(usize, usize) -> bool,
) -> Option<i32> {
    let (mut known, mut arrivals) = (BTreeMap::new(), Vec::new());
    for color in cells {
        let count = known.entry(color).or_insert(0);
        if *count == 0 {
            arrivals.push(color);
        }
        *count += 1;
    }
    let order = match ties {
        Ties::Cpython => cpython_order(arrivals),
        Ties::Lowest => known.keys().copied().collect(),
    };
    let counts = order.into_iter().map(|color| (color, known.get(&color).copied().unwrap_or(0)));
    let first = counts.reduce(|best, next| if is_better(next.1, best.1) { next } else { best });
    first.map(|(color, _)| color)
}

/// The order in which CPython iterates a set that these numbers entered one by one.
pub(super) fn cpython_order(numbers: impl IntoIterator<Item = i32>) -> Vec<i32> {
    let mut table: Vec<Option<i32>> = vec![None; SLOTS_MIN];
    let mut entries = 0;
    for number in numbers {
        if !enter(&mut table, number) {
            continue;
        }
        entries += 1;
        if entries * 5 >= (table.len() - 1) * 3 {
            let mut size = SLOTS_MIN;
            while size <= entries * 4 {
                size *= 2;
            }
            let old = std::mem::replace(&mut table, vec![None; size]);
            for number in old.into_iter().flatten() {
                enter(&mut table, number);
            }
        }
    }
    table.into_iter().flatten().collect()
}

/// Puts a number into a table. Returns whether it is new.
fn enter(table: &mut [Option<i32>], number: i32) -> bool {
    let mask = table.len() - 1;
    let hash = if number == -1 { -2 } else { i64::from(number) };
    let mut perturb = hash.cast_unsigned();
    let slot = |bits: u64| usize::try_from(bits & mask as u64).unwrap_or(0);
    let mut at = slot(perturb);
    loop {
        let beside = if at + BESIDE <= mask { BESIDE } else { 0 };
        for entry in &mut table[at..=at + beside] {
            match entry {
                None => {
                    *entry = Some(number);
                    return true;
                }
                Some(known) if *known == number => return false,
                Some(_) => {}
            }
        }
        perturb >>= 5;
        at = slot((at as u64).wrapping_mul(5).wrapping_add(1).wrapping_add(perturb));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_numbers_iterate_as_in_cpython() {
        // list({…}) of CPython 3.11.
        assert_eq!(cpython_order([8, 0]), [8, 0]);
        assert_eq!(cpython_order([9, 8, 1, 0]), [8, 9, 1, 0]);
        assert_eq!(cpython_order([9, 8, 1, 0, 3]), [0, 1, 3, 8, 9]);
        assert_eq!(cpython_order([-1, 6]), [-1, 6]);
        assert_eq!(cpython_order([6, -1]), [6, -1]);
        assert_eq!(cpython_order([-1, 6, 14]), [14, -1, 6]);
        assert_eq!(cpython_order([100, 4, 36, 68]), [100, 4, 36, 68]);
        assert_eq!(cpython_order([64, 32, 0, 96, 128, 5]), [64, 0, 32, 96, 128, 5]);
    }

    /// The digest is of `repr(list(s))` for 2,000 sets of 1 to 40 numbers from -100 to 199, by CPython 3.11.
    #[test]
    fn two_thousand_sets_iterate_as_in_cpython() {
        use gridpool_protocol::program::hex;
        use sha2::{Digest, Sha256};

        let (mut digest, mut random) = (Sha256::new(), 12_345_i64);
        for set in 0..2_000 {
            let mut numbers = Vec::new();
            for _ in 0..=set % 40 {
                random = (random * 1_103_515_245 + 12_345) % (1 << 31);
                numbers.push(i32::try_from((random >> 8) % 300 - 100).unwrap());
            }
            digest.update(format!("{:?}", cpython_order(numbers)));
        }
        let want = "d1d20424adf9b2d4255a772c9a9bab682d835485804606170216097a876e4ce9";
        assert_eq!(hex(&digest.finalize()), want);
    }

    #[test]
    fn equals_go_to_the_first_in_order() {
        let numbers = [8, 0, 0, 8].map(Value::Number);
        assert_eq!(commonest(&numbers, Ties::Cpython), Some(Value::Number(8)));
        assert_eq!(commonest(&numbers, Ties::Lowest), Some(Value::Number(0)));
        assert_eq!(rare_color([3, 3, 8, 0].into_iter(), Ties::Cpython), Some(8));
        assert_eq!(rare_color([3, 3, 8, 0].into_iter(), Ties::Lowest), Some(0));
        assert_eq!(commonest(&[], Ties::Lowest), None);
    }
}
