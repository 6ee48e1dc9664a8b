//! Pages of the book and files that the code generates: a test holds each, and the same test writes it with
//! `GRIDPOOL_WRITE=1 cargo test -p gridpool --lib generated`.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Tests that write one file take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Holds that `page` of the book has `text` between `<!-- mark -->` and `<!-- /mark -->`.
pub(crate) fn check(page: &str, mark: &str, text: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src").join(page);
    let document = fs::read_to_string(&path).expect(page);
    let (opens, closes) = (format!("<!-- {mark} -->"), format!("<!-- /{mark} -->"));
    let (before, rest) = document.split_once(&opens).expect("the opening mark is there");
    let (there, after) = rest.split_once(&closes).expect("the closing mark is there");
    let ours = format!("\n\n{}\n\n", text.trim_matches('\n'));
    if std::env::var_os("GRIDPOOL_WRITE").is_some() {
        let document = format!("{before}{opens}{ours}{closes}{after}");
        fs::write(&path, document).expect("the file can be written");
        return;
    }
    let differs = ours.lines().zip(there.lines()).find(|(ours, theirs)| ours != theirs);
    assert!(
        ours == there,
        "docs/src/{page} has something else at {opens} than the code. To write it anew: \
         GRIDPOOL_WRITE=1 cargo test -p gridpool --lib generated\n{differs:#?}"
    );
}

/// Holds that `path` under `supervisor/` is `text`.
pub(crate) fn check_file(path: &str, text: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("GRIDPOOL_WRITE").is_some() {
        fs::write(&path, text).expect("the file can be written");
        return;
    }
    let there = fs::read_to_string(&path).expect("the file can be read");
    let differs = text.lines().zip(there.lines()).find(|(ours, theirs)| ours != theirs);
    assert!(
        text == there,
        "{} has something else than the code. To write it anew: GRIDPOOL_WRITE=1 cargo test -p gridpool --lib \
         generated\n{differs:#?}",
        path.display()
    );
}

/// A table of Markdown: its head, then its rows.
pub(crate) fn table<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let line =
        |cells: [String; N]| format!("| {} |\n", cells.map(|cell| escaped(&cell)).join(" | "));
    let rule = format!("|{}\n", "---|".repeat(N));
    let rows: String = rows.into_iter().map(line).collect();
    line(head.map(str::to_owned)) + &rule + &rows
}

/// A bar would end a cell, and `<` begin an element.
fn escaped(cell: &str) -> String {
    cell.replace('|', "\\|").replace('<', "&lt;")
}

/// A field of a struct that the code documents.
pub(crate) struct Field {
    pub(crate) name: String,
    /// Its type as JSON has it.
    pub(crate) kind: String,
    /// Its documentation as one line.
    pub(crate) says: String,
}

/// The public fields of the struct `name`, as its source documents them.
pub(crate) fn fields(source: &str, name: &str) -> Vec<Field> {
    let (_, body) = source.split_once(&format!("pub struct {name} {{\n")).expect(name);
    let (body, _) = body.split_once("\n}").expect("the struct ends");
    let (mut fields, mut says) = (Vec::new(), Vec::new());
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            says.push(text.trim());
        } else if let Some((name, kind)) =
            line.strip_prefix("pub ").and_then(|field| field.split_once(": "))
        {
            let says = plain(&std::mem::take(&mut says).join(" "));
            let kind = json_kind(kind.trim_end_matches(','));
            fields.push(Field { name: name.to_owned(), kind, says });
        }
    }
    assert!(!fields.is_empty(), "{name} has public fields");
    fields
}

/// [`fields`] as a table.
pub(crate) fn field_table(source: &str, name: &str) -> String {
    let rows = fields(source, name).into_iter();
    let rows = rows.map(|field| [format!("`{}`", field.name), field.kind, field.says]);
    table(["field", "type", "meaning"], rows)
}

/// As the book says it: it has no links to items, and JSON knows null.
fn plain(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`").replace("`None`", "null")
}

/// A type of Rust, as a reader of JSON knows it.
fn json_kind(kind: &str) -> String {
    let inside = |outer: &str| kind.strip_prefix(outer).and_then(|rest| rest.strip_suffix('>'));
    if let Some(shared) = inside("Arc<") {
        return json_kind(shared);
    }
    if let Some(inner) = inside("Option<") {
        return format!("{} or null", json_kind(inner));
    }
    let list = inside("Vec<").or_else(|| inside("BTreeSet<"));
    if let Some(item) = list.or_else(|| kind.strip_prefix('[')?.strip_suffix(']')) {
        return format!("list of {}", json_kind(item));
    }
    match kind {
        "String" | "str" | "PathBuf" => "text",
        "bool" => "true or false",
        "u32" | "u64" | "i64" | "usize" => "integer",
        "f64" => "number",
        // An object or one of some words: its own table says so.
        other => other,
    }
    .to_owned()
}
