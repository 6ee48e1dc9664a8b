//! The progress bar over items, on standard error.
//!
//! Owns its layout. May not decide what counts as done.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// Redraws per second at most: more only flickers.
const REDRAWS_PER_SECOND: u8 = 10;

/// A bar that fills as items come back. It draws nothing unless standard error is a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar over `items` items; hidden if `quiet`, for `--json` and `--quiet`.
    #[must_use]
    pub fn new(items: u64, quiet: bool) -> Self {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND)
        };
        let bar = ProgressBar::with_draw_target(Some(items), target);
        Self { bar: bar.with_style(style()).with_finish(ProgressFinish::AndClear) }
    }

    /// Counts `items` more as done. The rate is that since the first: before, a pool may have started.
    pub fn advance(&self, items: u64) {
        let is_first = self.bar.position() == 0;
        self.bar.inc(items);
        if is_first {
            self.bar.reset_eta();
        }
    }

    /// Takes the bar off the screen, as dropping it does.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }
}

fn style() -> ProgressStyle {
    let template = "{bar:40} {human_pos}/{human_len} items  {per_sec}  {eta}";
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    style.progress_chars("█▉▊▋▌▍▎▏ ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_bar_counts_and_draws_nothing() {
        let progress = Progress::new(3, true);
        assert!(progress.bar.is_hidden());
        progress.advance(2);
        assert_eq!(progress.bar.position(), 2);
        let rate = progress.bar.per_sec();
        assert!(rate.is_nan() || rate <= 0.0, "the start of the pool counts");
        progress.finish();
    }

    #[test]
    fn the_template_names_only_what_exists() {
        let _style = style();
    }
}
