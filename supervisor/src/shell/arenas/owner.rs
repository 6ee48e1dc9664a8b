//! Whose arenas are counted together, and what they may be.

/// Of what all may take, bytes and descriptors, one user leaves this part to others.
pub(super) const OTHERS_SHARE: u64 = 4;

/// A user. `None` is the gateway, whose clients have limits there.
pub(in crate::shell) type Owner = Option<u32>;

/// What the owner of a new arena may have.
#[derive(Clone, Copy, Debug)]
pub(in crate::shell) struct OwnerLimits {
    /// Of the pool's descriptors.
    pub(in crate::shell) arenas_max: usize,
    /// Its quota.
    pub(in crate::shell) bytes_max: Option<u64>,
}

impl OwnerLimits {
    /// Of a pool that has so many descriptors for connections and arenas.
    pub(in crate::shell) fn of(descriptors: usize, bytes_max: Option<u64>) -> Self {
        let others = descriptors / usize::try_from(OTHERS_SHARE).unwrap_or(1);
        Self { arenas_max: descriptors - others, bytes_max }
    }
}
