//! Laws between ops that hold for any implementation: the group of the square, cutting and joining, painting,
//! boxes, and the definition of objects. They are tested on random grids, which shrink to the smallest that
//! breaks a law.

use std::collections::BTreeSet;

use gridpool_kernels::reference::run_batch;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::output::{ItemError, ItemErrorCode, Object, ObjectCell, Output};
use gridpool_protocol::program::{Grouping, Key, Program, Symmetry, Ties};
use gridpool_tests::oracle;
use gridpool_tests::oracle::equalities::{EQUAL, PIECES, on_pieces};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 250,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(90),
        ..ProptestConfig::default()
    })]

    #[test]
    fn equal_programs_give_equal_results(grid in grids()) {
        for (left, right) in EQUAL {
            prop_assert!(agree(left, right, &grid), "{left} and {right}");
        }
    }

    #[test]
    fn equal_programs_on_objects_and_patches_give_equal_results(grid in grids()) {
        for (left, right) in on_pieces() {
            prop_assert!(agree(&left, &right, &grid), "{left} and {right}");
        }
    }

    #[test]
    fn one_symmetry_after_another_is_the_product_of_their_matrices(grid in grids()) {
        for (first, second) in pairs(Symmetry::ALL) {
            let product = times(matrix(second), matrix(first));
            let one = Symmetry::ALL.into_iter().find(|&symmetry| matrix(symmetry) == product);
            let one = one.expect("the eight are a group");
            let both = format!("{} | {}", first.name(), second.name());
            prop_assert_eq!(run(&both, &grid), run(one.name(), &grid), "{} and {:?}", both, one);
        }
    }

    #[test]
    fn objects_divide_the_cells_that_are_not_background(grid in grids(), code in 0..8_u8) {
        let grouping = Grouping::from_code(code).unwrap();
        let background = grouping.without_bg.then(|| number("mostcolor", &grid));
        let objects = objects(&format!("o_g({code})"), &grid);
        let listed: Vec<ObjectCell> = objects.iter().flatten().copied().collect();
        let parted: BTreeSet<ObjectCell> = listed.iter().copied().collect();
        prop_assert_eq!(listed.len(), parted.len(), "no cell is in two objects");
        let foreground = cells(&grid).filter(|cell| Some(cell.color.into()) != background);
        prop_assert_eq!(parted, foreground.collect());
        prop_assert!(objects.iter().all(|object| object.is_sorted_by_key(place)));
        prop_assert!(objects.is_sorted_by_key(|object| place(&object[0])));
        if grouping.univalued {
            prop_assert!(objects.iter().all(is_of_one_color));
        }
    }

    #[test]
    fn objects_only_merge_when_more_cells_touch(grid in grids(), without_bg: bool) {
        let count = |univalued: bool, diagonal: bool| {
            objects(&format!("objects({univalued}, {diagonal}, {without_bg})"), &grid).len()
        };
        prop_assert!(count(true, false) >= count(true, true));
        prop_assert!(count(true, false) >= count(false, false));
        prop_assert!(count(true, true) >= count(false, true));
        prop_assert!(count(false, false) >= count(false, true));
    }

    #[test]
    fn a_turned_grid_has_objects_of_the_same_sizes(grid in grids(), code in 0..8_u8) {
        for symmetry in Symmetry::ALL {
            let turned = objects(&format!("{} | o_g({code})", symmetry.name()), &grid);
            let still = objects(&format!("o_g({code})"), &grid);
            prop_assert_eq!(sizes(&turned), sizes(&still), "{:?}", symmetry);
        }
    }

    #[test]
    fn a_partition_has_one_object_of_each_colour(grid in grids()) {
        let parts = objects("partition", &grid);
        prop_assert!(parts.iter().all(is_of_one_color));
        prop_assert!(parts.is_sorted_by_key(|object| place(&object[0])));
        let colors: BTreeSet<u8> = parts.iter().map(|object| object[0].color).collect();
        prop_assert_eq!(colors.len(), parts.len());
        let background = number("mostcolor", &grid);
        let rest = parts.into_iter().filter(|object| i32::from(object[0].color) != background);
        prop_assert_eq!(objects("fgpartition", &grid), rest.collect::<Vec<_>>());
    }

    #[test]
    fn the_first_of_the_best_is_chosen(grid in grids(), code in 0..8_u8) {
        let list = objects(&format!("o_g({code})"), &grid);
        for key in Key::ALL {
            // The measure of that name for each object.
            let ask = |k| number(&format!("o_g({code}) | nth({k}) | {}", key.name()), &grid);
            let keys: Vec<i32> = (0..list.len()).map(ask).collect();
            for (op, best) in [("argmax", keys.iter().max()), ("argmin", keys.iter().min())] {
                let Some(best) = best else { continue };
                let first = keys.iter().position(|key| key == best).unwrap();
                let chosen = run(&format!("o_g({code}) | {op}({})", key.name()), &grid);
                prop_assert_eq!(chosen, Ok(Output::Object(list[first].clone())), "{} {:?}", op, key);
            }
        }
    }

    #[test]
    fn lists_are_counted_from_both_ends_and_filtered_in_order(
        grid in grids(), code in 0..8_u8, k in 0..5_usize, color in 0..4_u8, size in 0..4_usize,
    ) {
        let list = objects(&format!("o_g({code})"), &grid);
        let nth = |k: &str| run(&format!("o_g({code}) | {k}"), &grid).ok();
        let want = |at: Option<usize>| {
            at.and_then(|at| list.get(at)).map(|object| Output::Object(object.clone()))
        };
        prop_assert_eq!(nth(&format!("nth({k})")), want(Some(k)));
        prop_assert_eq!(nth(&format!("nth(-{})", k + 1)), want(list.len().checked_sub(k + 1)));
        prop_assert_eq!(nth("first"), want(Some(0)));
        prop_assert_eq!(nth("last"), want(list.len().checked_sub(1)));
        let by_color = objects(&format!("o_g({code}) | colorfilter({color})"), &grid);
        let of_color = list.iter().filter(|object| object[0].color == color).cloned();
        prop_assert_eq!(by_color, of_color.collect::<Vec<_>>());
        let by_size = objects(&format!("o_g({code}) | sizefilter({size})"), &grid);
        let of_size = list.iter().filter(|object| object.len() == size).cloned();
        prop_assert_eq!(by_size, of_size.collect::<Vec<_>>());
    }

    #[test]
    fn a_box_agrees_with_its_corners_and_sides(grid in grids(), at in 0..PIECES.len(), down in -9..9_i32) {
        let piece = format!("{} | shift({down}, 3)", PIECES[at]);
        let ask = |op: &str| run(&format!("{piece} | {op}"), &grid);
        let (Ok(ul), Ok(lr)) = (ask("ulcorner").map(vector), ask("lrcorner").map(vector)) else {
            return Ok(());
        };
        let (top, left, bottom, right) = (ul.0, ul.1, lr.0, lr.1);
        let (h, w) = (bottom - top + 1, right - left + 1);
        let sides = [("uppermost", top), ("lowermost", bottom), ("leftmost", left), ("rightmost", right)];
        for (op, want) in sides.into_iter().chain([("height", h), ("width", w)]) {
            prop_assert_eq!(ask(op), Ok(Output::Number(want)), "{}", op);
        }
        let vectors = [
            ("urcorner", (top, right)),
            ("llcorner", (bottom, left)),
            ("shape", (h, w)),
            ("center", (top + h / 2, left + w / 2)),
        ];
        for (op, (row, col)) in vectors {
            prop_assert_eq!(ask(op), Ok(Output::Vector { row, col }), "{}", op);
        }
        let places: Vec<(i32, i32)> =
            object(ask("recolor(0)").unwrap()).iter().map(place).collect();
        let size = i32::try_from(places.len()).unwrap();
        prop_assert_eq!(ask("size"), Ok(Output::Number(size)));
        // The mean rounded down, for either sign: not above it, and less than one below it.
        let (row, col) = vector(ask("centerofmass").unwrap());
        let rows: i32 = places.iter().map(|(row, _)| row).sum();
        let cols: i32 = places.iter().map(|(_, col)| col).sum();
        prop_assert!((row * size..(row + 1) * size).contains(&rows));
        prop_assert!((col * size..(col + 1) * size).contains(&cols));
        prop_assert_eq!(ask("square"), Ok(Output::Flag(h == w && size == h * w)));
        prop_assert_eq!(ask("portrait"), Ok(Output::Flag(h > w)));
        prop_assert_eq!(ask("hline"), Ok(Output::Flag(h == 1 && size == w)));
        prop_assert_eq!(ask("vline"), Ok(Output::Flag(w == 1 && size == h)));
        // The box is the piece plus its free places; its outlines have the right number of places.
        let count = |op: &str| number(&format!("{piece} | {op} | size"), &grid);
        prop_assert_eq!(count("backdrop"), h * w);
        prop_assert_eq!(count("delta"), h * w - size);
        prop_assert_eq!(count("outbox"), 2 * (h + w) + 4);
        prop_assert_eq!(count("box"), h * w - (h - 2).max(0) * (w - 2).max(0));
        prop_assert_eq!(count("corners"), h.min(2) * w.min(2));
    }

    #[test]
    fn painting_changes_the_right_places(
        grid in grids(), at in 0..PIECES.len(), (down, right) in (-4..5_i32, -4..5_i32), color in 0..4_u8,
    ) {
        let piece = format!("{} | shift({down}, {right})", PIECES[at]);
        let Ok(patch) = run(&format!("{piece} | recolor({color})"), &grid) else { return Ok(()) };
        let places: BTreeSet<(i32, i32)> = object(patch).iter().map(place).collect();
        let background = number("mostcolor", &grid);
        let painted = |text: &str| cells(&grid_of(text, &grid)).collect::<Vec<_>>();
        let want = |color_at: &dyn Fn(&ObjectCell) -> u8| -> Vec<ObjectCell> {
            let cell = |cell: ObjectCell| {
                let color = if places.contains(&place(&cell)) { color_at(&cell) } else { cell.color };
                ObjectCell { color, ..cell }
            };
            cells(&grid).map(cell).collect()
        };
        let ground = u8::try_from(background).unwrap();
        prop_assert_eq!(painted(&format!("{piece} | fill({color})")), want(&|_| color));
        prop_assert_eq!(painted(&format!("{piece} | cover")), want(&|_| ground));
        let under = |cell: &ObjectCell| if cell.color == ground { color } else { cell.color };
        prop_assert_eq!(painted(&format!("{piece} | underfill({color})")), want(&under));
        let moved = painted(&format!("{} | recolor({color}) | move({down}, {right})", PIECES[at]));
        let covered = grid_of(&format!("{} | cover", PIECES[at]), &grid);
        let covered = cells(&covered).map(|cell| {
            let color = if places.contains(&place(&cell)) { color } else { cell.color };
            ObjectCell { color, ..cell }
        });
        prop_assert_eq!(moved, covered.collect::<Vec<_>>());
    }

    #[test]
    fn a_window_shows_the_cells_behind_it(
        grid in grids(), (row, col) in (0..8_usize, 0..8_usize), (h, w) in (0..8_usize, 0..8_usize),
    ) {
        let window = grid_of(&format!("crop({row}, {col}, {h}, {w})"), &grid);
        let (left, right) = (col.min(grid.w()), (col + w).min(grid.w()));
        let rows = grid.rows().skip(row).take(h).map(|line| &line[left..right]);
        let rows: Vec<&[u8]> = rows.filter(|line| !line.is_empty()).collect();
        prop_assert_eq!(window.rows().collect::<Vec<_>>(), rows);
    }

    #[test]
    fn joined_grids_can_be_cut_apart(a in grids(), b in grids(), color in 0..9_u8) {
        let joined = |text: &str| run_pair(text, &a, &b);
        let height = a.h().min(b.h());
        let left = format!("crop(0, 0, {height}, {})", a.w());
        let right = format!("crop(0, {}, {height}, {})", a.w(), b.w());
        prop_assert_eq!(joined(&format!("hconcat | {left}")), joined(&format!("first | {left}")));
        let cut_b = format!("second | crop(0, 0, {height}, 255)");
        prop_assert_eq!(joined(&format!("hconcat | {right}")), joined(&cut_b));
        let stacked = joined("vconcat");
        prop_assert_eq!(stacked.is_ok(), a.w() == b.w());
        if stacked.is_ok() {
            let rest = format!("vconcat | crop({}, 0, 255, 255)", a.h());
            prop_assert_eq!(joined(&rest), joined("second"));
            let top = format!("vconcat | crop(0, 0, {}, 255)", a.h());
            prop_assert_eq!(joined(&top), joined("first"));
        }
        let common = joined(&format!("cellwise({color})"));
        prop_assert_eq!(common.is_ok(), b.h() >= a.h() && b.w() >= a.w());
        if let Ok(Output::Grid(common)) = common {
            for (cell, got) in cells(&a).zip(cells(&common)) {
                let other = cells(&b).find(|other| place(other) == place(&cell)).unwrap();
                let same = other.color == cell.color;
                prop_assert_eq!(got.color, if same { cell.color } else { color });
            }
        }
        let same = run_pair(&format!("cellwise({color})"), &a, &a);
        prop_assert_eq!(same, Ok(Output::Grid(a.clone())));
        prop_assert_eq!(joined("apply(rot90) | second"), joined("second | rot90"));
    }

    #[test]
    fn the_reference_agrees_with_the_oracle(grid in grids(), code in 0..8_u8, at in 0..EQUAL.len()) {
        let ends = [format!("rot90 | o_g({code})"), EQUAL[at].0.to_owned(), EQUAL[at].1.to_owned()];
        for (end, ties) in ends.iter().flat_map(|end| [(end, Ties::Cpython), (end, Ties::Lowest)]) {
            let program = Program::compile(end, ties).unwrap();
            let batch = GridBatch::from_grids([&grid]).unwrap();
            prop_assert_eq!(run_batch_of(&program, &batch).ok(), oracle::run(&program, &grid).ok());
        }
    }
}

/// A law proves nothing if it compares a program with itself, or if both programs fail.
#[test]
fn every_law_compares_two_different_programs_with_results() {
    // Twelve divides into 2, 3 and 4; no line has only one colour.
    let colors = (0..144_u32).map(|at| (at / 12 * (at / 12) + 3 * (at % 12)) % 5);
    let cells = colors.map(|color| u8::try_from(color).unwrap()).collect();
    let grid = Grid::new(12, 12, cells).unwrap();
    let on_grids = EQUAL.iter().map(|&(left, right)| (left.to_owned(), right.to_owned()));
    for (left, right) in on_grids.chain(on_pieces()) {
        let [one, other] =
            [&left, &right].map(|text| Program::compile(text, Ties::Lowest).unwrap());
        assert_ne!(one.hash(), other.hash(), "{left}, {right}");
        assert!(run(&left, &grid).is_ok() && run(&right, &grid).is_ok(), "{left}, {right}");
    }
}

/// Whether both give the same result. If one makes an empty grid on the way, it may have no result.
fn agree(left: &str, right: &str, grid: &Grid) -> bool {
    match (run(left, grid), run(right, grid)) {
        (Ok(left), Ok(right)) => left == right,
        (Err(error), _) | (_, Err(error)) => error.code == ItemErrorCode::EmptyArg,
    }
}

/// Grids of up to 10 x 10 cells with one to ten colours; they shrink to fewer cells and lower colours.
fn grids() -> impl Strategy<Value = Grid> {
    let bounds = (1..=10_usize, 1..=10_usize, 1..=10_u8);
    bounds.prop_flat_map(|(h, w, colors)| {
        let cells = prop::collection::vec(0..colors, h * w);
        cells.prop_map(move |cells| Grid::new(h, w, cells).expect("it is within the limits"))
    })
}

/// Runs under `lowest`: under `cpython` the order of the cells decides ties, so laws that move
/// cells do not hold.
fn run(text: &str, grid: &Grid) -> Result<Output, ItemError> {
    let program = Program::compile(text, Ties::Lowest).expect(text);
    run_batch_of(&program, &GridBatch::from_grids([grid]).expect("one grid fits a job"))
}

fn run_pair(text: &str, a: &Grid, b: &Grid) -> Result<Output, ItemError> {
    let program = Program::compile(text, Ties::Lowest).expect(text);
    run_batch_of(&program, &GridBatch::from_pairs([(a, Some(b))]).expect("a pair fits a job"))
}

fn run_batch_of(program: &Program, batch: &GridBatch) -> Result<Output, ItemError> {
    let outputs = run_batch(program, batch).expect("the batch has what the program takes");
    outputs.item(0).expect("the result is well formed")
}

/// The result of a program that must have one.
fn grid_of(text: &str, grid: &Grid) -> Grid {
    let Output::Grid(grid) = run(text, grid).expect(text) else { unreachable!("{text}") };
    grid
}

fn number(text: &str, grid: &Grid) -> i32 {
    let Output::Number(number) = run(text, grid).expect(text) else { unreachable!("{text}") };
    number
}

fn objects(text: &str, grid: &Grid) -> Vec<Object> {
    let Output::Objects(objects) = run(text, grid).expect(text) else { unreachable!("{text}") };
    objects
}

fn object(output: Output) -> Object {
    let Output::Object(object) = output else { unreachable!("{output:?} is no object") };
    object
}

fn vector(output: Output) -> (i32, i32) {
    let Output::Vector { row, col } = output else { unreachable!("{output:?} is no vector") };
    (row, col)
}

/// The cells of a grid, row-major.
fn cells(grid: &Grid) -> impl Iterator<Item = ObjectCell> {
    (0..).zip(grid.rows()).flat_map(|(row, colors)| {
        (0..).zip(colors).map(move |(col, &color)| ObjectCell { color, row, col })
    })
}

fn place(cell: &ObjectCell) -> (i32, i32) {
    (cell.row, cell.col)
}

fn is_of_one_color(object: &Object) -> bool {
    object.iter().all(|cell| cell.color == object[0].color)
}

fn sizes(objects: &[Object]) -> Vec<usize> {
    let mut sizes: Vec<usize> = objects.iter().map(Vec::len).collect();
    sizes.sort_unstable();
    sizes
}

fn pairs<T: Copy, const N: usize>(all: [T; N]) -> impl Iterator<Item = (T, T)> {
    (0..N * N).map(move |at| (all[at / N], all[at % N]))
}

/// What a symmetry does to a step of one row down, and to a step of one column right.
fn matrix(symmetry: Symmetry) -> [[i8; 2]; 2] {
    let (down, up, right, left) = ([1, 0], [-1, 0], [0, 1], [0, -1]);
    match symmetry {
        Symmetry::Cmirror => [left, up],
        Symmetry::Dmirror => [right, down],
        Symmetry::Hmirror => [up, right],
        Symmetry::Identity => [down, right],
        Symmetry::Rot180 => [up, left],
        Symmetry::Rot270 => [right, up],
        Symmetry::Rot90 => [left, down],
        Symmetry::Vmirror => [down, left],
    }
}

/// The product of two matrices: `second` after `first`.
fn times(second: [[i8; 2]; 2], first: [[i8; 2]; 2]) -> [[i8; 2]; 2] {
    first.map(|[down, right]| {
        let along = |axis: usize| down * second[0][axis] + right * second[1][axis];
        [along(0), along(1)]
    })
}
