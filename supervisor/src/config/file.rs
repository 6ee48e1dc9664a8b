//! The config file: TOML to settings, with the line of whatever is wrong.
//!
//! Owns the grammar of the file. May not know flags or defaults.

use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use gridpool_protocol::tensor::options::ModelPlan;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::limits::{self, Key};
use super::models;
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
}

/// Reads a config file. Paths in it are relative to its own folder.
pub(super) fn read(path: &Path) -> Result<FileSettings, ConfigError> {
    let unreadable = |reason: String| ConfigError::Unreadable { file: path.to_owned(), reason };
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| unreadable(error.to_string()))?;
    if text.len() as u64 > CONFIG_BYTES_MAX {
        return Err(unreadable(format!("it has more than {CONFIG_BYTES_MAX} bytes")));
    }
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    parse(&text, folder).map_err(|Misfit { at, reason }| ConfigError::File {
        file: path.to_owned(),
        line: 1 + text.bytes().take(at.start).filter(|&byte| byte == b'\n').count(),
        reason,
    })
}

/// A wrong place in the text.
struct Misfit {
    at: Range<usize>,
    reason: String,
}

fn parse(text: &str, folder: &Path) -> Result<FileSettings, Misfit> {
    let table = DeTable::parse(text).map_err(|error| Misfit {
        at: error.span().unwrap_or(0..0),
        reason: format!("not TOML: {}", error.message()),
    })?;
    let mut settings = FileSettings::default();
    for (key, value) in table.get_ref() {
        let misfit = |reason| Misfit { at: value.span(), reason };
        let text = || {
            let wrong = || misfit(format!("`{}` needs a text in quotes", key.get_ref()));
            value.get_ref().as_str().ok_or_else(wrong)
        };
        match key.get_ref().as_ref() {
            "devices" => {
                let devices = parse_devices(text()?).map_err(|error| misfit(error.to_string()))?;
                settings.devices = Some(devices);
            }
            "socket" => {
                let path = folder.join(text()?);
                check_socket(&path).map_err(misfit)?;
                settings.socket = Some(path);
            }
            "worker_bin" => settings.worker_bin = Some(folder.join(text()?)),
            "onnxruntime" => settings.onnxruntime = Some(folder.join(text()?)),
            "model" => {
                let tables = value.get_ref().as_array();
                let wrong = || misfit("a model is a table: [[model]]".into());
                for table in tables.ok_or_else(wrong)? {
                    let model = parse_model(table, folder)?;
                    if settings.models.iter().any(|other| other.name == model.name) {
                        let reason = format!("the model `{}` is there twice: keep one", model.name);
                        return Err(Misfit { at: table.span(), reason });
                    }
                    settings.models.push(model);
                }
            }
            "http" => settings.http = Some(parse_http(text()?).map_err(misfit)?),
            "allow_chaos" => {
                let wrong = || misfit("`allow_chaos` needs true or false".to_owned());
                settings.allow_chaos = Some(value.get_ref().as_bool().ok_or_else(wrong)?);
            }
            "limits" => {
                let limits = value.get_ref().as_table();
                let limits =
                    limits.ok_or_else(|| misfit("`limits` is a table: [limits]".into()))?;
                settings.limits = Some(parse_limits(limits, value.span())?);
            }
            "policy" => {
                let rules = value.get_ref().as_table();
                let rules = rules.ok_or_else(|| misfit("`policy` is a table: [policy]".into()))?;
                settings.policy = parse_policy(rules)?;
            }
            other => return Err(Misfit { at: key.span(), reason: unknown(other) }),
        }
    }
    Ok(settings)
}

fn parse_limits(table: &DeTable<'_>, at: Range<usize>) -> Result<PoolConfig, Misfit> {
    let mut config = PoolConfig::DEFAULT;
    let mut seen: Vec<&str> = Vec::new();
    for (name, value) in table {
        let misfit = |reason| Misfit { at: name.span(), reason };
        let key = Key::find(name.get_ref()).map_err(misfit)?;
        if seen.contains(&key.name()) {
            return Err(misfit(format!("`{0}` is set twice, as {0}_s and {0}_ms", key.name())));
        }
        seen.push(key.name());
        key.set(&mut config, whole_number(value.get_ref()))
            .map_err(|reason| misfit(format!("`{}` {reason}", name.get_ref())))?;
    }
    limits::check(&config).map_err(|reason| Misfit { at, reason })?;
    Ok(config)
}

/// One `[[model]]`, which is read again by itself.
fn parse_model(table: &Spanned<DeValue<'_>>, folder: &Path) -> Result<ModelPlan, Misfit> {
    let misfit = |reason| Misfit { at: table.span(), reason };
    let own = toml::Table::deserialize(ValueDeserializer::from(table.clone()));
    let own = own.map_err(|_| misfit("a model is a table: [[model]]".to_owned()))?;
    models::parse_table(own, folder).map_err(misfit)
}

fn parse_policy(table: &DeTable<'_>) -> Result<PolicyTable, Misfit> {
    let mut policy = PolicyTable::default();
    for (fault, response) in table {
        let text = response.get_ref().as_str().ok_or_else(|| Misfit {
            at: response.span(),
            reason: format!("`{}` needs a response in quotes: \"restart\"", fault.get_ref()),
        })?;
        policy
            .set(fault.get_ref(), text)
            .map_err(|error| Misfit { at: fault.span(), reason: error.to_string() })?;
    }
    Ok(policy)
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
        let error = read(&path).expect_err(text).to_string();
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
    fn a_file_that_is_too_large_or_nested_too_deeply_is_refused() {
        let huge = "#".repeat(1 + usize::try_from(CONFIG_BYTES_MAX).unwrap());
        assert!(error(&huge).ends_with("it has more than 1048576 bytes"));
        assert!(
            error(&format!("socket = {}", "[".repeat(100_000))).starts_with("line 1: not TOML")
        );
    }
}
