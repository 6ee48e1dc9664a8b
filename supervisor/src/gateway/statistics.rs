//! Statistics of every model since the gateway started. Built-in models have their tallies here; a model
//! of the pool keeps its own.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::models::{GridModel, Model};
use super::tally::Tally;

/// The tallies of the built-in models, by name.
#[derive(Debug)]
pub(super) struct Statistics(BTreeMap<&'static str, Tally>);

impl Statistics {
    pub(super) fn new() -> Self {
        Self(GridModel::all().map(|model| (model.name(), Tally::default())).collect())
    }

    /// The tally of a model.
    pub(super) fn of<'a>(&'a self, model: &'a Model) -> &'a Tally {
        match model {
            Model::Grid(model) => {
                self.0.get(model.name()).expect("every built-in model has a tally")
            }
            Model::Onnx(model, _) => &model.record.tally,
        }
    }

    /// The document of `/v2/models/stats`. Every model has a row.
    pub(super) fn document(&self, models: impl IntoIterator<Item = Model>) -> Value {
        let row = |model: Model| self.of(&model).row(model.name(), &model.version());
        json!({ "model_stats": models.into_iter().map(row).collect::<Value>() })
    }
}
