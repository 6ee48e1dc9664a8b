//! Composes functions of the DSL, likely compositions first, and says which tasks they solve.
//!
//! `cargo run --release -p gridpool-client --example search -- TASKS PROGRAMS [FILE]` reads the ARC tasks of a folder,
//! makes at most PROGRAMS programs, and runs them in the pool at `GRIDPOOL_SOCKET`, or at the default socket. The first
//! program that fits the training pairs of a task is the answer; the test pairs only say whether it is right. `FILE`
//! gets what was solved and when, as JSON. The compositions are those of `grammar.txt`, beside this file.
#![expect(clippy::print_stdout, reason = "an example prints")]
#![expect(clippy::disallowed_methods, reason = "an example reads the clock")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use gridpool_client::{
    Candidate, Client, Grid, GridBatch, PairStatus, Search, SearchOutcome, SearchResult,
};
use serde_json::{Value, json};

/// What may be composed: a line is a price, a kind, and a form that gives a value of that kind.
const GRAMMAR: &str = include_str!("grammar.txt");
/// Steps that a program may run on a pair: what takes more is no short composition.
const STEPS: u32 = 2_000;
/// The highest price of a composition.
const PRICE_MAX: usize = 64;

/// A composition: a text with holes, and how many programs it stands for.
#[derive(Clone)]
struct Template {
    text: String,
    programs: u64,
}

/// A line of the grammar: its text before each of its kinds, and behind the last.
struct Form<'g> {
    price: usize,
    gives: &'g str,
    before: Template,
    kinds: Vec<(&'g str, Template)>,
}

/// The compositions of each kind that have one price.
type Priced<'g> = BTreeMap<&'g str, Vec<Template>>;

/// A task's name, and its pairs among all pairs: those to learn from, then those of the test.
struct Task {
    name: String,
    train: Range<usize>,
    test: Range<usize>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("name a folder of ARC tasks")?;
    let budget: u64 = arguments.next().ok_or("say how many programs to try at most")?.parse()?;
    let (tasks, pairs) = read(Path::new(&folder))?;
    let client = Client::builder().connect()?;

    let started = Instant::now();
    let templates = compositions(&grammar(GRAMMAR)?, budget);
    let named = |(number, of): (usize, &Template)| Candidate::new(number.to_string(), &*of.text);
    let programs: Vec<_> = templates.iter().enumerate().map(named).collect();
    let search = Search { steps: STEPS, only_solving: true, ..Search::new(pairs) };
    let mut stream = client.search(search, programs)?;
    let mut is_answered = vec![false; tasks.len()];
    let (mut answers, mut right) = (Vec::new(), 0);
    for result in stream.by_ref() {
        let SearchResult { id, outcome } = result?;
        let SearchOutcome::Done(verdicts) = outcome else { continue };
        let fits = |pairs: &Range<usize>| {
            verdicts.bytes()[pairs.clone()].iter().all(|status| *status == PairStatus::EQUAL)
        };
        for (task, is_answered) in tasks.iter().zip(&mut is_answered) {
            if *is_answered || !fits(&task.train) {
                continue;
            }
            *is_answered = true;
            let (seconds, is_right) = (started.elapsed().as_secs_f64(), fits(&task.test));
            let program = chosen(&templates, &id).ok_or("the result of no template")?;
            right += usize::from(is_right);
            let mark = if is_right { "solved by" } else { "missed by" };
            println!("{seconds:8.2} s  {}  {mark}  {program}", task.name);
            answers.push(json!({
                "task": task.name, "right": is_right, "seconds": seconds, "program": program,
            }));
        }
    }
    let (seconds, summary) = (started.elapsed().as_secs_f64(), stream.summary());
    let (programs, evaluations) = (summary.requested, summary.evaluations.executed);
    let (count, missed) = (tasks.len(), answers.len() - right);
    println!("{right} of {count} tasks solved, {missed} missed:");
    println!("{programs} programs, {evaluations} evaluations, {seconds:.1} s");
    if let Some(file) = arguments.next() {
        let found = json!({
            "tasks": count, "solved": right, "missed": missed, "programs": programs, "refused": summary.refused,
            "evaluations": evaluations, "devices": summary.devices, "seconds": seconds, "answers": answers,
        });
        fs::write(file, format!("{found}\n"))?;
    }
    Ok(())
}

/// Reads a grammar.
fn grammar(text: &str) -> Result<Vec<Form<'_>>, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| form(line).ok_or_else(|| format!("no line of a grammar: {line}"))).collect()
}

/// Reads `2 Grid = ? in [hconcat, vconcat](<Grid>, <Grid>)`.
fn form(line: &str) -> Option<Form<'_>> {
    let (head, form) = line.split_once(" = ")?;
    let (price, gives) = head.split_once(' ')?;
    let mut pieces = form.split(['<', '>']);
    let before = Template::of(pieces.next()?);
    let mut kinds = Vec::new();
    while let Some(kind) = pieces.next() {
        kinds.push((kind, Template::of(pieces.next()?)));
    }
    let price = price.parse().ok()?;
    // Each kind of a form has compositions of a lower price.
    (kinds.is_empty() || price > 0).then_some(Form { price, gives, before, kinds })
}

impl Template {
    /// Each list in brackets is a hole.
    fn of(text: &str) -> Self {
        let lists = text.split('[').skip(1).filter_map(|rest| rest.split(']').next());
        Self {
            text: text.to_owned(),
            programs: lists.map(|list| list.split(',').count() as u64).product(),
        }
    }

    fn then(&self, next: &Self) -> Self {
        Self {
            text: format!("{}{}", self.text, next.text),
            programs: self.programs * next.programs,
        }
    }
}

/// The compositions that give a grid, those of the lowest price first, while their programs are within the budget.
fn compositions(grammar: &[Form<'_>], budget: u64) -> Vec<Template> {
    let (mut cheaper, mut found, mut left) = (Vec::new(), Vec::new(), budget);
    while cheaper.len() <= PRICE_MAX {
        let priced = of_price(grammar, &cheaper);
        for Template { text, programs } in priced.get("Grid").into_iter().flatten() {
            left = match left.checked_sub(*programs) {
                Some(left) => left,
                None => return found,
            };
            // Each hole gets a name.
            let pieces = text.split('?').enumerate();
            let named =
                pieces.map(
                    |(at, piece)| if at == 0 { piece.to_owned() } else { format!("?h{at}{piece}") },
                );
            found.push(Template {
                text: format!("O = {}", named.collect::<String>()),
                programs: *programs,
            });
        }
        cheaper.push(priced);
    }
    found
}

/// The compositions of the next price: forms, with cheaper compositions in the places of their kinds.
fn of_price<'g>(grammar: &[Form<'g>], cheaper: &[Priced<'g>]) -> Priced<'g> {
    let mut priced = Priced::new();
    for Form { price, gives, before, kinds } in grammar {
        let Some(left) = cheaper.len().checked_sub(*price) else { continue };
        // What has been composed of the form, and what is left to be paid.
        let mut begun = vec![(before.clone(), left)];
        for (at, (kind, behind)) in kinds.iter().enumerate() {
            let is_last = at + 1 == kinds.len();
            let mut longer = Vec::new();
            for (text, left) in &begun {
                let first = if is_last { *left } else { 0 };
                for (price, of_price) in cheaper.iter().enumerate().take(left + 1).skip(first) {
                    let of_kind = of_price.get(kind).into_iter().flatten();
                    longer.extend(of_kind.map(|one| (text.then(one).then(behind), left - price)));
                }
            }
            begun = longer;
        }
        let paid = begun.into_iter().filter(|(_, left)| *left == 0);
        priced.entry(*gives).or_default().extend(paid.map(|(text, _)| text));
    }
    priced
}

/// The program of a result: the template with this number, and in the place of each hole the word that was chosen.
fn chosen(templates: &[Template], id: &str) -> Option<String> {
    let (number, choice) = id.split_once('[').unwrap_or((id, ""));
    let template = templates.get(number.parse::<usize>().ok()?)?;
    let mut program = template.text.strip_prefix("O = ")?.to_owned();
    let words = choice.trim_end_matches(']').split(',');
    for (hole, word) in words.filter_map(|one| one.split_once('=')) {
        let start = program.find(&format!("?{hole} "))?;
        let end = start + program[start..].find(']')?;
        program.replace_range(start..=end, word);
    }
    Some(program)
}

/// The tasks of a folder whose tests have answers, and all their pairs.
fn read(folder: &Path) -> Result<(Vec<Task>, GridBatch), Box<dyn Error>> {
    let mut paths: Vec<_> = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    paths.sort_by_key(fs::DirEntry::path);
    let (mut tasks, mut pairs) = (Vec::new(), GridBatch::of_items(2));
    for path in paths.iter().map(fs::DirEntry::path) {
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let task: Value = serde_json::from_slice(&fs::read(&path)?)?;
        let section = |name: &str| task[name].as_array().cloned().unwrap_or_default();
        let (train, test) = (section("train"), section("test"));
        // Without an answer to its test nobody can say whether it is solved.
        if test.is_empty() || train.iter().chain(&test).any(|pair| !pair["output"].is_array()) {
            continue;
        }
        let (start, name) = (pairs.len(), path.file_stem().unwrap_or_default());
        let (middle, end) = (start + train.len(), start + train.len() + test.len());
        for pair in train.iter().chain(&test) {
            pairs.push_pair(&grid(&pair["input"])?, Some(&grid(&pair["output"])?))?;
        }
        let name = name.to_string_lossy().into_owned();
        tasks.push(Task { name, train: start..middle, test: middle..end });
    }
    Ok((tasks, pairs))
}

fn grid(value: &Value) -> Result<Grid, Box<dyn Error>> {
    let rows: Vec<Vec<u8>> = serde_json::from_value(value.clone())?;
    Ok(Grid::from_rows(&rows)?)
}
