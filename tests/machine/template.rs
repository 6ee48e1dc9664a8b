//! The kernel of templates against the reference: every program of a template, run behind others.

use std::io::Write;

use gridpool_kernels::reference::search::{SearchPairs, judge};
use gridpool_kernels::template::DeviceTemplate;
use gridpool_protocol::search::{CellScore, CompiledTemplate, PairStatus, Template};
use gridpool_protocol::solver::{Constant, FIRST_PRIMITIVE, Opcode};

use super::search::{Pairs, limited};
use super::*;

/// The first number of a template.
const TEMPLATE: u32 = u32::MAX - 2;
/// Programs of one launch, at most.
const PROGRAMS_MAX: u64 = 150;

/// Texts in which holes are needed early, late, together, in loops and branches, never, and behind errors.
const TEXTS: &[&str] = &[
    "O = replace(I, ?a:color, ?b:color)",
    "O = ?f:Grid->Grid(?g:Grid->Grid(I))",
    "x = ofcolor(I, ?a:color)\ny = subgrid(x, I)\nO = ?f in [rot90, hmirror, compress](replace(y, ?b in [1, 2], 0))",
    "O = power(rot90, multiply(width(I), ?n in [0, 1, 2, 40, 900]))(fill(I, ?a in [3, 4], ofcolor(I, 0)))",
    "x = apply(lambda y: shift(y, ?d:direction), objects(I, T, ?e:bool, T))\nO = paint(I, merge(x))",
    "O = branch(portrait(I), fill(I, ?a in [1, 2], ofcolor(I, 0)), ?f in [rot90, rot180](I))",
    "x = ?f in [tophalf, lefthalf, trim](I)\nO = ?g in [hconcat, vconcat](x, ?f(x))",
    "x = crop(I, ?p in [ORIGIN, UNITY], ?q in [TWO_BY_TWO, THREE_BY_THREE])\nO = upscale(x, ?n in [0, 1, 2])",
    "O = ((?a in [1, 2], ?b in [1, 2]), (?b, ?a))",
    "O = canvas(?a:color, shape(I))",
    "x = ?unused in [1, 2]\nO = fill(I, ?a in [1, 2], ofcolor(I, 0))",
    "x = divide(10, ?n in [0, 1, 5])\nO = replace(canvas(x, (2, 2)), ?a in [2, 10], ?b in [1, 2])",
];

impl Kernel {
    /// The status and the score of `count` programs of a template from `first` on, on each pair, `run` one behind the
    /// other.
    fn template(
        &mut self,
        template: &CompiledTemplate,
        (first, count, run): (u32, u32, u32),
        pairs: &Pairs,
        arena_words: u32,
    ) -> Vec<(u8, u16)> {
        let DeviceTemplate { holes, programs } = DeviceTemplate::new(template);
        let number = |number: usize| u32::try_from(number).unwrap();
        let (mut offsets, mut code) = (vec![0], Vec::new());
        for mut program in programs.iter().cloned() {
            program.resize(program.len().next_multiple_of(8), 0);
            code.extend(program);
            offsets.push(number(code.len()));
        }
        offsets.resize(offsets.len().next_multiple_of(2), 0);
        let grids = pairs.grid_offsets();
        let of_pairs = pairs.shapes.len() / 2;
        let head = [TEMPLATE, number(programs.len()), arena_words, number(of_pairs)];
        let head = [head.as_slice(), &[number(code.len()), number(pairs.cells.len())]].concat();
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let sent: [Vec<u8>; 8] = [
            words(&head),
            words(&[number(holes.len()), count, run, first]),
            words(&offsets),
            code,
            pairs.shapes.as_flattened().to_vec(),
            words(&grids),
            pairs.cells.clone(),
            words(&holes),
        ];
        self.to.write_all(&sent.concat()).unwrap();
        self.to.flush().unwrap();
        self.verdicts(count as usize * of_pairs)
    }
}

/// Compares some programs of a template with the reference. Returns evaluations by status.
fn compare(
    kernel: &mut Kernel,
    (machine, random): (&mut Machine, &mut Random),
    template: &CompiledTemplate,
    pairs: &Pairs,
    what: &str,
) -> std::collections::BTreeMap<&'static str, usize> {
    let known = SearchPairs::new(&pairs.shapes, &pairs.cells);
    let count = template.count().min(PROGRAMS_MAX);
    let below =
        |random: &mut Random, count: u64| random.below(usize::try_from(count).unwrap()) as u64;
    let first = below(random, template.count() - count + 1);
    let run = 1 + below(random, 40);
    let [count, first, run] = [count, first, run].map(|number| u32::try_from(number).unwrap());
    let words = ARENA_WORDS[random.below(ARENA_WORDS.len())];
    let got = kernel.template(template, (first, count, run), pairs, words);
    let mut statuses = std::collections::BTreeMap::new();
    for (at, (status, score)) in got.into_iter().enumerate() {
        let (program, pair) = (u64::from(first) + (at / known.len()) as u64, at % known.len());
        let (want, near) = judge(machine, &template.code(program), &known, pair);
        *statuses.entry(want.name()).or_insert(0) += 1;
        let got = (PairStatus::from_byte(status), CellScore::from_number(score));
        assert_eq!(
            got,
            (Some(want), Some(near)),
            "{what}: program {program} of {first}.. in runs of {run}, pair {pair}, {words} words"
        );
    }
    statuses
}

#[test]
fn the_template_kernel_gives_the_references_verdicts_for_each_choice() {
    let Some(mut kernel) = Kernel::start() else { return println!("there is no g++") };
    let (mut machine, mut random) = (Machine::default(), Random(11));
    let mut statuses = std::collections::BTreeMap::new();
    for round in 0..4 {
        for text in TEXTS {
            for part in Template::parse(text).unwrap().unwrap().parts() {
                let steps = [1_000, 5, 60][round % 3];
                let (template, _) =
                    CompiledTemplate::compile(&part, Ties::Cpython, steps).expect(text);
                let some: Vec<_> =
                    (0..4).map(|at| template.code(at * 7 % template.count())).collect();
                let pairs = Pairs::random(&mut random, &mut machine, &some, &[]);
                let both = (&mut machine, &mut random);
                for (status, count) in compare(&mut kernel, both, &template, &pairs, text) {
                    *statuses.entry(status).or_insert(0) += count;
                }
            }
        }
    }
    println!("{statuses:?}");
    for status in ["equal", "differs", "StepLimit", "EmptyArg", "BadNumber", "MissingOutput"] {
        assert!(statuses.contains_key(status), "{status}: {statuses:?}");
    }
}

/// A template made of a program: some of its constants and opcodes are holes.
fn template_of(random: &mut Random, code: &Code) -> Option<CompiledTemplate> {
    let program = code.to_bytes();
    let number = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
    let with = |holes: &[(u32, Vec<u32>)]| {
        let mut bytes = [number(program.len()), number(holes.len())].concat();
        bytes.extend(&program);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        for (place, choices) in holes {
            bytes.extend([number(choices.len()), number(1)].concat());
            bytes.extend(choices.iter().chain([place]).flat_map(|word| word.to_le_bytes()));
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        CompiledTemplate::from_bytes(&bytes).ok()
    };
    let (instructions, constants) = (code.instructions().len(), code.constants().len());
    let mut holes = Vec::new();
    for _ in 0..1 + random.below(4) {
        let at = random.below(instructions + constants);
        let (place, first) = match at.checked_sub(instructions) {
            None => (16 + 8 * at, code.instructions()[at].op as u32),
            Some(at) => (16 + 8 * instructions + 4 * at, code.constants()[at].word()),
        };
        let place = u32::try_from(place).unwrap();
        let mut choices = vec![first];
        for _ in 0..20 {
            let other = match at.checked_sub(instructions) {
                None => {
                    let all = &Opcode::ALL;
                    let primitives = all.partition_point(|op| (*op as u8) < FIRST_PRIMITIVE);
                    all[primitives + random.below(all.len() - primitives)] as u32
                }
                Some(at) => match code.constants()[at] {
                    Constant::Flag(flag) => u32::from(!flag),
                    Constant::Number(_) => u32::try_from(random.below(12)).unwrap(),
                    Constant::Vector(_) => {
                        let half = |random: &mut Random| {
                            u32::try_from(random.below(7)).unwrap().wrapping_sub(3) & 0xffff
                        };
                        half(random) | half(random) << 16
                    }
                },
            };
            let fits = with(&[(place, vec![other])]).is_some();
            if fits && choices.len() < 5 && !choices.contains(&other) {
                choices.push(other);
            }
        }
        let is_new = holes.iter().all(|(_, (known, _))| *known != place);
        if let (true, Some(alone)) = (is_new, with(&[(place, choices.clone())])) {
            holes.push((alone.holes().next()?.needed, (place, choices)));
        }
    }
    // The one that is needed last changes first.
    holes.sort_by_key(|(needed, _)| std::cmp::Reverse(*needed));
    let holes: Vec<_> = holes.into_iter().map(|(_, hole)| hole).collect();
    with(&holes).filter(|template| template.count() > 1)
}

#[test]
fn the_template_kernel_gives_the_references_verdicts_for_templates_made_of_solvers() {
    let Some(mut kernel) = Kernel::start() else { return println!("there is no g++") };
    let Some(solvers) = solvers() else { return };
    let (mut machine, mut random) = (Machine::default(), Random(5));
    let (mut evaluations, mut templates) = (0, 0);
    // A template has some hundred evaluations.
    while evaluations < 2 * mutants() {
        let (name, code, grids) = &solvers[random.below(solvers.len())];
        let code = limited(code, MUTANT_STEPS);
        let Some(template) = template_of(&mut random, &code) else { continue };
        let some: Vec<_> = (0..3).map(|at| template.code(at % template.count())).collect();
        let pairs = Pairs::random(&mut random, &mut machine, &some, grids);
        let both = (&mut machine, &mut random);
        let statuses = compare(&mut kernel, both, &template, &pairs, name);
        evaluations += statuses.values().sum::<usize>();
        templates += 1;
    }
    println!("{evaluations} evaluations of {templates} templates");
}
