//! Checks a config file without starting a pool.

use std::path::Path;

use gridpool_core::config::PoolConfig;

use super::{ConfigError, Named, Origin, Overrides, check_models, file, http, idle, pipelines};

/// A config file without errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The number of its settings.
    pub settings: usize,
    /// Warnings, in the order of the lines.
    pub warnings: Vec<String>,
}

/// Checks a config file, and that the files that it names exist.
///
/// # Errors
/// Every [`ConfigError`] in it, in the order of its lines, at least one.
pub fn check_file(file: &Path) -> Result<Checked, Vec<ConfigError>> {
    let mut settings = file::read(file, Named::MustBeThere)?;
    let found = pipelines::find_models(&mut settings.models, &settings.origins);
    found.map_err(|error| vec![error])?;
    let limits = settings.limits.as_ref().unwrap_or(&PoolConfig::DEFAULT);
    let checked = check_models(&settings.models, limits, &Overrides::default(), &settings.origins);
    checked.map_err(|error| vec![error])?;
    let unlisted = settings.policy.unlisted().into_iter().map(|rule| {
        let fault = &rule.fault;
        let reason = format!(
            "the fault `{fault}` is in no table; the rule is valid, but may be a typing error: `gridpool \
             status --policy` lists the faults"
        );
        (format!("policy.{fault}"), reason)
    });
    let options = &settings.http_options;
    let lets_all_in = options.tokens.is_none() && !options.is_insecure();
    let places = [("http", &settings.http), ("grpc", &settings.grpc)].into_iter();
    let open = places.filter_map(|(setting, place)| {
        let place = place.as_ref().filter(|place| lets_all_in && !place.is_local())?;
        let reason = format!(
            "everyone who reaches {place} could run jobs: `serve` refuses that without `http_tokens` or `insecure`"
        );
        Some((setting.to_owned(), reason))
    });
    let is_served = settings.http.is_some() || settings.grpc.is_some();
    let idle = idle::in_file(is_served, options, &settings.trace);
    let group = http::idle_group(options, (&settings.http, &settings.grpc));
    let group = group.map(|why| ("http_group".to_owned(), why.to_owned()));
    let mut warnings = Vec::new();
    for (setting, reason) in unlisted.chain(open).chain(idle).chain(group) {
        if let Origin::File { file, line } = settings.origins.of(&setting) {
            let text = format!("{}, line {line}: warning: {reason}", file.display());
            warnings.push((*line, text));
        }
    }
    warnings.sort();
    let warnings = warnings.into_iter().map(|(_, text)| text).collect();
    Ok(Checked { settings: settings.origins.set_count(), warnings })
}
