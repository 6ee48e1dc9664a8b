//! The kernels of grids in planes of one size: `kernels/cuda/planes.cuh`.

use gridpool_kernels::solve::STOPPED;
use gridpool_protocol::output::{ItemErrorCode, NO_OP};

use super::{Device, OK, Status, area, is_null, number};
use crate::memory::Illegal;

impl Device<'_> {
    /// Rows and columns of the planes before and after.
    fn planes(&self) -> [[u8; 2]; 2] {
        let [h, w, rows, columns] =
            self.ops()[0].args.map(|side| u8::try_from(side).expect("a side"));
        [[h, w], [rows, columns]]
    }

    /// The size of a grid, if it is within its plane.
    fn size_within(&self, value: usize) -> Result<Option<[u8; 2]>, Illegal> {
        let mut size = [0; 2];
        for (at, most) in self.planes()[0].into_iter().enumerate() {
            let side = i64::from_le_bytes(self.array(self.step.sizes_before, 2 * value + at)?);
            match u8::try_from(side) {
                Ok(side) if (1..=most).contains(&side) => size[at] = side,
                Ok(_) | Err(_) => return Ok(None),
            }
        }
        Ok(Some(size))
    }

    pub(super) fn take_planes(&mut self) -> Result<(), Illegal> {
        for value in 0..self.step.values as usize {
            let (start, line) = (self.offset(value)?, usize::from(self.planes()[0][1]));
            let size = self.size_within(value)?;
            let (shape, mut cells) = (size.unwrap_or([1, 1]), Vec::new());
            for row in 0..usize::from(size.map_or(0, |size| size[0])) {
                let from = self.step.from.cells.plus(start + row * line);
                cells.extend(self.memory.read(number(from), shape[1].into())?);
            }
            if size.is_none() {
                cells.push(u8::MAX);
            }
            self.put(self.step.to.shapes, 2 * value, &shape)?;
            self.put_content(self.step.to.cells, start, &cells)?;
        }
        Ok(())
    }

    fn status_in_plane(&self, value: usize, shape: [u8; 2]) -> Result<Status, Illegal> {
        let status = self.status_before(value)?;
        if !is_null(self.step.sizes_before) && self.size_within(value)?.is_none() {
            return Ok([ItemErrorCode::BadShape as u8, NO_OP]);
        }
        let [_, [rows, columns]] = self.planes();
        if status == OK {
            let fits = shape[0] <= rows && shape[1] <= columns;
            return Ok(if fits { OK } else { [ItemErrorCode::Overflow as u8, NO_OP] });
        }
        if is_null(self.step.numbers) || status[0] == ItemErrorCode::BadCell as u8 {
            return Ok(status);
        }
        let instruction = self.u32(self.step.numbers, value)?.min(u32::from(NO_OP) - 1);
        let is_left = status[0] >= STOPPED;
        let code = if is_left { ItemErrorCode::Overflow as u8 } else { status[0] };
        Ok([code, u8::try_from(instruction).expect("below 255")])
    }

    pub(super) fn put_planes(&mut self) -> Result<(), Illegal> {
        let step = self.step;
        for value in 0..step.values as usize {
            let shape = self.array::<2>(step.from.shapes, value)?;
            let status = self.status_in_plane(value, shape)?;
            let shape = if status == OK { shape } else { [0; 2] };
            let start = self.start_before(value)?;
            let cells = match area(shape) {
                0 => Vec::new(),
                cells => self.memory.read(number(step.from.cells.plus(start)), cells)?,
            };
            let size = self.planes()[1];
            let mut plane = vec![0; area(size)];
            let lines = plane.chunks_mut(size[1].into());
            for (to, from) in lines.zip(cells.chunks(usize::from(shape[1]).max(1))) {
                to[..from.len()].copy_from_slice(from);
            }
            self.put_content(step.to.cells, value * area(size), &plane)?;
            self.set_status(value, status)?;
            let sides = shape.map(|side| i64::from(side).to_le_bytes());
            self.put(step.sizes, 16 * value, sides.as_flattened())?;
        }
        Ok(())
    }
}
