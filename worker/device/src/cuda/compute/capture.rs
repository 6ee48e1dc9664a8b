//! A CUDA graph of a stream: what was put into it while it was captured, to be launched as a whole.

#![expect(unsafe_code, reason = "a launch uses the memory that was used during the capture")]

use super::{ComputeStream, Parts};
use crate::cuda::driver::{Driver, GraphHandle, NodeKind};
use crate::fault::Fault;

/// What a stream was given while it was captured.
#[derive(Debug)]
pub struct StreamGraph {
    driver: Driver,
    handle: GraphHandle,
}

// SAFETY: a graph belongs to a process, not to a thread.
unsafe impl Send for StreamGraph {}

impl Drop for StreamGraph {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and who replays a graph waits for the stream before it drops the graph.
        if let Err(fault) = unsafe { self.driver.destroy_graph(self.handle) } {
            tracing::warn!(%fault, "a CUDA graph is not freed");
        }
    }
}

/// Why what was put into a stream cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// A call failed. Calls that wait for the device do while it is captured.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A replay has no host.
    #[error("it {what} during a run, and a replay has no host")]
    Host {
        /// What it does there.
        what: &'static str,
    },
    /// It is not known what a replay of it would do.
    #[error("it has a node of kind {kind}, which is not replayed")]
    Node {
        /// `CUgraphNodeType`.
        kind: u32,
    },
}

impl CaptureError {
    fn of(kind: NodeKind) -> Option<Self> {
        match kind {
            NodeKind::OnDevice => None,
            NodeKind::HostMemory => {
                Some(Self::Host { what: "copies from or to the host's memory" })
            }
            NodeKind::HostFunction => Some(Self::Host { what: "calls a function of the host" }),
            NodeKind::Other(kind) => Some(Self::Node { kind }),
        }
    }
}

impl ComputeStream {
    /// Captures what `queue` puts into the stream instead of running it. Nothing of it may need the host: it is to be
    /// replayed without it. Nothing else is under way in the stream.
    ///
    /// # Errors
    /// Those of `queue`, and [`CaptureError`].
    pub fn capture<T, E: From<CaptureError>>(
        &mut self,
        queue: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<(StreamGraph, T), E> {
        let Parts { driver, stream, is_captured, .. } = self.parts_mut();
        let (driver, stream) = (*driver, *stream);
        driver.begin_capture(stream).map_err(CaptureError::from)?;
        *is_captured = true;
        let queued = queue(self);
        self.parts_mut().is_captured = false;
        let ended = driver.end_capture(stream, CaptureError::of);
        let ended = ended.map(|made| made.map(|handle| StreamGraph { driver, handle }));
        // The cause, even if the end of the capture noticed it too.
        let queued = queued?;
        Ok((ended.map_err(CaptureError::from)??, queued))
    }

    /// Queues all that a graph of this stream has captured.
    ///
    /// # Safety
    /// The memory that was read and written while it was captured is still valid, and stays so until
    /// [`ComputeStream::wait`].
    ///
    /// # Errors
    /// [`Fault`] of the driver.
    pub unsafe fn replay(&self, graph: &StreamGraph) -> Result<(), Fault> {
        let Parts { driver, stream, .. } = self.parts();
        // SAFETY: by this function's own contract.
        unsafe { driver.launch_graph(graph.handle, *stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::on_device;
    use super::*;
    use crate::cuda::fake;

    /// The address of `bytes` of new device memory.
    fn on_stub(driver: Driver, bytes: usize) -> *mut u8 {
        let memory = driver.allocate(bytes).unwrap();
        std::ptr::with_exposed_provenance_mut(usize::try_from(memory.number()).unwrap())
    }

    /// Queues a fill of 64 bytes between two marks.
    fn fill(stream: &mut ComputeStream, to: *mut u8, byte: u8) -> Result<(), CaptureError> {
        stream.mark(0)?;
        let Parts { driver, stream: own, .. } = stream.parts();
        let filled = [byte; 64];
        if byte > 0 {
            // SAFETY: the memory has 64 bytes, and both live until the wait.
            unsafe { stream.upload(to, &filled) }?;
            stream.wait()?;
        } else {
            // SAFETY: as above.
            unsafe { driver.clear(on_device(to), 64, *own) }?;
        }
        Ok(stream.mark(1)?)
    }

    /// The 64 bytes at an address.
    fn download(stream: &ComputeStream, from: *mut u8) -> [u8; 64] {
        let mut got = [0; 64];
        // SAFETY: the memory has 64 bytes, and all of it lives until the wait.
        unsafe { stream.download(&mut got, from) }.unwrap();
        stream.wait().unwrap();
        got
    }

    #[test]
    fn a_capture_runs_nothing_and_each_replay_all_of_it() {
        let driver = fake::driver("").unwrap();
        let mut stream = ComputeStream::over(driver).unwrap();
        let memory = on_stub(driver, 64);
        fill(&mut stream, memory, 7).unwrap();
        let (graph, ()) = stream.capture(|stream| fill(stream, memory, 0)).unwrap();
        assert_eq!(download(&stream, memory), [7; 64], "captured and not run");
        for _ in 0..2 {
            fill(&mut stream, memory, 7).unwrap();
            // SAFETY: the memory is there.
            unsafe { stream.replay(&graph) }.unwrap();
            assert_eq!(download(&stream, memory), [0; 64]);
            assert!(stream.between(0, 1).unwrap() >= 0.0, "its marks are set each time");
        }
        drop(graph);
        std::mem::forget(stream);
    }

    #[test]
    fn what_needs_the_host_is_not_captured_and_the_stream_goes_on() {
        let driver = fake::driver("").unwrap();
        let mut stream = ComputeStream::over(driver).unwrap();
        let memory = on_stub(driver, 64);
        let given = [7; 64];
        // SAFETY: the memory has 64 bytes, and both live until the end of the test.
        let upload = |stream: &ComputeStream| unsafe { stream.upload(memory, &given) };
        let copied = stream.capture(|stream| upload(stream).map_err(CaptureError::from));
        let copies = CaptureError::Host { what: "copies from or to the host's memory" };
        assert_eq!(copied.unwrap_err(), copies);
        let waited = stream.capture(|stream| fill(stream, memory, 1)).unwrap_err();
        let wait = Fault::Cuda { call: "cuStreamSynchronize", code: 900 };
        assert_eq!(waited, CaptureError::Fault(wait));
        for (kind, error) in [
            (3, CaptureError::Host { what: "calls a function of the host" }),
            (4, CaptureError::Node { kind: 4 }),
        ] {
            fake::set_script(&format!("call=cuGraphNodeGetType value={kind}"));
            let other = stream.capture(|stream| fill(stream, memory, 0));
            assert_eq!(other.unwrap_err(), error);
        }
        fake::set_script("");
        fill(&mut stream, memory, 7).unwrap();
        assert_eq!(download(&stream, memory), [7; 64]);
        std::mem::forget(stream);
    }
}
