//! Chunks on many lanes, attempts joined in one launch, and shards of jobs, on a real GPU.

use gridpool_device::chunk::ChunkLimits;
use gridpool_device::cuda::CudaDevice;
use gridpool_device::device::{AttemptRefusal, Device};
use gridpool_protocol::shared::SharedSlice;

use super::attempts::{AttemptData, assert_right_together, batch_for, many_objects, run_together};
use super::random::Random;
use super::{batch, compile, gpu};

/// Results of every kind, in place and packed.
const TEXTS: [&str; 10] = [
    "rot90 | replace(0, 5)",
    "o_g(5)",
    "rot90 | o_g(4)",
    "trim | o_g(4)",
    "crop(0, 0, 2, 3)",
    "ofcolor(3)",
    "palette",
    "apply(rot90)",
    "apply(ofcolor(1) | outbox)",
    "hsplit(3) | apply(o_g(7))",
];

/// Chunks so small that every lane has many, and a device's own limits.
const LIMITS: [ChunkLimits; 3] = [
    ChunkLimits { items_max: 40, cells_max: usize::MAX },
    ChunkLimits { items_max: 400, cells_max: 30_000 },
    ChunkLimits { items_max: 1 << 20, cells_max: 32 << 20 },
];

fn adopt(gpu: &mut CudaDevice, bytes: &mut [u8]) {
    gpu.adopt(SharedSlice::private(bytes)).expect("the driver registers it");
}

fn release(gpu: &mut CudaDevice, source: &mut AttemptData) {
    for bytes in [&mut source.input, &mut source.output] {
        gpu.release(SharedSlice::private(bytes)).expect("the driver forgets it");
    }
}

#[test]
fn chunks_on_all_lanes_mix_up_nothing_and_the_second_run_allocates_nothing() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(61);
    for limits in LIMITS {
        gpu = gpu.with_chunk_limits(limits);
        for text in TEXTS {
            let program = compile(text);
            let mut grids = random.ragged(2_000);
            grids[7] = many_objects(30);
            grids[1_234] = many_objects(64);
            let mut source = [AttemptData::whole(&program, &batch_for(&program, &grids))];
            assert_right_together(&mut gpu, &mut source);
            adopt(&mut gpu, &mut source[0].input);
            adopt(&mut gpu, &mut source[0].output);
            source[0].output.fill(0xee);
            assert_right_together(&mut gpu, &mut source);
            let work = run_together(&mut gpu, &mut source).unwrap();
            assert_eq!(work.allocations, 0, "{text}");
            release(&mut gpu, &mut source[0]);
        }
    }
}

#[test]
fn joined_attempts_write_only_their_own_results() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(62);
    for limits in LIMITS {
        gpu = gpu.with_chunk_limits(limits);
        for text in TEXTS {
            let program = compile(text);
            let mut sources: Vec<_> = (0..16)
                .map(|at| {
                    let items = 1 + random.below(60);
                    let mut grids = random.ragged(items);
                    grids.push(many_objects(20 + at));
                    let batch = batch_for(&program, &grids);
                    let start = if at % 2 == 0 { 0 } else { random.below(batch.len()) };
                    let end = if at % 3 == 0 { batch.len() } else { start + 1 };
                    AttemptData::new(&program, &batch, start..end)
                })
                .collect();
            for (at, source) in sources.iter_mut().enumerate() {
                if at % 4 < 2 {
                    adopt(&mut gpu, &mut source.input);
                }
                if at % 3 > 0 {
                    adopt(&mut gpu, &mut source.output);
                }
            }
            assert_right_together(&mut gpu, &mut sources);
            sources.iter_mut().for_each(|source| release(&mut gpu, source));
        }
    }
}

#[test]
fn an_attempt_with_bad_tables_is_refused_and_the_others_run() {
    let Some(mut gpu) = gpu() else { return };
    let mut random = Random(63);
    for text in TEXTS {
        let program = compile(text);
        let batch = batch_for(&program, &random.ragged(50));
        let mut sources: Vec<_> = (0..5).map(|_| AttemptData::whole(&program, &batch)).collect();
        // For pairs this is an input: an output may be missing.
        sources[3].input[4 * random.below(25)] = 0;
        let work = run_together(&mut gpu, &mut sources).unwrap();
        for (at, attempt) in work.attempts.iter().enumerate() {
            match attempt {
                Ok(done) => sources[at].assert_right(*done),
                Err(refusal) => assert!(at == 3 && matches!(refusal, AttemptRefusal::Batch(_))),
            }
        }
        assert!(work.attempts[3].is_err());
    }
}

#[test]
fn kernels_over_resident_data_are_timed_as_often_as_asked() {
    let Some(mut gpu) = gpu() else { return };
    let batch = batch(&vec![Random(64).grid(30, 30); 10_000]);
    let resident = gpu.time_resident(&compile("rot90"), &batch, 7).unwrap();
    assert_eq!((resident.items, resident.device_us.len()), (10_000, 7));
    assert!(resident.bytes > 2 * 9_000_000 && resident.device_us.iter().all(|us| *us > 0.0));
    assert!(resident.kernels.iter().all(|kernel| kernel.launches % 7 == 0));
}
