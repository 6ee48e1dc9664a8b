//! `gridpool infer --output`: the file at the path is written to and not replaced.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

/// What an `.npz` begins with.
const ZIP: &[u8] = b"PK\x03\x04";

fn infer_to(pool: &Pool, output: impl AsRef<Path>) -> Cli {
    pool.infer("two_inputs", "two_inputs.npz").arg("--output").arg(output.as_ref())
}

fn is_npz(path: &Path) -> bool {
    fs::read(path).expect("it is there").starts_with(ZIP)
}

#[test]
fn the_file_at_the_path_is_written_to_and_not_replaced() {
    let Some(pool) = pool(&["two_inputs"]) else { return };
    let file = pool.folder().join("private.npz");
    fs::write(&file, "old").expect("a file can be written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("a mode can be set");
    let link = pool.folder().join("link.npz");
    symlink("private.npz", &link).expect("a link can be made");
    infer_to(&pool, &link).run().output();
    assert!(link.is_symlink() && is_npz(&file));
    assert_eq!(file.metadata().expect("it is there").mode() & 0o777, 0o640);

    let fifo = pool.folder().join("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).expect("a FIFO can be made");
    let call = infer_to(&pool, &fifo).start();
    let read = fs::read(&fifo).expect("the other end is written to");
    call.finish().output();
    assert!(read.starts_with(ZIP) && !fifo.is_file());

    // A link to it, so that code that replaces what it finds replaces the link and no device.
    let full = pool.folder().join("full");
    symlink("/dev/full", &full).expect("a link can be made");
    infer_to(&pool, &full)
        .run()
        .complains(74, &["--output", "/full: writing failed", "No space left"]);
    assert!(full.is_symlink());

    let nowhere = pool.folder().join("nowhere/out.npz");
    infer_to(&pool, nowhere).run().complains(2, &["--output", "/nowhere: make it first"]);
}

#[test]
fn the_end_of_the_name_tells_the_format() {
    let Some(pool) = pool(&["two_inputs"]) else { return };
    let at = |name: &str| pool.folder().join(name);
    for arguments in [&[][..], &["--json"]] {
        infer_to(&pool, at("out.json")).args(arguments).run().output();
        let document = fs::read(at("out.json")).expect("it was written");
        let document: Value = serde_json::from_slice(&document).expect("JSON");
        assert_eq!(document["outputs"][1]["data"], json!([11.5, 23.5]));
        assert_eq!(document["receipt"]["verdict"], "OK");
    }
    let one = ["out.npy: the model gives 2 outputs, and an .npy holds one: write .npz or .json"];
    infer_to(&pool, at("out.npy")).run().complains(2, &one);
    for name in ["out.arrow", "out.jsonl", "out.JSON", "out.txt"] {
        let known = [name, "write .npz, .npy (of one output) or .json"];
        infer_to(&pool, at(name)).run().complains(2, &known);
        assert!(!at(name).exists());
    }
}

#[test]
fn a_dash_is_standard_output_and_the_report_goes_to_standard_error() {
    let Some(pool) = pool(&["two_inputs"]) else { return };
    for name in ["-", "/dev/stdout"] {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let (code, bytes, said) = infer_to(&pool, name).current_dir(folder.path()).bytes();
        assert_eq!(code, Some(0), "{said}");
        assert!(bytes.starts_with(ZIP), "{said}");
        assert!(said.contains("largest FP32 [2]: 11.5 23.5\ntwo_inputs: OK in "), "{said}");
        assert!(fs::read_dir(folder.path()).expect("a folder").next().is_none(), "no file `-`");
        let both = infer_to(&pool, name).arg("--json").run();
        both.complains(2, &["--json writes to standard output already: name a file"]);
    }
}
