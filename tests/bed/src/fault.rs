//! Faults between a run and its table, in DynamoDB's format, and when they happen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::proxy::{Fate, Proxy, Request};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The table's provisioned units are used up.
    ProvisionedThroughput,
    /// A limit of the partition or the account.
    Throttling,
    /// Every other statement of a batch is throttled, and the batch is a success.
    ThrottledStatements,
    /// Every other statement of a batch fails inside the server.
    FailedStatements,
    /// Every other key of a batch is left unread, and the batch is a success.
    UnprocessedKeys,
    InternalError,
    Unavailable,
    /// A load balancer's HTML page instead of the service's JSON.
    NotJson,
    ResetBefore,
    ResetAfter,
    SilenceBefore,
    SilenceAfter,
    Truncated,
    Slow,
    ExpiredCredentials,
    AccessDenied,
}

use Fault::{
    AccessDenied, ExpiredCredentials, FailedStatements, InternalError, NotJson, ProvisionedThroughput, ResetAfter,
    ResetBefore, SilenceAfter, SilenceBefore, Slow, ThrottledStatements, Throttling, Truncated, Unavailable,
    UnprocessedKeys,
};

impl Fault {
    pub const ALL: [Fault; 16] = [
        ProvisionedThroughput,
        Throttling,
        ThrottledStatements,
        FailedStatements,
        UnprocessedKeys,
        InternalError,
        Unavailable,
        NotJson,
        ResetBefore,
        ResetAfter,
        SilenceBefore,
        SilenceAfter,
        Truncated,
        Slow,
        ExpiredCredentials,
        AccessDenied,
    ];

    /// Whether the fault is transient: a retry succeeds.
    #[must_use]
    pub fn is_transient(self) -> bool {
        !matches!(self, ExpiredCredentials | AccessDenied)
    }

    /// Whether it can be injected into this request: a batch of one has no other part that could fail.
    fn hits(self, request: &Request) -> bool {
        let parts = match self {
            ThrottledStatements | FailedStatements => request.body.matches("\"Statement\":").count(),
            UnprocessedKeys => request.body.matches("\"bucket_name\":").count(),
            _ => 2,
        };
        self.fits(&request.operation) && parts > 1
    }

    /// Whether it can be injected into a request of this operation.
    #[must_use]
    pub fn fits(self, operation: &str) -> bool {
        match self {
            ThrottledStatements | FailedStatements => operation == "BatchExecuteStatement",
            UnprocessedKeys => operation == "BatchGetItem",
            _ => true,
        }
    }

    #[must_use]
    pub fn fate(self) -> Fate {
        let answer = |status, kind: &str| {
            let text = "injected fault";
            Fate::Answer(status, format!(r#"{{"__type":"{kind}","message":"{text}","Message":"{text}"}}"#))
        };
        match self {
            ProvisionedThroughput => {
                answer(400, "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException")
            }
            Throttling => answer(400, "com.amazon.coral.availability#ThrottlingException"),
            ThrottledStatements => Fate::PartialBatch("ThrottlingError"),
            FailedStatements => Fate::PartialBatch("InternalServerError"),
            UnprocessedKeys => Fate::PartialBatch(""),
            InternalError => answer(500, "com.amazonaws.dynamodb.v20120810#InternalServerError"),
            Unavailable => answer(503, "com.amazon.coral.service#ServiceUnavailableException"),
            NotJson => Fate::Answer(503, "<html><body><b>Http/1.1 Service Unavailable</b></body></html>".to_owned()),
            ResetBefore => Fate::ResetBefore,
            ResetAfter => Fate::ResetAfter,
            SilenceBefore => Fate::Silence { acts: false },
            SilenceAfter => Fate::Silence { acts: true },
            Truncated => Fate::Truncate,
            Slow => Fate::Slow(Duration::from_millis(700)),
            ExpiredCredentials => answer(400, "com.amazon.coral.service#ExpiredTokenException"),
            AccessDenied => answer(400, "com.amazon.coral.service#AccessDeniedException"),
        }
    }
}

/// Which requests fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// Only the nth request of an operation, counted from 1.
    Nth(&'static str, u64),
    /// The nth and all later requests of an operation.
    From(&'static str, u64),
    /// A number of consecutive requests of any operation.
    Storm { after: u64, requests: u64 },
    /// A random share of all requests, per thousand.
    Random { share: u64, seed: u64 },
}

/// A proxy that injects one of `faults`, chosen at random, into requests; and the number of faults so far.
#[must_use]
pub fn faulty(upstream: &str, faults: Vec<Fault>, when: When) -> (Proxy, Arc<AtomicU64>) {
    let injected: Arc<AtomicU64> = Arc::default();
    let count = Arc::clone(&injected);
    let mut random = fastrand::Rng::with_seed(if let When::Random { seed, .. } = when { seed } else { 0 });
    let (mut all, mut of_kind) = (0, 0);
    let proxy = Proxy::start(upstream, move |request: &Request| {
        all += 1;
        let due = match when {
            When::Nth(operation, nth) | When::From(operation, nth) if request.operation == operation => {
                of_kind += 1;
                of_kind == nth || matches!(when, When::From(..)) && of_kind > nth
            }
            When::Nth(..) | When::From(..) => false,
            When::Storm { after, requests } => (after + 1..=after + requests).contains(&all),
            When::Random { share, .. } => random.u64(..1_000) < share,
        };
        let fitting: Vec<&Fault> = faults.iter().filter(|fault| fault.hits(request)).collect();
        if !due || fitting.is_empty() {
            return Fate::Forward;
        }
        count.fetch_add(1, Ordering::Relaxed);
        fitting[random.usize(..fitting.len())].fate()
    });
    (proxy, injected)
}
