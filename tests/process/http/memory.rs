//! Tensors in shared memory of clients: PyPI's `tritonclient`, and clients that mean harm.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::fcntl::{FallocateFlags, fallocate};
use serde_json::{Value, json};

use super::access::{token, tokens};
use super::triton::{can_be_tried, python, python_of_models, script};
use super::{Answer, Web, gateway_pid, http, rows, served, small, tensors, until_ready, with_http};
use crate::infer::has_runtime;
use crate::needs::is_root;
use crate::pool::{Pool, Setup, cpu};
use crate::wait::{SetAtEnd, TIMEOUT, eventually};

const REGIONS: &str = "/v2/systemsharedmemory";
const INFER: &str = "/v2/models/rot90/infer";
/// Bytes of GRID and SIZE for one grid.
const GRID_BYTES: usize = 900;
const SIZE_BYTES: usize = 8;

/// A file where `shm_open` makes them. It is removed in the end.
struct Shared {
    path: PathBuf,
    file: File,
}

impl Shared {
    /// With GRID and SIZE of a small grid at its beginning.
    fn new(what: &str, bytes: u64) -> Self {
        let path =
            Path::new("/dev/shm").join(format!("gridpool-test-{}-{what}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.expect("a file can be made");
        file.set_len(bytes).expect("it can grow");
        let shared = Self { path, file };
        shared.fill();
        shared
    }

    fn fill(&self) {
        let (cells, sizes) = tensors(&small());
        let sizes: Vec<u8> = sizes.iter().flat_map(|side| side.to_le_bytes()).collect();
        self.file.write_all_at(&[cells, sizes].concat(), 0).expect("it can be written");
    }

    fn key(&self) -> String {
        format!("/{}", self.path.file_name().and_then(OsStr::to_str).expect("a name"))
    }

    fn read(&self, at: usize, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.file.read_exact_at(&mut data, at as u64).expect("it is long enough");
        data
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// A pool over TCP, and a token for everything that these tests do.
fn with_tokens() -> (Setup, String) {
    let (token, line) = token(&["holder", "--scope", "infer,memory"]);
    let setup = with_http(cpu(1)).args(&["--shared-memory"]);
    let file = tokens(&setup, &[&line]);
    (setup.args(&["--http-tokens", file.to_str().expect("a path")]), token)
}

/// Asks with a token.
fn ask(pool: &Pool, token: &str, path: &str, body: &Value) -> Answer {
    ask_on(&mut Web::open(pool), token, path, body)
}

fn ask_on(web: &mut Web, token: &str, path: &str, body: &Value) -> Answer {
    let headers = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let method = if path.ends_with("status") { "GET" } else { "POST" };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    web.ask(method, path, &headers, body.as_bytes())
}

fn at(name: &str, what: &str) -> String {
    format!("{REGIONS}/region/{name}/{what}")
}

fn region(key: &str, bytes: u64) -> Value {
    json!({ "key": key, "offset": 0, "byte_size": bytes })
}

fn part(region: &str, offset: usize, bytes: usize) -> Value {
    json!({
        "shared_memory_region": region,
        "shared_memory_offset": offset,
        "shared_memory_byte_size": bytes,
    })
}

/// Turns the grid at the beginning of a region. GRID goes to `offset` there, SIZE is in the answer.
fn turn(name: &str, offset: usize) -> Value {
    let size_at = GRID_BYTES;
    json!({
        "inputs": [
            {"name": "GRID", "shape": [1, 30, 30], "datatype": "UINT8", "parameters": part(name, 0, GRID_BYTES)},
            {"name": "SIZE", "shape": [1, 2], "datatype": "INT32", "parameters": part(name, size_at, SIZE_BYTES)},
        ],
        "outputs": [
            {"name": "GRID", "parameters": part(name, offset, GRID_BYTES)},
            {"name": "SIZE"},
            {"name": "STATUS"},
        ],
    })
}

/// Checks an answer to [`turn`].
#[track_caller]
fn is_turned(answer: &Answer, shared: &Shared, offset: usize) {
    assert_eq!(answer.status, 200, "{answer:?}");
    let document = answer.json();
    let output = &document["outputs"][0];
    assert_eq!((&output["name"], output.get("data")), (&json!("GRID"), None), "{output}");
    assert_eq!(output["parameters"]["shared_memory_byte_size"], GRID_BYTES, "{output}");
    let cells: Vec<_> = shared.read(offset, GRID_BYTES).into_iter().map(i64::from).collect();
    let sizes = super::numbers(&document, "SIZE");
    assert_eq!(rows(&cells, &sizes, 0), json!([[4, 1], [5, 2], [6, 3]]));
}

// ---- Triton's client ----

#[test]
fn tritonclient_has_tensors_in_shared_memory() {
    if !can_be_tried() || !has_runtime() {
        return;
    }
    let (setup, token) = with_tokens();
    let folder = setup.folder().to_owned();
    script(python_of_models(), "reference.py", &[folder.as_os_str()]);
    let model = format!("mixed={}", folder.join("mixed.onnx").display());
    let setup = setup.args(&["--model", &model]).env("GRIDPOOL_GRPC", "127.0.0.1:0");
    let pool = served(setup);
    let row = http(&pool);
    for (kind, address) in [("http", &row.address), ("grpc", &row.grpc)] {
        let arguments = [kind, address, folder.to_str().expect("a path"), &token];
        let said = script(python(), "triton_memory.py", &arguments.map(OsStr::new));
        assert!(said.contains("all is as it should be"), "{said}");
    }
}

#[test]
fn tritonclient_has_tensors_in_shared_memory_over_a_unix_socket_without_a_token() {
    if !can_be_tried() || !has_runtime() {
        return;
    }
    let setup = cpu(1);
    let folder = setup.folder().to_owned();
    script(python_of_models(), "reference.py", &[folder.as_os_str()]);
    let model = format!("mixed={}", folder.join("mixed.onnx").display());
    let address = format!("unix:{}", folder.join("grpc.sock").display());
    let pool = served(setup.args(&["--model", &model, "--grpc", &address, "--shared-memory"]));
    let arguments = ["grpc", &http(&pool).grpc, folder.to_str().expect("a path")];
    let said = script(python(), "triton_memory.py", &arguments.map(OsStr::new));
    assert!(said.contains("all is as it should be"), "{said}");
}

// ---- who may ----

#[test]
fn shared_memory_is_served_to_those_who_may_alone() {
    let shared = Shared::new("who", 4_096);
    let register = region(&shared.key(), 4_096);
    let off = served(cpu(1));
    let said = super::post(&off, &at("r", "register"), &register);
    said.complains(501, "have the pool started with --shared-memory");
    super::post(&off, INFER, &turn("r", 1_024)).complains(501, "shared memory is not served");
    drop(off);
    // Over TCP every local user is one client.
    let open = served(cpu(1).args(&["--shared-memory"]));
    let said = super::post(&open, &at("r", "register"), &register);
    said.complains(403, "shared memory needs a token with the scope memory, or a Unix socket");
    drop(open);

    let (holder, line) = token(&["holder", "--scope", "infer,memory"]);
    let (other, other_line) = token(&["other", "--scope", "infer,memory"]);
    let (user, user_line) = token(&["user", "--scope", "infer,metrics,operate"]);
    let setup = with_http(cpu(1)).args(&["--shared-memory"]);
    let file = tokens(&setup, &[&line, &other_line, &user_line]);
    let pool = setup.args(&["--http-tokens", file.to_str().expect("a path")]).start();
    until_ready(&pool);
    let register = |token: &str| ask(&pool, token, &at("r", "register"), &register);
    register(&user).complains(403, "it needs the scope memory");
    ask(&pool, &user, &format!("{REGIONS}/status"), &Value::Null).complains(403, "scope memory");
    assert_eq!(register(&holder).status, 200);
    // A region is its token's, and so is its name.
    ask(&pool, &other, INFER, &turn("r", 1_024)).complains(404, "Unable to find");
    ask(&pool, &user, INFER, &turn("r", 1_024)).complains(404, "Unable to find");
    assert_eq!(register(&other).status, 200);
    assert_eq!(ask(&pool, &other, &format!("{REGIONS}/unregister"), &Value::Null).status, 200);
    is_turned(&ask(&pool, &holder, INFER, &turn("r", 1_024)), &shared, 1_024);
    // A region ends with its token's scope.
    let less = line.replace("infer,memory", "infer");
    tokens(pool.setup(), &[&less, &other_line]);
    eventually("the scope to be gone", || {
        let answer = ask(&pool, &holder, INFER, &turn("r", 1_024));
        // 401 before the region is forgotten.
        if answer.status == 404 { Ok(()) } else { Err(format!("{answer:?}")) }
    });
    tokens(pool.setup(), &[&line, &other_line]);
    eventually("the scope to be back", || {
        let answer = register(&holder);
        if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    });
    is_turned(&ask(&pool, &holder, INFER, &turn("r", 1_024)), &shared, 1_024);
    // The next gateway has no regions, and its clients are told.
    crate::processes::signal(gateway_pid(&pool), nix::sys::signal::Signal::SIGKILL);
    until_ready(&pool);
    let gone = ask(&pool, &holder, INFER, &turn("r", 1_024));
    gone.complains(404, "register it first, also after the gateway was started anew");
}

#[test]
fn over_a_unix_socket_the_file_must_be_the_clients_own() {
    let setup = cpu(1).args(&["--shared-memory"]);
    let path = setup.folder().join("http.sock");
    let pool = setup.args(&["--http", &format!("unix:{}", path.display())]).start();
    gateway_pid(&pool);
    let mut web = eventually("a connection", || {
        let stream = UnixStream::connect(&path).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
        let mut web = Web::over(stream);
        let ready = web.ask("GET", "/v2/health/ready", "", b"").status;
        if ready == 200 { Ok(web) } else { Err(format!("{ready}")) }
    });
    let shared = Shared::new("unix", 4_096);
    let mut post = |path: &str, body: &Value| {
        web.ask("POST", path, "Content-Type: application/json\r\n", body.to_string().as_bytes())
    };
    assert_eq!(post(&at("own", "register"), &region(&shared.key(), 4_096)).status, 200);
    is_turned(&post(INFER, &turn("own", 2_048)), &shared, 2_048);
    if is_root() {
        // Root could open it.
        let foreign = Shared::new("foreign", 4_096);
        chown(&foreign.path, Some(65_534), None).expect("an owner can be set");
        let said = post(&at("foreign", "register"), &region(&foreign.key(), 4_096));
        said.complains(403, "is not the user 0's");
    }
}

// ---- what clients may do to it ----

#[test]
fn names_that_are_no_file_of_the_client_and_sizes_that_are_none_are_refused() {
    let (setup, token) = with_tokens();
    let pool = served_with(setup, &token);
    let shared = Shared::new("names", 4_096);
    let link = shared.path.with_extension("link");
    drop(fs::remove_file(&link));
    symlink(&shared.path, &link).expect("a link can be made");
    let register = |key: &str, offset: u64, bytes: u64| {
        let body = json!({ "key": key, "offset": offset, "byte_size": bytes });
        ask(&pool, &token, &at("r", "register"), &body)
    };
    let unable = "Unable to open shared memory region";
    register(&format!("{}.link", shared.key()), 0, 8).complains(400, unable);
    fs::remove_file(&link).expect("it is there");
    for key in ["../../etc/passwd", "/../shm/x", "//x", "", "/", "a/b", "a\0b"] {
        register(key, 0, 8).complains(400, "no `/` but at its beginning");
    }
    for key in [".", "..", "/gridpool-none"] {
        register(key, 0, 8).complains(400, unable);
    }
    for (offset, bytes) in [(0, 4_097), (4_096, 1), (0, 0), (8, u64::MAX), (u64::MAX, u64::MAX)] {
        register(&shared.key(), offset, bytes).complains(400, "Invalid offset + byte size");
    }
    let wrong = ask(&pool, &token, &at("r", "register"), &json!({ "key": 1 }));
    wrong.complains(400, "the body is not a region");
    assert_eq!(register(&shared.key(), 96, 4_000).status, 200);
    for (offset, bytes) in [(3_200, GRID_BYTES), (usize::MAX, GRID_BYTES), (GRID_BYTES, usize::MAX)]
    {
        let mut asked = turn("r", 0);
        asked["outputs"][0]["parameters"] = part("r", offset, bytes);
        ask(&pool, &token, INFER, &asked).complains(400, "output `GRID`: Invalid offset");
    }
    let mut both = turn("r", 0);
    both["inputs"][0]["data"] = json!([1]);
    ask(&pool, &token, INFER, &both).complains(400, "data beside shared_memory_region");
    let mut short = turn("r", 0);
    short["inputs"][0]["parameters"] = part("r", 0, GRID_BYTES - 1);
    ask(&pool, &token, INFER, &short).complains(400, "its shape and datatype say 900");
    let mut small = turn("r", 0);
    small["outputs"][0]["parameters"] = part("r", 0, GRID_BYTES - 1);
    let said = "output 'GRID' (899 bytes) should be at least 900 bytes";
    small["inputs"] = turn("in", 0)["inputs"].clone();
    assert_eq!(
        ask(&pool, &token, &at("in", "register"), &region(&shared.key(), 4_096)).status,
        200
    );
    ask(&pool, &token, INFER, &small).complains(400, said);
    assert_eq!(http(&pool).restarts, 0);
}

fn served_with(setup: Setup, token: &str) -> Pool {
    let pool = setup.start();
    until_ready(&pool);
    assert_eq!(ask(&pool, token, &format!("{REGIONS}/status"), &Value::Null).json(), json!([]));
    pool
}

#[test]
fn a_region_that_shrinks_has_holes_or_overlaps_costs_its_own_requests_alone() {
    let (setup, token) = with_tokens();
    let pool = served_with(setup, &token);
    let pid = gateway_pid(&pool);
    let shared = Shared::new("hostile", 65_536);
    for name in ["r", "same"] {
        let done = ask(&pool, &token, &at(name, "register"), &region(&shared.key(), 65_536));
        assert_eq!(done.status, 200, "{done:?}");
    }
    // The result lies over what it was made of, under another name.
    let mut over = turn("r", 0);
    over["outputs"][0]["parameters"] = part("same", 0, GRID_BYTES);
    is_turned(&ask(&pool, &token, INFER, &over), &shared, 0);
    shared.fill();
    over["outputs"][0]["parameters"] = part("same", 1, GRID_BYTES);
    is_turned(&ask(&pool, &token, INFER, &over), &shared, 1);

    let stop = AtomicBool::new(false);
    let mut fine = 0;
    thread::scope(|scope| {
        let _ends = SetAtEnd(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let punch =
                    FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
                shared.file.set_len(0).expect("it can shrink");
                shared.file.set_len(450).expect("it can grow");
                shared.file.set_len(65_536).expect("it can grow");
                shared.fill();
                fallocate(&shared.file, punch, 0, 65_536).expect("a hole can be made");
                shared.fill();
            }
        });
        let mut web = Web::open(&pool);
        for _ in 0..300 {
            let answer = ask_on(&mut web, &token, INFER, &turn("r", 32_768));
            let said = String::from_utf8_lossy(&answer.body);
            let of_file = ["is shorter than when", "BadCell", "SIZE", "sizes"];
            match answer.status {
                200 => fine += 1,
                400 => {
                    assert!(of_file.iter().any(|words| said.contains(words)), "{said}");
                }
                _ => panic!("{answer:?}"),
            }
        }
    });
    assert!(fine < 300, "no request saw the file change");
    shared.file.set_len(100).expect("it can shrink");
    let said = ask(&pool, &token, INFER, &turn("r", 32_768));
    said.complains(400, "is shorter than when the region was registered");
    shared.file.set_len(65_536).expect("it can grow");
    shared.fill();
    is_turned(&ask(&pool, &token, INFER, &turn("r", 32_768)), &shared, 32_768);
    let row = http(&pool);
    assert_eq!((row.pid, row.restarts), (pid, 0), "the gateway is the same");
}

#[test]
fn a_region_that_is_unregistered_meanwhile_gets_its_results_and_then_is_gone() {
    let (setup, token) = with_tokens();
    let pool = served_with(setup, &token);
    let shared = Shared::new("meanwhile", 65_536);
    let done = ask(&pool, &token, &at("r", "register"), &region(&shared.key(), 65_536));
    assert_eq!(done.status, 200, "{done:?}");
    pool.stop("cpu0");
    let headers = format!("Authorization: Bearer {token}\r\n");
    let mut web = Web::open(&pool);
    web.send(&super::request("POST", INFER, &headers, turn("r", 32_768).to_string().as_bytes()));
    pool.until_busy("cpu0");
    // What it was made of was read before.
    shared.file.write_all_at(&[0; GRID_BYTES], 0).expect("it can be written");
    assert_eq!(ask(&pool, &token, &at("r", "unregister"), &Value::Null).status, 200);
    assert_eq!(ask(&pool, &token, &format!("{REGIONS}/status"), &Value::Null).json(), json!([]));
    ask(&pool, &token, INFER, &turn("r", 0)).complains(404, "Unable to find");
    pool.go_on("cpu0");
    is_turned(&web.hear(), &shared, 32_768);
}
