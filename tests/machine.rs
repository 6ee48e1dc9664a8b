//! The machine's kernel against the reference, without a GPU: g++ compiles `kernels/cuda/machine` with a warp of 32 lanes
//! that change places at each collective operation. Codes, instructions, steps and bytes must be equal.
//!
//! Without g++ it says so and passes. With `GRIDPOOL_ARC_DSL` and `GRIDPOOL_ARC` it also runs arc-dsl's 400 solvers.

use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::{env, fs};

use gridpool_kernels::reference::machine::Machine;
use gridpool_protocol::limits::{COLOR_MAX, STEPS_DEFAULT};
use gridpool_protocol::program::Ties;
use gridpool_protocol::solver::value::{Grid, Value};
use gridpool_protocol::solver::{Code, Kind, Solver, Source};
use gridpool_tests::oracle::tasks;

/// Arenas in which a case begins: small ones must give the same as large ones.
const ARENA_WORDS: [u32; 2] = [1_536, 1 << 20];

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
    /// Compiles and starts it; `None` without a compiler.
    fn start() -> Option<Self> {
        let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/cuda");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        fs::write(folder.join("solver_ops.cuh"), gridpool_kernels::solve::opcodes()).unwrap();
        let program = folder.join(format!("machine-{}", std::process::id()));
        let compiled = Command::new("g++")
            .args(["-std=c++17", "-O1", "-Wno-unknown-pragmas", "-I"])
            .arg(kernels.join("host"))
            .arg("-I")
            .arg(&kernels)
            .arg("-I")
            .arg(&folder)
            .arg(kernels.join("host/main.cpp"))
            .arg("-o")
            .arg(&program)
            .status()
            .ok()?;
        assert!(compiled.success(), "g++ compiles the kernel");
        let mut process =
            Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Some(Self { process, to, from: BufReader::new(from) })
    }

    fn run(&mut self, code: &Code, grid: &Grid, limit: u32, arena_words: u32) -> Outcome {
        let mut program = code.to_bytes();
        let length = u32::try_from(program.len()).unwrap();
        program.resize(program.len().next_multiple_of(8), 0);
        let side = |side: usize| u32::try_from(side).unwrap();
        let head = [length, limit, arena_words, 0, side(grid.height()), side(grid.width())];
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
        Outcome { code: status & 0xff, instruction, steps: if status == 0 { steps } else { 0 }, bytes }
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
fn differs(kernel: &mut Kernel, machine: &mut Machine, code: &Code, grid: &Grid, limit: u32) -> Option<String> {
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
            return Some(format!("with {words} words: {}\n  reference: {}", short(&got), short(&want)));
        }
    }
    None
}

#[test]
fn the_kernel_gives_what_the_reference_gives_for_all_solvers_of_arc_dsl() {
    let Some(mut kernel) = Kernel::start() else { return println!("there is no g++") };
    let (Some(folder), Some(tasks)) = (env::var_os("GRIDPOOL_ARC_DSL"), tasks::arc_tasks()) else {
        return println!("GRIDPOOL_ARC_DSL or GRIDPOOL_ARC is not set: no solvers");
    };
    let text = fs::read_to_string(PathBuf::from(folder).join("solvers.py")).unwrap();
    let source = Source::parse(&text).unwrap();
    let only = env::var("GRIDPOOL_ONLY").ok();
    let mut machine = Machine::default();
    let (mut cases, mut differences) = (0, Vec::new());
    for task in &tasks {
        if only.as_ref().is_some_and(|only| *only != task.name) {
            continue;
        }
        let (part, _) = source.extract(&format!("solve_{}", task.name)).unwrap();
        let solver = Solver::compile(&part, Ties::Cpython).unwrap();
        for (pair, (input, _)) in task.pairs.iter().enumerate() {
            let cells = input.cells().iter().map(|cell| cell.cast_signed()).collect();
            let grid = Grid::new(input.height(), input.width(), cells).unwrap();
            cases += 1;
            let found = differs(&mut kernel, &mut machine, solver.code(), &grid, STEPS_DEFAULT);
            if let Some(difference) = found {
                differences.push(format!("{} pair {pair}: {difference}", task.name));
            }
        }
    }
    println!("{cases} cases, {} differ", differences.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
