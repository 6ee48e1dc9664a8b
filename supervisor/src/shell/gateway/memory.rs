//! Opens clients' shared memory for the gateway, which can open no file. Strangers talk to the gateway, so it does not
//! judge who may have which file: this does, with the client's token, where there are tokens. What the gateway could
//! ask for by itself, if it was taken over, is what its clients of that moment may have. It names the user at the other
//! end of a Unix socket, so where it serves one it could name any user, and with tokens if it was shown one for this.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use gridpool_ipc::mutex::Mutex;
use nix::libc;
use nix::unistd::geteuid;

use super::admission::Admission;
use super::desk;
use crate::gateway::{Holders, OpenOrder, Opened, Scope, Unopened};

/// Where `shm_open` makes files.
const FOLDER: &str = "/dev/shm";
/// Longest key, without the `/` that it may begin with: the longest name of a file.
const KEY_BYTES_MAX: usize = 255;

/// Opens files for a gateway until it ends. Returns its end of the socket.
/// `has_unix` says whether clients may come over a Unix socket.
pub(super) fn serve(admission: Arc<Mutex<Admission>>, has_unix: bool) -> io::Result<UnixStream> {
    desk::serve("memory", move |order: OpenOrder| -> (Opened, Option<File>) {
        let holders = Arc::clone(&admission.lock().holders.lock());
        let owner = owner(&holders, &order, has_unix);
        let opened = owner.and_then(|uid| open(Path::new(FOLDER), &order.key, uid));
        match opened {
            Ok(file) => (Ok(()), Some(file)),
            Err(why) => (Err(why), None),
        }
    })
}

/// Whose files the client may have: its own over a Unix socket, where the kernel says who it is; over TCP those of
/// the pool's user, if it shows a token for that.
fn owner(holders: &Holders, order: &OpenOrder, has_unix: bool) -> Result<u32, Unopened> {
    let refuse = |why: &str| Err(Unopened::NotAllowed(why.to_owned()));
    if order.uid.is_some() && !has_unix {
        return refuse("there is no Unix socket, so no client is known to be a user");
    }
    if !holders.are_asked_for() {
        return order.uid.map_or_else(
            || {
                refuse(
                    "shared memory needs a token with the scope memory, or a Unix socket: have the pool started with \
                     --http-tokens, or with --grpc unix:PATH",
                )
            },
            Ok,
        );
    }
    let holder = order.token.as_ref().and_then(|token| holders.find(&token.0, &[Scope::Memory]));
    match holder.is_some() {
        true => Ok(order.uid.unwrap_or_else(|| geteuid().as_raw())),
        false => refuse("shared memory needs a token with the scope memory"),
    }
}

/// The file of a key, if it is a file of that user and nothing else. Never waits.
fn open(folder: &Path, key: &str, owner: u32) -> Result<File, Unopened> {
    let wrong = |why: &str| Err(Unopened::Wrong(why.to_owned()));
    let name = key.strip_prefix('/').unwrap_or(key);
    if !(1..=KEY_BYTES_MAX).contains(&name.len()) || name.contains(['/', '\0']) {
        return wrong(
            "the key of shared memory is a name as for shm_open: 1 to 255 bytes, with no `/` but at its beginning",
        );
    }
    // A name that is a link is not followed. A pipe, or a file that its owner has leased, is not waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened =
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(folder.join(name));
    let unable = |why: String| {
        Unopened::Wrong(format!("Unable to open shared memory region: '{key}': {why}"))
    };
    let file = opened.map_err(|error| unable(error.to_string()))?;
    let meta = file.metadata().map_err(|error| unable(error.to_string()))?;
    if !meta.is_file() {
        return Err(unable("it is not a regular file".to_owned()));
    }
    if meta.uid() != owner {
        return Err(Unopened::NotAllowed(format!(
            "the shared memory '{key}' is not the user {owner}'s: over a Unix socket clients may name their own, over \
             TCP that of the pool's user"
        )));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use gridpool_protocol::message::Secret;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::gateway::{DoorPlan, NewToken};

    fn why(opened: Result<File, Unopened>) -> String {
        match opened {
            Ok(file) => panic!("{file:?} was opened"),
            Err(Unopened::NotAllowed(why)) => format!("not allowed: {why}"),
            Err(Unopened::Wrong(why)) => why,
        }
    }

    #[test]
    fn only_a_regular_file_of_the_user_is_opened_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (at, me) = (folder.path().to_owned(), geteuid().as_raw());
        fs::write(at.join("own"), b"data").unwrap();
        symlink(at.join("own"), at.join("link")).unwrap();
        mkfifo(&at.join("pipe"), Mode::S_IRWXU).unwrap();
        fs::create_dir(at.join("folder")).unwrap();
        let (send, said) = mpsc::channel();
        thread::spawn(move || {
            let of = |key: &str, owner| open(&at, key, owner);
            for key in ["own", "/own"] {
                assert_eq!(of(key, me).unwrap().metadata().unwrap().len(), 4);
            }
            let others = why(of("own", me + 1));
            assert!(others.starts_with("not allowed") && others.contains("is not the user"));
            for (key, words) in [
                ("link", "Unable to open shared memory region: 'link'"),
                ("pipe", "it is not a regular file"),
                ("folder", "Unable to open"),
                ("none", "Unable to open"),
                ("../own", "no `/` but at its beginning"),
                ("//own", "no `/` but at its beginning"),
                (".", "Unable to open"),
                ("..", "Unable to open"),
                ("", "1 to 255 bytes"),
                ("/", "1 to 255 bytes"),
                (&"n".repeat(256), "1 to 255 bytes"),
                ("own\0", "no `/`"),
            ] {
                assert!(why(of(key, me)).contains(words), "{key}: {}", why(of(key, me)));
            }
            send.send(()).unwrap();
        });
        assert_eq!(said.recv_timeout(Duration::from_secs(60)), Ok(()), "a pipe is not waited for");
    }

    #[test]
    fn a_token_needs_its_scope_and_without_tokens_only_a_user_may_have_files() {
        let made =
            |scopes: &[Scope], seed| NewToken::new("one", scopes, None, &[seed; 32]).unwrap();
        let order = |token: Option<&str>, uid| OpenOrder {
            key: "k".to_owned(),
            token: token.map(|text| Secret(text.to_owned())),
            uid,
        };
        let owner = |holders: &Holders, asked: &OpenOrder| owner(holders, asked, true);
        let open = DoorPlan::default().holders();
        assert_eq!(owner(&open, &order(None, Some(7))), Ok(7));
        assert!(matches!(owner(&open, &order(None, None)), Err(Unopened::NotAllowed(_))));
        assert!(
            matches!(owner(&open, &order(Some("x"), None)), Err(Unopened::NotAllowed(_))),
            "nobody knows the token"
        );
        assert!(super::owner(&open, &order(None, Some(7)), false).is_err());
        let (with, without) = (made(&[Scope::Memory], 1), made(&[Scope::Infer, Scope::Operate], 2));
        for (token, may) in [(&with, true), (&without, false)] {
            let plan = DoorPlan { tokens: Some(token.line.clone()), ..DoorPlan::default() };
            let plan = plan.holders();
            let own = owner(&plan, &order(Some(&token.token), None));
            assert_eq!(own.is_ok_and(|uid| uid == geteuid().as_raw()), may);
            assert_eq!(
                owner(&plan, &order(Some(&token.token), Some(7))).is_ok_and(|uid| uid == 7),
                may
            );
            assert!(owner(&plan, &order(None, Some(7))).is_err(), "a user needs it too");
            let over_tcp = super::owner(&plan, &order(Some(&token.token), Some(7)), false);
            assert!(over_tcp.is_err(), "over TCP nobody is known to be a user");
        }
    }
}
