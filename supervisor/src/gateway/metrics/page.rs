//! A page of metrics: families with their rows, from plain numbers to the text. The one file that knows
//! the library which writes it, escapes included.

use std::fmt::Display;

use gridpool_protocol::metrics::Histogram;
use prometheus::TextEncoder;
use prometheus::proto::{self, LabelPair, Metric, MetricFamily, MetricType};

/// The labels of a row.
pub(super) type Labels = Vec<LabelPair>;

/// A row of a family: its labels and its number.
pub(super) type Row = (Labels, f64);

/// Labels by name and value.
pub(super) fn labels<const N: usize>(all: [(&str, &dyn Display); N]) -> Labels {
    let pair = |(name, value): (&str, &dyn Display)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value.to_string());
        pair
    };
    all.map(pair).into()
}

/// Families in the order in which they are printed.
#[derive(Debug, Default)]
pub(super) struct Page(Vec<MetricFamily>);

impl Page {
    /// Adds a family of sums that never go down while who counts them lives.
    pub(super) fn counters(&mut self, name: &str, help: &str, rows: impl IntoIterator<Item = Row>) {
        let row = |(labels, value)| {
            let mut counter = proto::Counter::default();
            counter.set_value(value);
            let mut metric = Metric::from_label(labels);
            metric.set_counter(counter);
            metric
        };
        self.add(MetricType::COUNTER, name, help, rows.into_iter().map(row).collect());
    }

    /// Adds a family of numbers as they are now.
    pub(super) fn gauges(&mut self, name: &str, help: &str, rows: impl IntoIterator<Item = Row>) {
        let row = |(labels, value)| {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(value);
            let mut metric = Metric::from_label(labels);
            metric.set_gauge(gauge);
            metric
        };
        self.add(MetricType::GAUGE, name, help, rows.into_iter().map(row).collect());
    }

    /// Adds a family of histograms.
    pub(super) fn histograms<'a>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, &'a Histogram)>,
    ) {
        let row = |(labels, histogram): (Labels, &Histogram)| {
            let mut metric = Metric::from_label(labels);
            metric.set_histogram(cumulative(histogram));
            metric
        };
        self.add(MetricType::HISTOGRAM, name, help, rows.into_iter().map(row).collect());
    }

    /// A family without rows is none: the format has no way to say nothing.
    fn add(&mut self, kind: MetricType, name: &str, help: &str, rows: Vec<Metric>) {
        if rows.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(rows);
        self.0.push(family);
    }

    /// The names of all families.
    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(MetricFamily::name)
    }

    /// All of it.
    pub(super) fn text(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.0)
    }
}

/// Each bucket with all below it; the text adds the one that holds all.
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
