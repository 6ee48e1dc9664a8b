//! Solvers as steps of a pipeline in a pool: from a file, with a size for their results.

use gridpool_protocol::tensor::pipeline::{GridStep, StepProgram};

use super::pipelines::{configured, npy, two_grids};
use super::*;

/// What a step runs: the place of a five, and a function of the same file.
const FILE: &str = "def turned(x):\n    return hmirror(x)\n\n\n\ndef cut(I):\n    x1 = ofcolor(I, FIVE)\n    \
                    x2 = subgrid(x1, I)\n    return turned(x2)\n";

/// `[[pipeline]]` of a step over two models' grids.
fn line(step: &str) -> String {
    let file = |name: &str| model(name).display().to_string();
    format!(
        "[[pipeline]]\nname = 'line'\ninputs = ['x']\n\
         outputs = {{ cut = 'cut.grids', sizes = 'cut.sizes', sums = 'weigh.sums', areas = 'weigh.areas' }}\n\
         [[pipeline.steps]]\nname = 'color'\nmodel = '{}'\ninputs = {{ x = 'x' }}\n\
         [[pipeline.steps]]\nname = 'cut'\n{step}\ninputs = {{ grids = 'color.grids' }}\n\
         [[pipeline.steps]]\nname = 'weigh'\nmodel = '{}'\n\
         inputs = {{ grids = 'cut.grids', sizes = 'cut.sizes' }}\n",
        file("colors"),
        file("masses"),
    )
}

#[test]
fn a_solver_of_a_file_is_served_as_a_step_and_names_the_line_that_fails() {
    if !has_runtime() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("own.py");
    fs::write(&file, FILE).expect("a file can be written");
    let named = format!("program = '@{}:cut'\nresult = [3, 3]", file.display());
    let pool = configured(&line(&named), 1);
    let listed = pool.cli(&["models", "--json"]).run().output();
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let step = &listed["models"][0]["model"]["steps"][1];
    assert!(
        step["program"].as_str().is_some_and(|text| text.starts_with("def turned(x):")),
        "{step}"
    );
    let client = pool.client();
    let fine = answer(ask(&client, two_grids(5.0)));
    assert_eq!(fine.verdict(), Verdict::Ok, "{:?}", fine.receipt);
    let outputs = fine.outputs().expect("outputs come with the verdict OK");
    let shapes: Vec<_> = outputs.tensors().iter().map(ToString::to_string).collect();
    assert_eq!(
        shapes,
        ["areas FP32 [2]", "cut UINT8 [2, 3, 3]", "sizes INT64 [2, 2]", "sums FP32 [2]"]
    );
    let one = [5, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(outputs.data(1), [one, one].concat());
    assert_eq!(outputs.data(2), 1_i64.to_le_bytes().repeat(4));
    let [attempt] = fine.receipt.attempts.as_slice() else { panic!("{:?}", fine.receipt) };
    let report = attempt.infer.as_ref().expect("it was a request of a model");
    let program = StepProgram { text: FILE.to_owned(), result: Some([3, 3]) };
    let of_step = GridStep::new(&program, false).expect("a step");
    assert_eq!(
        report.steps[1].sha256,
        of_step.hash(),
        "of the program and the size of its results"
    );
    assert!(report.steps.iter().all(|step| step.host_bytes == 0), "{:?}", report.steps);
    let failed = answer(ask(&client, two_grids(3.0)));
    assert_ne!(failed.verdict(), Verdict::Ok);
    let said = format!("{:?}", failed.receipt);
    assert!(
        said.contains("the step `cut` has no result for grid 1: subgrid in line 8: "),
        "{said}"
    );

    let infer = |last: f32| {
        let file = pool.folder().join("x.npy");
        fs::write(&file, npy(last)).expect("a file can be written");
        pool.cli(&["infer", "line"]).arg(file).run()
    };
    let text = infer(5.0).output();
    assert!(text.contains("sizes INT64 [2, 2]") && text.contains("step cut"), "{text}");
    infer(3.0).complains(1, &["the step `cut` has no result for grid 1: subgrid in line 8: "]);
}

#[test]
fn a_program_of_a_file_that_cannot_be_a_step_is_refused_with_its_line() {
    let Some(pool) = pool(&["colors"]) else { return };
    let file = pool.folder().join("line.toml");
    fs::write(pool.folder().join("own.py"), FILE.replace("ofcolor(I, FIVE)", "ofcolour(I, FIVE)"))
        .expect("the folder is the test's own");
    let load = |step: &str| {
        fs::write(&file, line(step)).expect("the folder is the test's own");
        pool.cli(&["model", "load"]).arg(format!("--pipeline={}", file.display())).run()
    };
    load("program = '@own.py:cut'\nresult = [3, 3]").complains(
        2,
        &[
            "line.toml, line ",
            "the pipeline `line`: the step `cut`: ",
            "own.py: line 7, column 10: ",
        ],
    );
    load("program = 'O = compress(I)'").complains(
        2,
        &[
            "line.toml, line ",
            "pipeline `line`: its step `cut` cannot run its program: it is a solver",
            "add `result = [ROWS, COLUMNS]`",
        ],
    );
    load("program = 'compress'\nresult = [3]").complains(
        2,
        &["`result` of the step `cut` needs the rows and columns that its results fit"],
    );
}
