//! Tests of `[[pipeline]]`.

use std::path::PathBuf;

use gridpool_protocol::tensor::Contexts;

use super::*;

const TRACKER: &str = "name = 'tracker'\ncontexts = 2\ninputs = ['image']\n\
                       outputs = { boxes = 'find.boxes', who = 'reid.who' }\n\
                       [[steps]]\nname = 'find'\nmodel = 'detect'\ninputs = { image = 'image' }\n\
                       [[steps]]\nname = 'reid'\nmodel = 'nets/reid.onnx'\ninputs = { x = 'find.boxes' }\n";

/// The tracker with a program in place of its second model.
fn with_program(program: &str) -> String {
    let text = TRACKER.replace("model = 'nets/reid.onnx'", program);
    text.replace("{ x = 'find.boxes' }", "{ grids = 'find.boxes' }")
        .replace("'reid.who'", "'reid.grids'")
}

fn parse(text: &str) -> Result<ModelPlan, Vec<FieldError>> {
    parse_table(text.parse().unwrap(), Path::new("/etc/pool.toml"), Path::new("/etc"))
}

#[test]
fn a_pipeline_has_steps_wires_and_the_options_of_a_model() {
    let plan = parse(TRACKER).unwrap();
    assert_eq!((&*plan.name, &*plan.path), ("tracker", Path::new("/etc/pool.toml")));
    assert_eq!((plan.options.contexts, plan.group()), (Contexts::Fixed(2), "tracker"));
    let pipeline = plan.options.pipeline.unwrap();
    assert_eq!(pipeline.inputs, ["image"]);
    assert_eq!(pipeline.outputs["who"], "reid.who");
    let [find, reid] = &pipeline.steps[..] else { panic!("{:?}", pipeline.steps) };
    assert_eq!(reid.inputs["x"], "find.boxes");
    let [find, reid] = [find, reid].map(|step| step.model().unwrap());
    assert_eq!((&*find.model, &*find.path), ("detect", Path::new("")));
    assert_eq!(reid.path, Path::new("/etc/nets/reid.onnx"));
}

#[test]
fn a_step_has_a_program_in_place_of_a_model() {
    let plan = parse(&with_program("program = 'rot90 | trim'"));
    let mut plans = [plan.unwrap()];
    let pipeline = plans[0].options.pipeline.as_ref().unwrap();
    assert_eq!(pipeline.steps[1].body, StepBody::Program("rot90 | trim".into()));
    let error = find_models(&mut plans, &Origins::default()).unwrap_err().to_string();
    assert!(error.contains("its step `find` runs the model `detect`"), "{error}");
}

#[test]
fn a_program_may_say_the_size_of_its_results_and_lie_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.py");
    std::fs::write(&file, "def one(I):\n    return rot90(I)\n\ndef two(I):\n    return rot9(I)\n")
        .unwrap();
    let parse = |named: &str| {
        let text = with_program(named);
        parse_table(text.parse().unwrap(), Path::new("/etc/pool.toml"), folder.path())
    };
    let body = |named: &str| parse(named).unwrap().options.pipeline.unwrap().steps.remove(1).body;
    let text = "def one(I):\n    return rot90(I)".to_owned();
    let program = StepProgram { text, result: Some([30, 20]) };
    assert_eq!(body("program = '@own.py:one'\nresult = [30, 20]"), StepBody::Program(program));
    let why = |named: &str| parse(named).unwrap_err().remove(0).reason;
    let error = why("program = '@own.py:two'\nresult = [30, 20]");
    let file = file.display();
    assert!(
        error.starts_with(&format!(
            "the pipeline `tracker`: the step `reid`: {file}: line 5, column 12: "
        )),
        "{error}"
    );
    let error = why("program = '@own.py:on'\nresult = [30, 20]");
    assert!(error.ends_with("has no `def on(…):`; close to it: one"), "{error}");
    for named in ["own.py:one", "own.py", "none.py:one"] {
        let error = why(&format!("program = '{named}'"));
        let hint = format!(
            "the step `reid`: `{named}` is no program; that of a file has an `@` before it: write \"@{named}\""
        );
        assert!(error.ends_with(&hint), "{error}");
    }
    let error = why("program = '@own.py'");
    let wanted = format!("{file}: it has 2 programs: name one, `@{file}:NAME`; there is one, two");
    assert!(error.ends_with(&wanted), "{error}");
    let error = why("program = '@none.py:one'");
    assert!(
        error.contains("the step `reid`: ") && error.contains("none.py: cannot be read"),
        "{error}"
    );
    let error = why("program = '@own.py:one'");
    assert!(error.contains("its step `reid` cannot run its program: it is a solver"), "{error}");
    for result in ["[30]", "30", "[30, 30, 30]", "[256, 1]", "[-1, 1]", "['x', 1]"] {
        let error = why(&format!("program = 'compress'\nresult = {result}"));
        assert!(
            error.contains("`result` of the step `reid` needs the rows and columns"),
            "{error}"
        );
    }
}

#[test]
fn what_is_wrong_is_said_with_pipeline_step_and_what_to_write() {
    let with = |from: &str, to: &str| {
        assert!(TRACKER.contains(from), "{from}");
        let errors = parse(&TRACKER.replacen(from, to, 1)).unwrap_err();
        errors.into_iter().map(|error| error.reason).collect::<Vec<_>>().join("; ")
    };
    let cases = [
        ("name = 'tracker'\n", "", "a [[pipeline]] needs a `name`"),
        (
            "contexts = 2",
            "context = 2",
            "the pipeline `tracker` has no field `context`; the fields",
        ),
        ("contexts = 2", "contexts = 'x'", "`contexts` of the pipeline `tracker` needs a whole"),
        ("contexts = 2", "contexts = 0", "pipeline `tracker`: 0 contexts"),
        ("contexts = 2", "path = 'x'", "the pipeline `tracker` has no `path`: each of its steps"),
        ("inputs = ['image']", "", "the pipeline `tracker` needs `inputs`, a list of names"),
        (
            "inputs = ['image']",
            "inputs = 'image'",
            "`inputs` of the pipeline `tracker` needs a list",
        ),
        ("{ boxes = 'find.boxes', who = 'reid.who' }", "['who']", "`outputs` of the pipeline"),
        ("model = 'detect'\n", "", "the pipeline `tracker`: the step `find` needs a `model` in"),
        ("name = 'find'\n", "", "the pipeline `tracker`: step 1 needs a `name` in quotes"),
        ("inputs = { image = 'image' }", "inputs = 'image'", "the step `find` needs `inputs` with"),
        ("model = 'detect'", "program = 1", "the step `find` needs a `model` in quotes"),
        (
            "model = 'detect'",
            "model = 'detect'\nprogram = 'rot90'",
            "the step `find` has a `model` and a `program`: leave one out",
        ),
        (
            "model = 'detect'",
            "program = 'rot90'\nsha256 = 'x'",
            "the step `find` has no field `sha256`",
        ),
        (
            "model = 'detect'",
            "model = 'detect'\nresult = [3, 3]",
            "the step `find` has no field `result`: only a `program` has one",
        ),
        (
            "model = 'detect'",
            "program = 'compress'\nresult = [64, 65]",
            "pipeline `tracker`: its step `find`: its `result` is 64 x 65, and a grid has",
        ),
        (
            "model = 'detect'",
            "program = 'O = compress(I)\\nx = rot9(I)'",
            "its step `find` cannot run its program: line 1, column",
        ),
        (
            "model = 'detect'",
            "program = 'rot9'",
            "pipeline `tracker`: its step `find` cannot run its program: ",
        ),
        (
            "model = 'detect'",
            "model = 'detect'\ntf32 = true",
            "the step `find` has no field `tf32`",
        ),
        (
            "model = 'detect'",
            "progam = 'rot90'",
            "the step `find` has no field `progam`; close to it: program",
        ),
        (
            "model = 'detect'",
            "model = 'detect'\nsha256 = '00'",
            "pipeline `tracker`: a sha256 of `00` of its step `find`: write the 64",
        ),
        (
            "x = 'find.boxes'",
            "x = 'fnd.boxes'",
            "pipeline `tracker`: the input `x` of the step `reid`",
        ),
        (
            "model = 'nets/reid.onnx'",
            "program = 'rot90'",
            "pipeline `tracker`: the step `reid` has a wire for `x`, and has no such input; there is grids",
        ),
        ("name = 'reid'", "name = 'find'", "pipeline `tracker`: its step `find` is there twice"),
    ];
    for (from, to, why) in cases {
        let error = with(from, to);
        assert!(error.contains(why), "{to}: {error}");
    }
    let errors = parse("name = 'x'\ninputs = 1").unwrap_err();
    assert_eq!(errors.len(), 3, "{errors:?}");
}

#[test]
fn the_file_of_a_step_is_that_of_the_model_it_names() {
    let model = |text: &str| models::parse_table(text.parse().unwrap(), Path::new("/etc")).unwrap();
    let hash = "a".repeat(64);
    let detect = model(&format!("name = 'detect'\npath = 'd.onnx'\nsha256 = '{hash}'"));
    let mut plans = [parse(TRACKER).unwrap(), detect];
    find_models(&mut plans, &Origins::default()).unwrap();
    let step = &plans[0].options.pipeline.as_ref().unwrap().steps[0];
    let found = step.model().unwrap();
    assert_eq!((&found.path, &found.sha256), (&PathBuf::from("/etc/d.onnx"), &Some(hash)));
    let mut plans = [parse(TRACKER).unwrap(), model("name = 'detct'\npath = 'd.onnx'")];
    let error = find_models(&mut plans, &Origins::default()).unwrap_err().to_string();
    assert!(
        error.contains("pipeline `tracker`: its step `find` runs the model `detect`"),
        "{error}"
    );
    assert!(error.contains("close to it: detct"), "{error}");
    // A pipeline is no step of another.
    let mut plans =
        [parse(TRACKER).unwrap(), parse(&TRACKER.replace("tracker", "detect")).unwrap()];
    let error = find_models(&mut plans, &Origins::default()).unwrap_err().to_string();
    assert!(error.contains("`detect`, which is a pipeline: a step cannot be"), "{error}");
}

#[test]
fn a_file_with_one_pipeline_is_read_with_the_models_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("nets")).unwrap();
    std::fs::write(folder.path().join("nets/reid.onnx"), "x").unwrap();
    let path = folder.path().join("tracker.toml");
    let table = TRACKER.replace("[[steps]]", "[[pipeline.steps]]");
    let whole = |models: &str| {
        std::fs::write(&path, format!("[[pipeline]]\n{table}\n{models}")).unwrap();
        parse_pipeline(&path)
    };
    let (plan, others) = whole("").unwrap();
    let steps = plan.options.pipeline.unwrap().steps;
    let says =
        format!("{}, line 6: the file has no [[model]] `detect`; there is none", path.display());
    assert_eq!(others, [("detect".to_owned(), says)]);
    let found = |step: &Step| step.model().unwrap().path.clone();
    assert_eq!(found(&steps[0]), Path::new(""), "the pool knows `detect`");
    assert_eq!(found(&steps[1]), folder.path().join("nets/reid.onnx"));
    let steps = whole("[[model]]\nname = 'detect'\npath = 'nets/reid.onnx'\n");
    let (plan, others) = steps.unwrap();
    assert_eq!(others, []);
    let steps = plan.options.pipeline.unwrap().steps;
    assert_eq!(found(&steps[0]), folder.path().join("nets/reid.onnx"));
    std::fs::remove_file(folder.path().join("nets/reid.onnx")).unwrap();
    let error = whole("").unwrap_err();
    assert!(error.contains("tracker.toml, line "), "{error}");
    assert!(error.contains("there is no file") && error.contains("nets/reid.onnx"), "{error}");
    std::fs::write(&path, "devices = 'cpu:1'\n").unwrap();
    assert!(
        parse_pipeline(&path).unwrap_err().ends_with("has 0 pipelines: write one [[pipeline]]")
    );
}
