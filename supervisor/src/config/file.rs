//! The config file: TOML to settings, with the line of whatever is wrong.
//!
//! Owns the grammar of the file. May not know flags or defaults.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::tensor::options::ModelPlan;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::limits::{self, Key};
use super::models::{self, MODELS_MAX};
use super::origins::{Origin, Origins};
use super::{ConfigError, DeviceSelection, check_socket, parse_devices, parse_http};
use crate::pool::config::PoolConfig;
use crate::pool::policy::PolicyTable;

/// Largest config file that is read.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// What a config file says; what it leaves out is `None`.
#[derive(Debug, Default)]
pub(super) struct FileSettings {
    pub(super) devices: Option<Vec<DeviceSelection>>,
    pub(super) socket: Option<PathBuf>,
    pub(super) worker_bin: Option<PathBuf>,
    pub(super) http: Option<SocketAddr>,
    pub(super) allow_chaos: Option<bool>,
    pub(super) limits: Option<PoolConfig>,
    pub(super) policy: PolicyTable,
    pub(super) models: Vec<ModelPlan>,
    pub(super) onnxruntime: Option<PathBuf>,
    /// The line of each of these.
    pub(super) origins: Origins,
}

/// Reads a config file. Paths in it are relative to its own folder.
///
/// # Errors
/// Everything that is wrong with it, in the order of its lines; of a file that is no TOML that alone.
pub(super) fn read(path: &Path) -> Result<FileSettings, Vec<ConfigError>> {
    let unreadable =
        |reason: String| vec![ConfigError::Unreadable { file: path.to_owned(), reason }];
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| unreadable(error.to_string()))?;
    if text.len() as u64 > CONFIG_BYTES_MAX {
        return Err(unreadable(format!("it has more than {CONFIG_BYTES_MAX} bytes")));
    }
    parse(&text, path).map_err(|misfits| {
        let error = |Misfit { at, reason }| ConfigError::File {
            file: path.to_owned(),
            line: line(&text, &at),
            reason,
        };
        misfits.into_iter().map(error).collect()
    })
}

/// The line of a place in the text, from 1.
fn line(text: &str, at: &Range<usize>) -> usize {
    1 + text.bytes().take(at.start).filter(|&byte| byte == b'\n').count()
}

/// A wrong place in the text.
#[derive(Debug)]
struct Misfit {
    at: Range<usize>,
    reason: String,
}

fn parse(text: &str, file: &Path) -> Result<FileSettings, Vec<Misfit>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let not_toml = errors.iter().map(|error| Misfit {
        at: error.span().unwrap_or(0..0),
        reason: format!("not TOML: {}", error.message()),
    });
    let mut misfits: Vec<_> = not_toml.collect();
    // What is made of the rest of such a file need not be what was meant.
    if misfits.is_empty() {
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        let settings = FileSettings::default();
        let mut reader = Reader { text, file, folder, settings, misfits };
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

/// A config file that is being read.
struct Reader<'a> {
    text: &'a str,
    file: &'a Path,
    /// What paths are relative to.
    folder: &'a Path,
    settings: FileSettings,
    misfits: Vec<Misfit>,
}

impl Reader<'_> {
    fn note(&mut self, read: Result<(), Misfit>) {
        self.misfits.extend(read.err());
    }

    /// Remembers which line says so.
    fn came_from(&mut self, setting: impl Into<String>, at: &Range<usize>) {
        let (file, line) = (self.file.to_owned(), line(self.text, at));
        self.settings.origins.set(setting, Origin::File { file, line });
    }

    /// One key outside of all tables.
    fn take_in(
        &mut self,
        key: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), Misfit> {
        let folder = self.folder;
        let misfit = |reason| Misfit { at: value.span(), reason };
        let text = || {
            let wrong = || misfit(format!("`{}` needs a text in quotes", key.get_ref()));
            value.get_ref().as_str().ok_or_else(wrong)
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
                // Joined to its folder, an empty text would be that folder.
                let whole = if text.is_empty() { Path::new("") } else { &path };
                check_socket(whole).map_err(misfit)?;
                settings.socket = Some(path);
            }
            "worker_bin" => settings.worker_bin = Some(folder.join(text()?)),
            "onnxruntime" => settings.onnxruntime = Some(folder.join(text()?)),
            "http" => settings.http = Some(parse_http(text()?).map_err(misfit)?),
            "allow_chaos" => {
                let wrong = || misfit("`allow_chaos` needs true or false".to_owned());
                settings.allow_chaos = Some(value.get_ref().as_bool().ok_or_else(wrong)?);
            }
            "model" => {
                let tables = value.get_ref().as_array();
                let wrong = || misfit("a model is a table: [[model]]".into());
                for table in tables.ok_or_else(wrong)? {
                    self.take_in_model(table);
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
        // What is compared must be what was meant.
        if self.misfits.len() == misfits {
            let checked = limits::check(&config).map_err(|reason| Misfit { at, reason });
            self.note(checked);
        }
        self.settings.limits = Some(config);
    }

    /// One `[[model]]`, which is read again by itself.
    fn take_in_model(&mut self, table: &Spanned<DeValue<'_>>) {
        let own = toml::Table::deserialize(ValueDeserializer::from(table.clone()));
        let (Ok(own), Some(spans)) = (own, table.get_ref().as_table()) else {
            let reason = "a model is a table: [[model]]".to_owned();
            return self.misfits.push(Misfit { at: table.span(), reason });
        };
        let keys = spans.iter().map(|(key, _)| (key.get_ref().as_ref(), key.span()));
        let keys: BTreeMap<&str, Range<usize>> = keys.collect();
        let model = match models::parse_table(own, self.folder) {
            Ok(model) => model,
            Err(errors) => {
                let place = |key: Option<&str>| key.and_then(|key| keys.get(key)).cloned();
                let misfits = errors.into_iter().map(|models::FieldError { field, reason }| {
                    Misfit { at: place(field.as_deref()).unwrap_or_else(|| table.span()), reason }
                });
                return self.misfits.extend(misfits);
            }
        };
        let is_there = self.settings.models.iter().any(|other| other.name == model.name);
        let reason = match self.settings.models.len() {
            _ if is_there => format!("the model `{}` is there twice: keep one", model.name),
            MODELS_MAX => format!("one model too many: a pool has at most {MODELS_MAX}"),
            _ => {
                for (key, at) in keys {
                    self.came_from(format!("model.{}.{key}", model.name), &at);
                }
                return self.settings.models.push(model);
            }
        };
        self.misfits.push(Misfit { at: table.span(), reason });
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
            // The table prints a fault in one way, however its number was written here.
            if let Ok(code) = fault.get_ref().parse::<FaultCode>() {
                self.came_from(format!("policy.{code}"), &fault.span());
            }
        }
    }
}

fn whole_number(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn unknown(key: &str) -> String {
    if Key::find(key).is_ok() {
        return format!("`{key}` is a limit: write it under [limits]");
    }
    format!(
        "there is no setting `{key}`; the settings are devices, socket, worker_bin, http, \
         allow_chaos, onnxruntime, [[model]], [limits] and [policy]"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn error(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool.toml");
        fs::write(&path, text).unwrap();
        let error = read(&path).expect_err(text)[0].to_string();
        error.strip_prefix(&format!("{}, ", path.display())).unwrap_or(&error).to_owned()
    }

    #[test]
    fn limits_are_read_over_the_defaults() {
        let text = "[limits]\nattempts_max = 3\ncancel_grace_ms = 0\nqueue_bytes_max = 0x200_000";
        let Ok(settings) = parse(text, Path::new("")) else { panic!("refused") };
        let want = PoolConfig {
            attempts_max: 3,
            cancel_grace: Duration::ZERO,
            queue_bytes_max: 2 << 20,
            ..PoolConfig::DEFAULT
        };
        assert_eq!(settings.limits, Some(want));
    }

    #[test]
    fn a_policy_is_read_over_the_defaults() {
        let text = "[policy]\n\"cuda 2\" = \"restart\"\n\"xid 109\" = \"quarantine\"\n\
                    \"exit 74\" = \"restart\"\n\"signal 11\" = \"retry\"";
        let Ok(settings) = parse(text, Path::new("")) else { panic!("refused") };
        let response = |fault: &str| settings.policy.response(fault.parse().unwrap()).name();
        let read = ["cuda 2", "xid 109", "exit 74", "signal 11", "signal 6"].map(response);
        assert_eq!(read, ["restart", "quarantine", "restart", "retry", "suspect"]);
    }

    #[test]
    fn errors_name_the_line_and_say_what_to_write() {
        let cases = [
            ("devices = ", "line 1: not TOML: "),
            ("\n\ndevices = 0", "line 3: `devices` needs a text in quotes"),
            ("allow_chaos = 'yes'", "line 1: `allow_chaos` needs true or false"),
            ("device = '0'", "line 1: there is no setting `device`; the settings are devices,"),
            ("\nattempts_max = 1", "line 2: `attempts_max` is a limit: write it under [limits]"),
            ("\nsocket = ''", "line 2: the path of the socket is empty: name a file"),
            ("socket = '/tmp'", "line 1: /tmp is a folder: name a file in it, as /tmp/pool.sock"),
            ("socket = '/tmp/none/'", "line 1: /tmp/none/ is a folder: name a file in it"),
            ("socket = '.'", "line 1: /"),
            ("limits = 1", "line 1: `limits` is a table: [limits]"),
            ("[limits]\nattemps_max = 1", "line 2: there is no limit `attemps_max`; close to it:"),
            ("[limits]\nattempts_max = -1", "line 2: `attempts_max` needs a whole number from 1 "),
            ("[limits]\nattempts_max = 1.5", "line 2: `attempts_max` needs a whole number from 1 "),
            ("[limits]\nattempts_max = '1'", "line 2: `attempts_max` needs a whole number from 1 "),
            ("[limits]\nbackoff_min_s = 99", "line 1: backoff_min (99s) must not be above"),
            (
                "[limits]\nkill_timeout_s = 1\nkill_timeout_ms = 100",
                "line 2: `kill_timeout` is set twice, as kill_timeout_s and kill_timeout_ms",
            ),
            (
                "[[model]]\nname = 'm'\npath = 'a'\n[[model]]\nname = 'm'\npath = 'b'",
                "line 4: the model `m` is there twice: keep one",
            ),
            ("policy = 1", "line 1: `policy` is a table: [policy]"),
            ("[policy]\n'cuda 2' = 7", "line 2: `cuda 2` needs a response in quotes: \"restart\""),
            (
                "[policy]\n'cuda two' = 'restart'",
                "line 2: `cuda two` is no fault: write `cuda 700`",
            ),
            ("[policy]\n'cuda 2' = 'reboot'", "line 2: `reboot` is no response: write one of fail"),
            (
                "[policy]\n'exit 74' = 'halt'\n'cuda 700' = 'fail_job'",
                "line 3: `fail_job` cannot be the response to `cuda 700`; that can be suspect, ",
            ),
            ("[policy]\n'cuda 2' = 'halt'\n'cuda 2' = 'halt'", "line 3: not TOML: "),
            (
                "[policy]\n'cuda 700' = 'halt'\n'cuda 0700' = 'restart'",
                "line 2: `cuda 700` has two rules: keep one",
            ),
            ("socket = ''\n[limits]\nattempts_max = 1\nattempts_max = 2", "line 4: not TOML: "),
        ];
        for (text, want) in cases {
            let error = error(text);
            assert!(error.starts_with(want), "{text}: {error}");
        }
    }

    #[test]
    fn every_error_is_told_in_the_order_of_the_lines() {
        let text = "http = '1'\n[limits]\nattempts_max = 0\nqueue_jobs = 1\n[[model]]\n\
                    name = 'm'\npath = 1\n[policy]\n'hang' = 'reboot'\n'cuda' = 'halt'\n\
                    [[model]]\nname = 'n'\npath = 'n.onnx'\ncontexts = 'four'\ntf23 = true";
        let misfits = parse(text, Path::new("")).expect_err(text);
        let told: Vec<_> =
            misfits.iter().map(|Misfit { at, reason }| (line(text, at), &**reason)).collect();
        let want = [
            (1, "`1` is no address and port"),
            (3, "`attempts_max` needs a whole number"),
            (4, "there is no limit `queue_jobs`"),
            (7, "`path` of a model needs a text in quotes"),
            (9, "`reboot` is no response"),
            (10, "`cuda` is no fault"),
            (14, "`contexts` of the model `n` needs a whole number"),
            (15, "the model `n` has no field `tf23`; the fields are name, path, contexts,"),
        ];
        assert_eq!(told.len(), want.len(), "{told:#?}");
        for ((line, reason), (want_line, want)) in told.iter().zip(want) {
            assert_eq!(*line, want_line, "{reason}");
            assert!(reason.starts_with(want), "{reason}");
        }
        let broken = "devices =\n[limits]\nattempts_max = 0\nsocket = =";
        let misfits = parse(broken, Path::new("")).expect_err(broken);
        assert!(misfits.iter().all(|misfit| misfit.reason.starts_with("not TOML: ")));
        assert_eq!(misfits.len(), 2, "both of them, and nothing that may come of them");
    }

    #[test]
    fn a_file_that_is_too_large_or_nested_too_deeply_is_refused() {
        let huge = "#".repeat(1 + usize::try_from(CONFIG_BYTES_MAX).unwrap());
        assert!(error(&huge).ends_with("it has more than 1048576 bytes"));
        assert!(
            error(&format!("socket = {}", "[".repeat(100_000))).starts_with("line 1: not TOML")
        );
    }
}
