//! The reader: what is written is read back, and no bytes make it panic.

use std::io;

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::message::Packing;
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::tensor::TensorLayout;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Bytes as a client has written them.
struct Bytes(Vec<u8>);

impl Source for Bytes {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        to.copy_from_slice(
            self.0.get(start..start + to.len()).ok_or(io::ErrorKind::UnexpectedEof)?,
        );
        Ok(())
    }
}

fn program() -> SavedWork {
    let (text, hash) = ("rot90".to_owned(), String::new());
    SavedWork::Program { text, ties: Ties::Cpython, steps: 1_000, hash }
}

fn grids() -> Vec<Grid> {
    [&[&[1_u8, 2][..], &[3, 4]][..], &[&[5]], &[&[6, 7, 8]]]
        .map(|rows| Grid::from_rows(rows).unwrap())
        .into()
}

/// A packed batch of these grids, or of pairs of them.
fn packed(batch: &GridBatch) -> (Packing, Bytes) {
    let layout = batch.layout().unwrap();
    let mut bytes = vec![0; layout.bytes()];
    batch.write_to(layout, &SharedSlice::private(&mut bytes));
    let number = |count: usize| u32::try_from(count).unwrap();
    let packing =
        Packing::Grids { items: number(layout.items()), cells: number(layout.cell_count()) };
    (packing, Bytes(bytes))
}

fn input(batch: &GridBatch, part: (u32, u32), mode: CapsuleMode, left: u64) -> Input {
    let (input, first) = input_from(batch, part, part.0, mode, left);
    assert_eq!(first, part.0);
    input
}

/// The same if the worker was at an item.
fn input_from(
    batch: &GridBatch,
    part: (u32, u32),
    first: u32,
    mode: CapsuleMode,
    mut left: u64,
) -> (Input, u32) {
    let (packing, bytes) = packed(batch);
    let part = (ItemRange { start: part.0, end: part.1 }, first);
    Input::of(&program(), batch.grids_per_item(), packing, part, &bytes, mode, &mut left)
}

fn capsule(input: Input) -> Capsule {
    let job = SavedJob {
        job: "job1".to_owned(),
        attempt: 1,
        principal: "uid 0".to_owned(),
        work: program(),
        items: 3,
        part: ItemRange { start: 0, end: 3 },
        skipped: 0,
        under_way: None,
        deadline_ms: 1_000,
        priority: Priority::Normal,
        idempotent: true,
        chaos: Some(SavedChaos { fault: "oob".to_owned(), attempts: 1 }),
        attempts: Vec::new(),
        is_certain: true,
        input,
    };
    Capsule {
        gridpool_capsule: VERSION,
        name: "x".to_owned(),
        time: String::new(),
        host: String::new(),
        gridpool: String::new(),
        protocol: 1,
        worker: String::new(),
        driver: String::new(),
        cuda: String::new(),
        onnxruntime: String::new(),
        mode: CapsuleMode::On,
        manner: Manner { signal: Some(11), ..Manner::default() },
        death: Map::new(),
        jobs: vec![job],
        models: Vec::new(),
    }
}

fn written(capsule: &Capsule) -> Vec<u8> {
    let mut bytes = Vec::new();
    capsule.write(&mut bytes).unwrap();
    bytes
}

#[test]
fn grids_pairs_and_shapes_are_kept_and_read_back() {
    let grids = grids();
    let single = GridBatch::from_grids(&grids).unwrap();
    let kept = input(&single, (0, 3), CapsuleMode::On, 1 << 20);
    assert_eq!(kept.batch().unwrap().unwrap().cells(), single.cells());
    assert_eq!(kept.lacks(), None);
    let capsule = capsule(kept);
    assert_eq!(Capsule::parse(&written(&capsule)).unwrap(), capsule);
    // A shard alone.
    let kept = input(&single, (1, 2), CapsuleMode::On, 1 << 20);
    assert_eq!(kept, Input::Grids { grids: vec![vec![vec![5]]], left_out: 0 });
    let kept = input(&single, (1, 3), CapsuleMode::Shapes, 1 << 20);
    assert_eq!(kept, Input::Shapes { shapes: vec![[1, 1], [1, 3]], left_out: 0 });
    let kept = input(&single, (1, 3), CapsuleMode::Shapes, 47);
    assert_eq!(kept, Input::Shapes { shapes: vec![[1, 1]], left_out: 1 });
    // As much as fits.
    let kept = input(&single, (0, 3), CapsuleMode::On, 80);
    assert!(matches!(&kept, Input::Grids { grids, left_out: 1 } if grids.len() == 2), "{kept:?}");
    assert_eq!(kept.lacks().unwrap(), "1 items were beyond the limit of a capsule");
    // First what was under way, then what lies behind, then what lies before.
    let row = |rows: &[&[u8]]| rows.iter().map(|row| row.to_vec()).collect::<Vec<_>>();
    let (one, two, three) = (row(&[&[1, 2], &[3, 4]]), row(&[&[5]]), row(&[&[6, 7, 8]]));
    for (first, left, kept, start) in [
        (1, 80, vec![two.clone(), three.clone()], 1),
        (1, 40, vec![two.clone()], 1),
        (2, 80, vec![two.clone(), three.clone()], 1),
        (2, 40, vec![three.clone()], 2),
        (1, 1_000, vec![one, two, three], 0),
        (1, 10, Vec::new(), 1),
    ] {
        let left_out = 3 - u32::try_from(kept.len()).unwrap();
        let want = (Input::Grids { grids: kept, left_out }, start);
        assert_eq!(
            input_from(&single, (0, 3), first, CapsuleMode::On, left),
            want,
            "{first}, {left}"
        );
    }
    let want = (Input::Shapes { shapes: vec![[1, 1], [1, 3]], left_out: 1 }, 1);
    assert_eq!(input_from(&single, (0, 3), 2, CapsuleMode::Shapes, 48), want);
    let pairs = GridBatch::from_pairs([(&grids[0], Some(&grids[1])), (&grids[2], None)]).unwrap();
    let kept = input(&pairs, (0, 2), CapsuleMode::On, 1 << 20);
    assert_eq!(kept.batch().unwrap().unwrap(), pairs);
}

#[test]
fn what_is_left_out_may_be_the_cause_if_it_was_under_way() {
    let single = GridBatch::from_grids(&grids()).unwrap();
    let (input, first) = input_from(&single, (0, 3), 1, CapsuleMode::On, 80);
    let mut job = capsule(input).jobs.remove(0);
    (job.skipped, job.under_way) = (first, None);
    let lack = "1 items were beyond the limit of a capsule";
    let none = Some((format!("{lack}, none of them under way"), false));
    assert_eq!(job.lacks(false), Some((lack.to_owned(), true)));
    assert_eq!(job.lacks(true), none, "the worker was at another job");
    job.under_way = Some(ItemRange { start: 1, end: 3 });
    assert_eq!(job.lacks(true), none);
    job.under_way = Some(ItemRange { start: 0, end: 2 });
    let under_way = "; the items 0 to 1 were under way";
    assert_eq!(job.lacks(true), Some((format!("{lack}{under_way}"), true)));
    // What is not kept at all.
    job.input = Input::Missing { why: "lost".to_owned() };
    job.skipped = 0;
    let lack = format!("its input was not kept: lost{under_way}");
    assert_eq!(job.lacks(true), Some((lack, true)));
    job.input = Input::Shapes { shapes: vec![[1, 1]; 3], left_out: 0 };
    assert!(job.lacks(true).is_some_and(|(_, may_be_cause)| may_be_cause));
}

#[test]
fn what_a_client_has_spoilt_is_left_out_with_the_reason() {
    let batch = GridBatch::from_grids(&grids()).unwrap();
    let (packing, Bytes(bytes)) = packed(&batch);
    let part = (ItemRange { start: 0, end: 3 }, 0);
    for at in 0..bytes.len() {
        for value in [0, 1, 9, 10, 127, 255] {
            let mut spoilt = bytes.clone();
            spoilt[at] = value;
            let mut left = 1 << 20;
            let (mode, source) = (CapsuleMode::On, Bytes(spoilt));
            let (kept, _) = Input::of(&program(), 1, packing, part, &source, mode, &mut left);
            kept.check(&program(), 3).unwrap();
        }
    }
    let mut left = 1 << 20;
    let short = Bytes(bytes[..bytes.len() / 2].to_vec());
    let (kept, _) = Input::of(&program(), 1, packing, part, &short, CapsuleMode::On, &mut left);
    assert!(matches!(&kept, Input::Missing { why } if why.contains("shorter")), "{kept:?}");
}

#[test]
fn tensors_are_kept_whole_or_not_at_all() {
    let tensor = gridpool_protocol::tensor::Tensor::new(
        "x",
        gridpool_protocol::tensor::DataType::Fp32,
        vec![2, 3],
    );
    let bytes = TensorLayout::new(vec![tensor.unwrap()]).unwrap().pack(&[&[7; 24]]).unwrap();
    let work = SavedWork::Model { name: "m".to_owned() };
    let part = (ItemRange { start: 0, end: 1 }, 0);
    let of = |mode, mut left| {
        Input::of(&work, 1, Packing::Tensors, part, &Bytes(bytes.clone()), mode, &mut left).0
    };
    let Input::Tensors { tensors } = of(CapsuleMode::On, 1 << 20) else { panic!("no tensors") };
    let (tensor, data) = tensors[0].read().unwrap();
    assert_eq!((tensor.shape(), data), (&[2, 3][..], Some(vec![7; 24])));
    let shapes = of(CapsuleMode::Shapes, 1 << 20);
    assert_eq!(shapes.lacks().unwrap(), "the elements of `x` were not kept");
    assert!(matches!(of(CapsuleMode::On, 16), Input::Missing { .. }));
}

#[test]
fn a_document_that_is_none_is_refused_with_its_reason() {
    let good = capsule(Input::Missing { why: "lost".to_owned() });
    let good = serde_json::to_value(&good).unwrap();
    let changed = |pointer: &str, value: Value| {
        let mut document = good.clone();
        *document.pointer_mut(pointer).unwrap() = value;
        Capsule::parse(document.to_string().as_bytes()).unwrap_err()
    };
    assert!(Capsule::parse(good.to_string().as_bytes()).is_ok());
    for (pointer, value, why) in [
        ("/gridpool_capsule", json!(2), "a capsule of version 2"),
        ("/jobs", json!([]), "it has 0 jobs"),
        ("/mode", json!("off"), "its mode is `off`"),
        ("/jobs/0/part", json!({"start": 2, "end": 1}), "job1: it ran the items 2..1 of 3"),
        ("/jobs/0/part", json!({"start": 0, "end": 4}), "job1: it ran the items 0..4 of 3"),
        ("/jobs/0/skipped", json!(1), "job1: it skips 1 of the items that are left out"),
        ("/jobs/0/under_way", json!({"start": 2, "end": 2}), "job1: no item was under way"),
        ("/jobs/0/chaos/fault", json!("fire"), "`fire` is not a fault"),
        ("/jobs/0/input", json!({"kind": "tensors", "tensors": []}), "of another kind"),
        (
            "/jobs/0/input",
            json!({"kind": "grids", "grids": [], "left_out": 1}),
            "has 0 items and 1",
        ),
        (
            "/jobs/0/input",
            json!({"kind": "grids", "grids": [[[1], [1, 2]]], "left_out": 2}),
            "job1: ",
        ),
        ("/jobs/0/input", json!({"kind": "grids", "grids": [[[10]]], "left_out": 2}), "job1: "),
    ] {
        let error = gridpool_protocol::chain::Chain(&changed(pointer, value)).to_string();
        assert!(error.contains(why), "{error}");
    }
    let mut more = good.clone();
    more["more"] = json!(1);
    assert!(Capsule::parse(more.to_string().as_bytes()).is_err());
    let large = io::repeat(b' ').take(10);
    assert!(matches!(Capsule::read(large), Err(CapsuleError::NotJson(_))));
}

#[test]
fn deaths_are_alike_by_their_fault_then_by_why_they_were_killed_then_by_how_they_ended() {
    let of = |signal, exit_code, fault: Option<&str>, killed_for: Option<&str>| Manner {
        signal,
        exit_code,
        fault: fault.map(str::to_owned),
        killed_for: killed_for.map(str::to_owned),
        rejected: false,
    };
    let sticky = of(None, Some(70), Some("cuda 700"), None);
    assert!(sticky.is_like(&of(Some(6), None, Some("cuda 700"), None)));
    assert!(!sticky.is_like(&of(None, Some(70), Some("cuda 719"), None)));
    assert!(!sticky.is_like(&of(None, Some(70), None, None)));
    let late = of(Some(9), None, None, Some("late"));
    assert!(late.is_like(&of(Some(9), None, None, Some("late"))));
    assert!(!late.is_like(&of(Some(9), None, None, Some("silent"))));
    assert!(!of(Some(11), None, None, None).is_like(&of(Some(4), None, None, None)));
    assert_eq!(of(Some(11), None, None, None).words(), "signal 11 (SIGSEGV)");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(Capsule::parse(&bytes));
    }

    /// A document in which some bytes are others.
    #[test]
    fn no_change_of_a_capsule_makes_the_reader_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let batch = GridBatch::from_grids(&grids()).unwrap();
        let mut bytes = written(&capsule(input(&batch, (0, 3), CapsuleMode::On, 1 << 20)));
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(capsule) = Capsule::parse(&bytes) {
            // Whatever is read can be made a job of.
            drop(capsule.jobs[0].input.batch().unwrap());
        }
        bytes.truncate(cut.index(bytes.len()));
        drop(Capsule::parse(&bytes));
    }
}
