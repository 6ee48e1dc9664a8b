//! What the first worker that loads a model decides for the others.

use super::*;

#[test]
fn every_worker_has_the_file_that_the_first_one_loaded() {
    let mut models = Models::new(&[plan("a")]);
    let report = |models: &mut Models, worker, sha256: &str| {
        let mut info = ModelInfo::unavailable("a", String::new());
        (info.state, info.sha256) = (ModelState::Ready, sha256.to_owned());
        let mut says = [info];
        models.on_reported(worker, &mut says);
        let [info] = says;
        (info.state, info.reason)
    };
    let now = |models: &Models| models.plans().unwrap()[0].options.sha256.clone();
    // Both started before either had loaded it.
    for worker in [worker(0, 2), worker(1, 2)] {
        models.start(worker);
    }
    assert_eq!(
        (report(&mut models, worker(0, 2), "1").0, now(&models)),
        (ModelState::Ready, Some("1".to_owned()))
    );
    let (state, reason) = report(&mut models, worker(1, 2), "2");
    assert_eq!(state, ModelState::Unavailable);
    assert!(reason.starts_with("/m/a.onnx has changed since the model was loaded"), "{reason}");
    assert!(
        reason.contains("sha256 1 then, 2 now") && reason.contains("model unload a"),
        "{reason}"
    );
    [worker(0, 2), worker(1, 2)].into_iter().for_each(|worker| models.on_ended(worker));
    assert_eq!(models.start(worker(0, 4))[0].options.sha256, Some("1".to_owned()));
}

#[test]
fn all_workers_have_as_many_contexts_as_the_first_one_chose() {
    let mut chooses = plan("a");
    chooses.options.contexts = Contexts::Auto;
    let all_have = |world: &World, count| {
        world.workers.keys().all(|&worker| world.models(worker) == [("a", count)])
    };
    let mut world = World::new(&[], 2);
    world.begin(ModelCommand::Load(chooses.clone()));
    assert_eq!(world.commands.len(), 1, "one worker tries it first");
    world.all_do();
    world.start(worker(2, 2));
    assert!(all_have(&world, 4));
    // Two that have started before either has chosen: the second one obeys.
    let mut world = World { models: Models::new(&[chooses]), ..World::new(&[], 0) };
    let plans = [1, 0].map(|index| (worker(index, 2), world.models.start(worker(index, 2))));
    plans.iter().for_each(|(worker, plans)| world.is_up(*worker, plans));
    assert_eq!(world.models(worker(0, 2)), [("a", 4)], "what it chose itself");
    world.all_do();
    assert!(all_have(&world, 5));
}

#[test]
fn each_step_of_a_pipeline_keeps_the_file_that_was_loaded_first() {
    let step = |name: &str| Step { name: name.to_owned(), ..Step::default() };
    let program = Step { body: StepBody::Program("rot90".into()), ..step("three") };
    let steps = vec![step("one"), step("two"), program];
    let pipeline = Pipeline { steps, ..Pipeline::default() };
    let options = ModelOptions { pipeline: Some(Box::new(pipeline)), ..ModelOptions::default() };
    let mut models = Models::new(&[ModelPlan { options, ..plan("a") }]);
    models.start(worker(0, 2));
    let loaded = |name: &str, sha256: &str| StepInfo {
        name: name.to_owned(),
        model: None,
        program: None,
        sha256: sha256.to_owned(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        nodes: Vec::new(),
    };
    let mut info = ModelInfo::unavailable("a", String::new());
    (info.state, info.sha256) = (ModelState::Ready, "12".to_owned());
    info.steps = vec![loaded("two", "2"), loaded("one", "1"), loaded("three", "3")];
    models.on_reported(worker(0, 2), &mut [info]);
    let options = models.start(worker(0, 4)).remove(0).options;
    let steps = options.pipeline.unwrap().steps;
    let hashes: Vec<_> = steps.iter().map(|step| step.model()?.sha256.clone()).collect();
    assert_eq!(hashes, [Some("1".to_owned()), Some("2".to_owned()), None], "a program has no file");
}
