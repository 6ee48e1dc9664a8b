//! Numbers that look irregular and are equal in every run.

use gridpool_protocol::tensor::Tensor;

/// Bits from a seed (Steele et al., `SplitMix64`).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Data of a tensor: floats between -1 and 1; integers and booleans are 0.
    pub fn fill(&mut self, tensor: &Tensor) -> Vec<u8> {
        let mut data = vec![0; tensor.bytes()];
        let Some((exponent, fraction)) = tensor.datatype().float_bits() else { return data };
        let size = tensor.datatype().bytes();
        for place in data.chunks_exact_mut(size) {
            let bits = self.number(exponent, fraction);
            place.copy_from_slice(&bits.to_le_bytes()[..size]);
        }
        data
    }

    /// The bits of a number from 1/16 up to 1, or its negative.
    fn number(&mut self, exponent: u32, fraction: u32) -> u64 {
        let bits = self.bits();
        let bias = (1 << (exponent - 1)) - 1;
        let scale = bias - 1 - (bits >> 62);
        let sign = bits >> 61 & 1;
        sign << (exponent + fraction) | scale << fraction | bits & ((1 << fraction) - 1)
    }
}
