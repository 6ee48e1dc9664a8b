//! Writes a page of metrics as text. Only this file uses the `prometheus` crate.

use gridpool_protocol::metrics::Histogram;
use prometheus::TextEncoder;
use prometheus::proto::{self, LabelPair, Metric, MetricFamily, MetricType};

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A sum that never decreases while the counting process lives.
    Counter,
    /// A current number.
    Gauge,
    /// Counts of values by size.
    Histogram,
}

/// The head of a family: its name, type and help text.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
}

/// The value of a row.
pub(super) enum RowValue<'a> {
    Number(f64),
    Histogram(&'a Histogram),
}

/// One row: the values of the family's labels, and the row's value.
pub(super) type Row<'a> = (Vec<String>, RowValue<'a>);

/// Numbers, each with the values of its labels.
pub(super) type Labelled = Vec<(Vec<String>, f64)>;

/// Families, in the order in which they are printed.
#[derive(Debug, Default)]
pub(super) struct Page(Vec<MetricFamily>);

impl Page {
    /// Adds a family. A family without rows is left out, since the format cannot express it.
    pub(super) fn add(&mut self, head: Head, names: &[&str], rows: Vec<Row<'_>>) {
        if rows.is_empty() {
            return;
        }
        let metric = |(values, value): Row<'_>| {
            let mut metric = Metric::from_label(labels(names, values));
            match (head.kind, value) {
                (_, RowValue::Histogram(histogram)) => metric.set_histogram(cumulative(histogram)),
                (Kind::Counter, RowValue::Number(value)) => {
                    let mut counter = proto::Counter::default();
                    counter.set_value(value);
                    metric.set_counter(counter);
                }
                (Kind::Gauge | Kind::Histogram, RowValue::Number(value)) => {
                    let mut gauge = proto::Gauge::default();
                    gauge.set_value(value);
                    metric.set_gauge(gauge);
                }
            }
            metric
        };
        let mut added = MetricFamily::default();
        added.set_name(head.name.to_owned());
        added.set_help(head.help.to_owned());
        added.set_field_type(match head.kind {
            Kind::Counter => MetricType::COUNTER,
            Kind::Gauge => MetricType::GAUGE,
            Kind::Histogram => MetricType::HISTOGRAM,
        });
        added.set_metric(rows.into_iter().map(metric).collect());
        self.0.push(added);
    }

    /// The names of all families.
    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(MetricFamily::name)
    }

    /// The page as text.
    pub(super) fn text(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.0)
    }
}

fn labels(names: &[&str], values: Vec<String>) -> Vec<LabelPair> {
    let pair = |(name, value): (&&str, String)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value);
        pair
    };
    names.iter().zip(values).map(pair).collect()
}

/// Converts counts to cumulative ones. The encoder adds the bucket `+Inf`.
fn cumulative(histogram: &Histogram) -> proto::Histogram {
    let mut sum = 0;
    let bucket = |&(end, count): &(f64, u64)| {
        sum += count;
        let mut bucket = proto::Bucket::default();
        bucket.set_upper_bound(end);
        bucket.set_cumulative_count(sum);
        bucket
    };
    let mut all = proto::Histogram::default();
    all.set_bucket(histogram.buckets.iter().map(bucket).collect());
    all.set_sample_count(histogram.count());
    all.set_sample_sum(histogram.sum);
    all
}

#[expect(clippy::cast_precision_loss, reason = "the format has no other number")]
pub(super) fn number(count: u64) -> f64 {
    count as f64
}
