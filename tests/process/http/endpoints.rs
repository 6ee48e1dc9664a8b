//! Every path and its document, and the answers for paths that do not exist.

use serde_json::json;

use super::{Web, as_request, get, post, served, small};
use crate::pool::cpu;

#[test]
fn every_path_of_the_protocol_has_its_document() {
    let pool = served(cpu(2));
    let server = get(&pool, "/v2");
    assert_eq!(server.header("content-type"), Some("application/json"));
    assert_eq!(server.json()["name"], "gridpool");
    let extensions = server.json()["extensions"].clone();
    assert!(extensions.as_array().expect("a list").contains(&json!("binary_tensor_data")));
    for listed in server.json()["paths"].as_array().expect("a list") {
        let (method, path) = listed.as_str().and_then(|text| text.split_once(' ')).expect("both");
        let answer = Web::open(&pool).ask(method, &path.replace("MODEL", "rot90"), "", b"{}");
        assert!(![404, 405].contains(&answer.status), "{listed}: {answer:?}");
    }
    let models = server.json()["models"].clone();
    assert!(models.as_array().expect("a list").contains(&json!("rot90")), "{models}");
    for path in ["/v2/health/live", "/v2/health/ready", "/v2/models/rot90/ready"] {
        let answer = get(&pool, path);
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{path}: {answer:?}");
    }
    for path in ["/v2/models/rot90", "/v2/models/rot90/versions/1"] {
        let grid = json!({"name": "GRID", "datatype": "UINT8", "shape": [-1, 30, 30]});
        let size = json!({"name": "SIZE", "datatype": "INT32", "shape": [-1, 2]});
        let status = json!({"name": "STATUS", "datatype": "INT32", "shape": [-1]});
        let want = json!({
            "name": "rot90",
            "versions": ["1"],
            "platform": "gridpool",
            "inputs": [grid, size],
            "outputs": [grid, size, status],
        });
        assert_eq!(get(&pool, path).json(), want, "{path}");
    }
    for path in ["/v2/models/program/config", "/v2/models/program/versions/1/config"] {
        let config = get(&pool, path).json();
        assert_eq!(config["name"], "program");
        assert_eq!(config["input"][0]["dims"], json!([30, 30]));
        assert!(config["max_batch_size"].as_u64().is_some_and(|most| most >= 1_024), "{config}");
    }
    assert_eq!(get(&pool, "/v2/models/rot90/versions/1/ready").status, 200);
    let index = post(&pool, "/v2/repository/index", &json!({"ready": true})).json();
    let listed = Web::open(&pool).ask("POST", "/v2/repository/index", "", b"").json();
    assert_eq!(index, listed, "all are ready");
    let row = json!({"name": "rot90", "version": "1", "state": "READY", "reason": ""});
    assert!(index.as_array().expect("a list").contains(&row), "{index}");
    for row in index.as_array().expect("a list") {
        let name = row["name"].as_str().expect("a name");
        assert_eq!(get(&pool, &format!("/v2/models/{name}")).json()["name"], *name);
    }
}

#[test]
fn statistics_count_the_requests_of_each_model() {
    let pool = served(cpu(1));
    let stats = |path: &str| get(&pool, path).json()["model_stats"].clone();
    let before = stats("/v2/models/rot180/stats");
    assert_eq!(before[0]["inference_count"], 0, "{before}");
    let grids = [small(), small()].concat();
    for _ in 0..3 {
        assert_eq!(post(&pool, "/v2/models/rot180/infer", &as_request(&grids)).status, 200);
    }
    post(&pool, "/v2/models/rot180/infer", &json!({"inputs": []})).complains(400, "`GRID`");
    for path in ["/v2/models/rot180/stats", "/v2/models/rot180/versions/1/stats"] {
        let row = stats(path)[0].clone();
        assert_eq!(row["name"], "rot180");
        assert_eq!(row["inference_count"], 6, "{row}");
        assert_eq!(row["execution_count"], 3, "{row}");
        let of = &row["inference_stats"];
        assert_eq!(of["success"]["count"], 3, "{row}");
        assert_eq!(of["fail"]["count"], 1, "{row}");
        let ns = |key: &str| of[key]["ns"].as_u64().expect("nanoseconds");
        assert!(ns("compute_infer") > 0 && ns("success") > ns("compute_infer"), "{row}");
    }
    let all = stats("/v2/models/stats");
    let of = |name: &str| {
        let rows = all.as_array().expect("a list");
        rows.iter().find(|row| row["name"] == name).expect(name)["inference_count"].clone()
    };
    assert_eq!((of("rot180"), of("rot90")), (json!(6), json!(0)), "the known job is not counted");
}

#[test]
fn wrong_paths_and_methods_are_errors_in_json() {
    let pool = served(cpu(1));
    let no_model = "there is no model `nope`";
    for path in ["", "/ready", "/config", "/stats", "/versions/1"] {
        get(&pool, &format!("/v2/models/nope{path}")).complains(404, no_model);
        let versioned = format!("/v2/models/rot90/versions/2{}", path.replace("/versions/1", ""));
        get(&pool, &versioned).complains(404, "has no version `2`; its only one is `1`");
    }
    post(&pool, "/v2/models/nope/infer", &as_request(&small())).complains(404, no_model);
    get(&pool, "/page").complains(404, "no such path");
    get(&pool, "/v2/cudasharedmemory/status").complains(501, "send the tensors in the request");
    get(&pool, "/v2/models/rot90/trace/setting").complains(501, "start the pool with --trace");
    get(&pool, "/v2/logging").complains(501, "start the pool with GRIDPOOL_LOG");
    get(&pool, "/v2/models/rot90/nope").complains(404, "no such path");
    get(&pool, "/v2/models/rot90/infer").complains(405, "use POST for infer, load, unload, index");
    post(&pool, "/v2/health/live", &json!({})).complains(405, "GET for all others");
    for what in ["load", "unload"] {
        let path = format!("/v2/repository/models/rot90/{what}");
        post(&pool, &path, &json!({})).complains(501, "`rot90` is built in");
        let path = format!("/v2/repository/models/nope/{what}");
        let command = format!("run `gridpool model {what} nope");
        post(&pool, &path, &json!({})).complains(501, &command);
    }
    post(&pool, "/v2/models/rot90%00/infer", &json!({})).complains(404, "there is no model");
}
