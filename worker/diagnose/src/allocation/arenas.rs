//! Shared memory of the pool: batches of growing size are loaded, run by a worker, and freed.

use std::path::Path;

use gridpool_bench::failure::Failure;
use gridpool_client::{Client, ClientError, Job};
use gridpool_ipc::clock;
use gridpool_protocol::batch::BatchLayout;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::diagnose::{Check, Group};
use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::limits::{GRID_CELLS_MAX, JOB_CELLS_MAX};
use gridpool_protocol::output::Output;
use gridpool_protocol::program::{Program, Ties};

use crate::pooled::{Proof, failure};

const GROUP: Group = Group::Allocation;
const NAME: &str = "arenas";
/// Cells of one batch: odd sizes, and the most that a job may have.
const SIZES: [u32; 5] = [1, 65_537, 1_048_577, 100_000_007, JOB_CELLS_MAX];
/// A quick run skips this size and above: filling their memory takes seconds.
const QUICK_BELOW: u32 = 100_000_000;
/// The largest grid: 64 x 64.
const SIDE: u8 = 64;
/// Returns the width of every grid, after the worker has read all its cells.
const PROGRAM: &str = "width";
/// How often, at most, the pool is polled until all of its memory is free.
const POLLS: u32 = 200;
const POLL_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

const NEXT: &str = "look at the pool's log; `df /dev/shm` and `free` show whether memory is short";

/// One check for the sizes, and one for the memory that is freed.
pub(super) fn run(socket: &Path, device: DeviceId, quick: bool) -> Vec<Check> {
    let checks = Client::connect(socket).and_then(|client| {
        let before = arena_bytes(&client)?;
        // On a connection of its own, which frees its memory when it closes.
        let sizes = Client::connect(socket).map(|client| sizes(&client, device, quick))?;
        Ok(vec![sizes, all_is_back(&client, before)])
    });
    checks.unwrap_or_else(|error| {
        let says = format!("the pool cannot be asked: {}", Chain(&error));
        vec![Check::fail(GROUP, NAME, says, NEXT)]
    })
}

fn sizes(client: &Client, device: DeviceId, quick: bool) -> Check {
    let (mut right, mut proof) = (Vec::new(), Proof::default());
    for cells in SIZES.into_iter().filter(|&cells| !quick || cells < QUICK_BELOW) {
        match exercise(client, device, cells, &mut proof) {
            Ok(bytes) => right.push(bytes.to_string()),
            Err(Failure::Skipped(why)) => {
                let says = format!("{cells} cells were not tried: {why}; {}", served(&right));
                let check = Check::skip(GROUP, NAME, says, "free memory, and repeat it");
                return check.fact("sizes", right.join(", "));
            }
            Err(Failure::Wrong(why)) => {
                let says = format!("a batch of {cells} cells: {why}");
                return Check::fail(GROUP, NAME, says, NEXT).at(cells.into());
            }
            Err(Failure::Lost(error)) => {
                let says = format!("a batch of {cells} cells: {}", Chain(&error));
                return Check::fail(GROUP, NAME, says, NEXT).at(cells.into());
            }
        }
    }
    Check::pass(GROUP, NAME, served(&right)).fact("sizes", right.join(", "))
}

fn served(sizes: &[String]) -> String {
    let largest = sizes.last().map_or("0", String::as_str);
    format!("{} sizes up to {largest} bytes are filled, and read by a worker", sizes.len())
}

/// Loads and runs a batch of `cells` cells; returns the bytes of shared memory that it took.
fn exercise(
    client: &Client,
    device: DeviceId,
    cells: u32,
    proof: &mut Proof,
) -> Result<usize, Failure> {
    let side = u32::from(SIDE);
    let (whole, rest) = (cells / (side * side), cells % (side * side));
    // The remainder makes grids of one row, the last of them narrower.
    let (rows, narrow) = (rest / side, rest % side);
    let items = whole + rows + u32::from(narrow > 0);
    let capacity = BatchLayout::new(items, 1, cells).map_err(ClientError::from)?;
    let blank = [0; GRID_CELLS_MAX];
    let narrow_side = u8::try_from(narrow).expect("it is less than a side");
    let loaded = client.build(capacity, |batch| {
        (0..whole).try_for_each(|_| batch.push(SIDE, SIDE, &blank))?;
        (0..rows).try_for_each(|_| batch.push(1, SIDE, &blank[..usize::from(SIDE)]))?;
        if narrow > 0 {
            batch.push(1, narrow_side, &blank[..usize::from(narrow_side)])?;
        }
        Ok(())
    });
    let loaded = loaded.map_err(failure)?;
    let program = Program::compile(PROGRAM, Ties::Cpython).expect("it is an op");
    let job = Job::over(program, &loaded).map_err(ClientError::from)?;
    let answer = client.run(job).map_err(failure)?;
    proof.add(&answer.receipt, device).map_err(Failure::Wrong)?;
    let outputs = answer.ok().map_err(|error| Failure::Wrong(error.to_string()))?;
    for item in 0..outputs.len() {
        let want = if item + 1 == outputs.len() && narrow > 0 { narrow_side } else { SIDE };
        match outputs.item(item) {
            Ok(Ok(Output::Number(width))) if width == i32::from(want) => {}
            got => {
                let why = format!("item {item} is {want} cells wide, and the result is {got:?}");
                return Err(Failure::Wrong(why));
            }
        }
    }
    Ok(loaded.bytes())
}

fn arena_bytes(client: &Client) -> Result<u64, ClientError> {
    Ok(client.status()?.supervisor.arena_bytes)
}

/// Checks that the pool has freed all arenas soon after the connection closed.
fn all_is_back(client: &Client, before: u64) -> Check {
    const NAME: &str = "arenas back";
    let mut after = arena_bytes(client);
    let end = clock::now() + POLL_EVERY * POLLS;
    while matches!(after, Ok(bytes) if bytes > before) && !clock::until(end).is_zero() {
        std::thread::park_timeout(POLL_EVERY);
        after = arena_bytes(client);
    }
    match after {
        Ok(after) if after <= before => {
            let says = format!("the pool holds {after} bytes of arenas, as before");
            Check::pass(GROUP, NAME, says)
        }
        Ok(after) => {
            let says = format!("the pool holds {after} bytes of arenas, and held {before} before");
            Check::fail(GROUP, NAME, says, NEXT)
        }
        Err(error) => Check::fail(GROUP, NAME, Chain(&error).to_string(), NEXT),
    }
}
