//! Grids for tests: random ones that a seed replays, and ones that break implementations.

use gridpool_protocol::batch::Grid;

/// SplitMix64: fifteen lines that give the same numbers forever, unlike a crate's generator.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `end - 1`, nearly uniform. `end` must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        let number = self.number() % end as u64;
        usize::try_from(number).expect("it is less than a usize")
    }

    /// One element of `among`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }

    /// Puts `items` in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..=items.len()).rev() {
            items.swap(end - 1, self.below(end));
        }
    }
}

/// A grid of 1 x 1 to 30 x 30 cells and one to ten colours: noise, a busy foreground on a background, or
/// colours that tie for the commonest.
pub fn random_grid(rng: &mut SplitMix64) -> Grid {
    let longest = rng.pick(&[2, 5, 12, 30]);
    let (h, w) = match rng.below(10) {
        0 => (1, 1 + rng.below(30)),
        1 => (1 + rng.below(30), 1),
        _ => (1 + rng.below(longest), 1 + rng.below(longest)),
    };
    let mut colors: Vec<u8> = (0..10).collect();
    rng.shuffle(&mut colors);
    colors.truncate(1 + rng.below(10));
    let mut cells: Vec<u8> = match rng.below(3) {
        0 => (0..h * w).map(|_| rng.pick(&colors)).collect(),
        1 => {
            let empty_in_ten = 2 + rng.below(7);
            let cell = |_| if rng.below(10) < empty_in_ten { colors[0] } else { rng.pick(&colors) };
            (0..h * w).map(cell).collect()
        }
        _ => colors.iter().copied().cycle().take(h * w).collect(),
    };
    if rng.below(2) == 0 {
        rng.shuffle(&mut cells);
    }
    Grid::new(h, w, cells).expect("it is within the limits")
}

/// `count` random grids; the same seed gives the same grids.
#[must_use]
pub fn random_grids(seed: u64, count: usize) -> Vec<Grid> {
    let mut rng = SplitMix64::new(seed);
    (0..count).map(|_| random_grid(&mut rng)).collect()
}

/// A random pair: two similar grids of one shape, two grids of any shapes, or an input alone.
pub fn random_pair(rng: &mut SplitMix64) -> (Grid, Option<Grid>) {
    let input = random_grid(rng);
    let output = match rng.below(4) {
        0 => None,
        1 => Some(random_grid(rng)),
        _ => {
            let cells = input.cells().iter();
            let color = rng.below(10);
            let other = u8::try_from(color).expect("a colour fits a byte");
            let cells = cells.map(|&cell| if rng.below(3) == 0 { other } else { cell }).collect();
            Some(Grid::new(input.h(), input.w(), cells).expect("as large as the input"))
        }
    };
    (input, output)
}

/// `count` random pairs; the same seed gives the same pairs.
#[must_use]
pub fn random_pairs(seed: u64, count: usize) -> Vec<(Grid, Option<Grid>)> {
    let mut rng = SplitMix64::new(seed);
    (0..count).map(|_| random_pair(&mut rng)).collect()
}

/// Named grids at the edges of the definitions: largest sides and areas, ties of colours that share a slot of
/// CPython's set, most objects, longest paths of labels.
#[must_use]
pub fn adversarial() -> Vec<(&'static str, Grid)> {
    vec![
        ("checkerboard", checkerboard(30, [0, 1])),
        ("checkerboard of 8 and 0", checkerboard(30, [8, 0])),
        ("checkerboard of odd side", checkerboard(29, [9, 1])),
        ("largest checkerboard, 4,096 objects", checkerboard(64, [1, 9])),
        ("spiral", spiral(30)),
        ("snake", snake(30)),
        ("snake of the largest grid", snake(64)),
        ("diagonals", paint(30, 30, |r, c| usize::from((r + c) % 3 == 0))),
        ("concentric rings", paint(30, 30, |r, c| r.min(c).min(29 - r).min(29 - c) % 10)),
        ("comb", paint(30, 30, |r, c| usize::from(r == 29 || c % 2 == 0))),
        ("all one colour", paint(30, 30, |_, _| 7)),
        ("all black", paint(30, 30, |_, _| 0)),
        ("one black cell", paint(1, 1, |_, _| 0)),
        ("one maroon cell", paint(1, 1, |_, _| 9)),
        ("one row", paint(1, 30, |_, c| c / 3 % 3)),
        ("one column", paint(30, 1, |r, _| r / 3 % 3)),
        ("ten colours, all tied, ascending", paint(10, 10, |r, _| r)),
        ("ten colours, all tied, descending", paint(10, 10, |r, _| 9 - r)),
        ("ten colours, all tied, largest", paint(30, 30, |r, c| (r * 30 + c) * 7 % 10)),
        ("tie of 8 before 0", rows(&[[8, 0], [0, 8]])),
        ("tie of 0 before 8", rows(&[[0, 8], [8, 0]])),
        ("tie of 9 before 1", rows(&[[9, 1], [1, 9]])),
        ("tie of 1 before 9", rows(&[[1, 9], [9, 1]])),
        ("tie that iterates 8, 9, 1, 0", rows(&[[9, 8, 1, 0]])),
        ("tie of 0, 8, 9, 1", rows(&[[0, 8], [9, 1]])),
        ("tie of 8, 0, 5 in a full chain", rows(&[[8], [0], [5]])),
        ("five colours tied: the table has grown", rows(&[[9, 8, 4, 1, 0]])),
        ("five colours, two tied", rows(&[[9, 9, 8], [8, 3, 2], [1, 1, 4]])),
        ("five colours, the fifth last", rows(&[[8, 0, 9, 1], [8, 0, 9, 5]])),
        ("two colours that touch", rows(&[[1, 1, 0], [0, 2, 2]])),
        ("only corners touch", rows(&[[1, 0], [0, 1]])),
        ("labels merge late", rows(&[[1, 0, 1, 0, 1], [1, 0, 1, 0, 1], [1, 1, 1, 1, 1]])),
        ("31 x 31", paint(31, 31, |r, c| r * c % 5)),
        ("36 x 36", paint(36, 36, |r, c| (r * r + c) % 7)),
        ("147 x 3", paint(147, 3, |r, c| (r / 2 + c) % 4)),
        ("largest grid", paint(64, 64, |r, c| (r / 3 + c / 5) % 3)),
        ("longest row", paint(1, 255, |_, c| c / 50 % 2)),
        ("longest column", paint(255, 1, |r, _| r / 50 % 2)),
        ("longest side with most cells", paint(255, 16, |r, c| usize::from(r % 17 < c))),
    ]
}

fn paint(h: usize, w: usize, color: impl Fn(usize, usize) -> usize) -> Grid {
    let colors = (0..h * w).map(|at| color(at / w, at % w));
    let cells = colors.map(|color| u8::try_from(color).expect("a colour fits a byte"));
    Grid::new(h, w, cells.collect()).expect("the sample is a grid")
}

fn rows<const W: usize>(rows: &[[u8; W]]) -> Grid {
    Grid::from_rows(rows).expect("the sample is a grid")
}

fn checkerboard(side: usize, colors: [usize; 2]) -> Grid {
    paint(side, side, |r, c| colors[(r + c) % 2])
}

/// One line that winds inwards: rings, each cut open below its start and connected to the next.
fn spiral(side: usize) -> Grid {
    paint(side, side, |r, c| {
        let ring = r.min(c).min(side - 1 - r).min(side - 1 - c);
        let at_a_seam = r == c + 1 && r < side / 2;
        usize::from((ring % 2 == 0) != at_a_seam)
    })
}

/// One line that goes back and forth, with one cell at alternate ends that leads to the next row.
fn snake(side: usize) -> Grid {
    paint(side, side, |r, c| match r % 4 {
        0 | 2 => 1,
        1 => usize::from(c == side - 1),
        _ => usize::from(c == 0),
    })
}
