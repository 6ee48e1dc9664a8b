//! Folders, locks and names that are planted, lost or taken by another pool.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

fn lock_at(socket: &Path) -> PathBuf {
    folder_of(socket).join(names_of(socket).1)
}

#[test]
fn a_folder_with_the_name_of_the_socket_is_never_to_be_removed_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("")] {
        let said = claim(&path).unwrap_err().to_string();
        assert!(said.contains("is a folder: name a file in it, such as --socket "), "{said}");
        assert!(said.ends_with("/pool.sock") && !said.contains("remove"), "{said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no lock file either");
}

#[test]
fn a_directory_that_is_not_private_is_refused_with_the_command_that_mends_it() {
    let check = |owner, mode: u32| {
        let said = check_private(Path::new("/srv/pool"), owner, mode, 7);
        said.map_err(|error| error.to_string())
    };
    let fine = [check(7, 0o700), check(7, 0o755), check(7, 0o1777), check(0, 0o1777)];
    assert_eq!(fine, [Ok(()), Ok(()), Ok(()), Ok(())]);
    let mode = check(7, 0o775).unwrap_err();
    assert!(mode.contains("only you may write to: mend it with `chmod 700 /srv/pool`"), "{mode}");
    for mode in [0o700, 0o755, 0o777, 0o1777] {
        let owner = check(33, mode).unwrap_err();
        assert!(owner.starts_with("/srv/pool belongs to the user 33 and not to you (7)"));
        assert!(owner.ends_with("a directory of your own with --socket"), "{owner}");
    }
    let system = check(0, 0o755).unwrap_err();
    assert!(system.ends_with("root makes there with `install -d -m 700 -o 7 /srv/pool/gridpool`"));
}

#[test]
fn a_folder_that_everybody_could_move_away_is_refused_with_the_command_that_mends_it() {
    let folder = tempfile::tempdir().unwrap();
    let outer = folder.path().join("outer");
    let socket = outer.join("a/b/s");
    fs::create_dir_all(folder_of(&socket)).unwrap();
    let set = |mode| fs::set_permissions(&outer, fs::Permissions::from_mode(mode)).unwrap();
    set(0o757);
    for said in [claim(&socket).map(drop), look(&socket)] {
        let said = said.unwrap_err().to_string();
        let start = format!("everybody may write to {}, and so put", outer.display());
        let mend = format!("`chmod o-w {}`", outer.display());
        assert!(said.starts_with(&start) && said.contains(&mend), "{said}");
    }
    for mode in [0o1777, 0o775] {
        set(mode);
        drop(claim(&socket).unwrap());
    }
}

#[test]
fn a_folder_that_is_missing_or_none_is_named_and_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file.join("deeper"), file.clone()] {
        let said = Folder::open(&path).unwrap_err().to_string();
        assert!(said.ends_with(" is not a directory: name a socket in one with --socket"));
    }
    let missing = folder.path().join("a/b");
    let [claimed, seen] = [claim(&missing.join("s")).map(drop), look(&missing.join("s"))];
    let type_this = format!("mkdir -p -m 700 {}", missing.display());
    for said in [claimed, seen].map(|result| result.unwrap_err().to_string()) {
        assert!(said.starts_with("there is no folder ") && said.contains(&type_this), "{said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_claim_leaves_no_lock_and_ignores_files_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let names = || {
        let entries = fs::read_dir(folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    let socket = folder.path().join("Cargo");
    let claimed = claim(&socket).unwrap();
    assert_eq!(names().len(), 2);
    assert!(matches!(claim(&socket), Err(ListenError::Taken(_))));
    drop(claimed);
    assert_eq!(names(), [""; 0]);
    // The files of a killed supervisor are taken over.
    fs::write(lock_at(&socket), "").unwrap();
    drop(claim(&socket).unwrap());
    assert_eq!(names(), [""; 0]);
    fs::write(lock_at(&socket), "[[package]]").unwrap();
    let said = claim(&socket).unwrap_err().to_string();
    assert!(said.contains("Cargo.lock is no lock of yours"), "{said}");
    assert_eq!(fs::read_to_string(lock_at(&socket)).unwrap(), "[[package]]");
}

#[test]
fn a_lock_that_is_lost_is_taken_again_without_the_socket_and_not_from_another_pool() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let Claim { listener, mut name } = claim(&socket).unwrap();
    let is_taken = || matches!(look(&socket), Err(ListenError::Taken(_)));
    let made = id(&fs::metadata(&socket).unwrap());
    assert!(!name.lock_again().unwrap());
    fs::remove_file(lock_at(&socket)).unwrap();
    assert!(!name.is_there() && !is_taken());
    assert!(name.lock_again().unwrap());
    assert!(name.is_there() && is_taken());
    assert_eq!(id(&fs::metadata(&socket).unwrap()), made);
    fs::remove_file(lock_at(&socket)).unwrap();
    let other = File::create(lock_at(&socket)).unwrap();
    other.lock().unwrap();
    assert!(matches!(name.lock_again(), Err(ListenError::Taken(_))));
    drop((listener, name));
    assert!(lock_at(&socket).exists() && !socket.exists(), "the other's stays");
}

#[test]
fn a_name_stays_as_it_is_until_its_heir_owns_it() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let files = || [socket.exists(), lock_at(&socket).exists()];
    let is_taken = || matches!(look(&socket), Err(ListenError::Taken(_)));
    let Claim { listener, name } = claim(&socket).unwrap();
    drop(SocketName::inherit(&socket, name.pass().unwrap()).unwrap());
    assert!(files() == [true; 2] && is_taken() && name.is_there(), "the heir has failed");
    let mut heir = SocketName::inherit(&socket, name.pass().unwrap()).unwrap();
    name.leave();
    assert!(files() == [true; 2] && is_taken(), "its owner has left it");
    heir.own();
    drop((listener, heir));
    assert_eq!(files(), [false; 2]);
}

#[test]
fn a_folder_and_a_lock_that_are_planted_are_not_followed_or_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let [real, link] = ["real", "link"].map(|name| folder.path().join(name));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    for said in [claim(&link.join("s")).map(drop), look(&link.join("s"))] {
        let said = said.unwrap_err().to_string();
        assert!(said.contains("link is a symbolic link"), "{said}");
    }
    let (socket, victim) = (real.join("s"), folder.path().join("victim"));
    symlink(&victim, lock_at(&socket)).unwrap();
    look(&socket).unwrap();
    let said = claim(&socket).unwrap_err().to_string();
    assert!(said.contains("s.lock is no lock of yours") && !victim.exists(), "{said}");
    fs::remove_file(lock_at(&socket)).unwrap();
    mkfifo(&lock_at(&socket), Mode::S_IRUSR).unwrap();
    look(&socket).unwrap();
    assert!(matches!(claim(&socket), Err(ListenError::NotLock(_))));
}

#[test]
fn what_another_pool_has_put_in_its_place_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let first = claim(&socket).unwrap();
    assert!(first.name.is_there());
    fs::remove_file(lock_at(&socket)).unwrap();
    assert!(matches!(claim(&socket), Err(ListenError::Served(_))), "the first serves it");
    fs::remove_file(&socket).unwrap();
    let second = claim(&socket).unwrap();
    assert!(!first.name.is_there() && second.name.is_there());
    drop(first);
    assert!(second.name.is_there(), "it keeps its socket and its lock");
    fs::rename(&socket, folder.path().join("moved")).unwrap();
    assert!(!second.name.is_there());
    drop(second);
    assert!(folder.path().join("moved").exists() && !lock_at(&socket).exists());
}

#[test]
fn a_lock_that_another_user_holds_is_not_taken_for_that_of_a_pool() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let theirs = File::create(lock_at(&socket)).unwrap();
    theirs.lock().unwrap();
    assert!(matches!(claim(&socket), Err(ListenError::Taken(_))));
    // Only root can make a file another user's.
    if geteuid().is_root() {
        std::os::unix::fs::chown(lock_at(&socket), Some(1), None).unwrap();
        assert!(matches!(claim(&socket), Err(ListenError::NotLock(_))));
    } else {
        assert_eq!(std::env::var_os("GRIDPOOL_REQUIRE_ROOT"), None, "this is not root");
    }
}

#[test]
fn a_socket_that_is_given_and_lies_elsewhere_is_named_whatever_is_at_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("given.sock");
    for wanted in ["none.sock", "no/folder.sock", "file"] {
        let listener = UnixListener::bind(&path).unwrap();
        let given = Given { listener, path: path.clone() };
        fs::write(folder.path().join("file"), "").unwrap();
        let said = claim_given(&folder.path().join(wanted), given).unwrap_err();
        assert!(matches!(said, ListenError::Given(GivenError::Elsewhere { .. })), "{said}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn whoever_finds_the_socket_can_connect() {
    const TIMES: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let turn = Barrier::new(2);
    let has_failed = AtomicBool::new(false);
    let connect = || loop {
        match UnixStream::connect(&path) {
            Err(error)
                if error.kind() == ErrorKind::NotFound && !has_failed.load(Ordering::Relaxed) => {}
            connected => return connected.map(drop),
        }
    };
    thread::scope(|scope| {
        let found = scope.spawn(|| {
            let once = |_| {
                turn.wait();
                let connected = connect();
                turn.wait();
                connected
            };
            (0..TIMES).map(once).collect::<Vec<_>>()
        });
        for _ in 0..TIMES {
            turn.wait();
            let claimed = claim(&path);
            has_failed.fetch_or(claimed.is_err(), Ordering::Relaxed);
            turn.wait();
            drop(claimed);
        }
        assert!(!has_failed.load(Ordering::Relaxed), "a claim failed");
        for connected in found.join().unwrap() {
            connected.unwrap();
        }
    });
}

#[test]
fn a_name_that_is_too_long_while_the_socket_is_made_is_refused_with_the_most_that_fits() {
    let folder = tempfile::Builder::new().prefix("s").rand_bytes(6).tempdir_in("/tmp").unwrap();
    let named = |bytes: usize| folder.path().join("s".repeat(bytes));
    let Err(ListenError::LongName { bytes: 91, most, .. }) = claim(&named(91)) else {
        panic!("it fits into 107 bytes, and not with what is set before and behind it");
    };
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // Another descriptor of the folder may take a digit more.
    drop(claim(&named(most - 2)).unwrap());
}
