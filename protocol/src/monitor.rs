//! The messages between `gridpool-worker monitor` and the supervisor: one JSON document per line, on the
//! monitor's standard input and output.

use serde::{Deserialize, Serialize};

/// Longest line, line end included, bytes.
pub const LINE_BYTES_MAX: usize = 4_096;
/// Most processes that a line lists.
pub const PROCESSES_MAX: usize = 128;
/// Longest UUID.
pub const UUID_BYTES_MAX: usize = 96;
/// Most devices of one monitor.
pub const DEVICES_MAX: usize = 64;
/// Most open questions about reclaimed memory.
pub const QUESTIONS_MAX: usize = 64;

/// Monitor to supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    /// NVML answers, and the monitor waits for its events. Sent every second.
    Beat {},
    /// The state of a device. Sent every second, and after an event about it.
    Device {
        /// `GPU-…`.
        uuid: String,
        /// Bytes in use, by all processes.
        memory_used: u64,
        /// Bytes of the device.
        memory_total: u64,
        /// Share of recent time in which anything ran on it, if the driver reports it.
        busy_percent: Option<u32>,
        /// Power draw, milliwatts, if the driver reports it.
        power_mw: Option<u32>,
        /// Processes with a context, as NVML numbers them; at most [`PROCESSES_MAX`].
        processes: Vec<u32>,
        /// NVML's recovery action (field 230), if the driver has it.
        recovery: Option<u32>,
    },
    /// The driver wrote an Xid about a device.
    Xid {
        /// `GPU-…`.
        uuid: String,
        /// Its number.
        xid: u64,
    },
    /// The driver reports that a device is unusable.
    Unavailable {
        /// `GPU-…`.
        uuid: String,
    },
    /// A call of NVML failed.
    Failed {
        /// The device, if the call was about one.
        uuid: Option<String>,
        /// The call.
        call: String,
        /// What NVML returned.
        code: u32,
    },
    /// The answer to a [`Question`].
    Reclaimed {
        /// `GPU-…`.
        uuid: String,
        /// The process.
        pid: u32,
        /// Whether its memory is free again; else the time ran out.
        reclaimed: bool,
        /// The time since the question.
        waited_ms: u64,
    },
}

/// Supervisor to monitor: report when the memory of this process, which has ended, is free again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The process.
    pub reclaim: u32,
    /// `GPU-…`: the device on which it had a context.
    pub uuid: String,
}

impl Line {
    /// Checks the limits that the types do not enforce.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let fits = |uuid: &str| !uuid.is_empty() && uuid.len() <= UUID_BYTES_MAX;
        match self {
            Self::Beat {} => true,
            Self::Device { uuid, processes, .. } => fits(uuid) && processes.len() <= PROCESSES_MAX,
            Self::Failed { uuid, call, .. } => {
                uuid.as_deref().is_none_or(fits) && call.len() <= UUID_BYTES_MAX
            }
            Self::Reclaimed { uuid, .. } | Self::Unavailable { uuid } | Self::Xid { uuid, .. } => {
                fits(uuid)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_lines_are_within_the_bound() {
        let uuid = "G".repeat(UUID_BYTES_MAX);
        let device = Line::Device {
            uuid: uuid.clone(),
            memory_used: u64::MAX,
            memory_total: u64::MAX,
            busy_percent: Some(u32::MAX),
            power_mw: Some(u32::MAX),
            processes: vec![u32::MAX; PROCESSES_MAX],
            recovery: Some(u32::MAX),
        };
        let call = "c".repeat(UUID_BYTES_MAX);
        let failed = Line::Failed { uuid: Some(uuid.clone()), call, code: u32::MAX };
        let (pid, waited_ms) = (u32::MAX, u64::MAX);
        let reclaimed = Line::Reclaimed { uuid, pid, reclaimed: false, waited_ms };
        for line in [device, failed, reclaimed] {
            assert!(line.is_bounded());
            let text = serde_json::to_string(&line).unwrap();
            assert!(text.len() < LINE_BYTES_MAX, "{}", text.len());
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
        }
    }

    #[test]
    fn the_documents_are_written_like_this() {
        let text = |line: &Line| serde_json::to_string(line).unwrap();
        assert_eq!(text(&Line::Beat {}), r#"{"beat":{}}"#);
        let xid = Line::Xid { uuid: "GPU-1".to_owned(), xid: 79 };
        assert_eq!(text(&xid), r#"{"xid":{"uuid":"GPU-1","xid":79}}"#);
        let question: Question = serde_json::from_str(r#"{"reclaim":7,"uuid":"GPU-1"}"#).unwrap();
        assert_eq!(question, Question { reclaim: 7, uuid: "GPU-1".to_owned() });
        assert!(serde_json::from_str::<Line>(r#"{"beat":{"more":1}}"#).is_err());
    }
}
