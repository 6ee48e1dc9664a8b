//! The order in which the steps of a pipeline run.

use super::{Pipeline, PipelineError, Step, Wire};

impl Pipeline {
    /// The steps by index, each after those whose outputs it takes. Of those that may run next, the one that is
    /// written first does.
    ///
    /// # Errors
    /// [`PipelineError::Circle`] if steps wait for each other.
    pub fn order(&self) -> Result<Vec<usize>, PipelineError> {
        let mut order: Vec<usize> = Vec::with_capacity(self.steps.len());
        while order.len() < self.steps.len() {
            let has_run = |name: &str| order.iter().any(|&at| self.steps[at].name == name);
            let is_next =
                |(at, step): &(usize, &Step)| !order.contains(at) && sources(step).all(has_run);
            match self.steps.iter().enumerate().find(is_next) {
                Some((at, _)) => order.push(at),
                None => return Err(PipelineError::Circle { steps: self.circle(&order) }),
            }
        }
        Ok(order)
    }

    /// Steps that wait for each other, if only those of `done` can run.
    fn circle(&self, done: &[usize]) -> Vec<String> {
        let waits_for = |step: &Step| {
            let waits = sources(step).find_map(|name| {
                let at = self.steps.iter().position(|other| other.name == name)?;
                Some(at).filter(|at| !done.contains(at))
            });
            waits.expect("a step that cannot run waits for one that cannot")
        };
        let first = (0..self.steps.len()).find(|at| !done.contains(at));
        let mut path = vec![first.expect("a step is left")];
        loop {
            let next = waits_for(&self.steps[path[path.len() - 1]]);
            if let Some(from) = path.iter().position(|&at| at == next) {
                let around = path[from..].iter().chain([&next]);
                return around.map(|&at| self.steps[at].name.clone()).collect();
            }
            path.push(next);
        }
    }
}

/// The steps whose outputs a step takes.
fn sources(step: &Step) -> impl Iterator<Item = &str> {
    step.inputs.values().filter_map(|wire| match Wire::parse(wire) {
        Wire::Input(_) => None,
        Wire::Output { step, .. } => Some(step),
    })
}
