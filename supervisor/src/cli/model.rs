//! `gridpool model`: lists and changes the models of a running pool.

use std::env;
use std::path::PathBuf;

use clap::Subcommand;
use gridpool_client::ClientError;
use gridpool_protocol::limits::MODEL_CONTEXTS_MAX;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::tensor::placement::Placement;
use gridpool_protocol::tensor::version::{VERSION_MARK, split};

use super::flags::{ModelsFlags, SocketFlag, whole};
use super::{CommandError, connect, infer, load, onnx, print_result, system};
use crate::config::{parse_model, parse_pipeline};
use crate::gateway;

/// The last lines of `load --help`.
const LOAD_CODES: &str = "\
Exit codes:
  0   the model is loaded on every device
  1   the pool could not load it; nothing has changed
  2   the command line is wrong, the pool has that version, or the model is being changed
  65  PATH is missing, cannot be read, or is no ONNX model
  69  no pool at the socket";

/// The subcommands of `gridpool model`.
#[derive(Debug, Subcommand)]
pub(super) enum ModelCommand {
    /// Load a model on every device. If one device fails, no device keeps it.
    ///
    /// If NAME serves already, this is its next version. Once every device has it, it takes over in one step: new
    /// requests go to it, the versions before it finish theirs and are unloaded. No request fails or waits.
    #[command(after_help = LOAD_CODES)]
    Load {
        /// The model's name and file, such as resnet=resnet50.onnx.
        #[arg(value_name = "NAME=PATH", required_unless_present = "pipeline")]
        model: Option<String>,
        /// Load the `[[pipeline]]` of this file instead, under its own name. A step may name a `[[model]]` of the file
        /// or a model of the pool; nothing else in the file has an effect.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "fields"])]
        pipeline: Option<PathBuf>,
        /// The number of the version. One below the version that serves is loaded beside it.
        #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=u32::MAX.into()))]
        version: Option<u32>,
        /// Keep the versions before it, under their numbers: `gridpool infer NAME:1`.
        #[arg(long)]
        keep: bool,
        /// Seconds after which the load is given up; by default `load_timeout_s` of the pool's limits. Ctrl-C and
        /// `gridpool model unload` of the model give it up, too.
        #[arg(long, value_name = "SECONDS", value_parser = whole::<u32>(1..=u32::MAX.into()))]
        deadline: Option<u32>,
        /// The devices that get it, such as 0,2 for GPUs or cpu0; by default all of the pool.
        #[arg(long, value_name = "DEVICES")]
        devices: Option<Placement>,
        /// Set a field of `[[model]]` of the config file, such as contexts=4, device_bytes=2000000000,
        /// max_batch=16 or cpu_ops=["Shape"]; repeat for more fields.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        fields: Vec<String>,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// List the models, as `gridpool models` does.
    List(ModelsFlags),
    /// Unload a model: refuse new requests, finish the accepted ones, then free its memory. Of a model that is still
    /// being loaded, it ends the load, and unloads nothing.
    Unload {
        /// The model's name, for all its versions, or NAME:VERSION.
        name: String,
        #[command(flatten)]
        socket: SocketFlag,
    },
    /// Set how many requests of a model run at once on each device. No request is lost.
    Contexts {
        /// The model's name, for the version that serves it, or NAME:VERSION.
        name: String,
        /// The number of contexts: requests that run at once.
        #[arg(value_name = "K", value_parser = whole::<u32>(1..=MODEL_CONTEXTS_MAX.into()))]
        contexts: u32,
        #[command(flatten)]
        socket: SocketFlag,
    },
}

/// The refusal of a pipeline, with what its file has in place of a model that the pool does not know.
fn with_file(error: ClientError, others: &[(String, String)]) -> ClientError {
    let ClientError::Refused(Refusal::Invalid(why)) = error else { return error };
    let is_it = |(model, _): &&(String, String)| why.contains(&format!("runs the model `{model}`"));
    ClientError::Refused(Refusal::Invalid(match others.iter().find(is_it) {
        Some((_, says)) => format!("{why}\n{says}"),
        None => why,
    }))
}

/// Prints the models of a running pool.
pub(super) fn list(flags: &ModelsFlags) -> Result<u8, CommandError> {
    infer::print_models(&connect(flags.socket.socket.clone())?.models()?, flags.json)
}

pub(super) fn run(command: &ModelCommand) -> Result<u8, CommandError> {
    match command {
        ModelCommand::Load {
            model,
            pipeline,
            version,
            keep,
            deadline,
            devices,
            fields,
            socket,
        } => {
            let mut others = Vec::new();
            let plan = match (model, pipeline) {
                (_, Some(file)) => parse_pipeline(file).map(|(plan, names)| {
                    others = names;
                    plan
                }),
                (model, None) => {
                    let here = env::current_dir().map_err(system("the current folder"))?;
                    parse_model(model.as_deref().unwrap_or_default(), fields, &here)
                }
            };
            let mut plan = plan.map_err(CommandError::Usage)?;
            plan.options.keep |= keep;
            plan.options.devices = devices.clone().or(plan.options.devices);
            plan.options.load_timeout_s = deadline.or(plan.options.load_timeout_s);
            if let Some(version) = version {
                if plan.name.contains(VERSION_MARK) {
                    let why = format!("`{}` has a version already: leave --version out", plan.name);
                    return Err(CommandError::Usage(why));
                }
                plan.name = format!("{}{VERSION_MARK}{version}", plan.name);
            }
            // Workers read the files as the same user, so this check finds their errors sooner.
            onnx::check_plan(&plan)?;
            if let Some(why) = gateway::why_taken(split(&plan.name).0) {
                return Err(CommandError::Usage(why));
            }
            let loaded = load::load(socket.socket.clone(), plan)?;
            print_result(loaded.map_err(|error| with_file(error, &others)))
        }
        ModelCommand::List(flags) => list(flags),
        ModelCommand::Unload { name, socket } => {
            print_result(connect(socket.socket.clone())?.unload_model(name))
        }
        ModelCommand::Contexts { name, contexts, socket } => {
            print_result(connect(socket.socket.clone())?.set_contexts(name, *contexts))
        }
    }
}
