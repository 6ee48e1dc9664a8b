//! A pool that ends while a client shakes hands.

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::thread;

use super::{Server, TIMEOUT};
use crate::{Client, ClientError};

#[test]
fn a_pool_that_ends_before_it_has_greeted_is_no_pool_yet() {
    let path = std::env::temp_dir().join(format!("gridpool-greeting-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let (mut socket, _) = listener.accept().unwrap();
            // What it has not read makes the kernel reset the connection.
            socket.read_exact(&mut [0]).unwrap();
        }
        Server::greeted(listener.accept().unwrap().0)
    });
    let builder = Client::builder().socket(&path);
    match builder.clone().connect() {
        Err(ClientError::NoPool { .. }) => {}
        other => panic!("{other:?}"),
    }
    builder.wait_for_pool(TIMEOUT).connect().unwrap();
    server.join().unwrap();
    std::fs::remove_file(&path).unwrap();
}
