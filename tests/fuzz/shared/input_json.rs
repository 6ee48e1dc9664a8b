//! JSON on standard input.

use super::inputs::input;

pub(crate) fn run(bytes: &[u8]) {
    input(bytes);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "[[[0, 1], [2, 3]], [[9]]]",
        r#"{"train": [{"input": [[1]], "output": [[2, 2]]}], "test": [{"input": [[3]]}]}"#,
        r#"{"a": {"train": [], "test": [{"input": [[1]]}]}, "b": {"train": [], "test": []}}"#,
        r#"[{"input": [[1]], "output": [[2]]}, {"input": [[4, 5]]}]"#,
        "[[[1, 2], [3]]]",
        r#"[[[1.5, "a", null, true, -1, 1e9, {}]]]"#,
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}
