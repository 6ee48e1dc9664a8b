//! Searches on the CUDA device over the fake driver: the same verdicts as the CPU device's, whatever the chunks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::program::Ties;
use gridpool_protocol::search::{
    CompiledTemplate, JobPrograms, PackedPrograms, PairStatus, Score, SearchLayout, SearchReport,
    Template, compile,
};
use gridpool_protocol::shared::SharedSlice;

use super::*;
use crate::cpu::CpuDevice;
use crate::device::{AttemptRefusal, AttemptReport, Device, DispatchReport};
use crate::search::SearchAttempt;

/// Pairs of small and of large grids; the last has no output.
fn pairs() -> GridBatch {
    let grid = |side: usize| {
        let cell = |at: usize| u8::try_from(at * at % 7).unwrap();
        Grid::new(side, side, (0..side * side).map(cell).collect()).unwrap()
    };
    let grids = [3, 30, 64].map(grid);
    let mut batch = GridBatch::of_items(2);
    for grid in &grids {
        batch.push_pair(grid, Some(grid)).unwrap();
    }
    batch.push_pair(&grids[0], None).unwrap();
    batch
}

/// Programs with one among them whose bytes are none.
fn programs() -> PackedPrograms {
    let texts = [
        "identity",
        "rot180 | rot180",
        "rot90",
        "O = replace(I, 0, 0)",
        "O = power(rot90, width(I))(I)",
    ];
    let mut packed = PackedPrograms::default();
    for (at, text) in texts.iter().cycle().take(40).enumerate() {
        let steps = if at % 3 == 0 { 5 } else { 1_000 };
        let mut bytes = compile(text, Ties::Cpython, steps).unwrap().to_bytes();
        bytes[0] = if at % 11 == 7 { 9 } else { bytes[0] };
        packed.push(&bytes).unwrap();
    }
    packed
}

/// What a device makes of two attempts, and what it reports.
fn searched(
    device: &mut dyn Device,
    score: Score,
    stop: Option<&AtomicBool>,
) -> (Vec<u8>, DispatchReport) {
    let (batch, packed) = (pairs(), programs());
    let layout = batch.layout().unwrap();
    let layout = SearchLayout::new(packed.size(layout), score).unwrap();
    let (mut input, mut output) =
        (vec![0; layout.input_bytes()], vec![0xee; layout.output_bytes()]);
    let (from, to) = (SharedSlice::private(&mut input), SharedSlice::private(&mut output));
    batch.write_to(layout.batch(), &from);
    packed.write_to(layout, &from);
    let part = |programs| {
        let attempt = SearchAttempt::new(layout, programs, from, to).unwrap();
        stop.iter().fold(attempt, |attempt, stop| attempt.with_stop(stop))
    };
    let report = device.search(&[part(0..13), part(13..39)]).unwrap();
    (output, report)
}

fn search_of(report: &DispatchReport, at: usize) -> SearchReport {
    report.attempts[at].as_ref().unwrap().search.unwrap()
}

#[test]
fn both_devices_give_the_same_bytes_and_write_no_others() {
    for score in Score::ALL {
        let mut cpu = CpuDevice::open(0, 2).unwrap();
        let (want, reference) = searched(&mut cpu, score, None);
        let mut device = open_computing();
        let (got, report) = searched(&mut device, score, None);
        assert_eq!(got, want, "{score}");
        // The last program belongs to no attempt.
        let last = 39 * 4;
        assert_eq!(got[last..last + 4], [0xee; 4]);
        assert!(got[..last].iter().all(|byte| PairStatus::from_byte(*byte).is_some()));
        for at in 0..2 {
            // The largest grid needs more than the largest arena.
            let of_gpu = search_of(&report, at);
            assert_eq!(of_gpu.on_processor, of_gpu.executed / 4);
            assert_eq!(SearchReport { on_processor: 0, ..of_gpu }, search_of(&reference, at));
            let AttemptReport { item_errors, h2d_bytes, d2h_bytes, .. } =
                report.attempts[at].clone().unwrap();
            assert_eq!(item_errors, [1, 2][at]);
            // The second attempt finds the pairs there.
            assert_eq!(h2d_bytes > 10_000, at == 0, "{h2d_bytes}");
            assert!(h2d_bytes > 1_000 && d2h_bytes > 40, "{h2d_bytes} {d2h_bytes}");
        }
        assert!(search_of(&report, 0).capped > 0);
        // One launch for each size of arenas and attempt.
        assert_eq!((report.kernels[0].name.as_str(), report.kernels[0].launches), ("gp_search", 8));
        // The second time the buffers are there.
        assert_eq!(searched(&mut device, score, None).1.allocations, 0);
    }
}

/// What a device makes of two attempts of a template's job that begins with its program 30, and what it reports.
fn of_template(device: &mut dyn Device, score: Score) -> (Vec<u8>, DispatchReport) {
    let text =
        "x = shift(asindices(I), ?d:direction)\nO = ?f in [rot90, hmirror](fill(I, ?a:color, x))";
    let template = Template::parse(text).unwrap().unwrap();
    let (compiled, _) = CompiledTemplate::compile(&template, Ties::Cpython, 1_000).unwrap();
    assert_eq!(compiled.count(), 160);
    let programs = JobPrograms::OfTemplate(Arc::new(compiled), 30..130);
    let batch = pairs();
    let layout = SearchLayout::new(programs.size(batch.layout().unwrap()), score).unwrap();
    let (mut input, mut output) =
        (vec![0; layout.input_bytes()], vec![0xee; layout.output_bytes()]);
    let (from, to) = (SharedSlice::private(&mut input), SharedSlice::private(&mut output));
    batch.write_to(layout.batch(), &from);
    programs.write_to(layout, &from);
    let part = |programs| SearchAttempt::new(layout, programs, from, to).unwrap();
    let report = device.search(&[part(0..37), part(37..99)]).unwrap();
    (output, report)
}

#[test]
fn both_devices_give_the_same_bytes_for_a_template() {
    for score in Score::ALL {
        let (want, reference) = of_template(&mut CpuDevice::open(0, 2).unwrap(), score);
        let mut device = open_computing();
        let (got, report) = of_template(&mut device, score);
        assert_eq!(got, want, "{score}");
        assert_eq!(got[4 * 99..4 * 100], [0xee; 4]);
        assert!(got[..4 * 99].iter().all(|byte| PairStatus::from_byte(*byte).is_some()));
        for at in 0..2 {
            let report = search_of(&report, at);
            assert_eq!(report.on_processor, report.executed / 4);
            let report = SearchReport { shared: 0, on_processor: 0, ..report };
            assert_eq!(report, search_of(&reference, at));
        }
        assert_eq!(search_of(&report, 1).executed, 4 * 62);
        let kernel = &report.kernels[0];
        // What a large grid needs is listed for a larger arena.
        assert!(kernel.name == "gp_template" && kernel.launches > 2, "{kernel:?}");
        assert_eq!(of_template(&mut device, score).1.allocations, 0);
    }
}

#[test]
fn a_cancelled_search_is_refused_and_the_device_goes_on() {
    let mut device = open_computing();
    let (_, report) = searched(&mut device, Score::Exact, Some(&AtomicBool::new(true)));
    assert_eq!(report.attempts, [const { Err(AttemptRefusal::Cancelled) }; 2]);
    let (_, report) = searched(&mut device, Score::Exact, None);
    assert!(report.attempts.iter().all(Result::is_ok));
}

#[test]
fn bytes_that_are_no_verdict_are_a_fault() {
    let mut device = open_computing();
    searched(&mut device, Score::Exact, None);
    for byte in [77, 202, 255] {
        set_script(&format!("call=cuMemcpyDtoHAsync garbage={byte}"));
        let (batch, packed) = (pairs(), programs());
        let layout = SearchLayout::new(packed.size(batch.layout().unwrap()), Score::Exact).unwrap();
        let (mut input, mut output) =
            (vec![0; layout.input_bytes()], vec![0; layout.output_bytes()]);
        let (from, to) = (SharedSlice::private(&mut input), SharedSlice::private(&mut output));
        batch.write_to(layout.batch(), &from);
        packed.write_to(layout, &from);
        let attempt = SearchAttempt::new(layout, 0..3, from, to).unwrap();
        let error = device.search(&[attempt]).unwrap_err();
        assert!(matches!(error, Fault::WrongResult { .. }), "{error}");
    }
}

/// Programs that run for a while, over many pairs.
fn slow() -> (GridBatch, PackedPrograms) {
    let grid = Grid::from_rows(&[[1, 2], [3, 4]]).unwrap();
    let batch = GridBatch::from_pairs([(&grid, Some(&grid)); 64]).unwrap();
    let mut packed = PackedPrograms::default();
    let code =
        compile("O = power(rot90, multiply(TEN, multiply(TEN, TEN)))(I)", Ties::Cpython, 400);
    let bytes = code.unwrap().to_bytes();
    (0..128).for_each(|_| packed.push(&bytes).unwrap());
    (batch, packed)
}

#[test]
fn what_the_processor_takes_is_reported() {
    let mut device = open_computing();
    // Whatever the device computes, it says that it needs more memory.
    set_script("call=cuMemcpyDtoHAsync garbage=254");
    let (batch, packed) = slow();
    let layout = SearchLayout::new(packed.size(batch.layout().unwrap()), Score::Exact).unwrap();
    let (mut input, mut output) = (vec![0; layout.input_bytes()], vec![0; layout.output_bytes()]);
    let (from, to) = (SharedSlice::private(&mut input), SharedSlice::private(&mut output));
    batch.write_to(layout.batch(), &from);
    packed.write_to(layout, &from);
    let attempt = SearchAttempt::new(layout, 0..128, from, to).unwrap();
    let report = device.search(&[attempt]).unwrap();
    let search = search_of(&report, 0);
    assert_eq!((search.executed, search.on_processor, search.capped), (8_192, 8_192, 8_192));
    // One chunk, and one launch for each size of an arena.
    let [launches, calls] = &report.kernels[..] else { panic!("{:?}", report.kernels) };
    assert_eq!((calls.name.as_str(), calls.launches, launches.launches), ("search", 1, 4));
    assert!(calls.device_us > 40e3, "{calls:?}");
}

#[test]
fn where_memory_for_arenas_is_short_fewer_run_at_once() {
    let (batch, packed) = (pairs(), programs());
    let layout = SearchLayout::new(packed.size(batch.layout().unwrap()), Score::Exact).unwrap();
    let mut survived = 0;
    for nth in 1.. {
        let mut device = open_computing();
        take_calls();
        // Whatever the device computes, it says that it needs more memory; and one allocation fails.
        set_script(&format!(
            "call=cuMemcpyDtoHAsync garbage=254; call=cuMemAlloc nth={nth} code=2"
        ));
        let (mut input, mut output) =
            (vec![0; layout.input_bytes()], vec![0; layout.output_bytes()]);
        let (from, to) = (SharedSlice::private(&mut input), SharedSlice::private(&mut output));
        batch.write_to(layout.batch(), &from);
        packed.write_to(layout, &from);
        let ran = device.search(&[SearchAttempt::new(layout, 0..3, from, to).unwrap()]);
        let has_failed = take_calls().iter().filter(|call| **call == "cuMemAlloc").count() >= nth;
        match ran {
            Ok(report) => {
                let SearchReport { executed, on_processor, .. } = search_of(&report, 0);
                assert!(executed > 0 && on_processor > 0);
                survived += usize::from(has_failed);
            }
            Err(fault) => assert!(matches!(fault, Fault::Cuda { code: 2, .. }), "{fault}"),
        }
        if !has_failed {
            break;
        }
    }
    // At least that of the arenas of 128 KiB.
    assert!(survived > 0);
}

#[test]
fn programs_that_begin_alike_share_and_their_verdicts_are_the_same() {
    let grid = Grid::from_rows(&[[1, 2], [3, 4]]).unwrap();
    let turned = Grid::from_rows(&[[3, 1], [4, 2]]).unwrap();
    let batch = GridBatch::from_pairs([(&grid, Some(&turned)); 64]).unwrap();
    let searched = |device: &mut dyn Device, sharing: bool| {
        let mut packed = PackedPrograms::new(sharing);
        for number in 0..1_024 {
            let text = format!("x = rot90(I)\nO = replace(x, {}, {})", number % 9, number / 9);
            packed.push(&compile(&text, Ties::Cpython, 100).unwrap().to_bytes()).unwrap();
        }
        let layout = SearchLayout::new(packed.size(batch.layout().unwrap()), Score::Exact).unwrap();
        let (mut input, mut output) =
            (vec![0; layout.input_bytes()], vec![0; layout.output_bytes()]);
        let (from, to) = (SharedSlice::private(&mut input), SharedSlice::private(&mut output));
        batch.write_to(layout.batch(), &from);
        packed.write_to(layout, &from);
        let report =
            device.search(&[SearchAttempt::new(layout, 0..1_024, from, to).unwrap()]).unwrap();
        (output, search_of(&report, 0))
    };
    let (want, reference) = searched(&mut CpuDevice::open(0, 2).unwrap(), true);
    let mut device = open_computing();
    let (alone, report) = searched(&mut device, false);
    assert!(alone == want && report == reference);
    let (together, report) = searched(&mut device, true);
    assert!(together == want && want.contains(&PairStatus::EQUAL));
    assert_eq!(SearchReport { shared: 0, ..report }, reference);
    // All but the first program of each run.
    assert!(report.shared > report.executed / 2, "{report:?}");
}
