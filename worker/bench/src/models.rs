//! A model on one device: through the engine in this process, and through a pool that serves it with the same
//! number of contexts. Repetitions of both alternate, so that a machine that changes its speed affects both.
//!
//! - `test_input` makes inputs, and compares every answer with the first answer to the same input.
//! - `isolation` measures a model of a pool while its neighbour is in trouble.
//! - `direct` and `pooled` send requests. For a pipeline, `stepwise` calls its steps one by one through either.
//!   `load_generator` runs several callers at the same time.

mod direct;
pub(crate) mod isolation;
mod load_generator;
mod pooled;
mod stepwise;
pub(crate) mod test_input;

use std::sync::Arc;
use std::time::Duration;

use gridpool_client::Client;
use gridpool_infer::LoadError;
use gridpool_protocol::bench::{Line, ModelSubject, Plan, Row, Section, Unit};
use gridpool_protocol::chain::Chain;

use self::direct::Direct;
use self::load_generator::{Caller, LoadGenerator};
use self::pooled::Pooled;
use self::test_input::{TestInput, test_inputs};
use super::failure::Failure;
use super::repeat::Repeat;
use super::{BenchError, Report};

/// Threads that send requests to a pool, each with a connection: more than there are contexts.
const CALLERS: u32 = 32;
/// Runners that call a pipeline's steps one by one.
const DIRECT_STEPS: &str = "direct steps";
const POOL_STEPS: &str = "pool steps";
/// What follows a runner's name if a model that has CUDA graphs runs without.
const NO_GRAPHS: &str = ", no graphs";
/// How long one repetition should take. Contexts run dry at the ends of a round, which should be a small
/// part of it.
const REPETITION: Duration = Duration::from_secs(1);
const REPETITION_QUICK: Duration = Duration::from_millis(20);

/// Measures all rows of a model with a number of contexts.
pub(super) fn measure(
    plan: &Plan,
    subject: &ModelSubject,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let (name, options) = (&subject.model.name, &subject.model.options);
    let doing = |what: &str| Line::Doing(format!("{name}, {} contexts: {what}", options.contexts));
    report.line(&doing("it is loaded"))?;
    let unmeasured = |runner: &str| Row {
        contexts: options.contexts.fixed(),
        max_batch: options.max_batch,
        ..Row::new(Section::Models, name, runner, Unit::ItemsPerSecond)
    };
    let cannot_of = |name: &str, why| BenchError::Model { name: name.to_owned(), why };
    let cannot = |why: String| cannot_of(name, why);
    let direct = match Direct::load(subject)? {
        Ok(direct) => direct,
        Err(error @ LoadError::Budget { .. }) => {
            let skipped = Some(Chain(&error).to_string());
            return report.row(Row { skipped, ..unmeasured("direct") });
        }
        Err(error) => return Err(cannot(Chain(&error).to_string())),
    };
    if options.max_batch != Some(1) && direct.info.max_batch == 1 {
        let skipped = Some("requests of this model cannot share runs".to_owned());
        return report.row(Row { skipped, ..unmeasured("direct") });
    }
    let pool = Pooled::find(subject, &direct.info)?.map_err(cannot)?;
    report.line(&doing("the first answers"))?;
    let asked = test_inputs(&direct.info, subject.device.kind, CALLERS)
        .and_then(|test_inputs| direct.answer_all(&test_inputs).map(|()| test_inputs));
    let bench = Models { plan, subject, direct: &direct, pool: &pool, suffix: "" };
    let plain = subject.without_graphs();
    let plain = plain.and_then(|plain| Some((direct.other(&plain.model.name)?, plain)));
    let plain = match &plain {
        None => None,
        Some((direct, plain)) => {
            let pool = Pooled::find(plain, &direct.info)?;
            Some((direct, pool.map_err(|why| cannot_of(&plain.model.name, why))?))
        }
    };
    let mut sides = vec![bench];
    sides.extend(plain.as_ref().map(|&(direct, ref pool)| Models {
        plan,
        subject,
        direct,
        pool,
        suffix: NO_GRAPHS,
    }));
    let test_inputs = match asked {
        Ok(test_inputs) => test_inputs,
        Err(failure) => return report.measured(unmeasured("direct"), Err(failure)),
    };
    report.line(&doing("directly, and through the pool"))?;
    rates(&sides, report, &test_inputs)?;
    if options.contexts.fixed() == Some(1) && direct.info.max_batch == 1 {
        report.line(&doing("one request at a time"))?;
        latencies(&sides, report, &test_inputs[0])?;
    }
    Ok(())
}

/// Callers of a pipeline's steps; none of a model.
fn of_steps(row: Row, callers: Vec<Box<dyn Caller>>) -> Option<LoadGenerator> {
    (!callers.is_empty()).then(|| LoadGenerator::new(row, callers))
}

fn unmade(row: &Row) -> impl FnOnce(Failure) -> Unmade + '_ {
    |failure| Box::new((row.clone(), failure))
}

/// A model that is loaded in this process and in a pool.
struct Models<'a> {
    plan: &'a Plan,
    subject: &'a ModelSubject,
    direct: &'a Direct,
    pool: &'a Pooled,
    /// What follows the names of its runners.
    suffix: &'static str,
}

/// Callers that could not be made, and their row.
type Unmade = Box<(Row, Failure)>;

/// Measures rates of all sides, in turns.
fn rates(
    sides: &[Models<'_>],
    report: &mut Report<'_>,
    all: &[Arc<TestInput>],
) -> Result<(), BenchError> {
    in_turns(sides, report, |side| side.rates(all))
}

/// Measures single requests of all sides, in turns.
fn latencies(
    sides: &[Models<'_>],
    report: &mut Report<'_>,
    one: &Arc<TestInput>,
) -> Result<(), BenchError> {
    in_turns(sides, report, |side| side.latencies(one))
}

fn in_turns<'a>(
    sides: &[Models<'a>],
    report: &mut Report<'_>,
    make: impl Fn(&Models<'a>) -> Result<Vec<LoadGenerator>, Unmade>,
) -> Result<(), BenchError> {
    let mut load_generators = Vec::new();
    for side in sides {
        match make(side) {
            Ok(made) => load_generators.extend(made),
            Err(unmade) => return report.measured(unmade.0, Err(unmade.1)),
        }
    }
    sides[0].in_turns(report, load_generators)
}

impl Models<'_> {
    fn row(&self, section: Section, runner: &str, callers: u32) -> Row {
        let is_latency = section == Section::ModelLatency;
        let unit = if is_latency { Unit::Microseconds } else { Unit::ItemsPerSecond };
        Row {
            jobs: Some(callers),
            contexts: Some(self.direct.info.contexts),
            max_batch: Some(self.direct.info.max_batch),
            ..Row::new(section, &self.subject.model.name, &format!("{runner}{}", self.suffix), unit)
        }
    }

    /// How many threads call the engine: two for each context, so that no context waits for its next request. If
    /// requests are joined, as many as call the pool.
    fn direct_callers(&self) -> Vec<u32> {
        let contexts = self.direct.info.contexts;
        if self.direct.info.max_batch > 1 { vec![CALLERS] } else { vec![contexts, 2 * contexts] }
    }

    /// Whether the steps of a pipeline are measured as models: not once more without the pipeline's graphs.
    fn measures_steps(&self) -> bool {
        self.suffix.is_empty()
    }

    fn rates(&self, all: &[Arc<TestInput>]) -> Result<Vec<LoadGenerator>, Unmade> {
        let mut load_generators = Vec::new();
        for count in self.direct_callers() {
            let asked = (0..count).zip(all.iter().cycle());
            let callers = asked.map(|(n, test_input)| self.direct.caller(n.into(), test_input));
            load_generators.push(LoadGenerator::new(
                self.row(Section::Models, "direct", count),
                callers.collect(),
            ));
        }
        if let Some(&count) = self.direct_callers().last().filter(|_| self.measures_steps()) {
            let asked = (0..count).zip(all.iter().cycle());
            let callers = asked.filter_map(|(n, one)| self.direct.step_caller(n.into(), one));
            let row = self.row(Section::Models, DIRECT_STEPS, count);
            load_generators.extend(of_steps(row, callers.collect()));
        }
        let row = self.row(Section::Models, POOL_STEPS, CALLERS);
        let callers = all
            .iter()
            .filter(|_| self.measures_steps())
            .filter_map(|one| self.pool.step_caller(one).transpose());
        let callers = callers.collect::<Result<_, _>>().map_err(unmade(&row))?;
        load_generators.extend(of_steps(row, callers));
        let row = self.row(Section::Models, "pool", CALLERS);
        let callers = all.iter().map(|test_input| self.pool.caller(test_input));
        let callers = callers.collect::<Result<_, _>>().map_err(unmade(&row))?;
        load_generators.push(LoadGenerator::new(row, callers));
        Ok(load_generators)
    }

    fn latencies(&self, one: &Arc<TestInput>) -> Result<Vec<LoadGenerator>, Unmade> {
        let row = |runner| self.row(Section::ModelLatency, runner, 1);
        let mut alone = vec![LoadGenerator::new(row("direct"), vec![self.direct.caller(0, one)])];
        let caller = self.pool.caller(one).map_err(unmade(&row("pool")))?;
        alone.push(LoadGenerator::new(row("pool"), vec![caller]));
        if !self.measures_steps() {
            return Ok(alone);
        }
        let steps = self.direct.step_caller(0, one).into_iter().collect();
        alone.extend(of_steps(row(DIRECT_STEPS), steps));
        let caller = self.pool.step_caller(one).map_err(unmade(&row(POOL_STEPS)))?;
        alone.extend(of_steps(row(POOL_STEPS), caller.into_iter().collect()));
        Ok(alone)
    }

    /// Times all of them, one repetition of each in turn, and reports their rows.
    fn in_turns(
        &self,
        report: &mut Report<'_>,
        load_generators: Vec<LoadGenerator>,
    ) -> Result<(), BenchError> {
        let span = if self.plan.quick { REPETITION_QUICK } else { REPETITION };
        let repeat = Repeat::new(self.plan).with_span(span);
        let mut load_generators = load_generators;
        load_generators.iter_mut().for_each(|load_generator| load_generator.warm_up(repeat));
        let observer = Client::connect(&self.subject.socket)?;
        let runs_before = observer.status()?.counters.runs;
        for _ in 0..repeat.repetitions() {
            load_generators.iter_mut().for_each(LoadGenerator::time);
        }
        let runs = observer.status()?.counters.runs.saturating_sub(runs_before);
        for load_generator in load_generators {
            match load_generator.end(runs) {
                (row, None) => report.row(row)?,
                (row, Some(failure)) => report.measured(row, Err(failure))?,
            }
        }
        Ok(())
    }
}
