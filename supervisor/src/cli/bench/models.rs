//! The measurements of models: contexts and rows max for each.
//!
//! Owns the changes by `--set`. May not read a model.

use std::path::Path;

use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};

use super::BenchError;
use super::flags::BenchFlags;
use crate::config::parse_model;

/// Contexts of the measurements in which each request has its own run.
const CONTEXTS: [u32; 4] = [1, 2, 4, 8];
const CONTEXTS_QUICK: [u32; 2] = [1, 4];
/// Contexts of the measurements in which requests share runs.
const CONTEXTS_JOINED: [u32; 2] = [1, 4];

/// A plan for each measurement; empty if bench measures grids.
pub(super) fn plans(
    flags: &BenchFlags,
    models: &[ModelPlan],
) -> Result<Vec<ModelPlan>, BenchError> {
    let wants_grids = !flags.ops.is_empty() || flags.recovery.is_some() || flags.solvers.is_some();
    let models = if wants_grids { &[] } else { models };
    if models.is_empty() && flags.isolation {
        let why = "--isolation measures models: name one, such as --model resnet=resnet50.onnx";
        return Err(BenchError::Models(why.to_owned()));
    }
    if models.is_empty() && !flags.fields.is_empty() {
        let why = "--set changes models: name one, such as --model resnet=resnet50.onnx";
        return Err(BenchError::Models(why.to_owned()));
    }
    let mut plans = Vec::new();
    for model in models {
        let options = match flags.fields.as_slice() {
            [] => model.options.clone(),
            fields => ModelOptions {
                pipeline: model.options.pipeline.clone(),
                ..options(&model.name, fields)?
            },
        };
        if flags.isolation {
            plans.push(ModelPlan { options, ..model.clone() });
            continue;
        }
        let alone: &[u32] = if flags.quick { &CONTEXTS_QUICK } else { &CONTEXTS };
        let joined: &[u32] = if options.max_batch == Some(1) { &[] } else { &CONTEXTS_JOINED };
        let one = |contexts: u32, max_batch| {
            let options = ModelOptions { contexts: contexts.into(), max_batch, ..options.clone() };
            ModelPlan { options, ..model.clone() }
        };
        plans.extend(alone.iter().map(|&contexts| one(contexts, Some(1))));
        plans.extend(joined.iter().map(|&contexts| one(contexts, options.max_batch)));
    }
    Ok(plans)
}

/// The options of a model with these fields.
fn options(name: &str, fields: &[String]) -> Result<ModelOptions, BenchError> {
    let key = |field: &String| field.split('=').next().unwrap_or_default().trim().to_owned();
    if fields.iter().any(|field| key(field) == "contexts") {
        let why = format!("--set contexts: bench measures {CONTEXTS:?} contexts; leave it out");
        return Err(BenchError::Models(why));
    }
    let plan = parse_model(&format!("{name}=."), fields, Path::new(""));
    plan.map(|plan| plan.options).map_err(|why| BenchError::Models(format!("--set {why}")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: BenchFlags,
    }

    fn plans_of(line: &[&str], max_batch: Option<u32>) -> Result<Vec<(u32, Option<u32>)>, String> {
        let flags = Line::parse_from([&["bench"], line].concat()).flags;
        let options = ModelOptions { contexts: 3.into(), max_batch, ..ModelOptions::default() };
        let model = ModelPlan { name: "m".into(), path: "m.onnx".into(), options };
        let plans = plans(&flags, &[model]).map_err(|error| error.to_string())?;
        assert!(plans.iter().all(|plan| plan.path == Path::new("m.onnx")));
        Ok(plans
            .iter()
            .map(|plan| (plan.options.contexts.fixed().unwrap(), plan.options.max_batch))
            .collect())
    }

    #[test]
    fn single_and_shared_runs_are_measured_with_more_and_more_contexts() {
        let one = Some(1);
        let all = [(1, one), (2, one), (4, one), (8, one), (1, None), (4, None)];
        assert_eq!(plans_of(&[], None), Ok(all.to_vec()));
        assert_eq!(plans_of(&[], one), Ok(all[..4].to_vec()));
        let quick = [(1, one), (4, one), (1, Some(16)), (4, Some(16))];
        assert_eq!(plans_of(&["--quick", "--set", "max_batch=16"], one), Ok(quick.to_vec()));
        assert_eq!(plans_of(&["--isolation"], None), Ok(vec![(3, None)]), "as it is");
        assert_eq!(plans_of(&["--ops", "rot90"], None), Ok(Vec::new()));
        assert_eq!(plans_of(&["--recovery"], None), Ok(Vec::new()));
    }

    #[test]
    fn wrong_fields_are_refused_with_what_to_write() {
        let wrong = [
            (&["--isolation", "--ops", "rot90"][..], "--isolation measures models: name one"),
            (&["--set", "contexts=4"][..], "--set contexts: bench measures [1, 2, 4, 8] contexts"),
            (&["--set", "max_batch"], "--set `max_batch`: write KEY=VALUE"),
            (&["--set", "max_batch=0"], "a max_batch of 0"),
            (&["--set", "tf32=true", "--ops", "rot90"], "--set changes models: name one"),
        ];
        for (line, why) in wrong {
            let error = plans_of(line, None).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
