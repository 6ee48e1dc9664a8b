//! The input of a job in a capsule: grids in their JSON shape, tensors and searches as base64. What a client has
//! written is read through a limit, and nothing of it is believed.

use std::io;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gridpool_protocol::batch::{BatchLayout, Grid, GridBatch};
use gridpool_protocol::limits::{COLOR_MAX, GRID_CELLS_MAX};
use gridpool_protocol::message::Packing;
use gridpool_protocol::receipt::ItemRange;
use gridpool_protocol::search::{SearchLayout, SearchSize};
use gridpool_protocol::status::CapsuleMode;
use gridpool_protocol::tensor::{DataType, Packed, Tensor, TensorLayout};
use serde::{Deserialize, Serialize};

use super::SavedWork;

/// A grid: its rows, each a list of colours.
pub type Rows = Vec<Vec<u8>>;

/// Bytes of JSON around a grid or a pair.
const AROUND: u64 = 24;

/// What a job ran over, as far as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Input {
    /// Grids, one an item, of items in a row. `left_out` items more were beyond the limit of a capsule.
    Grids {
        /// Those that are kept.
        grids: Vec<Rows>,
        /// How many more there were.
        left_out: u32,
    },
    /// Pairs of grids.
    Pairs {
        /// Those that are kept.
        pairs: Vec<SavedPair>,
        /// How many more there were.
        left_out: u32,
    },
    /// Named tensors.
    Tensors {
        /// All of them.
        tensors: Vec<SavedTensor>,
    },
    /// The programs and pairs of a search.
    Search {
        /// How many there are.
        size: SearchSize,
        /// Packed, in base64; `null` if it is left out.
        packed: Option<String>,
    },
    /// Height and width of each grid alone; for pairs, of inputs and outputs in turn.
    Shapes {
        /// Those that are kept.
        shapes: Vec<[u8; 2]>,
        /// How many items more there were.
        left_out: u32,
    },
    /// It is not kept.
    Missing {
        /// Why.
        why: String,
    },
}

/// A pair of grids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedPair {
    /// The input.
    pub input: Rows,
    /// The output, unless it is missing.
    pub output: Option<Rows>,
}

/// A tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedTensor {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub datatype: DataType,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its bytes, in base64: little-endian, row-major. `null` if they are left out.
    pub data: Option<String>,
}

/// The packed input of a job, wherever it lies.
pub trait Source {
    /// Its length, bytes.
    fn bytes(&self) -> u64;

    /// Copies from an offset to `to`.
    ///
    /// # Errors
    /// The system's; or the input is not as long as its job said.
    fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<()>;
}

/// How much of a capsule is left.
struct Budget<'a> {
    left: &'a mut u64,
}

impl Budget<'_> {
    /// Takes so many bytes, if they are left.
    fn take(&mut self, bytes: u64) -> bool {
        let has = *self.left >= bytes;
        *self.left -= if has { bytes } else { 0 };
        has
    }

    /// Takes what so many bytes take in base64.
    fn take_base64(&mut self, bytes: u64) -> bool {
        self.take(bytes.div_ceil(3).saturating_mul(4))
    }
}

impl Input {
    /// What a capsule keeps of an input, while less than `left` bytes are taken, and the item that the first of it is.
    /// If not all items fit, those from the item `first` on are kept first, then those before it.
    #[must_use]
    pub fn of(
        work: &SavedWork,
        grids_per_item: u32,
        packing: Packing,
        (part, first): (ItemRange, u32),
        source: &dyn Source,
        mode: CapsuleMode,
        left: &mut u64,
    ) -> (Self, u32) {
        let budget = Budget { left };
        let whole = |input| (input, part.start);
        let kept = match (work, packing) {
            (SavedWork::Program { .. }, Packing::Grids { items, cells }) => {
                BatchLayout::new(items, grids_per_item, cells)
                    .map_err(|error| error.to_string())
                    .and_then(|layout| of_batch(layout, (part, first), source, mode, budget))
            }
            (SavedWork::Model { .. }, Packing::Tensors) => {
                of_tensors(source, mode, budget).map(whole)
            }
            (SavedWork::Search { score }, Packing::Search(size)) => SearchLayout::new(size, *score)
                .map_err(|error| error.to_string())
                .and_then(|layout| of_search(size, layout, source, mode, budget).map(whole)),
            (_, Packing::Grids { .. } | Packing::Tensors | Packing::Search(_)) => {
                Err("the input is of another kind than the work".to_owned())
            }
        };
        kept.unwrap_or_else(|why| whole(Self::Missing { why }))
    }

    /// Items that were beyond the limit of a capsule.
    #[must_use]
    pub fn left_out(&self) -> u32 {
        match self {
            Self::Grids { left_out, .. }
            | Self::Pairs { left_out, .. }
            | Self::Shapes { left_out, .. } => *left_out,
            Self::Tensors { .. } | Self::Search { .. } | Self::Missing { .. } => 0,
        }
    }

    /// What it lacks; `None` if it can be run whole.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        const SHAPES: &str = "only shapes were kept (`capsules = \"shapes\"`)";
        match self {
            Self::Grids { left_out, .. } | Self::Pairs { left_out, .. } => (*left_out > 0)
                .then(|| format!("{left_out} items were beyond the limit of a capsule")),
            Self::Tensors { tensors } => {
                let without = tensors.iter().find(|tensor| tensor.data.is_none())?;
                Some(format!("the elements of `{}` were not kept", without.name))
            }
            Self::Search { packed, .. } => packed.is_none().then(|| SHAPES.to_owned()),
            Self::Shapes { .. } => Some(SHAPES.to_owned()),
            Self::Missing { why } => Some(format!("its input was not kept: {why}")),
        }
    }

    /// Whether it has anything that can be run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Grids { grids, .. } => grids.is_empty(),
            Self::Pairs { pairs, .. } => pairs.is_empty(),
            Self::Tensors { .. } | Self::Search { .. } => self.lacks().is_some(),
            Self::Shapes { .. } | Self::Missing { .. } => true,
        }
    }

    /// Checks what a hostile file may say.
    pub(super) fn check(&self, work: &SavedWork, items: u32) -> Result<(), String> {
        let counted = |kept: usize, left_out: u32| {
            let all = u64::from(left_out).checked_add(kept as u64);
            match all == Some(u64::from(items)) {
                true => Ok(()),
                false => Err(format!("it has {kept} items and {left_out} more, not {items}")),
            }
        };
        match (self, work) {
            (Self::Missing { .. }, _) => Ok(()),
            (Self::Grids { grids, left_out }, SavedWork::Program { .. }) => {
                counted(grids.len(), *left_out)?;
                self.batch().map(drop)
            }
            (Self::Pairs { pairs, left_out }, SavedWork::Program { .. }) => {
                counted(pairs.len(), *left_out)?;
                self.batch().map(drop)
            }
            (Self::Shapes { .. }, SavedWork::Program { .. }) => Ok(()),
            (Self::Tensors { tensors }, SavedWork::Model { .. }) => {
                tensors.iter().try_for_each(|tensor| tensor.read().map(drop))
            }
            (Self::Search { size, .. }, SavedWork::Search { score }) => {
                let layout = SearchLayout::new(*size, *score).map_err(|error| error.to_string())?;
                match self.search()? {
                    Some((_, bytes)) if bytes.len() < layout.input_bytes() => {
                        Err(format!("its programs and pairs have {} bytes", bytes.len()))
                    }
                    Some(_) | None => Ok(()),
                }
            }
            _ => Err("its input is of another kind than its work".to_owned()),
        }
    }

    /// The grids, packed; `None` if there are none.
    ///
    /// # Errors
    /// The first that is no grid.
    pub fn batch(&self) -> Result<Option<GridBatch>, String> {
        let grid = |rows: &Rows| grid_of(rows);
        let batch = match self {
            Self::Grids { grids, .. } => {
                let grids = grids.iter().map(grid).collect::<Result<Vec<_>, _>>()?;
                GridBatch::from_grids(&grids).map_err(|error| error.to_string())?
            }
            Self::Pairs { pairs, .. } => {
                let mut batch = GridBatch::of_items(2);
                for pair in pairs {
                    let (input, output) = (grid(&pair.input)?, pair.output.as_ref().map(grid));
                    let output = output.transpose()?;
                    batch.push_pair(&input, output.as_ref()).map_err(|error| error.to_string())?;
                }
                batch
            }
            Self::Tensors { .. }
            | Self::Search { .. }
            | Self::Shapes { .. }
            | Self::Missing { .. } => {
                return Ok(None);
            }
        };
        Ok(Some(batch).filter(|batch| !batch.is_empty()))
    }

    /// The packed bytes of a search; `None` if they are left out.
    ///
    /// # Errors
    /// That they are none.
    pub fn search(&self) -> Result<Option<(SearchSize, Vec<u8>)>, String> {
        let Self::Search { size, packed: Some(packed) } = self else { return Ok(None) };
        let bytes = STANDARD.decode(packed).map_err(|error| format!("its programs: {error}"))?;
        Ok(Some((*size, bytes)))
    }
}

impl SavedTensor {
    /// The tensor, and its bytes if they are kept.
    ///
    /// # Errors
    /// That it is none.
    pub fn read(&self) -> Result<(Tensor, Option<Vec<u8>>), String> {
        let tensor = Tensor::new(&*self.name, self.datatype, self.shape.clone());
        let tensor = tensor.map_err(|error| error.to_string())?;
        let Some(data) = &self.data else { return Ok((tensor, None)) };
        let bytes = STANDARD.decode(data).map_err(|error| format!("`{}`: {error}", self.name))?;
        // The length of BYTES follows from its elements alone.
        if self.datatype != DataType::Bytes && bytes.len() != tensor.bytes() {
            let (got, want) = (bytes.len(), tensor.bytes());
            return Err(format!("`{}` has {got} bytes, not {want}", self.name));
        }
        Ok((tensor, Some(bytes)))
    }
}

fn grid_of(rows: &Rows) -> Result<Grid, String> {
    Grid::from_rows(rows).map_err(|error| error.to_string())
}

fn io(error: &io::Error) -> String {
    format!("it cannot be read: {error}")
}

/// Items of a batch in a row, as long as they fit: from `first` on, then those before it. Also the first of them.
fn of_batch(
    layout: BatchLayout,
    (part, first): (ItemRange, u32),
    source: &dyn Source,
    mode: CapsuleMode,
    mut budget: Budget<'_>,
) -> Result<(Input, u32), String> {
    if source.bytes() < layout.bytes() as u64 || part.end as usize > layout.items() {
        return Err("it is shorter than its job said".to_owned());
    }
    let per_item = layout.grids_per_item();
    // No item takes less, so that so many tables on each side are enough.
    let most = u32::try_from(*budget.left / AROUND).unwrap_or(u32::MAX);
    let from = part.start.max(first.saturating_sub(most));
    let tables = from..part.end.min(first.saturating_add(most));
    let grids = tables.len() * per_item;
    let mut shapes = vec![[0; 2]; grids];
    let mut offsets = vec![[0; 4]; grids + 1];
    let at = |range: Range<usize>, element: usize| {
        (range.start + element * from as usize * per_item) as u64
    };
    let read = source
        .read(at(layout.shapes(), 2), shapes.as_flattened_mut())
        .and_then(|()| source.read(at(layout.offsets(), 4), offsets.as_flattened_mut()));
    read.map_err(|error| io(&error))?;
    let of_item = |item: u32| {
        let at = (item - from) as usize * per_item;
        at..at + per_item
    };
    let mut is_kept = |item: &u32| {
        let shapes = &shapes[of_item(*item)];
        let cells: u64 = shapes.iter().map(|&[h, w]| u64::from(h) * u64::from(w)).sum();
        let rows: u64 = shapes.iter().map(|&[h, _]| u64::from(h)).sum();
        budget.take(match mode {
            CapsuleMode::Shapes => AROUND,
            CapsuleMode::On | CapsuleMode::Off => 2 * cells + 2 * rows + AROUND,
        })
    };
    let end = (first..tables.end).find(|item| !is_kept(item)).unwrap_or(tables.end);
    let start = match end == part.end {
        true => (from..first).rev().find(|item| !is_kept(item)).map_or(from, |item| item + 1),
        false => first,
    };
    let left_out = part.len() - (end - start);
    let grids = of_item(start).start..of_item(end).start;
    if mode == CapsuleMode::Shapes {
        return Ok((Input::Shapes { shapes: shapes[grids].to_vec(), left_out }, start));
    }
    let rows = |(&[h, w], offset): (&[u8; 2], &[u8; 4])| {
        rows_of(layout, (h, w), u32::from_le_bytes(*offset), source)
    };
    let kept = shapes[grids.clone()].iter().zip(&offsets[grids]).map(rows);
    let kept: Vec<Option<Rows>> = kept.collect::<Result<_, _>>()?;
    if per_item == 1 {
        let grids: Option<Vec<Rows>> = kept.into_iter().collect();
        let grids = grids.ok_or("an item has no grid")?;
        return Ok((Input::Grids { grids, left_out }, start));
    }
    let mut pairs = Vec::with_capacity(kept.len() / 2);
    let mut kept = kept.into_iter();
    while let (Some(input), Some(output)) = (kept.next(), kept.next()) {
        pairs.push(SavedPair { input: input.ok_or("a pair has no input")?, output });
    }
    Ok((Input::Pairs { pairs, left_out }, start))
}

/// The rows of a grid; `None` for a missing one.
fn rows_of(
    layout: BatchLayout,
    (h, w): (u8, u8),
    start: u32,
    source: &dyn Source,
) -> Result<Option<Rows>, String> {
    let area = usize::from(h) * usize::from(w);
    if (h, w) == (0, 0) {
        return Ok(None);
    }
    let end = (start as usize).checked_add(area);
    if area == 0 || area > GRID_CELLS_MAX || end.is_none_or(|end| end > layout.cell_count()) {
        return Err(format!("a grid of {h} x {w} cells at {start} is impossible"));
    }
    let mut cells = vec![0; area];
    let at = layout.cells().start + start as usize;
    source.read(at as u64, &mut cells).map_err(|error| io(&error))?;
    if let Some(cell) = cells.iter().find(|&&cell| cell > COLOR_MAX) {
        return Err(format!("a cell is {cell}, which is no colour"));
    }
    Ok(Some(cells.chunks(usize::from(w)).map(<[u8]>::to_vec).collect()))
}

/// All tensors, if they fit.
fn of_tensors(
    source: &dyn Source,
    mode: CapsuleMode,
    mut budget: Budget<'_>,
) -> Result<Input, String> {
    let bytes = source.bytes();
    if !budget.take_base64(bytes) {
        return Err(format!("its {bytes} bytes were beyond the limit of a capsule"));
    }
    let bytes = whole(source)?;
    let packed = Packed::read(&bytes).map_err(|error| error.to_string())?;
    let data = |at: usize| match mode {
        CapsuleMode::On => Some(STANDARD.encode(packed.data(at))),
        CapsuleMode::Off | CapsuleMode::Shapes => None,
    };
    let saved = |(at, tensor): (usize, &Tensor)| SavedTensor {
        name: tensor.name().to_owned(),
        datatype: tensor.datatype(),
        shape: tensor.shape().to_vec(),
        data: data(at),
    };
    let layout: &TensorLayout = packed.layout();
    Ok(Input::Tensors { tensors: layout.tensors().iter().enumerate().map(saved).collect() })
}

/// A whole search, if it fits.
fn of_search(
    size: SearchSize,
    layout: SearchLayout,
    source: &dyn Source,
    mode: CapsuleMode,
    mut budget: Budget<'_>,
) -> Result<Input, String> {
    if mode == CapsuleMode::Shapes {
        return Ok(Input::Search { size, packed: None });
    }
    let bytes = layout.input_bytes() as u64;
    if source.bytes() < bytes {
        return Err("it is shorter than its job said".to_owned());
    }
    if !budget.take_base64(source.bytes()) {
        return Err(format!("its {bytes} bytes were beyond the limit of a capsule"));
    }
    Ok(Input::Search { size, packed: Some(STANDARD.encode(whole(source)?)) })
}

fn whole(source: &dyn Source) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; usize::try_from(source.bytes()).map_err(|error| error.to_string())?];
    source.read(0, &mut bytes).map_err(|error| io(&error))?;
    Ok(bytes)
}
