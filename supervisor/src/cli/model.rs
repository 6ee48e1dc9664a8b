//! `gridpool model`: changes the models of a running pool.

use std::{env, fs};

use clap::Subcommand;

use super::arguments::SocketFlag;
use super::{CommandError, connect, order, system};
use crate::config::parse_model;

/// What to change.
#[derive(Debug, Subcommand)]
pub(super) enum ModelCommand {
    /// Load a model. If a device cannot load it, nothing has changed.
    Load {
        /// Its name and its file, as resnet=resnet50.onnx.
        #[arg(value_name = "NAME=PATH")]
        model: String,
        /// A field of a `[[model]]` of the config file, once for each: contexts=4, device_bytes=2000000000,
        /// max_batch=16, cpu_ops=["Shape"].
        #[arg(long = "set", value_name = "KEY=VALUE")]
        fields: Vec<String>,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Forget a model: it takes no new request, runs those it has, and gives its memory back.
    Unload {
        /// The model.
        name: String,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Run so many requests of a model at once on each device. No request is lost.
    Contexts {
        /// The model.
        name: String,
        /// How many.
        #[arg(value_name = "K")]
        contexts: u32,
        #[command(flatten)]
        socket: SocketFlag,
    },
}

pub(super) fn run(command: &ModelCommand) -> Result<u8, CommandError> {
    match command {
        ModelCommand::Load { model, fields, socket } => {
            let here = env::current_dir().map_err(system("the current folder"))?;
            let plan = parse_model(model, fields, &here).map_err(CommandError::Order)?;
            // Workers read it, as the same user: what they would say is said sooner.
            fs::File::open(&plan.path).map_err(|error| {
                CommandError::Order(format!("{}: {error}", plan.path.display()))
            })?;
            order(connect(socket.socket.clone())?.load_model(plan))
        }
        ModelCommand::Unload { name, socket } => {
            order(connect(socket.socket.clone())?.unload_model(name))
        }
        ModelCommand::Contexts { name, contexts, socket } => {
            order(connect(socket.socket.clone())?.set_contexts(name, *contexts))
        }
    }
}
