//! The rows about models, as many as fit one message.

use gridpool_protocol::codec;
use gridpool_protocol::limits::FRAME_BYTES_MAX;
use gridpool_protocol::message::DeviceModel;

use super::Shared;

/// Most bytes of model rows in one message.
const MODEL_ROWS_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;

impl Shared {
    /// The rows from one on, as many as go into one message, and how many there are in all.
    pub(super) fn models_from(&self, from: u32) -> (Vec<DeviceModel>, u32) {
        let all = self.lock().pool.models();
        let total = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let mut bytes = 0;
        let fits = |row: &DeviceModel| {
            let is_first = bytes == 0;
            bytes += codec::encode(row).map_or(MODEL_ROWS_BYTES_MAX, |row| row.len());
            is_first || bytes <= MODEL_ROWS_BYTES_MAX
        };
        (all.into_iter().skip(from as usize).take_while(fits).collect(), total)
    }
}
