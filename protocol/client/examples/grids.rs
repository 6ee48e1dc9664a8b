//! Runs a program over some grids, and prints each result and where it ran.
//!
//! `cargo run -p gridpool-client --example grids` uses the pool at `GRIDPOOL_SOCKET`, or at the default
//! socket.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;

use gridpool_client::{Client, Grid, GridBatch, Job, Program, Ties};

fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::builder().connect()?;
    let grids = [Grid::from_rows(&[[1, 2, 3], [4, 5, 6]])?, Grid::from_rows(&[[0, 1], [1, 0]])?];
    let program = Program::compile("rot90 | replace(1, 7)", Ties::Cpython)?;
    let job = Job::program(program, GridBatch::from_grids(&grids)?)?;
    let answer = client.run(job)?;
    for attempt in &answer.receipt.attempts {
        println!("{} on {}", attempt.worker, attempt.device.name);
    }
    let outputs = answer.ok()?;
    for item in 0..outputs.len() {
        // One item may have an error while others have results.
        match outputs.item(item)? {
            Ok(output) => println!("{item}: {output:?}"),
            Err(error) => println!("{item}: {error}"),
        }
    }
    Ok(())
}
