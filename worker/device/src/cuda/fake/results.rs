//! The CUDA device over the fake driver, whose launches give the reference's results. Lanes, pieces and
//! parts lose nothing and mix up nothing.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gridpool_ipc::arena::Arena;
use gridpool_kernels::known_answer::KNOWN_ANSWERS;
use gridpool_kernels::module::KERNELS;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::ids::{AttemptId, JobId};
use gridpool_protocol::position::{ItemPosition, Position, WORDS};
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::shared::SharedSlice;

use super::super::schedule::random::Random;
use super::*;
use crate::attempts::{AttemptData, assert_right_together, batch_for, many_objects, run_together};
use crate::chunk::ChunkLimits;
use crate::device::{AttemptRefusal, Device};
use crate::self_test::{run_batch, self_test};

pub(super) fn compile(text: &str) -> Program {
    Program::compile(text, Ties::Cpython).unwrap()
}

/// Results of every kind, in place and packed.
pub(super) const TEXTS: [&str; 15] = [
    "rot90 | replace(0, 5)",
    "o_g(5)",
    "rot90 | o_g(1)",
    "trim | o_g(4)",
    "crop(0, 0, 2, 3)",
    "ofcolor(3)",
    "palette",
    "mostcolor",
    "apply(rot90)",
    "apply(ofcolor(1) | outbox)",
    "vconcat",
    "hsplit(3) | apply(o_g(7))",
    // Solvers: a grid, a value, and one that often fails.
    "x1 = ofcolor(I, ONE)\nO = fill(I, FIVE, outbox(x1))",
    "x1 = objects(I, T, F, T)\nO = apply(ulcorner, x1)",
    "x1 = objects(I, T, F, T)\nx2 = extract(x1, square)\nO = subgrid(x2, upscale(I, TWO))",
];

/// Chunks so small that every lane has many, and the largest.
pub(super) const LIMITS: [ChunkLimits; 4] = [
    ChunkLimits { items_max: 3, cells_max: usize::MAX },
    ChunkLimits { items_max: usize::MAX, cells_max: 1_000 },
    ChunkLimits { items_max: 50, cells_max: 9_000 },
    ChunkLimits { items_max: usize::MAX, cells_max: 1 << 25 },
];

/// Ragged grids, and some with more objects than a byte counts.
pub(super) fn grids(random: &mut Random, items: usize) -> Vec<Grid> {
    let mut grids = random.ragged(items);
    grids.insert(items / 2, many_objects(30));
    grids.insert(items / 3, many_objects(26));
    grids
}

/// Copies reach it, however small.
pub(super) fn adopt(device: &mut CudaDevice, bytes: &mut [u8]) {
    device.gpu.staging = NO_STAGING;
    device.adopt(SharedSlice::private(bytes)).unwrap();
}

/// Releases what was adopted: otherwise the driver still knows memory that later sources get.
pub(super) fn release_all(device: &mut CudaDevice, sources: &mut [AttemptData]) {
    for source in sources {
        for bytes in [&mut source.input, &mut source.output] {
            device.release(SharedSlice::private(bytes)).unwrap();
        }
    }
}

#[test]
fn a_device_that_computes_passes_the_self_test() {
    self_test(&mut open_computing()).unwrap();
    assert!(KNOWN_ANSWERS.len() > 50);
}

#[test]
fn packed_results_of_more_values_than_a_tile_are_right_whatever_came_before_the_last_step() {
    let mut device = open_computing();
    let mut random = Random(71);
    for text in ["trim", "first", "hconcat", "hsplit(30) | hconcat", "hsplit(3) | first"] {
        let program = compile(text);
        let batch = batch_for(&program, &grids(&mut random, 2_500));
        assert_right_together(&mut device, &mut [AttemptData::whole(&program, &batch)]);
    }
}

#[test]
fn chunks_on_all_lanes_give_what_the_reference_gives_and_mix_up_nothing() {
    let mut random = Random(11);
    for limits in LIMITS {
        let mut device = open_computing().with_chunk_limits(limits);
        for text in TEXTS {
            let program = compile(text);
            let batch = batch_for(&program, &grids(&mut random, 60));
            for (is_adopted, staging) in
                [(false, StagingLimits::USUAL), (true, NO_STAGING), (true, StagingLimits::USUAL)]
            {
                let mut source = [AttemptData::whole(&program, &batch)];
                if is_adopted {
                    adopt(&mut device, &mut source[0].input);
                    adopt(&mut device, &mut source[0].output);
                }
                device.gpu.staging = staging;
                assert_right_together(&mut device, &mut source);
                release_all(&mut device, &mut source);
            }
        }
        assert_eq!(waiting(), 0);
    }
}

#[test]
fn joined_attempts_write_only_their_own_results() {
    let mut random = Random(12);
    for limits in LIMITS {
        let mut device = open_computing().with_chunk_limits(limits);
        for text in TEXTS {
            let program = compile(text);
            let mut sources = Vec::new();
            for at in 0..9 {
                let items = 1 + random.below(12);
                let batch = batch_for(&program, &grids(&mut random, items));
                let start = if at % 2 == 0 { 0 } else { random.below(batch.len()) };
                let end = if at % 3 == 0 { batch.len() } else { start + 1 };
                sources.push(AttemptData::new(&program, &batch, start..end));
            }
            for (at, source) in sources.iter_mut().enumerate() {
                // Some ends lie in registered arenas, some do not.
                if at % 4 < 2 {
                    adopt(&mut device, &mut source.input);
                }
                if at % 3 > 0 {
                    adopt(&mut device, &mut source.output);
                }
            }
            let work = assert_right_together(&mut device, &mut sources);
            assert!(work.sum().h2d_bytes > 0 && work.sum().d2h_bytes > 0);
            release_all(&mut device, &mut sources);
        }
    }
}

#[test]
fn shards_of_one_batch_fill_its_result_together() {
    let mut random = Random(13);
    let mut device = open_computing().with_chunk_limits(LIMITS[2]);
    for text in TEXTS {
        let program = compile(text);
        let batch = batch_for(&program, &grids(&mut random, 70));
        let mut source = AttemptData::whole(&program, &batch);
        let parts = [30..batch.len(), 0..1, 1..30];
        for part in parts {
            source.items = part;
            let work = run_together(&mut device, std::slice::from_mut(&mut source)).unwrap();
            assert!(work.attempts[0].is_ok());
        }
        // Each part in its place: the whole is what one run leaves.
        let mut whole = [AttemptData::whole(&program, &batch)];
        assert_right_together(&mut device, &mut whole);
        let (got, want) = (source.outputs(), whole[0].outputs());
        for item in 0..batch.len() {
            assert_eq!(got.item(item), want.item(item), "{text}: item {item}");
        }
    }
}

#[test]
fn an_attempt_with_bad_tables_is_refused_and_the_others_run() {
    let mut random = Random(14);
    for limits in LIMITS {
        let mut device = open_computing().with_chunk_limits(limits);
        for text in ["rot90", "trim", "rot90 | o_g(4)"] {
            let program = compile(text);
            for bad in 0..4 {
                let batch = batch_for(&program, &random.ragged(20));
                let mut sources: Vec<_> =
                    (0..4).map(|_| AttemptData::whole(&program, &batch)).collect();
                sources[bad].input[2 * random.below(20)] = 0;
                let work = run_together(&mut device, &mut sources).unwrap();
                for (at, attempt) in work.attempts.iter().enumerate() {
                    match attempt {
                        Err(AttemptRefusal::Batch(_)) => assert_eq!(at, bad),
                        Err(refusal) => panic!("{refusal}"),
                        Ok(done) => sources[at].assert_right(*done),
                    }
                }
                assert!(work.attempts[bad].is_err());
            }
        }
    }
}

#[test]
fn a_repeated_run_allocates_nothing() {
    let mut random = Random(15);
    let mut device = open_computing().with_chunk_limits(LIMITS[2]);
    for text in TEXTS {
        let program = compile(text);
        let batch = batch_for(&program, &grids(&mut random, 100));
        let mut source = [AttemptData::whole(&program, &batch)];
        assert_right_together(&mut device, &mut source);
        adopt(&mut device, &mut source[0].output);
        let work = run_together(&mut device, &mut source).unwrap();
        assert_eq!(work.allocations, 1, "the arena that was registered");
        take_calls();
        let work = run_together(&mut device, &mut source).unwrap();
        assert_eq!(work.allocations, 0, "{text}");
        let calls = take_calls();
        assert!(!calls.iter().any(|call| call.contains("Alloc") || call.contains("Free")));
        release_all(&mut device, &mut source);
    }
    let memory = device.gauges().memory();
    assert!(memory.device_bytes > 0 && memory.pinned_bytes > 0);
    assert_eq!((memory.registered_bytes, memory.registered_bytes_high > 0), (0, true));
}

#[test]
fn a_small_job_is_one_copy_or_none_and_one_wait() {
    let mut device = open_computing();
    let one = GridBatch::from_grids([&Grid::from_rows(&[[1, 2, 3]]).unwrap()]).unwrap();
    // Kernels write small results to the host.
    for (text, kernels, copies_in) in
        [("rot90", 1, 0), ("trim", 2, 1), ("o_g(5)", 1, 0), ("palette", 1, 0)]
    {
        let program = compile(text);
        for _ in 0..2 {
            take_calls();
            run_batch(&mut device, &program, &one).unwrap();
        }
        let calls = take_calls();
        let copies = ["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuStreamSynchronize"];
        let want = [copies_in, 0, 1];
        assert_eq!(copies.map(|name| count(&calls, name)), want, "{text}: {calls:?}");
        let of_launches = ["cuLaunchKernel", "cuEventRecord", "cuEventElapsedTime"];
        let of_launches = of_launches.map(|name| count(&calls, name));
        assert!(of_launches[0] <= kernels, "{text}: {calls:?}");
        let calls_wanted = want.iter().sum::<usize>() + of_launches.iter().sum::<usize>();
        assert_eq!(calls.len(), calls_wanted, "{text}: {calls:?}");
    }
}

#[test]
fn an_arena_that_cannot_be_registered_is_copied_through_staging() {
    let mut device = open_computing();
    let program = compile("rot90 | o_g(1)");
    let batch = batch_for(&program, &grids(&mut Random(16), 30));
    let mut source = [AttemptData::whole(&program, &batch)];
    fail("cuMemHostRegister", 712);
    adopt(&mut device, &mut source[0].input);
    adopt(&mut device, &mut source[0].output);
    set_script("");
    assert_eq!(device.gauges().memory().registered_bytes_high, 0);
    assert_right_together(&mut device, &mut source);
    device.release(SharedSlice::private(&mut source[0].output)).unwrap();
}

#[test]
fn high_label_bytes_are_counted_only_where_they_are_needed() {
    let mut device = open_computing();
    let program = compile("o_g(4)");
    let plain = Grid::new(30, 30, vec![1; 900]).unwrap();
    let mut bytes_back = |grids: &[Grid], is_adopted| {
        let mut source = [AttemptData::whole(&program, &batch_for(&program, grids))];
        if is_adopted {
            adopt(&mut device, &mut source[0].output);
        }
        let bytes = assert_right_together(&mut device, &mut source).sum().d2h_bytes;
        release_all(&mut device, &mut source);
        bytes
    };
    let many = many_objects(30);
    for is_adopted in [false, true] {
        let few = bytes_back(&[plain.clone(), plain.clone(), plain.clone()], is_adopted);
        let one = bytes_back(&[plain.clone(), many.clone(), plain.clone()], is_adopted);
        assert_eq!(one, few + 900);
    }
}

#[test]
fn a_client_that_writes_its_arena_during_its_job_harms_no_other() {
    let mut random = Random(17);
    let mut device = open_computing().with_chunk_limits(LIMITS[2]);
    for text in ["rot90", "rot90 | o_g(4)", "upscale(2)", "apply(trim)"] {
        let program = compile(text);
        let batch = batch_for(&program, &random.ragged(200));
        for _ in 0..20 {
            let mut sources: Vec<_> =
                (0..3).map(|_| AttemptData::whole(&program, &batch)).collect();
            // Raw pointers, like another process's mapping: nothing here has a reference to it meanwhile.
            let (start, bytes) = (sources[1].input.as_mut_ptr(), sources[1].input.len());
            let (start, stop) = (start.expose_provenance(), AtomicBool::new(false));
            let work = thread::scope(|threads| {
                threads.spawn(|| {
                    let mut random = Random(19);
                    while !stop.load(Ordering::Relaxed) {
                        let at = start + random.below(bytes);
                        let byte = u8::try_from(random.below(256)).unwrap();
                        let at = ptr::with_exposed_provenance_mut::<u8>(at);
                        // SAFETY: the address lies in the input, which outlives this thread.
                        unsafe { at.write_volatile(byte) };
                    }
                });
                let work = run_together(&mut device, &mut sources).unwrap();
                stop.store(true, Ordering::Relaxed);
                work
            });
            for (source, attempt) in [(&sources[0], 0), (&sources[2], 2)] {
                source.assert_right(*work.attempts[attempt].as_ref().unwrap());
            }
        }
    }
}

#[test]
fn after_a_lesser_fault_no_lane_works_on_and_the_next_dispatch_is_right() {
    let mut random = Random(18);
    let mut device = open_computing().with_chunk_limits(LIMITS[0]);
    device.gpu.staging = NO_STAGING;
    // Packed results are always copied, even small ones.
    for text in ["compress", "trim"] {
        let program = compile(text);
        let batch = batch_for(&program, &random.ragged(40));
        for call in ["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuLaunchKernel", "cuMemAlloc"] {
            let mut source = [AttemptData::whole(&program, &batch)];
            // After some calls that succeed.
            for calls in [0, 1, 7, 12] {
                set_script(&format!("call={call} from={} code=701", calls + 1));
                let failed = run_together(&mut device, &mut source);
                assert!(failed.is_err() || call == "cuMemAlloc");
                set_script("");
                assert_eq!(waiting(), 0, "{call}");
            }
            let mut source = [AttemptData::whole(&program, &batch)];
            assert_right_together(&mut device, &mut source);
        }
    }
}

#[test]
fn every_repetition_over_resident_data_launches_the_kernels() {
    let mut device = open_computing();
    for text in ["rot90", "trim", "rot90 | o_g(5)", TEXTS[12]] {
        let program = compile(text);
        let batch = batch_for(&program, &Random(20).ragged(50));
        run_batch(&mut device, &program, &batch).unwrap();
        take_calls();
        let resident = device.time_resident(&program, &batch, 5).unwrap();
        let calls = take_calls();
        assert_eq!((resident.items, resident.device_us.len()), (50, 5));
        assert!(resident.bytes > batch.cells().len() as u64);
        let launched: u32 = resident.kernels.iter().map(|kernel| kernel.launches).sum();
        assert_eq!(launches(&calls), launched as usize / 5 * 6, "one round is not timed");
        let copies = count(&calls, "cuMemcpyHtoDAsync") + count(&calls, "cuMemcpyDtoHAsync");
        assert!(copies <= 4 || program.solver().is_some(), "{calls:?}");
    }
}

#[test]
fn a_result_that_reaches_into_its_neighbour_is_a_fault() {
    let program = compile("crop(0, 0, 9, 9)");
    let grid = Grid::from_rows(&[[1, 2], [3, 4]]).unwrap();
    let batch = GridBatch::from_grids([&grid]).unwrap();
    let mut device = open_computing();
    for is_adopted in [false, true] {
        let mut sources: Vec<_> = (0..3).map(|_| AttemptData::whole(&program, &batch)).collect();
        if is_adopted {
            sources.iter_mut().for_each(|source| adopt(&mut device, &mut source.output));
        }
        for misplaced in [(0, 1), (1, 3), (1, 5), (2, 3), (2, 7), (2, 9), (2, 13), (1, u32::MAX)] {
            let (value, place) = misplaced;
            set_script(&format!("call=cuLaunchKernel misplace={value}:{place}"));
            let error = run_together(&mut device, &mut sources).unwrap_err();
            assert!(matches!(error, Fault::WrongResult { .. }), "{misplaced:?}");
        }
        set_script("");
        assert_right_together(&mut device, &mut sources);
        release_all(&mut device, &mut sources);
    }
}

#[test]
fn after_a_fault_it_is_known_which_chunks_were_under_way_and_what_was_launched() {
    // Its result is packed, which takes several launches.
    let program = compile("trim");
    let batch = batch_for(&program, &Random(9).ragged(10));
    let mut device =
        open_computing().with_chunk_limits(ChunkLimits { items_max: 2, cells_max: 1 << 20 });
    let memory = Arena::create(8 * WORDS as u64).unwrap();
    device.gauges().position.record_in(Arc::new(memory.map().unwrap()));
    let seen = memory.map().unwrap();
    let recorded = || {
        let words = seen.all().words(WORDS).unwrap().iter();
        words.map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>()
    };
    let attempt = AttemptId { job: JobId(40), number: 3 };
    let mut run = |script: &str| {
        device.gauges().position.names(0, attempt);
        device.gauges().position.dispatch_begins(1);
        take_calls();
        set_script(script);
        let ran = run_together(&mut device, &mut [AttemptData::whole(&program, &batch)]);
        (ran, Position::read(&recorded()).unwrap())
    };
    let (ran, position) = run("");
    ran.unwrap();
    let done = Position { chunks_begun: 5, chunks_done: 5, under_way: Vec::new() };
    assert_eq!(position, done);
    let of_chunk = launches(&take_calls()) / 5;
    assert!(of_chunk >= 2, "{of_chunk}");
    let (ran, position) = run(&format!("call=cuLaunchKernel nth={} code=700", 2 * of_chunk + 2));
    ran.unwrap_err();
    assert_eq!((position.chunks_begun, position.chunks_done), (3, 0));
    let chunk = |number: u64, launches: u64| {
        let item = |item| ItemPosition { attempt, item };
        let (first, last) = (item(2 * number - 2), item(2 * number - 1));
        (number, first, last, launches)
    };
    let all = position.under_way.iter();
    let all: Vec<_> = all.map(|at| (at.chunk, at.first, at.last, at.launches)).collect();
    let of_whole = of_chunk as u64;
    assert_eq!(all, [chunk(1, of_whole), chunk(2, of_whole), chunk(3, 2)]);
    let kernel = &position.under_way[2].kernel;
    assert!(KERNELS.iter().any(|known| known.name == kernel), "{kernel}");
}
