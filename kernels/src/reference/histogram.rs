//! How often each colour occurs. Holes of an object are not colours.
//!
//! Mirrors the first half of `kernels/cuda/histogram.cuh`.

/// The number of colours.
pub const COLORS: usize = 10;

/// Cells of each colour in one picture.
pub type Histogram = [u32; COLORS];

/// Counts every colour.
#[must_use]
pub fn histogram(cells: &[u8]) -> Histogram {
    let mut counts = [0; COLORS];
    for (color, sum) in (0..).zip(&mut counts) {
        *sum = count(cells, color);
    }
    counts
}

/// Counts the cells of one colour.
#[must_use]
pub fn count(cells: &[u8], color: u8) -> u32 {
    // A sum of at most 255 ones fits a byte, and the compiler adds 16 bytes at a time.
    let parts = cells.chunks(usize::from(u8::MAX));
    parts.map(|part| u32::from(part.iter().map(|&cell| u8::from(cell == color)).sum::<u8>())).sum()
}

/// Counts the distinct colours.
#[must_use]
pub fn distinct(counts: &Histogram) -> u32 {
    counts.iter().map(|&count| u32::from(count != 0)).sum()
}

#[cfg(test)]
mod tests {
    use super::super::picture::HOLE;
    use super::*;

    #[test]
    fn every_cell_is_counted_once() {
        let cells: Vec<u8> = (0..4_096).map(|i| u8::try_from(i * i % 7 % 10).unwrap()).collect();
        let counts = histogram(&cells);
        assert_eq!(counts.iter().sum::<u32>(), 4_096);
        for color in 0..10 {
            let want = cells.iter().filter(|&&cell| cell == color).count();
            assert_eq!(counts[usize::from(color)] as usize, want);
        }
        assert_eq!(histogram(&[3; 4_096])[3], 4_096);
        assert_eq!(histogram(&[HOLE, 3, HOLE]).iter().sum::<u32>(), 1);
    }

    #[test]
    fn distinct_counts_colours_not_cells() {
        assert_eq!(distinct(&histogram(&[4, 4, 4])), 1);
        assert_eq!(distinct(&histogram(&[0, 9, 0, 5])), 3);
    }
}
