//! That the documentation holds together: links lead somewhere, every page is in the table of contents,
//! what is named exists, and what is shown works. `gridpool`'s own tests hold the pages that the code
//! generates, and that every command which is shown can be typed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use gridpool_protocol::exit;
use gridpool_protocol::program::{Program, Ties};

/// Pages outside of the book.
const FRONT: [&str; 3] = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"];
/// A front page is read in a minute.
const README_BYTES_MAX: usize = 10 << 10;
/// Where a path of the repository begins.
const FOLDERS: [&str; 8] =
    [".ci/run", ".github", "docs", "kernels", "protocol", "supervisor", "tests", "worker"];

#[test]
fn every_link_leads_to_a_file_and_to_a_heading_that_are_there() {
    let mut lost = Vec::new();
    for page in pages() {
        for target in links(&page.text) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let folder = page.path.parent().expect("a page lies in a folder");
            let at = if file.is_empty() { page.path.clone() } else { folder.join(file) };
            let is_there = match heading {
                "" => at.exists(),
                heading => {
                    fs::read_to_string(&at).is_ok_and(|text| headings(&text).contains(heading))
                }
            };
            // The book is built from its own folder alone.
            let leaves = page.is_of_book() && !within(&at, &book());
            if !is_there || leaves {
                lost.push(format!("{}: {target}", page.path.display()));
            }
        }
    }
    assert!(lost.is_empty(), "\n{}", lost.join("\n"));
}

#[test]
fn every_page_of_the_book_is_in_its_table_of_contents() {
    let summary = fs::read_to_string(book().join("SUMMARY.md")).expect("a table of contents");
    let listed: BTreeSet<_> = links(&summary).map(|file| book().join(file)).collect();
    let pages = pages().into_iter().filter(|page| page.is_of_book()).map(|page| page.path);
    let pages: BTreeSet<_> = pages.filter(|path| !path.ends_with("SUMMARY.md")).collect();
    assert_eq!(listed, pages);
}

#[test]
fn the_front_page_is_short_and_its_first_commands_build_and_test() {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README");
    assert!(readme.len() <= README_BYTES_MAX, "README.md has {} bytes", readme.len());
    let commands: Vec<&str> = blocks(&readme, "sh").flat_map(str::lines).collect();
    assert!(commands[0].starts_with("cargo build --release --locked && target/release/gridpool"));
    assert_eq!(commands[1], "cargo test --workspace --locked");
}

#[test]
fn every_program_that_is_shown_compiles() {
    let mut shown = 0;
    let mut compile = |program: &str, page: &Page| {
        shown += 1;
        Program::compile(program, Ties::Cpython)
            .unwrap_or_else(|error| panic!("{}: {error}", page.path.display()));
    };
    for page in pages() {
        let commands = blocks(&page.text, "sh").flat_map(str::lines);
        let runs = |line: &&str| line.contains("gridpool run") || line.contains("gridpool submit");
        for line in commands.filter(runs) {
            line.split('\'').nth(1).into_iter().for_each(|program| compile(program, &page));
        }
        if page.path.ends_with("guide/programs.md") {
            // A program, three spaces or more, and what it does.
            let lines = blocks(&page.text, "text").flat_map(str::lines);
            let programs = lines.filter_map(|line| line.split_once("   "));
            programs.for_each(|(program, _)| compile(program, &page));
        }
    }
    assert!(shown >= 12, "{shown} programs are shown");
}

#[test]
fn every_path_of_the_repository_that_is_named_exists() {
    let is_ours = |path: &&str| {
        FOLDERS.iter().any(|folder| path.starts_with(&format!("{folder}/")) || path == folder)
    };
    let mut lost = Vec::new();
    for page in pages() {
        let named =
            page.text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2));
        let typed =
            blocks(&page.text, "sh").flat_map(|block| block.split([' ', '\n', '=', '@', '\'']));
        // Places where what is run writes.
        let is_made = |path: &&str| path.contains('*') || path.ends_with("/ptx");
        for path in named.chain(typed).filter(is_ours).filter(|path| !is_made(path)) {
            let paths = alternatives(path).into_iter();
            let gone = paths.filter(|path| !root().join(path).exists());
            lost.extend(gone.map(|path| format!("{}: {path}", page.path.display())));
        }
    }
    assert!(lost.is_empty(), "\n{}", lost.join("\n"));
}

#[test]
fn every_test_that_is_named_exists() {
    // Between backquotes, long and in snake case: the name of a test, a metric, or a limit.
    let is_metric = |name: &str| name.starts_with("gridpool_") || name.starts_with("nv_");
    let is_limit =
        |name: &str| name.ends_with("_max") || name.ends_with("_s") || name.ends_with("_us");
    let is_plain =
        |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let is_test =
        |name: &&str| name.len() > 24 && is_plain(name) && !is_metric(name) && !is_limit(name);
    let pages = pages();
    let named: BTreeSet<&str> =
        pages.iter().flat_map(|page| page.text.split('`').filter(is_test)).collect();
    assert!(named.len() >= 60, "the book names its tests: {named:?}");
    let mut sources = Vec::new();
    ["kernels", "protocol", "supervisor", "tests", "worker"]
        .iter()
        .for_each(|folder| collect(&root().join(folder), "rs", &mut sources));
    let sources: String =
        sources.iter().map(|path| fs::read_to_string(path).expect("a source")).collect();
    let is_lost = |name: &&str| !sources.contains(&format!("fn {name}("));
    let lost: Vec<_> = named.into_iter().filter(is_lost).collect();
    assert!(lost.is_empty(), "there are no such tests: {lost:#?}");
}

#[test]
fn every_exit_code_has_something_to_do() {
    let text = fs::read_to_string(book().join("guide/trouble.md")).expect("the page is there");
    let (of_commands, of_workers) =
        text.split_once("## A device is out").expect("workers have a part of their own");
    // The part of a row that says what is seen.
    let named = |part: &str, words: &str| -> BTreeSet<u32> {
        let seen = part.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
        let after = seen.filter_map(|(seen, _)| seen.split_once(words)).map(|(_, after)| after);
        let codes = after.flat_map(|codes| codes.split(|it: char| !it.is_ascii_digit()));
        codes.filter_map(|code| code.parse().ok()).collect()
    };
    let commands = named(of_commands, "exit ");
    for (code, meaning) in exit::cli::TABLE.into_iter().filter(|&(code, _)| code != exit::cli::OK) {
        assert!(commands.contains(&u32::from(code)), "{code}: {meaning}");
    }
    let workers = named(of_workers, "exit code ");
    for (code, name, _) in exit::worker::TABLE {
        assert!(u32::try_from(code).is_ok_and(|code| workers.contains(&code)), "{code}: {name}");
    }
}

#[test]
fn rust_that_is_shown_is_of_an_example_that_runs() {
    let mut examples = Vec::new();
    collect(&root().join("protocol/client/examples"), "rs", &mut examples);
    let examples: Vec<_> =
        examples.iter().map(|path| fs::read_to_string(path).expect("an example")).collect();
    let mut shown = 0;
    for page in pages() {
        for block in blocks(&page.text, "rust").chain(blocks(&page.text, "rust,ignore")) {
            shown += 1;
            let is_there = examples.iter().any(|example| example.contains(block));
            assert!(is_there, "{}: no example has\n{block}", page.path.display());
        }
    }
    assert!(shown >= 3, "{shown} pieces of Rust are shown");
}

#[test]
fn the_lives_of_a_worker_and_a_device_are_drawn_as_the_core_draws_them() {
    let page = fs::read_to_string(book().join("design/worker.md")).expect("a page");
    let drawn: Vec<&str> = blocks(&page, "text").collect();
    for (number, source) in ["slots.rs", "service.rs"].into_iter().enumerate() {
        let source = root().join("supervisor/core/src/pool").join(source);
        let source = fs::read_to_string(source).expect("a file of the core");
        let head = source.lines().map_while(|line| line.strip_prefix("//!"));
        let head: String =
            head.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect();
        let own = blocks(&head, "text").next().expect("a drawing");
        let [own, drawn] = [own, drawn[number]].map(|drawing| drawing.trim_matches('\n'));
        let unspaced = |drawing: &str| -> Vec<String> {
            drawing.lines().map(|line| line.trim_start().to_owned()).collect()
        };
        assert_eq!(unspaced(drawn), unspaced(own));
    }
}

struct Page {
    path: PathBuf,
    text: String,
}

impl Page {
    fn is_of_book(&self) -> bool {
        self.path.starts_with(book())
    }
}

fn pages() -> Vec<Page> {
    let mut paths: Vec<_> = FRONT.iter().map(|name| root().join(name)).collect();
    collect(&book(), "md", &mut paths);
    let page = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a page is UTF-8");
        Page { path, text }
    };
    paths.into_iter().map(page).collect()
}

/// The files of a folder and of those in it whose names end so.
fn collect(folder: &Path, ending: &str, paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("a folder can be listed");
    for path in entries.map(|entry| entry.expect("an entry can be read").path()) {
        if path.is_dir() {
            collect(&path, ending, paths);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            paths.push(path);
        }
    }
}

/// What stands in blocks of this language.
fn blocks<'a>(text: &'a str, language: &str) -> impl Iterator<Item = &'a str> {
    let opens = format!("```{language}\n");
    let after: Vec<&str> = text.split(opens.as_str()).skip(1).collect();
    after.into_iter().filter_map(|rest| rest.split("```").next())
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (names, after) = rest.split_once('}').expect("the brace is closed");
    names.split(',').map(|name| format!("{before}{name}{after}")).collect()
}

/// The targets of all links that lead to no other host. Code has none.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let outside_code = text.split("```").step_by(2);
    let targets = outside_code.flat_map(|prose| prose.split("](").skip(1));
    let targets = targets.filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://"))
}

/// What a link to each heading is called.
fn headings(text: &str) -> BTreeSet<String> {
    let prose = text.split("```").step_by(2).flat_map(str::lines);
    let titles =
        prose.filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#'));
    let id = |title: &str| {
        let kept = |c: char| c.is_alphanumeric() || "_- ".contains(c);
        let kept: String = title.trim().chars().filter(|&c| kept(c)).collect();
        kept.to_lowercase().replace(' ', "-")
    };
    titles.map(id).collect()
}

fn within(path: &Path, folder: &Path) -> bool {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir
            | Component::Normal(_)
            | Component::Prefix(_)
            | Component::RootDir => {
                plain.push(part);
            }
        }
    }
    plain.starts_with(folder)
}

fn book() -> PathBuf {
    root().join("docs/src")
}

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("tests is a folder of the repository").to_owned()
}
