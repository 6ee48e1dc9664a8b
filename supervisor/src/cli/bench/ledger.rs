//! All rows so far, and the proportions of a new row to them.

use gridpool_protocol::bench::{Row, Section, Unit, Workload};

use super::limits::both_ways;

/// The rows in order.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) rows: Vec<Row>,
}

impl Ledger {
    /// Adds a row, with its proportions to those before it.
    pub(super) fn add(&mut self, mut row: Row) -> &Row {
        let rate = row.value.filter(|_| row.unit == Unit::ItemsPerSecond).map(|value| value.median);
        let native = self.native(row.workload, &row.name);
        row.to_native = rate.zip(native).map(|(rate, native)| rate / native);
        if row.section == Section::EndToEnd {
            let moved = rate.zip(row.bytes_per_item).map(|(rate, bytes)| rate * bytes);
            let limit = both_ways(&self.rows, row.devices);
            row.of_limit = moved.zip(limit).map(|(moved, limit)| moved / limit);
        }
        if row.section == Section::Models {
            let best = |runner, contexts| self.model(&row, runner, contexts);
            let direct = best("direct", row.contexts).filter(|_| row.runner != "direct");
            let one = best(&row.runner, Some(1)).filter(|_| row.contexts > Some(1));
            row.to_direct = rate.zip(direct).map(|(rate, direct)| rate / direct);
            row.to_one_context = rate.zip(one).map(|(rate, one)| rate / one);
        }
        if row.section == Section::Isolation {
            let idle = self.rows.iter().rfind(|other| {
                (other.section, &other.runner) == (Section::Isolation, &row.runner)
                    && other.jobs.is_none()
            });
            let idle = idle.and_then(|row| row.latency).map(|latency| latency.p99_us);
            let longest = row.latency.filter(|_| row.jobs.is_some()).map(|latency| latency.max_us);
            row.to_idle = longest.zip(idle).map(|(longest, idle)| longest / idle);
        }
        self.rows.push(row);
        self.rows.last().expect("it was just pushed")
    }

    /// The better native rate of a program so far.
    fn native(&self, workload: Option<Workload>, name: &str) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| {
            row.section == Section::Native && row.name == name && row.workload == workload
        });
        rows.filter_map(|row| row.value).map(|value| value.median).reduce(f64::max)
    }

    /// The best rate so far of the same model and rows max, by this runner with this number of contexts.
    fn model(&self, like: &Row, runner: &str, contexts: Option<u32>) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| {
            let known = (row.section, &row.name, row.max_batch, row.runner.as_str(), row.contexts);
            known == (Section::Models, &like.name, like.max_batch, runner, contexts)
        });
        rows.filter_map(|row| row.value).map(|value| value.median).reduce(f64::max)
    }

    /// How many rows are wrong.
    pub(super) fn faults(&self) -> usize {
        self.rows.iter().filter(|row| row.fault.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::bench::{Latency, Spread};

    use super::*;

    fn row(section: Section, runner: &str, rate: f64) -> Row {
        Row {
            workload: Some(Workload::Arc),
            value: Spread::of(vec![rate]),
            ..Row::new(section, "rot90", runner, Unit::ItemsPerSecond)
        }
    }

    #[test]
    fn a_rate_is_compared_with_the_better_native_rate_and_with_the_bus() {
        let mut ledger = Ledger::default();
        let bus = Row::new(Section::Limits, "copy both ways at once", "", Unit::BytesPerSecond);
        ledger.add(Row { value: Spread::of(vec![1_000.0]), ..bus });
        assert_eq!(ledger.add(row(Section::Native, "library", 10.0)).to_native, None);
        assert_eq!(ledger.add(row(Section::Native, "cpu:1 pool", 8.0)).to_native, Some(0.8));
        let mut pool = row(Section::EndToEnd, "pool", 40.0);
        pool.bytes_per_item = Some(20.0);
        let added = ledger.add(pool.clone());
        assert_eq!((added.to_native, added.of_limit), (Some(4.0), Some(0.8)));
        let added = ledger.add(Row { devices: 2, ..pool });
        assert_eq!(added.of_limit, None, "two devices were not measured");
        assert_eq!(ledger.faults(), 0);
    }

    #[test]
    fn the_longest_answer_beside_trouble_is_compared_with_most_answers_beside_none() {
        let mut ledger = Ledger::default();
        let mut add = |model, troubles, p99_us, max_us| {
            let latency = Some(Latency { p99_us, max_us, ..Latency::default() });
            let row = Row::new(Section::Isolation, "r", model, Unit::Microseconds);
            ledger.add(Row { latency, jobs: troubles, ..row }).to_idle
        };
        assert_eq!(add("m", None, 10.0, 40.0), None);
        assert_eq!(add("m", Some(3), 11.0, 15.0), Some(1.5));
        assert_eq!(add("n", Some(3), 11.0, 15.0), None, "another model");
    }

    #[test]
    fn a_model_in_a_pool_is_compared_with_itself_directly_and_with_one_context() {
        let mut ledger = Ledger::default();
        let mut add = |runner: &str, contexts, max_batch, rate| {
            let row = Row {
                value: Spread::of(vec![rate]),
                contexts: Some(contexts),
                max_batch: Some(max_batch),
                ..Row::new(Section::Models, "m", runner, Unit::ItemsPerSecond)
            };
            let added = ledger.add(row);
            (added.to_direct, added.to_one_context)
        };
        assert_eq!(add("direct", 1, 1, 90.0), (None, None));
        assert_eq!(add("direct", 1, 1, 100.0), (None, None));
        assert_eq!(add("pool", 1, 1, 80.0), (Some(0.8), None));
        assert_eq!(add("direct", 4, 1, 200.0), (None, Some(2.0)));
        assert_eq!(add("pool", 4, 1, 160.0), (Some(0.8), Some(2.0)));
        assert_eq!(add("pool", 4, 32, 900.0), (None, None), "nothing joined was measured before");
    }
}
