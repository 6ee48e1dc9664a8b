//! A model on one device: asked directly, by the engine in this process, and through a pool that serves
//! it with as many contexts. Both are measured in turns, repetition by repetition, so that a machine
//! that becomes slower or faster meanwhile does so for both.
//!
//! - `question` makes inputs, and compares every answer with the first to the same.
//! - `direct` and `pooled` ask. `crowd` has several of one kind ask at the same time.

mod crowd;
mod direct;
mod pooled;
pub(crate) mod question;

use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::bench::{Line, ModelSubject, Plan, Row, Section, Unit};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::Client;

use self::crowd::Crowd;
use self::direct::Direct;
use self::pooled::Pooled;
use self::question::{Question, questions};
use super::load::Trouble;
use super::repeat::Repeat;
use super::{BenchError, Report};
use crate::infer::LoadError;

/// Threads that ask a pool, each with a connection: more than the contexts that there may be.
const CALLERS: u32 = 32;
/// How long one repetition should take: the ends of a round, where contexts run dry, are a small part.
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
        contexts: Some(options.contexts),
        max_batch: options.max_batch,
        ..Row::new(Section::Models, name, runner, Unit::ItemsPerSecond)
    };
    let cannot = |why: String| BenchError::Model { name: name.clone(), why };
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
    let asked = questions(&direct.info, subject.device.kind, CALLERS)
        .and_then(|questions| direct.answer_all(&questions).map(|()| questions));
    let bench = Models { plan, subject, direct: &direct, pool: &pool };
    let questions = match asked {
        Ok(questions) => questions,
        Err(trouble) => return end(report, unmeasured("direct"), trouble),
    };
    report.line(&doing("directly, and through the pool"))?;
    bench.rates(report, &questions)?;
    if options.contexts == 1 && direct.info.max_batch == 1 {
        report.line(&doing("one request at a time"))?;
        bench.latencies(report, &questions[0])?;
    }
    Ok(())
}

/// A model that is loaded here and there.
struct Models<'a> {
    plan: &'a Plan,
    subject: &'a ModelSubject,
    direct: &'a Direct,
    pool: &'a Pooled,
}

impl Models<'_> {
    fn row(&self, section: Section, runner: &str, callers: u32) -> Row {
        let is_latency = section == Section::ModelLatency;
        let unit = if is_latency { Unit::Microseconds } else { Unit::ItemsPerSecond };
        Row {
            jobs: Some(callers),
            contexts: Some(self.direct.info.contexts),
            max_batch: Some(self.direct.info.max_batch),
            ..Row::new(section, &self.subject.model.name, runner, unit)
        }
    }

    /// How many threads ask directly: one for each context, and as many again, so that none waits for
    /// its next request. Where requests are joined, as many as ask the pool.
    fn direct_callers(&self) -> Vec<u32> {
        let contexts = self.direct.info.contexts;
        if self.direct.info.max_batch > 1 { vec![CALLERS] } else { vec![contexts, 2 * contexts] }
    }

    fn rates(&self, report: &mut Report<'_>, all: &[Arc<Question>]) -> Result<(), BenchError> {
        let mut crowds = Vec::new();
        for count in self.direct_callers() {
            let asked = (0..count).zip(all.iter().cycle());
            let callers = asked.map(|(n, question)| self.direct.caller(n.into(), question));
            crowds.push(Crowd::new(self.row(Section::Models, "direct", count), callers.collect()));
        }
        let row = self.row(Section::Models, "pool", CALLERS);
        let callers = all.iter().map(|question| self.pool.caller(question));
        match callers.collect() {
            Ok(callers) => crowds.push(Crowd::new(row, callers)),
            Err(trouble) => return end(report, row, trouble),
        }
        self.in_turns(report, crowds)
    }

    fn latencies(&self, report: &mut Report<'_>, one: &Arc<Question>) -> Result<(), BenchError> {
        let row = |runner| self.row(Section::ModelLatency, runner, 1);
        let mut alone = vec![Crowd::new(row("direct"), vec![self.direct.caller(0, one)])];
        match self.pool.caller(one) {
            Ok(caller) => alone.push(Crowd::new(row("pool"), vec![caller])),
            Err(trouble) => return end(report, row("pool"), trouble),
        }
        self.in_turns(report, alone)
    }

    /// Times all of them, a repetition of each after the other, and reports their rows.
    fn in_turns(&self, report: &mut Report<'_>, crowds: Vec<Crowd>) -> Result<(), BenchError> {
        let span = if self.plan.quick { REPETITION_QUICK } else { REPETITION };
        let repeat = Repeat::new(self.plan).with_span(span);
        let mut crowds = crowds;
        crowds.iter_mut().for_each(|crowd| crowd.warm_up(repeat));
        let observer = Client::connect(&self.subject.socket)?;
        let runs_before = observer.status()?.counters.runs;
        for _ in 0..repeat.repetitions() {
            crowds.iter_mut().for_each(Crowd::time);
        }
        let runs = observer.status()?.counters.runs.saturating_sub(runs_before);
        for crowd in crowds {
            match crowd.end(runs) {
                (row, None) => report.row(row)?,
                (row, Some(trouble)) => end(report, row, trouble)?,
            }
        }
        Ok(())
    }
}

/// Says why a row has no measurement. A pool that is gone ends everything.
fn end(report: &mut Report<'_>, row: Row, trouble: Trouble) -> Result<(), BenchError> {
    match trouble {
        Trouble::Skipped(why) => report.row(Row { skipped: Some(why), ..row }),
        Trouble::Wrong(fault) => report.row(row.wrong(fault)),
        Trouble::Lost(error) => Err(error.into()),
    }
}
