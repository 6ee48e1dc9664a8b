//! Prints the state of a pool's workers once a second: `status 3` prints it three times.
#![expect(clippy::print_stdout, reason = "an example prints")]
#![expect(clippy::disallowed_methods, reason = "an example may sleep")]

use std::error::Error;
use std::time::Duration;

use gridpool_client::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::builder().connect()?;
    let times = std::env::args().nth(1).map_or(Ok(1), |text| text.parse::<u32>())?;
    for time in 0..times {
        if time > 0 {
            std::thread::sleep(Duration::from_secs(1));
        }
        let status = client.status()?;
        for worker in &status.workers {
            println!("{} {:?}, {} jobs", worker.name, worker.state, worker.jobs_done);
        }
        println!("{} jobs accepted, {} waiting", status.counters.accepted, status.queue.jobs);
    }
    Ok(())
}
