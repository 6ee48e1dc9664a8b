//! Regions without a supervisor: whose they are, and what a request finds in a file that changes.

use std::os::fd::AsFd;
use std::thread;

use gridpool_ipc::frame::{self, FrameReader};
use gridpool_protocol::codec;
use gridpool_protocol::tensor::{DataType, Tensor};

use super::*;
use crate::gateway::request::Parameters;
use crate::gateway::tensors::OutputTensor;

/// Regions whose supervisor gives this file whatever the key, unless that is `wrong`.
fn of_file(file: File) -> Arc<Regions> {
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
    let register = |uid, name: &str| regions.register(holder(uid), named(name, "/k", 1, 2));
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
        let done = regions.register(holder(1), named("r", key, offset, bytes));
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
fn a_file_that_shrinks_fails_the_request_and_holes_are_zeros() {
    let own = file(&[7; 100_000]);
    let regions = of_file(own.try_clone().unwrap());
    regions.register(holder(1), named("r", "/k", 0, 100_000)).unwrap();
    let mut memory = memory(&regions, 1);
    let part = memory.part(&at("r", 10, 90_000)).unwrap().unwrap();
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
    assert_eq!(
        memory.read(&memory.part(&at("r", 10, 70_000)).unwrap().unwrap()).unwrap()[69_999],
        9
    );
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
    let large = tempfile::tempfile().unwrap();
    large.set_len(REGIONS_BYTES_MAX).unwrap();
    let regions = of_file(large);
    let register = |uid, number: usize, bytes| {
        regions.register(holder(uid), named(&number.to_string(), "/k", 0, bytes))
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
        let done = regions.register(holder(4), named(wrong, "/k", 0, 1));
        assert!(done.unwrap_err().message().contains("1 to 256 bytes"));
    }
    let none = Regions::new(None);
    let why = none.register(holder(1), named("r", "/k", 0, 1)).unwrap_err();
    assert_eq!(why.code(), tonic::Code::Unimplemented);
    assert!(why.message().contains("--shared-memory"), "{why:?}");
}
