//! Attempts of one run: each has an answer of its own, even if others fail.

use gridpool_device::cpu::CpuDevice;
use gridpool_ipc::arena::Arena;
use gridpool_ipc::clock;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::ids::{ArenaId, AttemptId, ClientId, JobId};
use gridpool_protocol::message::{AttemptAnswer, Priority};
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::ItemRange;

use super::*;

fn program() -> Program {
    Program::compile("rot90", Ties::Cpython).unwrap()
}

fn batch() -> (BatchLayout, Vec<u8>) {
    let grid = Grid::from_rows(&[[1, 2]]).unwrap();
    let batch = GridBatch::from_grids([&grid, &grid, &grid]).unwrap();
    let layout = batch.layout().unwrap();
    let mut bytes = vec![0; layout.bytes()];
    batch.write_to(layout, &SharedSlice::private(&mut bytes));
    (layout, bytes)
}

fn attempt() -> AttemptId {
    AttemptId { job: JobId(7), number: 1 }
}

/// The results, as the supervisor takes them.
fn each(answers: Answers) -> Vec<Result<AttemptAnswer, AttemptError>> {
    let mut results = Vec::new();
    answers
        .each(|of, result| {
            assert_eq!(of, attempt());
            results.push(result);
        })
        .unwrap();
    results
}

fn assignment(input: Input, output: Destination) -> Assignment {
    Assignment {
        attempt: attempt(),
        client: ClientId(1),
        priority: Priority::Normal,
        payload: Payload { packing: Packing::Grids { items: 3, cells: 6 }, input, output },
        shard: ItemRange { start: 0, end: 3 },
        deadline_ms: 60_000,
        trace: None,
        chaos: None,
    }
}

fn inline(bytes: Vec<u8>) -> Assignment {
    assignment(Input::Inline(Inline(bytes)), Destination::Inline)
}

#[test]
fn each_attempt_has_its_own_answer_and_a_wrong_one_fails_alone() {
    let program = Arc::new(program());
    let task = Task::Program(Arc::clone(&program));
    let (layout, bytes) = batch();
    let map = Arc::new(Arena::create(65_536).unwrap().map().unwrap());
    map.all().write(64, &bytes);
    let result = OutputLayout::new(&program, layout).unwrap().bytes() as u64;
    let slice = |offset, bytes| Slice { arena: ArenaId(1), offset, bytes };
    let mut bad = bytes.clone();
    bad[2] = 0;
    let in_arena = Input::Arena(slice(64, layout.bytes() as u64));
    let to = |offset, bytes| Destination::Arena(slice(offset, bytes));
    let mut beyond = inline(bytes.clone());
    beyond.shard.end = 4;
    let assignments = [
        inline(bytes.clone()),
        inline(bad),
        assignment(in_arena.clone(), to(4_096, result)),
        assignment(in_arena.clone(), to(4_096, result - 1)),
        assignment(in_arena, to(65_536 - result + 1, result)),
        inline(bytes[1..].to_vec()),
        beyond,
        inline(bytes),
    ];
    let hold = |assignment: Assignment| {
        let attempt = assignment.attempt;
        (attempt, Hold::new(&task, assignment, |_| Ok::<_, AttemptError>(Arc::clone(&map))))
    };
    let mut holds: Vec<_> = assignments.into_iter().map(hold).collect();
    let unregistered = AttemptError::Device("the arena could not be registered".to_owned());
    holds.push((attempt(), Err(unregistered)));
    let mut device = CpuDevice::open(0, 1).unwrap();
    let stops = [(); 9].map(|()| AtomicBool::default());
    let answers = each(run_together(&mut device, &task, holds, &stops, clock::now()).unwrap());
    let why = |answer: &Result<AttemptAnswer, AttemptError>| match answer {
        Ok(AttemptAnswer { report, output }) => {
            format!("{} of {} {}", report.items, report.joined_items, output.is_some())
        }
        Err(AttemptError::Refused(why) | AttemptError::Device(why)) => why.clone(),
    };
    let got: Vec<_> = answers.iter().map(why).collect();
    assert_eq!(got[0], "3 of 12 true");
    assert!(got[1].contains("grid 1"), "{}", got[1]);
    assert_eq!(got[2], "3 of 12 false");
    assert!(got[3].contains("its place has"), "{}", got[3]);
    assert!(got[4].contains("does not lie in its arena"), "{}", got[4]);
    assert!(got[5].contains("are needed"), "{}", got[5]);
    assert!(got[6].contains("outside a batch"), "{}", got[6]);
    assert_eq!(got[7], "3 of 12 true");
    assert!(got[8].contains("registered"));
    let inline = answers[0].as_ref().unwrap().output.as_ref().unwrap();
    let mut placed = vec![0; inline.0.len()];
    map.all().read(4_096, &mut placed);
    assert_eq!(inline.0, placed, "inline and in an arena are the same bytes");
    let last = answers[7].as_ref().unwrap().output.as_ref().unwrap();
    assert_eq!(last.0, placed, "also behind answers that failed");
}

#[test]
fn an_empty_dispatch_does_not_reach_the_device() {
    let mut device = CpuDevice::open(0, 1).unwrap();
    let task = Task::Program(Arc::new(program()));
    let gone = (attempt(), Err(AttemptError::Refused("gone".to_owned())));
    let stops = [AtomicBool::default()];
    let answers = run_together(&mut device, &task, vec![gone], &stops, clock::now()).unwrap();
    assert_eq!(each(answers), [Err(AttemptError::Refused("gone".to_owned()))]);
}
