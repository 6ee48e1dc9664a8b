//! What a `config.pbtxt` of Triton means here. A field that would change results and has no meaning here is an error;
//! one that would not is named in a warning.

use std::collections::BTreeMap;

use gridpool_protocol::tensor::options::{ListedTensors, ModelOptions};
use gridpool_protocol::tensor::{ANY_SIZE, Contexts, DataType, TensorSpec};

use super::text::{Field, TextError, parse};

/// The file of a version that names no other.
pub(super) const FILENAME_DEFAULT: &str = "model.onnx";
/// What runs models here, in Triton's words.
const BACKEND: &str = "onnxruntime";
const PLATFORM: &str = "onnxruntime_onnx";

/// What Triton calls a model of several steps.
const ENSEMBLE: &str = "ensemble";

/// Fields that are passed over with a warning: results are the same without them.
const WITHOUT_EFFECT: [&str; 5] =
    ["metric_tags", "model_metrics", "parameters", "response_cache", "runtime"];

/// Fields of an input or output that must be false.
const OFF_IN_TENSORS: [&str; 4] =
    ["allow_ragged_batch", "is_non_linear_format_io", "is_shape_tensor", "optional"];

/// The versions of a model that serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VersionPolicy {
    All,
    Latest(usize),
    Specific(Vec<u32>),
}

/// A `config.pbtxt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelConfig {
    pub(super) options: ModelOptions,
    pub(super) policy: VersionPolicy,
    pub(super) filename: String,
    /// What has no effect here, each in a sentence.
    pub(super) warnings: Vec<String>,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            options: ModelOptions::default(),
            policy: VersionPolicy::Latest(1),
            filename: FILENAME_DEFAULT.to_owned(),
            warnings: Vec::new(),
        }
    }
}

/// The part of a reader that all fields need.
struct Reader {
    config: ModelConfig,
    /// Whether shapes lack a first dimension for rows.
    has_rows: bool,
}

impl ModelConfig {
    /// Reads the text of a model's config.
    pub(super) fn read(name: &str, text: &str) -> Result<Self, TextError> {
        let fields = parse(text)?;
        let batch = fields.iter().rfind(|field| field.name == "max_batch_size");
        let batch: Option<u32> = batch.map(Field::number).transpose()?;
        let mut reader = Reader { config: Self::default(), has_rows: batch.is_some_and(|n| n > 0) };
        reader.config.options.max_batch = batch.map(|rows| rows.max(1));
        let mut contexts = None;
        for field in &fields {
            match field.name.as_str() {
                "name" => is_only(field, name)?,
                "backend" => is_only(field, BACKEND)?,
                "platform" => is_only(field, PLATFORM)?,
                "max_batch_size" => {}
                "input" => reader.tensor(field, |listed| &mut listed.inputs)?,
                "output" => reader.tensor(field, |listed| &mut listed.outputs)?,
                "instance_group" => {
                    *contexts.get_or_insert(0) += reader.instances(field)?;
                }
                "version_policy" => reader.config.policy = policy(field)?,
                "dynamic_batching" => reader.batching(field)?,
                "default_model_filename" => reader.config.filename = filename(field)?,
                "model_warmup" => reader.warm_up(field)?,
                "optimization" => reader.optimization(field)?,
                "ensemble_scheduling" => return Err(ensemble(field)),
                "model_transaction_policy" => {
                    for part in field.message()? {
                        is_off(part, "model_transaction_policy.", &["decoupled"])?;
                    }
                }
                other if WITHOUT_EFFECT.contains(&other) => reader.warn(field, ""),
                _ => return Err(unknown(field, "")),
            }
        }
        reader.config.options.contexts = Contexts::Fixed(contexts.unwrap_or(1).max(1));
        Ok(reader.config)
    }
}

/// A field that would change results.
fn unknown(field: &Field, of: &str) -> TextError {
    let name = &field.name;
    TextError::new(field.at, format!("`{of}{name}` has no meaning here: take it out"))
}

/// One of these fields of a message must be false, as it is without it.
fn is_off(field: &Field, of: &str, known: &[&str]) -> Result<(), TextError> {
    match known.contains(&field.name.as_str()) && !truth(field)? {
        true => Ok(()),
        false => Err(unknown(field, of)),
    }
}

/// A model of several steps, which is no file.
fn ensemble(field: &Field) -> TextError {
    let why = "an ensemble is a pipeline here: take its folder out, and write its steps as a [[pipeline]] into the \
               config file, or into a file for `gridpool model load --pipeline FILE`";
    TextError::new(field.at, why)
}

fn is_only(field: &Field, only: &str) -> Result<(), TextError> {
    match field.text()? {
        text if text == only || text.is_empty() => Ok(()),
        ENSEMBLE if only == PLATFORM => Err(ensemble(field)),
        other => {
            let name = &field.name;
            Err(TextError::new(field.at, format!("`{name}` is `{other}`; here it is `{only}`")))
        }
    }
}

fn filename(field: &Field) -> Result<String, TextError> {
    let name = field.text()?;
    if name.is_empty() {
        return Ok(FILENAME_DEFAULT.to_owned());
    }
    if name.contains('/') || name == ".." || name == "." {
        let why = "`default_model_filename` is the name of a file in the folder of a version";
        return Err(TextError::new(field.at, why));
    }
    Ok(name.to_owned())
}

fn policy(field: &Field) -> Result<VersionPolicy, TextError> {
    let [choice] = field.message()? else {
        let why = "`version_policy` is one of `latest`, `all`, `specific`";
        return Err(TextError::new(field.at, why));
    };
    let own = choice.message()?;
    match choice.name.as_str() {
        "all" => Ok(VersionPolicy::All),
        "latest" => {
            let count = own.iter().find(|field| field.name == "num_versions");
            let count = count.map_or(Ok(1), Field::number)?;
            Ok(VersionPolicy::Latest(count))
        }
        "specific" => {
            let versions = own.iter().filter(|field| field.name == "versions");
            versions.map(Field::number).collect::<Result<_, _>>().map(VersionPolicy::Specific)
        }
        _ => Err(unknown(choice, "version_policy.")),
    }
}

/// Reads `true` or `false`, as the format writes them.
fn truth(field: &Field) -> Result<bool, TextError> {
    match field.word()? {
        "true" | "True" | "t" | "1" => Ok(true),
        "false" | "False" | "f" | "0" => Ok(false),
        _ => Err(TextError::new(field.at, format!("`{}` is true or false", field.name))),
    }
}

/// Reads `TYPE_FP32`.
fn datatype(field: &Field) -> Result<DataType, TextError> {
    let word = field.word()?;
    // BYTES has another name there, and only there.
    let known = match word.strip_prefix("TYPE_") {
        Some("STRING") => Some(DataType::Bytes),
        Some("BYTES") | None => None,
        Some(name) => name.parse().ok(),
    };
    known.ok_or_else(|| {
        TextError::new(field.at, format!("`{word}` is no type of tensors that are served here"))
    })
}

impl Reader {
    fn warn(&mut self, field: &Field, of: &str) {
        let (at, name) = (field.at, &field.name);
        let why = format!("`{of}{name}` has no effect here");
        // A list is one field for each of its values.
        if !self.config.warnings.iter().any(|said| said.ends_with(&why)) {
            self.config.warnings.push(format!("{at}: {why}"));
        }
    }

    fn tensor(
        &mut self,
        field: &Field,
        into: fn(&mut ListedTensors) -> &mut Vec<TensorSpec>,
    ) -> Result<(), TextError> {
        let (mut name, mut kind, mut dims) = (None, None, Vec::new());
        let of = format!("{}.", field.name);
        for part in field.message()? {
            match part.name.as_str() {
                "name" => name = Some(part.text()?.to_owned()),
                "data_type" => kind = Some(datatype(part)?),
                "dims" => dims.push(part.number::<i64>()?),
                "label_filename" => self.warn(part, &of),
                "format" if matches!(part.word(), Ok("FORMAT_NONE" | "0")) => {}
                // The model says how its images lie.
                "format" => self.warn(part, &of),
                _ => is_off(part, &of, &OFF_IN_TENSORS)?,
            }
        }
        let lacks =
            |what: &str| TextError::new(field.at, format!("`{}` needs `{what}`", field.name));
        if self.has_rows {
            dims.insert(0, ANY_SIZE);
        }
        let (name, kind) =
            (name.ok_or_else(|| lacks("name"))?, kind.ok_or_else(|| lacks("data_type"))?);
        let spec = TensorSpec::new(name, kind, dims);
        into(self.config.options.tensors.get_or_insert_default()).push(spec);
        Ok(())
    }

    fn instances(&mut self, field: &Field) -> Result<u32, TextError> {
        let mut count = 1;
        for part in field.message()? {
            match part.name.as_str() {
                "count" => count = part.number()?,
                "name" => {}
                "kind" if matches!(part.word(), Ok("KIND_AUTO" | "0")) => {}
                // The devices of the pool run it.
                "kind" | "gpus" | "profile" | "rate_limiter" | "passive" | "host_policy" => {
                    self.warn(part, "instance_group.");
                }
                _ => return Err(unknown(part, "instance_group.")),
            }
        }
        Ok(count)
    }

    fn batching(&mut self, field: &Field) -> Result<(), TextError> {
        let of = "dynamic_batching.";
        for part in field.message()? {
            match part.name.as_str() {
                "default_queue_policy" => {
                    for part in part.message()? {
                        match part.name.as_str() {
                            "max_queue_size" => match part.number()? {
                                0 => {}
                                most => self.config.options.queue_requests = most,
                            },
                            "timeout_action"
                            | "default_timeout_microseconds"
                            | "allow_timeout_override" => {
                                self.warn(part, "dynamic_batching.default_queue_policy.");
                            }
                            _ => {
                                return Err(unknown(
                                    part,
                                    "dynamic_batching.default_queue_policy.",
                                ));
                            }
                        }
                    }
                }
                "preferred_batch_size" => {
                    self.config.options.preferred_batch.insert(part.number()?);
                }
                "max_queue_delay_microseconds" => {
                    self.config.options.max_queue_delay_us = part.number()?;
                }
                "preserve_ordering"
                | "priority_levels"
                | "default_priority_level"
                | "priority_queue_policy" => self.warn(part, of),
                _ => return Err(unknown(part, of)),
            }
        }
        Ok(())
    }

    /// `cuda { graphs: true }` has a meaning here. The rest is passed over.
    fn optimization(&mut self, field: &Field) -> Result<(), TextError> {
        for part in field.message()? {
            if part.name != "cuda" {
                self.warn(part, "optimization.");
                continue;
            }
            for own in part.message()? {
                match own.name.as_str() {
                    "graphs" => self.config.options.cuda_graphs = truth(own)?,
                    _ => self.warn(own, "optimization.cuda."),
                }
            }
        }
        Ok(())
    }

    /// A warm-up run: the shape of each input. What its data is makes no difference here: it is zeros.
    fn warm_up(&mut self, field: &Field) -> Result<(), TextError> {
        let of = "model_warmup.";
        let (mut rows, mut shapes) = (0_u64, BTreeMap::new());
        for part in field.message()? {
            match part.name.as_str() {
                "name" => {}
                "batch_size" => rows = part.number()?,
                "count" => self.warn(part, of),
                "inputs" => {
                    let entry = part.message()?;
                    let find = |key: &str| entry.iter().find(|own| own.name == key);
                    let (Some(key), Some(value)) = (find("key"), find("value")) else {
                        let why = "`model_warmup.inputs` needs `key` and `value`";
                        return Err(TextError::new(part.at, why));
                    };
                    let dims = value.message()?.iter().filter(|own| own.name == "dims");
                    let dims = dims.map(Field::number::<u64>).collect::<Result<Vec<_>, _>>()?;
                    shapes.insert(key.text()?.to_owned(), dims);
                }
                _ => return Err(unknown(part, of)),
            }
        }
        if self.has_rows && rows > 0 {
            shapes.values_mut().for_each(|shape| shape.insert(0, rows));
        }
        self.config.options.warm_up.push(shapes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn fields_with_a_meaning_here_are_read() {
        let text = r#"
            name: "resnet"
            platform: "onnxruntime_onnx"
            max_batch_size: 16
            input [ {
              name: "data" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 224, 224 ] optional: false
            } ]
            output [ { name: "prob" data_type: TYPE_FP32 dims: [ 1000 ] label_filename: "l.txt" } ]
            model_transaction_policy { decoupled: false }
            instance_group [ { count: 2 kind: KIND_GPU }, { count: 1 } ]
            version_policy: { specific: { versions: [ 1, 3 ] } }
            dynamic_batching {
              preferred_batch_size: [ 4, 8 ]
              max_queue_delay_microseconds: 500
              preserve_ordering: false
              default_queue_policy { max_queue_size: 64 }
            }
            default_model_filename: "net.onnx"
            model_warmup [ {
              name: "first" batch_size: 4
              inputs { key: "data" value: { data_type: TYPE_FP32 dims: [ 3, 224, 224 ] zero_data: true } }
            } ]
            optimization {
              graph { level: 1 }
              cuda { graphs: true busy_wait_events: true }
            }
        "#;
        let config = ModelConfig::read("resnet", text).unwrap();
        let ModelOptions { contexts, max_batch, warm_up, queue_requests, tensors, .. } =
            &config.options;
        let ListedTensors { inputs, outputs } = &**tensors.as_ref().unwrap();
        let has = (*contexts, *max_batch, *queue_requests);
        assert_eq!(has, (Contexts::Fixed(3), Some(16), 64));
        let waits = (config.options.max_queue_delay_us, &config.options.preferred_batch);
        assert_eq!(waits, (500, &BTreeSet::from([4, 8])));
        assert_eq!(warm_up[0]["data"], [4, 3, 224, 224]);
        assert_eq!(inputs[0].to_string(), "data FP32 [?, 3, 224, 224]");
        assert_eq!(outputs[0].to_string(), "prob FP32 [?, 1000]");
        assert_eq!(config.policy, VersionPolicy::Specific(vec![1, 3]));
        assert_eq!(config.filename, "net.onnx");
        assert!(config.options.cuda_graphs);
        let warned: Vec<_> = config.warnings.iter().map(|why| why.split('`').nth(1)).collect();
        let want = [
            "input.format",
            "output.label_filename",
            "instance_group.kind",
            "dynamic_batching.preserve_ordering",
            "optimization.graph",
            "optimization.cuda.busy_wait_events",
        ];
        assert_eq!(warned, want.map(Some));
        let none = ModelConfig::read("m", "").unwrap();
        assert_eq!(none, ModelConfig::default());
        assert_eq!(ModelConfig::read("m", "default_model_filename: ''").unwrap(), none);
        let zero = ModelConfig::read(
            "m",
            "max_batch_size: 0\ninput { name: 'x' data_type: TYPE_INT64 dims: 2 }",
        );
        let zero = zero.unwrap().options;
        assert_eq!(
            (zero.max_batch, zero.tensors.unwrap().inputs[0].to_string()),
            (Some(1), "x INT64 [2]".to_owned())
        );
    }

    #[test]
    fn what_would_change_results_is_an_error_with_its_place() {
        for (text, why) in [
            ("name: 'other'", "line 1, column 1: `name` is `other`; here it is `m`"),
            ("backend: 'python'", "`backend` is `python`; here it is `onnxruntime`"),
            ("max_batch_size: -1", "`max_batch_size` needs a whole number"),
            (
                "\n  ensemble_scheduling { }",
                "line 2, column 3: an ensemble is a pipeline here: take its folder out, and write its steps as a \
                 [[pipeline]] into the config file",
            ),
            ("platform: 'ensemble'", "line 1, column 1: an ensemble is a pipeline here"),
            (
                "model_transaction_policy { decoupled: true }",
                "`model_transaction_policy.decoupled` has",
            ),
            (
                "input { name: 'x' data_type: TYPE_FP32 dims: 1 optional: true }",
                "`input.optional` has no meaning here",
            ),
            ("sequence_batching { }", "`sequence_batching` has no meaning here"),
            ("input { name: 'x' dims: 1 }", "`input` needs `data_type`"),
            ("input { name: 'x' data_type: TYPE_BYTES dims: 1 }", "`TYPE_BYTES` is no type"),
            ("input { name: 'x' data_type: TYPE_FP32 dims: 1 reshape { } }", "`input.reshape` has"),
            ("version_policy { }", "`version_policy` is one of"),
            ("version_policy { newest { } }", "`version_policy.newest` has no meaning"),
            ("default_model_filename: '../x'", "is the name of a file in the folder"),
            ("dynamic_batching { delay: 1 }", "`dynamic_batching.delay` has no meaning"),
        ] {
            let error = ModelConfig::read("m", text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
