//! `gridpool config`: checks a config file, and shows each setting that `serve` would use with its origin.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde::Serialize;
use serde_json::{Value, json};

use gridpool_protocol::tensor::pipeline::{Pipeline, Step, StepBody, StepModel, StepProgram};

use super::error::CommandError;
use super::flags::ServeFlags;
use super::variables::UnreadVariable;
use super::{columns, print, say, say_json, text};
use crate::config::{
    Checked, DeviceSelection, HttpAddress, Origin, Settings, check_file, list_limits, nats,
};

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check a config file and print all errors in it.
    Check {
        /// The config file.
        #[arg(env = "GRIDPOOL_CONFIG")]
        file: PathBuf,
    },
    /// Show every setting that `serve` with the same flags would use, and where its value comes from.
    Show {
        #[command(flatten)]
        serve: Box<ServeFlags>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
}

/// `unread`: variables that nothing reads.
pub(super) fn run(command: &ConfigCommand, unread: &[UnreadVariable]) -> Result<u8, CommandError> {
    match command {
        ConfigCommand::Check { file } => {
            let Checked { settings, warnings } =
                check_file(file).map_err(CommandError::ConfigFile)?;
            let settings = match settings {
                1 => "1 setting".to_owned(),
                count => format!("{count} settings"),
            };
            let ok = format!("{}: ok, {settings}", file.display());
            let variables =
                unread.iter().map(|one| format!("{}: warning: {}", one.name, one.says()));
            let lines = variables.chain(warnings).chain([ok]).collect::<Vec<_>>();
            say(&lines.join("\n"))
        }
        ConfigCommand::Show { serve, json } => {
            let document = SettingsDocument::of(&serve.settings()?, serve.config());
            if *json {
                return say_json(&document);
            }
            print(|out| write(out, &document, columns()))
        }
    }
}

/// All settings, in the order of the config file's documentation; the JSON document.
#[derive(Debug, Serialize)]
struct SettingsDocument {
    config: Option<PathBuf>,
    settings: Vec<Setting>,
}

/// One setting. A time has its unit, milliseconds, in its name.
#[derive(Debug, Serialize)]
struct Setting {
    /// As in the config file, after its table: `limits.attempts_max`.
    name: String,
    /// `null` if the setting has no value.
    value: Value,
    origin: Origin,
    #[serde(skip)]
    section: Section,
    /// The meaning of a missing value.
    #[serde(skip)]
    instead: &'static str,
}

/// The table of the config file that has a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Section {
    Top,
    Model(String),
    Pipeline(String),
    Nats,
    Limits,
    Policy,
    Quota,
}

impl SettingsDocument {
    fn of(settings: &Settings, config: Option<&Path>) -> Self {
        let mut all = top(settings);
        all.extend(settings.models.iter().flat_map(|model| {
            let fields = serde_json::to_value(&model.options).expect("options are plain data");
            let Value::Object(mut fields) = fields else { unreachable!("options are a struct") };
            fields.shift_insert(0, "name".to_owned(), json!(model.name));
            fields.remove("pipeline");
            let section = match model.options.pipeline.as_deref() {
                None => {
                    let path = json!(model.path.display().to_string());
                    fields.shift_insert(1, "path".to_owned(), path);
                    Section::Model(model.name.clone())
                }
                Some(Pipeline { inputs, steps, outputs }) => {
                    fields.shift_insert(1, "inputs".to_owned(), json!(inputs));
                    let steps: Vec<_> = steps.iter().map(step_fields).collect();
                    fields.shift_insert(2, "steps".to_owned(), json!(steps));
                    fields.shift_insert(3, "outputs".to_owned(), json!(outputs));
                    Section::Pipeline(model.name.clone())
                }
            };
            fields.into_iter().map(move |(field, value)| {
                let name = format!("model.{}.{field}", model.name);
                let origin = settings.origins.of(&name).clone();
                let section = section.clone();
                Setting { name, value, origin, section, instead: when_not_set(&field) }
            })
        }));
        all.extend(settings.nats.iter().flat_map(nats::shown).map(|(key, value)| {
            let name = format!("nats.{key}");
            let origin = settings.origins.of(&name).clone();
            Setting { name, value, origin, section: Section::Nats, instead: when_not_set(key) }
        }));
        all.extend(list_limits(&settings.limits).into_iter().map(|limit| {
            let origin = settings.origins.of(&format!("limits.{}", limit.name)).clone();
            let value = json!(limit.value);
            Setting { name: limit.key(), value, origin, section: Section::Limits, instead: "" }
        }));
        let changed = settings.policy.rules().into_iter().filter(|rule| rule.configured);
        all.extend(changed.map(|rule| {
            let name = format!("policy.{}", rule.fault);
            let origin = settings.origins.of(&name).clone();
            let value = json!(rule.response.name());
            Setting { name, value, origin, section: Section::Policy, instead: "" }
        }));
        all.extend(settings.quotas.iter().map(|quota| {
            let name = format!("quota.{}", quota.who);
            let origin = settings.origins.of(&name).clone();
            let value = json!(quota.limits);
            Setting { name, value, origin, section: Section::Quota, instead: "" }
        }));
        Self { config: config.map(Path::to_owned), settings: all }
    }
}

/// The settings outside of all tables.
fn top(settings: &Settings) -> Vec<Setting> {
    let devices: Vec<_> = settings.devices.iter().map(DeviceSelection::to_string).collect();
    let path = |path: &Path| json!(path.display().to_string());
    let optional = |at: &Option<PathBuf>| at.as_deref().map_or(Value::Null, path);
    let at = |place: &Option<HttpAddress>| json!(place.as_ref().map(HttpAddress::to_string));
    let (access, users) = (&settings.http_options, &settings.users);
    let all = [
        ("devices", json!(devices.join(","))),
        ("socket", path(&settings.socket)),
        ("worker_bin", optional(&settings.worker_bin)),
        ("http", at(&settings.http)),
        ("grpc", at(&settings.grpc)),
        ("http_host", json!(access.hosts)),
        ("http_origin", json!(access.origins)),
        ("http_tokens", optional(&access.tokens)),
        ("http_cert", optional(&access.cert)),
        ("http_key", optional(&access.key)),
        ("http_group", json!(access.group)),
        ("insecure", json!(access.is_insecure())),
        ("access_log", json!(access.logs_access())),
        ("shared_memory", json!(access.has_shared_memory())),
        ("trace", json!(settings.trace.collector.as_ref().map(ToString::to_string))),
        ("trace_sample", json!(settings.trace.sample.unwrap_or_default().ratio())),
        ("traces", json!({ "headers": settings.trace.headers.names().collect::<Vec<_>>() })),
        ("allow_chaos", json!(settings.allow_chaos)),
        ("model_repository", optional(&settings.repository.as_ref().map(|own| own.folder.clone()))),
        (
            "repository",
            match &settings.repository {
                Some(own) => Value::from(own.mode.to_string()),
                None => Value::Null,
            },
        ),
        ("onnxruntime", optional(&settings.onnxruntime)),
        ("sandbox", json!(settings.sandbox.name())),
        ("sandbox_write", Value::Array(settings.sandbox_write.iter().map(|at| path(at)).collect())),
        ("socket_group", json!(users.group.as_ref().map(|(name, _)| name))),
        ("socket_mode", json!(users.socket_mode().map(|mode| format!("{mode:04o}")))),
        ("operators", json!(users.operators.iter().map(|(name, _)| name).collect::<Vec<_>>())),
        ("state_dir", json!(settings.state_dir)),
        ("capsules", settings.capsules.shown()),
    ];
    let no_cluster = settings.nats.is_none().then_some(("nats", Value::Null));
    let setting = |(name, value): (&str, _)| Setting {
        name: name.to_owned(),
        value,
        origin: settings.origins.of(name).clone(),
        section: Section::Top,
        instead: when_not_set(name),
    };
    all.into_iter().chain(no_cluster).map(setting).collect()
}

/// The meaning of a setting without a value.
fn when_not_set(name: &str) -> &'static str {
    match name {
        "worker_bin" => "none: gridpool-worker beside gridpool",
        "http" => "none: HTTP is not served",
        "trace" => "none: no traces are sent",
        "grpc" => "none: gRPC is not served",
        "nats" => "none: jobs come from this host alone",
        "credentials" => "none: the user of the address, if it has one",
        "ca" => "none: the system's",
        "cert" | "key" => "none: the servers get no certificate",
        "under_way_max" => "none: 8 for each device, 64 at most",
        "http_tokens" => "none: no token is asked for",
        "http_cert" | "http_key" => "none: no TLS",
        "http_group" => "none: your user and root",
        "onnxruntime" => "none: ORT_DYLIB_PATH, then the usual places",
        "sandbox_write" => "none: what the NVIDIA driver needs",
        "state_dir" => "none: nothing outlives the pool",
        "socket_group" => "none: your user and root",
        "socket_mode" => "none: 0600",
        "device_bytes" => "none: all memory of the device",
        "device_count" => "none: all of them",
        "max_batch" => "none: 32, or 1 if rows depend on each other",
        _ => "none",
    }
}

/// Writes a table for people for each table of the config file.
fn write(out: &mut dyn Write, document: &SettingsDocument, columns: usize) -> io::Result<()> {
    match &document.config {
        Some(file) => writeln!(out, "Settings of `serve` with --config {}:", file.display())?,
        None => writeln!(out, "Settings of `serve` without a config file:")?,
    }
    let rows: Vec<_> = document.settings.iter().map(Setting::row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths = [width(0).unwrap_or(0), width(1).unwrap_or(0)];
    let mut section = &Section::Top;
    let mut table = vec![["SETTING", "FROM", "VALUE"].map(str::to_owned)];
    for (setting, row) in document.settings.iter().zip(rows) {
        if setting.section != *section {
            section = &setting.section;
            write!(out, "{}", text::table(&table, &widths, columns))?;
            table.clear();
            match section {
                Section::Top => {}
                Section::Model(_) => writeln!(out, "[[model]]")?,
                Section::Pipeline(_) => writeln!(out, "[[pipeline]]")?,
                Section::Nats => writeln!(out, "[nats]")?,
                Section::Limits => writeln!(out, "[limits]")?,
                Section::Policy => writeln!(out, "[policy]")?,
                Section::Quota => writeln!(out, "[quota]")?,
            }
        }
        table.push(row);
    }
    write!(out, "{}", text::table(&table, &widths, columns))
}

/// A step as the config file has it.
fn step_fields(Step { name, body, inputs }: &Step) -> Value {
    match body {
        StepBody::Model(StepModel { model, path, sha256 }) => {
            json!({ "name": name, "model": model, "path": path, "sha256": sha256, "inputs": inputs })
        }
        StepBody::Program(StepProgram { text, result }) => {
            json!({ "name": name, "program": text, "result": result, "inputs": inputs })
        }
    }
}

impl Setting {
    /// Name, origin and value, as printed below the table's name.
    fn row(&self) -> [String; 3] {
        let name = match &self.section {
            Section::Top => &*self.name,
            // A model's name may have dots.
            Section::Model(model) | Section::Pipeline(model) => {
                &self.name["model.".len() + model.len() + 1..]
            }
            Section::Nats | Section::Limits | Section::Policy | Section::Quota => {
                self.name.split_once('.').map_or(&*self.name, |(_, name)| name)
            }
        };
        let name = match self.section {
            Section::Policy => format!("\"{name}\""),
            Section::Top
            | Section::Model(_)
            | Section::Pipeline(_)
            | Section::Nats
            | Section::Limits
            | Section::Quota => name.to_owned(),
        };
        let (name, value) = match (name.strip_suffix("_ms"), self.value.as_u64()) {
            (Some(time), Some(ms)) if ms % 1_000 == 0 => {
                (format!("{time}_s"), (ms / 1_000).to_string())
            }
            (_, _) => (name, self.value_words()),
        };
        let origin = match &self.origin {
            // The first line names the file.
            Origin::File { line, .. } => format!("line {line}"),
            other @ (Origin::Default | Origin::Environment { .. } | Origin::Flag { .. }) => {
                other.to_string()
            }
        };
        [name, origin, value]
    }

    fn value_words(&self) -> String {
        match &self.value {
            Value::Null => self.instead.to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(list) if list.is_empty() => "none".to_owned(),
            Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                self.value.to_string()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn document(text: &str, flags: Overrides) -> SettingsDocument {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool.toml");
        std::fs::write(&path, text).unwrap();
        SettingsDocument::of(&Settings::resolve(flags, Some(&path)).unwrap(), Some(&path))
    }

    #[test]
    fn every_setting_is_in_its_table_with_its_origin_and_unit() {
        let text = "socket = '/run/p.sock'\n[limits]\nkill_timeout_ms = 70\ndrain_timeout_s = 7\n\
                    [policy]\n\"cuda 2\" = \"restart\"\n[quota]\n0 = 'jobs=1'\n\
                    [[model]]\nname = 'a.b'\npath = '/m.onnx'\n";
        let flags = Overrides { standbys: Some(1), ..Overrides::default() };
        let document = document(text, flags);
        let mut out = Vec::new();
        write(&mut out, &document, 100).unwrap();
        let out = String::from_utf8(out).unwrap();
        let words: Vec<_> =
            out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "devices default all",
            "socket line 1 /run/p.sock",
            "http default none: HTTP is not served",
            "[[model]]",
            "name line 10 a.b",
            "contexts default 1",
            "cpu_ops default none",
            "[limits]",
            "standbys flag --standby 1",
            "kill_timeout_ms line 3 70",
            "drain_timeout_s line 4 7",
            "[policy]",
            "\"cuda 2\" line 6 restart",
            "[quota]",
            "0 line 8 jobs=1",
        ] {
            assert!(words.iter().any(|words| words == line), "{line}\n{out}");
        }
        assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    }

    /// What is said of a key that there is not.
    fn unknown_key() -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool.toml");
        std::fs::write(&path, "none = 1").unwrap();
        Settings::resolve(Overrides::default(), Some(&path)).unwrap_err().to_string()
    }

    #[test]
    fn every_key_of_the_file_is_shown_and_no_password() {
        let text = "[nats]\nservers = 'nats://me:secret@a'\njobs_max = 7\n[traces]\nheaders.token = 'secret'\n\
                    [capsules]\ncount_max = 9\n";
        let flags = crate::config::NatsKeys { host: Some("one".into()), ..Default::default() };
        let document = document(text, Overrides { nats: flags, ..Overrides::default() });
        let json = serde_json::to_value(&document).unwrap();
        let named = |name: &str| {
            let mut all = document.settings.iter();
            all.find(|setting| setting.name == name).map(|setting| setting.value.clone())
        };
        for [key, ..] in nats::rows() {
            let name = format!("nats.{}", key.trim_matches('`'));
            assert!(named(&name).is_some(), "{name} is not shown");
        }
        assert_eq!(named("nats.jobs_max"), Some(json!(7)));
        assert_eq!(named("nats.servers"), Some(json!("nats://a")));
        for row in crate::config::capsules::rows() {
            let key = row[0].trim_matches('`').to_owned();
            assert!(named("capsules").unwrap().get(&key).is_some(), "{key} is not shown");
        }
        assert!(!json.to_string().contains("secret"), "{json}");
        // The parser names all keys outside of tables.
        let said = unknown_key();
        let (_, names) = said.split_once("the settings are ").unwrap();
        let top = names.split(", ").filter(|name| !name.contains('['));
        for name in top {
            assert!(named(name.trim()).is_some(), "{name} is not shown");
        }
        let origin = |name: &str| {
            let mut all = document.settings.iter();
            all.find(|setting| setting.name == name).expect(name).origin.to_string()
        };
        assert!(origin("nats.jobs_max").ends_with(":3"), "{}", origin("nats.jobs_max"));
        assert_eq!(origin("nats.host"), "flag --nats-host");
    }

    #[test]
    fn the_document_has_every_limit_under_one_name() {
        let document = document("[limits]\nkill_timeout_s = 7\n", Overrides::default());
        let json = serde_json::to_value(document).unwrap();
        let named = |name: &str| {
            let all = json["settings"].as_array().unwrap();
            all.iter().find(|setting| setting["name"] == name).expect(name).clone()
        };
        let kill = named("limits.kill_timeout_ms");
        assert_eq!((&kill["value"], &kill["origin"]["line"]), (&json!(7_000), &json!(2)));
        assert_eq!(kill["origin"]["kind"], "file");
        assert_eq!(named("limits.attempts_max")["origin"]["kind"], "default");
        assert_eq!(named("worker_bin")["value"], Value::Null);
    }
}
