//! JSON documents with grids: a task, tasks by name, a list of grids or pairs, and JSON lines of them.
//!
//! Owns the grammar, with a type for each level, from the cell outwards. It parses straight into grids, one
//! byte for each cell, and builds no tree of values. May not open files.

mod level;
pub(super) mod lines;

use gridpool_protocol::batch::Grid;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess};

use self::level::{Level, Trace, at, elements, fail};
use super::{Cause, Diagnostic, Location, Pair, Section, Side, Task};

/// The content of one JSON document or `.npy` array.
#[derive(Debug)]
pub(super) enum Contents {
    /// A list of grids.
    Grids(Vec<Grid>),
    /// A list of pairs.
    Pairs(Vec<Pair>),
    /// One task.
    Task(Task),
    /// Tasks by name, in the order of the file.
    Tasks(Vec<(String, Task)>),
}

/// Reads a whole document, or a file of lines.
pub(super) fn read(bytes: &[u8]) -> Result<Contents, Box<Diagnostic>> {
    if lines::are_there(bytes) {
        return lines::read(bytes);
    }
    whole::<Outermost>(bytes, |trace, error| {
        trace.into_diagnostic().unwrap_or_else(|| not_json(error, 0))
    })
}

/// The value of level `L` that is all of a text; `diagnose` makes the error.
fn whole<'de, L: Level<'de>>(
    bytes: &'de [u8],
    diagnose: impl FnOnce(Trace, &serde_json::Error) -> Box<Diagnostic>,
) -> Result<L::Value, Box<Diagnostic>> {
    let mut trace = Trace::default();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = at::<L>(&mut trace).deserialize(&mut json);
    let value = value.and_then(|value| json.end().map(|()| value));
    value.map_err(|error| diagnose(trace, &error))
}

/// An error of the parser in a text that begins after `lines` lines.
fn not_json(error: &serde_json::Error, above: usize) -> Box<Diagnostic> {
    let (line, column) = (error.line() + above, error.column());
    let message = error.to_string();
    let position = format!(" at line {} column {column}", error.line());
    let reason = message.strip_suffix(&position).unwrap_or(&message).to_owned();
    Cause::NotJson { line, column, reason }.into()
}

/// A colour.
struct Cell;

impl<'de> Level<'de> for Cell {
    type Value = u8;
    const WANTED: &'static str = "a colour from 0 to 9";

    fn number(number: u64) -> Option<u8> {
        u8::try_from(number).ok().filter(|&color| color <= gridpool_protocol::limits::COLOR_MAX)
    }

    fn refuse(found: String) -> Cause {
        Cause::Color { found }
    }
}

/// A list of cells.
struct Row;

impl<'de> Level<'de> for Row {
    type Value = Vec<u8>;
    const WANTED: &'static str = "a row, a list of colours";

    fn list<A: SeqAccess<'de>>(trace: &mut Trace, list: A) -> Result<Vec<u8>, A::Error> {
        elements::<Cell, A>(trace, list, |place, column| place.column = Some(column))
    }
}

/// A list of rows.
struct Rows;

impl<'de> Level<'de> for Rows {
    type Value = Grid;
    const WANTED: &'static str = "a grid, a list of rows";

    fn list<A: SeqAccess<'de>>(trace: &mut Trace, list: A) -> Result<Grid, A::Error> {
        let rows = elements::<Row, A>(trace, list, |place, row| place.row = Some(row))?;
        Grid::from_rows(&rows).map_err(|error| fail(trace, error.into()))
    }
}

/// The rows of a pair's output. A missing output is absent, not null.
struct OutputRows;

impl<'de> Level<'de> for OutputRows {
    type Value = Grid;
    const WANTED: &'static str = "a grid, a list of rows (a pair without output has no such key)";

    fn list<A: SeqAccess<'de>>(trace: &mut Trace, list: A) -> Result<Grid, A::Error> {
        Rows::list(trace, list)
    }
}

/// `{"input": grid, "output": grid}`; `output` may be absent.
struct PairObject;

impl<'de> Level<'de> for PairObject {
    type Value = Pair;
    const WANTED: &'static str = "a pair, an object with `input` and `output`";

    fn object<A: MapAccess<'de>>(trace: &mut Trace, mut object: A) -> Result<Pair, A::Error> {
        let (mut input, mut output) = (None, None);
        while let Some(key) = object.next_key::<String>()? {
            let (side, slot) = match side_of(&key) {
                Some(side @ Side::Input) => (side, &mut input),
                Some(side @ Side::Output) => (side, &mut output),
                None => {
                    let wanted = "a pair has `input` and `output`";
                    skip_remark(trace, &mut object, key, wanted)?;
                    continue;
                }
            };
            let grid = match side {
                Side::Input => object.next_value_seed(at::<Rows>(trace)),
                Side::Output => object.next_value_seed(at::<OutputRows>(trace)),
            };
            let grid = grid.inspect_err(|_| trace.place.side = Some(side))?;
            if slot.replace(grid).is_some() {
                return Err(fail(trace, Cause::DuplicateKey { key: side.key() }));
            }
        }
        match input {
            Some(input) => Ok(Pair { input, output }),
            None => Err(fail(trace, Cause::MissingKey { key: Side::Input.key() })),
        }
    }
}

/// A section: a list of pairs.
struct Pairs;

impl<'de> Level<'de> for Pairs {
    type Value = Vec<Pair>;
    const WANTED: &'static str = "a list of pairs";

    fn list<A: SeqAccess<'de>>(trace: &mut Trace, list: A) -> Result<Vec<Pair>, A::Error> {
        elements::<PairObject, A>(trace, list, |place, pair| place.pair = Some(pair))
    }
}

/// A task under construction: a section is `None` until its key comes.
#[derive(Default)]
struct Sections {
    train: Option<Vec<Pair>>,
    test: Option<Vec<Pair>>,
}

impl Sections {
    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        section: Section,
        trace: &mut Trace,
        object: &mut A,
    ) -> Result<(), A::Error> {
        let pairs = object.next_value_seed(at::<Pairs>(trace));
        let pairs = pairs.inspect_err(|_| trace.place.section = Some(section))?;
        let slot = match section {
            Section::Test => &mut self.test,
            Section::Train => &mut self.train,
        };
        if slot.replace(pairs).is_some() {
            return Err(fail(trace, Cause::DuplicateKey { key: section.key() }));
        }
        Ok(())
    }

    /// The task, if it has a pair. Either section may be missing or empty.
    fn finish<E: serde::de::Error>(self, trace: &mut Trace) -> Result<Task, E> {
        let task =
            Task { train: self.train.unwrap_or_default(), test: self.test.unwrap_or_default() };
        if task.train.is_empty() && task.test.is_empty() {
            return Err(fail(trace, Cause::NoPair));
        }
        Ok(task)
    }
}

fn side_of(key: &str) -> Option<Side> {
    [Side::Input, Side::Output].into_iter().find(|side| side.key() == key)
}

fn section_of(key: &str) -> Option<Section> {
    [Section::Train, Section::Test].into_iter().find(|section| section.key() == key)
}

/// A task of a collection, or a remark beside the tasks, which is skipped.
struct TaskOrRemark;

impl<'de> Level<'de> for TaskOrRemark {
    type Value = Option<Task>;
    const WANTED: &'static str = "a task, an object with `train` and `test`";

    fn remark() -> Option<Option<Task>> {
        Some(None)
    }

    fn object<A: MapAccess<'de>>(
        trace: &mut Trace,
        mut object: A,
    ) -> Result<Option<Task>, A::Error> {
        let mut sections = Sections::default();
        while let Some(key) = object.next_key::<String>()? {
            match section_of(&key) {
                Some(section) => sections.read(section, trace, &mut object)?,
                None => {
                    skip_remark(trace, &mut object, key, "a task has `train` and `test`")?;
                }
            }
        }
        sections.finish(trace).map(Some)
    }
}

/// One element of a list: a grid or a pair, like the first element.
enum Element {
    Grid(Grid),
    Pair(Pair),
}

impl<'de> Level<'de> for Element {
    type Value = Self;
    const WANTED: &'static str =
        "a grid (a list of rows) or a pair (an object with `input` and `output`)";

    fn list<A: SeqAccess<'de>>(trace: &mut Trace, list: A) -> Result<Self, A::Error> {
        Rows::list(trace, list).map(Self::Grid)
    }

    fn object<A: MapAccess<'de>>(trace: &mut Trace, object: A) -> Result<Self, A::Error> {
        let pair = PairObject::object(trace, object);
        // Only the list knows the pair's number.
        pair.map(Self::Pair).inspect_err(|_| trace.place.pair = Some(0))
    }
}

/// The elements of a list, if they are all grids or all pairs.
fn of_one_kind(elements: Vec<Element>) -> Result<Contents, Box<Diagnostic>> {
    let (mut grids, mut pairs) = (Vec::new(), Vec::new());
    for (number, element) in elements.into_iter().enumerate() {
        match element {
            Element::Grid(grid) if pairs.is_empty() => grids.push(grid),
            Element::Pair(pair) if grids.is_empty() => pairs.push(pair),
            Element::Grid(_) => {
                let place = Location { grid: Some(number), ..Location::default() };
                return Err(Diagnostic { place, cause: Cause::GridAmongPairs }.into());
            }
            Element::Pair(_) => {
                let place = Location { pair: Some(number), ..Location::default() };
                return Err(Diagnostic { place, cause: Cause::PairAmongGrids }.into());
            }
        }
    }
    match (grids.is_empty(), pairs.is_empty()) {
        (true, true) => Err(Cause::NoGrid.into()),
        (_, true) => Ok(Contents::Grids(grids)),
        (_, false) => Ok(Contents::Pairs(pairs)),
    }
}

/// The outermost level.
struct Outermost;

impl<'de> Level<'de> for Outermost {
    type Value = Contents;
    const WANTED: &'static str = "a task, tasks by name, or a list of grids or of pairs";

    fn list<A: SeqAccess<'de>>(trace: &mut Trace, list: A) -> Result<Contents, A::Error> {
        let elements = elements::<Element, A>(trace, list, |place, number| match &mut place.pair {
            Some(pair) => *pair = number,
            None => place.grid = Some(number),
        });
        let elements = elements.inspect_err(|_| notice_bare_grid(trace))?;
        of_one_kind(elements).map_err(|diagnostic| {
            trace.place = diagnostic.place;
            fail(trace, diagnostic.cause)
        })
    }

    fn object<A: MapAccess<'de>>(trace: &mut Trace, mut object: A) -> Result<Contents, A::Error> {
        let mut sections = Sections::default();
        let mut tasks = Vec::new();
        while let Some(key) = object.next_key::<String>()? {
            if let Some(section) = section_of(&key) {
                sections.read(section, trace, &mut object)?;
                continue;
            }
            match object.next_value_seed(at::<TaskOrRemark>(trace)) {
                Ok(Some(task)) => tasks.push((key, task)),
                Ok(None) => {}
                Err(error) => {
                    if side_of(&key).is_some() && trace.wanted(TaskOrRemark::WANTED) {
                        trace.cause = Some(Cause::BarePair);
                    } else {
                        trace.place.task = Some(key);
                    }
                    return Err(error);
                }
            }
        }
        match (sections.train.is_some() || sections.test.is_some(), tasks.is_empty()) {
            (true, true) => sections.finish(trace).map(Contents::Task),
            (true, false) => Err(fail(trace, Cause::Mixed)),
            (false, false) => Ok(Contents::Tasks(tasks)),
            (false, true) => {
                let hint = ": it has neither `train` nor `test` nor tasks by name";
                Err(fail(trace, Cause::NoTask { hint }))
            }
        }
    }
}

/// Recognises one grid in place of a list of grids: its first row holds no row.
fn notice_bare_grid(trace: &mut Trace) {
    let first = trace.place.grid == Some(0) && trace.place.row == Some(0);
    if first && trace.wanted(Row::WANTED) {
        *trace = Trace { cause: Some(Cause::BareGrid), ..Trace::default() };
    }
}

/// A text, number or flag under a key of its own, such as a task's name.
struct Remark;

impl<'de> Level<'de> for Remark {
    type Value = ();
    const WANTED: &'static str = "a remark";

    fn remark() -> Option<()> {
        Some(())
    }
}

/// Skips a remark. Refuses a list or an object under an unknown key: it may be data under a misspelt key,
/// which would be lost.
fn skip_remark<'de, A: MapAccess<'de>>(
    trace: &mut Trace,
    object: &mut A,
    key: String,
    wanted: &'static str,
) -> Result<(), A::Error> {
    let value = object.next_value_seed(at::<Remark>(trace));
    value.inspect_err(|_| trace.replace_refusal(Cause::UnknownKey { key, wanted }))
}
