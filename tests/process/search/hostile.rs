//! Searches that a client has packed wrongly: bytes that are no program, offsets that contradict each other, numbers
//! over the limits.

use gridpool_protocol::batch::GridBatch;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{
    ClientMessage, Destination, Inline, Input, Packing, Payload, Priority, Submission, Terms, Work,
};
use gridpool_protocol::program::Ties;
use gridpool_protocol::search::{PackedPrograms, PairStatus, Score, SearchLayout, compile};
use gridpool_protocol::shared::SharedSlice;
use gridpool_tests::oracle::samples::random_grids;

use crate::pool::warm;
use crate::raw::{Raw, inline, is_ok};

/// A search of three programs, the second of which is changed; also where its offsets start.
fn submission(key: u128, change: impl FnOnce(&mut Vec<u8>)) -> (Submission, SearchLayout) {
    let grids = random_grids(5, 2);
    let pairs =
        GridBatch::from_pairs([(&grids[0], Some(&grids[0])), (&grids[1], None)]).expect("pairs");
    let (layout, mut packed) = (pairs.layout().expect("a layout"), PackedPrograms::default());
    let code = compile("identity", Ties::Cpython, 100).expect("code").to_bytes();
    let mut second = code.clone();
    change(&mut second);
    for program in [&code, &second, &code] {
        packed.push(program).expect("room");
    }
    let size = packed.size(layout);
    let layout = SearchLayout::new(size, Score::Exact).expect("a layout");
    let mut bytes = vec![0; layout.input_bytes()];
    let memory = SharedSlice::private(&mut bytes);
    pairs.write_to(layout.batch(), &memory);
    packed.write_to(layout, &memory);
    let (input, output) = (Input::Inline(Inline(bytes)), Destination::Inline);
    let terms =
        Terms { deadline_ms: 60_000, priority: Priority::Normal, idempotent: true, chaos: None };
    let payload = Payload { packing: Packing::Search(size), input, output };
    let work = Work::Search { score: Score::Exact };
    (
        Submission {
            key: JobKey(key),
            work,
            payload,
            terms,
            jobs: 1,
            principal: None,
            trace: None,
            trace_state: None,
            tell_acceptance: true,
        },
        layout,
    )
}

fn input(submission: &mut Submission) -> &mut Vec<u8> {
    match &mut submission.payload.input {
        Input::Inline(Inline(bytes)) => bytes,
        Input::Arena(_) => unreachable!("it travels inline"),
    }
}

#[test]
fn bytes_that_are_no_program_have_a_status_of_their_own_and_the_others_run() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let changes: [fn(&mut Vec<u8>); 6] = [
        |code| code[0] = 9,
        |code| code[16] = 255,
        |code| code[2] = 200,
        |code| code.truncate(8),
        |code| code.extend([0; 8]),
        |code| code.clear(),
    ];
    for (key, change) in (1..).zip(changes) {
        let (submission, layout) = submission(key, change);
        raw.submit(submission);
        let (_, receipt, output) = raw.hear_done();
        is_ok(&receipt);
        let bytes = output.unwrap().0;
        let missing = gridpool_protocol::output::ItemErrorCode::MissingOutput as u8;
        let (right, none) = ([PairStatus::EQUAL, missing], [PairStatus::NO_PROGRAM; 2]);
        assert_eq!(bytes[layout.statuses(&(0..3))], [right, none, right].concat());
        assert_eq!(receipt.item_errors, 1);
        assert_eq!(receipt.attempts[0].search.unwrap().executed, 4);
    }
    drop(raw);
    pool.is_unharmed(before);
}

#[test]
fn offsets_that_contradict_each_other_fail_their_job_and_nothing_else() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    for (key, (program, offset)) in (1..).zip([(1, 4_u32), (1, u32::MAX), (2, 0), (3, 1 << 20)]) {
        let (mut submission, layout) = submission(key, |_| {});
        let at = layout.offsets().start + 4 * program;
        input(&mut submission)[at..at + 4].copy_from_slice(&offset.to_le_bytes());
        raw.submit(submission);
        let receipt = raw.hear_done().1;
        assert!(receipt.reason.contains("behind its end or unaligned"), "{receipt:?}");
    }
    drop(raw);
    pool.is_unharmed(before);
}

#[test]
fn numbers_that_contradict_each_other_are_refused() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let mut refused = |submission: Submission| {
        raw.say(&ClientMessage::Submit(Box::new(submission)));
        raw.hear_refused().to_string()
    };
    let sized = |change: fn(&mut gridpool_protocol::search::SearchSize)| {
        let (mut submission, _) = submission(1, |_| {});
        if let Packing::Search(size) = &mut submission.payload.packing {
            change(size);
        }
        submission
    };
    let programs = refused(sized(|size| size.programs = 1 << 17));
    assert!(programs.contains("1 to 65536"), "{programs}");
    let evaluations = refused(sized(|size| (size.programs, size.pairs) = (1 << 16, 1 << 16)));
    assert!(evaluations.contains("programs times pairs"), "{evaluations}");
    let bytes = refused(sized(|size| size.programs = 9));
    assert!(bytes.contains("an inline input of"), "{bytes}");
    let (mut tensors, _) = submission(2, |_| {});
    tensors.payload.packing = Packing::Tensors;
    assert!(refused(tensors).contains("a search runs over programs and pairs"));
    let grids = Packing::Grids { items: 3, cells: 3 };
    let (mut over_grids, _) = submission(3, |_| {});
    over_grids.payload.packing = grids;
    assert!(refused(over_grids).contains("a search runs over programs and pairs"));
    let mut program = inline(4, &random_grids(5, 2));
    program.payload.packing = submission(5, |_| {}).0.payload.packing;
    assert!(refused(program).contains("only a search"));
    drop(raw);
    pool.is_unharmed(before);
}
