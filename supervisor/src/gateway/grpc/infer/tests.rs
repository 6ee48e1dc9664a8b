//! Requests and answers as messages.

use gridpool_client::Principal;
use gridpool_inference::ModelStreamInferResponse;
use gridpool_protocol::receipt::Receipt;
use serde_json::json;

use super::*;
use crate::gateway::body::BodyBudget;
use crate::gateway::reply;

fn input(name: &str, datatype: &str, shape: &[i64], contents: TensorContents) -> InferInputTensor {
    InferInputTensor {
        name: name.to_owned(),
        datatype: datatype.to_owned(),
        shape: shape.to_vec(),
        contents: Some(contents),
        ..InferInputTensor::default()
    }
}

fn call(request: ModelInferRequest) -> InferCall {
    InferCall { request, until: None, is_of_stream: false, is_packed: false }
}

/// The data of the only input of this type with these contents, or why there is none.
fn data(datatype: &str, contents: TensorContents) -> Result<Vec<u8>, String> {
    let inputs = vec![input("x", datatype, &[2], contents)];
    let call = call(ModelInferRequest { inputs, ..ModelInferRequest::default() });
    let read = call.read(&mut Memory::none());
    read.map(|request| request.inputs[0].data.to_vec())
        .map_err(|failure| failure.message().to_owned())
}

#[test]
fn typed_contents_become_the_bytes_of_their_type() {
    let none = TensorContents::default;
    let ints =
        |int_contents: &[i32]| TensorContents { int_contents: int_contents.into(), ..none() };
    assert_eq!(data("INT8", ints(&[-1, 2])), Ok(vec![255, 2]));
    assert_eq!(data("INT16", ints(&[-1, 2])), Ok(vec![255, 255, 2, 0]));
    let uints = TensorContents { uint_contents: vec![7, 255], ..none() };
    assert_eq!(data("UINT8", uints), Ok(vec![7, 255]));
    let flags = TensorContents { bool_contents: vec![true, false], ..none() };
    assert_eq!(data("BOOL", flags), Ok(vec![1, 0]));
    let floats = TensorContents { fp32_contents: vec![0.5, f32::NAN], ..none() };
    assert_eq!(data("FP32", floats).unwrap()[..4], 0.5_f32.to_le_bytes());
    let longs = TensorContents { int64_contents: vec![i64::MIN, 1], ..none() };
    assert_eq!(data("INT64", longs).unwrap()[..8], i64::MIN.to_le_bytes());
    for (datatype, contents, why) in [
        ("INT8", ints(&[300, 1]), "input `x`: element 0 is 300, which is not a INT8"),
        ("INT8", ints(&[1]), "int_contents has 1 elements, but its shape says 2"),
        ("INT64", ints(&[1, 2]), "it has int_contents; INT64 is sent in int64_contents"),
        ("FP16", ints(&[1, 2]), "FP16 is sent in raw_input_contents only"),
        ("BYTES", ints(&[1, 2]), "BYTES"),
    ] {
        let said = data(datatype, contents).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn raw_contents_are_of_the_inputs_in_their_order() {
    let inputs = || {
        let of = |name| InferInputTensor {
            contents: None,
            ..input(name, "UINT8", &[2], TensorContents::default())
        };
        vec![of("x"), of("y")]
    };
    let with = |raw: &[&'static [u8]]| {
        let raw_input_contents = raw.iter().map(|bytes| Bytes::from_static(bytes)).collect();
        call(ModelInferRequest {
            inputs: inputs(),
            raw_input_contents,
            ..ModelInferRequest::default()
        })
    };
    let good = with(&[b"ab", b"cd"]);
    let request = good.read(&mut Memory::none()).unwrap();
    assert_eq!((&*request.inputs[0].data, &*request.inputs[1].data), (&b"ab"[..], &b"cd"[..]));
    assert!(matches!(request.inputs[0].data, Cow::Borrowed(_)), "nothing is copied");
    for (raw, why) in [
        (with(&[b"ab"]), "raw_input_contents has 1 entries for 2 inputs"),
        (with(&[b"ab", b"c"]), "input `y`: its entry of raw_input_contents has 1 bytes; its shape"),
        (with(&[]), "input `x`: it has neither contents nor raw_input_contents"),
    ] {
        let failure = raw.read(&mut Memory::none()).unwrap_err();
        assert!(failure.message().contains(why), "{failure:?}");
    }
}

#[test]
fn a_deadline_is_the_earlier_of_the_parameter_and_of_the_call() {
    let timeout = |micros: i64| [("timeout".to_owned(), Choice::Int64(micros).into())].into();
    let read = |micros, until| {
        let request =
            ModelInferRequest { parameters: timeout(micros), ..ModelInferRequest::default() };
        let call = InferCall { request, until, is_of_stream: false, is_packed: false };
        call.read(&mut Memory::none()).map(|request| request.deadline)
    };
    let second = std::time::Duration::from_secs(1);
    assert_eq!(read(2_000_000, None).unwrap(), Some(2 * second));
    let soon = read(2_000_000, Some(clock::now() + second)).unwrap().unwrap();
    assert!(soon <= second, "{soon:?}");
    let capped = read(0, Some(clock::now() + DEADLINE_MAX * 4)).unwrap().unwrap();
    assert_eq!(capped, DEADLINE_MAX, "clients may wait for longer than a job may take");
    let failure = read(0, Some(clock::now())).unwrap_err();
    assert_eq!(failure.code(), tonic::Code::DeadlineExceeded);
}

#[test]
fn an_answer_is_a_frame_with_a_message_that_has_the_data_behind() {
    let tensor = Tensor::new("y", DataType::Uint8, vec![3]).unwrap();
    let outputs = vec![OutputTensor::private(tensor, b"abc".to_vec())];
    let mut parameters = reply::proof(&Receipt::default()).unwrap();
    parameters.push(("more", json!(0.5)));
    let reply = Reply {
        model: "m".to_owned(),
        version: "1".into(),
        id: Some("7".to_owned()),
        parameters,
        outputs,
    };
    let wanted = WantedOutputs::Some(vec![("y".to_owned(), Delivery::Bytes)]);
    let budget = BodyBudget::new();
    let write = |is_of_stream| {
        let held = budget.held(&Principal::Uid(1));
        let form = Form { is_of_stream, says_final: is_of_stream, is_packed: false };
        InferCall::write(form, &reply, &wanted, held).unwrap()
    };
    let check = |response: &ModelInferResponse| {
        assert_eq!((&*response.model_name, &*response.id), ("m", "7"));
        assert_eq!(response.raw_output_contents, [Bytes::from_static(b"abc")]);
        assert_eq!(response.outputs[0].shape, [3]);
        assert_eq!(response.parameters["attempts"], Choice::Int64(0).into());
        assert_eq!(response.parameters["more"], Choice::Double(0.5).into());
    };
    let one = write(false);
    assert_eq!(
        one[..5],
        [&[0][..], &(u32::try_from(one.len()).unwrap() - 5).to_be_bytes()].concat()
    );
    check(&ModelInferResponse::decode(one.slice(5..)).unwrap());
    assert!(budget.bytes() >= one.len(), "it holds memory until it is sent");
    drop(one);
    assert_eq!(budget.bytes(), 0);
    let of_stream = ModelStreamInferResponse::decode(write(true).slice(5..)).unwrap();
    let response = of_stream.infer_response.unwrap();
    check(&response);
    assert_eq!(response.parameters[IS_FINAL], Choice::Bool(true).into());
}
