//! The config file: parses TOML to settings, with the line of every error.
//!
//! Owns the grammar of the file. May not know flags or defaults.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::sandbox::SandboxMode;
use gridpool_protocol::tensor::options::ModelPlan;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::limits::{self, Key};
use super::origins::{Origin, Origins};
use super::quotas::WrittenQuota;
use super::{
    CapsuleKeys, ConfigError, DeviceSelection, HttpAddress, HttpOptions, NatsKeys, StateDir,
    TraceOptions, UserOptions, check_socket, http, parse_devices, users,
};
use crate::repository::RepositoryMode;
use crate::traces::{Headers, Sample};
use gridpool_core::config::PoolConfig;
use gridpool_core::policy::PolicyTable;

mod models;
mod text;

use text::line;
pub(crate) use text::open;

/// The settings of a config file; `None` is not set.
#[derive(Debug, Default)]
pub(super) struct FileSettings {
    pub(super) devices: Option<Vec<DeviceSelection>>,
    pub(super) socket: Option<PathBuf>,
    pub(super) worker_bin: Option<PathBuf>,
    pub(super) http: Option<HttpAddress>,
    pub(super) grpc: Option<HttpAddress>,
    pub(super) http_options: HttpOptions,
    pub(super) trace: TraceOptions,
    pub(super) allow_chaos: Option<bool>,
    pub(super) limits: Option<PoolConfig>,
    pub(super) policy: PolicyTable,
    pub(super) models: Vec<ModelPlan>,
    pub(super) model_repository: Option<PathBuf>,
    pub(super) repository: Option<RepositoryMode>,
    pub(super) onnxruntime: Option<PathBuf>,
    pub(super) sandbox: Option<SandboxMode>,
    pub(super) sandbox_write: Vec<PathBuf>,
    pub(super) users: UserOptions,
    pub(super) quotas: Vec<WrittenQuota>,
    pub(super) state_dir: Option<StateDir>,
    pub(super) capsules: CapsuleKeys,
    pub(super) nats: NatsKeys,
    /// The line of each setting.
    pub(super) origins: Origins,
}

/// Whether the files that a config file names must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// They must exist.
    MustBeThere,
    /// They need not: a flag may name others, and opening a missing file is an error anyway.
    NeedNotBe,
}

/// Reads a config file. Paths in it are relative to its own folder.
///
/// # Errors
/// All errors in the order of their lines. If the file is not TOML, only the errors of its syntax.
pub(super) fn read(path: &Path, named: Named) -> Result<FileSettings, Vec<ConfigError>> {
    let text = text::read(path)?;
    parse(&text, path, named).map_err(|misfits| {
        let error = |Misfit { at, reason }| ConfigError::File {
            file: path.to_owned(),
            line: line(text.as_bytes(), &at),
            reason,
        };
        misfits.into_iter().map(error).collect()
    })
}

/// An error in the text.
#[derive(Debug)]
struct Misfit {
    at: Range<usize>,
    reason: String,
}

fn parse(text: &str, file: &Path, named: Named) -> Result<FileSettings, Vec<Misfit>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let not_toml = errors.iter().map(|error| Misfit {
        at: error.span().unwrap_or(0..0),
        reason: format!("not TOML: {}", error.message()),
    });
    let mut misfits: Vec<_> = not_toml.collect();
    // After a syntax error the parser may misread the rest, so report nothing else.
    if misfits.is_empty() {
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        let settings = FileSettings::default();
        let models = Vec::new();
        let mut reader = FileParser { text, file, folder, named, models, settings, misfits };
        for (key, value) in table.get_ref() {
            let read = reader.take_in(key, value);
            reader.note(read);
        }
        if reader.misfits.is_empty() {
            return Ok(reader.settings);
        }
        misfits = reader.misfits;
    }
    misfits.sort_by_key(|misfit| misfit.at.start);
    Err(misfits)
}

/// The parser of a config file.
struct FileParser<'a> {
    text: &'a str,
    file: &'a Path,
    /// The folder of relative paths.
    folder: &'a Path,
    named: Named,
    /// The names of the models so far, also of models with errors.
    models: Vec<String>,
    settings: FileSettings,
    misfits: Vec<Misfit>,
}

impl FileParser<'_> {
    fn note(&mut self, read: Result<(), Misfit>) {
        self.misfits.extend(read.err());
    }

    /// Checks that a file exists; `remedy` is what to do if it does not.
    fn names_file(&mut self, path: &Path, at: &Range<usize>, remedy: &str) {
        if self.named == Named::MustBeThere && !path.is_file() {
            let reason = format!("there is no file {}: {remedy}", path.display());
            self.misfits.push(Misfit { at: at.clone(), reason });
        }
    }

    /// Records the line of a setting.
    fn came_from(&mut self, setting: impl Into<String>, at: &Range<usize>) {
        let (file, line) = (self.file.to_owned(), line(self.text.as_bytes(), at));
        self.settings.origins.set(setting, Origin::File { file, line });
    }

    /// Reads a key outside of all tables.
    fn take_in(
        &mut self,
        key: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), Misfit> {
        let folder = self.folder;
        let misfit = |reason| Misfit { at: value.span(), reason };
        let text = || {
            let wrong = || misfit(format!("`{}` needs a text in quotes", key.get_ref()));
            let text = value.get_ref().as_str().ok_or_else(wrong)?;
            let has_nul =
                || misfit(format!("`{}` has a NUL character: leave it out", key.get_ref()));
            if text.contains('\0') { Err(has_nul()) } else { Ok(text) }
        };
        let texts = || match value.get_ref().as_array() {
            None => Ok(vec![text()?]),
            Some(list) => {
                let all = list.iter().map(|one| one.get_ref().as_str());
                let all = all.map(|text| text.filter(|text| !text.contains('\0')));
                all.collect::<Option<_>>()
                    .ok_or_else(|| misfit(format!("`{}` needs texts in quotes", key.get_ref())))
            }
        };
        let truth = || {
            let wrong = || misfit(format!("`{}` needs true or false", key.get_ref()));
            value.get_ref().as_bool().ok_or_else(wrong)
        };
        let table =
            |reason: &str| value.get_ref().as_table().ok_or_else(|| misfit(reason.to_owned()));
        let settings = &mut self.settings;
        match key.get_ref().as_ref() {
            "devices" => {
                let devices = parse_devices(text()?).map_err(|error| misfit(error.to_string()))?;
                settings.devices = Some(devices);
            }
            "socket" => {
                let text = text()?;
                let path = folder.join(text);
                // Joined to the folder, an empty path would name the folder.
                let whole = if text.is_empty() { Path::new("") } else { &path };
                check_socket(whole).map_err(misfit)?;
                settings.socket = Some(path);
            }
            "worker_bin" => {
                let path = folder.join(text()?);
                let remedy = "build it, or leave this out for the gridpool-worker beside gridpool";
                self.names_file(&path, &key.span(), remedy);
                self.settings.worker_bin = Some(path);
            }
            "onnxruntime" => {
                let path = folder.join(text()?);
                let remedy = "leave this out for ORT_DYLIB_PATH, then the usual places";
                self.names_file(&path, &key.span(), remedy);
                self.settings.onnxruntime = Some(path);
            }
            "model_repository" => settings.model_repository = Some(folder.join(text()?)),
            "repository" => {
                settings.repository = Some(text()?.parse().map_err(|e| misfit(format!("{e}")))?);
            }
            "sandbox" => {
                settings.sandbox = Some(text()?.parse().map_err(|e| misfit(format!("{e}")))?);
            }
            "sandbox_write" => {
                let paths = Vec::<String>::deserialize(ValueDeserializer::from(value.clone()));
                let wrong = |_| misfit("`sandbox_write` needs a list of texts".to_owned());
                let paths = paths.map_err(wrong)?.into_iter();
                settings.sandbox_write = paths.map(|path| folder.join(path)).collect();
            }
            "socket_group" => {
                settings.users.group = Some(users::parse_group(text()?).map_err(misfit)?);
            }
            "socket_mode" => {
                settings.users.mode = Some(users::parse_mode(text()?).map_err(misfit)?)
            }
            "operators" => {
                settings.users.operators = users::parse_operators(texts()?).map_err(misfit)?;
            }
            name @ ("http" | "grpc") => {
                let address = HttpAddress::parse(text()?).map_err(misfit)?.below(folder);
                let place = if name == "http" { &mut settings.http } else { &mut settings.grpc };
                *place = Some(address);
            }
            "http_host" => {
                settings.http_options.hosts = http::parse_hosts(texts()?).map_err(misfit)?
            }
            "http_origin" => {
                settings.http_options.origins = http::parse_origins(texts()?).map_err(misfit)?;
            }
            "http_group" => settings.http_options.group = Some(text()?.to_owned()),
            "http_tokens" | "http_cert" | "http_key" => {
                let path = folder.join(text()?);
                let options = &mut settings.http_options;
                let (place, remedy) = match key.get_ref().as_ref() {
                    "http_tokens" => (&mut options.tokens, "`gridpool token new` makes its lines"),
                    "http_cert" => (&mut options.cert, "name a PEM file of certificates"),
                    _ => (&mut options.key, "name the PEM file of the certificate's key"),
                };
                *place = Some(path.clone());
                self.names_file(&path, &key.span(), remedy);
            }
            "state_dir" => {
                let state_dir = StateDir::parse(Path::new(text()?), folder).map_err(misfit)?;
                settings.state_dir = Some(state_dir);
            }
            "capsules" => settings.capsules = CapsuleKeys::read(value.get_ref()).map_err(misfit)?,
            "nats" => match NatsKeys::read(value, folder, self.named == Named::MustBeThere) {
                Ok(keys) => {
                    settings.nats = keys;
                    match value.get_ref().as_table() {
                        None => self.came_from("nats.servers", &key.span()),
                        Some(table) => table.iter().for_each(|(name, _)| {
                            self.came_from(format!("nats.{}", name.get_ref()), &name.span());
                        }),
                    }
                    return Ok(());
                }
                Err(wrong) => {
                    let misfits = wrong.into_iter().map(|(at, reason)| Misfit { at, reason });
                    self.misfits.extend(misfits);
                    return Ok(());
                }
            },
            "insecure" => settings.http_options.insecure = Some(truth()?),
            "access_log" => settings.http_options.access_log = Some(truth()?),
            "shared_memory" => settings.http_options.shared_memory = Some(truth()?),
            "trace" => settings.trace.collector = Some(text()?.parse().map_err(misfit)?),
            "trace_sample" => {
                let ratio = number(value.get_ref()).unwrap_or(f64::NAN);
                settings.trace.sample = Some(Sample::new(ratio).map_err(misfit)?);
            }
            "traces" => {
                settings.trace.headers = Headers::of_table(value.get_ref()).map_err(misfit)?
            }
            "allow_chaos" => settings.allow_chaos = Some(truth()?),
            "model" => {
                let tables = value.get_ref().as_array();
                let wrong = || misfit("a model is a table: [[model]]".into());
                for table in tables.ok_or_else(wrong)? {
                    self.take_in_model(table);
                }
                return Ok(());
            }
            "pipeline" => {
                let tables = value.get_ref().as_array();
                let wrong = || misfit("a pipeline is a table: [[pipeline]]".into());
                for table in tables.ok_or_else(wrong)? {
                    self.take_in_pipeline(table);
                }
                return Ok(());
            }
            "limits" => {
                self.take_in_limits(table("`limits` is a table: [limits]")?, value.span());
                return Ok(());
            }
            "policy" => {
                self.take_in_policy(table("`policy` is a table: [policy]")?);
                return Ok(());
            }
            "quota" => {
                self.take_in_quotas(table("`quota` is a table: [quota]")?);
                return Ok(());
            }
            other => return Err(Misfit { at: key.span(), reason: unknown(other) }),
        }
        self.came_from(key.get_ref().as_ref(), &key.span());
        Ok(())
    }

    fn take_in_limits(&mut self, table: &DeTable<'_>, at: Range<usize>) {
        let mut config = PoolConfig::DEFAULT;
        let mut seen: Vec<&str> = Vec::new();
        let misfits = self.misfits.len();
        for (name, value) in table {
            let set = Key::find(name.get_ref()).and_then(|key| {
                if seen.contains(&key.name()) {
                    return Err(format!("`{0}` is set twice, as {0}_s and {0}_ms", key.name()));
                }
                seen.push(key.name());
                key.set(&mut config, whole_number(value.get_ref()))
                    .map_err(|reason| format!("`{}` {reason}", name.get_ref()))?;
                Ok(key)
            });
            match set {
                Ok(key) => self.came_from(format!("limits.{}", key.name()), &name.span()),
                Err(reason) => self.misfits.push(Misfit { at: name.span(), reason }),
            }
        }
        // Compares limits only if all of them are right.
        if self.misfits.len() == misfits {
            for limits::Clash { limits, reason } in limits::check(&config) {
                let is_of = |key: &str| Key::find(key).is_ok_and(|k| limits.contains(&k.name()));
                let lines = table.iter().map(|(key, _)| key).filter(|key| is_of(key.get_ref()));
                // The later line of the two.
                let last = lines.map(Spanned::span).max_by_key(|place| place.start);
                self.misfits.push(Misfit { at: last.unwrap_or_else(|| at.clone()), reason });
            }
        }
        self.settings.limits = Some(config);
    }

    fn take_in_quotas(&mut self, table: &DeTable<'_>) {
        for (who, limits) in table {
            let needs = format!("`{}` needs limits in quotes: \"jobs=100\"", who.get_ref());
            let read = match limits.get_ref().as_str() {
                None => Err(Misfit { at: limits.span(), reason: needs }),
                Some(text) => WrittenQuota::parse(who.get_ref(), text)
                    .map_err(|reason| Misfit { at: who.span(), reason }),
            };
            let read = read.map(|quota| {
                self.came_from(format!("quota.{}", quota.who), &who.span());
                self.settings.quotas.push(quota);
            });
            self.note(read);
        }
    }

    fn take_in_policy(&mut self, table: &DeTable<'_>) {
        for (fault, response) in table {
            let set = response.get_ref().as_str().map_or_else(
                || {
                    let name = fault.get_ref();
                    let reason = format!("`{name}` needs a response in quotes: \"restart\"");
                    Err(Misfit { at: response.span(), reason })
                },
                |text| {
                    let set = self.settings.policy.set(fault.get_ref(), text);
                    set.map_err(|error| Misfit { at: fault.span(), reason: error.to_string() })
                },
            );
            self.note(set);
            // The policy's table has only one form of a fault's number.
            if let Ok(code) = fault.get_ref().parse::<FaultCode>() {
                self.came_from(format!("policy.{code}"), &fault.span());
            }
        }
    }
}

/// A number, with or without a fraction.
fn number(value: &DeValue<'_>) -> Option<f64> {
    let fraction = value.as_float().and_then(|fraction| fraction.as_str().parse().ok());
    #[expect(clippy::cast_precision_loss, reason = "large ones are refused anyway")]
    fraction.or_else(|| whole_number(value).map(|whole| whole as f64))
}

pub(super) fn whole_number(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn unknown(key: &str) -> String {
    if Key::find(key).is_ok() {
        return format!("`{key}` is a limit: write it under [limits]");
    }
    // The flag has this name.
    let plural = format!("{key}s");
    if Key::find(&plural).is_ok() {
        return format!("there is no setting `{key}`: write {plural} under [limits]");
    }
    format!(
        "there is no setting `{key}`; the settings are devices, socket, worker_bin, http, \
         grpc, http_host, http_origin, http_tokens, http_cert, http_key, http_group, insecure, access_log, \
         shared_memory, trace, trace_sample, allow_chaos, \
         model_repository, repository, onnxruntime, sandbox, sandbox_write, socket_group, socket_mode, operators, \
         state_dir, [[model]], [[pipeline]], [limits], \
         [nats], [capsules], [traces], [policy] and [quota]"
    )
}

#[cfg(test)]
mod tests;
