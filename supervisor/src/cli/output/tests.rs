//! Tests with files of each kind.

use std::io::Read;
use std::os::unix::fs::{lchown, symlink};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

const FLAG: &str = "--output";
const OLD: &str = "the content before, which is longer";
const NEW: &str = "the content now";

fn open(path: &Path) -> Result<Output, OutputError> {
    Output::open(FLAG, path, false)
}

fn write_to(path: &Path) -> Result<(), OutputError> {
    open(path)?.write(|out| out.write_all(NEW.as_bytes()))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A folder with a file of that mode.
fn file(mode: u32) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    std::fs::write(&path, OLD).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    (folder, path)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string();
    let mut names: Vec<_> = entries.map(|entry| name(entry).unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_keeps_its_mode_and_a_new_file_obeys_the_umask() {
    let (folder, path) = file(0o640);
    write_to(&path).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
    assert_eq!((&*read(&path), mode(&path)), (NEW, 0o640));
    let (new, plain) = (folder.path().join("new"), folder.path().join("plain"));
    write_to(&new).unwrap();
    File::create(&plain).unwrap();
    assert_eq!((&*read(&new), mode(&new)), (NEW, mode(&plain)));
    assert_eq!(names(folder.path()), ["new", "out", "plain"]);
}

#[test]
fn a_file_is_unchanged_until_all_is_written() {
    let (folder, path) = file(0o600);
    let before = path.metadata().unwrap().ino();
    let output = open(&path).unwrap();
    let error = output.write(|out| {
        out.write_all(NEW.as_bytes())?;
        Err(io::ErrorKind::StorageFull.into())
    });
    let said = error.unwrap_err();
    assert!(said.to_string().ends_with("writing failed, and the file is unchanged"));
    assert_eq!((said.exit_code(), path.metadata().unwrap().ino()), (exit::OUTPUT, before));
    assert_eq!((&*read(&path), names(folder.path())), (OLD, vec!["out".to_owned()]));
}

#[test]
fn links_are_followed_and_stay() {
    let (folder, path) = file(0o600);
    let link = folder.path().join("link");
    symlink("out", &link).unwrap();
    write_to(&link).unwrap();
    assert!(link.is_symlink() && !path.is_symlink());
    assert_eq!(read(&path), NEW);

    let other = folder.path().join("other name");
    std::fs::hard_link(&path, &other).unwrap();
    std::fs::write(&path, OLD).unwrap();
    write_to(&other).unwrap();
    assert_eq!((&*read(&path), &*read(&other)), (NEW, NEW), "both are still one file");

    let dangling = folder.path().join("dangling");
    symlink("nothing", &dangling).unwrap();
    let said = write_to(&dangling).unwrap_err();
    assert_eq!(said.exit_code(), exit::USAGE);
    assert!(said.to_string().contains("/nothing, which does not exist: name that file"), "{said}");
    assert_eq!(names(folder.path()), ["dangling", "link", "other name", "out"]);
}

#[test]
fn a_fifo_and_a_device_are_written_to_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&fifo));
        write_to(&fifo).unwrap();
        assert_eq!(reader.join().unwrap(), NEW);
    });
    assert_eq!(names(folder.path()), ["fifo"]);
    // Through a link, so that wrong code would replace the link and not the device.
    let null = folder.path().join("null");
    symlink("/dev/null", &null).unwrap();
    write_to(&null).unwrap();
    assert!(null.is_symlink() && !null.is_file());
}

#[test]
fn an_incomplete_file_is_reported_as_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let full = folder.path().join("full");
    symlink("/dev/full", &full).unwrap();
    assert!(matches!(write_to(&full), Err(OutputError::Untouched { .. })));

    let fifo = folder.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    // More than a FIFO holds.
    let many = vec![7; 1 << 20];
    let error = std::thread::scope(|scope| {
        scope.spawn(|| File::open(&fifo).unwrap().read_exact(&mut [0; 9]).unwrap());
        open(&fifo).unwrap().write(|out| out.write_all(&many)).unwrap_err()
    });
    let said = error.to_string();
    assert!(said.contains(" of 1048576 bytes were written: the file is incomplete"), "{said}");
    assert!(!said.contains("only 0 of"), "{said}");
}

#[test]
fn a_path_that_cannot_be_written_is_an_error_before_the_work_begins() {
    let (folder, path) = file(0o600);
    let said = |path: &Path| {
        let error = open(path).unwrap_err();
        assert_eq!(error.exit_code(), exit::USAGE);
        error.to_string()
    };
    let missing = folder.path().join("none/out");
    assert!(
        said(&missing)
            .ends_with(&format!("no folder {}/none: make it first", folder.path().display()))
    );
    assert!(said(&folder.path().join("new/")).ends_with("new/: make it first"));
    assert!(said(folder.path()).ends_with("name a file that can be written"));
    assert!(said(&path.join("under")).ends_with("name a file that can be written"));
    for name in STDOUT {
        let error = Output::open(FLAG, Path::new(name), true).unwrap_err();
        assert!(error.to_string().contains("--json writes to standard output"), "{error}");
    }
    assert_eq!(read(&path), OLD);
}

#[test]
fn a_link_of_another_user_in_a_folder_of_everybody_is_not_followed() {
    const OTHER: u32 = 4_000_007;
    if !geteuid().is_root() {
        assert_eq!(std::env::var_os("GRIDPOOL_REQUIRE_ROOT"), None, "this is not root");
        return;
    }
    let (folder, path) = file(0o600);
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    lchown(&link, Some(OTHER), None).unwrap();
    let mode = |mode| {
        std::fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
    };
    mode(0o1777);
    let refused = write_to(&link).unwrap_err();
    assert!(matches!(refused, OutputError::OthersLink { owner: OTHER, .. }), "{refused}");
    assert_eq!(read(&path), OLD);
    // In a folder of our own others make no links.
    mode(0o755);
    write_to(&link).unwrap();
    assert_eq!(read(&path), NEW);
}
