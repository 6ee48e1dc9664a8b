//! Which provider ONNX Runtime has assigned each node of a graph to. `ort` has no wrapper for
//! `Session_GetEpGraphAssignmentInfo`. A session records the assignment if
//! `session.record_ep_graph_assignment_info` is set when it is made.

use std::ffi::c_char;
use std::{ptr, slice};

use ort::sys::{self, OrtEpAssignedNode, OrtEpAssignedSubgraph};

use super::{RuntimeFault, SharedSession, text};

/// A node of the optimised graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AssignedNode {
    /// ONNX Runtime's name of the provider.
    pub(crate) provider: String,
    /// The operator.
    pub(crate) op: String,
    /// The node's name; the optimiser makes up names for its own nodes.
    pub(crate) name: String,
}

/// Every node of the graph with the provider that runs it.
pub(crate) fn assigned_nodes(session: &SharedSession) -> Result<Vec<AssignedNode>, RuntimeFault> {
    let (mut list, mut count) = (ptr::null::<*const OrtEpAssignedSubgraph>(), 0);
    let address = session.address();
    #[expect(unsafe_code, reason = "ort has no wrapper for it")]
    // SAFETY: it reads the session; what it gives belongs to the session and lives as long.
    let status = unsafe {
        (ort::api().Session_GetEpGraphAssignmentInfo)(address, &raw mut list, &raw mut count)
    };
    session.check("Session_GetEpGraphAssignmentInfo", status)?;
    let mut nodes = Vec::new();
    for &subgraph in listed(list, count) {
        let provider = string(session, "EpAssignedSubgraph_GetEpName", |out| {
            #[expect(unsafe_code, reason = "ort has no wrapper for it")]
            // SAFETY: the subgraph lives as long as the session; `out` is written.
            unsafe {
                (ort::api().EpAssignedSubgraph_GetEpName)(subgraph, out)
            }
        })?;
        let (mut list, mut count) = (ptr::null::<*const OrtEpAssignedNode>(), 0);
        #[expect(unsafe_code, reason = "ort has no wrapper for it")]
        // SAFETY: as above.
        let status = unsafe {
            (ort::api().EpAssignedSubgraph_GetNodes)(subgraph, &raw mut list, &raw mut count)
        };
        session.check("EpAssignedSubgraph_GetNodes", status)?;
        for &node in listed(list, count) {
            nodes.push(assigned_node(session, provider.clone(), node)?);
        }
    }
    Ok(nodes)
}

fn assigned_node(
    session: &SharedSession,
    provider: String,
    node: *const OrtEpAssignedNode,
) -> Result<AssignedNode, RuntimeFault> {
    let op = string(session, "EpAssignedNode_GetOperatorType", |out| {
        #[expect(unsafe_code, reason = "ort has no wrapper for it")]
        // SAFETY: the node lives as long as the session; `out` is written.
        unsafe {
            (ort::api().EpAssignedNode_GetOperatorType)(node, out)
        }
    })?;
    let name = string(session, "EpAssignedNode_GetName", |out| {
        #[expect(unsafe_code, reason = "ort has no wrapper for it")]
        // SAFETY: the node lives as long as the session; `out` is written.
        unsafe {
            (ort::api().EpAssignedNode_GetName)(node, out)
        }
    })?;
    Ok(AssignedNode { provider, op, name })
}

/// An array that the session owns.
fn listed<'a, T>(list: *const T, count: usize) -> &'a [T] {
    if list.is_null() || count == 0 {
        return &[];
    }
    #[expect(unsafe_code, reason = "an array of C")]
    // SAFETY: the API gave `count` of them, and they live as long as the session that we hold.
    unsafe {
        slice::from_raw_parts(list, count)
    }
}

fn string(
    session: &SharedSession,
    call: &'static str,
    read: impl FnOnce(*mut *const c_char) -> sys::OrtStatusPtr,
) -> Result<String, RuntimeFault> {
    let mut out = ptr::null();
    let status = read(&raw mut out);
    session.check(call, status)?;
    Ok(text(out))
}
