//! ONNX Runtime's CPU provider in this process: the reference for a pool's outputs.

use std::path::Path;
use std::sync::mpsc;

use gridpool_client::TensorOutputs;
use gridpool_infer::{Destination, Engine, LibraryError, Placed, Places, Request, Runtime, Source};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::message::Priority;
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
use gridpool_protocol::tensor::{Tensor, TensorLayout};

/// The models, in the engine that workers use, on the CPU.
pub(super) struct Reference {
    engine: Engine,
}

impl Reference {
    pub(super) fn open(named: Option<&Path>, threads: usize) -> Result<Self, LibraryError> {
        let runtime = Runtime::find(&Places::here(named), threads.max(1))?;
        Ok(Self { engine: Engine::new(runtime, DeviceKind::Cpu) })
    }

    /// Loads a model as a CPU device does. Runs have as many rows as the pool's, and options for GPUs are left
    /// out. The error is a sentence.
    pub(super) fn load(&self, plan: &ModelPlan) -> Result<ModelInfo, String> {
        let options = ModelOptions {
            contexts: 1.into(),
            device_bytes: None,
            cpu_ops: Default::default(),
            providers: Vec::new(),
            ..plan.options.clone()
        };
        let loaded = self.engine.load(&plan.name, &plan.path, &options);
        loaded.map_err(|error| Chain(&error).to_string())
    }

    /// Unloads it.
    pub(super) fn unload(&self, name: &str) {
        self.engine.unload(name);
    }

    /// Its outputs for these inputs. The error is a sentence.
    pub(super) fn ask(
        &self,
        model: &str,
        inputs: &[(Tensor, Vec<u8>)],
    ) -> Result<Vec<(Tensor, Vec<u8>)>, String> {
        let text = |error: &dyn std::error::Error| Chain(error).to_string();
        let tensors = inputs.iter().map(|(tensor, _)| tensor.clone()).collect();
        let layout = TensorLayout::new(tensors).map_err(|error| text(&error))?;
        let data: Vec<&[u8]> = inputs.iter().map(|(_, data)| data.as_slice()).collect();
        let packed = layout.pack(&data).map_err(|error| text(&error))?;
        let (sender, answers) = mpsc::channel();
        let request = Request {
            model: model.to_owned(),
            client: 0,
            priority: Priority::Normal,
            inputs: Source::Inline(packed.into()),
            outputs: Destination::Answer,
            deadline: None,
            // The receiver may be gone.
            done: Box::new(move |answer| drop(sender.send(answer))),
        };
        self.engine.submit(request).map_err(|error| text(&error))?;
        let answer = answers.recv().map_err(|_| "the engine has not answered".to_owned())?;
        let bytes = match answer.map_err(|error| text(&error))?.outputs {
            Placed::Inline(bytes) => bytes,
            Placed::InArena(_) => unreachable!("it named no arena"),
        };
        let outputs = TensorOutputs::new(bytes).map_err(|error| text(&error))?;
        let data = (0..).map(|at| outputs.data(at));
        Ok(outputs.tensors().iter().cloned().zip(data).collect())
    }
}
