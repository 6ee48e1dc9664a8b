//! Runs a model: `model NAME` sends zeros of the shapes with which the worker warmed the model up.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;

use gridpool_client::{Client, Job, ModelInput, ModelState, Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::builder().connect()?;
    let name = std::env::args().nth(1).ok_or("give the name of a model")?;
    let rows = client.models()?.into_iter().map(|row| row.model);
    let mut ready = rows.filter(|model| model.name == name && model.state == ModelState::Ready);
    let model = ready.next().ok_or("no worker has this model ready")?;
    // If you know the types, write `ModelInput::new("x", [1, 16], vec![0.5_f32; 16])?`.
    let inputs = model.inputs.iter().zip(&model.warm_up_shapes).map(|(spec, shape)| {
        let tensor = Tensor::new(spec.name.clone(), spec.datatype, shape.clone())?;
        let zeros = vec![0; tensor.bytes()];
        ModelInput::from_bytes(tensor, zeros)
    });
    let job = Job::model(name, inputs.collect::<Result<Vec<_>, _>>()?)?;
    let outputs = client.run(job)?.ok()?;
    for tensor in outputs.tensors() {
        println!("{tensor}");
        if let Ok(values) = outputs.values::<f32>(tensor.name()) {
            println!("  {:?}", &values[..values.len().min(8)]);
        }
    }
    Ok(())
}
