//! What fuzzing starts from: real values of every kind, a file each. `decoders` holds the files to be
//! these.

use gridpool_kernels::reference::run_batch;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::bench::{Line, Plan, Row, Section, Subject, Unit};
use gridpool_protocol::codec;
use gridpool_protocol::frame;
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::{ClientMessage, Lifeline};
use gridpool_protocol::monitor;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::shared::SharedSlice;
use serde::Serialize;

use super::outputs::{PROGRAMS, batch};
use super::requests::requests;
use super::tensors::sets;
use super::values;

/// One file of a corpus.
#[derive(Debug)]
pub(crate) struct Seed {
    /// Whose corpus.
    pub(crate) target: &'static str,
    /// The file's name.
    pub(crate) name: String,
    /// What is in it.
    pub(crate) bytes: Vec<u8>,
}

/// All seeds.
#[must_use]
pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |target, name: &str, bytes| {
        seeds.push(Seed { target, name: name.to_owned(), bytes });
    };
    values::client_messages().iter().for_each(|(n, m)| add("client_message", n, packed(m)));
    values::server_messages().iter().for_each(|(n, m)| add("server_message", n, packed(m)));
    values::to_workers().iter().for_each(|(n, m)| add("to_worker", n, packed(m)));
    values::from_workers().iter().for_each(|(n, m)| add("from_worker", n, packed(m)));
    for (name, message) in values::lifelines() {
        add("lifeline", name, packed(&message));
    }
    frames(&mut add);
    tables(&mut add);
    for (name, bytes) in sets() {
        add("tensors", name, bytes);
    }
    for (name, bytes) in requests() {
        add("infer_request", name, bytes);
    }
    for (at, text) in (0_u8..).zip(PROGRAMS) {
        let program = Program::compile(text, Ties::Cpython).expect("they compile");
        let outputs = run_batch(&program, &batch(&program, 3)).expect("a small batch");
        let bytes = [&[at, 3][..], &outputs.packed()].concat();
        add("outputs", &format!("{at:02}"), bytes);
        add("program", &format!("{at:02}"), [b"\0", text.as_bytes()].concat());
    }
    for (at, text) in (0..).zip(TEXTS) {
        add("program", &format!("text-{at}"), [b"\x01", text.as_bytes()].concat());
    }
    for (name, text) in JSON {
        add("input_json", name, text.as_bytes().to_vec());
    }
    npy(&mut add);
    for (name, text) in CONFIGS {
        add("config", name, text.as_bytes().to_vec());
    }
    for (at, text) in (0..).zip(NAMES) {
        add("names", &format!("{at}"), text.as_bytes().to_vec());
    }
    lines(&mut add);
    seeds
}

/// Whoever takes a seed.
type Add<'a> = dyn FnMut(&'static str, &str, Vec<u8>) + 'a;

fn packed(message: &impl Serialize) -> Vec<u8> {
    codec::encode(message).expect("a seed fits a frame")
}

fn frames(add: &mut Add<'_>) {
    let hello = frame::pack(&packed(&ClientMessage::Hello { version: PROTOCOL_VERSION }), 0);
    let arena = frame::pack(&packed(&Lifeline::Connected), 1);
    add("client_frame", "one", [&[0][..], &hello].concat());
    add("client_frame", "three", [&[0x31][..], &hello, &hello, &hello].concat());
    add("client_frame", "descriptor", [&[0b0000_0011][..], &arena, &hello].concat());
    add("client_frame", "many-descriptors", [&[0b0101_1001][..], &arena].concat());
    add("client_frame", "cut-off", [&[1][..], &hello[..7]].concat());
    add("client_frame", "too-long", b"\x01GPL1\0\0\0\0\xff\xff\xff\x7f".to_vec());
}

fn tables(add: &mut Add<'_>) {
    let grids = [(2, 3), (1, 1), (1, 20), (5, 5)];
    let grids = grids.map(|(h, w)| Grid::new(h, w, vec![4; h * w]).expect("a small grid"));
    let pairs = [(&grids[0], Some(&grids[1])), (&grids[2], None), (&grids[3], Some(&grids[0]))];
    let singles = GridBatch::from_grids(&grids).expect("a small batch");
    let pairs = GridBatch::from_pairs(pairs).expect("a small batch");
    for (name, batch, per_item) in [("grids", singles, 0_u8), ("pairs", pairs, 1)] {
        let layout = batch.layout().expect("it has items");
        let mut memory = vec![0; layout.bytes()];
        batch.write_to(layout, &SharedSlice::private(&mut memory));
        let items = u16::try_from(layout.items()).expect("a few").to_le_bytes();
        let cells = u32::try_from(layout.cell_count()).expect("a few").to_le_bytes();
        let head = [items[0], items[1], per_item, cells[0], cells[1], cells[2]];
        add("tables", name, [&head[..], &memory].concat());
    }
}

fn npy(add: &mut Add<'_>) {
    let array = |shape: &str, cells: &[u8]| {
        let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
        let mut bytes = b"\x01\x00\x76\x00".to_vec();
        bytes.extend(format!("{header:<117}\n").bytes());
        bytes.extend(cells);
        bytes
    };
    add("input_npy", "three", array("(3, 2, 2)", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]));
    add("input_npy", "one", array("(2, 3)", &[1, 2, 3, 4, 5, 6]));
    add("input_npy", "cut-off", array("(3, 2, 2)", &[1, 2, 3]));
    add("input_npy", "no-colour", array("(1, 1, 2)", &[1, 10]));
}

fn lines(add: &mut Add<'_>) {
    let plan = Plan {
        subject: Subject::Library,
        ops: vec!["rot90".to_owned()],
        batches: vec![1, 32],
        repetitions: 3,
        quick: true,
    };
    let row = Row::new(Section::Limits, "copy", "cpu", Unit::ItemsPerSecond);
    let json = |value: &dyn erased::Json| value.json();
    add("json_line", "plan", json(&plan));
    add("json_line", "doing", json(&Line::Doing("copies".to_owned())));
    add("json_line", "row", json(&Line::Row(Box::new(row))));
    let (uuid, call) = ("GPU-1".to_owned(), "nvmlInit".to_owned());
    let xid = monitor::Line::Xid { uuid: uuid.clone(), xid: 31 };
    let device = monitor::Line::Device {
        uuid: uuid.clone(),
        memory_used: 1,
        memory_total: 1 << 40,
        busy_percent: Some(97),
        power_mw: None,
        processes: vec![1, 2],
        recovery: None,
    };
    let failed = monitor::Line::Failed { uuid: None, call, code: 15 };
    add("json_line", "beat", json(&monitor::Line::Beat {}));
    add("json_line", "xid", json(&xid));
    add("json_line", "device", json(&device));
    add("json_line", "failed", json(&failed));
    add("json_line", "question", json(&monitor::Question { reclaim: 7, uuid }));
}

/// JSON of values of several types.
mod erased {
    use serde::Serialize;

    pub(super) trait Json {
        fn json(&self) -> Vec<u8>;
    }

    impl<T: Serialize> Json for T {
        fn json(&self) -> Vec<u8> {
            serde_json::to_vec(self).expect("it is JSON")
        }
    }
}

const TEXTS: [&str; 8] = [
    "rot90 | replace(0, 5) | objects(true, false, true)",
    "underfill(3, o_g(5) | first | outbox)",
    "hsplit(2) | apply(hmirror) | hconcat",
    "crop(1, 2, 3, 4) | shift(-1, 2)",
    "canvas(3, 4, 5) | vupscale(2)",
    "o_g(5) | colorfilter(2) | merge | cover",
    "first | cellwise(0)",
    "fill(5, ofcolor(0)) | trim | compress",
];

const JSON: [(&str, &str); 6] = [
    ("grids", "[[[0, 1], [2, 3]], [[9]]]"),
    ("task", r#"{"train": [{"input": [[1]], "output": [[2, 2]]}], "test": [{"input": [[3]]}]}"#),
    (
        "tasks",
        r#"{"a": {"train": [], "test": [{"input": [[1]]}]}, "b": {"train": [], "test": []}}"#,
    ),
    ("pairs", r#"[{"input": [[1]], "output": [[2]]}, {"input": [[4, 5]]}]"#),
    ("ragged", "[[[1, 2], [3]]]"),
    ("strange", r#"[[[1.5, "a", null, true, -1, 1e9, {}]]]"#),
];

const CONFIGS: [(&str, &str); 4] = [
    (
        "all",
        "devices = \"cpu:2\"\nsocket = \"/tmp/p.sock\"\nworker_bin = \"w\"\n[limits]\nstandbys = 1\n",
    ),
    ("limits", "[limits]\nqueue_jobs_max = 10\ndrain_timeout_s = 30\nheartbeat_kill_ms = 5000\n"),
    ("wrong", "devices = \"0,0\"\n[limits]\nbackoff_min_s = 31\nspin_us = 0x10\n"),
    ("strange", "limits = { attempts_max = 1_000, restart_window_s = 1 }\n\"devices\" = 'all'\n"),
];

const NAMES: [&str; 6] =
    ["gpu0#4", "cpu17", "all", "0,1,cpu:2", "GPU-0a1b2c3d-0000-1111-2222-333344445555", "gpu#"];
