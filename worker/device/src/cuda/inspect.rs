//! Inspects the driver's library and the device for `gridpool diagnose`, step by step, so that a step that
//! fails does not hide the results of earlier steps.

use std::path::PathBuf;

use gridpool_ipc::maps;

use super::api::Api;
use super::device::uuid_text;
use super::driver::Driver;
use crate::fault::Fault;

/// The driver's library, loaded and not initialised.
#[derive(Debug)]
pub struct Library {
    api: Api,
    /// The CUDA version, as `cuDriverGetVersion` counts: 12,040 is 12.4.
    pub version: u32,
}

/// The only device that this process sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The product's name.
    pub name: String,
    /// `GPU-…`.
    pub uuid: String,
    /// Its compute capability.
    pub capability: (u32, u32),
}

impl Library {
    /// Loads the library and asks for its version.
    ///
    /// # Errors
    /// [`Fault`]: the library is missing, lacks a call, or does not tell its version.
    pub fn load() -> Result<Self, Fault> {
        Self::over(Api::load()?)
    }

    /// Uses the functions that are given.
    pub(super) fn over(api: Api) -> Result<Self, Fault> {
        let version = Driver::version(&api)?;
        Ok(Self { api, version })
    }

    /// Initialises the driver and describes the one device that this process sees, without a context.
    ///
    /// # Errors
    /// [`Fault`]: a call fails, or there is not exactly one device.
    pub fn only_device(&self) -> Result<DeviceFacts, Fault> {
        let driver = Driver::over(self.api, 0)?;
        let device = driver.only_device()?;
        Ok(DeviceFacts {
            name: driver.name(device)?,
            uuid: uuid_text(driver.uuid(device)?),
            capability: driver.capability(device)?,
        })
    }

    /// The path of the library that this process has mapped.
    #[must_use]
    pub fn path() -> Option<PathBuf> {
        maps::driver_library(&maps::own().ok()?).map(PathBuf::from)
    }
}

#[cfg(test)]
mod tests {
    use gridpool_stub_cuda::{cuda, machine};

    use super::*;

    fn library(script: &str) -> Result<Library, Fault> {
        machine::install(script).unwrap();
        #[expect(unsafe_code, reason = "takes the stub's functions for the driver's")]
        // SAFETY: the stub has the driver's functions under the driver's names.
        Library::over(unsafe { Api::over(cuda::symbol)? })
    }

    #[test]
    fn a_device_says_what_it_is_and_a_library_its_version_before_that() {
        let library = library("version=12040").unwrap();
        assert_eq!(library.version, 12_040);
        let device = library.only_device().unwrap();
        assert_eq!((device.name.as_str(), device.capability), ("gridpool stub GPU", (9, 0)));
        assert_eq!(device.uuid, machine::uuid_text(0));
    }

    #[test]
    fn each_step_that_fails_says_which_it_is() {
        let fault = library("call=cuDriverGetVersion code=999").unwrap_err();
        assert!(fault.to_string().contains("cuDriverGetVersion"), "{fault}");
        let fails = |script: &str| library(script).unwrap().only_device().unwrap_err().to_string();
        assert!(fails("call=cuInit code=803").contains("cuInit"));
        assert!(fails("call=cuDeviceGetAttribute code=1").contains("cuDeviceGetAttribute"));
        assert!(fails("devices=2").contains("2 devices are visible"));
    }

    #[test]
    fn a_library_that_lacks_a_call_is_named_with_the_call() {
        let lacks = |name: &'static str| cuda::symbol(name).filter(|_| name != "cuMemGetInfo_v2");
        #[expect(unsafe_code, reason = "takes the stub's functions for the driver's")]
        // SAFETY: the stub has the driver's functions under the driver's names.
        let fault = unsafe { Api::over(lacks) }.unwrap_err();
        assert_eq!(fault, Fault::MissingSymbol { symbol: "cuMemGetInfo_v2" });
    }
}
