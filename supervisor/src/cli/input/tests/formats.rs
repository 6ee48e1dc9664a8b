//! Tests of unusual encodings, JSON lines, and formats that gridpool does not read.

use super::*;

/// A zip with these names in its list.
fn zip(names: &[&str]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for name in names {
        zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn a_byte_order_mark_of_utf8_is_skipped_and_utf16_is_refused_with_the_command_that_converts_it() {
    let marked = [b"\xef\xbb\xbf", &b"[[[1, 2]]]"[..]].concat();
    assert_eq!(piped(&marked).unwrap()[0].body, Body::Grids(vec![grid(&[[1, 2]])]));
    let wide = |bytes: fn(u16) -> [u8; 2], mark: &str| -> Vec<u8> {
        format!("{mark}[[[1]]]").encode_utf16().flat_map(bytes).collect()
    };
    for mark in ["\u{feff}", ""] {
        for text in [wide(u16::to_le_bytes, mark), wide(u16::to_be_bytes, mark)] {
            assert!(
                refusal(&text).contains("it is UTF-16, and JSON is UTF-8: convert it with `iconv")
            );
        }
    }
}

#[test]
fn other_formats_are_refused_by_name_with_the_command_that_converts_them() {
    let cases = [
        (
            zip(&["x.npy"]),
            "this .npz holds `x`; a program takes one array: save it as an .npy with",
        ),
        (
            zip(&["x.npy", "y.npy"]),
            "`x`, `y`; a program takes one array: save it as an .npy with numpy.save('x.npy', ",
        ),
        (zip(&["x.npy", "a.txt"]), "it is a zip archive: unpack it"),
        (b"PK\x05\x06".to_vec(), "it is a zip archive"),
        (b"\x1f\x8b\x08".to_vec(), "compressed with gzip: unpack it first, `zcat FILE |"),
        (b"\x28\xb5\x2f\xfd".to_vec(), "`zstdcat FILE |"),
        (
            npy("'|O'", "False", "(2,)", b"a pickle"),
            "Python objects, which NumPy uses for grids of several",
        ),
    ];
    for (bytes, words) in cases {
        let said = refusal(&bytes);
        assert!(said.contains(words), "`{words}` is not in: {said}");
    }
}

#[test]
fn json_lines_are_a_list_of_their_grids_or_pairs() {
    let lines = b"[[1, 2]]\n\n[[3], [4]]\r\n";
    let want = Body::Grids(vec![grid(&[[1, 2]]), grid(&[[3], [4]])]);
    assert_eq!(piped(lines).unwrap()[0].body, want);
    let pairs = b"{\"input\": [[1]]}\n{\"input\": [[2]], \"output\": [[3]]}";
    let Body::Pairs(pairs) = &piped(pairs).unwrap()[0].body else { panic!("they are pairs") };
    assert_eq!(pairs[1].output, Some(grid(&[[3]])));
    let cases: [(&[u8], &str); 5] = [
        (b"[[1]]\n[[2, 10]]", "grid 1, row 0, column 1: 10 is not a colour"),
        (b"[[1]]\n\n[[2]", "line 3, column 4: not JSON: EOF while parsing a list"),
        (b"[[1]]\n[[2]] x", "line 2, column 7: not JSON: trailing characters"),
        (b"[[1]]\n{\"input\": [[1]]}", "pair 1: this is a pair in a list of grids"),
        (
            b"{\"train\": [{\"input\": [[1]]}]}\n{\"train\": []}",
            "each line is a task; JSON lines hold",
        ),
    ];
    for (bytes, words) in cases {
        let said = refusal(bytes);
        assert!(said.contains(words), "`{words}` is not in: {said}");
    }
    // One document may have several lines.
    assert!(refusal(b"[[1, 2],\n[3, 4]]").contains("this is one grid, not a list"));
}
