//! SIGHUP: reads the settings of `serve` again, and changes what a running pool can change.

use std::path::{Component, Path, PathBuf};
use std::{env, io};

use gridpool_protocol::chain::Chain;

use super::error::{CommandError, system};
use super::flags::ServeFlags;
use crate::config::{
    ConfigError, HttpOptions, Overrides, Settings, StateDir, UNIX, UserOptions, list_limits,
    quotas_of,
};
use crate::shell::Shell;

/// The settings of a running pool, and where they come from.
#[derive(Debug)]
pub(super) struct Reloader {
    overrides: Overrides,
    file: Option<PathBuf>,
    running: Settings,
}

impl Reloader {
    /// Reads the settings for the first time. The paths of sockets and of the config are absolute from then on: the
    /// current folder may be removed while the pool runs.
    pub(super) fn new(flags: &ServeFlags) -> Result<Self, CommandError> {
        let absolute = |path: &Path| absolute(path).map_err(system("the current folder"));
        let file = flags.config().map(absolute).transpose()?;
        let mut overrides = flags.overrides();
        overrides.socket = overrides.socket.as_deref().map(absolute).transpose()?;
        let is_folder =
            |path: &&PathBuf| StateDir::parse(path, Path::new("")) != Ok(StateDir::Nowhere);
        if let Some(folder) = overrides.state_dir.as_ref().filter(is_folder) {
            overrides.state_dir = Some(absolute(folder)?);
        }
        for address in [&mut overrides.http, &mut overrides.grpc] {
            if let Some(path) = address.as_deref().and_then(|at| at.strip_prefix(UNIX)) {
                *address = Some(format!("{UNIX}{}", absolute(Path::new(path))?.display()));
            }
        }
        let running = Settings::of_serve(overrides.clone(), file.as_deref())?;
        Ok(Self { overrides, file, running })
    }

    /// The settings that the pool runs with.
    pub(super) fn running(&self) -> &Settings {
        &self.running
    }

    /// Reads the settings again, and says in the log what has changed and what has not.
    pub(super) fn reload(&mut self, shell: &Shell) {
        match Settings::of_serve(self.overrides.clone(), self.file.as_deref()) {
            Ok(wanted) => self.go_on_with(wanted, shell),
            Err(error) => Self::refuse(&error),
        }
    }

    fn refuse(error: &ConfigError) {
        tracing::error!(%error, "SIGHUP: the config is wrong, and the pool goes on as it was");
    }

    /// Whom HTTP admits from now on. The group of a Unix socket and shared memory stay.
    fn admit(wanted: &Settings, before: &Settings, shell: &Shell) -> HttpOptions {
        let HttpOptions { group, shared_memory, .. } = before.http_options.clone();
        let options = HttpOptions { group, shared_memory, ..wanted.http_options.clone() };
        match shell.reload_http(&options) {
            Ok(_) => options,
            Err(error) => {
                let error = Chain(&error);
                tracing::error!(%error, "SIGHUP: HTTP admits the same clients as before");
                before.http_options.clone()
            }
        }
    }

    fn go_on_with(&mut self, wanted: Settings, shell: &Shell) {
        let before = self.running.clone();
        let limits = wanted.limits.clone().over(&before.limits);
        let Settings { policy, quotas, allow_chaos, onnxruntime, .. } = wanted.clone();
        let http_options = Self::admit(&wanted, &before, shell);
        let operators = wanted.users.operators.clone();
        let users = UserOptions { operators, ..before.users.clone() };
        let settings = before.clone();
        self.running = Settings {
            limits,
            policy,
            quotas,
            users,
            allow_chaos,
            onnxruntime,
            http_options,
            ..settings
        };
        let changed = differences(&before, &self.running);
        let fixed = differences(&self.running, &wanted);
        if !changed.is_empty() {
            let Settings { limits, policy, onnxruntime, .. } = self.running.clone();
            shell.allow_chaos(allow_chaos);
            shell.set_users(&self.running.users, quotas_of(&self.running.quotas));
            shell.reconfigure(limits, policy, onnxruntime);
        }
        match changed.is_empty() {
            true => tracing::info!("SIGHUP: nothing changes"),
            false => {
                tracing::info!(changed = changed.join(", "), "SIGHUP: the config is read again")
            }
        }
        if !fixed.is_empty() {
            let fixed = fixed.join(", ");
            tracing::warn!(fixed, "SIGHUP: these settings change only when the pool starts again");
        }
    }
}

/// A path from the root. Only `..` at the start is resolved: behind a name it may lead out of a link.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    // An empty one is refused where it is read.
    if path.is_absolute() || path.as_os_str().is_empty() {
        return Ok(path.to_owned());
    }
    let mut folder = env::current_dir()?;
    let mut rest = path.components();
    loop {
        let left = rest.as_path();
        match rest.next() {
            Some(Component::CurDir) => {}
            Some(Component::ParentDir) => drop(folder.pop()),
            Some(Component::Normal(_) | Component::Prefix(_) | Component::RootDir) | None => {
                return Ok(folder.join(left));
            }
        }
    }
}

/// The names of the settings that differ.
fn differences(one: &Settings, other: &Settings) -> Vec<String> {
    let limits = list_limits(&one.limits).into_iter().zip(list_limits(&other.limits));
    let limits = limits.filter(|(one, other)| one != other);
    let limits = limits.map(|(limit, _)| limit.key());
    let others = [
        ("devices", one.devices == other.devices),
        ("socket", one.socket == other.socket),
        ("worker_bin", one.worker_bin == other.worker_bin),
        ("http", one.http == other.http),
        ("grpc", one.grpc == other.grpc),
        ("http_host", one.http_options.hosts == other.http_options.hosts),
        ("http_origin", one.http_options.origins == other.http_options.origins),
        ("http_tokens", one.http_options.tokens == other.http_options.tokens),
        ("http_cert", one.http_options.cert == other.http_options.cert),
        ("http_key", one.http_options.key == other.http_options.key),
        ("http_group", one.http_options.group == other.http_options.group),
        ("insecure", one.http_options.is_insecure() == other.http_options.is_insecure()),
        ("access_log", one.http_options.logs_access() == other.http_options.logs_access()),
        (
            "shared_memory",
            one.http_options.has_shared_memory() == other.http_options.has_shared_memory(),
        ),
        ("trace", one.trace.asked() == other.trace.asked()),
        ("allow_chaos", one.allow_chaos == other.allow_chaos),
        ("onnxruntime", one.onnxruntime == other.onnxruntime),
        ("model_repository", one.repository == other.repository),
        ("sandbox", one.sandbox == other.sandbox),
        ("sandbox_write", one.sandbox_write == other.sandbox_write),
        ("state_dir", one.state_dir == other.state_dir),
        ("capsules", one.capsules == other.capsules),
        ("nats", one.nats == other.nats),
        ("policy", one.policy == other.policy),
        ("quota", one.quotas == other.quotas),
        ("operators", one.users.operators == other.users.operators),
        ("socket_group", one.users.group == other.users.group),
        ("socket_mode", one.users.mode == other.users.mode),
        ("model (use `gridpool model load` and `unload`)", one.models == other.models),
    ];
    let others = others.into_iter().filter(|(_, is_same)| !is_same);
    others.map(|(name, _)| name.to_owned()).chain(limits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_and_keeps_what_may_be_a_link() {
        let here = env::current_dir().unwrap();
        let above = here.parent().unwrap();
        for (path, want) in [
            ("/a/../b", PathBuf::from("/a/../b")),
            ("a/../b", here.join("a/../b")),
            ("./p.sock", here.join("p.sock")),
            ("../p.sock", above.join("p.sock")),
            (".././x/p.sock", above.join("x/p.sock")),
            ("", PathBuf::new()),
        ] {
            assert_eq!(absolute(Path::new(path)).unwrap().as_os_str(), want.as_os_str());
        }
    }
}
