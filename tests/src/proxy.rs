//! A proxy in front of a real engine: sees every request, and can hold it up, answer in its place, or cut the line.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

/// A request as it passes.
pub struct Request {
    /// `Query`, `BatchExecuteStatement`, …
    pub operation: String,
    pub body: String,
}

/// What becomes of a request.
pub enum Fate {
    Forward,
    /// Answered here, without the engine: a status and a JSON body.
    Answer(u16, String),
    /// The line is cut before the engine sees the request.
    CutBefore,
    /// The engine acts, and the line is cut before its answer arrives.
    CutAfter,
    /// The engine acts, and its answer is replaced by what this makes of it.
    Rewrite(fn(String) -> String),
}

/// A BatchGetItem answered with all its keys unprocessed, as a table without capacity does.
///
/// # Panics
/// When the request is not one.
#[must_use]
pub fn unprocessed(request: &Request) -> Fate {
    let asked: Value = serde_json::from_str(&request.body).expect("a request is JSON");
    Fate::Answer(200, json!({"Responses": {}, "UnprocessedKeys": asked["RequestItems"]}).to_string())
}

type Hook = dyn FnMut(&Request) -> Fate + Send;

pub struct Proxy {
    endpoint: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Starts in front of `upstream` ("http://127.0.0.1:port"); `hook` decides over each request, one at a time.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn start(upstream: &str, hook: impl FnMut(&Request) -> Fate + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let upstream = upstream.trim_start_matches("http://").to_owned();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, hook) = (Arc::clone(&seen), Arc::new(Mutex::new(Box::new(hook) as Box<Hook>)));
        // The threads end with the test binary: a proxy holds nothing but loopback sockets.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (upstream, log, hook) = (upstream.clone(), Arc::clone(&log), Arc::clone(&hook));
                std::thread::spawn(move || serve(client, &upstream, &log, &hook));
            }
        });
        Self { endpoint, seen }
    }

    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The operations seen so far, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(client: TcpStream, upstream: &str, log: &Mutex<Vec<String>>, hook: &Mutex<Box<Hook>>) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let mut client = client;
    loop {
        let (head, body) = read_message(&mut reader)?;
        let target = header(&head, "x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        log.lock().unwrap_or_else(PoisonError::into_inner).push(operation.clone());
        let request = Request { operation, body: String::from_utf8_lossy(&body).into_owned() };
        let fate = (hook.lock().unwrap_or_else(PoisonError::into_inner))(&request);
        let forward = || -> Option<(String, Vec<u8>)> {
            let mut engine = TcpStream::connect(upstream).ok()?;
            engine.write_all(head.as_bytes()).ok()?;
            engine.write_all(&body).ok()?;
            read_message(&mut BufReader::new(engine))
        };
        match fate {
            Fate::Forward => {
                let (head, body) = forward()?;
                client.write_all(head.as_bytes()).ok()?;
                client.write_all(&body).ok()?;
            }
            Fate::Rewrite(rewrite) => {
                let (_, body) = forward()?;
                answer(&mut client, 200, &rewrite(String::from_utf8_lossy(&body).into_owned()))?;
            }
            Fate::Answer(status, body) => answer(&mut client, status, &body)?,
            Fate::CutBefore => return None,
            Fate::CutAfter => {
                forward()?;
                return None;
            }
        }
    }
}

fn answer(client: &mut TcpStream, status: u16, body: &str) -> Option<()> {
    let head = format!(
        "HTTP/1.1 {status} proxied\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes()).ok()?;
    client.write_all(body.as_bytes()).ok()
}

/// The head with its blank line, and a body of the length that it names.
pub(crate) fn read_message(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        head.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let length = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

pub(crate) fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
