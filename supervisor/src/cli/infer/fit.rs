//! Fits the arrays of INPUT to a model's inputs, or says what to type instead.

use gridpool_protocol::message::DeviceModel;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};
use gridpool_protocol::tensor::version::{ModelRef, split};
use gridpool_protocol::tensor::{Tensor, TensorSpec};

use super::error::InferError;
use super::npz::Arrays;
use crate::cli::faults::{Alike, alike};

/// The model of that name on a device that serves it; `None` while no worker has reported its models. A
/// worker reports all its models at once.
pub(super) fn find<'a>(
    rows: &'a [DeviceModel],
    model: &str,
) -> Result<Option<&'a ModelInfo>, InferError> {
    let named = versions(rows, model);
    if let Some(row) = named.iter().find(|row| row.model.state == ModelState::Ready) {
        return Ok(Some(&row.model));
    }
    if rows.is_empty() {
        return Ok(None);
    }
    if named.is_empty() {
        let name = |row: &DeviceModel| match ModelRef::parse(model) {
            Ok(ModelRef { version: Some(_), .. }) => row.model.name.clone(),
            Ok(_) | Err(_) => split(&row.model.name).0.to_owned(),
        };
        let mut known: Vec<_> = rows.iter().map(name).collect();
        known.sort_unstable();
        known.dedup();
        return Err(InferError::Unknown { model: model.to_owned(), known });
    }
    let said = alike(named.iter().map(|row| (&*row.worker, &*row.model.reason)));
    let why = said.iter().map(|Alike { names, says }| format!("{}: {says}", names.join(", ")));
    let why = why.collect();
    Err(InferError::Unavailable { model: model.to_owned(), why })
}

/// The rows of the version that a request for `model` goes to; of all, if it names none and none serves.
fn versions<'a>(rows: &'a [DeviceModel], model: &str) -> Vec<&'a DeviceModel> {
    let Ok(asked) = ModelRef::parse(model) else { return Vec::new() };
    let is_own = |row: &&DeviceModel| split(&row.model.name).0 == asked.name;
    let own: Vec<_> = rows.iter().filter(is_own).collect();
    let is_asked = |row: &&DeviceModel| match asked.version {
        Some(version) => split(&row.model.name).1 == version,
        None => row.serves,
    };
    let chosen: Vec<_> = own.iter().copied().filter(is_asked).collect();
    if chosen.is_empty() && asked.version.is_none() { own } else { chosen }
}

/// The arrays for a model that no worker has reported yet: the worker of the request checks them.
pub(super) fn unchecked(arrays: Arrays) -> Result<Vec<(Tensor, Vec<u8>)>, InferError> {
    match arrays {
        Arrays::Named(tensors) => Ok(tensors),
        Arrays::Nameless(..) => Err(InferError::NoModels),
    }
}

/// The arrays under the names of the model's inputs.
pub(super) fn fit(info: &ModelInfo, arrays: Arrays) -> Result<Vec<(Tensor, Vec<u8>)>, InferError> {
    let misfit = |what| InferError::Misfit { model: info.name.clone(), what };
    let tensors = match arrays {
        Arrays::Named(tensors) => tensors,
        Arrays::Nameless(tensor, data) => {
            let [only] = info.inputs.as_slice() else {
                return Err(misfit(format!("an .npy does not name its input: {}", takes(info))));
            };
            let (datatype, shape) = (tensor.datatype(), tensor.shape().to_vec());
            let named = Tensor::new(only.name.clone(), datatype, shape);
            vec![(named.map_err(InferError::Tensors)?, data)]
        }
    };
    for (tensor, _) in &tensors {
        let spec = info.inputs.iter().find(|spec| spec.name == tensor.name());
        let spec = spec.ok_or_else(|| {
            misfit(format!("it has no input `{}`: {}", tensor.name(), takes(info)))
        })?;
        spec.accepts(tensor).map_err(|error| misfit(error.to_string()))?;
    }
    let is_given = |spec: &&TensorSpec| tensors.iter().any(|(t, _)| t.name() == spec.name);
    if let Some(lacks) = info.inputs.iter().find(|spec| !is_given(spec)) {
        return Err(misfit(format!("the input `{}` is missing: {}", lacks.name, takes(info))));
    }
    Ok(tensors)
}

/// The model's inputs, and how to write such an `.npz`.
fn takes(info: &ModelInfo) -> String {
    let listed: Vec<_> = info.inputs.iter().map(ToString::to_string).collect();
    let names: Vec<_> = info.inputs.iter().map(|spec| format!("{0:?}: {0}", spec.name)).collect();
    let (listed, names) = (listed.join(", "), names.join(", "));
    format!("it takes {listed}; write numpy.savez('in.npz', **{{{names}}})")
}

#[cfg(test)]
pub(super) mod tests {
    use gridpool_protocol::tensor::DataType;

    use super::*;

    /// A model on a device.
    pub(in crate::cli::infer) fn row(
        name: &str,
        inputs: &[(&str, DataType, &[i64])],
        reason: &str,
    ) -> DeviceModel {
        let spec = |&(name, datatype, shape): &(&str, DataType, &[i64])| {
            TensorSpec::new(name, datatype, shape)
        };
        let is_ready = reason.is_empty();
        let model = ModelInfo {
            name: name.into(),
            sha256: "00".into(),
            onnxruntime: "1.31.1".into(),
            inputs: inputs.iter().map(spec).collect(),
            outputs: vec![spec(&("y", DataType::Fp32, &[-1, 8]))],
            max_batch: 32,
            contexts: 2,
            contexts_measured: Vec::new(),
            nodes: Vec::new(),
            device_bytes: 3 << 20,
            cuda_graphs: 0,
            warm_up_shapes: Vec::new(),
            steps: Vec::new(),
            state: if is_ready { ModelState::Ready } else { ModelState::Unavailable },
            reason: reason.into(),
        };
        DeviceModel { worker: "cpu0#1".into(), serves: true, model }
    }

    fn tensor(name: &str, datatype: DataType, shape: &[u64]) -> (Tensor, Vec<u8>) {
        let tensor = Tensor::new(name, datatype, shape.to_vec()).unwrap();
        let data = vec![0; tensor.bytes()];
        (tensor, data)
    }

    #[test]
    fn a_model_is_found_on_a_device_that_serves_it_or_the_error_says_why_not() {
        let rows =
            [row("b", &[], "its file is gone"), row("b", &[], ""), row("a", &[], "too large")];
        assert_eq!(find(&rows, "b").unwrap(), Some(&rows[1].model));
        let said = |rows: &[DeviceModel], name| {
            let error = find(rows, name).unwrap_err();
            (error.exit_code(), error.to_string())
        };
        let unknown = "there is no model `c`: write one of a, b".to_owned();
        assert_eq!(said(&rows, "c"), (2, unknown));
        let unavailable = "no device serves a: cpu0#1: too large".to_owned();
        assert_eq!(said(&rows, "a"), (69, unavailable));
        assert_eq!(find(&[], "a").unwrap(), None);
    }

    #[test]
    fn arrays_that_do_not_fit_are_refused_with_what_to_type() {
        use DataType::{Fp32, Fp64, Int32};
        let one = row("m", &[("x", Fp32, &[-1, 4])], "").model;
        let two = row("m", &[("x", Fp32, &[-1, 4]), ("s", Int32, &[-1])], "").model;
        let npz = |tensors: &[(&str, DataType, &[u64])]| {
            Arrays::Named(tensors.iter().map(|&(n, d, s)| tensor(n, d, s)).collect())
        };
        let npy = || {
            let (tensor, data) = tensor("array", Fp32, &[2, 4]);
            Arrays::Nameless(tensor, data)
        };
        assert_eq!(unchecked(npy()).unwrap_err().exit_code(), 69);
        assert_eq!(fit(&one, npy()).unwrap(), [tensor("x", Fp32, &[2, 4])]);
        let both: [(&str, DataType, &[u64]); 2] = [("s", Int32, &[2]), ("x", Fp32, &[2, 4])];
        assert_eq!(fit(&two, npz(&both)).unwrap().len(), 2);
        let said = |info, arrays, words: &[&str]| {
            let error = fit(info, arrays).unwrap_err();
            assert_eq!(error.exit_code(), 65);
            let said = error.to_string();
            assert!(words.iter().all(|&word| said.contains(word)), "{said}");
        };
        said(&two, npy(), &["m: an .npy does not name its input", "x FP32 [?, 4], s INT32 [?]"]);
        said(&one, npz(&both), &["no input `s`", "numpy.savez('in.npz', **{\"x\": x})"]);
        said(&two, npz(&both[1..]), &["the input `s` is missing"]);
        let cast = "FP32: with NumPy x.astype('<f4')";
        said(&one, npz(&[("x", Fp64, &[2, 4])]), &["`x` is FP64", cast]);
        said(&one, npz(&[("x", Fp32, &[2, 5])]), &["shape [2, 5]; the model takes [?, 4]"]);
    }
}
