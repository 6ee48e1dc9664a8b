//! `gridpool serve`: starts a pool, or takes the place of one that runs, and obeys signals until the pool has ended.

use std::io;
use std::thread;
use std::time::Duration;

use gridpool_protocol::chain::Chain;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::ids::Role;
use gridpool_protocol::status::{MissingModel, WorkerState};
use gridpool_protocol::tensor::options::ModelPlan;
use nix::sys::signal::{SigSet, Signal};

use super::error::{CommandError, system};
use super::flags::ServeFlags;
use super::onnx::{self, ModelFileError};
use super::private::is_settled;
use super::reload::Reloader;
use super::start_pool;
use crate::config::Settings;
use crate::logging;
use crate::repository::RepositoryMode;
use crate::shell::{
    Claim, Ended, Front, Given, ListenError, Notifier, Origin, Predecessor, Shell, TakenOver,
};

/// The pool's words for what to do once a set-up is mended, up to the device.
const RELEASE: &str = "; once that is mended, `gridpool release ";
/// Between two looks whether workers or HTTP serve.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Serves a pool to its end.
pub(super) fn serve(flags: &ServeFlags) -> Result<u8, CommandError> {
    let origin = Origin::of_this_process();
    #[expect(unsafe_code, reason = "the environment is changed, before there are threads")]
    // SAFETY: this is the main thread, and it has started no other.
    let notifier = unsafe { Notifier::take_from_environment() };
    #[expect(unsafe_code, reason = "the environment is changed, before there are threads")]
    // SAFETY: as above; and nothing of this process uses a descriptor that it did not open.
    let given = unsafe { Given::take_from_environment() }.map_err(ListenError::from)?;
    // Before the first thread, so that all inherit the mask: the signals are for `obey_signals`.
    let signals = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR2];
    let signals = SigSet::from_iter(signals);
    signals.thread_block().map_err(|errno| system("blocking signals")(errno.into()))?;
    let served = match flags.successor {
        true => succeed(flags, notifier)?,
        false => begin(flags, notifier, given)?,
    };
    let Served { shell, held, reloader } = served;
    tracing::info!(socket = %reloader.running().socket.display(), "serving");
    shell.allow_upgrades(origin.with_models(reloader.running().models.clone()));
    obey_signals(&shell, signals, reloader).map_err(system("a thread for signals"))?;
    if flags.until_stdin_ends {
        end_with_stdin(&shell).map_err(system("a thread for standard input"))?;
    }
    let ended = shell.wait();
    drop(held);
    match ended {
        Ended::Left => Ok(exit::OK),
        Ended::Misconfigured(faults) => Err(CommandError::Misconfigured(faults)),
        Ended::ModelMissing(MissingModel { model, why }) => {
            let why = without_release(&why);
            Err(CommandError::ModelMissing(MissingModel { model, why }))
        }
        Ended::Displaced(why) => Err(CommandError::Displaced(why)),
    }
}

/// The reason without the advice to release a device, which is for a pool that goes on.
fn without_release(why: &str) -> String {
    let mut parts = why.split(RELEASE);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |why, part| why + part.split_once('`').map_or(part, |(_, rest)| rest))
}

/// A pool that serves its socket.
struct Served {
    shell: Shell,
    held: crate::shell::SocketLock,
    reloader: Reloader,
}

/// Starts a pool.
fn begin(
    flags: &ServeFlags,
    notifier: Option<Notifier>,
    given: Option<Given>,
) -> Result<Served, CommandError> {
    let reloader = Reloader::new(flags)?;
    let settings = reloader.running();
    let keeps_going = flags.keep_going.unwrap_or(false);
    if !keeps_going {
        check_models(&settings.models)?;
    }
    let claim = Shell::claim(&settings.socket, given)?;
    let front = Front::open(&settings.places(), &settings.http_options)?;
    let shell = start_pool(settings, None, !flags.until_stdin_ends)?;
    logging::limit_for_clients();
    trace(&shell, settings).map_err(system("the tracer"))?;
    let held = shell.listen(claim)?;
    if let Some(front) = front {
        let front = front.with_repository(settings.repository.as_ref());
        shell.serve_http(front).map_err(system("the HTTP gateway"))?;
    }
    follow(&shell, settings).map_err(system("the model repository"))?;
    if !keeps_going {
        shell.require_models();
    }
    serve_cluster(&shell, settings).map_err(system("the bridge"))?;
    if let Some(notifier) = notifier {
        shell.report_to(notifier, &settings.limits);
    }
    Ok(Served { shell, held, reloader })
}

/// Checks that the models of the start are files of models. Another start would find the same, so systemd makes none.
/// What cannot be read at this moment may be there at the next: the workers say what it is.
fn check_models(models: &[ModelPlan]) -> Result<(), CommandError> {
    models.iter().try_for_each(|plan| match onnx::check_plan(plan) {
        Ok(()) | Err(ModelFileError::Unreadable { .. }) => Ok(()),
        Err(why) => Err(CommandError::ModelOfStart { model: plan.name.clone(), why }),
    })
}

/// Sends traces, if the settings say so.
fn trace(shell: &Shell, settings: &Settings) -> io::Result<()> {
    settings.trace.asked().map_or(Ok(()), |(collector, sample)| shell.trace(collector, sample))
}

/// Follows the model repository, if the settings say so.
fn follow(shell: &Shell, settings: &Settings) -> io::Result<()> {
    match &settings.repository {
        Some(repository) if repository.mode != RepositoryMode::Start => {
            shell.follow(repository.clone())
        }
        Some(_) | None => Ok(()),
    }
}

/// Takes jobs of a cluster, if the settings name one.
fn serve_cluster(shell: &Shell, settings: &Settings) -> io::Result<()> {
    settings.nats.clone().map_or(Ok(()), |settings| shell.serve_cluster(settings))
}

/// Takes the place of the pool that has started this process. If that fails, that pool learns why, and goes on.
fn succeed(flags: &ServeFlags, notifier: Option<Notifier>) -> Result<Served, CommandError> {
    #[expect(unsafe_code, reason = "it forks")]
    // SAFETY: this is the main thread, and it has started no other.
    let mut predecessor = unsafe { Predecessor::greet() }?;
    let taken = take_over(&mut predecessor, flags).and_then(|(shell, reloader, claim, front)| {
        logging::limit_for_clients();
        trace(&shell, reloader.running()).map_err(system("the tracer"))?;
        let (held, opener) = shell.listen_later(claim)?;
        Ok((Served { shell, held, reloader }, opener, front))
    });
    match taken {
        Ok((served, opener, front)) => {
            let settings = served.reloader.running().clone();
            let released = move |shell: &Shell, failed: &dyn Fn(String)| {
                opener.open();
                if let Err(error) = follow(shell, &settings) {
                    tracing::error!(%error, "the model repository is not followed");
                }
                if let Err(error) = serve_cluster(shell, &settings) {
                    tracing::error!(%error, "no jobs are taken of the cluster");
                }
                if let Some(notifier) = notifier {
                    shell.report_to(notifier, &settings.limits);
                }
                let Some(front) = front else { return true };
                match shell.serve_http(front) {
                    Ok(()) => until_http(shell, failed),
                    Err(error) => {
                        tracing::error!(%error, "the HTTP gateway");
                        failed(format!("the gateway cannot be started: {error}"));
                        return false;
                    }
                }
                true
            };
            let serving = predecessor.serving(&served.shell, released);
            serving.map_err(system("a thread for the old pool"))?;
            Ok(served)
        }
        Err(error) => {
            predecessor.fail(Chain(&error).to_string());
            Err(error)
        }
    }
}

/// Waits until HTTP is served; meanwhile that of the predecessor goes on. It is told of a gateway that ends instead.
fn until_http(shell: &Shell, failed: &dyn Fn(String)) {
    let mut told = false;
    // Only the status shows that it serves, so poll it.
    while let Some(Err(ended)) = shell.serves_http() {
        if ended > 0 && !told {
            told = true;
            failed("its gateway ended, and is started again; its words are in the log".to_owned());
        }
        thread::park_timeout(LOOK_EVERY);
    }
}

/// Starts the workers, and takes everything over once they serve.
fn take_over(
    predecessor: &mut Predecessor,
    flags: &ServeFlags,
) -> Result<(Shell, Reloader, Claim, Option<Front>), CommandError> {
    let reloader = Reloader::new(flags)?;
    let settings = reloader.running();
    predecessor.check_socket(&settings.socket)?;
    let options = &settings.http_options;
    let is_inherited = |&(protocol, at): &(_, &_)| predecessor.serves_at(protocol, at);
    let (inherits, own): (Vec<_>, Vec<_>) = settings.places().into_iter().partition(is_inherited);
    Front::check(&inherits, options)?;
    let own = Front::open(&own, options)?;
    let models = predecessor.models(&settings.models)?;
    let has_models = !models.is_empty();
    let settings_with_models = Settings { models, ..settings.clone() };
    let is_service = !flags.until_stdin_ends;
    let shell = start_pool(&settings_with_models, Some(predecessor), is_service)?;
    come_up(&shell, predecessor, has_models)?;
    predecessor.check_models(&shell)?;
    let TakenOver { claim, front } = predecessor.take_over(&shell, (&inherits, options))?;
    let repository = settings.repository.as_ref();
    let front = Front::join(front, own).map(|front| front.with_repository(repository));
    Ok((shell, reloader, claim, front))
}

/// Waits until every device that the predecessor does not have serves, or is known not to. The predecessor ends this
/// process if that takes too long.
fn come_up(
    shell: &Shell,
    predecessor: &mut Predecessor,
    has_models: bool,
) -> Result<(), CommandError> {
    let roles = if has_models { &Role::ALL[..] } else { &[Role::Grid] };
    loop {
        if let Some(faults) = shell.misconfigured() {
            return Err(CommandError::Misconfigured(faults));
        }
        let workers = shell.workers(roles);
        let grid = Role::Grid.name();
        let serves = workers.iter().any(|row| row.role == grid && row.state == WorkerState::Ready);
        if serves && workers.iter().all(is_settled) {
            return Ok(());
        }
        // No event tells of that, so poll.
        predecessor.hear_of_devices(shell, LOOK_EVERY)?;
    }
}

/// Drains the pool when standard input ends. What is written there is passed over.
fn end_with_stdin(shell: &Shell) -> io::Result<()> {
    let shell = shell.clone();
    thread::Builder::new().name("stdin".into()).spawn(move || {
        if let Err(error) = io::copy(&mut io::stdin().lock(), &mut io::sink()) {
            tracing::warn!(%error, "reading standard input");
        }
        tracing::info!("standard input has ended: draining");
        shell.drain();
    })?;
    Ok(())
}

/// The first signal drains the pool, the second stops it at once. SIGHUP reads the settings again, and SIGUSR2 replaces
/// the pool by what is installed now.
fn obey_signals(shell: &Shell, signals: SigSet, mut reloader: Reloader) -> io::Result<()> {
    let shell = shell.clone();
    thread::Builder::new().name("signals".into()).spawn(move || {
        loop {
            match signals.wait() {
                // Also when its terminal is gone, which ends no pool.
                Ok(Signal::SIGHUP) => reloader.reload(&shell),
                Ok(Signal::SIGUSR2) => shell.upgrade(),
                Ok(signal) => {
                    tracing::info!(%signal, "draining; another signal, a second or more from now, stops at once");
                    shell.drain();
                }
                Err(errno) => tracing::error!(%errno, "waiting for signals"),
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_has_ended_does_not_ask_for_a_release() {
        let why = |advice: &str| {
            format!(
                "no worker can start on cpu0 (no library){advice}; nor on cpu1 (the same){advice}"
            )
        };
        assert_eq!(without_release(&why(&format!("{RELEASE}cpu0`"))), why(""));
        assert_eq!(without_release("it is no model"), "it is no model");
    }
}
