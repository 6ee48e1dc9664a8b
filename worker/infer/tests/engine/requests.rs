//! Single requests: every type, every kind of shape, every output, inline and in arenas.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gridpool_device::gauges::Gauges;
use gridpool_infer::{
    ArenaPart, Destination, InferError, LockedArenas, ModelOptions, Placed, Source,
};
use gridpool_ipc::arena::Arena;
use gridpool_ipc::clock;
use gridpool_protocol::ids::{ArenaId, DeviceKind};
use gridpool_protocol::tensor::{DataType, TensorLayout};

use crate::harness::{ask, engine, load, outputs, submit, submit_with};
use crate::tensors::{Full, device, fp32, full, int64, irregular, pack, unpack};

#[test]
fn all_outputs_of_a_model_come_back_with_how_it_ran() {
    let Some(engine) = engine() else { return };
    let info = load(&engine, "three_outputs", &ModelOptions::default());
    assert_eq!((info.inputs.len(), info.outputs.len(), info.max_batch), (1, 3, 32));
    let x = fp32("x", &[2, 4], &[1.0, 2.0, 9.0, 4.0, -1.0, -2.0, -3.0, -4.0]);
    let answer = submit(&engine, "three_outputs", &[x]).unwrap().wait().unwrap();
    let got = outputs(&answer);
    assert_eq!(got[0], fp32("sum", &[2], &[16.0, -10.0]));
    assert_eq!(got[1].fp32(), [2.0, 4.0, 18.0, 8.0, -2.0, -4.0, -6.0, -8.0]);
    let whole = [100, 200, 900, 400, -100, -200, -300, -400];
    assert_eq!(got[2], int64("whole", &[2, 4], &whole));
    let report = answer.report;
    assert_eq!((report.model.as_str(), report.runs, report.joined_rows), ("three_outputs", 1, 2));
    assert_eq!(report.sha256, info.sha256);
    assert_eq!(report.sha256.len(), 64);
    assert!(report.onnxruntime.starts_with("1."), "{}", report.onnxruntime);
    assert_eq!(report.nodes, info.nodes);
    assert!(report.nodes.iter().map(|nodes| nodes.nodes).sum::<u32>() >= 3, "{:?}", report.nodes);
    assert!(report.device_us > 0.0);
    assert_eq!((report.h2d_bytes, report.d2h_bytes), (32, 8 + 32 + 64));
}

/// The types that the model `datatypes` takes.
fn numeric() -> impl Iterator<Item = DataType> {
    DataType::ALL.into_iter().filter(|&datatype| datatype != DataType::Bytes)
}

#[test]
fn every_type_goes_through_bit_for_bit() {
    let Some(engine) = engine() else { return };
    load(&engine, "datatypes", &ModelOptions::default());
    for rows in [1, 2, 17] {
        let input = |datatype: DataType| {
            let count = 3 * rows * datatype.bytes();
            // Every bit pattern of a byte, NaNs among them; a BOOL is 0 or 1.
            let byte = |at: usize| u8::try_from((at * 37 + 11) % 256).unwrap();
            let byte = |at| if datatype == DataType::Bool { byte(at) % 2 } else { byte(at) };
            let bytes: Vec<u8> = (0..count).map(byte).collect();
            full(&datatype.name().to_lowercase(), datatype, &[rows as u64, 3], &bytes)
        };
        let inputs: Vec<Full> = numeric().map(input).collect();
        let got = ask(&engine, "datatypes", &inputs);
        assert_eq!(got.len(), 13);
        for input in &inputs {
            let name = format!("{}_out", input.name);
            let output = got.iter().find(|output| output.name == name).expect(&name);
            assert_eq!(*output, Full { name, ..input.clone() });
        }
    }
}

#[test]
fn a_bool_that_is_neither_0_nor_1_is_1() {
    let Some(engine) = engine() else { return };
    load(&engine, "datatypes", &ModelOptions::default());
    let input = |datatype: DataType| {
        let bytes = vec![if datatype == DataType::Bool { 200 } else { 0 }; 3 * datatype.bytes()];
        full(&datatype.name().to_lowercase(), datatype, &[1, 3], &bytes)
    };
    let got = ask(&engine, "datatypes", &numeric().map(input).collect::<Vec<_>>());
    assert_eq!(got[0], full("bool_out", DataType::Bool, &[1, 3], &[1, 1, 1]));
}

#[test]
fn inputs_of_several_types_and_shapes_that_every_request_chooses() {
    let Some(engine) = engine() else { return };
    load(&engine, "two_inputs", &ModelOptions::default());
    for (rows, long) in [(1, 1), (3, 5), (2, 100), (3, 5)] {
        let numbers = irregular(rows * long, usize::try_from(rows * long).unwrap());
        let shift: Vec<i32> = (0..i32::try_from(rows).unwrap()).map(|row| 10 * row).collect();
        let bytes: Vec<u8> = shift.iter().flat_map(|shift| shift.to_le_bytes()).collect();
        let shift_input = full("shift", DataType::Int32, &[rows], &bytes);
        // In another order than the model's inputs.
        let got = ask(&engine, "two_inputs", &[shift_input, fp32("x", &[rows, long], &numbers)]);
        let long = usize::try_from(long).unwrap();
        let rows = numbers.chunks(long).zip(&shift);
        let want = rows.map(|(row, &shift)| row.iter().map(move |n| n + shift as f32));
        let want: Vec<Vec<f32>> = want.map(Iterator::collect).collect();
        assert_eq!(got[0].fp32(), want.concat());
        let largest: Vec<f32> =
            want.iter().map(|row| row.iter().copied().fold(f32::MIN, f32::max)).collect();
        assert_eq!(got[1].fp32(), largest);
    }
}

#[test]
fn scalars_go_in_and_out() {
    let Some(engine) = engine() else { return };
    let info = load(&engine, "scalar", &ModelOptions::default());
    assert_eq!(info.max_batch, 1);
    let got = ask(&engine, "scalar", &[fp32("a", &[], &[3.0]), fp32("b", &[], &[-2.5])]);
    assert_eq!(got, [fp32("product", &[], &[-7.5]), full("less", DataType::Bool, &[], &[0])]);
}

#[test]
fn tensors_without_elements_go_in_and_out() {
    let Some(engine) = engine() else { return };
    load(&engine, "nonzero", &ModelOptions::default());
    load(&engine, "two_inputs", &ModelOptions::default());
    let numbers = |numbers: &[i32]| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        full("x", DataType::Int32, &[numbers.len() as u64], &bytes)
    };
    assert_eq!(
        ask(&engine, "nonzero", &[numbers(&[0, 5, 0, 7])]),
        [int64("where", &[1, 2], &[1, 3])]
    );
    assert_eq!(ask(&engine, "nonzero", &[numbers(&[0, 0])]), [int64("where", &[1, 0], &[])]);
    assert_eq!(ask(&engine, "nonzero", &[numbers(&[])]), [int64("where", &[1, 0], &[])]);
    // A request may have no rows.
    let none = full("shift", DataType::Int32, &[0], &[]);
    let got = ask(&engine, "two_inputs", &[fp32("x", &[0, 4], &[]), none]);
    assert_eq!(got, [fp32("y", &[0, 4], &[]), fp32("largest", &[0], &[])]);
}

#[test]
fn a_payload_stays_in_its_arena_and_outputs_go_where_they_are_to() {
    let Some(engine) = engine() else { return };
    load(&engine, "three_outputs", &ModelOptions::default());
    let map = Arc::new(Arena::create(1 << 16).unwrap().map().unwrap());
    let numbers = irregular(5, 40);
    let packed = pack(&[fp32("x", &[10, 4], &numbers)]);
    map.all().write(4_096, &packed);
    let part = |offset, bytes| ArenaPart::new(Arc::clone(&map), offset, bytes);
    let source = Source::Arena(part(4_096, packed.len() as u64).unwrap());
    let ask = |place: ArenaPart| {
        submit_with(&engine, "three_outputs", &[], |request| {
            let outputs = Destination::Arena(place);
            gridpool_infer::Request { inputs: source.clone(), outputs, ..request }
        })
    };
    let answer = ask(part(8_192, 4_096).unwrap()).unwrap().wait().unwrap();
    let Placed::InArena(bytes) = answer.outputs else { panic!("{:?}", answer.outputs) };
    let mut got = vec![0; bytes];
    map.all().read(8_192, &mut got);
    let doubled: Vec<f32> = numbers.iter().map(|number| 2.0 * number).collect();
    assert_eq!(unpack(&got)[1], fp32("double", &[10, 4], &doubled));
    let mut input = vec![0; packed.len()];
    map.all().read(4_096, &mut input);
    assert_eq!(input, packed, "the inputs are as they were");
    let error = ask(part(8_192, 64).unwrap()).unwrap().wait().unwrap_err();
    assert!(matches!(error, InferError::Outputs(_)), "{error}");
    let error = gridpool_protocol::chain::Chain(&error).to_string();
    assert!(error.contains("the tensors have 64 bytes;"), "{error}");
    assert!(part(1 << 16, 1).is_none(), "beyond the arena");
    assert!(part(u64::MAX, 2).is_none());
}

/// On a GPU the second input of an arena, and those after it, are copied by the device.
#[test]
fn inputs_of_an_arena_are_what_it_holds_when_they_are_asked_for() {
    const ROWS: usize = 4_096;
    let Some(engine) = engine() else { return };
    load(&engine, "three_outputs", &ModelOptions::default());
    let map = Arc::new(Arena::create(1 << 20).unwrap().map().unwrap());
    let gauges = Arc::<Gauges>::default();
    let mut locked = LockedArenas::counted_in(Arc::clone(&gauges));
    let registered = || gauges.memory().registered_bytes;
    let (id, mut loans) = (ArenaId(1), 0);
    let is_gpu = device() == DeviceKind::Gpu;
    assert_eq!(engine.can_lend("three_outputs"), is_gpu);
    for turn in 0..4 {
        let numbers = irregular(turn, 4 * ROWS);
        let packed = pack(&[fp32("x", &[ROWS as u64, 4], &numbers)]);
        let bytes = packed.len() as u64;
        map.all().write(4_096, &packed);
        let part = ArenaPart::new(Arc::clone(&map), 4_096, bytes).unwrap();
        let mut lock = is_gpu.then(|| locked.of_input(id, &map, bytes)).flatten();
        assert!(lock.is_none() || turn > 0, "one input is not worth it");
        // Another test may capture a run just now.
        while is_gpu && turn > 0 && lock.is_none() {
            thread::yield_now();
            lock = locked.of_input(id, &map, bytes);
        }
        assert_eq!(registered(), if lock.is_some() { map.bytes() as u64 } else { 0 });
        let inputs = Source::Arena(part.with_lock(lock.clone()));
        let answer = submit_with(&engine, "three_outputs", &[], |request| {
            gridpool_infer::Request { inputs, ..request }
        });
        let answer = answer.unwrap().wait().unwrap();
        let Placed::Inline(got) = answer.outputs else {
            panic!("it was not asked into an arena");
        };
        let doubled: Vec<f32> = numbers.iter().map(|number| 2.0 * number).collect();
        assert_eq!(unpack(&got)[1], fp32("double", &[ROWS as u64, 4], &doubled), "turn {turn}");
        if let Some(lock) = lock {
            // A run for each piece of its rows, and each had the device copy its piece.
            loans += u64::from(answer.report.runs);
            assert_eq!(lock.loans(), loans, "turn {turn}");
        }
    }
    locked.forget(id);
    let kept = Arc::downgrade(&map);
    drop(map);
    // The last request has its arena until its context is done with it.
    let until = clock::now() + Duration::from_secs(60);
    while locked.sweep() || kept.strong_count() > 0 {
        assert!(!clock::until(until).is_zero(), "the arena stays mapped");
        thread::yield_now();
    }
    assert_eq!(registered(), 0);
}

#[test]
fn a_wrong_request_is_refused_before_it_waits() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &ModelOptions::default());
    let refused = |model: &str, inputs: &[Full]| match submit(&engine, model, inputs) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    };
    let x = || fp32("x", &[1, 16], &[0.0; 16]);
    assert_eq!(refused("mpl", &[x()]), "there is no model `mpl`; there is mlp");
    assert_eq!(refused("mlp", &[]), "the input `x` is missing");
    let y = fp32("y", &[1], &[0.0]);
    assert_eq!(refused("mlp", &[x(), y]), "the model has no input `y`; it takes x");
    let short = fp32("x", &[1, 15], &[0.0; 15]);
    assert_eq!(refused("mlp", &[short]), "`x` has the shape [1, 15]; the model takes [?, 16]");
    let wide = full("x", DataType::Fp64, &[1, 16], &[0; 128]);
    let cast = "`x` is FP64; the model takes FP32: with NumPy x.astype('<f4')";
    assert_eq!(refused("mlp", &[wide]), cast);
    let cut = submit_with(&engine, "mlp", &[x()], |request| {
        let inputs = Source::Inline(Arc::from(&b"GPT1 and nothing"[..]));
        gridpool_infer::Request { inputs, ..request }
    });
    assert!(cut.is_err());
    let empty = TensorLayout::new(Vec::new()).unwrap().pack(&[]).unwrap();
    let none = submit_with(&engine, "mlp", &[x()], |request| {
        let inputs = Source::Inline(Arc::from(empty));
        gridpool_infer::Request { inputs, ..request }
    });
    assert!(none.is_err());
}
