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
        (zip(&["x.npy"]), "not a .npy array: it does not begin with"),
        (
            zip(&["x.npy", "y.npy"]),
            "this .npz holds `x`, `y`; a program takes the arrays `cells` and `sizes`, or one array: save that \
             alone, numpy.save('x.npy', numpy.load(FILE)['x'])",
        ),
        (zip(&["x.npy", "a.txt"]), "it is a zip archive: unpack it"),
        (b"PK\x05\x06".to_vec(), "the archive is damaged or cut off"),
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

/// An `.npz` with these arrays.
fn npz(arrays: &[(&str, Vec<u8>)]) -> Vec<u8> {
    use std::io::Write;
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in arrays {
        zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn int64(shape: &str, values: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    npy("'<i8'", "False", shape, &bytes)
}

#[test]
fn an_npz_that_is_cut_off_is_called_that() {
    let whole = npz(&[
        ("cells.npy", int64("(4,)", &[1, 2, 3, 4])),
        ("sizes.npy", int64("(1, 2)", &[2, 2])),
    ]);
    for length in [4, whole.len() / 2, whole.len() - 1] {
        let refusal = refusal(&whole[..length]);
        assert!(refusal.contains("the archive is damaged or cut off ("), "{length}: {refusal}");
    }
}

#[test]
fn arrays_of_every_integer_type_are_read_if_their_values_are_colours() {
    let want = Body::Grids(vec![grid(&[[1, 2], [3, 9]])]);
    let values = [1_i64, 2, 3, 9];
    let bytes = |width: usize, big: bool| -> Vec<u8> {
        let halves = values.iter().flat_map(|value| match big {
            false => value.to_le_bytes()[..width].to_vec(),
            true => value.to_be_bytes()[8 - width..].to_vec(),
        });
        halves.collect()
    };
    for kind in ["u", "i"] {
        for width in [1, 2, 4, 8] {
            for (order, is_big) in [("<", false), (">", true), ("=", false)] {
                let descr = format!("'{order}{kind}{width}'");
                let array = npy(&descr, "False", "(2, 2)", &bytes(width, is_big));
                assert_eq!(piped(&array).unwrap()[0].body, want, "{descr}");
            }
        }
    }
    let cases = [
        (int64("(1, 1, 2)", &[3, -1]), "grid 0, row 0, column 1: -1 is not a colour from 0 to 9"),
        (int64("(1, 2, 1)", &[3, 1 << 40]), "row 1, column 0: 1099511627776 is not a colour"),
        (npy("'|i1'", "False", "(1, 2)", &[3, 255]), "grid 0, row 0, column 1: -1 is not a colour"),
        (npy("'<u8'", "False", "(1, 1)", &[255; 8]), "18446744073709551615 is not a colour"),
        (
            npy("'<f4'", "False", "(1, 1)", &[0; 4]),
            "its cells are float32; gridpool reads integers",
        ),
    ];
    for (bytes, words) in cases {
        let said = refusal(&bytes);
        assert!(said.contains(words), "`{words}` is not in: {said}");
    }
}

#[test]
fn an_npz_holds_cells_and_sizes_of_grids_or_pairs_or_one_array() {
    let cells = int64("(7,)", &[1, 2, 3, 4, 5, 6, 7]);
    let ragged = npz(&[
        ("cells.npy", cells.clone()),
        ("sizes.npy", int64("(2, 2)", &[2, 3, 1, 1])),
        ("more.npy", b"not read".to_vec()),
    ]);
    let want = vec![grid(&[[1, 2, 3], [4, 5, 6]]), grid(&[[7]])];
    assert_eq!(piped(&ragged).unwrap()[0].body, Body::Grids(want));
    let sizes = int64("(2, 2, 2)", &[2, 3, 1, 1, 0, 0, 0, 0]);
    let said = refusal(&npz(&[("cells.npy", cells.clone()), ("sizes.npy", sizes)]));
    assert!(said.starts_with("pair 1, input: the grid is empty"), "{said}");
    let sizes = int64("(2, 2, 2)", &[1, 3, 1, 2, 2, 1, 0, 0]);
    let pairs = piped(&npz(&[("cells.npy", cells.clone()), ("sizes.npy", sizes.clone())])).unwrap();
    let pair = |input, output| Pair { input, output };
    let want = vec![pair(grid(&[[1, 2, 3]]), Some(grid(&[[4, 5]]))), pair(grid(&[[6], [7]]), None)];
    assert_eq!(pairs[0].body, Body::Pairs(want));
    let only = piped(&npz(&[("arr_0.npy", uint8("(1, 1, 2)", &[1, 2]))])).unwrap();
    assert_eq!(only[0].body, Body::Grids(vec![grid(&[[1, 2]])]));

    let with = |cells: Vec<u8>, sizes: Vec<u8>| npz(&[("cells.npy", cells), ("sizes.npy", sizes)]);
    let bad = int64("(7,)", &[0, 0, 0, 0, 12, 0, 0]);
    let cases = [
        (
            with(cells.clone(), int64("(1, 2)", &[2, 3])),
            "`sizes` tells of 6 cells, and `cells` has 7",
        ),
        (with(cells.clone(), int64("(1, 2)", &[1 << 62, 8])), "cells, and `cells` has 7"),
        (
            with(cells.clone(), int64("(2,)", &[1, 7])),
            "`sizes` has the shape (2,): it has the rows",
        ),
        (with(cells.clone(), int64("(1, 2)", &[-1, 7])), "array `sizes` has a side of -1"),
        (with(cells.clone(), int64("(0, 2)", &[])), "it holds no grid"),
        (with(cells, npy("'<f8'", "False", "(1, 2)", &[0; 16])), "float64"),
        (with(bad.clone(), sizes), "pair 0, output, row 0, column 1: 12 is not a colour"),
        (with(bad, int64("(2, 2)", &[3, 1, 2, 2])), "grid 1, row 0, column 1: 12 is not a colour"),
    ];
    for (bytes, words) in cases {
        let said = refusal(&bytes);
        assert!(said.contains(words), "`{words}` is not in: {said}");
    }
    for end in 0..ragged.len() {
        assert!(piped(&ragged[..end]).is_err(), "{end}");
    }
}

#[test]
fn the_extension_of_a_file_is_held_to_its_content() {
    let folder = tempfile::tempdir().unwrap();
    for (name, words) in [
        ("x.npz", "not an .npz: it is no zip; write it with numpy.savez("),
        ("x.arrow", "it does not begin with ARROW1; write it without compression"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, "[[[1]]]").unwrap();
        let said = typed(&[&path]).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
}
