//! What a primitive accepts: which kinds, what they are converted into first, and which kind comes out.

use super::kind::Kind;

/// The kinds that one argument may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A value of any kind.
    Any,
    /// A flag. A number that is not 0 is true.
    Flag,
    /// A number.
    Number,
    /// A number or a vector.
    Numerical,
    /// A vector.
    Vector,
    /// A grid.
    Grid,
    /// A set or tuple of places or cells.
    Patch,
    /// A set or tuple of cells.
    Object,
    /// A grid or an object.
    Element,
    /// A grid, a patch or an object.
    Piece,
    /// A grid, or a set of places or cells.
    Mirrored,
    /// A grid, or a set or tuple of places or cells.
    Colored,
    /// A set, or what can be seen as a tuple.
    Container,
    /// A container of containers.
    Containers,
    /// A container of patches or objects.
    Patches,
    /// A container of numbers or vectors.
    Numbers,
    /// What can be seen as a tuple.
    Tuple,
    /// A set.
    Set,
    /// A container, a pair or a cell.
    Sequence,
}

impl Want {
    /// The kind that an argument of this kind is converted into; `None` if it is refused.
    #[must_use]
    pub fn accept(self, kind: &Kind) -> Option<Kind> {
        let same = || Some(kind.clone());
        let grid = || kind.is_gridlike().then_some(Kind::Grid);
        match self {
            Self::Any => same(),
            Self::Flag | Self::Number => same().filter(Kind::is_number),
            Self::Numerical => same().filter(|kind| kind.is_number() || *kind == Kind::Vector),
            Self::Vector => {
                let numbers = kind.tuple_of().is_some_and(|element| element.is_number());
                (*kind == Kind::Vector || numbers).then_some(Kind::Vector)
            }
            Self::Grid => grid(),
            Self::Patch => patch(kind),
            Self::Object => object(kind),
            Self::Element => grid().or_else(|| object(kind).filter(is_set)),
            Self::Piece | Self::Mirrored | Self::Colored if *kind == Kind::Grid => same(),
            Self::Piece | Self::Colored => patch(kind).or_else(grid),
            Self::Mirrored => patch(kind).filter(is_set).or_else(grid),
            Self::Container => container(kind),
            Self::Containers => of_elements(kind, |element| {
                if *element == Kind::Never {
                    Some(Kind::tuple(Kind::Never))
                } else {
                    container(element)
                }
            }),
            Self::Patches => of_elements(kind, |element| {
                if *element == Kind::Never { Some(Kind::patch()) } else { patch(element) }
            }),
            Self::Numbers => of_elements(kind, |element| {
                let fits = element.is_number() || matches!(element, Kind::Vector | Kind::Never);
                fits.then(|| element.clone())
            }),
            Self::Tuple => kind.tuple_of().map(Kind::tuple),
            Self::Set => same().filter(is_set),
            Self::Sequence => match kind {
                Kind::Pair(_) | Kind::Cell | Kind::Vector => same(),
                Kind::Never
                | Kind::Flag
                | Kind::Number
                | Kind::Place
                | Kind::Grid
                | Kind::Set(_)
                | Kind::Tuple(_) => container(kind),
            },
        }
    }

    /// The kinds in words, with an article.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Any => "a value",
            Self::Flag => "a flag",
            Self::Number => "a number",
            Self::Numerical => "a number or a vector",
            Self::Vector => "a vector",
            Self::Grid => "a grid",
            Self::Patch => "a patch or an object",
            Self::Object => "an object",
            Self::Element => "a grid or an object",
            Self::Piece | Self::Mirrored | Self::Colored => "a grid, a patch or an object",
            Self::Container => "a set or a tuple",
            Self::Containers => "a set or tuple of sets or tuples",
            Self::Patches => "a set or tuple of objects",
            Self::Numbers => "a set or tuple of numbers or vectors",
            Self::Tuple => "a tuple",
            Self::Set => "a set",
            Self::Sequence => "a set, a tuple or a pair",
        }
    }
}

/// How two arguments must fit together before the primitive sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Each for itself.
    Free,
    /// Both values are of one kind.
    Alike,
    /// One argument is of the kind of the other's elements.
    ElementOf {
        /// The place of the value.
        value: u8,
        /// The place of the container.
        container: u8,
    },
    /// The elements of both containers are of one kind.
    SameElements,
}

fn is_set(kind: &Kind) -> bool {
    matches!(kind, Kind::Set(_))
}

fn container(kind: &Kind) -> Option<Kind> {
    match kind.element() {
        Some(_) => Some(kind.clone()),
        None => kind.tuple_of().map(Kind::tuple),
    }
}

/// The kind as a container whose elements are converted by `each`.
fn of_elements(kind: &Kind, each: impl Fn(&Kind) -> Option<Kind>) -> Option<Kind> {
    let container = container(kind)?;
    let element = each(container.element()?)?;
    Some(if is_set(&container) { Kind::set(element) } else { Kind::tuple(element) })
}

fn patch(kind: &Kind) -> Option<Kind> {
    container(kind).filter(|kind| kind.element().is_some_and(Kind::is_place))
}

fn object(kind: &Kind) -> Option<Kind> {
    let patch = patch(kind)?;
    match (&patch, patch.element()?) {
        (_, Kind::Vector) => None,
        (_, Kind::Cell) => Some(patch),
        (Kind::Set(_), _) => Some(Kind::object()),
        (_, _) => Some(Kind::tuple(Kind::Cell)),
    }
}
