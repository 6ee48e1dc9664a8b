//! The programs that bench runs, with their names in its table.

use gridpool_protocol::bench::{Plan, Row, Section, Unit, Workload};
use gridpool_protocol::program::{Program, Ties};

/// One program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Its name in the table and for `--ops`.
    pub(super) name: &'static str,
    /// Its text.
    pub(super) text: &'static str,
    /// Whether a quick run includes it.
    quick: bool,
}

const fn entry(name: &'static str, quick: bool, text: &'static str) -> Entry {
    Entry { name, text, quick }
}

/// A single op has its own name. The two long programs find, choose, draw and cut, as solvers of tasks do.
/// The third is symmetries and recolours only, which a compiler might fold.
pub(super) const PROGRAMS: [Entry; 10] = [
    entry("identity", false, "identity"),
    entry("rot90", true, "rot90"),
    entry("dmirror", false, "dmirror"),
    entry("o_g(1)", false, "o_g(1)"),
    entry("o_g(3)", false, "o_g(3)"),
    entry("o_g(5)", true, "o_g(5)"),
    entry("o_g(7)", false, "o_g(7)"),
    entry("4 ops", true, "rot90 | o_g(5) | argmax(size) | fill(3)"),
    entry(
        "16 ops",
        false,
        "dmirror | replace(0, 5) | o_g(5) | argmax(size) | box | fill(3) | rot90 | ofcolor(3) | \
         outbox | underfill(7) | switch(1, 2) | tophalf | hmirror | replace(5, 0) | rot180 | compress",
    ),
    entry(
        "16 mirrors",
        false,
        "rot90 | replace(0, 5) | dmirror | switch(1, 2) | hmirror | replace(3, 4) | rot180 | \
         switch(6, 7) | vmirror | replace(5, 0) | cmirror | switch(2, 8) | rot270 | replace(9, 1) | \
         rot90 | switch(0, 4)",
    ),
];

/// The program that does nothing: its cost is the pool's.
pub(super) const IDENTITY: Entry = PROGRAMS[0];

impl Entry {
    /// Compiles it.
    pub(super) fn program(&self) -> Program {
        Program::compile(self.text, Ties::Cpython).expect("a test compiles every program of bench")
    }

    /// A row about this program over `batch` items of a workload.
    pub(super) fn row(
        &self,
        section: Section,
        runner: &str,
        unit: Unit,
        workload: Workload,
        batch: u32,
    ) -> Row {
        Row {
            program: Some(self.text.to_owned()),
            workload: Some(workload),
            batch: Some(batch),
            ..Row::new(section, self.name, runner, unit)
        }
    }
}

/// Whether the plan asks for a program of this name. `--ops` finds all programs even in a quick run.
pub(super) fn is_wanted(plan: &Plan, entry: &Entry) -> bool {
    match plan.ops.as_slice() {
        [] => entry.quick || !plan.quick,
        ops => ops.iter().any(|part| entry.name.contains(part.as_str())),
    }
}

/// The names of all programs.
pub(super) fn names() -> String {
    PROGRAMS.map(|entry| entry.name).join(", ")
}

/// The programs that the plan asks for.
pub(super) fn chosen(plan: &Plan) -> impl Iterator<Item = &'static Entry> {
    PROGRAMS.iter().filter(|entry| is_wanted(plan, entry))
}

#[cfg(test)]
mod tests {
    use gridpool_kernels::reference;
    use gridpool_protocol::bench::Workload;

    use super::*;
    use crate::workload::Source;

    #[test]
    fn every_program_has_as_many_ops_as_it_is_named_for_and_serves_nearly_every_grid() {
        let source = Source::open(None).unwrap();
        for entry in PROGRAMS {
            let program = entry.program();
            let ops = entry.name.split(' ').next().and_then(|word| word.parse().ok());
            assert_eq!(program.steps().len(), ops.unwrap_or(1), "{}", entry.name);
            for workload in [Workload::Arc, Workload::Square] {
                let batch = source.batch(workload, 0..2_000);
                let outputs = reference::run_batch(&program, &batch).unwrap();
                let served = (0..2_000).filter(|&item| outputs.item(item).unwrap().is_ok());
                let served = served.count();
                assert!(served > 1_800, "{}: {served} of 2,000 {workload} grids", entry.name);
            }
        }
    }

    #[test]
    fn ops_selects_programs_by_parts_of_their_names() {
        let subject = gridpool_protocol::bench::Subject::Library;
        let plan = |ops: &[&str], quick| Plan {
            subject: subject.clone(),
            ops: ops.iter().map(|&op| op.to_owned()).collect(),
            batches: vec![1],
            repetitions: 5,
            quick,
            solvers: None,
        };
        let names = |plan: &Plan| chosen(plan).map(|entry| entry.name).collect::<Vec<_>>();
        assert_eq!(names(&plan(&[], false)).len(), PROGRAMS.len());
        assert_eq!(names(&plan(&[], true)), ["rot90", "o_g(5)", "4 ops"]);
        assert_eq!(names(&plan(&["16", "dmirror"], true)), ["dmirror", "16 ops", "16 mirrors"]);
        assert!(names(&plan(&["no such"], false)).is_empty());
    }
}
