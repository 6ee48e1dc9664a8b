//! What a group owes to the models that it had before, what its requests cost others, and how it ends.

use super::*;

/// A model is unloaded, and its worker ends.
fn unload(core: &mut Core, name: &str) {
    let unload = ModelCommand::Unload { name: name.to_owned() };
    let told = tell(core, change(1, unload));
    for (own, number) in commanded(&told) {
        tell(core, worker(own, WorkerEvent::CommandEnded { number, result: Ok(()) }));
        tell(core, exited(own, ExitStatus::Code(0)));
        tell(core, worker(own, WorkerEvent::Reclaimed));
    }
}

#[test]
fn a_model_that_is_loaded_again_is_not_judged_by_what_it_was() {
    let mut core = core(&["a", "b"]);
    tell(&mut core, Event::TimePassed);
    comes_up(&mut core, of(1, 3), &["b"]);
    unload(&mut core, "b");
    tell(&mut core, exited(of(0, 2), ExitStatus::Code(73)));
    tell(&mut core, worker(of(0, 2), WorkerEvent::Reclaimed));
    assert_eq!(out(&core), [Group::Models(0)], "a set-up that no restart mends");
    unload(&mut core, "a");
    assert!(rests(&core));
    let told = tell(&mut core, change(2, ModelCommand::Load(plan("a"))));
    assert_eq!(spawned(&told), [of(0, 4)], "in its own place, which is in service again");
    assert_eq!(out(&core), []);
}

#[test]
fn a_principal_that_has_cost_a_model_its_workers_is_refused_there_alone() {
    let grace = Duration::from_millis(100);
    let config = PoolConfig { kills_max: 1, infer_cancel_grace: grace, ..PoolConfig::DEFAULT };
    let models = [plan("a"), plan("b")];
    let mut core = Core::new(config, PolicyTable::default(), &[DEVICE], &models, HelperLimits::of);
    tell(&mut core, Event::TimePassed);
    comes_up(&mut core, of(0, 2), &["a"]);
    comes_up(&mut core, of(1, 3), &["b"]);
    assert_eq!(sent_to(&tell(&mut core, submitted(1, model("a")))), Some(of(0, 2)));
    let cancel = ClientEvent::CancelRequested { key: JobKey(1) };
    tell(&mut core, Event::Client(CLIENT, cancel));
    let late = Timestamp(grace);
    assert_eq!(killed(&tell_at(&mut core, late, Event::TimePassed)), [of(0, 2)]);
    let told = tell_at(&mut core, late, submitted(2, model("a")));
    assert!(matches!(told[..], [Action::Refuse { refusal: Refusal::Busy(_), .. }]), "{told:?}");
    let told = tell_at(&mut core, late, submitted(3, model("b")));
    assert_eq!(sent_to(&told), Some(of(1, 3)));
}

#[test]
fn a_model_that_is_loaded_elsewhere_does_not_wait_for_its_last_worker_to_end() {
    let mut core = core(&["a"]);
    tell(&mut core, Event::TimePassed);
    comes_up(&mut core, of(0, 2), &["a"]);
    let done = |core: &mut Core, (own, number), models| {
        tell(core, worker(own, WorkerEvent::ModelsReported(models)));
        tell(core, worker(own, WorkerEvent::CommandEnded { number, result: Ok(()) }));
    };
    let unload = |core: &mut Core, request| {
        let command = ModelCommand::Unload { name: "a".to_owned() };
        let [asked] = commanded(&tell(core, change(request, command)))[..] else { panic!() };
        done(core, asked, Vec::new());
    };
    unload(&mut core, 1);
    let mut placed = plan("a");
    placed.options.devices = Some("gpu0".parse().expect("a device"));
    let load = || ModelCommand::Load(placed.clone());
    assert_eq!(spawned(&tell(&mut core, change(2, load()))), [of(1, 3)]);
    let [asked] = commanded(&comes_up(&mut core, of(1, 3), &[]))[..] else { panic!() };
    done(&mut core, asked, vec![ready("a")]);
    unload(&mut core, 3);
    // Both groups of the name have workers that end. The one of the same devices takes it.
    tell(&mut core, change(4, load()));
    assert_eq!(core.groups().count(), 3, "the grids' and two of models");
}

#[test]
fn a_model_whose_workers_have_left_at_the_end_of_the_pool_is_not_missing() {
    let mut core = both();
    tell(&mut core, Event::DrainRequested);
    tell(&mut core, exited(infer(2), ExitStatus::Code(0)));
    assert_eq!(core.missing(Timestamp::default()), []);
}
