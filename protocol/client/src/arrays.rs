//! Tensors as arrays of the crate `ndarray`.

use ndarray::{Array, ArrayD, ArrayViewD, Dimension, IxDyn};

use super::{Element, ModelInput, TensorError, Values};

impl ModelInput {
    /// Makes an input from an array. An array in standard layout (row-major) is not copied.
    ///
    /// # Errors
    /// [`TensorError`] if the name or a dimension exceeds its limit.
    ///
    /// # Panics
    /// Never: an array has as many elements as its shape says.
    pub fn from_array<T: Element, D: Dimension>(
        name: impl Into<String>,
        array: Array<T, D>,
    ) -> Result<Self, TensorError> {
        let shape: Vec<u64> = array.shape().iter().map(|&side| side as u64).collect();
        let elements = array.len();
        let data = if array.is_standard_layout() {
            let (mut data, offset) = array.into_raw_vec_and_offset();
            data.drain(..offset.unwrap_or(0));
            data.truncate(elements);
            data
        } else {
            array.iter().copied().collect()
        };
        Self::new(name, shape, data)
    }
}

impl<T> Values<T> {
    /// Returns an array that borrows the elements.
    ///
    /// # Panics
    /// Never: a tensor has as many elements as its shape says.
    #[must_use]
    pub fn view(&self) -> ArrayViewD<'_, T> {
        let view = ArrayViewD::from_shape(self.dimensions(), self);
        view.expect("as many elements as the shape says")
    }

    /// Converts to an array that owns the elements, without copying.
    ///
    /// # Panics
    /// Never: a tensor has as many elements as its shape says.
    #[must_use]
    pub fn into_array(self) -> ArrayD<T> {
        let array = ArrayD::from_shape_vec(self.dimensions(), self.into_vec());
        array.expect("as many elements as the shape says")
    }

    fn dimensions(&self) -> IxDyn {
        let side = |&side: &u64| usize::try_from(side).expect("a tensor in memory");
        IxDyn(&self.shape().iter().map(side).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::TensorLayout;
    use ndarray::{Array2, array, s};

    use super::*;
    use crate::TensorOutputs;

    /// The outputs of a model that returns its input.
    fn echo(input: &ModelInput) -> TensorOutputs {
        let layout = TensorLayout::new(vec![input.tensor().clone()]).unwrap();
        TensorOutputs::new(layout.pack(&[input.bytes()]).unwrap()).unwrap()
    }

    #[test]
    fn an_array_comes_back_whatever_its_layout() {
        let standard = Array2::from_shape_fn((2, 3), |(row, col)| row as f32 + col as f32 / 4.0);
        let mut tail = standard.clone();
        tail.slice_collapse(s![1.., ..]);
        let transposed = standard.clone().reversed_axes();
        for array in [standard, tail, transposed] {
            let input = ModelInput::from_array("x", array.clone()).unwrap();
            let shape: Vec<usize> =
                input.tensor().shape().iter().map(|&side| side.try_into().unwrap()).collect();
            assert_eq!(shape, array.shape());
            let values = echo(&input).values::<f32>("x").unwrap();
            assert_eq!(values.view(), array.clone().into_dyn());
            assert_eq!(values.into_array(), array.into_dyn());
        }
    }

    #[test]
    fn scalars_flags_and_empty_arrays_are_arrays_too() {
        let scalar = ModelInput::from_array("x", ndarray::arr0(7_i64)).unwrap();
        assert_eq!(echo(&scalar).values::<i64>("x").unwrap().view().shape(), [0_usize; 0]);
        let flags = ModelInput::from_array("x", array![[true, false]]).unwrap();
        assert_eq!(&*echo(&flags).values::<bool>("x").unwrap(), [true, false]);
        let none = ModelInput::from_array("x", Array2::<u8>::zeros((0, 4))).unwrap();
        assert!(echo(&none).values::<u8>("x").unwrap().into_array().is_empty());
    }
}
