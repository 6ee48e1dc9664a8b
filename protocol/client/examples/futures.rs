//! Awaits many jobs on one thread, here with the executor `pollster`. Any executor works.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;

use gridpool_client::{Client, Grid, GridBatch, Job, Program, Ties};

fn main() -> Result<(), Box<dyn Error>> {
    pollster::block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let client = Client::builder().connect()?;
    let mut handles = Vec::new();
    for color in 0..10 {
        let grid = Grid::from_rows(&[[color, color], [0, color]])?;
        let program = Program::compile("rot90", Ties::Cpython)?;
        // `send` does not wait until the pool accepts the job.
        handles.push(client.send(Job::program(program, GridBatch::from_grids([&grid])?)?)?);
    }
    for handle in handles {
        let outputs = handle.await?.ok()?;
        println!("{:?}", outputs.item(0)?);
    }
    Ok(())
}
