//! The machine's kernel against the reference, without a GPU: g++ compiles `kernels/cuda/machine` with a warp of 32
//! lanes that change places at each collective operation. Codes, instructions, steps and bytes must be equal.
//!
//! Without g++ it says so and passes. With `GRIDPOOL_ARC_DSL` and `GRIDPOOL_ARC` it also runs arc-dsl's 400 solvers.

#![expect(clippy::print_stdout, reason = "it says what it compared, or why it did not")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of the tests")]

#[path = "machine/search.rs"]
mod search;
#[path = "machine/sets.rs"]
mod sets;
#[path = "machine/template.rs"]
mod template;

use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use gridpool_kernels::reference::machine::Machine;
use gridpool_kernels::solve::STOPPED;
use gridpool_protocol::limits::{RESULT_BYTES_MAX, STEPS_DEFAULT, STEPS_MAX};
use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::Ties;
use gridpool_protocol::solver::value::{Grid, Value};
use gridpool_protocol::solver::{
    Code, HEADER_BYTES, INSTRUCTION_BYTES, Kind, Opcode, Solver, Source,
};
use gridpool_tests::oracle::tasks;

/// Arenas in which a case begins: small ones must give the same as large ones.
const ARENA_WORDS: [u32; 2] = [1_536, 1 << 20];

/// Most steps of a mutant.
const MUTANT_STEPS: u32 = 3_000;

/// Writes cases with what the reference says into a file of the folder `GRIDPOOL_DUMP`, for a run on a GPU.
struct Dump(Option<fs::File>);

impl Dump {
    fn begin(name: &str, code: &Code) -> Self {
        let folder = env::var_os("GRIDPOOL_DUMP").map(PathBuf::from);
        let open = |folder: PathBuf| {
            fs::OpenOptions::new().create(true).append(true).open(folder.join(name)).unwrap()
        };
        let mut this = Self(folder.map(open));
        let bytes = code.to_bytes();
        let is_grid = u32::from(*code.gives() == Kind::Grid);
        this.words(&[u32::MAX, u32::try_from(bytes.len()).unwrap(), is_grid]);
        this.bytes(&bytes);
        this
    }

    fn words(&mut self, words: &[u32]) {
        self.bytes(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if let Some(file) = &mut self.0 {
            file.write_all(bytes).unwrap();
        }
    }

    fn case(&mut self, grid: &Grid, want: &Outcome) {
        let number = |number: usize| u32::try_from(number).unwrap();
        let Outcome { code, instruction, steps, bytes } = want;
        let sides = [number(grid.height()), number(grid.width())];
        self.words(&[sides[0], sides[1], *code, *instruction, *steps, number(bytes.len())]);
        self.bytes(&grid.cells().iter().map(|cell| cell.cast_unsigned()).collect::<Vec<_>>());
        self.bytes(bytes);
    }
}

/// How an item ended: code, instruction, steps, bytes of the result.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    code: u32,
    instruction: u32,
    steps: u32,
    bytes: Vec<u8>,
}

/// What the reference says.
fn expected(machine: &mut Machine, code: &Code, grid: &Grid, limit: u32) -> Outcome {
    match machine.run(code, Value::Grid(grid.clone().into()), limit) {
        Ok(finished) => {
            let mut bytes = Vec::new();
            finished.value.write(code.gives(), &mut bytes);
            if bytes.len() > RESULT_BYTES_MAX {
                let instruction = u32::try_from(code.instructions().len() - 1).unwrap();
                return Outcome {
                    code: ItemErrorCode::Overflow as u32,
                    instruction,
                    steps: 0,
                    bytes: vec![],
                };
            }
            Outcome { code: 0, instruction: 0, steps: finished.steps, bytes }
        }
        Err(failed) => {
            let instruction = u32::try_from(failed.instruction).unwrap();
            Outcome { code: failed.code as u32, instruction, steps: 0, bytes: vec![] }
        }
    }
}

/// The kernel, compiled for the processor, as a process that runs one case after the other.
struct Kernel {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Kernel {
    /// Starts it; `None` without a compiler.
    fn start() -> Option<Self> {
        static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
        let program = PROGRAM.get_or_init(Self::compiled).as_ref()?;
        let mut process =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Some(Self { process, to, from: BufReader::new(from) })
    }

    /// Compiles it, which takes longer than most of the tests.
    fn compiled() -> Option<PathBuf> {
        let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/cuda");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        fs::write(folder.join("solver_ops.cuh"), gridpool_kernels::solve::opcodes()).unwrap();
        let draft = folder.join(format!("machine-{}", std::process::id()));
        let compiled = Command::new("g++")
            .args(["-std=c++17", "-O1", "-Wno-unknown-pragmas", "-I"])
            .arg(kernels.join("host"))
            .arg("-I")
            .arg(&kernels)
            .arg("-I")
            .arg(&folder)
            .arg(kernels.join("host/main.cpp"))
            .arg("-o")
            .arg(&draft)
            .status()
            .ok()?;
        assert!(compiled.success(), "g++ compiles the kernel");
        // Another run of the tests may have one that runs under this name.
        let program = folder.join("machine");
        fs::rename(&draft, &program).unwrap();
        Some(program)
    }

    fn run(&mut self, code: &Code, grid: &Grid, limit: u32, arena_words: u32) -> Outcome {
        self.run_until(code, grid, (limit, arena_words), false)
    }

    /// The same; the launch may be stopped while it runs.
    fn run_until(
        &mut self,
        code: &Code,
        grid: &Grid,
        (limit, arena_words): (u32, u32),
        is_stopped: bool,
    ) -> Outcome {
        let flags = if is_stopped { 2 } else { 0 };
        let mut program = code.to_bytes();
        let length = u32::try_from(program.len()).unwrap();
        program.resize(program.len().next_multiple_of(8), 0);
        let side = |side: usize| u32::try_from(side).unwrap();
        let head = [length, limit, arena_words, flags, side(grid.height()), side(grid.width())];
        let mut case: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        case.extend(program);
        case.extend(grid.cells().iter().map(|cell| cell.cast_unsigned()));
        self.to.write_all(&case).unwrap();
        self.to.flush().unwrap();
        let mut head = [[0; 4]; 6];
        for word in &mut head {
            self.from.read_exact(word).unwrap();
        }
        let [status, instruction, steps, _, _, length] = head.map(u32::from_le_bytes);
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        self.from.read_exact(&mut bytes).unwrap();
        Outcome {
            code: status & 0xff,
            instruction,
            steps: if status == 0 { steps } else { 0 },
            bytes,
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The first difference between the kernel and the reference, in words.
fn differs(
    kernel: &mut Kernel,
    machine: &mut Machine,
    code: &Code,
    grid: &Grid,
    limit: u32,
) -> Option<String> {
    let want = expected(machine, code, grid, limit);
    for words in ARENA_WORDS {
        let got = kernel.run(code, grid, limit, words);
        if got != want {
            let short = |outcome: &Outcome| {
                let value = Value::from_bytes(code.gives(), &outcome.bytes);
                let value: String = format!("{value:?}").chars().take(400).collect();
                let Outcome { code, instruction, steps, .. } = outcome;
                format!("code {code} at {instruction}, {steps} steps, {value}")
            };
            return Some(format!(
                "with {words} words: {}\n  reference: {}",
                short(&got),
                short(&want)
            ));
        }
    }
    None
}

/// arc-dsl's solvers with the grids of their tasks; `None` if they are not there.
fn solvers() -> Option<Vec<(String, Code, Vec<Grid>)>> {
    let (Some(folder), Some(tasks)) = (env::var_os("GRIDPOOL_ARC_DSL"), tasks::arc_tasks()) else {
        println!("GRIDPOOL_ARC_DSL or GRIDPOOL_ARC is not set: no solvers");
        return None;
    };
    let text = fs::read_to_string(PathBuf::from(folder).join("solvers.py")).unwrap();
    let source = Source::parse(&text).unwrap();
    let of_task = |task: &tasks::Task| {
        let (part, _) = source.extract(&format!("solve_{}", task.name)).unwrap();
        let solver = Solver::compile(&part, Ties::Cpython).unwrap();
        let grid = |input: &gridpool_protocol::batch::Grid| {
            let cells = input.cells().iter().map(|cell| cell.cast_signed()).collect();
            Grid::new(input.h(), input.w(), cells).unwrap()
        };
        let grids = task.pairs.iter().map(|(input, _)| grid(input)).collect();
        (task.name.clone(), solver.code().clone(), grids)
    };
    Some(tasks.iter().map(of_task).collect())
}

#[test]
fn the_kernel_gives_what_the_reference_gives_for_all_solvers_of_arc_dsl() {
    let Some(mut kernel) = Kernel::start() else { return println!("there is no g++") };
    let Some(solvers) = solvers() else { return };
    let mut machine = Machine::default();
    let (mut cases, mut differences) = (0, Vec::new());
    for (task, code, grids) in &solvers {
        let mut dumped = Dump::begin("solvers", code);
        for (pair, grid) in grids.iter().enumerate() {
            cases += 1;
            dumped.case(grid, &expected(&mut machine, code, grid, STEPS_DEFAULT));
            if let Some(found) = differs(&mut kernel, &mut machine, code, grid, STEPS_DEFAULT) {
                differences.push(format!("{task} pair {pair}: {found}"));
            }
        }
    }
    println!("{cases} cases, {} differ", differences.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn the_kernel_gives_what_the_reference_gives_at_the_edges() {
    let Some(mut kernel) = Kernel::start() else { return println!("there is no g++") };
    let mut machine = Machine::default();
    let grid = Grid::new(3, 3, vec![0, 1, 0, 0, 1, 2, 0, 0, 2]).unwrap();
    let texts = [
        "O = astuple(ONE, n)",
        "O = color(initset(n))",
        "O = color(initset(astuple(ONE, n)))",
        "O = colorfilter(initset(initset(n)), ONE)",
        "O = colorfilter(initset(initset(astuple(ONE, n))), ONE)",
        "O = colorfilter((ofcolor(I, ONE), initset(n), ofcolor(I, NINE)), ONE)",
        "O = colorfilter((ofcolor(I, ONE), ofcolor(I, NINE), initset(n)), ONE)",
        "O = order((astuple(ONE, n), astuple(ONE, ORIGIN), astuple(ZERO, n)), identity)",
        "O = valmax(insert(n, asindices(I)), lambda x: astuple(ONE, x))",
        "O = minimum(insert(n, asindices(I)))",
        "O = product(palette(I), insert(n, asindices(I)))",
        "O = normalize(insert(n, asindices(I)))",
        "O = totuple(insert(n, asindices(I)))",
        "O = maximum(initset(n))",
        "O = occurrences(I, ((1, (0, 0)),))",
        "O = occurrences(I, ((0, (0, 1)), (0, (1, 2))))",
        "O = occurrences(I, ((0, (5, 5)), (0, (6, 5)), (2, (7, 6)), (2, (7, 6))))",
        "O = hperiod(recolor(ONE, connect(ORIGIN, (0, 4095))))",
        "O = hperiod(recolor(ONE, connect(ORIGIN, (0, 4096))))",
        "O = vperiod(recolor(ONE, connect(ORIGIN, (5000, 0))))",
        "O = position(((0, 1), (1, 2), (2, 0)), initset(UNITY))",
        "O = position(initset(UNITY), ((1, 1), (1, 1)))",
        "O = position(((1, (0, 0)), (2, (0, 1)), (5, (2, 2))), asindices(I))",
        "x = combine(((2, 1), (1, 2), (1, 2)), ((1, (0, 0)), (2, (0, 0)), (2, (0, 1))))\nO = toindices(x)",
        "x = combine(((2, 1), (1, 2), (1, 2)), ((1, (0, 0)), (1, (0, 0)), (1, (0, 0))))\n\
         O = astuple(toindices(remove((1, (0, 0)), x)), position(remove((1, (0, 0)), x), asindices(I)))",
        "O = toindices(remove((1, 1), ((1, 1), (1, 1), (1, 1))))",
        "x = branch(contained(n, palette(I)), I, ofcolor(I, TWO))\nO = astuple(height(hmirror(x)), size(x))",
        "f = branch(positive(size(n)), shape, size)\nO = equality(f(I), THREE)",
        "f = branch(positive(size(n)), identity, toindices)\nO = size(f(asobject(I)))",
        "f = branch(positive(size(n)), lambda g: (n, g), partition)\nO = size(f(I))",
    ];
    for text in texts {
        let text = format!("n = ulcorner(ofcolor(I, NINE))\n{text}");
        let solver = Solver::compile(&text, Ties::Cpython).unwrap();
        let found = differs(&mut kernel, &mut machine, solver.code(), &grid, STEPS_DEFAULT);
        assert_eq!(found, None, "{text}");
    }
}

#[test]
fn a_launch_that_is_stopped_ends_in_the_midst_of_its_item() {
    let Some(mut kernel) = Kernel::start() else { return println!("there is no g++") };
    let grid = Grid::new(1, 1, vec![0]).unwrap();
    let text = "m = multiply(multiply(TEN, TEN), multiply(TEN, TEN))\n\
                f = lambda x: power(increment, m)(x)\n\
                O = power(f, m)(ZERO)";
    let solver = Solver::compile(text, Ties::Cpython).unwrap();
    // Minutes, here and on every device.
    let ended = kernel.run_until(solver.code(), &grid, (STEPS_MAX, 1 << 13), true);
    assert_eq!(ended.code, u32::from(STOPPED));
    // The next launch is not.
    let ended = kernel.run(solver.code(), &grid, 1_000, 1 << 13);
    assert_eq!(ended.code, ItemErrorCode::StepLimit as u32);
}

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    /// A grid of few colours, now and then a large one.
    fn grid(&mut self) -> Grid {
        let most = [3, 8, 30, 30, 64, 255][self.below(6)];
        let height = 1 + self.below(most);
        let width = 1 + self.below(most.min(4_096 / height));
        let colors: Vec<i8> =
            (0..=self.below(4)).map(|_| i8::try_from(self.below(10)).unwrap()).collect();
        let often = 1 + self.below(5);
        let cells = (0..height * width).map(|_| {
            let is_other = self.below(often + 1) == 0;
            if is_other { colors[self.below(colors.len())] } else { colors[0] }
        });
        let cells = cells.collect();
        Grid::new(height, width, cells).unwrap()
    }

    /// A program like this one, of which some fields are others.
    fn mutant(&mut self, code: &Code) -> Option<Code> {
        let mut bytes = code.to_bytes();
        let (instructions, constants) = (code.instructions().len(), code.constants().len());
        for _ in 0..=self.below(3) {
            let at = HEADER_BYTES + INSTRUCTION_BYTES * self.below(instructions);
            match self.below(8) {
                0..=3 => bytes[at] = u8::try_from(self.below(Opcode::ALL.len() + 16)).unwrap(),
                4..=6 => {
                    let field = at + 2 + self.below(3);
                    bytes[field] = u8::try_from(self.below(code.registers())).unwrap();
                }
                _ if constants > 0 => {
                    let at =
                        HEADER_BYTES + INSTRUCTION_BYTES * instructions + 4 * self.below(constants);
                    let number = [0, 1, 2, 3, 5, 7, 30, 400, 40_000, -1, -2, -40, 2_000_000_000]
                        [self.below(13)];
                    let word = if self.below(2) == 0 { number } else { number << 16 | 3 };
                    bytes[at..at + 4].copy_from_slice(&i32::to_le_bytes(word));
                }
                _ => {}
            }
        }
        // Another register for the result makes other kinds of results.
        if self.below(3) == 0 {
            let last = HEADER_BYTES + INSTRUCTION_BYTES * (instructions - 1) + 2;
            bytes[last] = u8::try_from(self.below(code.registers())).unwrap();
        }
        Code::from_bytes(&bytes).ok().filter(|mutant| mutant != code)
    }
}

/// How many mutants are run: `GRIDPOOL_MUTANTS`, else few.
fn mutants() -> usize {
    env::var("GRIDPOOL_MUTANTS").ok().and_then(|count| count.parse().ok()).unwrap_or(2_000)
}

#[test]
fn the_kernel_gives_what_the_reference_gives_for_mutants_of_solvers() {
    let Some(mut kernel) = Kernel::start() else { return println!("there is no g++") };
    let Some(solvers) = solvers() else { return };
    let seed = env::var("GRIDPOOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (mut machine, mut random) = (Machine::default(), Random(seed));
    let (mut cases, mut errors, mut differences) = (0, 0, Vec::new());
    while cases < mutants() {
        let (task, code, grids) = &solvers[random.below(solvers.len())];
        let Some(mutant) = random.mutant(code) else { continue };
        let grid = if random.below(3) == 0 {
            random.grid()
        } else {
            grids[random.below(grids.len())].clone()
        };
        cases += 1;
        let want = expected(&mut machine, &mutant, &grid, MUTANT_STEPS);
        errors += usize::from(want.code != 0);
        Dump::begin("mutants", &mutant).case(&grid, &want);
        if let Some(found) = differs(&mut kernel, &mut machine, &mutant, &grid, MUTANT_STEPS) {
            let known = machine.run(&mutant, Value::Grid(grid.clone().into()), MUTANT_STEPS);
            let at = known.err().map(|failed| mutant.instructions()[failed.instruction]);
            differences.push(format!("{task} case {cases}: {found}\n  {at:?}"));
            let listing = env::var_os("GRIDPOOL_LISTING");
            if listing.is_some() {
                differences.push(format!(
                    "{:#?} {}x{}",
                    mutant.instructions(),
                    grid.height(),
                    grid.width()
                ));
            }
            if differences.len() > 20 {
                break;
            }
        }
    }
    println!("{cases} cases, {errors} end in an error, {} differ", differences.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
