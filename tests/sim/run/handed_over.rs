//! A successor takes the pool's place.

use gridpool_core::event::{ClientEvent, Event, HandOver};

use super::Run;
use crate::model::Broken;

/// How often that successor gets the devices one by one, of 1,000 cases.
const ONE_BY_ONE: u64 = 400;

impl Run {
    /// A successor takes the pool's place. Some connections stay for a while, and submit.
    pub(super) fn is_handed_over(&mut self) -> Result<(), Broken> {
        if self.rng.chance(ONE_BY_ONE) {
            let comes_up = self.world.successor_comes_up(self.now);
            self.tell(comes_up)?;
            let soon = self.now.after(self.rng.millis(0, 200));
            self.until(soon)?;
        }
        self.tell(Event::HandOver(HandOver::Begun))?;
        let soon = self.now.after(self.rng.millis(0, 50));
        self.until(soon)?;
        let (stay, done) = self.world.successor_serves();
        self.tell(done)?;
        for client in stay {
            let soon = self.now.after(self.rng.millis(0, 50));
            self.until(soon)?;
            let (_, event) = self.world.probe(self.now, client, None);
            self.tell(event)?;
            if self.rng.chance(700) {
                let soon = self.now.after(self.rng.millis(0, 50));
                self.until(soon)?;
                self.tell(Event::Client(client, ClientEvent::Gone))?;
            }
        }
        Ok(())
    }
}
