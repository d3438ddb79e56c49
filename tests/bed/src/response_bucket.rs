//! The bucket into which custom resources PUT their answers to CloudFormation; it can fail on request.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::proxy::{header, read_message};

/// How the bucket handles a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    Status(u16),
    /// The connection is closed without an answer.
    HangUp,
    /// The connection stays open, without an answer.
    Silence,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    pub reception: Reception,
    head: String,
    body: Vec<u8>,
}

impl Received {
    /// The first line: method, path and query, version.
    #[must_use]
    pub fn request_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// # Panics
    /// When the body is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the answer is JSON")
    }
}

pub struct ResponseBucket {
    address: String,
    secret: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl ResponseBucket {
    /// Handles the first requests as `receptions` say, and accepts all others.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn start(receptions: &[Reception]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let (log, receptions) = (Arc::clone(&received), receptions.to_vec());
        // The threads end with the test binary: they hold nothing but loopback sockets.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (log, receptions) = (Arc::clone(&log), receptions.clone());
                std::thread::spawn(move || serve(client, &log, &receptions));
            }
        });
        Self { address, secret: format!("{:032x}", fastrand::u128(..)), received }
    }

    /// The path of the answer in CloudFormation's format, with a signature that must not leak.
    #[must_use]
    pub fn path(&self) -> String {
        format!(
            "/arn%3Aaws%3Acloudformation%3Astack/janitor%7CTableTtl%7C1?X-Amz-Signature={}&X-Amz-Expires=7200",
            self.secret
        )
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, self.path())
    }

    /// The signature, which must not be printed anywhere.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// All requests so far, accepted or not.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The answers that were accepted.
    #[must_use]
    pub fn answers(&self) -> Vec<Received> {
        self.received().into_iter().filter(|one| one.reception == Reception::Status(200)).collect()
    }
}

fn serve(mut client: TcpStream, log: &Mutex<Vec<Received>>, receptions: &[Reception]) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    loop {
        let (head, body) = read_message(&mut reader)?;
        let reception = {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            let reception = receptions.get(log.len()).copied().unwrap_or(Reception::Status(200));
            log.push(Received { reception, head, body });
            reception
        };
        match reception {
            Reception::Status(status) => {
                client.write_all(format!("HTTP/1.1 {status} bucket\r\nContent-Length: 0\r\n\r\n").as_bytes()).ok()?;
            }
            Reception::HangUp => return None,
            Reception::Silence => {}
        }
    }
}
