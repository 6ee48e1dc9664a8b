//! Tensor data is converted to bytes and back.

use gridpool_protocol::limits::BYTES_ELEMENT_MAX;

use super::*;

fn tensor(datatype: DataType, shape: &[u64]) -> Tensor {
    Tensor::new("x", datatype, shape.to_vec()).unwrap()
}

/// Parses JSON and writes it again.
fn there_and_back(datatype: DataType, shape: &[u64], json: &str) -> Result<String, String> {
    let tensor = tensor(datatype, shape);
    let data = parse(json, &tensor).map_err(|error| error.to_string())?;
    let tensor = tensor.with_data(&data).unwrap();
    Ok(serde_json::to_string(&Flat(&OutputTensor::private(tensor, data))).unwrap())
}

#[test]
fn integers_are_exact_to_their_last_digit_or_refused() {
    let cases = [
        (DataType::Uint8, "0", "255", "256", "-1"),
        (DataType::Int8, "-128", "127", "128", "-129"),
        (DataType::Uint16, "0", "65535", "65536", "-1"),
        (DataType::Int16, "-32768", "32767", "32768", "-32769"),
        (DataType::Uint32, "0", "4294967295", "4294967296", "-1"),
        (DataType::Int32, "-2147483648", "2147483647", "2147483648", "-2147483649"),
        (
            DataType::Uint64,
            "9007199254740993",
            "18446744073709551615",
            "18446744073709551616",
            "-1",
        ),
        (
            DataType::Int64,
            "-9223372036854775808",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775809",
        ),
    ];
    for (datatype, low, high, above, below) in cases {
        let json = format!("[{low},{high}]");
        assert_eq!(there_and_back(datatype, &[2], &json).as_ref(), Ok(&json), "{datatype}");
        for wrong in [above, below, "1.0", "1e2", "true"] {
            let error = there_and_back(datatype, &[2], &format!("[1,{wrong}]")).unwrap_err();
            assert!(error.contains("element 1 is "), "{datatype} {wrong}: {error}");
            assert!(error.contains(&format!("which is not a {datatype}")), "{error}");
        }
    }
}

#[test]
fn texts_are_strings_in_json_or_refused() {
    let take = |json: &str| there_and_back(DataType::Bytes, &[2, 2], json);
    let flat = r#"["one","","ä\"\n","\u0000"]"#;
    assert_eq!(take(flat).as_deref(), Ok(flat));
    assert_eq!(take(r#"[["one",""],["ä\"\n","\u0000"]]"#).as_deref(), Ok(flat));
    let wrong = |json: &str, why: &str| {
        let error = take(json).unwrap_err();
        assert!(error.contains(why), "{json}: {error}");
    };
    wrong(r#"["a", "b", "c"]"#, "it has 3 elements, but its shape says 4");
    wrong(r#"["a", "b", "c", "d", "e"]"#, "it has more than 4 elements");
    wrong(r#"["a", 1, "c", "d"]"#, "element 1 is 1; an element of BYTES is a text in quotes");
    let long = format!("[\"{}\"]", "x".repeat(BYTES_ELEMENT_MAX + 1));
    wrong(&long, "element 0 has 1048577 bytes; an element of BYTES has at most 1048576");
    let data = [2, 0, 0, 0, 0xff, 0xfe];
    let bytes = tensor(DataType::Bytes, &[1]).with_data(&data).unwrap();
    let output = OutputTensor::private(bytes, data.to_vec());
    let error = serde_json::to_string(&Flat(&output)).unwrap_err().to_string();
    assert!(error.contains("bytes that are not UTF-8, which JSON cannot express"), "{error}");
}

#[test]
fn data_is_flat_or_nested_exactly_as_the_shape_says() {
    let take = |json: &str| there_and_back(DataType::Uint8, &[2, 3], json);
    let flat = Ok("[1,2,3,4,5,6]".to_owned());
    assert_eq!(take("[1,2,3,4,5,6]"), flat);
    assert_eq!(take("[[1,2,3],[4,5,6]]"), flat);
    let refused = [
        ("[[1,2],[3,4],[5,6]]", "a list of dimension 1 has 2 entries, the shape says 3"),
        ("[[1,2,3]]", "a list of dimension 0 has 1 entries, the shape says 2"),
        ("[[[1,2,3],[4,5,6]]]", "it is nested deeper than its 2 dimensions"),
        ("[1,2,3,[4,5,6]]", "put the elements in one flat list, or in lists nested 2 deep"),
        ("[[1,2,3],4,5,6]", "put the elements in one flat list, or in lists nested 2 deep"),
        ("[1,2,3,4,5]", "it has 5 elements, but its shape says 6"),
        ("[1,2,3,4,5,6,7]", "it has more than 6 elements"),
        ("7", "put the elements in one flat list"),
        ("[1,2,3,4,5,\"6\"]", "element 5 is a text, which is not a"),
        ("[1,2,3,4,5,null]", "invalid type: null, expected a list of elements"),
    ];
    for (json, want) in refused {
        let error = take(json).expect_err(json);
        assert!(error.contains(want), "{json}: {error}");
    }
    assert_eq!(there_and_back(DataType::Int32, &[], "[7]"), Ok("[7]".to_owned()));
    assert_eq!(there_and_back(DataType::Int32, &[0, 3], "[]"), Ok("[]".to_owned()));
    assert!(there_and_back(DataType::Uint8, &[2], &"[".repeat(100_000)).is_err());
}

#[test]
fn other_types_are_exact_or_refused_with_a_sentence() {
    let fp32 = there_and_back(DataType::Fp32, &[3], "[0.5,-1,3]");
    assert_eq!(fp32, Ok("[0.5,-1.0,3.0]".to_owned()));
    assert!(there_and_back(DataType::Fp32, &[1], "[1e39]").is_err(), "it does not fit 32 bits");
    let fp64 = there_and_back(DataType::Fp64, &[2], "[0.1,5.0216813883093451685e-66]");
    assert_eq!(fp64, Ok("[0.1,5.021681388309345e-66]".to_owned()), "to the last bit");
    let flags = there_and_back(DataType::Bool, &[2], "[true,false]");
    assert_eq!(flags, Ok("[true,false]".to_owned()));
    assert!(there_and_back(DataType::Bool, &[1], "[1]").is_err());
    for datatype in [DataType::Fp16, DataType::Bf16] {
        let error = there_and_back(datatype, &[1], "[1.0]").unwrap_err();
        assert!(error.contains("is sent as binary data only"), "{error}");
    }
}

#[test]
fn a_number_that_json_cannot_express_is_refused_with_the_name_of_its_tensor() {
    let text = |datatype, data: Vec<u8>| {
        let tensor = Tensor::new("logits", datatype, vec![2]).unwrap();
        serde_json::to_string(&Flat(&OutputTensor::private(tensor, data)))
            .map_err(|e| e.to_string())
    };
    let singles = |numbers: [f32; 2]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    assert_eq!(text(DataType::Fp32, singles([0.5, -1.0])), Ok("[0.5,-1.0]".to_owned()));
    let cases = [
        (text(DataType::Fp32, singles([1.0, f32::NAN])), "NaN"),
        (text(DataType::Fp32, singles([f32::NEG_INFINITY, 1.0])), "-inf"),
        (text(DataType::Fp64, [1.0_f64, f64::INFINITY].map(f64::to_le_bytes).concat()), "inf"),
        (text(DataType::Fp16, vec![0; 4]), "numbers of 16 bits"),
    ];
    for (said, what) in cases {
        let error = said.unwrap_err();
        assert!(error.starts_with("output `logits` (FP"), "{error}");
        assert!(error.contains(&format!(") contains {what}, which")), "{error}");
        assert!(error.contains("ask for it with binary_data"), "{error}");
    }
}
