//! What may be typed after `gridpool bench`, and what `--help` says of its table.

use std::path::PathBuf;

use clap::Args;

/// Items of one job, where none are named.
const BATCHES: [u32; 5] = [1, 32, 1_000, 100_000, 1_000_000];
/// The same for a quick run.
const BATCHES_QUICK: [u32; 3] = [1, 32, 1_000];

/// What `--help` ends with.
pub(in crate::cli) const COLUMNS: &str = "\
Every answer is compared byte for byte with the reference library's before anything is timed. A row \
with a wrong answer, or whose receipts show no launch on the right kind of device, has no rate, and \
the exit code is 70.

Columns:
  grids     arc: ragged, 169 cells on average, like ARC tasks (GRIDPOOL_ARC=FOLDER takes real ones);
            30x30: random grids of 30 x 30
  batch     items of one job
  jobs      jobs under way at a time; from 2 on by up to 8 client threads with a connection each
  items/s   the median of the repetitions, with the least and the most of them
  x native  the rate over the better native rate: the library on all cores, or a cpu:1 pool
  % bus     bytes moved in a second, both ways and tables included, over what these devices copy
            both ways at once
  moved     bytes moved in a second, both ways together
  launches  kernels launched for each job, by its receipts
  allocs    buffers made or enlarged and arenas registered while it was timed; 0 in the steady state
  p50, p99  of single jobs, from the client's call to its answer, microseconds
            of a recovery: from the kill, or the verdict DEADLINE, to the next right answer
  client    of that, the client library and the socket, there and back; then the core's queue, the
            channel to the worker and back, the worker without its kernels, and the kernels

With --model (or [[model]] of the config, unless --ops names programs) only the models are
measured, on the first device: with 1, 2, 4 and 8 contexts (1 and 4 if it is quick), each request
by itself, and with 1 and 4 where requests share runs. Inputs are irregular numbers of the shapes
that warm the model up. Every answer is compared with the first to the same input: bit by bit on
a CPU device, to a thousandth of the output's largest number (a fiftieth in types of two bytes)
on a GPU and where requests share runs.
  direct    requests to the worker's engine in the measuring process: no socket, no supervisor
  pool      the same through a pool, by 32 threads with a connection each; both in turns
  contexts  runs of the model that may be under way at once
  rows max  most rows of one run; 1: requests do not share runs
  callers   threads with one request under way each
  x direct  the pool's rate over the better direct rate with as many contexts
  x one     the rate over that with one context
  a run     requests that shared a run";

/// What is measured, and how it is shown.
#[derive(Debug, Args)]
pub(in crate::cli) struct BenchFlags {
    /// Few programs, small batches and short repetitions: under a minute on two cores.
    #[arg(long)]
    pub(super) quick: bool,
    /// Print one JSON document of all rows, with what proves them.
    #[arg(long)]
    pub(super) json: bool,
    /// Draw rate against batch size beside the limit, as SVG.
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    /// Only programs with one of these in their names, such as `rot90,o_g` or `16 ops`.
    #[arg(long, value_name = "FILTER", value_delimiter = ',')]
    pub(super) ops: Vec<String>,
    /// Only recovery: kill workers in the middle of a job, and have jobs that do not end, so many times
    /// each, with a standby and without, and measure the time to the next right answer.
    #[arg(long, value_name = "KILLS", num_args = 0..=1, default_missing_value = "20")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) recovery: Option<u32>,
    /// A field of a `[[model]]` of the config file, once for each, for all models that are measured, in
    /// place of what the config says: max_batch=16, cpu_ops=["Shape"].
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "recovery")]
    pub(super) fields: Vec<String>,
    /// Items of one job: `1,32,1000,100k,1M` unless it is quick.
    #[arg(long, value_name = "ITEMS", value_delimiter = ',', value_parser = parse_items)]
    batches: Vec<u32>,
    /// Timed repetitions of each row, after a warm-up; at least 5.
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(5..=1_000))]
    pub(super) repetitions: u32,
}

impl BenchFlags {
    /// Items of one job.
    pub(super) fn batches(&self) -> Vec<u32> {
        match self.batches.as_slice() {
            [] if self.quick => BATCHES_QUICK.to_vec(),
            [] => BATCHES.to_vec(),
            named => named.to_vec(),
        }
    }
}

/// `1000`, `100k` or `1M`.
fn parse_items(text: &str) -> Result<u32, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(_) | None => (text, 1),
    };
    let items = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(factor));
    items.filter(|items| (1..=1_000_000).contains(items)).ok_or_else(|| {
        format!("`{text}`: write a number of items from 1 to 1M, such as 32 or 100k")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_numbers_with_a_suffix_or_without() {
        assert_eq!(["1", "32", "100k", "1M"].map(parse_items), [1, 32, 100_000, 1_000_000].map(Ok));
        for text in ["", "0", "k", "-1", "2M", "1.5k", "99999999999"] {
            assert!(parse_items(text).unwrap_err().contains("from 1 to 1M"), "{text}");
        }
    }
}
