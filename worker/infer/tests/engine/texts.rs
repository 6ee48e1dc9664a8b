//! Models with BYTES tensors, and with numbers of 16 and of 4 bits.

use gridpool_infer::{InferError, LoadError, ModelOptions, Request, RunError, Source};
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::limits::BYTES_ELEMENT_MAX;
use gridpool_protocol::tensor::{DataType, Texts, TextsError, put_text};

use crate::harness::{ask, close, engine, load, outputs, submit, submit_with};
use crate::tensors::{Full, device, fp32, full, int64, irregular, model, pack};

/// A BYTES tensor.
fn texts(name: &str, shape: &[u64], texts: &[&[u8]]) -> Full {
    let mut data = Vec::new();
    for (element, text) in texts.iter().enumerate() {
        put_text(text, element, &mut data).expect("they are short");
    }
    full(name, DataType::Bytes, shape, &data)
}

/// On a GPU device text lies on the CPU, so every op of it must be allowed.
fn on_cpu(ops: &[&str]) -> ModelOptions {
    let cpu_ops = ops.iter().map(|&op| op.to_owned()).collect();
    ModelOptions { cpu_ops, ..ModelOptions::default() }
}

#[test]
fn texts_of_any_bytes_go_through_a_model() {
    let Some(engine) = engine() else { return };
    let info = load(&engine, "strings", &on_cpu(&["Identity"]));
    assert_eq!((info.inputs[0].datatype, info.max_batch), (DataType::Bytes, 1));
    let long = vec![b'x'; BYTES_ELEMENT_MAX];
    let all: [&[u8]; 5] = [b"", b"a\0b\0", "äöü €".as_bytes(), &[0xff, 0xfe], &long];
    let got = ask(&engine, "strings", &[texts("text", &[5], &all)]);
    assert_eq!(got, [texts("same", &[5], &all)]);
    let none = ask(&engine, "strings", &[texts("text", &[0], &[])]);
    assert_eq!(none, [texts("same", &[0], &[])]);
    // A shorter tensor after a longer one, and the other way round.
    for some in [&all[..1], &all[..3], &all[..2]] {
        let shape = [some.len() as u64];
        let got = ask(&engine, "strings", &[texts("text", &shape, some)]);
        assert_eq!(got, [texts("same", &shape, some)]);
    }
}

#[test]
fn an_op_of_text_computes_and_gives_numbers_beside_it() {
    let Some(engine) = engine() else { return };
    load(&engine, "words", &on_cpu(&["StringConcat", "Shape"]));
    let got =
        ask(&engine, "words", &[texts("text", &[2, 2], &[b"one", b"", "drü".as_bytes(), b"!"])]);
    let want = texts("marked", &[2, 2], &[b"one!", b"!", "drü!".as_bytes(), b"!!"]);
    assert_eq!(got, [want, int64("count", &[2], &[2, 2])]);
}

#[test]
fn data_that_is_not_the_elements_is_refused_and_the_model_works_on() {
    let Some(engine) = engine() else { return };
    load(&engine, "strings", &on_cpu(&["Identity"]));
    let good = texts("text", &[2], &[b"one", b"two"]);
    let mut packed = pack(std::slice::from_ref(&good));
    // The length of the first element.
    let at = packed.len() - good.bytes.len();
    packed[at] = 200;
    let broken = |request| Request { inputs: Source::Inline(packed.into()), ..request };
    let waiter = submit_with(&engine, "strings", &[], broken).unwrap();
    let why = TextsError::Cut { element: 0 };
    let want = InferError::Run(RunError::Input { name: "text".to_owned(), why });
    assert_eq!(waiter.wait().unwrap_err(), want);
    assert_eq!(ask(&engine, "strings", std::slice::from_ref(&good))[0].bytes, good.bytes);
}

#[test]
fn models_of_text_are_not_joined_and_need_their_ops_allowed_on_a_gpu() {
    let Some(engine) = engine() else { return };
    let joined = ModelOptions { max_batch: Some(4), ..on_cpu(&["Identity"]) };
    let error = engine.load("strings", &model("strings"), &joined).unwrap_err();
    assert!(matches!(error, LoadError::Rows { .. }), "{error}");
    assert!(error.to_string().contains("or one is BYTES; set max_batch = 1"), "{error}");
    if device() == DeviceKind::Gpu {
        let error = engine.load("strings", &model("strings"), &on_cpu(&[])).unwrap_err();
        assert!(matches!(error, LoadError::Placement(_)), "{error}");
    }
}

#[test]
fn many_texts_are_read_back_one_by_one() {
    let Some(engine) = engine() else { return };
    load(&engine, "strings", &on_cpu(&["Identity"]));
    let numbers: Vec<String> = (0..10_000).map(|number: u32| number.to_string()).collect();
    let numbers: Vec<&[u8]> = numbers.iter().map(String::as_bytes).collect();
    let input = texts("text", &[10_000], &numbers);
    let answer = submit(&engine, "strings", &[input]).unwrap().wait().unwrap();
    let got = outputs(&answer);
    let got: Vec<_> = Texts::new(&got[0].bytes, 10_000).collect::<Result<_, _>>().unwrap();
    assert_eq!(got, numbers);
    let bytes = numbers.iter().map(|text| 4 + text.len() as u64).sum::<u64>();
    assert_eq!((answer.report.h2d_bytes, answer.report.d2h_bytes), (bytes, bytes));
}

#[test]
fn numbers_of_16_bits_are_computed_with_and_joined() {
    let Some(engine) = engine() else { return };
    let info = load(&engine, "halves", &ModelOptions::default());
    assert_eq!(info.max_batch, 32);
    let half = |datatype: DataType, numbers: &[f32]| {
        let mut bytes = Vec::new();
        for &number in numbers {
            let number = gridpool_protocol::tensor::Scalar::Single(number);
            assert!(datatype.write(number, &mut bytes));
        }
        bytes
    };
    #[expect(clippy::cast_possible_truncation, reason = "they were numbers of 16 bits")]
    let numbers = |tensor: &Full| {
        let numbers = gridpool_protocol::tensor::numbers(tensor.datatype, &tensor.bytes);
        numbers.expect("floats").into_iter().map(|n| n as f32).collect::<Vec<_>>()
    };
    let w: Vec<f32> =
        (0..16_u32).map(|at| ((at * 7_919 + 104_729) % 1_009) as f32 / 1_009.0 - 0.5).collect();
    for rows in [1, 3, 40] {
        let x = irregular(rows, 4 * usize::try_from(rows).unwrap());
        let input = |name, datatype| full(name, datatype, &[rows, 4], &half(datatype, &x));
        let got =
            ask(&engine, "halves", &[input("x16", DataType::Fp16), input("xb", DataType::Bf16)]);
        let product = x.chunks(4).flat_map(|row| {
            let w = &w;
            (0..4).map(move |column| (0..4).map(|at| row[at] * w[4 * at + column]).sum::<f32>())
        });
        let product: Vec<f32> = product.collect();
        let relu: Vec<f32> = product.iter().map(|number| number.max(0.0)).collect();
        close(&numbers(&got[0]), &relu, 2e-3);
        close(&numbers(&got[1]), &product, 2e-2);
    }
}

#[test]
fn numbers_of_4_bits_serve_as_weights() {
    let Some(engine) = engine() else { return };
    load(&engine, "four_bit_weights", &ModelOptions::default());
    let got = ask(&engine, "four_bit_weights", &[fp32("x", &[1, 4], &[1.0, 2.0, 3.0, 4.0])]);
    assert_eq!(got[0], fp32("by_signed", &[1, 4], &[-4.0, -1.0, 4.5, 14.0]));
    assert_eq!(got[1], fp32("by_unsigned", &[1, 4], &[0.0, 1.0, 12.0, 30.0]));
}
