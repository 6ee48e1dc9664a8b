//! A load generator for any server: callers that each send the same request again and again, over HTTP/1.1 or gRPC,
//! for some seconds. It prints one line of JSON: requests, seconds, and the times of the middle and the slowest
//! hundredth. `bench.py` beside it runs it against gridpool and other servers.

use std::error::Error;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Parser;
use gridpool_inference::{Message, ModelInferRequest, ModelInferResponse, SERVICE};
use gridpool_ipc::clock;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// Calls are not counted before these have passed.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Largest message of gRPC.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug, Parser)]
struct Options {
    /// HOST:PORT.
    address: String,
    /// The path of HTTP; without one, the body is a `ModelInferRequest` of gRPC.
    #[arg(long)]
    path: Option<String>,
    /// The body of each request.
    #[arg(long)]
    body: PathBuf,
    /// A header of each request, `name: value`.
    #[arg(long)]
    header: Vec<String>,
    #[arg(long)]
    callers: usize,
    #[arg(long)]
    seconds: f64,
}

/// How long each call took, in a window of time.
type Times = Vec<Duration>;
type Outcome = Result<Times, Box<dyn Error + Send + Sync>>;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let options = Options::parse();
    let seconds = Duration::from_secs_f64(options.seconds);
    let mut times = match &options.path {
        Some(path) => over_http(&options, path, seconds)?,
        None => over_grpc(&options, seconds)?,
    };
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).map_or(0, Duration::as_micros);
    let line = serde_json::json!({
        "requests": times.len(),
        "seconds": options.seconds,
        "p50_us": at(50),
        "p99_us": at(99),
    });
    Ok(writeln!(io::stdout(), "{line}")?)
}

/// Calls again and again, and keeps the times of the calls that end in the window.
fn repeat(seconds: Duration, mut call: impl FnMut() -> io::Result<()>) -> Outcome {
    let begin = clock::now() + WARM_UP;
    let (end, mut times) = (begin + seconds, Vec::new());
    loop {
        let sent = clock::now();
        if sent >= end {
            return Ok(times);
        }
        call()?;
        let done = clock::now();
        if done >= begin && done <= end {
            times.push(done - sent);
        }
    }
}

fn over_http(options: &Options, path: &str, seconds: Duration) -> Outcome {
    let body = fs::read(&options.body)?;
    let headers: String = options.header.iter().map(|line| format!("{line}\r\n")).collect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    let request = [head.into_bytes(), body].concat();
    thread::scope(|scope| {
        let callers: Vec<_> = (0..options.callers)
            .map(|_| {
                let request = &request;
                scope.spawn(move || -> Outcome {
                    let stream = TcpStream::connect(&options.address)?;
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(TIMEOUT))?;
                    let mut caller = Caller { stream, unread: Vec::new() };
                    repeat(seconds, || caller.call(request))
                })
            })
            .collect();
        let mut times = Vec::new();
        for caller in callers {
            times.extend(caller.join().map_err(|_| "a caller has panicked")??);
        }
        Ok(times)
    })
}

struct Caller {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Caller {
    /// Sends the request, and reads the whole answer, which must be 200 with a Content-Length.
    fn call(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)?;
        let head = loop {
            match self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => self.more()?,
            }
        };
        let text = String::from_utf8_lossy(&self.unread[..head]).to_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: Option<usize> = length.and_then(|digits| digits.trim().parse().ok());
        let Some(length) = length.filter(|_| text.starts_with("http/1.1 200")) else {
            return Err(io::Error::other(String::from_utf8_lossy(&self.unread).into_owned()));
        };
        while self.unread.len() < head + length {
            self.more()?;
        }
        self.unread.drain(..head + length);
        Ok(())
    }

    fn more(&mut self) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        let count = self.stream.read(&mut bytes)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.unread.extend_from_slice(&bytes[..count]);
        Ok(())
    }
}

fn over_grpc(options: &Options, seconds: Duration) -> Outcome {
    let request = ModelInferRequest::decode(&*fs::read(&options.body)?)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", options.address))?;
        let channel = endpoint.connect().await?;
        let callers = (0..options.callers).map(|_| {
            let (channel, request) = (channel.clone(), request.clone());
            let headers = options.header.clone();
            tokio::spawn(async move { call_again(channel, request, &headers, seconds).await })
        });
        let callers: Vec<_> = callers.collect();
        let mut times = Vec::new();
        for caller in callers {
            times.extend(caller.await??);
        }
        Ok(times)
    })
}

async fn call_again(
    channel: Channel,
    message: ModelInferRequest,
    headers: &[String],
    seconds: Duration,
) -> Outcome {
    let path = PathAndQuery::try_from(format!("/{SERVICE}/ModelInfer"))?;
    let mut client = Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let begin = clock::now() + WARM_UP;
    let (end, mut times) = (begin + seconds, Vec::new());
    loop {
        let sent = clock::now();
        if sent >= end {
            return Ok(times);
        }
        client.ready().await?;
        let mut request = Request::new(message.clone());
        for line in headers {
            let (name, value) = line.split_once(": ").ok_or("a header is `name: value`")?;
            let name: tonic::metadata::AsciiMetadataKey = name.to_lowercase().parse()?;
            request.metadata_mut().insert(name, value.parse()?);
        }
        let codec = ProstCodec::<ModelInferRequest, ModelInferResponse>::default();
        client.unary(request, path.clone(), codec).await?;
        let done = clock::now();
        if done >= begin && done <= end {
            times.push(done - sent);
        }
    }
}
