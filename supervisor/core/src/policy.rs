//! The response to each fault: the defaults of `gridpool_protocol::fault`, with the overrides of the
//! config. Plain data.

use gridpool_protocol::fault::{FaultCode, OverrideError, Overrides, Response};
use gridpool_protocol::status::PolicyRule;

/// The one table of responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyTable {
    overrides: Overrides,
}

impl PolicyTable {
    /// Changes the response to a fault, both as they are written in the config file.
    ///
    /// # Errors
    /// [`OverrideError`] with what could be written instead.
    pub fn set(&mut self, fault: &str, response: &str) -> Result<(), OverrideError> {
        self.overrides.set(fault, response)
    }

    /// The response to a fault.
    #[must_use]
    pub fn response(&self, fault: FaultCode) -> Response {
        self.overrides.response(fault)
    }

    /// The response to a process that ended with `exit`, and perhaps named a fault before.
    ///
    /// The more specific rule decides: the config's for the fault, then the config's for the exit, then the
    /// default of the fault, then that of the exit. If the fault is one that a serving worker survives, the
    /// worker died of it at its start: then the exit code decides.
    #[must_use]
    pub fn response_to_exit(&self, exit: FaultCode, fault: Option<FaultCode>) -> Response {
        let replaces = |response: &Response| !response.keeps_worker();
        let configured = fault.and_then(|fault| self.overrides.get(fault)).filter(replaces);
        let default = || fault.map(FaultCode::default_response).filter(replaces);
        configured
            .or_else(|| self.overrides.get(exit))
            .or_else(default)
            .unwrap_or_else(|| exit.default_response())
    }

    /// Every fault with its response: those with a row of their own, then those that only the config names,
    /// then one row for all others of each family.
    #[must_use]
    pub fn rules(&self) -> Vec<PolicyRule> {
        let listed: Vec<_> = FaultCode::listed().collect();
        let unlisted = self.overrides.faults().filter(|fault| !listed.contains(fault));
        let named = listed.iter().copied().chain(unlisted).map(|fault| (fault, fault.to_string()));
        let others = FaultCode::others().map(|(fault, words)| (fault, words.to_owned()));
        let rule = |(fault, written): (FaultCode, String)| {
            let meaning = fault.meaning();
            PolicyRule {
                fault: written,
                name: meaning.name.into_owned(),
                class: meaning.class,
                response: self.response(fault),
                configured: self.overrides.get(fault).is_some(),
                meaning: meaning.sentence.to_owned(),
            }
        };
        named.chain(others).map(rule).collect()
    }

    /// The config's rules for faults without a row of their own, which may be mistakes.
    #[must_use]
    pub fn unlisted(&self) -> Vec<PolicyRule> {
        let is_listed = |fault| FaultCode::listed().any(|listed| listed == fault);
        let is_unlisted = |rule: &PolicyRule| {
            rule.configured && rule.fault.parse().is_ok_and(|fault| !is_listed(fault))
        };
        self.rules().into_iter().filter(is_unlisted).collect()
    }

    /// The overrides that a worker must know, as one argument of its command line; `None` if there are
    /// none.
    #[must_use]
    pub fn worker_argument(&self) -> Option<String> {
        let own = self.overrides.for_worker();
        (!own.is_empty()).then(|| own.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FaultCode::{Cuda, Exit, Signal};

    fn table(rules: &[(&str, &str)]) -> PolicyTable {
        let mut table = PolicyTable::default();
        rules.iter().for_each(|(fault, response)| table.set(fault, response).unwrap());
        table
    }

    #[test]
    fn an_override_takes_the_place_of_one_default_and_of_no_other() {
        let table =
            table(&[("cuda 2", "restart"), ("xid 109", "quarantine"), ("exit 74", "retry")]);
        let changed: Vec<_> = table.rules().into_iter().filter(|rule| rule.configured).collect();
        let changed: Vec<_> =
            changed.iter().map(|rule| (rule.fault.as_str(), rule.response.name())).collect();
        let want = [("cuda 2", "restart"), ("exit 74", "retry"), ("xid 109", "quarantine")];
        assert_eq!(changed, want);
        for rule in table.rules().iter().filter(|rule| !rule.configured) {
            let default = rule.fault.parse().map(FaultCode::default_response);
            assert_eq!(default.unwrap_or(rule.response), rule.response, "{}", rule.fault);
        }
        assert_eq!(table.worker_argument().as_deref(), Some("cuda 2=restart"));
        assert_eq!(PolicyTable::default().worker_argument(), None);
    }

    #[test]
    fn every_fault_is_in_the_table_once_even_if_only_the_config_names_it() {
        let rules = table(&[("cuda 5000", "retry"), ("exit 42", "halt")]).rules();
        let faults: std::collections::BTreeSet<_> = rules.iter().map(|rule| &rule.fault).collect();
        assert_eq!(faults.len(), rules.len());
        let family = |word: &str| rules.iter().filter(|rule| rule.fault.starts_with(word)).count();
        assert_eq!(family("cuda "), 105 + 1);
        assert_eq!(family("exit "), 8 + 1);
        assert_eq!(family("other "), 7);
        assert!(rules.iter().all(|rule| !rule.meaning.is_empty()));
    }

    #[test]
    fn a_rule_for_a_fault_without_a_row_is_reported_and_no_other_is() {
        let faults = ["cuda 700", "cuda 5000", "exit 42", "exit 74", "hang"];
        let unlisted = table(&faults.map(|fault| (fault, "restart"))).unlisted();
        let unlisted: Vec<_> = unlisted.iter().map(|rule| rule.fault.as_str()).collect();
        assert_eq!(unlisted, ["cuda 5000", "exit 42"]);
    }

    #[test]
    fn the_more_specific_rule_decides() {
        let plain = PolicyTable::default();
        assert_eq!(plain.response_to_exit(Exit(70), Some(Cuda(700))), Response::Suspect);
        assert_eq!(plain.response_to_exit(Exit(70), Some(Cuda(214))), Response::Restart);
        assert_eq!(plain.response_to_exit(Signal(11), None), Response::Suspect);
        // At its start a worker dies of a fault that it would survive later.
        assert_eq!(plain.response_to_exit(Exit(72), Some(Cuda(2))), Response::Restart);
        assert_eq!(plain.response_to_exit(Exit(73), Some(Cuda(218))), Response::Halt);
        let exits = table(&[("exit 70", "retry"), ("exit 72", "halt")]);
        assert_eq!(exits.response_to_exit(Exit(70), Some(Cuda(700))), Response::Retry);
        assert_eq!(exits.response_to_exit(Exit(72), Some(Cuda(2))), Response::Halt);
        let both =
            table(&[("exit 70", "retry"), ("cuda 700", "quarantine"), ("cuda 2", "fail_job")]);
        assert_eq!(both.response_to_exit(Exit(70), Some(Cuda(700))), Response::Quarantine);
        assert_eq!(both.response_to_exit(Exit(70), Some(Cuda(719))), Response::Retry);
        assert_eq!(both.response_to_exit(Exit(72), Some(Cuda(2))), Response::Restart);
    }
}
