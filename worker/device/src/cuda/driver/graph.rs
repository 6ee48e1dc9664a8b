//! CUDA graphs: what a stream was given while it was captured, launched as a whole.

use std::ffi::c_uint;
use std::ptr;

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode};

use super::super::api::{CopyEnd, CopyParams};
use super::{Driver, Event, Stream, checked};
use crate::fault::Fault;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: the thread itself may allocate meanwhile. Calls of others may still end the
/// capture.
const RELAXED: c_uint = 2;
/// `CU_EVENT_RECORD_EXTERNAL`: each launch of the graph records the event.
const RECORD_EXTERNAL: c_uint = 1;
/// `CUgraphNodeType`.
const KERNEL: c_uint = 0;
const MEMCPY: c_uint = 1;
const MEMSET: c_uint = 2;
const HOST: c_uint = 3;
const EMPTY: c_uint = 5;
const EVENT_RECORD: c_uint = 7;
/// Memory of the graph itself: a launch has it where every other has it.
const MEM_ALLOC: c_uint = 10;
const MEM_FREE: c_uint = 11;
/// `CUmemorytype`: what it says of an address whose kind only its attribute tells.
const MEMORY_HOST: c_uint = 1;
const MEMORY_DEVICE: c_uint = 2;
const MEMORY_UNIFIED: c_uint = 4;
const INVALID_VALUE: u32 = 1;
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
const ATTRIBUTE_MEMORY: c_uint = 2;

/// A graph that can be launched.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct GraphHandle(CUgraphExec);

/// What a node of a graph does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda) enum NodeKind {
    /// It needs nothing but the device's memory.
    OnDevice,
    /// It copies from or to the host's memory.
    HostMemory,
    /// It calls a function of the host.
    HostFunction,
    /// Another kind, by the driver's number.
    Other(c_uint),
}

impl Driver {
    /// From now on, what is put into `stream` by this thread is captured and not run.
    pub(in crate::cuda) fn begin_capture(&self, stream: Stream) -> Result<(), Fault> {
        // SAFETY: the stream is never destroyed.
        checked("cuStreamBeginCapture", unsafe {
            (self.api.stream_begin_capture)(stream.0, RELAXED)
        })
    }

    /// Ends the capture, and calls `look` with the kind of each node. If it returns none, the graph can be launched.
    pub(in crate::cuda) fn end_capture<E>(
        &self,
        stream: Stream,
        mut look: impl FnMut(NodeKind) -> Option<E>,
    ) -> Result<Result<GraphHandle, E>, Fault> {
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is never destroyed, and the call writes one handle.
        let code = unsafe { (self.api.stream_end_capture)(stream.0, &raw mut graph) };
        checked("cuStreamEndCapture", code)?;
        let seen = self.nodes(graph).and_then(|nodes| {
            for node in nodes {
                if let Some(found) = look(self.kind(node)?) {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        });
        let made = match seen {
            Ok(None) => self.instantiate(graph).map(Ok),
            Ok(Some(found)) => Ok(Err(found)),
            Err(fault) => Err(fault),
        };
        // SAFETY: the graph is ours, and what can be launched is a copy of it.
        let code = unsafe { (self.api.graph_destroy)(graph) };
        let made = made?;
        checked("cuGraphDestroy", code)?;
        Ok(made)
    }

    fn instantiate(&self, graph: CUgraph) -> Result<GraphHandle, Fault> {
        let mut exec = ptr::null_mut();
        // SAFETY: the graph lives, and the call writes one handle.
        let code = unsafe { (self.api.graph_instantiate)(&raw mut exec, graph, 0) };
        checked("cuGraphInstantiateWithFlags", code)?;
        Ok(GraphHandle(exec))
    }

    fn nodes(&self, graph: CUgraph) -> Result<Vec<CUgraphNode>, Fault> {
        let mut count = 0;
        // SAFETY: without a place for nodes, the call writes their number.
        let code = unsafe { (self.api.graph_get_nodes)(graph, ptr::null_mut(), &raw mut count) };
        checked("cuGraphGetNodes", code)?;
        let mut nodes = vec![ptr::null_mut(); count];
        if count > 0 {
            // SAFETY: there is room for as many nodes as `count` says.
            let code =
                unsafe { (self.api.graph_get_nodes)(graph, nodes.as_mut_ptr(), &raw mut count) };
            checked("cuGraphGetNodes", code)?;
        }
        nodes.truncate(count);
        Ok(nodes)
    }

    fn kind(&self, node: CUgraphNode) -> Result<NodeKind, Fault> {
        let mut kind = 0;
        // SAFETY: the node's graph lives, and the call writes a C enum of 32 bits.
        let code = unsafe { (self.api.graph_node_get_type)(node, &raw mut kind) };
        checked("cuGraphNodeGetType", code)?;
        Ok(match kind {
            KERNEL | MEMSET | EMPTY | EVENT_RECORD | MEM_ALLOC | MEM_FREE => NodeKind::OnDevice,
            HOST => NodeKind::HostFunction,
            MEMCPY if self.copies_on_device(node)? => NodeKind::OnDevice,
            MEMCPY => NodeKind::HostMemory,
            other => NodeKind::Other(other),
        })
    }

    /// Whether both ends of a copy lie on the device.
    fn copies_on_device(&self, node: CUgraphNode) -> Result<bool, Fault> {
        let mut copy = CopyParams::default();
        // SAFETY: the node is a copy whose graph lives; the call writes a `CUDA_MEMCPY3D`.
        let code = unsafe { (self.api.graph_memcpy_node_get_params)(node, &raw mut copy) };
        checked("cuGraphMemcpyNodeGetParams", code)?;
        let is_on_device = |end: &CopyEnd| match end.kind {
            MEMORY_DEVICE => Ok(true),
            MEMORY_UNIFIED => Ok(self.memory_kind(end.device)? == MEMORY_DEVICE),
            _ => Ok(false),
        };
        Ok(is_on_device(&copy.from)? && is_on_device(&copy.to)?)
    }

    /// The kind of memory at an address.
    fn memory_kind(&self, address: u64) -> Result<c_uint, Fault> {
        let mut kind = MEMORY_HOST;
        // SAFETY: this attribute is a C enum of 32 bits.
        let code = unsafe {
            (self.api.pointer_get_attribute)((&raw mut kind).cast(), ATTRIBUTE_MEMORY, address)
        };
        if code == INVALID_VALUE {
            // CUDA does not know the address: ordinary memory of the host.
            return Ok(MEMORY_HOST);
        }
        checked("cuPointerGetAttribute", code)?;
        Ok(kind)
    }

    /// Puts all that was captured into `stream`.
    ///
    /// # Safety
    /// The memory that its nodes read and write is valid until the stream has done them.
    pub(in crate::cuda) unsafe fn launch_graph(
        &self,
        graph: GraphHandle,
        stream: Stream,
    ) -> Result<(), Fault> {
        // SAFETY: by this function's own contract; the caller has not destroyed the graph.
        let code = unsafe { (self.api.graph_launch)(graph.0, stream.0) };
        checked("cuGraphLaunch", code)
    }

    /// Frees a graph.
    ///
    /// # Safety
    /// Nobody uses the handle after this, and no launch of it is under way.
    pub(in crate::cuda) unsafe fn destroy_graph(&self, graph: GraphHandle) -> Result<(), Fault> {
        // SAFETY: by this function's own contract.
        checked("cuGraphExecDestroy", unsafe { (self.api.graph_exec_destroy)(graph.0) })
    }

    /// Puts `event` into a `stream` that is captured: each launch of the graph records it.
    pub(in crate::cuda) fn record_in_capture(
        &self,
        event: Event,
        stream: Stream,
    ) -> Result<(), Fault> {
        // SAFETY: neither is ever destroyed.
        let code =
            unsafe { (self.api.event_record_with_flags)(event.0, stream.0, RECORD_EXTERNAL) };
        checked("cuEventRecordWithFlags", code)
    }
}
