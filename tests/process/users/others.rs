//! Several users of one pool. Only root can be several users: without root, these tests say so and pass, unless
//! `GRIDPOOL_REQUIRE_ROOT` is set.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use gridpool_client::{Client, ClientError, Handle};
use gridpool_ipc::clock;
use gridpool_ipc::frame::{self, Frame, FrameError, FrameReader};
use gridpool_protocol::codec;
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::{ClientMessage, Limit, Refusal, ServerMessage};
use gridpool_protocol::receipt::Verdict;
use gridpool_tests::oracle::samples::random_grids;
use nix::libc;
use nix::unistd::Group;

use super::{audit, release};
use crate::binaries;
use crate::command::{Running, gridpool, gridpool_at};
use crate::jobs::{answer, large_job, serves, small_job, submit};
use crate::needs::is_root;
use crate::pool::{Pool, Setup, cpu, named};
use crate::processes::go_on;
use crate::raw::{Raw, inline};
use crate::wait::{TIMEOUT, eventually, eventually_so};

/// Users without names.
const ANNA: u32 = 4_000_007;
const BEN: u32 = 4_000_008;

/// Does something as another user, in a group of that number or this one, on a thread of its own.
fn as_user<T: Send>(uid: u32, gid: Option<u32>, what: impl FnOnce() -> T + Send) -> T {
    let become_user = move || {
        let gid = gid.unwrap_or(uid);
        // The calls of the C library change the whole process.
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: a null pointer for a list of length 0.
        let groups =
            unsafe { libc::syscall(libc::SYS_setgroups, 0_usize, std::ptr::null::<libc::gid_t>()) };
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: it takes plain numbers.
        let group = unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) };
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: it takes plain numbers.
        let user = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
        assert_eq!([groups, group, user], [0; 3], "{}", std::io::Error::last_os_error());
    };
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            become_user();
            what()
        });
        other.join().expect("no panic")
    })
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode can be set");
}

/// A pool of root whose folder everybody may enter.
fn open_to_all(setup: Setup) -> Pool {
    set_mode(setup.folder(), 0o755);
    setup.start()
}

#[test]
fn users_whom_the_socket_admits_run_jobs_and_only_operators_give_orders() {
    if !is_root() {
        return;
    }
    let ben = BEN.to_string();
    let pool = open_to_all(cpu(1).args(&["--socket-mode", "0666", "--operators", &ben]));
    let socket = pool.socket();
    let connect = || Client::connect(&socket).expect("the pool serves everybody");
    as_user(ANNA, None, || {
        let client = connect();
        serves(&client);
        // In shared memory, too.
        assert_eq!(answer(submit(&client, large_job(1))).verdict(), Verdict::Ok);
        let orders = [
            client.kill(named("cpu0"), 9),
            client.drain(),
            client.release(release("jobs")),
            client.unload_model("m"),
        ];
        for refused in orders {
            let said = refused.expect_err("she is no operator").to_string();
            let who = "only the user of this pool, root and those whom `gridpool serve --operators` names may ";
            assert!(said.starts_with(who), "{said}");
        }
        let rows = client.status().expect("she may ask").principals;
        let own = rows.iter().find(|row| row.principal == format!("uid {ANNA}"));
        let own = own.expect("she is connected");
        assert_eq!((own.connections, own.done, own.kills_left), (1, 2, Some(3)), "{own:?}");
        assert!(own.arena_bytes > 0, "{own:?}");
    });
    let refused = pool.cli(&["kill", "cpu0"]).of_user(ANNA).run();
    refused.complains(77, &["only the user of this pool, root and those whom"]);
    as_user(BEN, None, || connect().kill(named("cpu0"), 9)).expect("he is an operator");
    // The log is written aside.
    eventually("four refused orders of hers and one of his in the log", || {
        let lines = audit(&pool);
        let of = |uid: u32, start: &str| {
            let own = format!("{start} uid={uid} user=\"\" pid={} ", std::process::id());
            lines.iter().filter(|line| line.contains(&own)).count()
        };
        let found = (of(ANNA, "order refused"), of(BEN, "order"));
        if found == (4, 1) { Ok(()) } else { Err(format!("{found:?}: {lines:#?}")) }
    });
}

#[test]
fn what_another_user_runs_is_shown_to_operators_alone() {
    if !is_root() {
        return;
    }
    let ben = BEN.to_string();
    let pool = open_to_all(cpu(1).args(&["--socket-mode", "0666", "--operators", &ben]));
    let socket = pool.socket();
    let held = pool.stop("cpu0");
    let job = as_user(ANNA, None, || {
        submit(&Client::connect(&socket).expect("the pool serves everybody"), small_job(1))
    });
    pool.until_busy("cpu0");
    let seen = || {
        let status = Client::connect(&socket).expect("it serves").status().expect("they may ask");
        let run = status.workers[0].run.clone().expect("it runs a job");
        assert_eq!(run.jobs, 1);
        run.what
    };
    let own = as_user(ANNA, None, seen);
    assert!(!own.is_empty());
    assert_eq!([seen(), as_user(BEN, None, seen)], [own.clone(), own]);
    assert_eq!(as_user(BEN + 1, None, seen), "");
    go_on(held);
    assert_eq!(answer(job).verdict(), Verdict::Ok);
}

#[test]
fn a_key_and_its_result_are_another_users_own() {
    if !is_root() {
        return;
    }
    let pool = open_to_all(cpu(1).args(&["--socket-mode", "0666"]));
    let grids = random_grids(3, 5);
    let socket = pool.socket();
    let run = || {
        let mut raw = Raw::greeted(&socket);
        raw.submit(inline(7, &grids));
        let (_, receipt, output) = raw.hear_done();
        assert!(output.is_some(), "what is replayed has no result: {receipt:?}");
        receipt.job
    };
    let jobs = [run(), as_user(ANNA, None, run), as_user(BEN, None, run)];
    assert!(jobs[0] != jobs[1] && jobs[1] != jobs[2] && jobs[0] != jobs[2], "{jobs:?}");
}

#[test]
fn a_group_may_use_the_pool_and_the_socket_stays_theirs_when_it_is_made_again() {
    if !is_root() {
        return;
    }
    let group = Group::from_gid(1.into()).expect("groups can be read").expect("it has a name");
    let pool = open_to_all(cpu(1).args(&["--socket-group", &group.name]));
    let socket = pool.socket();
    let is_given = || {
        fs::symlink_metadata(&socket)
            .is_ok_and(|meta| (meta.mode() & 0o777, meta.gid()) == (0o660, 1))
    };
    assert!(is_given());
    as_user(ANNA, Some(1), || serves(&Client::connect(&socket).expect("of the group")));
    let refused = as_user(BEN, None, || Client::connect(&socket).map(drop));
    assert!(matches!(refused, Err(ClientError::NotAllowed { .. })), "{refused:?}");
    fs::remove_file(&socket).expect("it is there");
    eventually_so("the socket to be made again", is_given);
    as_user(ANNA, Some(1), || serves(&Client::connect(&socket).expect("of the group")));
}

#[test]
fn a_pool_that_is_not_shared_refuses_others_whatever_its_sockets_mode() {
    if !is_root() {
        return;
    }
    let pool = open_to_all(cpu(1));
    set_mode(&pool.socket(), 0o666);
    let socket = pool.socket();
    let refused = as_user(ANNA, None, || Client::connect(&socket).map(drop));
    let Err(ClientError::OtherUser { .. }) = refused else { panic!("{refused:?}") };
    let said = as_user(ANNA, None, || Raw::connect(&socket).hear_closing());
    assert_eq!(said, format!("it belongs to user 0 (root) and takes no connection of user {ANNA}"));
    assert_eq!(pool.status().supervisor.refused["user"], 2);
}

#[test]
fn a_user_has_a_limit_of_connections_and_of_shared_memory_over_all_of_them() {
    if !is_root() {
        return;
    }
    let limits = "user_connections_max = 2\n[quota]\ndefault = 'bytes=4M'\n";
    let pool = open_to_all(cpu(1).limits(limits).args(&["--socket-mode", "0666"]));
    let socket = pool.socket();
    let (mut own, _memory) = as_user(ANNA, None, || {
        let mut own = [Raw::greeted(&socket), Raw::greeted(&socket)];
        let said = Raw::connect(&socket).hear_closing();
        let want =
            format!("BUSY: user {ANNA} has 2 connections, as many as one user may; close one");
        assert_eq!(said, want);
        let memory = own[0].arena(3 << 20);
        let refused = own[1].try_arena(2 << 20).map(drop);
        assert_eq!(refused, Err(Refusal::Busy(Limit::QuotaBytes { max: 4 << 20 })));
        (own, memory)
    });
    // Others have theirs.
    as_user(BEN, None, || drop(Raw::greeted(&socket).arena(3 << 20)));
    own[1].say(&ClientMessage::Status { request: 1, token: None });
    assert!(matches!(own[1].hear(), ServerMessage::Reply { .. }));
    let refused = pool.status().supervisor.refused;
    assert_eq!((refused["connections_own"], refused["arenas"]), (1, 1), "{refused:?}");
    serves(&pool.client());
}

#[test]
fn a_user_who_asks_without_end_is_answered_at_a_rate_and_holds_up_nobody() {
    if !is_root() {
        return;
    }
    const QUESTIONS: u64 = 400;
    let pool = open_to_all(cpu(1).args(&["--socket-mode", "0666"]));
    let socket = pool.socket();
    let questions = |count| -> Vec<u8> {
        let question = |request| {
            let message = ClientMessage::Policy { request };
            frame::pack(&codec::encode(&message).expect("it fits a frame"), 0)
        };
        (0..count).flat_map(question).collect()
    };
    let mut anna = as_user(ANNA, None, || Raw::greeted(&socket));
    let began = clock::now();
    anna.send(&questions(QUESTIONS));
    // Others are answered meanwhile, and the pool's own user has another rate.
    let mut ben = as_user(BEN, None, || Raw::greeted(&socket));
    ben.send(&questions(50));
    (0..50).for_each(|_| drop(ben.hear()));
    pool.client();
    for request in 0..QUESTIONS {
        let answer = anna.hear();
        assert!(matches!(answer, ServerMessage::Reply { request: of, .. } if of == request));
    }
    // 100 at once, and 100 a second.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(2_900), "all are answered after {took:?}");
    // What she has asked and does not wait for is not answered, and costs her nothing.
    let held = as_user(ANNA, None, || Raw::greeted(&socket));
    held.send(&questions(8_000));
    drop(held);
    pool.until_status("her other connection to end", |status| {
        let own = format!("uid {ANNA}");
        status.principals.iter().any(|row| row.principal == own && row.connections == 1)
    });
    anna.send(&questions(1));
    anna.hear();
}

/// A pool of a user other than root, in a folder of that user below another.
struct Foreign {
    _folder: tempfile::TempDir,
    outer: PathBuf,
    socket: PathBuf,
    serve: Running,
}

impl Foreign {
    fn start(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        set_mode(folder.path(), 0o755);
        let outer = folder.path().join("outer");
        // As the default folder of sockets is named.
        let inner = outer.join("gridpool");
        fs::create_dir_all(&inner).expect("folders can be made");
        for path in [&outer, &inner] {
            chown(path, Some(ANNA), Some(ANNA)).expect("a new owner");
        }
        let [program, worker] = [binaries::gridpool(), binaries::worker()].map(|binary| {
            let copy = folder.path().join(binary.file_name().expect("a binary has a name"));
            fs::hard_link(binary, &copy)
                .or_else(|_| fs::copy(binary, &copy).map(drop))
                .expect("a copy");
            copy
        });
        let socket = inner.join("pool.sock");
        let serve = gridpool_at(&program, ["serve", "--devices", "cpu:1", "--worker-bin"]);
        let serve = serve.arg(worker).arg("--socket").arg(&socket).args(args);
        let serve = serve.of_user(ANNA).start();
        eventually_so("the pool's socket to be everybody's", || {
            fs::symlink_metadata(&socket).is_ok_and(|meta| meta.mode() & 0o777 == 0o666)
        });
        Self { _folder: folder, outer, socket, serve }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.serve.process.kill();
    }
}

#[test]
fn a_pool_of_another_user_is_trusted_where_only_that_user_and_root_could_put_it() {
    if !is_root() {
        return;
    }
    let pool = Foreign::start(&["--socket-mode", "0666"]);
    let socket = &pool.socket;
    let connect = || Client::connect(socket);
    as_user(BEN, None, || serves(&connect().expect("he names it, and nobody else could be there")));
    serves(&connect().expect("root may use every pool"));
    // Anyone could exchange it.
    set_mode(&pool.outer, 0o777);
    let start =
        format!("the pool at {} belongs to user {ANNA}, and you are user", socket.display());
    let exchange =
        format!("others than user {ANNA} could exchange {} (of user {ANNA})", pool.outer.display());
    let status = gridpool(["status", "--socket"]).arg(socket).run();
    status.complains(77, &[&start, &exchange]);
    let refused = as_user(BEN, None, || connect().map(drop));
    assert!(matches!(refused, Err(ClientError::Replaceable { .. })), "{refused:?}");
    // With the sticky bit, files there are their owners'.
    set_mode(&pool.outer, 0o1777);
    as_user(BEN, None, || serves(&connect().expect("it is safe again")));
    chown(&pool.outer, Some(BEN), None).expect("a new owner");
    let refused = connect().map(drop);
    assert!(matches!(refused, Err(ClientError::Replaceable { .. })), "{refused:?}");
    // At one's own default path no pool of another is believed.
    chown(&pool.outer, Some(ANNA), None).expect("a new owner");
    let status = gridpool(["status"]).env("XDG_RUNTIME_DIR", &pool.outer).run();
    let whose = format!("belongs to user {ANNA} and serves only that user; you are user 0");
    status.complains(77, &[&whose]);
}

/// Greets the next client as a pool does, and gives what follows its hello.
fn greet(listener: &UnixListener) -> Result<Option<Frame>, FrameError> {
    let mut reader = FrameReader::new(listener.accept().expect("a client comes").0);
    reader.read(Some(TIMEOUT)).expect("its hello");
    let welcome = frame::of(&ServerMessage::Welcome { version: PROTOCOL_VERSION }, 0);
    frame::send_all(reader.socket(), &welcome.expect("it fits"), &[]).expect("it reads");
    reader.read(Some(TIMEOUT))
}

#[test]
fn a_client_gives_its_jobs_to_no_other_user_who_takes_the_name_of_its_pools_socket() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let socket = &folder.path().join("pool.sock");
    // Root has put both there.
    let listen = |uid| {
        set_mode(folder.path(), 0o777);
        let listener = as_user(uid, None, || UnixListener::bind(socket).expect("it is free"));
        set_mode(folder.path(), 0o755);
        set_mode(socket, 0o666);
        listener
    };
    let first = listen(ANNA);
    let (heard, came) = thread::scope(|scope| {
        let pools = scope.spawn(move || {
            let job = greet(&first).expect("a job").expect("a frame");
            assert!(matches!(codec::decode(&job.body), Ok(ClientMessage::Submit(_))));
            drop(first);
            fs::remove_file(socket).expect("it is there");
            greet(&listen(BEN))
        });
        let came = as_user(ANNA, None, || {
            let client = Client::connect(socket).expect("a pool of her own");
            client.submit(small_job(1)).and_then(Handle::wait).map(drop)
        });
        (pools.join().expect("no panic"), came)
    });
    assert!(matches!(heard, Err(FrameError::Closed)), "{heard:?}");
    let why = came.expect_err("the job has no verdict").to_string();
    let words = format!("belonged to user {ANNA}, and now one of user {BEN} is there");
    assert!(why.contains(&words), "{why}");
    // Where anybody may put one, she does not speak to his at first either.
    fs::remove_file(socket).expect("it is there");
    let _again = listen(BEN);
    set_mode(folder.path(), 0o1777);
    let refused = as_user(ANNA, None, || Client::connect(socket).map(drop));
    assert!(matches!(refused, Err(ClientError::Replaceable { .. })), "{refused:?}");
}
