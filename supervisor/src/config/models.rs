//! Models: parses `--model NAME=PATH` and `[[model]]`.
//!
//! Owns the names and bounds of a model's settings. May not read a model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gridpool_core::config::MODELS_MAX;
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan, OptionsError};
use gridpool_protocol::tensor::version::ModelRef;
use serde::Deserialize;

use super::origins::{Origin, Origins};

/// The fields of [`ModelOptions`], and the value that each needs.
const FIELDS: [(&str, &str); 20] = [
    ("contexts", "a whole number, such as 4, or \"auto\""),
    ("latency_ms", "a whole number of milliseconds"),
    ("device_bytes", "a whole number of bytes"),
    ("max_batch", "a whole number, such as 32"),
    ("max_queue_delay_us", "a whole number of microseconds, such as 500"),
    ("preferred_batch", "a list of whole numbers, such as [8, 16]"),
    ("warm_up", "a list of shapes by the names of inputs, such as [{ x = [8, 3] }]"),
    ("cpu_ops", "a list of ops, such as [\"Shape\", \"Gather\"]"),
    ("providers", "a list of \"tensorrt\", \"cuda\" and \"cpu\""),
    ("tf32", "true or false"),
    ("cuda_graphs", "true or false"),
    ("queue_requests", "a whole number, such as 1024"),
    ("queue_bytes", "a whole number of bytes"),
    ("group", "a name in quotes"),
    ("devices", "a list of devices, such as [0, 2] for GPUs or [\"cpu0\"]"),
    ("device_count", "a whole number, such as 1"),
    ("keep", "true or false"),
    ("load_timeout_s", "a whole number of seconds"),
    (
        "tensors",
        "tables of tensors, such as { inputs = [{ name = \"x\", datatype = \"FP32\", shape = [-1, 4] }] }",
    ),
    ("sha256", "the 64 digits in quotes that `sha256sum FILE` prints"),
];

/// Reads `NAME=PATH`.
pub(super) fn parse_flag(text: &str) -> Result<ModelPlan, String> {
    let (name, path) =
        text.split_once('=').filter(|(_, path)| !path.is_empty()).ok_or_else(|| {
            format!("`{text}` names no file: write NAME=PATH, such as resnet=resnet50.onnx")
        })?;
    let asked = ModelRef::parse(name).map_err(|error| error.to_string())?;
    let options = ModelOptions::default();
    Ok(ModelPlan { name: asked.full_name().into_owned(), path: PathBuf::from(path), options })
}

/// Reads `NAME=PATH` and fields of a `[[model]]`, each as `KEY=VALUE`. A relative path starts at `folder`. The name
/// stays as it is: for a pool that runs, a name without a version means the next one.
///
/// # Errors
/// A sentence with the error and what to write.
pub fn parse_model(flag: &str, fields: &[String], folder: &Path) -> Result<ModelPlan, String> {
    let ModelPlan { name, path, options: _ } = parse_flag(flag)?;
    let typed = flag.split('=').next().unwrap_or(&name).to_owned();
    let mut table = toml::Table::new();
    for field in fields {
        let form = "write KEY=VALUE, such as contexts=4 or cpu_ops=[\"Shape\"]";
        let (key, _) = field.split_once('=').ok_or_else(|| format!("`{field}`: {form}"))?;
        let read: toml::Table = field.parse().map_err(|_| {
            match FIELDS.iter().find(|(known, _)| *known == key.trim()) {
                Some((key, needs)) => format!("`{field}`: `{key}` needs {needs}"),
                None => format!("`{field}` is not in the config file's format: {form}"),
            }
        })?;
        if key.trim() == "name" || key.trim() == "path" {
            return Err(format!("`{field}`: write NAME=PATH first"));
        }
        for (key, value) in read {
            if table.insert(key.clone(), value).is_some() {
                return Err(format!("`{key}` is there twice: keep one"));
            }
        }
    }
    table.insert("name".to_owned(), name.into());
    // The path is put back below, since it need not be UTF-8.
    table.insert("path".to_owned(), ".".into());
    let plan = parse_table(table, folder).map_err(|errors| {
        let reasons: Vec<_> = errors.into_iter().map(|error| error.reason).collect();
        reasons.join("; ")
    })?;
    Ok(ModelPlan { name: typed, path: folder.join(path), ..plan })
}

/// An error in a `[[model]]`.
#[derive(Debug)]
pub(super) struct FieldError {
    /// The field, if only one is wrong.
    pub(super) field: Option<String>,
    /// The place of the step, from 0, if only one is wrong.
    pub(super) step: Option<usize>,
    /// The error and what to write instead.
    pub(super) reason: String,
}

/// What a table describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noun {
    /// A `[[model]]`.
    Model,
    /// A `[[pipeline]]`, without its steps and wires.
    Pipeline,
}

impl Noun {
    fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Pipeline => "pipeline",
        }
    }
}

/// Reads one `[[model]]`. A path in it is relative to `folder`.
///
/// # Errors
/// Every wrong field, at least one.
pub(super) fn parse_table(table: toml::Table, folder: &Path) -> Result<ModelPlan, Vec<FieldError>> {
    parse_named(Noun::Model, table, folder)
}

/// Reads the fields that models and pipelines have.
///
/// # Errors
/// As [`parse_table`].
pub(super) fn parse_named(
    noun: Noun,
    mut table: toml::Table,
    folder: &Path,
) -> Result<ModelPlan, Vec<FieldError>> {
    let (noun, first) = match noun {
        Noun::Model => (noun.name(), "name, path"),
        Noun::Pipeline => (noun.name(), "name, inputs, steps, outputs"),
    };
    let mut errors = Vec::new();
    let mut text = |key: &str| {
        let (field, reason) = match table.remove(key) {
            Some(toml::Value::String(text)) => return Some(text),
            Some(_) => {
                (Some(key.to_owned()), format!("`{key}` of a {noun} needs a text in quotes"))
            }
            None => (None, format!("a [[{noun}]] needs a `{key}`")),
        };
        errors.push(FieldError { field, step: None, reason });
        None
    };
    let (name, path) = (text("name"), text("path"));
    if let Some(Err(error)) = name.as_deref().map(ModelRef::parse) {
        let field = Some("name".to_owned());
        errors.push(FieldError {
            field,
            step: None,
            reason: format!("`name` of a {noun}: {error}"),
        });
    }
    let of =
        name.as_ref().map_or_else(|| format!("a {noun}"), |name| format!("the {noun} `{name}`"));
    // One field at a time, since serde's error for a wrong type does not name the field.
    for (field, value) in &table {
        let alone = toml::Table::from_iter([(field.clone(), value.clone())]);
        let known = FIELDS.iter().find(|(known, _)| known == field);
        if known.is_some() && ModelOptions::deserialize(toml::Value::Table(alone)).is_ok() {
            continue;
        }
        let reason = match known {
            Some((_, needs)) => format!("`{field}` of {of} needs {needs}"),
            None => {
                let known = FIELDS.map(|(field, _)| field).join(", ");
                format!("{of} has no field `{field}`; the fields are {first}, {known}")
            }
        };
        errors.push(FieldError { field: Some(field.clone()), step: None, reason });
    }
    let whole = |reason| vec![FieldError { field: None, step: None, reason }];
    let (Some(name), Some(path), true) = (name, path, errors.is_empty()) else {
        return Err(errors);
    };
    let options = ModelOptions::deserialize(toml::Value::Table(table));
    let options = options.map_err(|error| whole(format!("{of}: {}", error.message())))?;
    let name = ModelRef::parse(&name)
        .map_or_else(|_| name.clone(), |asked| asked.full_name().into_owned());
    let plan = ModelPlan { name, path: folder.join(path), options };
    plan.check().map_err(|error| {
        let field = field_of(&error, &plan.options).map(str::to_owned);
        vec![FieldError { field, step: None, reason: format!("{noun} `{}`: {error}", plan.name) }]
    })?;
    Ok(plan)
}

/// The field of an error, if only one is wrong.
pub(super) fn field_of(error: &OptionsError, options: &ModelOptions) -> Option<&'static str> {
    match error {
        OptionsError::Contexts { .. } => Some("contexts"),
        OptionsError::CudaGraphs { .. } => Some("cuda_graphs"),
        OptionsError::DeviceCount => Some("device_count"),
        OptionsError::Latency => Some("latency_ms"),
        OptionsError::LoadTimeout => Some("load_timeout_s"),
        OptionsError::MaxBatch { .. } => Some("max_batch"),
        OptionsError::QueueDelay { .. } => Some("max_queue_delay_us"),
        OptionsError::PreferredBatch { .. } => Some("preferred_batch"),
        OptionsError::Queue if options.queue_requests == 0 => Some("queue_requests"),
        OptionsError::Queue => Some("queue_bytes"),
        OptionsError::Sha256 { .. } => Some("sha256"),
        OptionsError::CpuProvider | OptionsError::Twice { .. } => Some("providers"),
        OptionsError::Group { .. } if options.group.is_some() => Some("group"),
        OptionsError::Group { .. }
        | OptionsError::NothingToJoin
        | OptionsError::Pipeline(_)
        | OptionsError::TooLong { .. } => None,
    }
}

/// Merges the models of the flags into those of the file. A flag for a model of the file changes only its
/// path. No model may be named twice.
pub(super) fn merge(
    file: Vec<ModelPlan>,
    flags: Vec<ModelPlan>,
    origins: &mut Origins,
) -> Result<Vec<ModelPlan>, String> {
    let flag = || Origin::Flag { flag: "--model" };
    let named = |model: ModelPlan| (model.name.clone(), model);
    let mut models: BTreeMap<String, ModelPlan> = file.into_iter().map(named).collect();
    let mut seen = Vec::new();
    for model in flags {
        if seen.contains(&model.name) {
            return Err(format!("the model `{}` is named twice: keep one", model.name));
        }
        seen.push(model.name.clone());
        origins.set(format!("model.{}.path", model.name), flag());
        match models.get_mut(&model.name) {
            Some(known) if known.options.pipeline.is_some() => {
                let name = &model.name;
                return Err(format!(
                    "`{name}` is a [[pipeline]] of the config file: name another model"
                ));
            }
            Some(known) => known.path = model.path,
            None => {
                origins.set(format!("model.{}.name", model.name), flag());
                models.insert(model.name.clone(), model);
            }
        }
    }
    match models.len() > MODELS_MAX {
        true => Err(format!("{} models; a pool has at most {MODELS_MAX}", models.len())),
        false => Ok(models.into_values().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_parsed_or_refused_with_what_to_write() {
        assert_eq!(
            (&*parse_flag("m:2=x").unwrap().name, &*parse_flag("m:1=x").unwrap().name),
            ("m:2", "m")
        );
        assert_eq!(
            parse_model("m:1=x", &[], Path::new("/")).unwrap().name,
            "m:1",
            "not the next one"
        );
        let model = parse_flag("resnet=models/a=b.onnx").unwrap();
        assert_eq!((&*model.name, &*model.path), ("resnet", Path::new("models/a=b.onnx")));
        assert!(parse_flag("resnet").unwrap_err().contains("write NAME=PATH"));
        assert!(parse_flag("resnet=").unwrap_err().contains("write NAME=PATH"));
        assert!(parse_flag("a/b=x").unwrap_err().contains("cannot be the name of a model"));
        let text = "name = 'm'\npath = 'm.onnx'\ncontexts = 4\ncpu_ops = ['Shape']";
        let model = parse_table(text.parse().unwrap(), Path::new("/etc")).unwrap();
        assert_eq!((&*model.path, model.options.contexts), (Path::new("/etc/m.onnx"), 4.into()));
        let wrong = [
            ("path = 'm.onnx'", "a [[model]] needs a `name`"),
            ("name = 'm'", "a [[model]] needs a `path`"),
            ("name = 'm'\npath = 1", "`path` of a model needs a text in quotes"),
            ("name = 'm'\npath = 'x'\ncontext = 4", "the model `m` has no field `context`; the"),
            ("name = 'm'\npath = 'x'\ncontexts = -1", "`contexts` of the model `m` needs a whole"),
            ("name = 'm'\npath = 'x'\ntf32 = 1", "`tf32` of the model `m` needs true or false"),
            ("name = 'a/b'\npath = 'x'", "`name` of a model: `a/b` cannot be the name of a model"),
            ("name = 'm'\npath = 'x'\ncontexts = 0", "model `m`: 0 contexts"),
            ("name = 'm'\npath = 'x'\nmax_batch = 0", "model `m`: a max_batch of 0"),
            ("name = 'm'\npath = 'x'\nqueue_bytes = 0", "queue_bytes must be at least 1"),
            (
                "name = 'm'\npath = 'x'\nproviders = ['cuda', 'cuda']",
                "model `m`: providers: `cuda`",
            ),
        ];
        for (text, why) in wrong {
            let error = parse_table(text.parse().unwrap(), Path::new("")).unwrap_err();
            assert!(error[0].reason.contains(why), "{text}: {error:?}");
        }
        for (field, why) in [
            ("cuda_graphs=yes", "`cuda_graphs=yes`: `cuda_graphs` needs true or false"),
            ("group=a", "`group=a`: `group` needs a name in quotes"),
            ("graphs=yes", "`graphs=yes` is not in the config file's format: write KEY=VALUE"),
        ] {
            let error = parse_model("m=x", &[field.to_owned()], Path::new("")).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        let fields = ["contexts = '4'", "tf32 = 1"].map(str::to_owned);
        let error = parse_model("m=x", &fields, Path::new("")).unwrap_err();
        assert!(error.contains("`contexts` of") && error.contains("; `tf32` of"), "{error}");
    }

    #[test]
    fn every_field_of_a_models_options_has_a_description_of_its_value() {
        let options = serde_json::to_value(ModelOptions::default()).unwrap();
        let options = options.as_object().unwrap().keys().filter(|key| *key != "pipeline");
        let options: Vec<_> = options.cloned().collect();
        assert_eq!(FIELDS.map(|(field, _)| field), *options);
    }

    #[test]
    fn a_flag_changes_the_path_of_a_model_of_the_file_and_keeps_its_options() {
        let text = "name = 'm'\npath = 'a'\ncontexts = 4";
        let of_file = parse_table(text.parse().unwrap(), Path::new("")).unwrap();
        let flags = || vec![parse_flag("m=b").unwrap(), parse_flag("n=c").unwrap()];
        let models = merge(vec![of_file], flags(), &mut Origins::default()).unwrap();
        let short: Vec<_> = models
            .iter()
            .map(|m| (&*m.name, m.path.to_str().unwrap(), m.options.contexts.fixed().unwrap()))
            .collect();
        assert_eq!(short, [("m", "b", 4), ("n", "c", 1)]);
        let twice = [flags(), flags()].concat();
        assert!(merge(Vec::new(), twice, &mut Origins::default()).is_err());
    }

    #[test]
    fn the_generated_model_fields_match_the_code() {
        const OPTIONS: &str = include_str!("../../../protocol/src/tensor/options.rs");
        let defaults = serde_json::to_value(ModelOptions::default()).unwrap();
        let says = crate::generated::fields(OPTIONS, "ModelOptions").into_iter();
        let rows = says.zip(FIELDS).map(|(field, (name, needs))| {
            assert_eq!(field.name, name);
            let default = match defaults[name].to_string() {
                nothing if nothing == "null" || nothing == "[]" => "none".to_owned(),
                value => value,
            };
            [format!("`{name}`"), default, needs.to_owned(), field.says]
        });
        let text = crate::generated::table(["key", "default", "value", "meaning"], rows);
        crate::generated::check("reference/config.md", "model", &text);
    }
}
