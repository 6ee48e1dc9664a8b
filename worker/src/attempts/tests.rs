//! Attempts of one run: each has an answer of its own, whatever is wrong with the others.

use gridpool_protocol::arena::Arena;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::clock;
use gridpool_protocol::ids::{ArenaId, AttemptId, JobId};
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::ItemRange;

use super::*;
use crate::cpu::CpuDevice;

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

fn member(input: Input, output: Destination) -> Member {
    Member {
        attempt: AttemptId { job: JobId(7), number: 1 },
        payload: Payload { items: 3, cells: 6, input, output },
        part: ItemRange { start: 0, end: 3 },
        chaos: None,
    }
}

fn inline(bytes: Vec<u8>) -> Member {
    member(Input::Inline(Inline(bytes)), Destination::Inline)
}

#[test]
fn each_attempt_has_its_own_answer_and_what_is_wrong_with_one_is_its_own() {
    let program = program();
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
    beyond.part.end = 4;
    let members = [
        inline(bytes.clone()),
        inline(bad),
        member(in_arena.clone(), to(4_096, result)),
        member(in_arena.clone(), to(4_096, result - 1)),
        member(in_arena, to(65_536 - result + 1, result)),
        inline(bytes[1..].to_vec()),
        beyond,
        inline(bytes),
    ];
    let hold = |member| Hold::new(&program, member, |_| Ok::<_, AttemptError>(Arc::clone(&map)));
    let mut holds: Vec<_> = members.into_iter().map(hold).collect();
    holds.push(Err(AttemptError::Device("the arena could not be registered".to_owned())));
    let mut device = CpuDevice::open(0, 1).unwrap();
    let answers = run_together(&mut device, &program, holds, clock::now()).unwrap();
    let why = |answer: &Result<Answer, AttemptError>| match answer {
        Ok(Answer { report, output }) => {
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
    assert!(got[6].contains("no part of a batch"), "{}", got[6]);
    assert_eq!(got[7], "3 of 12 true");
    assert!(got[8].contains("registered"));
    let inline = answers[0].as_ref().unwrap().output.as_ref().unwrap();
    let mut placed = vec![0; inline.0.len()];
    map.all().read(4_096, &mut placed);
    assert_eq!(inline.0, placed, "inline and in an arena are the same bytes");
}

#[test]
fn no_device_is_asked_to_run_nothing() {
    let mut device = CpuDevice::open(0, 1).unwrap();
    let gone = Err(AttemptError::Refused("gone".to_owned()));
    let answers = run_together(&mut device, &program(), vec![gone], clock::now()).unwrap();
    assert_eq!(answers, [Err(AttemptError::Refused("gone".to_owned()))]);
}
