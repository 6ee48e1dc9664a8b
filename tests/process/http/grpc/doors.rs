//! Where gRPC is served: beside HTTP or alone, at addresses and Unix sockets, by which names.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use tonic::Code;

use super::*;
use crate::command::gridpool;
use crate::needs::is_root;
use crate::pool::cpu;
use crate::wait::eventually;

#[test]
fn grpc_is_served_alone_at_a_unix_socket_that_only_we_may_use() {
    let setup = cpu(1);
    let path = setup.folder().join("grpc.sock");
    let pool = setup.args(&["--grpc", &format!("unix:{}", path.display())]).start();
    let grpc = Grpc::open(&address(&pool));
    let answer = eventually("an answer", || grpc.ask::<ModelInferResponse>("ModelInfer", one()));
    is_turned(&answer);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let status = pool.cli(&["status"]).run().output();
    assert!(status.contains(&format!("unix:{}: served by pid", path.display())), "{status}");
    assert_eq!(http(&pool).address, "", "there is no HTTP");
    if is_root() {
        // Even if someone opens its mode.
        for place in [&path, pool.folder()] {
            let open = fs::Permissions::from_mode(0o777);
            fs::set_permissions(place, open).expect("a mode can be set");
        }
        let mut foreign = Command::new("curl");
        foreign.args(["--silent", "--max-time", "10", "--http2-prior-knowledge", "--dump-header"]);
        foreign.args(["-", "--json", "", "--header", "content-type: application/grpc"]);
        foreign.arg("--unix-socket").arg(&path).arg("http://localhost/").uid(65_534);
        let said = String::from_utf8(foreign.output().expect("curl").stdout).expect("text");
        let why = "the%20user%2065534%20may%20not%20use%20this%20pool";
        assert!(said.contains("grpc-status: 7") && said.contains(why), "{said}");
    }
    // A cleaner of old files removes it. The next gateway serves a new one.
    fs::set_permissions(pool.folder(), fs::Permissions::from_mode(0o700)).expect("a mode");
    fs::remove_file(&path).expect("it is there");
    let grpc = Grpc::open(&address(&pool));
    let answer =
        eventually("gRPC at a new socket", || grpc.ask::<ModelInferResponse>("ModelInfer", one()));
    is_turned(&answer);
    assert!(pool.log().contains("gRPC: the socket was removed, and is served again"));
    pool.cli(&["drain"]).run().output();
    eventually(
        "the socket to be removed",
        || if path.exists() { Err("it is there") } else { Ok(()) },
    );
}

#[test]
fn an_address_comes_from_the_flag_the_variable_or_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.toml");
    fs::write(&file, "grpc = '127.0.0.1:1'\n").unwrap();
    let show = |arguments: &[&str], variable: Option<&str>| {
        let call = gridpool(["config", "show", "--config"]).arg(&file).args(arguments);
        let call = variable.into_iter().fold(call, |call, at| call.env("GRIDPOOL_GRPC", at));
        call.run().output()
    };
    let file_says = show(&[], None);
    assert!(file_says.contains("127.0.0.1:1"), "{file_says}");
    let serve = |at: &str| gridpool(["serve", "--devices", "cpu:1", "--grpc", at]).run();
    serve("0.0.0.0:0").complains(78, &["everyone who reaches", "--grpc 127.0.0.1:8001"]);
    serve("nowhere").complains(2, &["--grpc", "is not an address and port"]);
}

#[test]
fn a_name_that_is_not_ours_reaches_nothing() {
    let pool = served(cpu(1).args(&["--http-host", "gpu.example.org"]));
    let ask = |name: &str| {
        Grpc::named(&address(&pool), name).ask::<ModelInferResponse>("ModelInfer", one())
    };
    for name in ["localhost:8001", "gpu.example.org"] {
        is_turned(&ask(name).unwrap());
    }
    let status = ask("evil.example").unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert!(status.message().contains("--http-host evil.example"), "{status:?}");
}
