//! A server for tests that answers what is published as a test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use async_nats::jetstream;
use gridpool_ipc::mutex::Mutex;

use crate::publish::Link;
use crate::refusals::Refusals;

/// The answer to what is known, and not stored yet or never.
pub(crate) const DUPLICATE: &str = r#"{"stream":"jobs","seq":0,"duplicate":true}"#;
/// The answer of a stream that has as many messages as it may.
pub(crate) const FULL: &str =
    r#"{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"}}"#;

/// The answer to what is stored under a number.
pub(crate) fn stored(number: u64) -> String {
    format!(r#"{{"stream":"jobs","seq":{number}}}"#)
}

/// See the module's text.
pub(crate) struct Scripted {
    address: String,
    ids: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    /// Starts it. `answer` gets the identity of each message.
    pub(crate) fn start(mut answer: impl FnMut(&str) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("nats://{}", listener.local_addr().expect("its address"));
        let ids = Arc::<Mutex<Vec<String>>>::default();
        let published = Arc::clone(&ids);
        thread::spawn(move || {
            // One client after the other.
            for socket in listener.incoming() {
                serve(&socket.expect("a client"), &mut |id| {
                    published.lock().push(id.to_owned());
                    answer(id)
                });
            }
        });
        Self { address, ids }
    }

    /// A connection to it.
    pub(crate) async fn link(&self) -> Link {
        let client = async_nats::connect(&self.address).await.expect("a server");
        Link { context: jetstream::new(client), refusals: Refusals::default() }
    }

    /// The identities of all that was published, in order.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.ids.lock().clone()
    }
}

/// Answers a client until it is gone.
fn serve(socket: &TcpStream, answer: &mut dyn FnMut(&str) -> String) {
    const INFO: &str = concat!(
        r#"{"server_id":"S","server_name":"s","version":"2.10.27","go":"","host":"","port":0,"#,
        r#""headers":true,"max_payload":1048576,"proto":1,"client_id":1}"#
    );
    let (mut input, mut output) = (BufReader::new(socket), socket);
    write!(output, "INFO {INFO}\r\n").expect("it reads");
    let (mut line, mut inbox) = (String::new(), String::new());
    loop {
        line.clear();
        if input.read_line(&mut line).expect("a line") == 0 {
            return;
        }
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["PING"] => write!(output, "PONG\r\n").expect("it reads"),
            ["SUB", _, number] => number.clone_into(&mut inbox),
            ["PUB" | "HPUB", _, reply, .., bytes] => {
                let bytes: usize = bytes.parse().expect("a size");
                let mut message = vec![0; bytes + "\r\n".len()];
                input.read_exact(&mut message).expect("its bytes");
                let message = String::from_utf8_lossy(&message).into_owned();
                let id = message.lines().find_map(|line| line.strip_prefix("Nats-Msg-Id: "));
                let answer = answer(id.unwrap_or_default());
                let size = answer.len();
                write!(output, "MSG {reply} {inbox} {size}\r\n{answer}\r\n").expect("it reads");
            }
            // Who it is.
            _ => {}
        }
    }
}
