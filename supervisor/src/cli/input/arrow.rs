//! Grids and pairs from an Arrow file or stream: a column of lists of lists of integers, or `input` and `output`.
//!
//! Owns the choice of columns and the errors in them. `table` finds a column's bytes. May not open files.

mod table;

use arrow_ipc::{Field, Type};
use gridpool_protocol::batch::Grid;
use gridpool_protocol::limits::COLOR_MAX;

use super::json::Contents;
use super::{Cause, Diagnostic, Location, Pair, Side};
use table::{Cells, Columns, Lists, Table, children};

pub(super) use table::has_magic;

/// Row, column and cause of an error within a grid.
type Fault = (Option<usize>, Option<usize>, Cause);

/// All rows of a file or stream.
pub(super) fn contents(bytes: &[u8]) -> Result<Contents, Box<Diagnostic>> {
    let table = Table::read(bytes)?;
    let fields: Vec<Field<'_>> = table.fields().collect();
    let place_of = |name: &str| fields.iter().position(|field| field.name() == Some(name));
    let no_grid = || Box::<Diagnostic>::from(Cause::NoGrid);
    if let Some(input) = place_of(Side::Input.key()) {
        let pairs = pairs(&table, &fields, input, place_of(Side::Output.key()))?;
        return if pairs.is_empty() { Err(no_grid()) } else { Ok(Contents::Pairs(pairs)) };
    }
    let columns: Vec<_> = (0..fields.len()).filter(|&at| is_grid(fields[at])).collect();
    let [column] = columns[..] else {
        return Err(Cause::ArrowColumns { columns: named(&fields) }.into());
    };
    let mut all = Vec::new();
    for batch in table.batches() {
        let grids = GridColumn::find(batch?, &fields, column)?;
        for at in 0..grids.len() {
            let place = Location { grid: Some(all.len()), ..Location::default() };
            all.push(grids.required(at, place)?);
        }
    }
    if all.is_empty() { Err(no_grid()) } else { Ok(Contents::Grids(all)) }
}

fn pairs(
    table: &Table<'_>,
    fields: &[Field<'_>],
    input: usize,
    output: Option<usize>,
) -> Result<Vec<Pair>, Box<Diagnostic>> {
    let mut all = Vec::new();
    for batch in table.batches() {
        let batch = batch?;
        let inputs = GridColumn::find(batch, fields, input)?;
        let outputs = output.map(|at| GridColumn::find(batch, fields, at)).transpose()?;
        if outputs.as_ref().is_some_and(|outputs| outputs.len() != inputs.len()) {
            return Err(table::broken("its columns have several lengths"));
        }
        for at in 0..inputs.len() {
            let place =
                |side| Location { pair: Some(all.len()), side: Some(side), ..Location::default() };
            let output = match &outputs {
                Some(outputs) => outputs.grid(at, place(Side::Output))?,
                None => None,
            };
            all.push(Pair { input: inputs.required(at, place(Side::Input))?, output });
        }
    }
    Ok(all)
}

/// Lists of lists of integers.
fn is_grid(field: Field<'_>) -> bool {
    let cell = inner(field).and_then(inner);
    cell.is_some_and(|cell| cell.type_type() == Type::Int && cell.dictionary().is_none())
}

/// The type of a list's elements.
fn inner<'a>(field: Field<'a>) -> Option<Field<'a>> {
    let is_list = matches!(field.type_type(), Type::List | Type::LargeList | Type::FixedSizeList);
    children(field).next().filter(|_| is_list)
}

/// Names and types of columns.
fn named(fields: &[Field<'_>]) -> String {
    let kind = |field: &Field<'_>| field.type_type().variant_name().unwrap_or("an unknown type");
    let named = fields.iter().map(|field| {
        format!("`{}` of {}", field.name().unwrap_or_default().escape_debug(), kind(field))
    });
    named.collect::<Vec<_>>().join(", ")
}

/// A column of one record batch.
struct GridColumn<'a> {
    grids: Lists,
    rows: Lists,
    cells: Cells<'a>,
}

impl<'a> GridColumn<'a> {
    /// The column with this number.
    fn find(
        mut columns: Columns<'a>,
        fields: &[Field<'a>],
        number: usize,
    ) -> Result<Self, Box<Diagnostic>> {
        let field = fields[number];
        let (Some(row), Some(cell), true) =
            (inner(field), inner(field).and_then(inner), is_grid(field))
        else {
            let wanted = "lists of lists of integers in the columns `input` and `output`";
            return Err(Cause::Type { wanted, found: named(&[field]) }.into());
        };
        for before in &fields[..number] {
            columns.skip(*before)?;
        }
        let grids = columns.lists(field)?;
        let rows = columns.lists(row)?;
        let cells = columns.integers(cell)?;
        if grids.end() > rows.len() || rows.end() > cells.len() {
            return Err(table::broken("a list ends after its elements"));
        }
        Ok(Self { grids, rows, cells })
    }

    fn len(&self) -> usize {
        self.grids.len()
    }

    fn required(&self, at: usize, place: Location) -> Result<Grid, Box<Diagnostic>> {
        let missing = Diagnostic { place: place.clone(), cause: Cause::Null };
        self.grid(at, place)?.ok_or_else(|| Box::new(missing))
    }

    /// A grid; `None` is a null.
    fn grid(&self, at: usize, place: Location) -> Result<Option<Grid>, Box<Diagnostic>> {
        let Some(rows) = self.grids.get(at) else { return Ok(None) };
        let read: Result<Vec<Vec<u8>>, Fault> =
            rows.enumerate().map(|(number, row)| self.row(number, row)).collect();
        let grid = read
            .and_then(|rows| Grid::from_rows(&rows).map_err(|error| (None, None, error.into())));
        grid.map(Some).map_err(|(row, column, cause)| {
            Box::new(Diagnostic { place: Location { row, column, ..place }, cause })
        })
    }

    fn row(&self, number: usize, row: usize) -> Result<Vec<u8>, Fault> {
        let cells = self.rows.get(row).ok_or((Some(number), None, Cause::Null))?;
        let color = |(column, at): (usize, usize)| {
            let value = self.cells.get(at);
            let color = value.and_then(|value| u8::try_from(value).ok());
            color.filter(|&color| color <= COLOR_MAX).ok_or_else(|| {
                let found = value.map_or_else(|| "null".to_owned(), |value| value.to_string());
                (Some(number), Some(column), Cause::Color { found })
            })
        };
        cells.enumerate().map(color).collect()
    }
}
