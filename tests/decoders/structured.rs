//! Inputs that are right but for one thing, which flipped bytes would hardly ever be: the models of
//! `tables` and `client_frame` judge them, as they judge what the fuzzer makes.

use gridpool_protocol::codec;
use gridpool_protocol::frame;
use gridpool_protocol::ids::{ArenaId, JobKey};
use gridpool_protocol::message::{
    ClientMessage, Destination, Inline, Input, Priority, ServerMessage, Slice,
};
use proptest::prelude::*;

use crate::shared::{client_frame, client_message, server_message, tables, values};

/// What is wrong with the tables of a batch.
#[derive(Clone, Debug)]
enum Wrong {
    Nothing,
    /// Every offset is so much more, and the cells are too.
    AllShifted(u32),
    /// One offset is another.
    Offset(usize, i64),
    /// One grid has another shape than its offsets say.
    Shape(usize, [u8; 2]),
    /// There are more cells than the grids have, or fewer.
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
    // The second bit fills up what is missing: the cells, here.
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

fn slice() -> impl Strategy<Value = Slice> {
    let number = || prop_oneof![0..100_u64, any::<u64>(), Just(u64::MAX)];
    (number(), number(), number()).prop_map(|(arena, offset, bytes)| Slice {
        arena: ArenaId(arena),
        offset,
        bytes,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn tables_with_one_thing_wrong_are_what_the_model_says(
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
        tables(&batch(&shapes, per_item, &wrong));
    }

    #[test]
    fn streams_of_frames_with_one_header_wrong_are_what_the_model_says(
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
        client_frame(&[&[takes][..], &stream].concat());
    }

    #[test]
    fn any_submission_comes_back_as_it_was_sent(
        key in any::<u128>(),
        numbers in any::<(u32, u32, u64)>(),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        place in slice(),
        program in ".{0,80}",
        flags in any::<(bool, bool, bool)>(),
    ) {
        let messages = values::client_messages();
        let submit = messages.into_iter().find(|(name, _)| *name == "submit-inline");
        let Some((_, ClientMessage::Submit(mut job))) = submit else { unreachable!("it is one") };
        let (items, cells, deadline_ms) = numbers;
        job.key = JobKey(key);
        job.deadline_ms = deadline_ms;
        job.priority = if flags.2 { Priority::High } else { Priority::Normal };
        let payload = &mut job.call.payload;
        (payload.items, payload.cells) = (items, cells);
        payload.input = if flags.0 { Input::Arena(place) } else { Input::Inline(Inline(bytes)) };
        payload.output = if flags.1 { Destination::Arena(place) } else { Destination::Inline };
        job.call.program = program;
        let message = ClientMessage::Submit(job);
        let packed = codec::encode(&message).expect("it fits");
        client_message(&packed);
        prop_assert_eq!(codec::decode::<ClientMessage>(&packed).expect("it decodes"), message);
    }

    #[test]
    fn any_cut_of_any_message_is_refused(which in any::<usize>(), cut in any::<usize>()) {
        let (client, server) = (values::client_messages(), values::server_messages());
        let client = codec::encode(&client[which % client.len()].1).expect("it fits");
        let server = codec::encode(&server[which % server.len()].1).expect("it fits");
        let (client, server) = (&client[..cut % client.len()], &server[..cut % server.len()]);
        prop_assert!(codec::decode::<ClientMessage>(client).is_err());
        prop_assert!(codec::decode::<ServerMessage>(server).is_err());
        client_message(client);
        server_message(server);
    }
}
