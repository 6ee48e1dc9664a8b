//! Tests that the book's reference pages are generated from this code, and that every command in the
//! documentation is valid.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory, Parser};
use gridpool_core::policy::PolicyTable;
use gridpool_protocol::chaos::ChaosFault;
use gridpool_protocol::exit;
use gridpool_protocol::fault::{FaultCode, Response};
use gridpool_protocol::limits as wire;
use gridpool_protocol::log::FILTER_VARIABLE;
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};
use gridpool_protocol::status::{CapsuleMode, LoadPhase, WorkerState};

use super::arguments::Arguments;
use crate::generated::{check, field_table, fields, table};

const RECEIPT: &str = include_str!("../../../protocol/src/receipt.rs");
const STATUS: &str = concat!(
    include_str!("../../../protocol/src/status.rs"),
    include_str!("../../../protocol/src/status/capsules.rs"),
    include_str!("../../../protocol/src/status/denylist.rs"),
    include_str!("../../../protocol/src/status/queue.rs"),
    include_str!("../../../protocol/src/status/load.rs"),
    include_str!("../../../protocol/src/status/nats.rs"),
    include_str!("../../../protocol/src/status/tracer.rs")
);
const CLUSTER: &str = concat!(
    include_str!("../../../protocol/nats/src/cluster.rs"),
    include_str!("../../../protocol/nats/src/hosts.rs"),
    include_str!("../../../protocol/nats/src/lanes.rs"),
    include_str!("../../../protocol/nats/src/poison.rs"),
);
const MODEL: &str = include_str!("../../../protocol/src/tensor/model.rs");

/// All commands, without the values of this process's environment.
fn command() -> Command {
    fn plain(command: Command) -> Command {
        let command = command.mut_args(|argument| argument.hide_env_values(true));
        command.mut_subcommands(plain)
    }
    let mut command = plain(Arguments::command().term_width(100));
    command.build();
    command
}

#[test]
fn the_generated_commands_match_the_code() {
    fn describe(command: &Command, path: &str, text: &mut String) {
        let lists_ops = path == "gridpool run" || path == "gridpool submit";
        let help = match lists_ops {
            true => command.clone().after_help("`gridpool ops` lists the ops.").render_long_help(),
            false => command.clone().render_long_help(),
        };
        let lines: Vec<_> =
            help.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
        text.push_str(&format!("## {path}\n\n```text\n{}\n```\n\n", lines.join("\n").trim_end()));
        let own = command.get_subcommands().filter(|below| !below.is_hide_set());
        for below in own.filter(|below| below.get_name() != "help") {
            describe(below, &format!("{path} {}", below.get_name()), text);
        }
    }
    let mut text = String::new();
    describe(&command(), "gridpool", &mut text);
    check("reference/cli.md", "commands", &text);
}

#[test]
fn the_generated_exit_codes_match_the_code() {
    let of_cli = exit::cli::TABLE.map(|(code, says)| [code.to_string(), says.to_owned()]);
    check("reference/exit-codes.md", "gridpool", &table(["code", "meaning"], of_cli));
    let rows = exit::worker::TABLE.map(|(code, name, says)| {
        let response = FaultCode::Exit(code).default_response();
        [code.to_string(), name.to_owned(), says.to_owned(), format!("`{response}`")]
    });
    check(
        "reference/exit-codes.md",
        "worker",
        &table(["code", "name", "meaning", "response"], rows),
    );
}

#[test]
fn the_generated_variables_match_the_code() {
    /// For each variable: its flag, and the commands that read it.
    type Variables = BTreeMap<String, (String, Vec<String>)>;
    fn collect(command: &Command, path: &str, variables: &mut Variables) {
        let own = command.get_arguments().filter(|argument| !argument.is_global_set());
        for argument in own {
            let Some(variable) = argument.get_env().and_then(|name| name.to_str()) else {
                continue;
            };
            let (_, readers) = variables
                .entry(variable.to_owned())
                .or_insert_with(|| (flag(argument), Vec::new()));
            readers.push(path.to_owned());
        }
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            collect(below, format!("{path} {}", below.get_name()).trim(), variables);
        }
    }
    fn flag(argument: &Arg) -> String {
        let positional = || format!("the argument {}", argument.get_id().as_str().to_uppercase());
        argument.get_long().map_or_else(positional, |long| format!("`--{long}`"))
    }
    let mut variables = Variables::new();
    collect(&command(), "", &mut variables);
    let every = || vec!["every command".to_owned()];
    variables.insert(FILTER_VARIABLE.to_owned(), ("which lines are logged".to_owned(), every()));
    let format = gridpool_protocol::log::FORMAT_VARIABLE.to_owned();
    variables.insert(format, ("`--log-format`".to_owned(), every()));
    let rows = variables.into_iter();
    let rows = rows.map(|(name, (flag, readers))| [format!("`{name}`"), flag, readers.join(", ")]);
    check(
        "reference/environment.md",
        "variables",
        &table(["variable", "stands for", "read by"], rows),
    );
}

#[test]
fn the_generated_settings_match_the_code() {
    let serve = command().find_subcommand("serve").expect("a command").clone();
    let row = |name: &str| {
        let argument = serve.get_arguments().find(|argument| argument.get_id() == name);
        let argument = argument.expect("a setting has a flag of its name");
        let help = argument.get_long_help().or_else(|| argument.get_help());
        let help = help.expect(name).to_string().replace('\n', " ");
        let flag = argument.get_long().expect("it has a name");
        [format!("`{name}`"), format!("`--{flag}`"), help]
    };
    let names = "devices socket worker_bin http grpc http_host http_origin http_tokens http_cert http_key http_group \
                 insecure access_log shared_memory trace trace_sample allow_chaos model_repository repository \
                 onnxruntime sandbox sandbox_write socket_group socket_mode operators state_dir capsules";
    let rows = names.split_whitespace().map(row);
    check("reference/config.md", "settings", &table(["key", "flag", "meaning"], rows));
    let capsules = crate::config::capsules::rows();
    check("reference/config.md", "capsules", &table(["key", "values", "default"], capsules));
    let nats = crate::config::nats::rows();
    check("reference/config.md", "nats", &table(["key", "values", "default", "meaning"], nats));
}

#[test]
fn the_generated_faults_match_the_code() {
    let rows = PolicyTable::default().rules().into_iter().map(|rule| {
        let name = if rule.name == rule.fault { String::new() } else { rule.name };
        let fault = match rule.fault.parse::<FaultCode>() {
            Ok(_) => format!("`{}`", rule.fault),
            Err(_) => rule.fault,
        };
        [fault, name, rule.class.to_string(), format!("`{}`", rule.response), rule.meaning]
    });
    check(
        "reference/faults.md",
        "faults",
        &table(["fault", "name", "class", "response", "meaning"], rows),
    );
    let responses = Response::ALL.map(|one| [format!("`{one}`"), one.words().to_owned()]);
    check(
        "reference/faults.md",
        "responses",
        &table(["response", "what the pool does"], responses),
    );
    let chaos = ChaosFault::ALL.map(|fault| [format!("`{fault}`"), fault.summary().to_owned()]);
    check("reference/faults.md", "chaos", &table(["fault", "what happens"], chaos));
}

#[test]
fn the_generated_limits_match_the_code() {
    let seconds = |span: std::time::Duration| format!("{} s", span.as_secs());
    let bytes = |bytes: u64| match bytes {
        bytes if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
        bytes => format!("{} KiB", bytes >> 10),
    };
    let rows = [
        ("colours of a cell", format!("0 to {}", wire::COLOR_MAX)),
        ("rows and columns of a grid", wire::SIDE_MAX.to_string()),
        ("cells of a grid, also of an intermediate one", wire::GRID_CELLS_MAX.to_string()),
        ("items of a job", wire::JOB_ITEMS_MAX.to_string()),
        ("cells of a job", wire::JOB_CELLS_MAX.to_string()),
        ("ops of a program", wire::PROGRAM_OPS_MAX.to_string()),
        ("text of a program", bytes(wire::PROGRAM_BYTES_MAX as u64)),
        ("instructions of a solver", wire::SOLVER_INSTRUCTIONS_MAX.to_string()),
        ("registers of a solver", wire::SOLVER_REGISTERS_MAX.to_string()),
        (
            "steps of a solver on one item, unless a job says otherwise",
            wire::STEPS_DEFAULT.to_string(),
        ),
        ("steps that a job may let a solver run on one item", wire::STEPS_MAX.to_string()),
        ("weight of a value of a solver", wire::VALUE_WEIGHT_MAX.to_string()),
        ("a solver's result that is no grid", bytes(wire::RESULT_BYTES_MAX as u64)),
        ("arguments inside arguments", format!("{} levels", wire::PROGRAM_DEPTH_MAX)),
        ("deadline of a job", seconds(wire::DEADLINE_MAX)),
        ("default deadline of a job", seconds(wire::DEADLINE_DEFAULT)),
        ("payload in a message; a larger one goes through shared memory", {
            bytes(wire::INLINE_BYTES_MAX as u64)
        }),
        ("one arena of shared memory", bytes(wire::ARENA_BYTES_MAX)),
        ("one message", bytes(wire::FRAME_BYTES_MAX as u64)),
        ("jobs that join one dispatch", wire::JOIN_MAX.to_string()),
        ("tensors of a request, in and out", wire::TENSORS_MAX.to_string()),
        ("dimensions of a tensor", wire::TENSOR_RANK_MAX.to_string()),
        ("name of a model", format!("{} bytes", wire::MODEL_NAME_BYTES_MAX)),
        ("contexts of a model", wire::MODEL_CONTEXTS_MAX.to_string()),
        ("one element of a BYTES tensor", bytes(wire::BYTES_ELEMENT_MAX as u64)),
        ("one BYTES tensor", bytes(wire::BYTES_TENSOR_MAX as u64)),
        ("contexts that `auto` tries", wire::AUTO_CONTEXTS_MAX.to_string()),
        ("time in which `auto` tries them", format!("{} s", wire::AUTO_CONTEXTS_TIME.as_secs())),
        ("rows of one run of a model", wire::MODEL_BATCH_MAX.to_string()),
        ("batching delay of a model", format!("{} µs", wire::MODEL_QUEUE_DELAY_US_MAX)),
    ];
    let rows = rows.map(|(what, most)| [what.to_owned(), most]);
    check("reference/limits.md", "wire", &table(["what", "at most"], rows));
    let rows = crate::gateway::listed_limits();
    check("reference/limits.md", "http", &table(["what", "of all clients", "of one"], rows));
}

#[test]
fn the_generated_json_fields_match_the_code() {
    let words = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    let of = |source: &str, names: &[&str]| {
        let part = |name: &&str| format!("### {name}\n\n{}\n", field_table(source, name));
        names.iter().map(part).collect::<String>()
    };
    // An attempt has the worker's report as a field.
    let reported = fields(RECEIPT, "RunReport");
    let attempt = fields(RECEIPT, "Attempt").into_iter().map(|field| {
        let there = reported.iter().find(|one| one.name == field.name);
        let is_link = field.says.starts_with("See `RunReport::");
        let says = there.filter(|_| is_link).map_or(field.says, |one| one.says.clone());
        [format!("`{}`", field.name), field.kind, says]
    });
    let attempt = format!("### Attempt\n\n{}\n", table(["field", "type", "meaning"], attempt));
    let receipts = of(RECEIPT, &["Receipt"])
        + &attempt
        + &of(RECEIPT, &["KernelUse", "DeviceInfo", "ItemRange"])
        + &of(MODEL, &["InferReport", "StepReport", "ProviderNodes"]);
    check("reference/json.md", "receipts", &receipts);
    let named = format!(
        "A `DeviceKind` is `cpu` or `gpu`.\n\nA `Verdict` is one of {}.\n\n\
         An `AttemptOutcome` is one of {}.\n\nA `WorkerState` is one of {}.\n\nA `LoadPhase` is one of {}.\n\n\
         A `CapsuleMode` is one of {}.",
        words(&Verdict::ALL.map(Verdict::name)).join(", "),
        words(&AttemptOutcome::ALL.map(AttemptOutcome::name)).join(", "),
        words(&WorkerState::ALL.map(WorkerState::name)).join(", "),
        words(&LoadPhase::ALL.map(LoadPhase::name)).join(", "),
        words(&CapsuleMode::ALL.map(CapsuleMode::name)).join(", "),
    );
    check("reference/json.md", "words", &named);
    let status = [
        "Status",
        "SupervisorStatus",
        "WorkerStatus",
        "WorkerDevice",
        "RunStatus",
        "WorkerMemory",
        "DenylistStatus",
        "DeniedContent",
        "CapsulesStatus",
        "CapsuleStatus",
        "QueueStatus",
        "LoadStatus",
        "MissingModel",
        "QuarantineStatus",
        "MonitorStatus",
        "HttpStatus",
        "NatsStatus",
        "TracerStatus",
        "DeviceStatus",
        "Counters",
    ];
    check("reference/json.md", "status", &of(STATUS, &status));
    let cluster = ["ClusterStatus", "HostRow", "DeviceRow", "HostCounts", "LaneRow", "Conviction"];
    check("reference/json.md", "cluster", &of(CLUSTER, &cluster));
}

#[test]
fn the_generated_list_of_rules_is_that_of_the_simulators_model() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/sim/model");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the model")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    let rows = files.into_iter().filter_map(|path| {
        let text = fs::read_to_string(&path).expect("a file of the model");
        let is_rule = |quoted: &&str| {
            quoted.matches('_').count() > 3
                && quoted.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        };
        let mut rules: Vec<_> = text.split('"').skip(1).step_by(2).filter(is_rule).collect();
        let mut seen = BTreeSet::new();
        rules.retain(|rule| seen.insert(*rule));
        let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
        let rules: Vec<_> = rules.into_iter().map(|rule| rule.replace('_', " ")).collect();
        (!rules.is_empty()).then(|| [format!("`{name}`"), rules.join("; ")])
    });
    check("design/invariants.md", "rules", &table(["file", "rules"], rows));
}

#[test]
fn every_command_in_the_documentation_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    markdown_in(&root.join("docs/src"), &mut pages);
    let mut shown = 0;
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page");
        let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
        for line in blocks.flat_map(str::lines) {
            for call in calls(line) {
                shown += 1;
                if let Err(error) = Arguments::try_parse_from(&call) {
                    assert!(!error.use_stderr(), "{}: {line}\n{error}", page.display());
                }
            }
        }
    }
    assert!(shown > 30, "{shown} commands are shown");
}

fn markdown_in(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the book") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            markdown_in(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// The calls of gridpool in a shell line: the words from its name to a comment, a redirection or the next
/// command. Quotes may be single or double.
fn calls(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word, mut quote) = (Vec::new(), Vec::new(), None, None);
    for c in line.chars().chain([' ', ';']) {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.get_or_insert_with(String::new).push(c),
            ('\'' | '"', None) => (quote, word) = (Some(c), Some(word.unwrap_or_default())),
            (' ', None) => words.extend(word.take()),
            ('#', None) if word.is_none() => break,
            ('|' | '&' | ';' | '>', None) => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
                // A file's name follows, not a command.
                words.extend((c == '>').then(|| c.to_string()));
            }
            (c, None) => word.get_or_insert_with(String::new).push(c),
        }
    }
    words.extend(word);
    commands.push(words);
    let is_ours = |word: &String| word == "gridpool" || word.ends_with("/gridpool");
    let from_name = |words: Vec<String>| {
        let at = words.iter().position(is_ours)?;
        // Assignments may precede the command.
        words[..at].iter().all(|word| word.contains('=')).then(|| words[at..].to_vec())
    };
    commands.into_iter().filter_map(from_name).collect()
}

#[test]
fn a_shell_line_is_split_as_by_a_shell() {
    let split = |line| calls(line).into_iter().map(|words| words.join("/")).collect::<Vec<_>>();
    assert_eq!(split("A=1 gridpool run 'a | b' x > y"), ["gridpool/run/a | b/x"]);
    assert_eq!(split("cargo build && t/gridpool serve & # gridpool"), ["t/gridpool/serve"]);
    assert_eq!(split("gridpool ops > x/gridpool"), ["gridpool/ops"]);
    assert_eq!(split("echo gridpool"), Vec::<String>::new());
    assert_eq!(split("gridpool kill cpu0#1"), ["gridpool/kill/cpu0#1"]);
}
