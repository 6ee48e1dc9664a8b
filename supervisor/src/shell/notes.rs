//! Writes the core's notes to the log.

use gridpool_core::action::{Note, Novelty};
use gridpool_protocol::message::ModelCommand;
use tracing::field::display;

/// Writes a note to the log.
pub(super) fn write(note: Note) {
    match note {
        Note::CommandFailed { worker, command, why } => {
            let (name, what) = (command.name(), command_words(&command));
            tracing::warn!(%worker, name, why, "{what}");
        }
        Note::DeviceBack { device, group } => {
            tracing::info!(%device, group = &*group, "device is back in service");
        }
        Note::DeviceOut { device, group, why, rule, probed_in } => {
            let (group, rule) = (&*group, rule.map(|rule| rule.to_string()));
            match probed_in.map(|after| after.as_secs()) {
                Some(seconds) => {
                    tracing::error!(%device, group, why, rule, seconds, "device is out of service");
                }
                None => tracing::error!(
                    %device, group, why, rule,
                    "device is out of service until `gridpool release {device}`"
                ),
            }
        }
        Note::DriverReport { device, fault, response, novelty, lost, is_about_lost } => {
            let (meaning, says) = (fault.meaning(), fault.meaning().sentence);
            let name = &*meaning.name;
            let worker = lost.filter(|_| is_about_lost).map(display);
            let after_death_of = lost.filter(|_| !is_about_lost).map(display);
            match novelty {
                Novelty::New => tracing::warn!(
                    %device, %fault, name, says, %response, worker, after_death_of,
                    "the driver says"
                ),
                Novelty::Expected => tracing::info!(
                    %device, %fault, name, says, worker, after_death_of,
                    "the driver says, as expected"
                ),
                Novelty::Repeated => tracing::debug!(
                    %device, %fault, name, says, worker, after_death_of,
                    "the driver says it again"
                ),
            }
        }
        Note::HelperGone { helper } => tracing::info!("{helper}, which did not end, is gone"),
        Note::HelperStuck { helper } => tracing::error!("SIGKILL does not end {helper}"),
        Note::HelperWaits { helper, wait } => {
            tracing::warn!("{helper} has ended again: the next one starts in {wait:?}");
        }
        Note::ModelReady { worker, name } => tracing::info!(%worker, name, "model is READY"),
        Note::ModelUnavailable { worker, name, path, reason } => {
            let path = path.map(|path| path.display().to_string());
            tracing::error!(%worker, name, path, reason, "model could not be loaded");
        }
        Note::ModelsChanged { result: Ok(what) } => tracing::info!("model {what}"),
        Note::ModelsChanged { result: Err(why) } => tracing::error!("model {why}"),
        Note::Released { client, what } => tracing::info!(%client, what, "released"),
    }
}

/// What a worker could not do.
fn command_words(command: &ModelCommand) -> &'static str {
    match command {
        ModelCommand::Contexts { .. } => "model cannot be given other contexts",
        ModelCommand::Load(_) => "model cannot be loaded",
        ModelCommand::Unload { .. } => "model cannot be unloaded",
    }
}
