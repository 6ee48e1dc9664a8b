//! Tensors of ONNX Runtime in memory that the host reads and writes.

use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use gridpool_protocol::limits::BYTES_TENSOR_MAX;
use gridpool_protocol::tensor::{DataType, TextsError, put_text};
use ort::AsPointer;
use ort::memory::Allocator;
use ort::sys;

use super::{Held, OwnedAllocator, Place, RuntimeFault, SharedSession};
use crate::place::LockedRange;
use crate::types;

/// A tensor.
#[derive(Debug)]
pub(crate) struct Value {
    value: NonNull<sys::OrtValue>,
    /// The type and shape it was made with; none for an output.
    made_as: Option<(DataType, Vec<i64>)>,
    memory: Memory,
    // Dropped after the tensor: see `Held`.
    _session: Arc<Held>,
}

/// What the memory of a tensor came from.
#[derive(Debug)]
enum Memory {
    Allocator(#[expect(dead_code, reason = "kept until the tensor is freed")] Arc<OwnedAllocator>),
    /// A part of an arena, which the client may write to.
    Lent(#[expect(dead_code, reason = "kept until the tensor is freed")] LockedRange),
    /// The runtime, which made the tensor.
    Runtime,
}

// SAFETY: a tensor belongs to no thread.
#[expect(unsafe_code, reason = "a raw address is not Send by itself")]
unsafe impl Send for Value {}

impl Value {
    /// A tensor of the host whose bytes are 0.
    pub(crate) fn new(
        allocator: &Arc<OwnedAllocator>,
        datatype: DataType,
        shape: &[i64],
        session: &SharedSession,
    ) -> Result<Self, RuntimeFault> {
        let made = Self::blank(allocator, datatype, shape, session)?;
        if let (Some(start), bytes) = made.memory(session)? {
            #[expect(unsafe_code, reason = "memory of the allocator's holds no values yet")]
            // SAFETY: the tensor has this many bytes, and nothing else knows it.
            unsafe {
                ptr::write_bytes(start.as_ptr(), 0, bytes);
            }
        }
        Ok(made)
    }

    /// A tensor that is to be written before it is read.
    pub(crate) fn blank(
        allocator: &Arc<OwnedAllocator>,
        datatype: DataType,
        shape: &[i64],
        session: &SharedSession,
    ) -> Result<Self, RuntimeFault> {
        let mut value = ptr::null_mut();
        let (sides, rank) = (shape.as_ptr(), shape.len());
        let element = types::to_runtime(datatype);
        #[expect(
            unsafe_code,
            reason = "ort's tensors have the type of their elements in Rust's types"
        )]
        // SAFETY: the tensor keeps a share of the allocator, and `rank` sides are read.
        let status = unsafe {
            (ort::api().CreateTensorAsOrtValue)(
                allocator.address(),
                sides,
                rank,
                element.into(),
                &raw mut value,
            )
        };
        session.check("CreateTensorAsOrtValue", status)?;
        let value = NonNull::new(value).expect("CreateTensorAsOrtValue gives one or an error");
        let made_as = Some((datatype, shape.to_vec()));
        let memory = Memory::Allocator(Arc::clone(allocator));
        Ok(Self { value, made_as, memory, _session: Arc::clone(&session.session) })
    }

    /// A tensor over a part of an arena, for an input that a run copies to the device before anything reads it.
    pub(super) fn lent(
        range: LockedRange,
        datatype: DataType,
        shape: &[i64],
        session: &SharedSession,
    ) -> Result<Self, RuntimeFault> {
        let mut value = ptr::null_mut();
        let info = Place::Host.info(session.host)?;
        let (memory, element) = (range.slice(), types::to_runtime(datatype));
        #[expect(unsafe_code, reason = "ort's tensors own their memory or borrow a slice")]
        // SAFETY: the tensor keeps the arena mapped and its pages locked. ONNX Runtime checks that the shape has
        // no more bytes than the range. The client may write to it: the device copies what it finds, and the host
        // reads nothing.
        let status = unsafe {
            (ort::api().CreateTensorWithDataAsOrtValue)(
                info.ptr(),
                memory.as_ptr().cast(),
                memory.bytes(),
                shape.as_ptr(),
                shape.len(),
                element.into(),
                &raw mut value,
            )
        };
        session.check("CreateTensorWithDataAsOrtValue", status)?;
        let value = NonNull::new(value).expect("it gives a tensor or an error");
        let mut made = Self::without_allocator(value, session);
        made.memory = Memory::Lent(range);
        Ok(made)
    }

    /// A tensor of strings, in memory of the host.
    pub(super) fn of_texts(
        shape: &[i64],
        texts: &[&[u8]],
        session: &SharedSession,
    ) -> Result<Self, RuntimeFault> {
        let mut value = ptr::null_mut();
        let (sides, rank) = (shape.as_ptr(), shape.len());
        let (allocator, element) = (Allocator::default(), types::to_runtime(DataType::Bytes));
        #[expect(unsafe_code, reason = "ort's strings are UTF-8 without zeros; ours are any bytes")]
        // SAFETY: the default allocator is never freed, and `rank` sides are read.
        let status = unsafe {
            (ort::api().CreateTensorAsOrtValue)(
                allocator.ptr().cast_mut(),
                sides,
                rank,
                element.into(),
                &raw mut value,
            )
        };
        session.check("CreateTensorAsOrtValue", status)?;
        let value = NonNull::new(value).expect("CreateTensorAsOrtValue gives one or an error");
        let made = Self::without_allocator(value, session);
        for (at, text) in texts.iter().enumerate() {
            let mut room = ptr::null_mut();
            #[expect(unsafe_code, reason = "as above")]
            // SAFETY: the caller gives as many texts as the shape has elements; nothing else knows the tensor.
            let status = unsafe {
                (ort::api().GetResizedStringTensorElementBuffer)(
                    made.value.as_ptr(),
                    at,
                    text.len(),
                    &raw mut room,
                )
            };
            session.check("GetResizedStringTensorElementBuffer", status)?;
            #[expect(unsafe_code, reason = "memory of a string of ONNX Runtime")]
            // SAFETY: the string has `text.len()` bytes now, and no other has its memory.
            unsafe {
                ptr::copy_nonoverlapping(text.as_ptr(), room.cast(), text.len());
            }
        }
        Ok(made)
    }

    /// The strings of a tensor with that many elements, as the data of a BYTES tensor.
    pub(crate) fn texts(
        &self,
        elements: usize,
        session: &SharedSession,
    ) -> Result<Result<Vec<u8>, TextsError>, RuntimeFault> {
        let mut bytes = 0;
        #[expect(unsafe_code, reason = "ort describes only values that it has made itself")]
        // SAFETY: the caller has checked that it is a tensor of strings.
        let status =
            unsafe { (ort::api().GetStringTensorDataLength)(self.value.as_ptr(), &raw mut bytes) };
        session.check("GetStringTensorDataLength", status)?;
        if bytes > BYTES_TENSOR_MAX {
            return Ok(Err(TextsError::Tensor));
        }
        let (mut joined, mut starts) = (vec![0_u8; bytes], vec![0_usize; elements]);
        if elements > 0 {
            let (into, length) = (joined.as_mut_ptr().cast(), joined.len());
            #[expect(unsafe_code, reason = "ort reads only strings that are UTF-8")]
            // SAFETY: both have room for what is written: all bytes, and the start of each element.
            let status = unsafe {
                (ort::api().GetStringTensorContent)(
                    self.value.as_ptr(),
                    into,
                    length,
                    starts.as_mut_ptr(),
                    elements,
                )
            };
            session.check("GetStringTensorContent", status)?;
        }
        let mut data = Vec::new();
        let ends = starts.iter().skip(1).copied().chain([joined.len()]);
        for (element, (&start, end)) in starts.iter().zip(ends).enumerate() {
            if let Err(error) = put_text(&joined[start..end], element, &mut data) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(data))
    }

    /// A tensor that a run of this session gave us.
    pub(super) fn taken(value: *mut sys::OrtValue, session: &SharedSession) -> Option<Self> {
        Some(Self::without_allocator(NonNull::new(value)?, session))
    }

    fn without_allocator(value: NonNull<sys::OrtValue>, session: &SharedSession) -> Self {
        let session = Arc::clone(&session.session);
        Self { value, made_as: None, memory: Memory::Runtime, _session: session }
    }

    pub(super) fn address(&self) -> *const sys::OrtValue {
        self.value.as_ptr()
    }

    /// The type and shape it was made with; none for an output.
    pub(crate) fn made_as(&self) -> Option<(DataType, &[i64])> {
        self.made_as.as_ref().map(|(datatype, shape)| (*datatype, shape.as_slice()))
    }

    /// The number of its bytes.
    pub(crate) fn size(&self, session: &SharedSession) -> Result<usize, RuntimeFault> {
        self.memory(session).map(|(_, bytes)| bytes)
    }

    /// Whether it was made with this type and shape.
    pub(crate) fn is(&self, datatype: DataType, shape: &[i64]) -> bool {
        self.made_as.as_ref().is_some_and(|made| made.0 == datatype && made.1 == shape)
    }

    /// Its type, if it is a served one, and its shape.
    pub(crate) fn description(
        &self,
        session: &SharedSession,
    ) -> Result<(Option<DataType>, Vec<i64>), RuntimeFault> {
        let mut element = sys::ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
        let (mut sides, mut rank) = (ptr::null(), 0);
        #[expect(unsafe_code, reason = "ort describes only values that it has made itself")]
        // SAFETY: models with outputs that are no tensors were refused; the shape lives in the value.
        let status = unsafe {
            (ort::api().GetTensorElementTypeAndShapeDataReference)(
                self.value.as_ptr(),
                &raw mut element,
                &raw mut sides,
                &raw mut rank,
            )
        };
        session.check("GetTensorElementTypeAndShapeDataReference", status)?;
        let shape = if sides.is_null() {
            &[]
        } else {
            #[expect(unsafe_code, reason = "an array of C")]
            // SAFETY: the API gave `rank` sides, which live as long as the value.
            unsafe {
                slice::from_raw_parts(sides, rank)
            }
        };
        Ok((types::from_runtime(element.into()), shape.to_vec()))
    }

    /// Its bytes.
    pub(crate) fn bytes(&self, session: &SharedSession) -> Result<&[u8], RuntimeFault> {
        let (start, bytes) = self.memory(session)?;
        let Some(start) = start else { return Ok(&[]) };
        #[expect(unsafe_code, reason = "the memory of a tensor")]
        // SAFETY: the tensor has so many bytes that the host can read, and no thread writes them.
        Ok(unsafe { slice::from_raw_parts(start.as_ptr(), bytes) })
    }

    pub(crate) fn bytes_mut(&mut self, session: &SharedSession) -> Result<&mut [u8], RuntimeFault> {
        let (start, bytes) = self.memory(session)?;
        let Some(start) = start else { return Ok(&mut []) };
        #[expect(unsafe_code, reason = "the memory of a tensor")]
        // SAFETY: as for `bytes`, and the tensor is borrowed alone; no run is under way with it.
        Ok(unsafe { slice::from_raw_parts_mut(start.as_ptr(), bytes) })
    }

    /// The start and number of its bytes.
    pub(super) fn memory(
        &self,
        session: &SharedSession,
    ) -> Result<(Option<NonNull<u8>>, usize), RuntimeFault> {
        let mut bytes = 0;
        #[expect(unsafe_code, reason = "ort describes only values that it has made itself")]
        // SAFETY: it is a tensor without strings, and `bytes` is written.
        let status =
            unsafe { (ort::api().GetTensorSizeInBytes)(self.value.as_ptr(), &raw mut bytes) };
        session.check("GetTensorSizeInBytes", status)?;
        let mut start = ptr::null_mut();
        #[expect(unsafe_code, reason = "ort describes only values that it has made itself")]
        // SAFETY: as above. The call writes nothing but `start`.
        let status =
            unsafe { (ort::api().GetTensorMutableData)(self.value.as_ptr(), &raw mut start) };
        session.check("GetTensorMutableData", status)?;
        Ok((NonNull::new(start.cast()).filter(|_| bytes > 0), bytes))
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "the end of a tensor that is ours")]
        // SAFETY: it was made or taken once, and is not used again.
        unsafe {
            (ort::api().ReleaseValue)(self.value.as_ptr());
        }
    }
}
