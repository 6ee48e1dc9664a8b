//! The flags of `gridpool bench`, and the description of its table in `--help`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::flags::whole;

/// Items of one job, by default.
const BATCHES: [u32; 5] = [1, 32, 1_000, 100_000, 1_000_000];
/// The same for a quick run.
const BATCHES_QUICK: [u32; 3] = [1, 32, 1_000];
/// The same for solvers.
const COPIES: u32 = 100_000;
const COPIES_QUICK: u32 = 1_000;

/// The last lines of `--help`.
pub(in crate::cli) const COLUMNS: &str = "\
Before it times a row, bench compares every answer with the reference library's, byte for byte. A row \
has no rate if an answer is wrong or if its receipts show no launch on the right kind of device; the \
exit code is then 70.

Columns:
  grids     arc: ragged, 169 cells on average, like ARC tasks (GRIDPOOL_ARC=FOLDER takes real ones);
            30x30: random grids of 30 x 30
  batch     items of one job
  jobs      jobs in flight; from 2 on, up to 8 client threads send them, each on its own connection
  items/s   the median of the repetitions, with the lowest and the highest
  x native  the rate over the better native rate: the library on all cores, or a cpu:1 pool
  % bus     bytes moved a second, in both directions and with tables, over the rate at which these
            devices copy in both directions at once
  moved     bytes moved a second, both directions together
  launches  kernels launched for each job, by its receipts
  allocs    buffers made or enlarged and arenas registered during the timing; 0 in the steady state
  p50, p99  microseconds of a single job, from the client's call to its answer;
            of a recovery: from the kill, or the verdict DEADLINE, to the next right answer
  client    share of the client library and the socket in that time. The next columns are the core's
            queue, the channel to the worker and back, the worker without its kernels, the kernels

With --model, or [[model]] in the config file, bench measures only the models, on the first device;
--ops brings the programs back. It measures single requests with 1, 2, 4 and 8 contexts (--quick: 1
and 4), and requests that share runs with 1 and 4. Inputs are irregular numbers of the shapes that
warm the model up. Bench compares every answer with the first answer to the same input: bit by bit
for single requests on a CPU device; on a GPU, and for requests that share runs, to a thousandth of
the output's largest number (a fiftieth in types of two bytes).
  direct    requests to the worker's engine in the measuring process: no socket, no supervisor
  pool      the same requests through a pool, by 32 threads with a connection each; direct and pool
            take turns
  … steps   the steps of a [[pipeline]], called one by one as models of their own: directly by one process,
            or through a pool in which each has a process
  contexts  runs of the model at once
  rows max  most rows of one run; 1: requests do not share runs
  callers   threads with one request in flight each
  x direct  the pool's rate over the better direct rate with as many contexts
  x one     the rate over the rate with one context
  a run     requests that shared a run

With --solvers the last lines say of each runner the median of all solvers, the rate that a tenth
of them is below, and the slowest. They count solvers with wrong results, that do not compile, with
items in error, and with items that need more memory than the first launch gives each. The result of
every copy is compared.

With --isolation the rows of a model are what happened to its neighbour, in turns of 2 s:
  troubles  how often it was asked, killed, stopped or loaded meanwhile
  x idle    the longest time of a request, over the 99th percentile beside an idle neighbour";

/// Flags of `gridpool bench`.
#[derive(Debug, Args)]
pub(in crate::cli) struct BenchFlags {
    /// Measure few programs, small batches and short repetitions: under a minute on two cores.
    #[arg(long)]
    pub(super) quick: bool,
    /// Print one JSON document of all rows, with their evidence.
    #[arg(long)]
    pub(super) json: bool,
    /// Draw rate against batch size, with the limit, as SVG. With `-` the picture goes to standard output
    /// and the table to standard error.
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    /// Measure only programs whose names contain one of these, such as `rot90,o_g` or `16 ops`.
    #[arg(long, value_name = "FILTER", value_delimiter = ',')]
    pub(super) ops: Vec<String>,
    /// Measure only recovery: kill a worker in a job, and hang a job, KILLS times each, with a standby and
    /// without. A row is the time to the next right answer.
    #[arg(long, value_name = "KILLS", num_args = 0..=1, default_missing_value = "20")]
    #[arg(value_parser = whole::<u32>(1..=100_000))]
    pub(super) recovery: Option<u32>,
    /// Measure only searches: texts compiled in a second on all cores, evaluations in a second with verdicts alone
    /// (a random ten-thousandth is recomputed by the reference first), and the time from some thousand texts to
    /// their verdicts.
    #[arg(long, conflicts_with = "recovery")]
    pub(super) search: bool,
    /// Measure only what a model feels of another on the same device, which is the same model once more: the times of
    /// single requests while that is idle, busy, killed, stopped, and loaded again and again. Needs --model.
    #[arg(long, conflicts_with_all = ["recovery", "search"])]
    pub(super) isolation: bool,
    /// Measure only the solvers of a file, `solve_TASK` for each of --tasks: the reference on all cores, a pool, and on
    /// a GPU the kernels alone, each over 100,000 copies (--quick: 1,000; or --batches) of the inputs of its own task.
    /// --ops chooses them by parts of the tasks' names.
    #[arg(long, value_name = "FILE", requires = "tasks")]
    #[arg(conflicts_with_all = ["recovery", "search", "isolation", "plot"])]
    pub(super) solvers: Option<PathBuf>,
    /// ARC task files, or directories of them, for --solvers.
    #[arg(long, value_name = "TASKS", num_args = 1.., requires = "solvers")]
    pub(super) tasks: Vec<PathBuf>,
    /// Set a field of `[[model]]` for all measured models, such as max_batch=16 or cpu_ops=["Shape"];
    /// repeat for more fields. It overrides the config file.
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "recovery")]
    pub(super) fields: Vec<String>,
    /// Batch sizes to measure, in items: by default `1,32,1000,100k,1M`, with --quick `1,32,1000`.
    #[arg(long, value_name = "ITEMS", value_delimiter = ',', value_parser = parse_items)]
    batches: Vec<u32>,
    /// Timed repetitions of each row after a warm-up, at least 5.
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = whole::<u32>(5..=1_000))]
    pub(super) repetitions: u32,
}

impl BenchFlags {
    /// Items of one job.
    pub(super) fn batches(&self) -> Vec<u32> {
        match self.batches.as_slice() {
            [] if self.solvers.is_some() => vec![if self.quick { COPIES_QUICK } else { COPIES }],
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
