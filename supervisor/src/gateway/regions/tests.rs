//! Regions without a supervisor: whose they are, and what a request finds in a file that changes.

use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::thread;

use gridpool_ipc::frame::{self, FrameReader};
use gridpool_protocol::codec;
use gridpool_protocol::tensor::{DataType, Tensor};

use super::*;
use crate::gateway::door::DoorPlan;
use crate::gateway::request::{Delivery, Parameters, WantedOutputs};
use crate::gateway::tensors::OutputTensor;
use crate::gateway::tokens::NewToken;

/// Regions whose supervisor gives this file whatever the key, unless that is `wrong`.
fn of_file(file: File) -> Arc<Regions> {
    of_files(move |_| file.try_clone().unwrap())
}

fn of_files(file: impl Fn(&str) -> File + Send + 'static) -> Arc<Regions> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let mut reader = FrameReader::new(ours);
        while let Ok(Some(asked)) = reader.read(None) {
            let order: OpenOrder = codec::decode(&asked.body).unwrap();
            let opened: Opened = match order.key.as_str() {
                "wrong" => Err(Unopened::Wrong("there is none".to_owned())),
                "other" => Err(Unopened::NotAllowed("it is not yours".to_owned())),
                _ => Ok(()),
            };
            let file = file(&order.key);
            let sent: Vec<_> = opened.is_ok().then(|| file.as_fd()).into_iter().collect();
            let bytes = frame::of(&opened, sent.len()).unwrap();
            frame::send_all(reader.socket(), &bytes, &sent).unwrap();
        }
    });
    Regions::new(Some(theirs))
}

fn file(bytes: &[u8]) -> File {
    let file = tempfile::tempfile().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).unwrap();
    file
}

fn holder(uid: u32) -> Holder {
    Holder { principal: Principal::Uid(uid), token: None, uid: Some(uid) }
}

/// Without tokens.
fn open() -> Door {
    Door::new(&DoorPlan::default()).unwrap()
}

fn enter(regions: &Regions, holder: Holder, named: Named) -> Result<(), Failure> {
    regions.register(&open(), holder, named).map(drop)
}

fn named(name: &str, key: &str, offset: u64, bytes: u64) -> Named {
    Named { name: name.to_owned(), key: key.to_owned(), offset, bytes }
}

fn memory(regions: &Arc<Regions>, uid: u32) -> Memory {
    let principal = Principal::Uid(uid);
    let held = crate::gateway::body::BodyBudget::new().held(&principal);
    Memory::new(Arc::clone(regions), None, (principal, held))
}

fn at(region: &str, offset: u64, bytes: u64) -> Parameters {
    [
        ("shared_memory_region".to_owned(), region.into()),
        ("shared_memory_offset".to_owned(), offset.into()),
        ("shared_memory_byte_size".to_owned(), bytes.into()),
    ]
    .into()
}

fn output(bytes: &[u8]) -> OutputTensor {
    let tensor = Tensor::new("y", DataType::Uint8, vec![bytes.len() as u64]).unwrap();
    OutputTensor::private(tensor, bytes.to_vec())
}

#[test]
fn a_region_is_its_principals_alone_and_has_a_name_once() {
    let regions = of_file(file(&[1, 2, 3, 4]));
    let register = |uid, name: &str| enter(&regions, holder(uid), named(name, "/k", 1, 2));
    assert_eq!(register(1, "in"), Ok(()));
    let again = register(1, "in").unwrap_err();
    assert_eq!(again.code(), tonic::Code::AlreadyExists);
    assert!(again.message().contains("'in' already in manager"), "{again:?}");
    assert_eq!(register(2, "in"), Ok(()), "another principal has its own names");
    let row = json!({ "name": "in", "key": "/k", "offset": 1, "byte_size": 2 });
    assert_eq!(regions.status(&Principal::Uid(1), None), Ok(vec![row.clone()]));
    assert_eq!(regions.status(&Principal::Uid(1), Some("in")), Ok(vec![row]));
    let none = regions.status(&Principal::Uid(3), Some("in")).unwrap_err();
    assert_eq!(none.code(), tonic::Code::NotFound);
    assert!(none.message().contains("Unable to find system shared memory region: 'in'"));
    assert!(memory(&regions, 3).part(&at("in", 0, 1)).is_err(), "nor can another use it");
    assert_eq!(regions.unregister(&Principal::Uid(2), Some("gone")), Ok(()), "as with Triton");
    assert_eq!(regions.unregister(&Principal::Uid(2), None), Ok(()));
    assert_eq!(regions.status(&Principal::Uid(2), None), Ok(vec![]));
    assert!(regions.status(&Principal::Uid(1), Some("in")).is_ok(), "that of the other is there");
}

#[test]
fn a_region_lies_in_its_file_and_a_part_in_its_region() {
    let regions = of_file(file(&[1, 2, 3, 4]));
    let register = |key: &str, offset, bytes| {
        let done = enter(&regions, holder(1), named("r", key, offset, bytes));
        done.map_err(|failure| (failure.code(), failure.message().to_owned()))
    };
    for (offset, bytes) in [(0, 5), (4, 1), (0, 0), (1, u64::MAX), (u64::MAX, 1)] {
        let (code, why) = register("/k", offset, bytes).unwrap_err();
        assert!(why.contains("Invalid offset + byte size"), "{offset} {bytes}: {why}");
        assert_eq!(code, tonic::Code::InvalidArgument);
    }
    assert_eq!(register("wrong", 0, 1).unwrap_err().0, tonic::Code::InvalidArgument);
    assert_eq!(register("other", 0, 1).unwrap_err().0, tonic::Code::PermissionDenied);
    assert_eq!(register("/k", 1, 3), Ok(()));
    let mut memory = memory(&regions, 1);
    let mut read = |offset, bytes| {
        let part = memory.part(&at("r", offset, bytes)).map_err(|why| why.message().to_owned())?;
        Ok::<_, String>(memory.read(&part.unwrap()).unwrap())
    };
    assert_eq!(read(0, 3), Ok(vec![2, 3, 4]));
    assert_eq!(read(2, 1), Ok(vec![4]));
    assert_eq!(read(3, 0), Ok(vec![]));
    for (offset, bytes) in [(0, 4), (3, 1), (4, 0), (u64::MAX, 2), (2, u64::MAX)] {
        let why = read(offset, bytes).unwrap_err();
        assert!(why.contains("Invalid offset + byte size"), "{offset} {bytes}: {why}");
    }
}

#[test]
fn a_thread_that_must_not_wait_reads_no_request_that_names_a_region() {
    let regions = of_file(file(&[7; 100]));
    enter(&regions, holder(1), named("r", "/k", 0, 100)).unwrap();
    let mut memory = memory(&regions, 1);
    let read = |memory: &mut Memory| match memory.part(&at("r", 0, 8))? {
        Some(part) => memory.read(&part),
        None => Ok(Vec::new()),
    };
    assert_eq!(memory.without_files(read), Ok(None));
    // Also if it says that it was read.
    assert_eq!(memory.without_files(|own| own.part(&at("r", 0, 8)).or(Ok(None))), Ok(None));
    assert_eq!(memory.without_files(|own| own.part(&Parameters::new())), Ok(Some(None)));
    assert_eq!(read(&mut memory), Ok(vec![7; 8]), "another thread does");
}

#[test]
fn a_file_that_shrinks_fails_the_request_and_holes_are_zeros() {
    let own = file(&[7; 100_000]);
    let regions = of_file(own.try_clone().unwrap());
    enter(&regions, holder(1), named("r", "/k", 0, 100_000)).unwrap();
    let mut memory = memory(&regions, 1);
    let part = memory.part(&at("r", 10, 90_000)).unwrap().unwrap();
    let wanted = |how| WantedOutputs::Some(vec![("y".to_owned(), how)]).are_in_regions();
    assert!(wanted(Delivery::Shared(part.clone())), "no IO thread waits for its lock");
    assert!(!wanted(Delivery::Bytes) && !WantedOutputs::All { binary: true }.are_in_regions());
    assert_eq!(memory.read(&part), Ok(vec![7; 90_000]));
    own.set_len(50_000).unwrap();
    let why = memory.read(&part).unwrap_err();
    assert!(why.message().contains("'/k' is shorter than when"), "{why:?}");
    own.set_len(0).unwrap();
    assert!(memory.read(&part).is_err());
    own.set_len(100_000).unwrap();
    assert_eq!(memory.read(&part), Ok(vec![0; 90_000]), "a hole");
    own.set_len(5).unwrap();
    assert_eq!(part.take(&output(&[9; 70_000])), Ok(()), "the file grows again");
    let part = memory.part(&at("r", 10, 70_000)).unwrap().unwrap();
    assert_eq!(memory.read(&part).unwrap()[69_999], 9);
    assert_eq!(own.metadata().unwrap().len(), 70_010, "and no further");
    let why = part.take(&output(&[9; 90_001])).unwrap_err();
    assert!(
        why.message().contains("should be at least 90001 bytes to hold the results"),
        "{why:?}"
    );
    regions.unregister(&Principal::Uid(1), Some("r")).unwrap();
    assert!(memory.part(&at("r", 0, 1)).is_err());
    assert_eq!(part.take(&output(&[8; 10])), Ok(()), "a request that has begun ends with it");
}

#[test]
fn regions_and_their_bytes_have_limits_and_are_given_back() {
    // The key is how many bytes the file has.
    let regions = of_files(|key| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(key.parse().unwrap()).unwrap();
        file
    });
    let register = |uid, number: usize, bytes: u64| {
        let named = named(&number.to_string(), &bytes.to_string(), 0, 1);
        enter(&regions, holder(uid), named)
    };
    let is_busy = |done: Result<(), Failure>| {
        done.is_err_and(|why| why.code() == tonic::Code::ResourceExhausted)
    };
    for number in 0..REGIONS_EACH_MAX {
        assert_eq!(register(1, number, 1), Ok(()));
    }
    assert!(is_busy(register(1, REGIONS_EACH_MAX, 1)));
    assert_eq!(register(2, 0, REGIONS_BYTES_EACH_MAX), Ok(()), "others have room");
    assert!(is_busy(register(2, 1, 1)));
    assert!(is_busy(register(3, 0, REGIONS_BYTES_MAX - REGIONS_BYTES_EACH_MAX)), "some are held");
    regions.unregister(&Principal::Uid(1), None).unwrap();
    regions.unregister(&Principal::Uid(2), None).unwrap();
    assert_eq!(register(3, 0, REGIONS_BYTES_EACH_MAX), Ok(()));
    for wrong in ["", &"n".repeat(REGION_NAME_BYTES_MAX + 1)] {
        let done = enter(&regions, holder(4), named(wrong, "/k", 0, 1));
        assert!(done.unwrap_err().message().contains("1 to 256 bytes"));
    }
    let none = Regions::new(None);
    let why = enter(&none, holder(1), named("r", "/k", 0, 1)).unwrap_err();
    assert_eq!(why.code(), tonic::Code::Unimplemented);
    assert!(why.message().contains("--shared-memory"), "{why:?}");
}

#[test]
fn a_file_that_grows_beyond_the_limits_is_let_go() {
    let own = file(&[1; 8]);
    let regions = of_file(own.try_clone().unwrap());
    let who = Principal::Uid(1);
    enter(&regions, holder(1), named("r", "/k", 0, 1)).unwrap();
    own.set_len(REGIONS_BYTES_EACH_MAX).unwrap();
    regions.sweep(&open());
    assert_eq!(regions.status(&who, None).unwrap().len(), 1, "there is room for it");
    let more = enter(&regions, holder(1), named("s", "/k", 0, 1)).unwrap_err();
    assert_eq!(more.code(), tonic::Code::ResourceExhausted, "it counts as what it has become");
    own.set_len(REGIONS_BYTES_EACH_MAX + 1).unwrap();
    regions.sweep(&open());
    assert_eq!(regions.status(&who, None), Ok(vec![]));
    own.set_len(8).unwrap();
    assert_eq!(enter(&regions, holder(1), named("r", "/k", 0, 1)), Ok(()));
}

#[test]
fn a_region_ends_with_its_token_and_another_of_that_name_has_none() {
    let regions = of_file(file(&[1; 8]));
    let made = |scopes: &[Scope], seed| NewToken::new("one", scopes, None, &[seed; 32]).unwrap();
    let of = |token: &NewToken| {
        Door::new(&DoorPlan { tokens: Some(token.line.clone()), ..DoorPlan::default() }).unwrap()
    };
    let (own, other) = (made(&[Scope::Memory], 1), made(&[Scope::Memory], 2));
    let without = made(&[Scope::Infer], 1);
    let who = Principal::Token("one".to_owned());
    let token = Some(Secret(own.token.clone()));
    let holder = Holder { principal: who.clone(), token, uid: None };
    let has = || regions.status(&who, None).unwrap().len();
    for next in [&other, &without] {
        regions.register(&of(&own), holder.clone(), named("r", "/k", 0, 8)).unwrap();
        let part = |door| {
            let held = crate::gateway::body::BodyBudget::new().held(&who);
            let mut memory =
                Memory::new(Arc::clone(&regions), Some(Arc::new(door)), (who.clone(), held));
            memory.part(&at("r", 0, 8))
        };
        assert!(part(of(&own)).is_ok());
        assert!(part(of(next)).is_err(), "also before it is forgotten");
        regions.sweep(&of(&own));
        assert_eq!(has(), 1);
        regions.sweep(&of(next));
        assert_eq!(has(), 0);
    }
    regions.register(&of(&own), holder, named("r", "/k", 0, 8)).unwrap();
    regions.sweep(&open());
    assert_eq!(has(), 0, "without tokens nobody is its principal");
    enter(&regions, self::holder(1), named("r", "/k", 0, 8)).unwrap();
    regions.sweep(&of(&own));
    assert_eq!(regions.status(&Principal::Uid(1), None), Ok(vec![]), "with them no user is");
}

#[tokio::test]
async fn a_registration_that_nobody_waits_for_any_more_leaves_the_name_free() {
    let own = file(&[1; 8]);
    let ((asks, asked), (give, given)) = (channel(), channel::<()>());
    let regions = of_files(move |_| {
        asks.send(()).unwrap();
        given.recv().unwrap();
        own.try_clone().unwrap()
    });
    let (slot, dropped) = oneshot::channel::<()>();
    let own = Arc::clone(&regions);
    let waits = tokio::spawn(async move {
        let what = (holder(1), named("r", "/k", 0, 8));
        own.register_in_time(Arc::new(open()), what, slot).await
    });
    let has_asked = tokio::task::spawn_blocking(move || {
        asked.recv().unwrap();
        asked
    });
    let _asked = has_asked.await.unwrap();
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    give.send(()).unwrap();
    assert!(dropped.await.is_err(), "it has come to its end");
    assert_eq!(regions.status(&Principal::Uid(1), None), Ok(vec![]));
    give.send(()).unwrap();
    let what = (holder(1), named("r", "/k", 0, 8));
    assert_eq!(regions.register_in_time(Arc::new(open()), what, ()).await, Ok(()));
    assert_eq!(regions.status(&Principal::Uid(1), None).unwrap().len(), 1);
}
