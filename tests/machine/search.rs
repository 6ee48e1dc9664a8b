//! The kernel of searches against the reference: statuses and scores of populations of programs on the same pairs.

use std::io::{Read, Write};
use std::thread;

use gridpool_kernels::reference::search::{SearchPairs, judge};
use gridpool_kernels::runs::{RUN_MAX, Runs, common, key};
use gridpool_protocol::search::{CellScore, PackedPrograms, PairStatus};

use super::*;

/// Programs of one launch.
const PROGRAMS: usize = 16;
/// Pairs of one launch.
const PAIRS: usize = 5;

/// Texts whose results are grids, rows of numbers, flags, and values that are neither.
const TEXTS: &[&str] = &[
    "O = I",
    "O = rot90(I)",
    "O = vconcat(I, hmirror(I))",
    "O = replace(I, ZERO, NEG_TWO)",
    "O = apply(identity, I)",
    "O = apply(identity, rot90(I))",
    "O = ((1, 2), (3, 4))",
    "O = ((T, F), (F, T))",
    "O = apply(lambda x: (x, x), rot90(I))",
    "O = (palette(I), ulcorner(ofcolor(I, NINE)))",
    "O = astuple((1, 2, 3), (4, 5))",
    "x = ulcorner(ofcolor(I, NINE))\nO = (x, (1, 2))",
    "O = (ulcorner(ofcolor(I, ONE)), lrcorner(ofcolor(I, ONE)))",
    "O = shape(I)",
    "O = size(I)",
    "O = objects(I, T, F, T)",
    "O = subgrid(ofcolor(I, SEVEN), I)",
    "O = power(rot90, multiply(width(I), TEN))(I)",
    "O = trim(I)",
    "O = upscale(I, FOUR)",
    "O = (rot90(I), I)",
    "O = remove((0, 0), ((0, 0), (0, 0)))",
];

/// Pairs for some programs: most outputs are what one of them gives, some are missing, some odd.
pub(super) struct Pairs {
    pub(super) shapes: Vec<[u8; 2]>,
    pub(super) cells: Vec<u8>,
}

impl Pairs {
    pub(super) fn random(
        random: &mut Random,
        machine: &mut Machine,
        codes: &[Code],
        given: &[Grid],
    ) -> Self {
        let mut this = Self { shapes: Vec::new(), cells: Vec::new() };
        for _ in 0..PAIRS {
            let input = match random.below(2) {
                0 if !given.is_empty() => given[random.below(given.len())].clone(),
                _ => random.grid(),
            };
            let code = &codes[random.below(codes.len())];
            let ran = machine.run(code, Value::Grid(input.clone().into()), MUTANT_STEPS);
            let output = match ran.map(|finished| finished.value) {
                Ok(Value::Grid(grid)) if random.below(4) > 0 => grid.as_ref().clone(),
                _ => random.grid(),
            };
            this.push(&input, if random.below(12) == 0 { Some(12) } else { None });
            if random.below(10) == 0 || output.cells().is_empty() {
                this.shapes.push([0, 0]);
            } else {
                this.push(&output, None);
            }
        }
        this
    }

    /// Where the cells of each grid start.
    pub(super) fn grid_offsets(&self) -> Vec<u32> {
        let mut grids = vec![0];
        for [h, w] in &self.shapes {
            grids.push(grids[grids.len() - 1] + u32::from(*h) * u32::from(*w));
        }
        grids
    }

    /// Adds a grid; its first cell may be another than it has.
    fn push(&mut self, grid: &Grid, first: Option<u8>) {
        let side = |side: usize| u8::try_from(side).unwrap();
        let start = self.cells.len();
        self.shapes.push([side(grid.height()), side(grid.width())]);
        self.cells.extend(grid.cells().iter().map(|cell| cell.cast_unsigned()));
        if let Some(first) = first {
            self.cells[start] = first;
        }
    }
}

/// The first number of a search, and of one whose launch is stopped while it runs.
const SEARCH: u32 = u32::MAX;
const STOPPED_SEARCH: u32 = u32::MAX - 1;

impl Kernel {
    /// The status and the score of each program on each pair.
    fn search(&mut self, codes: &[Code], pairs: &Pairs, arena_words: u32) -> Vec<(u8, u16)> {
        self.search_until(SEARCH, codes, pairs, arena_words)
    }

    fn search_until(
        &mut self,
        first: u32,
        codes: &[Code],
        pairs: &Pairs,
        arena_words: u32,
    ) -> Vec<(u8, u16)> {
        let mut packed = PackedPrograms::default();
        codes.iter().for_each(|code| packed.push(&code.to_bytes()).unwrap());
        let number = |number: usize| u32::try_from(number).unwrap();
        let count = pairs.shapes.len() / 2;
        let head = [
            first,
            number(codes.len()),
            arena_words,
            number(count),
            number(packed.bytes()),
            number(pairs.cells.len()),
        ];
        let mut offsets = vec![0];
        let mut code = Vec::new();
        for at in 0..codes.len() {
            code.extend_from_slice(packed.program(at));
            offsets.push(number(code.len()));
        }
        offsets.resize(offsets.len().next_multiple_of(2), 0);
        let grids = pairs.grid_offsets();
        let runs = match first {
            // One by one, the last one first.
            STOPPED_SEARCH => {
                let order = (0..number(codes.len())).rev().collect();
                Runs { order, shared: vec![0; codes.len()], starts: vec![0] }
            }
            _ => in_runs(codes),
        };
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let sent: [Vec<u8>; 10] = [
            words(&head),
            words(&offsets),
            code,
            pairs.shapes.as_flattened().to_vec(),
            words(&grids),
            pairs.cells.clone(),
            words(&[number(runs.count())]),
            words(&runs.order),
            words(&runs.shared),
            words(&runs.starts),
        ];
        self.to.write_all(&sent.concat()).unwrap();
        self.to.flush().unwrap();
        self.verdicts(codes.len() * count)
    }

    /// Reads so many statuses and scores.
    pub(super) fn verdicts(&mut self, count: usize) -> Vec<(u8, u16)> {
        let mut statuses = vec![0; count];
        let mut scores = vec![0; 2 * count];
        self.from.read_exact(&mut statuses).unwrap();
        self.from.read_exact(&mut scores).unwrap();
        let scores = scores.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
        statuses.into_iter().zip(scores).collect()
    }
}

/// The first evaluation whose verdict is another than the reference's.
fn first_difference(
    kernel: &mut Kernel,
    machine: &mut Machine,
    codes: &[Code],
    pairs: &Pairs,
) -> Option<String> {
    let known = SearchPairs::new(&pairs.shapes, &pairs.cells);
    for words in ARENA_WORDS {
        let got = kernel.search(codes, pairs, words);
        for (at, (status, score)) in got.into_iter().enumerate() {
            let (program, pair) = (at / known.len(), at % known.len());
            let (want, near) = judge(machine, &codes[program], &known, pair);
            if (status, score) != (want.byte(), near.number()) {
                let got = (PairStatus::from_byte(status), CellScore::from_number(score));
                let gives = codes[program].gives();
                return Some(format!(
                    "with {words} words: program {program}, which gives {gives}, on pair {pair}: \
                     {got:?}, and the reference says {want:?} {near:?}"
                ));
            }
        }
    }
    None
}

#[test]
fn the_search_kernel_gives_the_references_verdicts_for_results_of_all_kinds() {
    let Some(mut kernel) = Kernel::start() else { return println!("there is no g++") };
    let (mut machine, mut random) = (Machine::default(), Random(7));
    let code = |text: &&str| Solver::compile(text, Ties::Cpython).unwrap().code().clone();
    let codes: Vec<_> = TEXTS.iter().map(code).collect();
    let outputs = [
        vec![vec![1, 2], vec![3, 4]],
        vec![vec![1, 0], vec![0, 1]],
        vec![vec![1, 2, 3], vec![4, 5]],
        vec![vec![0, 0]],
    ];
    let grid = |rows: &Vec<Vec<i8>>| {
        let width = rows[0].len();
        Grid::new(
            rows.len(),
            width,
            rows.iter().flat_map(|row| row[..width.min(row.len())].to_vec()).collect(),
        )
    };
    let mut count = 0;
    for round in 0..60 {
        let mut pairs = Pairs::random(&mut random, &mut machine, &codes, &[]);
        if let Some(output) = outputs.get(round).and_then(grid) {
            pairs = Pairs { shapes: Vec::new(), cells: Vec::new() };
            pairs.push(&random.grid(), None);
            pairs.push(&output, None);
        }
        count += codes.len() * pairs.shapes.len() / 2;
        let found = first_difference(&mut kernel, &mut machine, &codes, &pairs);
        assert_eq!(found, None, "round {round}");
    }
    println!("{count} evaluations");
}

#[test]
fn the_search_kernel_gives_the_references_verdicts_for_populations_of_mutants() {
    let Some(mut kernel) = Kernel::start() else { return println!("there is no g++") };
    let Some(solvers) = solvers() else { return };
    let (mut machine, mut random) = (Machine::default(), Random(3));
    let (mut evaluations, mut statuses) = (0, std::collections::BTreeMap::new());
    while evaluations < mutants() {
        let (_, code, grids) = &solvers[random.below(solvers.len())];
        let mut codes = vec![limited(code, MUTANT_STEPS)];
        for _ in 0..1_000 {
            codes.extend(random.mutant(&codes[0]));
            let (_, other, _) = &solvers[random.below(solvers.len())];
            codes.push(limited(other, MUTANT_STEPS));
            if codes.len() >= PROGRAMS {
                break;
            }
        }
        let pairs = Pairs::random(&mut random, &mut machine, &codes, grids);
        let found = first_difference(&mut kernel, &mut machine, &codes, &pairs);
        assert_eq!(found, None);
        evaluations += codes.len() * PAIRS;
        let known = SearchPairs::new(&pairs.shapes, &pairs.cells);
        for code in &codes {
            for pair in 0..PAIRS {
                let (status, _) = judge(&mut machine, code, &known, pair);
                *statuses.entry(status.name()).or_insert(0) += 1;
            }
        }
    }
    println!("{evaluations} evaluations: {statuses:?}");
    assert!(statuses.contains_key("equal") && statuses.contains_key("StepLimit"));
}

/// Programs that begin alike: with other constants, and so other registers, ends and branches.
fn family(random: &mut Random, limit: u32) -> Vec<Code> {
    const STARTS: [&str; 4] = [
        "x = objects(I, T, F, T)\ny = argmax(x, size)\nz = subgrid(y, I)",
        "x = rot90(I)\ny = ofcolor(x, 3)\nz = crop(x, ulcorner(y), shape(y))",
        "x = apply(lambda r: order(r, identity), I)\nz = hmirror(I)",
        "x = objects(I, F, F, F)\ny = mapply(toindices, x)\nz = fill(I, 7, y)",
    ];
    const ENDS: [&str; 6] = [
        "O = replace(z, A, B)",
        "w = replace(z, A, B)\nO = fill(w, C, ofcolor(w, B))",
        "w = replace(z, A, B)\nO = vconcat(w, rot180(w))",
        "w = branch(greater(A, B), z, rot90(z))\nO = replace(w, C, A)",
        "w = apply(lambda o: recolor(A, o), objects(z, T, F, F))\nO = paint(z, merge(w))",
        "O = crop(z, astuple(A, B), (C, C))",
    ];
    let starts = [STARTS[random.below(4)], STARTS[random.below(4)]];
    let mut codes = Vec::new();
    while codes.len() < PROGRAMS {
        let mut text = format!("{}\n{}", starts[random.below(2)], ENDS[random.below(6)]);
        for name in ["A", "B", "C"] {
            text = text.replace(name, &random.below(10).to_string());
        }
        let solver = Solver::compile(&text, Ties::Cpython).unwrap();
        codes.push(limited(solver.code(), limit));
    }
    codes
}

#[test]
fn programs_that_begin_alike_have_the_references_verdicts_whatever_they_share() {
    if Kernel::start().is_none() {
        return println!("there is no g++");
    }
    // Half of the rounds each, side by side.
    let halves = thread::scope(|scope| {
        let halves = [0_u32, 1].map(|half| scope.spawn(move || alike(half)));
        halves.map(|half| half.join().unwrap())
    });
    let sum = |of: fn(&Alike) -> usize| halves.iter().map(of).sum::<usize>();
    let (sharing, shifted) = (sum(|half| half.sharing), sum(|half| half.shifted));
    let programs = sum(|half| half.programs);
    println!("{sharing} of {programs} programs go on from another, {shifted} with other registers");
    assert!(2 * sharing > programs && shifted > 100);
}

/// How many programs there were, how many of them go on from another, and how many of those with other registers.
#[derive(Default)]
struct Alike {
    programs: usize,
    sharing: usize,
    shifted: usize,
}

/// Compares programs that begin alike in every second round, from this one on.
fn alike(first: u32) -> Alike {
    let mut kernel = Kernel::start().unwrap();
    let (mut machine, mut random) = (Machine::default(), Random(11 + u64::from(first)));
    let mut alike = Alike::default();
    for round in (first..150).step_by(2) {
        // Limits at and around the place where programs part, too.
        let limit = if round % 3 == 0 { 1 + round / 3 % 16 } else { MUTANT_STEPS };
        let codes = family(&mut random, limit);
        let pairs = Pairs::random(&mut random, &mut machine, &codes, &[]);
        let runs = in_runs(&codes);
        alike.sharing += runs.sharing();
        let constants = |at: usize| codes[runs.order[at] as usize].constants().len();
        alike.shifted += (1..codes.len())
            .filter(|at| runs.shared[*at] > 0 && constants(*at) != constants(at - 1))
            .count();
        alike.programs += codes.len();
        let found = first_difference(&mut kernel, &mut machine, &codes, &pairs);
        assert_eq!(found, None, "round {round}");
    }
    alike
}

/// Programs in the runs that a worker makes of them.
fn in_runs(codes: &[Code]) -> Runs {
    let code = |at: u32| &codes[at as usize];
    let mut order: Vec<u32> = (0..u32::try_from(codes.len()).unwrap()).collect();
    order.sort_by_cached_key(|at| key(code(*at)));
    let common: Vec<_> =
        order.windows(2).map(|both| common(code(both[0]), code(both[1]))).collect();
    Runs::new(order, &common, RUN_MAX)
}

#[test]
fn a_search_that_is_stopped_ends_in_the_midst_of_its_evaluation_and_begins_no_other_share() {
    let Some(mut kernel) = Kernel::start() else { return println!("there is no g++") };
    let mut pairs = Pairs { shapes: Vec::new(), cells: Vec::new() };
    let grid = Grid::new(1, 1, vec![0]).unwrap();
    // One pair.
    (0..2).for_each(|_| pairs.push(&grid, None));
    let solver = |text: &str| Solver::compile(text, Ties::Cpython).unwrap();
    // Minutes, here and on every device.
    let endless = "m = multiply(multiply(TEN, TEN), multiply(TEN, TEN))\n\
                   f = lambda x: power(increment, m)(x)\n\
                   O = canvas(power(f, m)(ZERO), UNITY)";
    let endless = limited(solver(endless).code(), STEPS_MAX);
    let short = solver("O = rot90(I)").code().clone();
    // The emulated launch begins with the last program. In a launch of so few a share is one evaluation.
    let codes = [vec![short.clone(); 100], vec![endless], vec![short.clone(); 10]].concat();
    let got = kernel.search_until(STOPPED_SEARCH, &codes, &pairs, 1 << 13);
    let statuses: Vec<_> = got.iter().map(|(status, _)| *status).collect();
    assert!(statuses[..=100].iter().all(|status| *status == STOPPED), "{statuses:?}");
    assert!(statuses[101..].iter().all(|status| *status == PairStatus::EQUAL), "{statuses:?}");
    // The next launch is not.
    let got = kernel.search(&[short], &pairs, 1 << 13);
    assert_eq!(got[0].0, PairStatus::EQUAL);
}

/// The same program with another limit of steps.
pub(super) fn limited(code: &Code, steps: u32) -> Code {
    let mut bytes = code.to_bytes();
    bytes[12..16].copy_from_slice(&steps.to_le_bytes());
    Code::from_bytes(&bytes).unwrap()
}
