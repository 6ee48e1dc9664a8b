//! Rows for principals. Their number is bounded, however many addresses send requests: all addresses share one row,
//! and so do the principals beyond the limit.

use std::collections::BTreeMap;

use gridpool_protocol::metrics::Metrics;
use gridpool_protocol::status::PrincipalStatus;

use super::page::{Labelled, number};

/// Users and tokens with a row of their own.
const ROWS_MAX: usize = 64;
const ADDRESSES: &str = "addresses";
const OTHERS: &str = "others";

/// The sum of a number over each row.
pub(super) fn by_principal(metrics: &Metrics, of: fn(&PrincipalStatus) -> f64) -> Labelled {
    let mut rows: BTreeMap<&str, f64> = BTreeMap::new();
    for row in &metrics.status.principals {
        let own = &*row.principal;
        let is_new = !rows.contains_key(own) && rows.len() >= ROWS_MAX;
        let label = match own.split_once(' ') {
            Some(("address", _)) => ADDRESSES,
            Some(_) if is_new => OTHERS,
            Some(_) | None => own,
        };
        *rows.entry(label).or_default() += of(row);
    }
    rows.into_iter().map(|(label, sum)| (vec![label.to_owned()], sum)).collect()
}

/// The same by one more label.
pub(super) fn jobs(metrics: &Metrics) -> Labelled {
    let queued = by_principal(metrics, |row| number(row.queued));
    let running = by_principal(metrics, |row| number(row.running));
    let under = |state: &str, rows: Labelled| {
        let row = |(mut labels, sum): (Vec<String>, f64)| {
            labels.push(state.to_owned());
            (labels, sum)
        };
        rows.into_iter().map(row).collect::<Vec<_>>()
    };
    [under("queued", queued), under("running", running)].concat()
}
