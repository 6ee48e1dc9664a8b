//! `gridpool model load`: shows on a terminal how far each device is, while the pool loads the model.
//!
//! Owns the layout of that line. The connection that asks does nothing else: if it ends, the pool gives the load up.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use gridpool_client::ClientError;
use gridpool_protocol::status::{LoadStatus, Status};
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::version::split;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{CommandError, connect};

/// Between two looks at the pool: no event tells how far a load is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Has the pool load a model, and shows how far it is if standard error is a terminal.
pub(super) fn load(
    socket: Option<PathBuf>,
    plan: ModelPlan,
) -> Result<Result<String, ClientError>, CommandError> {
    let client = connect(socket.clone())?;
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if bar.is_hidden() {
        return Ok(client.load_model(plan));
    }
    let watcher = connect(socket)?;
    let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}");
    let bar = bar.with_style(style.expect("the template is well formed"));
    let (done, is_done) = mpsc::channel::<()>();
    let name = split(&plan.name).0.to_owned();
    Ok(thread::scope(|scope| {
        let (bar, name) = (&bar, &name);
        scope.spawn(move || {
            while is_done.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                match watcher.status() {
                    Ok(status) => bar.set_message(line(name, &status)),
                    // The load itself says what has happened to the pool.
                    Err(_) => break,
                }
                bar.tick();
            }
            bar.finish_and_clear();
        });
        let loaded = client.load_model(plan);
        drop(done);
        loaded
    }))
}

/// How far each device is with a model.
fn line(name: &str, status: &Status) -> String {
    let own = status.loads.iter().filter(|load| split(&load.model).0 == name);
    let rows: Vec<_> =
        own.map(|LoadStatus { worker, phase, .. }| format!("{worker}: {phase}")).collect();
    match rows.as_slice() {
        [] => format!("`{name}`: waits for a process to start"),
        rows => format!("`{name}` on {}", rows.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::status::LoadPhase;

    use super::*;

    #[test]
    fn the_line_names_the_devices_that_load_the_model() {
        let row = |worker: &str, model: &str, phase| LoadStatus {
            worker: worker.to_owned(),
            model: model.to_owned(),
            phase,
        };
        let loads = vec![
            row("cpu0/mlp#2", "mlp:2", LoadPhase::Session),
            row("cpu1/mlp#1", "mlp:2", LoadPhase::Start),
            row("cpu1/big#1", "big", LoadPhase::Reading),
        ];
        let status = Status { loads, ..Status::default() };
        let want = "`mlp` on cpu0/mlp#2: making the session, cpu1/mlp#1: process start";
        assert_eq!(line("mlp", &status), want);
        assert_eq!(line("mlp", &Status::default()), "`mlp`: waits for a process to start");
    }
}
