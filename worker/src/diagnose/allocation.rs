//! x
use super::{DiagnoseError, Report};
use gridpool_protocol::diagnose::Plan;
use gridpool_protocol::ids::DeviceId;
use std::path::Path;
pub(super) fn look(
    _: &Plan,
    _: &Path,
    _: DeviceId,
    _: Option<&str>,
    _: &mut Report<'_>,
) -> Result<(), DiagnoseError> {
    Ok(())
}
