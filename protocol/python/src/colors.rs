//! The ten colours as Python's ints, by identity.
//!
//! CPython keeps one object for each small int. So a cell is read by comparing an address, and made by counting up a
//! reference. Any other object, such as NumPy's ints, goes the long way.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyInt;

/// One int for each colour.
#[derive(Debug)]
pub(crate) struct Colors {
    ints: [Py<PyInt>; 10],
    first: usize,
    /// The distance between neighbours, as a power of two; 0 if they do not lie in a row.
    shift: u32,
}

static COLORS: PyOnceLock<Colors> = PyOnceLock::new();

impl Colors {
    /// The colours of this interpreter.
    pub(crate) fn get(py: Python<'_>) -> &'static Self {
        COLORS.get_or_init(py, || {
            let ints: [Py<PyInt>; 10] = std::array::from_fn(|color| PyInt::new(py, color).unbind());
            let places: [usize; 10] = std::array::from_fn(|color| ints[color].as_ptr().addr());
            let step = places[1].wrapping_sub(places[0]);
            let in_a_row = places.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == step);
            let shift = if in_a_row && step.is_power_of_two() { step.trailing_zeros() } else { 0 };
            Self { ints, first: places[0], shift }
        })
    }

    /// The int of a colour.
    pub(crate) fn int<'py>(&self, py: Python<'py>, color: u8) -> Bound<'py, PyInt> {
        self.ints[usize::from(color.min(9))].bind(py).clone()
    }

    /// The colour of an object, if it is one of the ten.
    #[inline]
    pub(crate) fn of(&self, object: &Borrowed<'_, '_, PyAny>) -> Option<u8> {
        let place = object.as_ptr().addr();
        if self.shift > 0 {
            // The ten places themselves have no lower bits, and only the ints lie there.
            let at = place.wrapping_sub(self.first).rotate_right(self.shift);
            return if at < 10 { u8::try_from(at).ok() } else { None };
        }
        let found = self.ints.iter().position(|int| int.as_ptr().addr() == place);
        found.and_then(|color| u8::try_from(color).ok())
    }
}
