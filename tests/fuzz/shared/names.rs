//! Devices, workers, contents, faults and what is done about them, traces and their collector, by name.

use gridpool::config::parse_devices;
use gridpool::traces::Collector;
use gridpool_protocol::chaos::ChaosFault;
use gridpool_protocol::fault::Overrides;
use gridpool_protocol::ids::{ContentHash, DeviceId, WorkerName};
use gridpool_protocol::trace::TraceContext;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(device) = text.parse::<DeviceId>() {
        assert_eq!(device.to_string().parse(), Ok(device));
    }
    if let Ok(worker) = text.parse::<WorkerName>() {
        assert_eq!(worker.to_string().parse(), Ok(worker));
    }
    if let Ok(content) = text.parse::<ContentHash>() {
        assert_eq!(content.to_string().parse(), Ok(content));
    }
    if let Ok(fault) = text.parse::<ChaosFault>() {
        assert_eq!(fault.to_string().parse::<ChaosFault>().ok(), Some(fault));
    }
    if let Ok(overrides) = text.parse::<Overrides>() {
        assert_eq!(overrides.to_string().parse::<Overrides>().ok(), Some(overrides));
    }
    if let Ok(trace) = text.parse::<TraceContext>() {
        assert_eq!(trace.to_string().parse(), Ok(trace));
    }
    if let Ok(collector) = text.parse::<Collector>() {
        assert_eq!(collector.to_string().parse(), Ok(collector));
    }
    match parse_devices(text) {
        Ok(devices) => assert!(!devices.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let names = [
        "gpu0#4",
        "cpu17",
        "all",
        "0,1,cpu:2",
        "GPU-0a1b2c3d-0000-1111-2222-333344445555",
        "gpu#",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "http://[::1]:4318/otlp",
    ];
    names.map(|name| name.as_bytes().to_vec()).into()
}
