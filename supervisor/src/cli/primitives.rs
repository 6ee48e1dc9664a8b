//! The reference of what solvers may call: primitives and functions of functions, from the tables of the compiler.

use gridpool_protocol::solver::{BUILTINS, Kind, PRIMITIVES, Primitive, Want};

use crate::generated::{check, table};

/// `(grid: a grid, value: a number)`.
fn arguments(primitive: &Primitive) -> String {
    let one = |(name, want): &(&str, Want)| format!("{name}: {}", want.words());
    primitive.parameters.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The kind that it gives for arguments of usual kinds.
fn gives(primitive: &Primitive) -> String {
    let usual = |want: &Want| match want {
        Want::Any | Want::Number => Kind::Number,
        Want::Flag => Kind::Flag,
        Want::Numerical => Kind::Number,
        Want::Vector => Kind::Vector,
        Want::Grid | Want::Element | Want::Piece | Want::Mirrored | Want::Colored => Kind::Grid,
        Want::Patch => Kind::patch(),
        Want::Object => Kind::object(),
        Want::Container | Want::Numbers | Want::Set | Want::Sequence => Kind::set(Kind::Number),
        Want::Containers => Kind::set(Kind::set(Kind::Number)),
        Want::Patches => Kind::objects(),
        Want::Tuple => Kind::tuple(Kind::Number),
    };
    let kinds: Vec<Kind> = primitive.parameters.iter().map(|(_, want)| usual(want)).collect();
    let of = |kind: Kind| kind.to_string();
    let kinds: Vec<&Kind> = kinds.iter().collect();
    let gives = primitive.gives(&kinds).map_or_else(|| "a value".to_owned(), of);
    let depends = primitive.parameters.iter().any(|(_, want)| {
        !matches!(
            want,
            Want::Flag | Want::Number | Want::Vector | Want::Grid | Want::Patch | Want::Object
        )
    });
    if depends { format!("{gives}, or as its arguments are") } else { gives }
}

#[test]
fn the_generated_primitives_match_the_code() {
    let mut text = String::new();
    let mut families: Vec<&str> = PRIMITIVES.iter().map(|primitive| primitive.family).collect();
    families.dedup();
    for family in families {
        let of = PRIMITIVES.iter().filter(|primitive| primitive.family == family);
        let rows = of.map(|primitive| {
            let Primitive { opcode, meaning, .. } = primitive;
            let signature = format!("`{}`", primitive.signature());
            let meaning = (*meaning).to_owned();
            [
                signature,
                arguments(primitive),
                gives(primitive),
                meaning,
                (*opcode as u8).to_string(),
            ]
        });
        let head = ["primitive", "wants", "gives", "meaning", "opcode"];
        text.push_str(&format!("## {family}\n\n{}\n", table(head, rows)));
    }
    check("reference/primitives.md", "primitives", &text);
    let rows = BUILTINS.iter().map(|builtin| {
        let wants: Vec<_> = builtin
            .parameters
            .iter()
            .map(|(name, takes)| format!("{name}: {}", takes.words()))
            .collect();
        [
            format!("`{}`", builtin.signature()),
            wants.join("; "),
            builtin.gives.to_owned(),
            builtin.meaning.to_owned(),
        ]
    });
    check(
        "reference/primitives.md",
        "builtins",
        &table(["function", "wants", "gives", "meaning"], rows),
    );
}
