//! A load of a model, on a thread and a connection of its own: the pool gives it up when that connection ends.

use std::path::PathBuf;
use std::sync::{Arc, Condvar};
use std::thread;
use std::time::Duration;

use gridpool_client::{Client, ClientError, ModelOptions, ModelPlan};
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::cluster::Place;
use crate::errors;
use crate::process::{Owned, detached};
use crate::terms::seconds;

/// The answer, once there is one.
#[derive(Debug, Default)]
struct Loading {
    answer: Mutex<Option<Result<String, ClientError>>>,
    came: Condvar,
}

/// See the module's text.
#[pyclass(frozen, module = "gridpool._native")]
#[derive(Debug)]
pub(crate) struct ModelLoad {
    client: Owned<Client>,
    loading: Arc<Loading>,
}

impl ModelLoad {
    /// Begins to load a model. `options` is JSON with fields of `[[model]]`.
    pub(crate) fn start(
        py: Python<'_>,
        place: &Place,
        (name, path): (String, PathBuf),
        options: &str,
    ) -> PyResult<Self> {
        let wrong = |why: String| PyValueError::new_err(why);
        let options: ModelOptions =
            serde_json::from_str(options).map_err(|error| wrong(error.to_string()))?;
        let plan = ModelPlan { name, path, options };
        plan.check().map_err(|error| wrong(error.to_string()))?;
        let builder = place.builder().reconnect_for(Duration::ZERO);
        let client = detached(py, || builder.connect());
        let client = client.map_err(|error| errors::client(py, &error))?;
        let loading = Arc::<Loading>::default();
        let (own, for_thread) = (client.clone(), Arc::clone(&loading));
        let named = thread::Builder::new().name("gridpool-load".to_owned());
        let spawned = named.spawn(move || {
            let answer = own.load_model(plan);
            *for_thread.answer.lock() = Some(answer);
            for_thread.came.notify_all();
        });
        spawned.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(Self { client: Owned::new(client), loading })
    }
}

#[pymethods]
impl ModelLoad {
    /// Waits so many seconds for the answer: the pool's sentence. `None` if it is not there then.
    fn wait(&self, py: Python<'_>, span: f64) -> PyResult<Option<String>> {
        if !self.client.is_mine() {
            let why = "the load is the parent process's: wait for it there";
            return Err(PyRuntimeError::new_err(why));
        }
        let until = clock::now() + seconds(span)?;
        detached(py, || {
            let mut answer = self.loading.answer.lock();
            while answer.is_none() && !clock::until(until).is_zero() {
                let waited = self.loading.came.wait_timeout(answer, clock::until(until));
                answer = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            }
        });
        match &*self.loading.answer.lock() {
            None => Ok(None),
            Some(Ok(sentence)) => Ok(Some(sentence.clone())),
            Some(Err(error)) => Err(errors::client(py, error)),
        }
    }

    /// Gives the load up.
    fn cancel(&self) {
        if self.client.is_mine() {
            self.client.hang_up();
        }
    }
}
