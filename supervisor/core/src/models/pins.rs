//! Which file each model is: the one that its first worker loaded; so is each step of a pipeline. And how many contexts
//! it has, if that worker chose.

use gridpool_protocol::tensor::Contexts;

use super::*;

impl Models {
    /// Pins each model to the file that its first worker loaded, whatever happens to the path later, and to the number
    /// of contexts that it chose: the other workers measure nothing.
    pub(super) fn pin(&mut self, worker: WorkerId, reported: &mut [ModelInfo]) {
        let Some(holder) = self.holders.get(&worker) else { return };
        for info in reported.iter_mut().filter(|info| info.state == ModelState::Ready) {
            let pending = holder.pending.as_ref().filter(|own| own.command.name() == info.name);
            let loading = pending.map(|pending| pending.edition);
            let edition = holder.has.get(&info.name).copied().or(loading);
            let wanted = self.wanted.get_mut(&info.name);
            let wanted = wanted.map(|wanted| (wanted.edition, &mut wanted.plan));
            let change = self.change.as_mut().and_then(|change| match &mut change.command {
                ModelCommand::Load(plan) => Some((change.edition, plan)),
                ModelCommand::Contexts { .. } | ModelCommand::Unload { .. } => None,
            });
            let mut plans = wanted.into_iter().chain(change);
            let Some((_, plan)) = plans.find(|(own, _)| Some(*own) == edition) else { continue };
            if let Err(changed) = plan.options.check_file(&plan.name, &plan.path, &info.sha256) {
                info.state = ModelState::Unavailable;
                info.reason = changed.to_string();
            } else if !info.sha256.is_empty() {
                plan.options.sha256 = Some(info.sha256.clone());
                let steps = plan.options.pipeline.iter_mut().flat_map(|own| &mut own.steps);
                for step in steps {
                    let loaded = info.steps.iter().find(|loaded| loaded.name == step.name);
                    let (Some(loaded), Some(own)) = (loaded, step.model_mut()) else { continue };
                    own.sha256 = Some(loaded.sha256.clone());
                }
            }
            if info.state == ModelState::Ready && plan.options.contexts == Contexts::Auto {
                plan.options.contexts = Contexts::Fixed(info.contexts);
            }
        }
    }
}
