//! A proxy in front of an engine: records every request, and can delay it, answer it itself, or reset the connection.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use serde_json::{Value, json};
use socket2::SockRef;

/// A request that the proxy received.
#[derive(Clone)]
pub struct Request {
    /// `Query`, `BatchExecuteStatement`, …
    pub operation: String,
    pub body: String,
    /// The request line and the headers.
    pub head: String,
}

impl Request {
    /// The access key id and the region of its signature.
    #[must_use]
    pub fn signed_by(&self) -> Option<(&str, &str)> {
        let (_, scope) = header(&self.head, "authorization")?.split_once("Credential=")?;
        let mut parts = scope.split('/');
        Some((parts.next()?, parts.nth(1)?))
    }

    /// Whether it is a request of this operation, other than the read of the pause that each run starts with.
    #[must_use]
    pub fn is_work(&self, operation: &str) -> bool {
        self.operation == operation && !self.body.contains("state:pause")
    }

    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// What the proxy does with a request.
pub enum Fate {
    Forward,
    /// Answered by the proxy, without the engine: a status and a JSON body.
    Answer(u16, String),
    /// The connection is reset before the engine receives the request.
    ResetBefore,
    /// The engine acts, and the connection is reset before its answer arrives.
    ResetAfter,
    /// Never answered; the engine acts if `acts`.
    Silence {
        acts: bool,
    },
    /// The engine acts, and its answer is truncated.
    Truncate,
    /// The engine acts after this delay.
    Slow(Duration),
    /// The `Date` of the answer is off by this many seconds.
    DateOffset(i64),
    /// The `Date` of the answer is this second.
    DateAt(i64),
    /// The engine receives every other part of a batch; the rest is answered with this error, or as unprocessed keys.
    PartialBatch(&'static str),
    /// The engine acts, and this function rewrites its answer.
    Rewrite(fn(String) -> String),
}

/// Answers each statement of a batch with a throttle.
#[must_use]
pub fn throttled_statements(request: &Request) -> Fate {
    let throttled = json!({"Error": {"Code": "ThrottlingError", "Message": "injected fault"}});
    let statements = request.body.matches("\"Statement\":").count();
    Fate::Answer(200, json!({"Responses": vec![throttled; statements]}).to_string())
}

/// Answers a BatchGetItem with all its keys unprocessed, like a table without capacity.
///
/// # Panics
/// When the request is not JSON.
#[must_use]
pub fn unprocessed(request: &Request) -> Fate {
    let body: Value = serde_json::from_str(&request.body).expect("a request is JSON");
    Fate::Answer(200, json!({"Responses": {}, "UnprocessedKeys": body["RequestItems"]}).to_string())
}

/// Reports that TTL is on, without turning it on: the engine would remove rows by its own clock. Other requests get `otherwise`.
#[must_use]
pub fn with_ttl_on(request: &Request, otherwise: Fate) -> Fate {
    if request.operation != "DescribeTimeToLive" {
        return otherwise;
    }
    let on = json!({"AttributeName": "ttl_timestamp", "TimeToLiveStatus": "ENABLED"});
    Fate::Answer(200, json!({"TimeToLiveDescription": on}).to_string())
}

type Hook = dyn FnMut(&Request) -> Fate + Send;

pub struct Proxy {
    endpoint: String,
    seen: Arc<Mutex<Vec<Request>>>,
    /// Number of requests in flight.
    in_flight: Arc<AtomicUsize>,
    /// The first panic message of a thread of this proxy, usually the hook's.
    panicked: Arc<Mutex<Option<String>>>,
}

/// A failed assertion in a hook fails the test, not only its thread.
impl Drop for Proxy {
    fn drop(&mut self) {
        let panicked = self.panicked.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(message) = panicked.filter(|_| !std::thread::panicking()) {
            panic!("the proxy's hook panicked: {message}");
        }
    }
}

impl Proxy {
    /// Starts in front of `upstream` ("http://127.0.0.1:port"); `hook` decides about each request, one at a time.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn start(upstream: &str, hook: impl FnMut(&Request) -> Fate + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let upstream = upstream.trim_start_matches("http://").to_owned();
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (log, hook) = (Arc::clone(&seen), Arc::new(Mutex::new(Box::new(hook) as Box<Hook>)));
        let in_flight: Arc<AtomicUsize> = Arc::default();
        let count = Arc::clone(&in_flight);
        let panicked: Arc<Mutex<Option<String>>> = Arc::default();
        let panics = Arc::clone(&panicked);
        // The threads end with the test binary: a proxy holds nothing but loopback sockets.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (upstream, log, hook) = (upstream.clone(), Arc::clone(&log), Arc::clone(&hook));
                let (count, panics) = (Arc::clone(&count), Arc::clone(&panics));
                std::thread::spawn(move || {
                    // Keeps the connection open until a panic is recorded: a test that ends with the connection sees it.
                    let _open = client.try_clone();
                    let served = catch_unwind(AssertUnwindSafe(|| serve(client, &upstream, &log, &hook, &count)));
                    if let Err(payload) = served {
                        let text = payload.downcast_ref::<String>().cloned();
                        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                        let mut panics = panics.lock().unwrap_or_else(PoisonError::into_inner);
                        panics.get_or_insert(text.unwrap_or_else(|| "no message".to_owned()));
                    }
                });
            }
        });
        Self { endpoint, seen, in_flight, panicked }
    }

    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Whether no request is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight.load(Ordering::SeqCst) == 0
    }

    /// How often the most repeated request of an operation was sent, apart from the read of the pause, which a run repeats. The order
    /// of its keys does not matter.
    #[must_use]
    pub fn most_attempts(&self, operation: &str) -> u64 {
        let mut attempts: HashMap<String, u64> = HashMap::new();
        for request in self.requests().into_iter().filter(|request| request.is_work(operation)) {
            let mut body: Value = serde_json::from_str(&request.body).expect("a request is JSON");
            body.sort_all_objects();
            *attempts.entry(body.to_string()).or_default() += 1;
        }
        attempts.into_values().max().unwrap_or(0)
    }

    /// The operations so far, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.operation).collect()
    }

    /// The requests so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(
    client: TcpStream,
    upstream: &str,
    log: &Mutex<Vec<Request>>,
    hook: &Mutex<Box<Hook>>,
    in_flight: &AtomicUsize,
) -> Option<()> {
    let mut client = connected(client)?;
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let mut upstream = Upstream { address: upstream, open: None };
    loop {
        let (head, body) = read_message(&mut reader)?;
        let _guard = InFlight::new(in_flight);
        let target = header(&head, "x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let body_text = String::from_utf8_lossy(&body).into_owned();
        let request = Request { operation, body: body_text, head: head.clone() };
        log.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let fate = (hook.lock().unwrap_or_else(PoisonError::into_inner))(&request);
        let mut forward = || upstream.send(&head, &body);
        match fate {
            Fate::Forward => pass(&mut client, forward()?)?,
            Fate::DateOffset(off) => {
                let (head, body) = forward()?;
                pass(&mut client, (dated(&head, |date| date + off)?, body))?;
            }
            Fate::DateAt(second) => {
                let (head, body) = forward()?;
                pass(&mut client, (dated(&head, |_| second)?, body))?;
            }
            Fate::Slow(pause) => {
                std::thread::sleep(pause);
                pass(&mut client, forward()?)?;
            }
            Fate::Rewrite(rewrite) => {
                let (_, body) = forward()?;
                answer(&mut client, 200, &rewrite(String::from_utf8_lossy(&body).into_owned()))?;
            }
            Fate::Answer(status, body) => answer(&mut client, status, &body)?,
            Fate::ResetBefore => return reset(&client),
            Fate::ResetAfter => {
                forward()?;
                return reset(&client);
            }
            Fate::Silence { acts } => {
                if acts {
                    forward()?;
                }
                // Until the client gives up.
                while reader.read(&mut [0; 1_024]).is_ok_and(|n| n > 0) {}
                return None;
            }
            Fate::Truncate => {
                let (head, body) = forward()?;
                client.write_all(head.as_bytes()).ok()?;
                client.write_all(&body[..body.len() / 2]).ok()?;
                return None;
            }
            Fate::PartialBatch(code) => {
                let (seen, rest) = halve(&request);
                let length = format!("content-length: {}", seen.len());
                let head: String = head
                    .lines()
                    .map(|line| if line.to_ascii_lowercase().starts_with("content-length:") { &length } else { line })
                    .flat_map(|line| [line, "\r\n"])
                    .collect();
                let (_, body) = upstream.send(&head, seen.as_bytes())?;
                answer(&mut client, 200, &merge(&String::from_utf8_lossy(&body), rest, code))?;
            }
        }
    }
}

/// The engine, with the connection of the last request, which it may have closed since.
struct Upstream<'a> {
    address: &'a str,
    open: Option<BufReader<TcpStream>>,
}

impl Upstream<'_> {
    fn send(&mut self, head: &str, body: &[u8]) -> Option<(String, Vec<u8>)> {
        let message = [head.as_bytes(), body].concat();
        if let Some(mut open) = self.open.take()
            && open.get_mut().write_all(&message).is_ok()
            && let Some(answer) = read_message(&mut open)
        {
            self.open = Some(open);
            return Some(answer);
        }
        let mut engine = connected(TcpStream::connect(self.address).ok()?)?;
        engine.write_all(&message).ok()?;
        let mut open = BufReader::new(engine);
        let answer = read_message(&mut open)?;
        self.open = Some(open);
        Some(answer)
    }
}

/// Sends what is written at once: otherwise each answer waits 40 ms for the acknowledgement of its head.
fn connected(socket: TcpStream) -> Option<TcpStream> {
    socket.set_nodelay(true).ok()?;
    Some(socket)
}

/// Counts a request while it is in flight.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn pass(client: &mut TcpStream, (head, body): (String, Vec<u8>)) -> Option<()> {
    client.write_all(head.as_bytes()).ok()?;
    client.write_all(&body).ok()
}

/// The head with a changed `Date`.
fn dated(head: &str, moved: impl FnOnce(i64) -> i64) -> Option<String> {
    let date = header(head, "date").expect("the engine's answers have a date");
    let moved = DateTime::from_secs(moved(DateTime::from_str(date, DateTimeFormat::HttpDate).ok()?.secs()));
    Some(head.replace(date, &moved.fmt(DateTimeFormat::HttpDate).ok()?))
}

/// A socket that is closed with a linger time of zero sends a reset.
fn reset(client: &TcpStream) -> Option<()> {
    SockRef::from(client).set_linger(Some(Duration::ZERO)).ok()?;
    None
}

/// Splits a batch: the request with every other statement or key, and the rest.
fn halve(request: &Request) -> (String, Vec<Value>) {
    let mut body: Value = serde_json::from_str(&request.body).expect("a request is JSON");
    let mut rest = Vec::new();
    let parts = match request.operation.as_str() {
        "BatchExecuteStatement" => body["Statements"].as_array_mut(),
        "BatchGetItem" => body["RequestItems"]
            .as_object_mut()
            .and_then(|tables| tables.values_mut().next())
            .and_then(|table| table["Keys"].as_array_mut()),
        other => panic!("{other} has no parts"),
    };
    let parts = parts.expect("a batch has parts");
    // The first is always sent: an empty batch is rejected.
    for (i, part) in std::mem::take(parts).into_iter().enumerate() {
        if i % 2 == 0 { parts.push(part) } else { rest.push(part) }
    }
    let sent = body.clone();
    if request.operation == "BatchGetItem" {
        let (table, items) = sent["RequestItems"].as_object().and_then(|tables| tables.iter().next()).expect("a table");
        let mut items = items.clone();
        items["Keys"] = json!(rest);
        rest = if rest.is_empty() { Vec::new() } else { vec![json!({table: items})] };
    }
    (body.to_string(), rest)
}

/// The engine's answer to one half, with the other half failed.
fn merge(answered: &str, rest: Vec<Value>, code: &str) -> String {
    let mut answered: Value = serde_json::from_str(answered).expect("an answer is JSON");
    if let Some(seen) = answered["Responses"].as_array_mut() {
        let mut rest = rest.into_iter().map(|_| json!({"Error": {"Code": code, "Message": "refused in the middle"}}));
        let mut all = Vec::new();
        for one in std::mem::take(seen) {
            all.push(one);
            all.extend(rest.next());
        }
        *seen = all;
    } else if let Some(unprocessed) = rest.into_iter().next() {
        answered["UnprocessedKeys"] = unprocessed;
    }
    answered.to_string()
}

fn answer(client: &mut TcpStream, status: u16, body: &str) -> Option<()> {
    let head = format!(
        "HTTP/1.1 {status} proxied\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes()).ok()?;
    client.write_all(body.as_bytes()).ok()
}

/// Reads the head with its blank line, and a body of `content-length` bytes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_that_panics_fails_its_test() {
        let outcome = std::panic::catch_unwind(|| {
            let proxy = Proxy::start("http://127.0.0.1:9", |request| panic!("unexpected {}", request.operation));
            let mut client = TcpStream::connect(proxy.endpoint().trim_start_matches("http://")).unwrap();
            client.write_all(b"POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB.Scan\r\nContent-Length: 2\r\n\r\n{}").unwrap();
            // Until the proxy closes the connection.
            client.read_to_end(&mut Vec::new()).unwrap();
        });
        let message = outcome.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(*message, "the proxy's hook panicked: unexpected Scan");
    }
}
