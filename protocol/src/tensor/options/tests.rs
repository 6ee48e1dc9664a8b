//! Tests of the options of models.

use super::*;
use crate::tensor::pipeline::{Step, StepBody, StepModel, StepProgram};

#[test]
fn numbers_beyond_their_limits_are_refused_with_what_to_write() {
    let default = ModelOptions::default;
    assert_eq!(default().check(), Ok(()));
    let wrong = [
        ModelOptions { contexts: Contexts::Fixed(0), ..default() },
        ModelOptions { contexts: Contexts::Fixed(MODEL_CONTEXTS_MAX + 1), ..default() },
        ModelOptions { latency_ms: Some(0), ..default() },
        ModelOptions { load_timeout_s: Some(0), ..default() },
        ModelOptions { max_batch: Some(0), ..default() },
        ModelOptions { max_batch: Some(MODEL_BATCH_MAX + 1), ..default() },
        ModelOptions { max_queue_delay_us: MODEL_QUEUE_DELAY_US_MAX + 1, ..default() },
        ModelOptions { max_batch: Some(1), max_queue_delay_us: 1, ..default() },
        ModelOptions { preferred_batch: [0].into(), ..default() },
        ModelOptions { preferred_batch: [4, 33].into(), ..default() },
        ModelOptions { queue_requests: 0, ..default() },
        ModelOptions { queue_bytes: 0, ..default() },
        ModelOptions { sha256: Some("A".repeat(64)), ..default() },
        ModelOptions { sha256: Some("a".repeat(63)), ..default() },
        ModelOptions { providers: vec![Provider::Cuda, Provider::Cuda], ..default() },
    ];
    for options in wrong {
        assert!(options.check().is_err(), "{options:?}");
    }
}

/// A pipeline of programs of this text behind a model.
fn pipeline_of(programs: usize, text: &str) -> ModelPlan {
    let step = |at: usize| Step {
        name: format!("s{at}"),
        body: StepBody::Program(StepProgram { text: text.to_owned(), result: Some([30, 30]) }),
        inputs: [("grids".to_owned(), "m.y".to_owned())].into(),
    };
    let model = Step {
        name: "m".to_owned(),
        body: StepBody::Model(StepModel { model: "m.onnx".to_owned(), ..StepModel::default() }),
        inputs: [("x".to_owned(), "x".to_owned())].into(),
    };
    let pipeline = Pipeline {
        inputs: vec!["x".to_owned()],
        steps: (0..programs).map(step).chain([model]).collect(),
        outputs: (0..programs).map(|at| (format!("o{at}"), format!("s{at}.grids"))).collect(),
    };
    let options = ModelOptions { pipeline: Some(Box::new(pipeline)), ..ModelOptions::default() };
    ModelPlan { name: "p".to_owned(), path: "/p.toml".into(), options }
}

#[test]
fn ten_solvers_as_long_as_the_longest_of_arc_dsl_fit_a_pipeline_and_more_are_told_what_to_do() {
    let longest = format!("O = rot90(I) # {}", "x".repeat(1_841));
    assert_eq!(longest.len(), 1_856);
    assert_eq!(pipeline_of(10, &longest).check(), Ok(()));
    let error = pipeline_of(11, &longest).check().unwrap_err().to_string();
    assert!(error.contains("the texts of programs included; at most 20480 are allowed"), "{error}");
    assert!(error.ends_with("write less, or make two pipelines of it"), "{error}");
}

#[test]
fn the_text_of_the_longest_plan_is_an_argument_of_a_command_line() {
    // Linux' MAX_ARG_STRLEN, with its NUL.
    let argument_max = 128 * 1_024;
    let warm_up = |sides: usize| ModelPlan {
        name: "m".to_owned(),
        path: "/m".into(),
        options: ModelOptions {
            warm_up: vec![[("x".to_owned(), vec![250; sides])].into()],
            ..ModelOptions::default()
        },
    };
    let programs =
        |bytes: usize| pipeline_of(15, &format!("O = rot90(I) # {}", "\u{1}".repeat(bytes / 15)));
    for plan in [&warm_up as &dyn Fn(usize) -> ModelPlan, &programs] {
        let mut bytes = MODEL_PLAN_BYTES_MAX;
        while let Err(OptionsError::TooLong { .. }) = plan(bytes).check() {
            bytes -= 15;
        }
        assert_eq!(plan(bytes).check(), Ok(()));
        assert!(bytes > MODEL_PLAN_BYTES_MAX - 1_500, "{bytes}");
        let text = serde_json::to_string(&plan(bytes)).unwrap();
        assert!(text.len() < argument_max, "{}", text.len());
    }
}

#[test]
fn the_cpu_serves_on_cpu_devices_and_on_a_gpu_only_ops_that_are_named() {
    let options = |providers: &[Provider], cpu_ops: &[&str]| ModelOptions {
        providers: providers.to_vec(),
        cpu_ops: cpu_ops.iter().map(|&op| op.to_owned()).collect(),
        ..ModelOptions::default()
    };
    let both = [Provider::TensorRt, Provider::Cuda];
    for options in [options(&[], &[]), options(&both, &[])] {
        assert_eq!(options.providers_on(DeviceKind::Cpu), Ok(vec![Provider::Cpu]));
    }
    assert_eq!(options(&[], &[]).providers_on(DeviceKind::Gpu), Ok(vec![Provider::Cuda]));
    assert_eq!(options(&both, &[]).providers_on(DeviceKind::Gpu), Ok(both.to_vec()));
    let with_cpu = [Provider::Cuda, Provider::Cpu];
    let refused = options(&with_cpu, &[]).providers_on(DeviceKind::Gpu);
    assert_eq!(refused, Err(OptionsError::CpuProvider));
    let allowed = options(&with_cpu, &["Shape"]).providers_on(DeviceKind::Gpu);
    assert_eq!(allowed, Ok(vec![Provider::Cuda]));
}

#[test]
fn options_are_read_as_the_config_writes_them() {
    let json = r#"{"contexts": 4, "providers": ["tensorrt", "cuda"], "cpu_ops": ["Shape"],
                   "warm_up": [{"x": [8, 3]}]}"#;
    let options: ModelOptions = serde_json::from_str(json).unwrap();
    assert_eq!(options.contexts, Contexts::Fixed(4));
    assert_eq!(options.providers, [Provider::TensorRt, Provider::Cuda]);
    assert_eq!(options.warm_up[0]["x"], [8, 3]);
    assert_eq!(options.queue_requests, QUEUE_REQUESTS_DEFAULT);
    assert!(serde_json::from_str::<ModelOptions>(r#"{"context": 4}"#).is_err());
    for name in ["cpu", "cuda", "tensorrt"] {
        assert_eq!(name.parse::<Provider>().unwrap().to_string(), name);
    }
    let error = "gpu".parse::<Provider>().unwrap_err();
    assert_eq!(error.to_string(), "`gpu` is not a provider: write tensorrt, cuda or cpu");
}
