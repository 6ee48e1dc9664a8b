//! What each op takes and gives.

use super::kind::{Kind, Type};
use super::ops::Op;
use super::variants::Measure;

const PICTURES: &[Kind] = &[Kind::Grid, Kind::Object, Kind::Patch];
const PATCHES: &[Kind] = &[Kind::Object, Kind::Patch];
const COLORED: &[Kind] = &[Kind::Grid, Kind::Object];

impl Op {
    /// What it gives for a value, or tuple of values, of this type; `None` if it does not work on it.
    #[must_use]
    pub fn gives(self, takes: Type) -> Option<Type> {
        match (takes.tuple, self) {
            (None, Self::HSplit { parts } | Self::VSplit { parts }) => {
                (takes.kind == Kind::Grid).then_some(Type::tuple(Kind::Grid, parts))
            }
            (None, _) => self.gives_for_one(takes.kind).map(Type::one),
            (Some(values), _) => {
                let joins = takes.kind == Kind::Grid && self.joins(values);
                joins.then_some(Type::one(Kind::Grid))
            }
        }
    }

    /// Whether it gives grids that have as many cells as the grids that it works on.
    #[must_use]
    pub fn keeps_area(self) -> bool {
        matches!(
            self,
            Self::Cover
                | Self::Fill { .. }
                | Self::Move { .. }
                | Self::Paint
                | Self::Replace { .. }
                | Self::Switch { .. }
                | Self::Symmetry(_)
                | Self::UnderFill { .. }
                | Self::UnderPaint
        )
    }

    /// Whether it makes one grid of a tuple of so many.
    fn joins(self, values: u8) -> bool {
        if let Self::NthElement { index } = self {
            return index < values;
        }
        matches!(self, Self::HConcat | Self::VConcat)
            || (matches!(self, Self::CellWise { .. }) && values == 2)
    }

    fn gives_for_one(self, kind: Kind) -> Option<Kind> {
        let from = |kinds: &[Kind], to: Kind| kinds.contains(&kind).then_some(to);
        let same = |kinds: &[Kind]| from(kinds, kind);
        match self {
            Self::Symmetry(symmetry) if symmetry.turns() => same(&[Kind::Grid]),
            Self::Symmetry(_) => same(PICTURES),
            Self::Canvas { .. }
            | Self::Compress
            | Self::Crop { .. }
            | Self::Downscale { .. }
            | Self::Half(_)
            | Self::HUpscale { .. }
            | Self::Replace { .. }
            | Self::Switch { .. }
            | Self::Trim
            | Self::VUpscale { .. } => same(&[Kind::Grid]),
            Self::Upscale { .. } => same(COLORED),
            Self::LeastColor | Self::MostColor | Self::NumColors | Self::ColorCount { .. } => {
                from(COLORED, Kind::Number)
            }
            Self::Palette => from(COLORED, Kind::Colors),
            Self::Objects(_) | Self::Partition | Self::FgPartition => {
                from(&[Kind::Grid], Kind::Objects)
            }
            Self::ColorFilter { .. } | Self::SizeFilter { .. } => same(&[Kind::Objects]),
            Self::ArgMax(_) | Self::ArgMin(_) | Self::Merge | Self::NthObject { .. } => {
                from(&[Kind::Objects], Kind::Object)
            }
            Self::Size => from(&[Kind::Objects, Kind::Object, Kind::Patch], Kind::Number),
            Self::AsIndices | Self::OfColor { .. } => from(&[Kind::Grid], Kind::Patch),
            Self::AsObject => from(&[Kind::Grid], Kind::Object),
            Self::ToIndices | Self::Frame(_) => from(PATCHES, Kind::Patch),
            Self::ToObject | Self::Recolor { .. } => from(PATCHES, Kind::Object),
            Self::Normalize | Self::Shift { .. } => same(PATCHES),
            Self::Cover | Self::Fill { .. } | Self::Subgrid | Self::UnderFill { .. } => {
                from(PATCHES, Kind::Grid)
            }
            Self::Move { .. } | Self::Paint | Self::UnderPaint => from(&[Kind::Object], Kind::Grid),
            Self::Measure(measure) => {
                let (kinds, to) = measured(measure);
                from(kinds, to)
            }
            Self::CellWise { .. }
            | Self::HConcat
            | Self::HSplit { .. }
            | Self::NthElement { .. }
            | Self::VConcat
            | Self::VSplit { .. } => None,
        }
    }
}

/// Of what a measure is taken, and what it gives.
fn measured(measure: Measure) -> (&'static [Kind], Kind) {
    match measure {
        Measure::Height | Measure::Width => (PICTURES, Kind::Number),
        Measure::Shape => (PICTURES, Kind::Vector),
        Measure::Portrait | Measure::Square => (PICTURES, Kind::Flag),
        Measure::HLine | Measure::VLine => (PATCHES, Kind::Flag),
        Measure::Leftmost | Measure::Lowermost | Measure::Rightmost | Measure::Uppermost => {
            (PATCHES, Kind::Number)
        }
        Measure::Center
        | Measure::CenterOfMass
        | Measure::LlCorner
        | Measure::LrCorner
        | Measure::UlCorner
        | Measure::UrCorner => (PATCHES, Kind::Vector),
        Measure::Color => (&[Kind::Object], Kind::Number),
    }
}
