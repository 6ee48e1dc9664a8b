//! Hash maps, for the core and its shell. Nothing depends on the order of one, so that a seed replays.
#![expect(clippy::disallowed_types, reason = "see the module's text")]

use std::collections::HashMap;

/// By numbers that the pool or its shell counts up.
pub type ByNumber<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// By keys that clients choose: hashed with a secret of this process. It is no SipHash, which would cost a job a sixth
/// more: whoever finds keys of one hash by how long answers take slows the look-up of a few thousand names, no more.
pub type ByKey<K, V> = HashMap<K, V, foldhash::quality::RandomState>;
