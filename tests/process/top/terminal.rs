//! A terminal for one program: a pseudo-terminal, and a screen made of what comes out of it. Knows as
//! much of control sequences as the programs here write; any other is a fault of the test.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::pty::{Winsize, openpty};
use nix::sys::termios::{Termios, tcgetattr};

use crate::processes::Process;
use crate::wait::eventually;

/// What is to be seen.
#[derive(Debug, Default)]
struct Screen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// Bytes of a sequence or a character that have not all come yet.
    pending: Vec<u8>,
    is_alternate: bool,
    is_cursor_hidden: bool,
    /// All that ever came.
    bytes: Vec<u8>,
}

/// A program on a terminal of its own.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) process: Process,
    screen: Arc<Mutex<Screen>>,
    keys: File,
    /// The program's end, kept open so that its settings can be read when it is gone.
    end: OwnedFd,
    before: Termios,
}

impl Terminal {
    /// Starts a program in a session of its own, whose terminal this is.
    pub(crate) fn start(command: &Command, columns: u16, rows: u16) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).expect("there are pseudo-terminals");
        let before = tcgetattr(&pty.slave).expect("it is a terminal");
        let stdio = || Stdio::from(pty.slave.try_clone().expect("a descriptor is left"));
        let mut session = Command::new("setsid");
        session.arg("--ctty").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        session.stdin(stdio()).stdout(stdio()).stderr(stdio());
        let process = Process::new(session.spawn().expect("setsid is installed"));
        let screen = Arc::new(Mutex::new(Screen::default()));
        let (for_thread, mut output) = (Arc::clone(&screen), File::from(pty.master));
        let keys = output.try_clone().expect("a descriptor is left");
        thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // An error is the end: no process has the other end open.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                for_thread.lock().expect("no thread panics with it").take_in(&bytes[..count]);
            }
        });
        Self { process, screen, keys, end: pty.slave, before }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("a terminal takes keys");
    }

    /// Waits until the screen shows all of this, and gives it.
    pub(crate) fn until(&self, what: &[&str]) -> String {
        self.until_so(&format!("the screen to show {what:?}"), |text| {
            what.iter().all(|words| text.contains(words))
        })
    }

    pub(crate) fn until_so(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        eventually(what, || {
            let text = self.screen.lock().expect("no thread panics with it").text();
            if is_so(&text) { Ok(text) } else { Err(text) }
        })
    }

    /// Resizes it; the program gets a signal.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let end = Stdio::from(self.end.try_clone().expect("a descriptor is left"));
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let mut stty = Command::new("stty");
        stty.args(["cols", &columns, "rows", &rows]).stdin(end);
        assert!(stty.status().expect("stty is installed").success());
    }

    /// All that was written to it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.screen.lock().expect("no thread panics with it").bytes.clone()
    }

    /// Waits for the program's end, after which the terminal must be as it was; its exit code.
    pub(crate) fn is_given_back(&mut self) -> Option<i32> {
        let status = self.process.exit();
        let now = tcgetattr(&self.end).expect("it is a terminal");
        assert_eq!(now, self.before, "the settings are those from before");
        eventually("the screen to be given back", || {
            let screen = self.screen.lock().expect("no thread panics with it");
            let is_back = !screen.is_alternate && !screen.is_cursor_hidden;
            if is_back { Ok(()) } else { Err(screen.text()) }
        });
        status.code()
    }
}

impl Screen {
    fn text(&self) -> String {
        let line = |line: &Vec<char>| line.iter().collect::<String>().trim_end().to_owned();
        self.lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn take_in(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        for &byte in bytes {
            self.pending.push(byte);
            match self.pending[..] {
                [0x1b] | [0x1b, b'['] => {}
                [0x1b, b'[', .., b'@'..=b'~'] => {
                    let sequence = std::mem::take(&mut self.pending);
                    let text = String::from_utf8_lossy(&sequence[2..]);
                    self.obey(&text);
                }
                [0x1b, b'[', ..] => {}
                [0x1b, other] => panic!("a sequence that no test knows: ESC {other}"),
                _ => match std::str::from_utf8(&self.pending) {
                    Ok(text) => {
                        let char = text.chars().next().expect("there is a byte");
                        self.pending.clear();
                        self.put(char);
                    }
                    Err(error) => assert_eq!(error.error_len(), None, "it writes UTF-8"),
                },
            }
        }
    }

    fn obey(&mut self, sequence: &str) {
        let (parameters, kind) = sequence.split_at(sequence.len() - 1);
        match (kind, parameters) {
            ("H", "") => (self.row, self.column) = (0, 0),
            ("H", place) => {
                let number = |text: &str| text.parse::<usize>().expect("a place has two numbers");
                let (row, column) = place.split_once(';').expect("a place has two numbers");
                (self.row, self.column) = (number(row) - 1, number(column) - 1);
            }
            ("J", "2") => self.lines.clear(),
            ("m", _) => {}
            ("h" | "l", "?1049") => {
                self.is_alternate = kind == "h";
                self.lines.clear();
            }
            ("h" | "l", "?25") => self.is_cursor_hidden = kind == "l",
            _ => panic!("a sequence that no test knows: ESC [{sequence}"),
        }
    }

    fn put(&mut self, char: char) {
        match char {
            '\r' => self.column = 0,
            '\n' => self.row += 1,
            char => {
                if self.lines.len() <= self.row {
                    self.lines.resize(self.row + 1, Vec::new());
                }
                let line = &mut self.lines[self.row];
                if line.len() <= self.column {
                    line.resize(self.column + 1, ' ');
                }
                line[self.column] = char;
                self.column += 1;
            }
        }
    }
}
