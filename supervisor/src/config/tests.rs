//! Tests of settings from flags, variables and a config file, and of their origins.

use super::*;
use std::fs;
use std::net::SocketAddr;

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool.toml");
    fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn a_flag_beats_the_file_and_the_file_beats_the_default() {
    let (folder, path) = file("devices = 'cpu:3'\nsocket = 'a.sock'\nworker_bin = '/bin/w'");
    let settings = Settings::resolve(Overrides::default(), Some(&path)).unwrap();
    assert_eq!(settings.devices, [DeviceSelection::Cpu(3)]);
    assert_eq!(settings.socket, folder.path().join("a.sock"));
    assert_eq!(settings.worker_bin, Some(PathBuf::from("/bin/w")));
    let flags = Overrides {
        devices: Some("1".to_owned()),
        socket: Some(PathBuf::from("b.sock")),
        worker_bin: Some(PathBuf::from("w")),
        http: Some("localhost:1".to_owned()),
        grpc: None,
        http_options: HttpOptions::default(),
        trace: None,
        trace_sample: None,
        trace_headers: None,
        standbys: Some(1),
        allow_chaos: None,
        models: Vec::new(),
        model_repository: None,
        repository: None,
        keep_going: false,
        onnxruntime: None,
        sandbox: None,
        sandbox_write: Vec::new(),
        socket_group: None,
        socket_mode: None,
        operators: Vec::new(),
        quotas: Vec::new(),
        state_dir: None,
        capsules: None,
        nats: NatsKeys::default(),
        environment: BTreeSet::new(),
    };
    let settings = Settings::resolve(flags, Some(&path)).unwrap();
    assert_eq!(settings.devices, [DeviceSelection::GpuIndex(1)]);
    assert_eq!(settings.socket, PathBuf::from("b.sock"));
    assert_eq!(settings.worker_bin, Some(PathBuf::from("w")));
    assert_eq!(settings.limits.standbys, 1);
    let address = HttpAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 1)));
    assert_eq!(settings.http, Some(address));
    let settings = Settings::resolve(Overrides::default(), None).unwrap();
    assert_eq!(settings.devices, [DeviceSelection::AllGpus]);
    assert_eq!(settings.limits, PoolConfig::DEFAULT);
}

#[test]
fn every_setting_has_its_origin() {
    let text = "devices = 'cpu:3'\nhttp = '[::1]:1'\n[limits]\nstandbys = 2\n\
                kill_timeout_ms = 70\n[policy]\n\"cuda 02\" = \"restart\"\n[[model]]\n\
                name = 'm'\ncontexts = 2\npath = 'a'\n";
    let (_folder, path) = file(text);
    let at = |line| Origin::File { file: path.clone(), line };
    let flag = |flag| Origin::Flag { flag };
    let flags = Overrides {
        devices: Some("cpu:1".to_owned()),
        standbys: Some(1),
        models: vec!["m=b".to_owned(), "n=c".to_owned()],
        environment: BTreeSet::from(["--standby".to_owned()]),
        ..Overrides::default()
    };
    let origins = Settings::resolve(flags, Some(&path)).unwrap().origins;
    let variable = "GRIDPOOL_STANDBY".to_owned();
    let want = [
        ("devices", flag("--devices")),
        ("http", at(2)),
        ("limits.standbys", Origin::Environment { variable }),
        ("limits.kill_timeout", at(5)),
        ("limits.attempts_max", Origin::Default),
        ("policy.cuda 2", at(7)),
        ("model.m.name", at(9)),
        ("model.m.contexts", at(10)),
        ("model.m.path", flag("--model")),
        ("model.m.tf32", Origin::Default),
        ("model.n.name", flag("--model")),
        ("worker_bin", Origin::Default),
    ];
    for (setting, origin) in want {
        assert_eq!(*origins.of(setting), origin, "{setting}");
    }
}

#[test]
fn the_check_of_a_file_finds_missing_files_and_warns_of_likely_errors() {
    let text = "worker_bin = 'w'\nonnxruntime = 'r.so'\n[[model]]\nname = 'rot90'\npath = 'a'\n\
                [policy]\n\"xid 99999\" = \"restart\"\n\"xid 31\" = \"restart\"\n[limits]\n\
                spin_us = 1\n";
    let (folder, path) = file(text);
    let told = check_file(&path).unwrap_err();
    let told: Vec<_> = told.iter().map(ToString::to_string).collect();
    let at = |name: &str| folder.path().join(name).display().to_string();
    assert_eq!(told.len(), 3, "{told:?}");
    for (told, (line, name)) in told.iter().zip([(1, "w"), (2, "r.so"), (5, "a")]) {
        let want = format!("pool.toml, line {line}: there is no file {}: ", at(name));
        assert!(told.contains(&want), "{told}");
        fs::write(at(name), "").unwrap();
    }
    let told = check_file(&path).unwrap_err();
    assert!(told[0].to_string().contains("pool.toml, line 4: `rot90` is built into"), "{told:?}");
    let text = text.replace("rot90", "mine");
    fs::write(&path, &text).unwrap();
    let Checked { settings, warnings } = check_file(&path).unwrap();
    assert_eq!((settings, warnings.len()), (7, 1), "{warnings:?}");
    assert!(
        warnings[0].contains("pool.toml, line 7: warning: the fault `xid 99999` is in no table")
    );
    fs::write(&path, text.replace("xid 99999", "xid 48")).unwrap();
    assert_eq!(check_file(&path), Ok(Checked { settings: 7, warnings: Vec::new() }));
    // `serve` takes a file with missing files, since a flag may name others.
    fs::remove_file(at("w")).unwrap();
    assert!(Settings::resolve(Overrides::default(), Some(&path)).is_ok());
}

#[test]
fn the_error_of_a_wrong_value_names_its_flag_or_variable() {
    let wrong = |environment: &[&str]| {
        let flags = Overrides {
            devices: Some("cpu:0".to_owned()),
            environment: environment.iter().map(|&flag| flag.to_owned()).collect(),
            ..Overrides::default()
        };
        Settings::resolve(flags, None).unwrap_err().to_string()
    };
    assert!(wrong(&[]).starts_with("--devices: `cpu:0`"));
    assert!(wrong(&["--devices"]).starts_with("GRIDPOOL_DEVICES: `cpu:0`"));
}

#[test]
fn chaos_is_allowed_only_by_a_flag_or_the_file() {
    let allowed = |flag, text| {
        let (_folder, path) = file(text);
        let flags = Overrides { allow_chaos: flag, ..Overrides::default() };
        Settings::resolve(flags, Some(&path)).unwrap().allow_chaos
    };
    assert!(!allowed(None, "") && !allowed(None, "allow_chaos = false"));
    assert!(allowed(None, "allow_chaos = true") && allowed(Some(true), ""));
}

#[test]
fn http_is_served_only_if_a_flag_or_the_file_sets_it() {
    let at = |flag: Option<&str>, text: &str| {
        let (_folder, path) = file(text);
        let flags = Overrides { http: flag.map(str::to_owned), ..Overrides::default() };
        Settings::resolve(flags, Some(&path)).map(|settings| settings.http)
    };
    assert_eq!(at(None, ""), Ok(None));
    let file = "http = '127.0.0.1:8000'";
    assert_eq!(
        at(None, file),
        Ok(Some(HttpAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 8000)))))
    );
    assert_eq!(
        at(Some("0.0.0.0:0"), file),
        Ok(Some(HttpAddress::Tcp(SocketAddr::from(([0, 0, 0, 0], 0)))))
    );
    for wrong in ["8000", ":8000", "127.0.0.1", "example.org:80", "localhost:99999", ""] {
        let error = at(Some(wrong), "").unwrap_err();
        assert!(error.to_string().starts_with("--http: `"), "{error}");
        assert_eq!(error.exit_code(), 2);
        let error = at(None, &format!("\nhttp = '{wrong}'")).unwrap_err();
        assert!(error.to_string().contains("pool.toml, line 2: `"), "{error}");
        assert_eq!(error.exit_code(), 78);
    }
}

#[test]
fn a_wrong_flag_is_a_usage_error_and_a_wrong_file_a_config_error() {
    let flags = |devices: &str, socket: &str| Overrides {
        devices: Some(devices.to_owned()),
        socket: Some(PathBuf::from(socket)),
        worker_bin: None,
        http: None,
        grpc: None,
        http_options: HttpOptions::default(),
        trace: None,
        trace_sample: None,
        trace_headers: None,
        standbys: None,
        allow_chaos: None,
        models: Vec::new(),
        model_repository: None,
        repository: None,
        keep_going: false,
        onnxruntime: None,
        sandbox: None,
        sandbox_write: Vec::new(),
        socket_group: None,
        socket_mode: None,
        operators: Vec::new(),
        quotas: Vec::new(),
        state_dir: None,
        capsules: None,
        nats: NatsKeys::default(),
        environment: BTreeSet::new(),
    };
    let error = Settings::resolve(flags("cpu:0", "s"), None).unwrap_err();
    assert_eq!(error.to_string(), "--devices: `cpu:0`: cpu:N needs N from 1 to 64");
    assert_eq!(error.exit_code(), 2);
    let error = Settings::resolve(flags("all", &"s".repeat(108)), None).unwrap_err();
    assert!(error.to_string().contains("at most 107"), "{error}");
    assert_eq!(error.exit_code(), 2);
    let (_folder, path) = file("# a comment\ndevices = 'cpu:0'");
    let error = Settings::resolve(flags("all", "s"), Some(&path)).unwrap_err();
    assert!(error.to_string().ends_with("pool.toml, line 2: `cpu:0`: cpu:N needs N from 1 to 64"));
    assert_eq!(error.exit_code(), 78);
    let error = Settings::resolve(Overrides::default(), Some(Path::new("/none"))).unwrap_err();
    assert!(error.to_string().starts_with("/none: cannot read the config file: No such file"));
    assert_eq!(error.exit_code(), 78);
}
