//! Malformed rows: every kind of row that the library writes, with a defect that no library writes.
//!
//! The same seed gives the same table. Every name and every text contains [`SECRET`], which must not appear in any output.

mod values;

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use shared::bucket::{BUCKETS, Bucket, OAUTH_OWNER, Owner, Rule};
use shared::index;
use shared::pyjson::dumps;
use values::{number, text};

use crate::items::{Item, key};
use model::Key;

/// In every name and text, after more characters than a mask shows.
pub const SECRET: &str = "-test-secret-";

/// State of a row before the defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Alive,
    Dead,
    /// Alive by its own fields, and past its TTL.
    Lapsed,
}

const STATES: [State; 3] = [State::Alive, State::Dead, State::Lapsed];

/// One defect of a row.
#[derive(Clone, Debug)]
enum Twist {
    None,
    Set(&'static str, Option<AttributeValue>),
    /// The nth malformed text of its kind of row.
    Text(usize),
    Name(String),
    Owner(String),
    /// Another bucket, in the attribute only or also in the key.
    Bucket(String, bool),
}

struct Builder {
    random: fastrand::Rng,
    now: i64,
    serial: u64,
    actor: String,
    items: BTreeMap<Key, Item>,
}

/// At least `rows` rows as of `now`; `huge` of them about as large as an item can be. If `rows` is too small for every
/// combination of bucket, defect and state, a random sample of them.
#[must_use]
pub fn malformed_rows(seed: u64, now: i64, rows: usize, huge: usize) -> Vec<Item> {
    let random = fastrand::Rng::with_seed(seed);
    let mut builder = Builder { random, now, serial: 0, actor: String::new(), items: BTreeMap::new() };
    let mut all: Vec<(&Bucket, Twist, State)> = Vec::new();
    for bucket in &BUCKETS {
        for twist in builder.twists(bucket) {
            all.extend(STATES.map(|state| (bucket, twist.clone(), state)));
        }
    }
    builder.random.shuffle(&mut all);
    for (bucket, twist, state) in all {
        if builder.items.len() >= rows {
            break;
        }
        // Well-formed rows in between.
        if builder.random.u8(..5) == 0 {
            let (bucket, state) = (&BUCKETS[builder.random.usize(..BUCKETS.len())], STATES[builder.random.usize(..3)]);
            builder.scene(bucket, state, &Twist::None);
        }
        if builder.random.u8(..8) == 0 {
            builder.grant();
        }
        builder.scene(bucket, state, &twist);
    }
    for i in 0..huge {
        builder.huge(&BUCKETS[i % BUCKETS.len()]);
    }
    while builder.items.len() < rows {
        builder.grant();
    }
    builder.items.into_values().collect()
}

/// Values that the `data` of a state row should not have: every type, and texts that are empty or malformed.
#[must_use]
pub fn strange_data() -> Vec<Option<AttributeValue>> {
    let texts =
        ["null", "[]", "{}", "{\"seen\": []}", "{\"until\": 1e400}", "{\"cursor\": {\"step\": 1}}", "\u{feff}{}"];
    let deep = values::deep("[", "]", 100_000);
    let all = values::of_every_type().into_iter().chain(texts.map(text)).chain([text(deep)]);
    all.map(Some).chain([None]).collect()
}

impl Builder {
    fn twists(&mut self, bucket: &Bucket) -> Vec<Twist> {
        let mut all = vec![Twist::None];
        for attribute in ["bucket", "name", "data", "timestamp", "ttl_timestamp"] {
            all.push(Twist::Set(attribute, None));
            all.extend(values::of_every_type().into_iter().map(|value| Twist::Set(attribute, Some(value))));
        }
        all.extend(values::ttls(self.now).into_iter().map(|ttl| Twist::Set("ttl_timestamp", Some(ttl))));
        all.extend((0..self.texts(bucket, "x", State::Alive).len()).map(Twist::Text));
        all.extend(values::names().into_iter().map(Twist::Name));
        all.extend(values::owners().into_iter().map(Twist::Owner));
        let others = [
            format!("{}:x", bucket.name),
            format!("{}2", bucket.name),
            format!("{}:", bucket.name),
            format!("{} ", bucket.name),
            format!("_{}", bucket.name),
            bucket.name.to_uppercase(),
            "mcp_tokens:x".to_owned(),
            "_oauth_sessions:peer".to_owned(),
            "mcp_tokens2".to_owned(),
            "remote:peer".to_owned(),
            "_internal".to_owned(),
            "\u{202e}\u{1b}[31m".to_owned(),
            ":".to_owned(),
        ];
        let known = BUCKETS.iter().map(|other| other.name.to_owned());
        all.extend(
            others
                .into_iter()
                .chain(known)
                .flat_map(|other| [Twist::Bucket(other.clone(), false), Twist::Bucket(other, true)]),
        );
        all
    }

    fn name(&mut self, prefix: &str) -> String {
        self.serial += 1;
        format!("{prefix}{:06x}{SECRET}{:08x}", self.serial, self.random.u32(..))
    }

    /// Creation time of a row in this state that lives `life` seconds; sometimes exactly at the boundary.
    fn created(&mut self, life: i64, state: State) -> i64 {
        let age = match (state, self.random.u8(..4)) {
            (State::Dead, 0) => life + 301,
            (State::Dead, 1) => life + 40 * 86_400,
            (State::Dead, _) => life + 5 * 3_600,
            (_, 0) => life + 300,
            (_, 1) => 0,
            (_, 2) => -3_600,
            _ => life / 2,
        };
        self.now - age
    }

    fn ttl(&mut self, created: i64, storage: Option<i64>, state: State) -> Option<AttributeValue> {
        let at = match state {
            State::Lapsed => self.now - 1 - self.random.i64(0..86_400),
            State::Alive | State::Dead => created + storage? + 3_600,
        };
        (self.random.u8(..5) > 0).then(|| number(at))
    }

    /// Creation time and `data` of a row of the bucket, and the field that decides when it expires.
    fn object(&mut self, bucket: &Bucket, name: &str, state: State) -> (i64, Value, &'static str) {
        let life = match bucket.rule {
            Rule::SinceCreated { seconds } => seconds,
            _ => bucket.ttl.unwrap_or(3_600),
        };
        let created = self.created(life, state);
        let (actor, secret) = (self.actor.clone(), self.name("secret"));
        let mut object = json!({"token": name, "actor_id": actor, "client_secret": secret, "created_at": created});
        let field = match bucket.rule {
            Rule::SinceCreated { .. } => "created_at",
            Rule::ReplayMarker { seconds } => {
                object["exp"] = json!(if self.random.u8(..6) == 0 { 0 } else { created + life - seconds - 1 });
                "exp"
            }
            _ => {
                object["expires_at"] = json!(created + life);
                "expires_at"
            }
        };
        if bucket.rule == Rule::Refresh {
            let used = self.random.u8(..3) == 0;
            object["used"] = json!(used);
            if used && self.random.u8(..4) > 0 {
                object["used_at"] = json!(self.created(172_800, state));
            }
        }
        (created, object, field)
    }

    fn texts(&mut self, bucket: &Bucket, name: &str, state: State) -> Vec<String> {
        let (_, object, field) = self.object(bucket, name, state);
        match bucket.rule {
            Rule::Pointer { .. } | Rule::Unread => values::pointers(&self.actor),
            _ => values::texts(&object, field, self.now + 600, self.now - 100_000),
        }
    }

    fn put(&mut self, owner: &str, bucket: &Bucket, name: &str, data: &Value, ttl: Option<AttributeValue>) -> Key {
        let mut item: Item = [
            ("id", text(owner)),
            ("bucket_name", text(bucket.sort_key(name))),
            ("bucket", text(bucket.name)),
            ("name", text(name)),
            ("data", text(dumps(data))),
        ]
        .map(|(attribute, value)| (attribute.to_owned(), value))
        .into();
        item.extend(ttl.map(|ttl| ("ttl_timestamp".to_owned(), ttl)));
        let at = key(&item);
        self.items.insert(at.clone(), item);
        at
    }

    /// A row of the bucket with the defect, and its related rows.
    fn scene(&mut self, bucket: &'static Bucket, state: State, twist: &Twist) {
        if self.actor.is_empty() || self.random.u8(..4) > 0 {
            self.actor = format!("{:032x}", self.random.u128(..));
        }
        let at = match bucket.owner {
            Owner::System(_) | Owner::Legacy if !matches!(bucket.rule, Rule::Pointer { .. }) => {
                let (owner, name) =
                    (if let Owner::System(owner) = bucket.owner { owner } else { "_mcp_system" }, self.name("s"));
                let (created, object, _) = self.object(bucket, &name, state);
                let ttl = self.ttl(created, bucket.ttl, state);
                self.put(owner, bucket, &name, &object, ttl)
            }
            _ => self.chain(bucket, state),
        };
        self.twist(bucket, at, state, twist);
    }

    /// A token or client with its index rows and its provider row, some of them missing. Returns the key of the row of `bucket`.
    fn chain(&mut self, bucket: &'static Bucket, state: State) -> Key {
        let target = match bucket.rule {
            Rule::Pointer { target } => shared::bucket::of_actor(target).expect("a bucket of the actors"),
            Rule::Provider => shared::bucket::of_actor("mcp_tokens").expect("a bucket of the actors"),
            _ => bucket,
        };
        let owner = if self.random.u8(..12) == 0 { OAUTH_OWNER.to_owned() } else { self.actor.clone() };
        let name = self.name("aw_");
        let (created, mut object, _) = self.object(target, &name, state);
        let with_provider = bucket.rule == Rule::Provider || self.random.u8(..3) == 0;
        let mut at = None;
        if with_provider {
            let key = self.name("google_token_");
            let provider_state = if self.random.bool() { state } else { State::Alive };
            let ttl = self.ttl(created, Some(3_600), provider_state);
            let secret = json!({"refresh_token": self.name("r"), "expires_in": 3_599});
            let provider = self.put(&owner, shared::bucket::provider(), &key, &secret, ttl);
            if self.random.u8(..8) > 0 {
                object["google_token_key"] = json!(key);
            }
            at = (bucket.rule == Rule::Provider).then_some(provider);
        }
        if target == bucket || self.random.u8(..6) > 0 {
            let ttl = self.ttl(created, target.ttl, state);
            let token = self.put(&owner, target, &name, &object, ttl);
            at = at.or((target == bucket).then_some(token));
        }
        for index in index::pointing_at(target) {
            if index == bucket || self.random.u8(..3) > 0 {
                let ttl = self.ttl(created, index.ttl, state);
                let row = self.put(OAUTH_OWNER, index, &name, &json!(owner), ttl);
                at = at.or((index == bucket).then_some(row));
            }
        }
        at.expect("the bucket's own row is always written")
    }

    fn twist(&mut self, bucket: &'static Bucket, at: Key, state: State, twist: &Twist) {
        let mut item = self.items.remove(&at).expect("the row was just written");
        let name = item["name"].as_s().cloned().unwrap_or_default();
        match twist {
            Twist::None => {}
            Twist::Set(attribute, None) => drop(item.remove(*attribute)),
            Twist::Set(attribute, Some(value)) => drop(item.insert((*attribute).to_owned(), value.clone())),
            Twist::Text(n) => {
                let texts = self.texts(bucket, &name, state);
                item.insert("data".to_owned(), text(texts[n % texts.len()].clone()));
            }
            Twist::Name(odd) => {
                item.insert("bucket_name".to_owned(), text(bucket.sort_key(&format!("{odd}{name}"))));
            }
            Twist::Owner(owner) => drop(item.insert("id".to_owned(), text(owner.clone()))),
            Twist::Bucket(other, in_key) => {
                item.insert("bucket".to_owned(), text(other.clone()));
                if *in_key {
                    item.insert("bucket_name".to_owned(), text(format!("{other}:{name}")));
                }
            }
        }
        self.items.insert(key(&item), item);
    }

    /// An access token and the refresh token that was issued with it, and provider rows that both or only one of them names;
    /// at most two rows have a defect.
    fn grant(&mut self) {
        self.actor = format!("{:032x}", self.random.u128(..));
        let actor = if self.random.u8(..12) == 0 { OAUTH_OWNER.to_owned() } else { self.actor.clone() };
        let of = |name: &str| shared::bucket::of_actor(name).expect("a bucket of the actors");
        let names: Vec<String> = (0..2).map(|_| self.name("google_token_access_")).collect();
        let mut rows: Vec<(&'static Bucket, Key)> = Vec::new();
        for name in &names {
            if self.random.u8(..4) > 0 {
                let ttl = self.random.bool().then(|| number(self.now + self.random.i64(-7_200..7_200)));
                let secret = json!({"refresh_token": self.name("r")});
                rows.push((
                    shared::bucket::provider(),
                    self.put(&actor, shared::bucket::provider(), name, &secret, ttl),
                ));
            }
        }
        let access = self.name("aw_");
        for (bucket, name) in [(of("mcp_tokens"), access.clone()), (of("mcp_refresh_tokens"), self.name("rt_"))] {
            let state = STATES[self.random.usize(..3)];
            let (created, mut object, _) = self.object(bucket, &name, state);
            object["google_token_key"] = json!(names[self.random.usize(..2)]);
            if bucket.name == "mcp_refresh_tokens" {
                object["access_token"] = json!(access);
            }
            let ttl = self.ttl(created, bucket.ttl, state);
            rows.push((bucket, self.put(&actor, bucket, &name, &object, ttl)));
            for index in index::pointing_at(bucket) {
                if self.random.bool() {
                    let ttl = self.ttl(created, index.ttl, state);
                    rows.push((index, self.put(OAUTH_OWNER, index, &name, &json!(actor), ttl)));
                }
            }
        }
        for _ in 0..self.random.usize(..3) {
            let (bucket, at) = rows.swap_remove(self.random.usize(..rows.len()));
            let twists = self.twists(bucket);
            let (twist, state) = (&twists[self.random.usize(..twists.len())], STATES[self.random.usize(..3)]);
            self.twist(bucket, at, state, twist);
            if rows.is_empty() {
                break;
            }
        }
    }

    /// A row close to DynamoDB's size limit, by its text, its name attribute or an attribute that the library never writes.
    fn huge(&mut self, bucket: &'static Bucket) {
        let filler = "\u{fe0f}x".repeat(96_000);
        let state = if self.random.bool() { State::Lapsed } else { State::Dead };
        let twist = match self.random.u8(..3) {
            0 => Twist::Set("name", Some(text(filler))),
            1 => Twist::Set("timestamp", Some(text(filler))),
            _ => {
                Twist::Set("data", Some(text(format!("{{\"x\": \"{filler}\", \"expires_at\": 1, \"created_at\": 1}}"))))
            }
        };
        self.scene(bucket, state, &twist);
    }
}
