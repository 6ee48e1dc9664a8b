//! Inputs that are right except for one thing, which flipped bytes would rarely produce. The models of `tables`
//! and `client_frame` check them, as they check the fuzzer's inputs.

use std::fmt::Debug;

use gridpool_ipc::frame;
use gridpool_protocol::codec;
use gridpool_protocol::message::{ClientMessage, FromWorker, OnLifeline, ServerMessage, ToWorker};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::shared::any::any as made;
use crate::shared::{client_frame, tables};

/// What is wrong with the tables of a batch.
#[derive(Clone, Debug)]
enum Wrong {
    Nothing,
    /// Every offset is larger by this, and there are as many more cells.
    AllShifted(u32),
    /// One offset is changed.
    Offset(usize, i64),
    /// One grid's shape does not match its offsets.
    Shape(usize, [u8; 2]),
    /// There are more or fewer cells than the grids have.
    Cells(i64),
    /// The memory ends early.
    Short(usize),
}

fn wrong() -> impl Strategy<Value = Wrong> {
    let side = || prop_oneof![Just(0_u8), 1..30_u8, Just(64), Just(255)];
    prop_oneof![
        Just(Wrong::Nothing),
        (1..50_u32).prop_map(Wrong::AllShifted),
        (any::<usize>(), -3..3_i64).prop_map(|(at, by)| Wrong::Offset(at, by)),
        (any::<usize>(), side(), side()).prop_map(|(at, h, w)| Wrong::Shape(at, [h, w])),
        (-3..3_i64).prop_map(Wrong::Cells),
        (1..40_usize).prop_map(Wrong::Short),
    ]
}

/// The input of `tables` for grids of these shapes.
fn batch(shapes: &[[u8; 2]], per_item: usize, wrong: &Wrong) -> Vec<u8> {
    let mut shapes = shapes.to_vec();
    shapes.truncate(shapes.len() / per_item * per_item);
    let mut offsets = vec![0_i64];
    for [h, w] in &shapes {
        offsets.push(offsets[offsets.len() - 1] + i64::from(*h) * i64::from(*w));
    }
    let mut cells = offsets[offsets.len() - 1];
    match *wrong {
        Wrong::Nothing | Wrong::Short(_) => {}
        Wrong::AllShifted(by) => {
            offsets.iter_mut().for_each(|offset| *offset += i64::from(by));
            cells += i64::from(by);
        }
        Wrong::Offset(at, by) => {
            let at = at % offsets.len();
            offsets[at] += by;
        }
        Wrong::Shape(at, shape) => {
            let at = at % shapes.len();
            shapes[at] = shape;
        }
        Wrong::Cells(by) => cells += by,
    }
    let items = u16::try_from(shapes.len() / per_item).expect("a few").to_le_bytes();
    let cells = u32::try_from(cells.max(0)).expect("a few").to_le_bytes();
    let is_pairs = u8::from(per_item == 2);
    // The second bit appends the missing bytes: here, the cells.
    let mut bytes = vec![items[0], items[1], is_pairs | 2, cells[0], cells[1], cells[2]];
    let align = |bytes: &mut Vec<u8>| bytes.resize((bytes.len() - 6).next_multiple_of(16) + 6, 0);
    bytes.extend(shapes.as_flattened());
    align(&mut bytes);
    let low = |offset: &i64| u32::try_from(offset & 0xffff_ffff).expect("32 bits");
    bytes.extend(offsets.iter().flat_map(|offset| low(offset).to_le_bytes()));
    align(&mut bytes);
    if let Wrong::Short(by) = wrong {
        bytes[2] &= 1;
        bytes.truncate(bytes.len().saturating_sub(*by).max(6));
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn tables_with_one_error_match_the_model(
        shapes in prop::collection::vec([1..12_u8, 1..12_u8], 2..20),
        missing in prop::collection::vec(any::<bool>(), 20),
        per_item in 1..3_usize,
        wrong in wrong(),
    ) {
        let odd = |at: usize| per_item == 2 && at % 2 == 1;
        let shapes: Vec<[u8; 2]> = shapes
            .into_iter()
            .enumerate()
            .map(|(at, shape)| if odd(at) && missing[at] { [0, 0] } else { shape })
            .collect();
        tables::run(&batch(&shapes, per_item, &wrong));
    }

    #[test]
    fn streams_with_one_wrong_header_match_the_model(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..5),
        takes in 0..2_u8,
        at in any::<usize>(),
        byte in any::<u8>(),
        cut in any::<usize>(),
        how in 0..3_u8,
    ) {
        let mut stream: Vec<u8> = bodies.iter().flat_map(|body| frame::pack(body, 0)).collect();
        match how {
            1 if !stream.is_empty() => {
                let at = at % stream.len();
                stream[at] = byte;
            }
            2 => stream.truncate(cut % (stream.len() + 1)),
            _ => {}
        }
        client_frame::run(&[&[takes][..], &stream].concat());
    }

    #[test]
    fn every_message_decodes_to_itself_and_no_prefix_of_it_decodes(
        seed in any::<u64>(),
        cut in any::<usize>(),
    ) {
        comes_back::<ClientMessage>(seed, cut);
        comes_back::<ServerMessage>(seed, cut);
        comes_back::<ToWorker>(seed, cut);
        comes_back::<FromWorker>(seed, cut);
        comes_back::<OnLifeline>(seed, cut);
    }
}

fn comes_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(seed: u64, cut: usize) {
    let Some(message) = made::<T>(seed) else { return };
    let packed = codec::encode(&message).expect("it fits");
    assert_eq!(codec::decode::<T>(&packed).expect("it decodes"), message);
    assert!(codec::decode::<T>(&packed[..cut % packed.len()]).is_err(), "{cut}: {message:?}");
}
