//! The elements of a BYTES tensor. Each is its length as 4 bytes, little-endian, and then as many bytes: the form that
//! Triton's clients send. Untrusted data is checked here.

use crate::limits::{BYTES_ELEMENT_MAX, BYTES_TENSOR_MAX};

/// Bytes of an element's length.
pub(super) const LENGTH_BYTES: usize = 4;

/// Why the data of a BYTES tensor is not its elements.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextsError {
    /// There are more or fewer elements.
    #[error("it has {got} elements, but its shape says {want}")]
    Count {
        /// In the data; the first one too many counts.
        got: usize,
        /// By the shape.
        want: usize,
    },
    /// The data ends inside an element.
    #[error(
        "the data ends inside element {element}: an element of BYTES is its length as 4 bytes, little-endian, then \
         as many bytes"
    )]
    Cut {
        /// Which one.
        element: usize,
    },
    /// An element is too long.
    #[error(
        "element {element} has {bytes} bytes; an element of BYTES has at most {BYTES_ELEMENT_MAX}"
    )]
    Long {
        /// Which one.
        element: usize,
        /// Its length.
        bytes: usize,
    },
    /// All elements together are too long.
    #[error(
        "a tensor of BYTES has at most {BYTES_TENSOR_MAX} bytes, with 4 for the length of each element"
    )]
    Tensor,
}

/// Reads elements one by one. It ends after the first error.
#[derive(Clone, Debug)]
pub struct Texts<'a> {
    rest: &'a [u8],
    element: usize,
    want: usize,
}

impl<'a> Texts<'a> {
    /// The elements in `data`, which must be `count`.
    #[must_use]
    pub fn new(data: &'a [u8], count: usize) -> Self {
        Self { rest: data, element: 0, want: count }
    }

    /// Checks every element.
    ///
    /// # Errors
    /// The first [`TextsError`].
    pub fn check(self) -> Result<(), TextsError> {
        let mut elements = self;
        elements.try_for_each(|element| element.map(drop))
    }

    fn read(&mut self) -> Result<&'a [u8], TextsError> {
        let (element, want) = (self.element, self.want);
        if element == want {
            return Err(TextsError::Count { got: element + 1, want });
        }
        let cut = TextsError::Cut { element };
        let (length, rest) = self.rest.split_first_chunk().ok_or_else(|| cut.clone())?;
        let bytes = u32::from_le_bytes(*length) as usize;
        if bytes > BYTES_ELEMENT_MAX {
            return Err(TextsError::Long { element, bytes });
        }
        let (text, rest) = rest.split_at_checked(bytes).ok_or(cut)?;
        (self.rest, self.element) = (rest, element + 1);
        Ok(text)
    }
}

impl<'a> Iterator for Texts<'a> {
    type Item = Result<&'a [u8], TextsError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (got, want) = (self.element, self.want);
        let read = match self.rest.is_empty() {
            true if got == want => return None,
            true => Err(TextsError::Count { got, want }),
            false => self.read(),
        };
        if read.is_err() {
            (self.rest, self.want) = (&[], self.element);
        }
        Some(read)
    }
}

/// Appends an element to the data of a BYTES tensor, which has `element` elements so far.
///
/// # Errors
/// [`TextsError`] if the element or the tensor is too long.
pub fn put_text(text: &[u8], element: usize, to: &mut Vec<u8>) -> Result<(), TextsError> {
    let bytes = text.len();
    if bytes > BYTES_ELEMENT_MAX {
        return Err(TextsError::Long { element, bytes });
    }
    if to.len() + LENGTH_BYTES + bytes > BYTES_TENSOR_MAX {
        return Err(TextsError::Tensor);
    }
    to.extend(u32::try_from(bytes).expect("BYTES_ELEMENT_MAX fits").to_le_bytes());
    to.extend(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(texts: &[&[u8]]) -> Vec<u8> {
        let mut data = Vec::new();
        for (element, text) in texts.iter().enumerate() {
            put_text(text, element, &mut data).unwrap();
        }
        data
    }

    #[test]
    fn elements_of_any_bytes_are_read_as_they_were_written() {
        let texts: [&[u8]; 4] = [b"", b"a\0b", "ä€".as_bytes(), &[0xff; 300]];
        let data = packed(&texts);
        assert_eq!(Texts::new(&data, 4).collect::<Result<Vec<_>, _>>().unwrap(), texts);
        assert_eq!(data[..4], [0; 4], "zeros are empty elements");
        assert_eq!(Texts::new(&[0; 12], 3).check(), Ok(()));
        assert_eq!(Texts::new(&[], 0).check(), Ok(()));
    }

    #[test]
    fn other_data_is_refused_with_the_element() {
        let data = packed(&[b"one", b"two"]);
        let check = |data: &[u8], count| Texts::new(data, count).check().unwrap_err();
        assert_eq!(check(&data, 3), TextsError::Count { got: 2, want: 3 });
        assert_eq!(check(&data, 1), TextsError::Count { got: 2, want: 1 });
        assert_eq!(check(&[], 1), TextsError::Count { got: 0, want: 1 });
        for end in 8..data.len() {
            assert_eq!(check(&data[..end], 2), TextsError::Cut { element: 1 });
        }
        assert_eq!(check(&[0xff; 8], 1), TextsError::Long { element: 0, bytes: 0xffff_ffff });
        assert_eq!(Texts::new(&data[..9], 2).count(), 2, "it ends after an error");
        let long = vec![b'x'; BYTES_ELEMENT_MAX + 1];
        let error = put_text(&long, 7, &mut Vec::new()).unwrap_err();
        assert_eq!(error, TextsError::Long { element: 7, bytes: BYTES_ELEMENT_MAX + 1 });
        let mut full = vec![0; BYTES_TENSOR_MAX - 4];
        assert_eq!(put_text(b"x", 0, &mut full), Err(TextsError::Tensor));
        assert_eq!(put_text(b"", 0, &mut full), Ok(()));
    }
}
