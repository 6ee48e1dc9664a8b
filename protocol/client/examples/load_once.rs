//! Loads a batch into shared memory once and runs several programs over it at the same time.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;

use gridpool_client::{BatchLayout, Client, Handle, Job, Outputs, Program, Ties};

/// Grids of the batch, and rows and columns of each.
const GRIDS: u32 = 10_000;
const SIDE: u8 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::builder().connect()?;
    let capacity = BatchLayout::new(GRIDS, 1, GRIDS * u32::from(SIDE) * u32::from(SIDE))?;
    // This writes the grids straight to the memory that the workers read.
    let loaded = client.build(capacity, |batch| {
        let mut cells = [0; SIDE as usize * SIDE as usize];
        for grid in 0..GRIDS as usize {
            cells[grid % cells.len()] = 5;
            batch.push(SIDE, SIDE, &cells)?;
            cells[grid % cells.len()] = 0;
        }
        Ok(())
    })?;
    println!("{} grids in {} bytes", loaded.len(), loaded.bytes());
    let texts = ["rot90", "hmirror | vmirror", "objects(true, false, true)", "numcolors"];
    let submit = |text| -> Result<Handle<Outputs>, Box<dyn Error>> {
        let job = Job::over(Program::compile(text, Ties::Cpython)?, &loaded)?;
        Ok(client.submit(job)?)
    };
    let handles = texts.map(submit);
    for (text, handle) in texts.into_iter().zip(handles) {
        let answer = handle?.wait()?;
        let took = answer.receipt.total_us;
        let outputs = answer.ok()?;
        println!(
            "{text}: {} results after {took} µs, the last {:?}",
            outputs.len(),
            outputs.item(9_999)?
        );
    }
    Ok(())
}
