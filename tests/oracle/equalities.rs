//! Laws that are pairs of programs: both give the same result for every grid. Data only.
//!
//! They hold under `lowest`; under `cpython` the order of the cells decides ties. A program that makes an
//! empty grid on the way may have no result where the other has one.

/// Programs that give the same result for every grid.
pub const EQUAL: &[(&str, &str)] = &[
    ("rot90 | rot90", "rot180"),
    ("rot90 | rot90 | rot90", "rot270"),
    ("rot90 | rot90 | rot90 | rot90", "identity"),
    ("rot180 | rot180", "identity"),
    ("dmirror | hmirror", "rot270"),
    ("hmirror | dmirror", "rot90"),
    ("hmirror | vmirror", "rot180"),
    ("dmirror | cmirror", "rot180"),
    // Recolouring.
    ("replace(4, 4)", "identity"),
    ("replace(1, 2) | replace(1, 3)", "replace(1, 2)"),
    ("replace(1, 2) | replace(2, 3)", "replace(2, 3) | replace(1, 3)"),
    ("replace(1, 2) | colorcount(1)", "replace(1, 0) | colorcount(1)"),
    ("switch(0, 3) | switch(0, 3)", "identity"),
    ("switch(0, 3)", "switch(3, 0)"),
    ("switch(2, 2)", "identity"),
    ("switch(0, 3) | colorcount(3)", "colorcount(0)"),
    ("switch(0, 3) | numcolors", "numcolors"),
    ("rot90 | switch(1, 2)", "switch(1, 2) | rot90"),
    ("cmirror | replace(0, 1)", "replace(0, 1) | cmirror"),
    ("rot90 | palette", "palette"),
    ("dmirror | mostcolor", "mostcolor"),
    ("vmirror | leastcolor", "leastcolor"),
    ("asobject | palette", "palette"),
    ("asobject | mostcolor", "mostcolor"),
    ("asobject | leastcolor", "leastcolor"),
    // Cutting.
    ("tophalf", "hmirror | bottomhalf | hmirror"),
    ("lefthalf", "dmirror | tophalf | dmirror"),
    ("righthalf", "vmirror | lefthalf | vmirror"),
    ("trim | rot90", "rot90 | trim"),
    ("trim", "crop(1, 1, 255, 255) | rot180 | crop(1, 1, 255, 255) | rot180"),
    ("compress | cmirror", "cmirror | compress"),
    ("crop(0, 0, 255, 255)", "identity"),
    ("crop(1, 0, 5, 255) | crop(2, 1, 4, 3)", "crop(3, 1, 3, 3)"),
    ("crop(0, 2, 255, 3) | dmirror", "dmirror | crop(2, 0, 3, 255)"),
    ("hsplit(1) | first", "identity"),
    ("vsplit(1) | last", "identity"),
    ("vsplit(3)", "rot270 | hsplit(3) | apply(rot90)"),
    ("vsplit(4)", "dmirror | hsplit(4) | apply(dmirror)"),
    ("hsplit(2) | first", "lefthalf"),
    // Scaling.
    ("upscale(3) | downscale(3)", "identity"),
    ("upscale(2)", "hupscale(2) | vupscale(2)"),
    ("hupscale(2)", "rot90 | vupscale(2) | rot270"),
    ("hupscale(3) | hupscale(2)", "hupscale(6)"),
    ("upscale(2) | rot90", "rot90 | upscale(2)"),
    ("downscale(2) | downscale(3)", "downscale(6)"),
    ("upscale(2) | compress", "compress | upscale(2)"),
    ("upscale(2) | mostcolor", "mostcolor"),
    ("downscale(255)", "crop(0, 0, 1, 1)"),
    ("canvas(3, 4, 5)", "canvas(0, 4, 1) | hupscale(5) | replace(0, 3)"),
    // Joining.
    (
        "hupscale(2) | hsplit(2) | vconcat",
        "hupscale(2) | hsplit(2) | apply(rot270) | hconcat | rot90",
    ),
    ("hupscale(2) | hsplit(2) | hconcat", "hupscale(2)"),
    ("vupscale(3) | vsplit(3) | vconcat", "vupscale(3)"),
    ("hupscale(2) | hsplit(2) | hconcat | lefthalf", "hupscale(2) | hsplit(2) | first"),
    ("hupscale(2) | hsplit(2) | hconcat | righthalf", "hupscale(2) | hsplit(2) | second"),
    ("vupscale(2) | vsplit(2) | vconcat | bottomhalf", "vupscale(2) | vsplit(2) | last"),
    // Patches, and painting them.
    ("fill(4, ofcolor(0))", "replace(0, 4)"),
    ("ofcolor(2) | size", "colorcount(2)"),
    ("ofcolor(2) | recolor(7) | paint", "replace(2, 7)"),
    ("ofcolor(2) | toobject | paint", "identity"),
    ("ofcolor(2) | toobject | toindices", "ofcolor(2)"),
    ("asindices | toobject", "asobject"),
    ("asobject | toindices", "asindices"),
    ("asobject | paint", "identity"),
    ("asobject | subgrid", "identity"),
    ("asobject | cmirror | shape", "rot90 | shape"),
    ("asobject | hmirror | paint", "hmirror"),
    ("asobject | vmirror | paint", "vmirror"),
    ("asobject | upscale(2) | toindices", "upscale(2) | asindices"),
    ("asobject | upscale(2) | shape", "upscale(2) | shape"),
    ("o_g(5) | merge | paint", "identity"),
    ("partition | merge", "asobject"),
    ("fgpartition | merge", "o_g(5) | merge"),
    ("o_g(1) | merge", "o_g(7) | merge"),
    ("fgpartition | merge | cover | numcolors", "canvas(0, 2, 2) | numcolors"),
    ("fgpartition | merge | underpaint", "identity"),
    ("o_g(5) | merge | move(0, 0)", "identity"),
    ("partition | size", "numcolors"),
    ("partition | first | color", "o_g(4) | first | color"),
    ("o_g(0)", "o_g(2)"),
    ("o_g(4) | colorfilter(1) | merge | toindices", "ofcolor(1)"),
    ("o_g(4) | first", "o_g(4) | argmin(uppermost)"),
    ("o_g(5) | sizefilter(0) | merge | paint", "identity"),
    ("asindices | fill(3) | palette", "canvas(3, 1, 1) | palette"),
    ("asindices | corners | box", "asindices | box"),
    ("asindices | outbox | size", "asindices | shift(7, 7) | outbox | size"),
    ("asindices | outbox | inbox", "asindices | box"),
    ("asindices | square", "square"),
    ("asobject | portrait", "portrait"),
    ("asindices | width", "width"),
    ("dmirror | width", "height"),
    ("asindices | shift(0, 1) | fill(3) | crop(0, 0, 255, 1)", "crop(0, 0, 255, 1)"),
    (
        "asindices | shift(-1, 0) | cover | rot180 | crop(0, 0, 1, 255)",
        "rot180 | crop(0, 0, 1, 255)",
    ),
    ("asindices | center", "asobject | center"),
    ("asindices | ulcorner", "canvas(1, 2, 2) | asindices | ulcorner"),
];

/// Continuations of an object or a patch that give the same result.
const ON_PIECES: &[(&str, &str)] = &[
    ("hmirror | hmirror", "identity"),
    ("vmirror | vmirror", "identity"),
    ("dmirror | dmirror", "identity"),
    ("cmirror | cmirror", "identity"),
    ("cmirror", "vmirror | dmirror | vmirror"),
    ("cmirror", "hmirror | dmirror | hmirror"),
    ("hmirror | vmirror", "dmirror | cmirror"),
    ("dmirror | hmirror | dmirror", "vmirror"),
    ("hmirror | delta | size", "delta | size"),
    ("vmirror | box", "box"),
    ("dmirror | outbox", "outbox | dmirror"),
    ("shift(2, -3) | shift(-2, 3)", "identity"),
    ("shift(2, -3) | shift(1, 1)", "shift(3, -2)"),
    ("shift(5, -9) | normalize", "normalize"),
    ("normalize | normalize", "normalize"),
    ("normalize | shape", "shape"),
    ("shift(4, 4) | hmirror", "hmirror | shift(4, 4)"),
    ("shift(-4, 7) | delta", "delta | shift(-4, 7)"),
    ("box | box", "box"),
    ("box | backdrop", "backdrop"),
    ("backdrop | backdrop", "backdrop"),
    ("backdrop | delta", "box | backdrop | delta"),
    ("outbox | inbox", "box"),
    ("outbox | delta", "backdrop"),
    ("corners | shape", "shape"),
    ("corners | backdrop", "backdrop"),
    ("recolor(3) | size", "size"),
    ("recolor(3) | toindices", "toindices"),
    ("recolor(3) | paint", "fill(3)"),
    ("recolor(3) | underpaint", "underfill(3)"),
    ("toindices | fill(6)", "fill(6)"),
    ("toindices | recolor(4)", "recolor(4)"),
    ("toobject | paint", "shift(99, 0) | cover"),
    ("shift(-99, 0) | fill(4)", "shift(0, 99) | underfill(4)"),
    ("backdrop | subgrid", "subgrid"),
    ("backdrop | toobject | normalize | paint | crop(0, 0, 1, 1)", "subgrid | crop(0, 0, 1, 1)"),
    ("subgrid | shape", "shape"),
    ("fill(4) | fill(7, asindices)", "cover | fill(7, asindices)"),
];

/// Objects and patches of a grid: on the ground and beside it, with holes and without, or empty.
pub const PIECES: &[&str] = &[
    "o_g(5) | argmax(size)",
    "o_g(7) | argmin(width)",
    "o_g(3) | last",
    "fgpartition | first",
    "fgpartition | merge",
    "asobject",
    "ofcolor(0)",
    "ofcolor(1)",
    "asindices",
    "o_g(5) | first | toindices",
];

/// Continuations that give the same result for objects only.
const ON_OBJECTS: &[(&str, &str)] = &[
    ("hmirror | palette", "palette"),
    ("dmirror | mostcolor", "mostcolor"),
    ("cmirror | colorcount(1)", "colorcount(1)"),
    ("upscale(1)", "identity"),
    ("upscale(2) | upscale(2)", "upscale(4)"),
    ("upscale(2) | ulcorner", "ulcorner"),
    ("upscale(2) | vmirror", "vmirror | upscale(2)"),
    ("upscale(3) | toindices | normalize", "recolor(0) | normalize | upscale(3) | toindices"),
    ("upscale(2) | leastcolor", "leastcolor"),
    ("upscale(2) | delta | size", "delta | recolor(0) | upscale(2) | size"),
    ("paint | palette", "toobject | paint | palette"),
    ("move(0, 0)", "paint"),
    ("move(99, 0)", "cover"),
    ("toobject", "identity"),
    ("underpaint | underpaint(asobject)", "underpaint"),
    ("numcolors", "normalize | numcolors"),
];

/// How many of [`PIECES`], from the first, are objects.
const OBJECTS: usize = 6;

/// The laws on objects and patches, each after every program that makes one.
pub fn on_pieces() -> impl Iterator<Item = (String, String)> {
    let after = |laws: &'static [(&str, &str)], pieces: &'static [&str]| {
        pieces.iter().flat_map(move |piece| {
            let both =
                move |(a, b): &(&str, &str)| (format!("{piece} | {a}"), format!("{piece} | {b}"));
            laws.iter().map(both)
        })
    };
    after(ON_PIECES, PIECES).chain(after(ON_OBJECTS, &PIECES[..OBJECTS]))
}
