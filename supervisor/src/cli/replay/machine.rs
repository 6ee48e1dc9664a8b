//! What is another on this machine than on that of a capsule: the build and its kernels, the driver, the device.

use std::path::Path;

use gridpool_protocol::receipt::Receipt;

use crate::capsule::Capsule;
use crate::devices::{self, DriverVersions};

/// What the worker's binary says of its kernels: `kernels HASH on a GPU`.
const KERNELS: &str = "kernels ";

/// What a capsule says of its machine, or this machine of itself. An empty text is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// What the worker's binary says of itself.
    worker: String,
    driver: DriverVersions,
    /// The version of ONNX Runtime.
    onnxruntime: String,
    device: String,
}

impl Machine {
    pub(super) fn of(capsule: &Capsule) -> Self {
        let device = capsule.death.get("device_name").and_then(|name| name.as_str());
        let driver = DriverVersions { driver: capsule.driver.clone(), cuda: capsule.cuda.clone() };
        let device = device.unwrap_or_default().to_owned();
        let (worker, onnxruntime) = (capsule.worker.clone(), capsule.onnxruntime.clone());
        Self { worker, driver, onnxruntime, device }
    }

    /// This machine. Its driver matters if the capsule's worker had one.
    pub(super) fn here(worker: &Path, has_driver: bool) -> Self {
        // What cannot be asked is not known, and the sentences say that.
        let said = devices::version_of(worker).unwrap_or_default();
        let driver = match has_driver {
            true => devices::driver_of(worker).unwrap_or_default(),
            false => DriverVersions::default(),
        };
        Self { worker: said.trim().to_owned(), driver, ..Self::default() }
    }

    /// The same, on the device of these jobs.
    pub(super) fn on_device_of(mut self, receipts: &[Receipt]) -> Self {
        let attempts = || receipts.iter().flat_map(|receipt| &receipt.attempts);
        let mut names = attempts().map(|attempt| &attempt.device.name);
        self.device = names.find(|name| !name.is_empty()).cloned().unwrap_or_default();
        let mut runs = attempts().filter_map(|attempt| attempt.infer.as_ref());
        self.onnxruntime = runs.next().map(|run| run.onnxruntime.clone()).unwrap_or_default();
        self
    }

    pub(super) fn has_driver(&self) -> bool {
        !self.driver.driver.is_empty()
    }

    /// A sentence for each thing that is another than `then`. What the capsule does not know is left out.
    pub(super) fn differs_from(&self, then: &Self) -> Vec<String> {
        let mut sentences = Vec::new();
        let mut compare = |what: &str, then: &str, now: &str| {
            if !then.is_empty() && then != now {
                let now = if now.is_empty() { "not known" } else { now };
                sentences.push(format!("{what} was {then}, and is {now} here"));
            }
        };
        compare("the worker's build", build(&then.worker), build(&self.worker));
        for (place, hash) in kernels(&then.worker) {
            let now = kernels(&self.worker).find(|(own, _)| *own == place);
            let what = format!("the hash of the kernels {place}");
            compare(&what, hash, now.map_or("", |(_, hash)| hash));
        }
        compare("the NVIDIA driver", &then.driver.driver, &self.driver.driver);
        compare("the driver's CUDA version", &then.driver.cuda, &self.driver.cuda);
        // Only a request that was answered names it.
        if !self.onnxruntime.is_empty() {
            compare("ONNX Runtime", &then.onnxruntime, &self.onnxruntime);
        }
        compare("the device", &then.device, &self.device);
        sentences
    }
}

fn build(said: &str) -> &str {
    said.lines().next().unwrap_or_default()
}

/// Places and hashes of kernels.
fn kernels(said: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = said.lines().filter_map(|line| line.strip_prefix(KERNELS));
    lines.filter_map(|line| line.split_once(' ').map(|(hash, place)| (place, hash)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(hash: &str, driver: &str, cuda: &str, device: &str) -> Machine {
        let worker =
            format!("gridpool-worker 1 (protocol 2)\nkernels {hash} on a GPU\nkernels c on a CPU");
        let driver = DriverVersions { driver: driver.to_owned(), cuda: cuda.to_owned() };
        let (onnxruntime, device) = ("1.24.0".to_owned(), device.to_owned());
        Machine { worker, driver, onnxruntime, device }
    }

    #[test]
    fn what_is_another_is_said_and_what_a_capsule_does_not_know_is_not() {
        let then = machine("a", "570.86", "12.8", "NVIDIA H200");
        assert_eq!(then.differs_from(&then), [""; 0]);
        let now = Machine {
            worker: "gridpool-worker 2 (protocol 3)\nkernels b on a GPU".to_owned(),
            onnxruntime: "1.31.1".to_owned(),
            ..machine("b", "580.1", "", "NVIDIA H100")
        };
        assert_eq!(
            now.differs_from(&then),
            [
                "the worker's build was gridpool-worker 1 (protocol 2), and is gridpool-worker 2 (protocol 3) here",
                "the hash of the kernels on a GPU was a, and is b here",
                "the hash of the kernels on a CPU was c, and is not known here",
                "the NVIDIA driver was 570.86, and is 580.1 here",
                "the driver's CUDA version was 12.8, and is not known here",
                "ONNX Runtime was 1.24.0, and is 1.31.1 here",
                "the device was NVIDIA H200, and is NVIDIA H100 here",
            ]
        );
        assert_eq!(now.differs_from(&Machine::default()), [""; 0]);
    }
}
