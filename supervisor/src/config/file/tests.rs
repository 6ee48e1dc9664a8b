//! Tests of the config file, and of the lines of its errors.

use super::text::CONFIG_BYTES_MAX;
use super::*;
use std::fs;
use std::time::Duration;

fn error(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool.toml");
    fs::write(&path, text).unwrap();
    let error = read(&path, Named::NeedNotBe).expect_err(text)[0].to_string();
    error.strip_prefix(&format!("{}, ", path.display())).unwrap_or(&error).to_owned()
}

#[test]
fn limits_are_read_over_the_defaults() {
    let text = "[limits]\nattempts_max = 3\ncancel_grace_ms = 0\nqueue_bytes_max = 0x200_000";
    let Ok(settings) = parse(text, Path::new(""), Named::NeedNotBe) else { panic!("refused") };
    let want = PoolConfig {
        attempts_max: 3,
        cancel_grace: Duration::ZERO,
        queue_bytes_max: 2 << 20,
        ..PoolConfig::DEFAULT
    };
    assert_eq!(settings.limits, Some(want));
}

#[test]
fn a_policy_is_read_over_the_defaults() {
    let text = "[policy]\n\"cuda 2\" = \"restart\"\n\"xid 109\" = \"quarantine\"\n\
                \"exit 74\" = \"restart\"\n\"signal 11\" = \"retry\"";
    let Ok(settings) = parse(text, Path::new(""), Named::NeedNotBe) else { panic!("refused") };
    let response = |fault: &str| settings.policy.response(fault.parse().unwrap()).name();
    let read = ["cuda 2", "xid 109", "exit 74", "signal 11", "signal 6"].map(response);
    assert_eq!(read, ["restart", "quarantine", "restart", "retry", "suspect"]);
}

#[test]
fn errors_of_a_pipeline_name_the_line_of_the_step() {
    let text = "[[pipeline]]\nname = 'line'\ninputs = ['x']\noutputs = { y = 'b.y' }\n\
                [[pipeline.steps]]\nname = 'a'\nmodel = 'a.onnx'\ninputs = { x = 'x' }\n\
                [[pipeline.steps]]\nname = 'b'\nmodel = 'b.onnx'\ninputs = { x = 'a.y' }\n";
    let second = [
        ("'b.onnx'", "'b.onnx'\nsha256 = '00'", "a sha256 of `00`"),
        ("model = 'b.onnx'", "progam = 'rot90'", "has no field `progam`; close to it: program"),
        ("model = 'b.onnx'", "program = 'rot9'", "cannot run its program"),
        (
            "model = 'b.onnx'",
            "program = 'rot90'",
            "the step `b` has a wire for `x`, and has no such",
        ),
        ("'a.y'", "'c.y'", "the input `x` of the step `b` takes `c.y`"),
        ("name = 'b'", "name = 'a'", "its step `a` is there twice"),
    ];
    for (from, to, why) in second {
        let error = error(&text.replacen(from, to, 1));
        assert!(error.starts_with("line 9: ") && error.contains(why), "{to}: {error}");
    }
    let others = [
        ("['x']", "['x', 'z']", "line 3: pipeline `line`: nothing takes its input `z`"),
        ("'b.y'", "'z.y'", "line 4: pipeline `line`: the output `y` takes `z.y`"),
        ("'x' }", "'x', b = 'b.y' }", "line 5: pipeline `line`: its steps wait for each other"),
    ];
    for (from, to, why) in others {
        let error = error(&text.replacen(from, to, 1));
        assert!(error.starts_with(why), "{to}: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool.toml");
    fs::write(&path, text.replace("b.onnx", "b")).unwrap();
    let mut settings = read(&path, Named::NeedNotBe).unwrap();
    let found = crate::config::pipelines::find_models(&mut settings.models, &settings.origins);
    let error = found.unwrap_err().to_string();
    assert!(
        error.contains(", line 9: pipeline `line`: its step `b` runs the model `b`"),
        "{error}"
    );
}

#[test]
fn errors_name_the_line_and_say_what_to_write() {
    let cases = [
        ("devices = ", "line 1: not TOML: "),
        ("\n\ndevices = 0", "line 3: `devices` needs a text in quotes"),
        ("allow_chaos = 'yes'", "line 1: `allow_chaos` needs true or false"),
        ("device = '0'", "line 1: there is no setting `device`; the settings are devices,"),
        ("\nattempts_max = 1", "line 2: `attempts_max` is a limit: write it under [limits]"),
        ("\nsocket = ''", "line 2: the path of the socket is empty: name a file"),
        ("socket = '/tmp'", "line 1: /tmp is a folder: name a file in it, such as /tmp/pool.sock"),
        ("socket = '/tmp/none/'", "line 1: /tmp/none/ is a folder: name a file in it"),
        ("socket = '.'", "line 1: /"),
        ("\nsocket = \"a\\u0000b\"", "line 2: `socket` has a NUL character"),
        ("state_dir = \"/a\\u0000b\"", "line 1: `state_dir` has a NUL character"),
        ("\nstate_dir = ''", "line 2: the state folder is empty: name a folder, or write none"),
        ("limits = 1", "line 1: `limits` is a table: [limits]"),
        ("[limits]\nattemps_max = 1", "line 2: there is no limit `attemps_max`; close to it:"),
        ("[limits]\nattempts_max = -1", "line 2: `attempts_max` needs a whole number from 1 "),
        ("[limits]\nattempts_max = 1.5", "line 2: `attempts_max` needs a whole number from 1 "),
        ("[limits]\nattempts_max = '1'", "line 2: `attempts_max` needs a whole number from 1 "),
        ("[limits]\nbackoff_min_s = 99", "line 2: backoff_min (99s) must not be above"),
        (
            "[limits]\nbackoff_min_s = 30\nstandbys = 1\nbackoff_max_s = 1\nspin_us = 1",
            "line 4: backoff_min (30s) must not be above backoff_max (1s)",
        ),
        ("[limits]\nstandbys = 1\nheartbeat_kill_ms = 600", "line 3: heartbeat_suspect ("),
        ("[[model]]\nname = 'm'\npath = 'a'\ncontexts = 0", "line 4: model `m`: 0 contexts"),
        ("[[model]]\nqueue_bytes = 0\nname = 'm'\npath = 'a'", "line 2: model `m`: queue_"),
        ("\nstandby = 1", "line 2: there is no setting `standby`: write standbys under [limits]"),
        (
            "[limits]\nkill_timeout_s = 1\nkill_timeout_ms = 100",
            "line 2: `kill_timeout` is set twice, as kill_timeout_s and kill_timeout_ms",
        ),
        (
            "[[model]]\nname = 'm'\npath = 'a'\n[[model]]\nname = 'm'\npath = 'b'",
            "line 4: the model `m` is there twice: keep one",
        ),
        ("socket_mode = '0777'", "line 1: `0777` is not the mode of a socket: write 0600"),
        ("\nsocket_group = 'none-such'", "line 2: there is no group `none-such` on this machine"),
        ("operators = ['root', 'none-such']", "line 1: there is no user `none-such`"),
        ("quota = 1", "line 1: `quota` is a table: [quota]"),
        ("[quota]\nroot = 7", "line 2: `root` needs limits in quotes: \"jobs=100\""),
        ("[quota]\nroot = 'job=7'", "line 2: `job=7` is not a limit of a quota: write jobs=100,"),
        ("policy = 1", "line 1: `policy` is a table: [policy]"),
        ("[policy]\n'cuda 2' = 7", "line 2: `cuda 2` needs a response in quotes: \"restart\""),
        ("[policy]\n'cuda two' = 'restart'", "line 2: `cuda two` is not a fault: write `cuda 700`"),
        ("[policy]\n'cuda 2' = 'reboot'", "line 2: `reboot` is not a response: write one of fail"),
        (
            "[policy]\n'exit 74' = 'halt'\n'cuda 700' = 'fail_job'",
            "line 3: `fail_job` cannot be the response to `cuda 700`; that can be suspect, ",
        ),
        ("[policy]\n'cuda 2' = 'halt'\n'cuda 2' = 'halt'", "line 3: not TOML: "),
        (
            "[policy]\n'cuda 700' = 'halt'\n'cuda 0700' = 'restart'",
            "line 2: `cuda 700` has two rules: keep one",
        ),
        ("socket = ''\n[limits]\nattempts_max = 1\nattempts_max = 2", "line 4: not TOML: "),
    ];
    for (text, want) in cases {
        let error = error(text);
        assert!(error.starts_with(want), "{text}: {error}");
    }
}

#[test]
fn all_errors_are_reported_in_the_order_of_the_lines() {
    let text = "http = '1'\n[limits]\nattempts_max = 0\nqueue_jobs = 1\n[[model]]\n\
                name = 'm'\npath = 1\n[policy]\n'hang' = 'reboot'\n'cuda' = 'halt'\n\
        [[model]]\nname = 'n'\npath = 'n.onnx'\ncontexts = 'four'\ntf23 = true\n\
                [[model]]\nname = 'm'\npath = 'm.onnx'";
    let misfits = parse(text, Path::new(""), Named::NeedNotBe).expect_err(text);
    let told: Vec<_> = misfits
        .iter()
        .map(|Misfit { at, reason }| (line(text.as_bytes(), at), &**reason))
        .collect();
    let want = [
        (1, "`1` is not an address and port"),
        (3, "`attempts_max` needs a whole number"),
        (4, "there is no limit `queue_jobs`"),
        (7, "`path` of a model needs a text in quotes"),
        (9, "`reboot` is not a response"),
        (10, "`cuda` is not a fault"),
        (14, "`contexts` of the model `n` needs a whole number"),
        (15, "the model `n` has no field `tf23`; the fields are name, path, contexts,"),
        (16, "the model `m` is there twice: keep one"),
    ];
    assert_eq!(told.len(), want.len(), "{told:#?}");
    for ((line, reason), (want_line, want)) in told.iter().zip(want) {
        assert_eq!(*line, want_line, "{reason}");
        assert!(reason.starts_with(want), "{reason}");
    }
    let nats = "devices = 'cpu'\n[nats]\nhost = ''\nprefix = 'a.b'\njobs_max = 0\nservers = 'a'\nwhat = 1\n\
                ca = 'no.pem'\nkey = 'no.pem'";
    let misfits = parse(nats, Path::new(""), Named::MustBeThere).expect_err(nats);
    let lines: Vec<_> = misfits.iter().map(|misfit| line(nats.as_bytes(), &misfit.at)).collect();
    assert_eq!(lines, [1, 3, 4, 5, 6, 7, 8, 9, 9], "{misfits:#?}");
    let broken = "devices =\n[limits]\nattempts_max = 0\nsocket = =";
    let misfits = parse(broken, Path::new(""), Named::NeedNotBe).expect_err(broken);
    assert!(misfits.iter().all(|misfit| misfit.reason.starts_with("not TOML: ")));
    assert_eq!(misfits.len(), 2, "both syntax errors and no other error");
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool.toml");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let errors = read(&path, Named::NeedNotBe).expect_err("a pipe has no line");
    assert!(errors[0].to_string().contains("it is a pipe; write a file"), "{}", errors[0]);
}

#[test]
fn a_byte_that_is_no_utf_8_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool.toml");
    fs::write(&path, b"devices = 'cpu'\nsocket = '/tmp/\xff'\n").unwrap();
    let errors = read(&path, Named::NeedNotBe).expect_err("it is no text");
    let said = errors[0].to_string();
    assert!(said.ends_with("line 2: the byte 0xff is no UTF-8: save the file as UTF-8"), "{said}");
}

#[test]
fn a_file_that_is_too_large_or_nested_too_deeply_is_refused() {
    let huge = "#".repeat(1 + usize::try_from(CONFIG_BYTES_MAX).unwrap());
    assert!(error(&huge).ends_with("it has more than 1048576 bytes"));
    assert!(error(&format!("socket = {}", "[".repeat(100_000))).starts_with("line 1: not TOML"));
}
