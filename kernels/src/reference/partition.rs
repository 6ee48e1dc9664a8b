//! One object for each colour: labels follow colours, not neighbours.
//!
//! Objects are numbered by their first cells, row-major, as in all ops.
//!
//! Mirrors `kernels/cuda/partition.cuh`.

use super::histogram::COLORS;

/// Writes to `labels` the number from 1 of each cell's colour, ordered by the colours' first cells, and
/// returns how many there are. Cells of `background` get 0: it is `None` for `partition`, and the commonest
/// colour for `fgpartition`.
///
/// # Panics
/// If a cell is not a colour.
pub fn partition(cells: &[u8], background: Option<u8>, labels: &mut [u16]) -> u16 {
    let mut numbers = [0; COLORS];
    let mut count = 0;
    for (label, &color) in labels.iter_mut().zip(cells) {
        let number = &mut numbers[usize::from(color)];
        if *number == 0 && Some(color) != background {
            count += 1;
            *number = count;
        }
        *label = *number;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(cells: &[u8], background: Option<u8>) -> (u16, Vec<u16>) {
        let mut labels = vec![9; cells.len()];
        let count = partition(cells, background, &mut labels);
        (count, labels)
    }

    #[test]
    fn colours_are_numbered_as_they_come() {
        assert_eq!(labels(&[5, 0, 5, 3], None), (3, vec![1, 2, 1, 3]));
        assert_eq!(labels(&[5, 0, 5, 3], Some(5)), (2, vec![0, 1, 0, 2]));
        assert_eq!(labels(&[4, 4], None), (1, vec![1, 1]));
        assert_eq!(labels(&[4, 4], Some(4)), (0, vec![0, 0]));
    }
}
