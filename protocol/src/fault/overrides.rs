//! Responses that a config changes. They are checked when the config is read, not when a fault occurs.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::{FaultCode, ParseFaultError, ParseResponseError, Response};

/// Responses that replace the defaults. As text: `cuda 2=restart,exit 74=halt`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides(BTreeMap<FaultCode, Response>);

/// Why a response cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// The text does not name a fault.
    #[error(transparent)]
    Fault(#[from] ParseFaultError),
    /// The fault cannot have this response.
    #[error(
        "`{response}` cannot be the response to `{fault}`; that can be {}",
        fault.allowed().iter().map(|response| response.name()).collect::<Vec<_>>().join(", ")
    )]
    NotAllowed {
        /// The fault.
        fault: FaultCode,
        /// The response.
        response: Response,
    },
    /// The text does not name a response.
    #[error(transparent)]
    Response(#[from] ParseResponseError),
    /// The fault has two rules, perhaps under different spellings of its number.
    #[error("`{0}` has two rules: keep one")]
    Twice(FaultCode),
    /// There is no `=`.
    #[error("`{0}` is not a rule: write `cuda 2=restart`")]
    Rule(String),
}

impl Overrides {
    /// Changes the response to a fault.
    ///
    /// # Errors
    /// [`OverrideError`] if a text is wrong, if the fault cannot have the response, or if it was changed before.
    pub fn set(&mut self, fault: &str, response: &str) -> Result<(), OverrideError> {
        let fault: FaultCode = fault.parse()?;
        let response: Response = response.parse()?;
        if !fault.allowed().contains(&response) {
            return Err(OverrideError::NotAllowed { fault, response });
        }
        match self.0.insert(fault, response) {
            None => Ok(()),
            Some(_) => Err(OverrideError::Twice(fault)),
        }
    }

    /// The response to a fault, if it was changed.
    #[must_use]
    pub fn get(&self, fault: FaultCode) -> Option<Response> {
        self.0.get(&fault).copied()
    }

    /// The response to a fault.
    #[must_use]
    pub fn response(&self, fault: FaultCode) -> Response {
        self.get(fault).unwrap_or_else(|| fault.default_response())
    }

    /// Every fault whose response was changed, in ascending order.
    pub fn faults(&self) -> impl Iterator<Item = FaultCode> {
        self.0.keys().copied()
    }

    /// The overrides that a worker needs, since it decides itself whether to end.
    #[must_use]
    pub fn for_worker(&self) -> Self {
        let own = self.0.iter().filter(|(fault, _)| fault.is_met_by_worker());
        Self(own.map(|(&fault, &response)| (fault, response)).collect())
    }

    /// Whether there are no overrides.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        self.0.iter().try_for_each(|(fault, response)| {
            write!(f, "{comma}{fault}={response}")?;
            comma = ",";
            Ok(())
        })
    }
}

impl FromStr for Overrides {
    type Err = OverrideError;

    fn from_str(text: &str) -> Result<Self, OverrideError> {
        let mut overrides = Self::default();
        for rule in text.split(',').filter(|rule| !rule.is_empty()) {
            let (fault, response) =
                rule.split_once('=').ok_or_else(|| OverrideError::Rule(rule.to_owned()))?;
            overrides.set(fault, response)?;
        }
        Ok(overrides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_read_back_as_they_print_and_a_worker_gets_its_own() {
        let text = "cuda 2=restart,cuda 5000=retry,exit 74=halt,hang=retry,xid 109=quarantine";
        let overrides: Overrides = text.parse().unwrap();
        assert_eq!(overrides.to_string(), text);
        assert_eq!(overrides.for_worker().to_string(), "cuda 2=restart,cuda 5000=retry");
        assert_eq!(overrides.response(FaultCode::Cuda(2)), Response::Restart);
        assert_eq!(overrides.response(FaultCode::Cuda(3)), FaultCode::Cuda(3).default_response());
        assert!("".parse::<Overrides>().unwrap().is_empty());
    }

    #[test]
    fn a_response_that_cannot_be_is_refused_with_what_can_be() {
        let refused = |rule: &str| rule.parse::<Overrides>().expect_err(rule).to_string();
        assert_eq!(
            refused("cuda 700=retry_job"),
            "`retry_job` cannot be the response to `cuda 700`; that can be suspect, retry, restart, \
             quarantine, halt"
        );
        assert!(refused("signal 11=fail_job").contains("cannot be the response to `signal 11`"));
        assert!(refused("xid 79=suspect").ends_with("quarantine, halt"));
        assert!(refused("unkillable=halt").ends_with("that can be quarantine"));
        assert!(refused("no binary=restart").ends_with("that can be quarantine, halt"));
        assert!(refused("cuda 2=reboot").starts_with("`reboot` is not a response: write one of"));
        assert!(refused("cuda two=restart").starts_with("`cuda two` is not a fault: write"));
        assert_eq!(refused("cuda 2"), "`cuda 2` is not a rule: write `cuda 2=restart`");
        assert_eq!(
            refused("other signal=retry"),
            "`other signal` is not a fault: write each number, as `signal 42`; a rule cannot \
             cover all other numbers"
        );
        let twice = refused("cuda 700=restart,cuda 0700=halt");
        assert_eq!(twice, "`cuda 700` has two rules: keep one");
    }
}
