//! Models that some devices of a pool have.

use std::collections::BTreeSet;

use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};

use super::*;

/// A model on these devices, beside others if it names a group.
fn placed(name: &str, devices: &str, group: Option<&str>) -> ModelPlan {
    let devices = Some(devices.parse().expect("devices"));
    let group = group.map(str::to_owned);
    let options = ModelOptions { devices, group, ..ModelOptions::default() };
    ModelPlan { name: name.to_owned(), path: model(name), options }
}

/// The devices that have workers of a group, as the status shows them.
fn devices_of(pool: &Pool, group: &str) -> Vec<String> {
    let rows = pool.status().workers.into_iter().filter(|row| row.group == group);
    rows.map(|row| format!("{}{}", row.device.kind, row.device.index)).collect()
}

#[test]
fn a_model_is_on_the_devices_that_it_names_and_on_no_other() {
    if !has_runtime() {
        return;
    }
    let config = "\n[[model]]\nname = 'mlp'\npath = 'PATH'\ndevices = ['cpu1']\n";
    let config = config.replace("PATH", &model("mlp").display().to_string());
    let pool = cpu(3).limits(&config).start();
    let client = pool.client();
    eventually("the model of the file", || {
        let rows = client.models().map_err(|error| error.to_string())?;
        let workers: Vec<_> = rows.into_iter().map(|row| row.worker).collect();
        if workers == ["cpu1#2"] { Ok(()) } else { Err(format!("{workers:?}")) }
    });
    assert_eq!(devices_of(&pool, "mlp"), ["cpu1"]);
    let load = ["model", "load", "--devices", "cpu0,cpu2"];
    let at = format!("three_outputs={}", model("three_outputs").display());
    let said = pool.cli(&load).arg(&at).run().output();
    assert!(said.contains("`three_outputs` is loaded on cpu0#2, cpu2#2"), "{said}");
    for first in 0..6 {
        is_right(&answer(ask(&client, rows(first, 2).1)), &rows(first, 2).0);
    }
    // Its worker comes back where it was.
    pool.observer().kill(named("cpu0/three_outputs"), 9).expect("it is there");
    eventually("another worker", || {
        let rows = pool.status().workers;
        let is_new = |row: &gridpool_protocol::status::WorkerStatus| {
            row.group == "three_outputs" && row.generation == 3 && row.state.serves()
        };
        if rows.iter().any(is_new) { Ok(()) } else { Err(format!("{rows:?}")) }
    });
    assert_eq!(devices_of(&pool, "three_outputs"), ["cpu0", "cpu2"]);
    let why = client.load_model(placed("two_inputs", "cpu3", None)).unwrap_err().to_string();
    let want =
        "`two_inputs` cannot be placed: the pool has no device cpu3; it has cpu0, cpu1, cpu2";
    assert!(why.contains(want), "{why}");
    client.load_model(placed("two_inputs", "cpu2", Some("few"))).expect("it loads");
    let why = client.load_model(placed("scalar", "cpu1", Some("few"))).unwrap_err().to_string();
    assert!(why.contains("the group `few` has cpu2, and `scalar` is to have cpu1"), "{why}");
    client.load_model(placed("scalar", "cpu2", Some("few"))).expect("it loads");
    // A version of its own place.
    client.unload_model("mlp").expect("it is there");
    eventually("its worker to end", || match devices_of(&pool, "mlp").as_slice() {
        [] => Ok(()),
        left => Err(format!("{left:?}")),
    });
    client.load_model(placed("mlp", "cpu0,cpu1", None)).expect("it loads");
    assert_eq!(devices_of(&pool, "mlp"), ["cpu0", "cpu1"]);
}

#[test]
fn a_model_that_counts_its_devices_goes_where_the_most_is_left() {
    if !has_runtime() {
        return;
    }
    let counted = |name: &str| {
        let path = model(name).display().to_string();
        format!("[[model]]\nname = '{name}'\npath = '{path}'\ndevice_count = 1\n")
    };
    let config = format!("\n{}{}", counted("mlp"), counted("scalar"));
    let pool = cpu(3).limits(&config).start();
    let client = pool.client();
    eventually("the models of the file", || {
        let rows = client.models().map_err(|error| error.to_string())?;
        let workers: BTreeSet<_> = rows.into_iter().map(|row| row.worker).collect();
        let each_its_own = workers == ["cpu0#2".to_owned(), "cpu1#2".to_owned()].into();
        if each_its_own { Ok(()) } else { Err(format!("{workers:?}")) }
    });
    let plan = |name: &str, count: u32, devices: Option<&str>, group: Option<&str>| {
        let devices = devices.map(|devices| devices.parse().expect("devices"));
        let (device_count, group) = (Some(count), group.map(str::to_owned));
        let options = ModelOptions { devices, device_count, group, ..ModelOptions::default() };
        ModelPlan { name: name.to_owned(), path: model(name), options }
    };
    client.load_model(plan("two_inputs", 1, None, Some("few"))).expect("it loads");
    assert_eq!(devices_of(&pool, "few"), ["cpu2"]);
    client.unload_model("scalar").expect("it is there");
    client.load_model(plan("three_outputs", 1, Some("cpu1,cpu2"), None)).expect("it loads");
    assert_eq!(devices_of(&pool, "three_outputs"), ["cpu1"], "it has no model now");
    // Its group is where it is, wherever more would be left.
    client.load_model(plan("scalar", 1, None, Some("few"))).expect("it loads");
    assert_eq!(devices_of(&pool, "few"), ["cpu2"]);
    for (plan, want) in [
        (
            plan("wide", 4, None, None),
            "the model `wide` cannot be placed: its `device_count` is 4, and these are the devices that it may have: \
             cpu0, cpu1, cpu2",
        ),
        (
            plan("wide", 2, None, Some("few")),
            "the model `wide` cannot be placed: its `device_count` is 2, and these are the devices that it may have: \
             cpu2, those of the group `few`",
        ),
        (plan("wide", 0, None, None), "a device_count of 0: write at least 1, or leave it out"),
    ] {
        let why = client.load_model(plan).unwrap_err().to_string();
        assert!(why.contains(want), "{why}");
    }
}

#[test]
fn a_load_beyond_the_memory_that_is_planned_is_refused_with_the_figures() {
    if !has_runtime() {
        return;
    }
    let limits = "model_bytes_max = 100_000_000\n";
    let pool = cpu(2).limits(limits).start();
    let client = pool.client();
    let sized = |name: &str, devices: &str, bytes: u64| {
        let mut plan = placed(name, devices, None);
        plan.options.device_bytes = Some(bytes);
        plan
    };
    let why = client.load_model(placed("mlp", "cpu0", None)).unwrap_err().to_string();
    assert!(why.contains("`mlp` has no `device_bytes`: with the limit `model_bytes_max`"), "{why}");
    client.load_model(sized("mlp", "cpu0", 60_000_000)).expect("it fits");
    let why = client.load_model(sized("scalar", "cpu0,cpu1", 50_000_000)).unwrap_err().to_string();
    let want = "`scalar` may take 50000000 bytes of cpu0, where other models may take 60000000: that is more than \
                100000000, the `model_bytes_max` of a device; unload a model, lower `device_bytes`";
    assert!(why.contains(want), "{why}");
    client.load_model(sized("scalar", "cpu1", 50_000_000)).expect("it fits there");
    client.load_model(sized("two_inputs", "cpu0,cpu1", 40_000_000)).expect("it fits exactly");
    client.unload_model("mlp").expect("it is there");
    client.load_model(sized("three_outputs", "cpu0", 60_000_000)).expect("there is room again");
    // The models of the start are added up as well.
    let models = ["mlp", "scalar"].map(|name| {
        let path = model(name);
        let path = path.display();
        format!("[[model]]\nname = '{name}'\npath = '{path}'\ndevice_bytes = 60_000_000\n")
    });
    let setup = cpu(1).limits(&format!("{limits}{}", models.concat()));
    let mut serve = setup.serve();
    assert_eq!(within("the pool to end", move || serve.exit()).code(), Some(2));
    let log = setup.log();
    assert!(
        log.contains("the models of cpu0 may take 120000000 bytes, more than 100000000"),
        "{log}"
    );
}

#[test]
fn a_pool_without_the_devices_of_a_model_does_not_start() {
    let path = model("mlp");
    let config = format!("\n[[model]]\nname = 'mlp'\npath = {path:?}\ndevices = [0, 'cpu0']\n");
    let setup = cpu(1).limits(&config);
    let mut serve = setup.serve();
    assert_eq!(within("the pool to end", move || serve.exit()).code(), Some(2));
    let log = setup.log();
    assert!(log.contains("the pool has no device gpu0; it has cpu0"), "{log}");
}
