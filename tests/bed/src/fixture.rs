//! A table with every kind of row in every relevant state, each with its expected fate.
//!
//! The fates are written by hand from docs/rows.md, not computed by the code under test.

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use shared::bucket::{DELETED_OWNER, OAUTH_OWNER, SYSTEM_OWNER};
use shared::pyjson::dumps;

/// What a correct cleanup does with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Kept,
    Deleted,
}
use Fate::{Deleted, Kept};

/// One row to write.
#[derive(Clone, Debug)]
pub struct Specimen {
    pub owner: String,
    pub bucket: String,
    pub name: String,
    pub data: Option<AttributeValue>,
    pub ttl: Option<AttributeValue>,
    pub fate: Fate,
}

const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;
/// The hour that ActingWeb adds to every storage TTL.
const SKEW: i64 = HOUR;
const REUSE_WINDOW: i64 = 2 * DAY;
/// How long a row that is dead by its own fields is kept: the application's clock may be behind.
const SLACK: i64 = 300;

/// Every kind of row, `copies` times under different names, as of `now`. The same seed gives the same table.
pub fn all_kinds(now: i64, copies: usize, seed: u64) -> Vec<Specimen> {
    let mut table = Table { now, rows: Vec::new(), random: fastrand::Rng::with_seed(seed), actor: String::new() };
    for copy in 0..copies {
        table.actor = format!("{:032x}", table.random.u128(..));
        for (sessions, generation) in [("oauth_sessions", Generation::Old), ("_oauth_sessions", Generation::New)] {
            table.sessions(sessions);
            table.mcp(generation, copy);
        }
        table.spa();
        table.newer_buckets();
        table.foreign();
    }
    table.rows
}

/// Only rows whose fate does not depend on the second in which they are judged: rows that are dead at `now`, and rows that
/// are still alive a day later.
pub fn settled(now: i64, copies: usize, seed: u64) -> Vec<Specimen> {
    let dead = all_kinds(now, copies, seed).into_iter().filter(|row| row.fate == Deleted);
    let alive = all_kinds(now + DAY, copies, !seed).into_iter().filter(|row| row.fate == Kept);
    dead.chain(alive).collect()
}

/// Which releases' bucket names an index row has.
#[derive(Clone, Copy)]
enum Generation {
    Old,
    New,
}

impl Generation {
    fn bucket(self, name: &str) -> String {
        match self {
            Generation::Old => name.to_owned(),
            Generation::New => format!("_{name}"),
        }
    }
}

struct Table {
    now: i64,
    rows: Vec<Specimen>,
    random: fastrand::Rng,
    actor: String,
}

const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Table {
    fn token(&mut self, prefix: &str, length: usize) -> String {
        let random = (0..length).map(|_| char::from(URL_SAFE[self.random.usize(..64)]));
        prefix.chars().chain(random).collect()
    }

    fn hex(&mut self, length: usize) -> String {
        (0..length).map(|_| char::from(b"0123456789abcdef"[self.random.usize(..16)])).collect()
    }

    fn put(&mut self, owner: &str, bucket: &str, name: &str, data: &str, ttl: Option<i64>, fate: Fate) {
        self.rows.push(Specimen {
            owner: owner.to_owned(),
            bucket: bucket.to_owned(),
            name: name.to_owned(),
            data: Some(AttributeValue::S(data.to_owned())),
            ttl: ttl.map(|at| AttributeValue::N(at.to_string())),
            fate,
        });
    }

    /// Replaces the TTL attribute of the last row, for example by one that is not a number.
    fn with_ttl(&mut self, ttl: AttributeValue) {
        if let Some(row) = self.rows.last_mut() {
            row.ttl = Some(ttl);
        }
    }

    fn sessions(&mut self, bucket: &str) {
        let now = self.now;
        let past = Some(now - 1);
        let with_ttl = |created: i64| Some(created + 600 + SKEW);
        for (created, ttl, fate) in [
            (now - 60, with_ttl(now - 60), Kept),
            // Inside the slack: kept.
            (now - 600 - SLACK, with_ttl(now - 600 - SLACK), Kept),
            (now - 601 - SLACK, with_ttl(now - 601 - SLACK), Deleted),
            (now - 30 * DAY, with_ttl(now - 30 * DAY), Deleted),
            // Written before 3.7.4, which gave rows no TTL.
            (now - 400 * DAY, None, Deleted),
            // Written by a server whose clock is an hour ahead.
            (now + HOUR, with_ttl(now + HOUR), Kept),
            // A deployment with longer sessions than the library's default: alive by its own field.
            (now - 60, past, Kept),
        ] {
            let name = self.token("", 43);
            let secret = self.token("ya29.", 40);
            let data = json!({
                "token_data": {"access_token": secret, "refresh_token": self.token("1//", 40)},
                "user_info": {"email": format!("{}@example.com", &name[..10].to_lowercase()), "name": "Zo\u{eb}"},
                "state": "", "provider": "google", "created_at": created,
            });
            self.put(OAUTH_OWNER, bucket, &name, &dumps(&data), ttl, fate);
        }
        for (data, ttl, fate) in [
            ("{\"token_data\": {}}", with_ttl(now - 60), Kept),
            ("{\"created_at\": \"yesterday\"}", None, Kept),
            ("not json", with_ttl(now), Kept),
            ("not json", past, Deleted),
            ("[1, 2]", past, Deleted),
        ] {
            let name = self.token("", 43);
            self.put(OAUTH_OWNER, bucket, &name, data, ttl, fate);
        }
    }

    fn spa(&mut self) {
        let now = self.now;
        let email = format!("{}@example.com", self.token("", 8).to_lowercase());
        let actor = self.actor.clone();
        for (expires, ttl, fate) in [
            (now + 1_800, Some(now + 1_800 + SKEW), Kept),
            (now - SLACK, Some(now - SLACK + SKEW), Kept),
            (now - SLACK - 1, Some(now - SLACK - 1 + SKEW), Deleted),
            (now - DAY, Some(now - DAY + SKEW), Deleted),
            (now - 200 * DAY, None, Deleted),
            (now + 10 * DAY, Some(now - 5), Kept),
        ] {
            let name = self.hex(40);
            let data = json!({"actor_id": actor, "identifier": email, "created_at": expires - HOUR, "expires_at": expires,
                "chain_id": "c1"});
            self.put(OAUTH_OWNER, "spa_access_tokens", &name, &dumps(&data), ttl, fate);
        }
        // TTLs that DynamoDB never acts on decide nothing.
        for (ttl, expires, fate) in [
            (AttributeValue::N(format!("{now}000")), now + HOUR, Kept),
            (AttributeValue::N(format!("{now}000")), now - HOUR, Deleted),
            (AttributeValue::S((now - 5).to_string()), now + HOUR, Kept),
            (AttributeValue::N("0".to_owned()), now + HOUR, Kept),
            (AttributeValue::N((now - 6 * 366 * DAY).to_string()), now + HOUR, Kept),
        ] {
            let name = self.hex(40);
            let data = json!({"actor_id": actor, "created_at": now - HOUR, "expires_at": expires});
            self.put(OAUTH_OWNER, "spa_access_tokens", &name, &dumps(&data), None, fate);
            self.with_ttl(ttl);
        }
        self.refresh_rows(|table, data, ttl, fate, _| {
            let name = table.token("", 64);
            table.put(OAUTH_OWNER, "spa_refresh_tokens", &name, &dumps(&data), ttl, fate);
        });
    }

    /// Refresh rows in every state, for SPA and MCP: `put` writes one. Its last argument is the TTL of the index row that
    /// is written with it.
    fn refresh_rows(&mut self, mut put: impl FnMut(&mut Table, Value, Option<i64>, Fate, Option<i64>)) {
        let now = self.now;
        let actor = self.actor.clone();
        let unused = |expires: i64| json!({"actor_id": actor, "created_at": expires - 14 * DAY, "expires_at": expires, "used": false});
        let used = |used_at: i64, expires: i64| {
            json!({"actor_id": actor, "created_at": expires - 14 * DAY, "expires_at": expires, "used": true,
                "used_at": used_at, "consume_id": "0011223344556677"})
        };
        let after = |at: i64| Some(at + SKEW);
        let index = |at: i64| Some(at + 3 * HOUR);
        let window = REUSE_WINDOW;
        let ended = now - window - SLACK;
        let cases = [
            (unused(now + 5 * DAY), after(now + 5 * DAY), Kept, index(now + 5 * DAY)),
            (unused(now - SLACK), after(now - SLACK), Kept, index(now - SLACK)),
            (unused(now - SLACK - 1), after(now - SLACK - 1), Deleted, index(now - SLACK - 1)),
            (unused(now - 90 * DAY), None, Deleted, None),
            // The tripwire: consumed, and still inside the window in which its reuse reveals theft.
            (used(now - DAY, now + 9 * DAY), after(now - DAY + window), Kept, index(now - DAY + window)),
            (used(ended, now - DAY), None, Kept, None),
            // Past the window and expired; past the window only; expired only.
            (used(ended - 1, now - SLACK - 1), None, Deleted, None),
            (used(ended - 1, now - SLACK), None, Kept, None),
            (used(ended, now - SLACK - 1), None, Kept, None),
            // Its TTL has passed: an hour more than the window.
            (used(now - window - 2 * HOUR, now + 5 * DAY), after(now - 2 * HOUR), Deleted, index(now - 2 * HOUR)),
            // Used at an unknown time: decided by TTL alone.
            (json!({"actor_id": actor, "expires_at": now - 1, "used": true}), None, Kept, None),
            (json!({"actor_id": actor, "expires_at": now - 1, "used": true}), Some(now - 1), Deleted, Some(now - 1)),
        ];
        for (data, ttl, fate, index_ttl) in cases {
            put(self, data, ttl, fate, index_ttl);
        }
    }

    /// MCP codes, tokens and clients with their index and provider rows.
    fn mcp(&mut self, generation: Generation, copy: usize) {
        let now = self.now;
        let actor = self.actor.clone();
        // Codes live ten minutes, access tokens an hour; both rows of a pair are written together.
        for (kind, life) in [("auth_code", 600), ("access_token", HOUR)] {
            for (age, with_ttl, provider_is_dead) in [
                (life / 2, true, false),
                (life + SLACK, true, false),
                (life + SLACK + 1, true, true),
                (life + 3 * HOUR, true, true),
                (60 * DAY, true, true),
                (500 * DAY, false, true),
            ] {
                let fate = if age > life + SLACK { Deleted } else { Kept };
                let created = now - age;
                let (name, key, bucket) = if kind == "auth_code" {
                    let name = self.token("ac_", 43);
                    (name.clone(), format!("google_token_{name}"), "mcp_auth_codes")
                } else {
                    (self.token("aw_", 43), format!("google_token_access_{}", self.hex(32)), "mcp_tokens")
                };
                let ttl = |seconds: i64| with_ttl.then_some(created + seconds + SKEW);
                let answer = json!({"access_token": self.token("ya29.", 60), "refresh_token": self.token("1//", 60)});
                let provider_fate = if provider_is_dead { Deleted } else { Kept };
                self.put(&actor, "mcp_google_tokens", &key, &dumps(&answer), ttl(HOUR), provider_fate);
                let data = json!({"token": name, "actor_id": actor, "client_id": "mcp_x", "created_at": created,
                    "expires_at": created + life, "google_token_key": key, "used": false});
                self.put(&actor, bucket, &name, &dumps(&data), ttl(life), fate);
                let index = generation.bucket(&format!("{kind}_index"));
                self.put(OAUTH_OWNER, &index, &name, &dumps(&json!(actor)), ttl(life + 2 * HOUR), fate);
            }
        }
        self.shared_provider_row(generation);
        self.refresh_rows(|table, mut data, ttl, fate, index_ttl| {
            let name = table.token("rt_", 43);
            data["token"] = json!(name);
            table.put(&actor, "mcp_refresh_tokens", &name, &dumps(&data), ttl, fate);
            table.put(
                OAUTH_OWNER,
                &generation.bucket("refresh_token_index"),
                &name,
                &dumps(&json!(actor)),
                index_ttl,
                fate,
            );
        });
        self.lone_index_rows(generation, copy);
        self.clients(generation);
    }

    /// An access token that expired half an hour ago and a live refresh token that names the same provider row; and a pair
    /// that is long dead.
    fn shared_provider_row(&mut self, generation: Generation) {
        let (now, actor) = (self.now, self.actor.clone());
        for (created, access, refresh, provider) in
            [(now - 5_400, Deleted, Kept, Kept), (now - 45 * DAY, Deleted, Deleted, Deleted)]
        {
            let key = format!("google_token_access_{}", self.hex(32));
            let (access_name, refresh_name) = (self.token("aw_", 43), self.token("rt_", 43));
            let answer = json!({"refresh_token": self.token("1//", 60)});
            self.put(&actor, "mcp_google_tokens", &key, &dumps(&answer), Some(created + HOUR + SKEW), provider);
            let data = json!({"token": access_name, "actor_id": actor, "created_at": created, "expires_at": created + HOUR,
                "google_token_key": key, "chain_id": "c2"});
            self.put(&actor, "mcp_tokens", &access_name, &dumps(&data), Some(created + HOUR + SKEW), access);
            let data = json!({"token": refresh_name, "actor_id": actor, "access_token": access_name, "chain_id": "c2",
                "google_token_key": key, "used": false, "created_at": created, "expires_at": created + 30 * DAY});
            self.put(
                &actor,
                "mcp_refresh_tokens",
                &refresh_name,
                &dumps(&data),
                Some(created + 30 * DAY + SKEW),
                refresh,
            );
            let pointer = dumps(&json!(actor));
            for (kind, name, life, fate) in [
                ("access_token_index", access_name, HOUR, access),
                ("refresh_token_index", refresh_name, 30 * DAY, refresh),
            ] {
                let ttl = Some(created + life + 2 * HOUR + SKEW);
                self.put(OAUTH_OWNER, &generation.bucket(kind), &name, &pointer, ttl, fate);
            }
        }
    }

    /// Index rows whose target is absent, unreadable or in another bucket.
    fn lone_index_rows(&mut self, generation: Generation, copy: usize) {
        let (now, actor) = (self.now, self.actor.clone());
        let index = generation.bucket("access_token_index");
        let pointer = dumps(&json!(actor));
        for (data, ttl, fate) in [
            (pointer.as_str(), Some(now - 1), Deleted),
            (pointer.as_str(), None, Deleted),
            // Not due: its token would be alive if it had not been revoked. The weekly repair handles these.
            (pointer.as_str(), Some(now + 4 * HOUR), Kept),
            ("{\"no\": \"actor\"}", None, Kept),
            ("not json", Some(now - 1), Kept),
        ] {
            let name = self.token("aw_", 43);
            self.put(OAUTH_OWNER, &index, &name, data, ttl, fate);
        }
        // A row of another bucket under the target's key.
        let name = format!("aw_:{copy}{}", self.token("", 40));
        let (bucket, rest) = name.split_once(':').unwrap_or(("", ""));
        self.put(&actor, &format!("mcp_tokens:{bucket}"), rest, "{\"x\": 1}", Some(now - 1), Kept);
        self.put(OAUTH_OWNER, &index, &name, &pointer, Some(now - 1), Kept);
    }

    fn clients(&mut self, generation: Generation) {
        let actor = self.actor.clone();
        let index = generation.bucket("client_index");
        for (owner, registered) in [(actor.clone(), true), (OAUTH_OWNER.to_owned(), true), (actor, false)] {
            let name = format!("mcp_{}", self.hex(32));
            let fate = if registered { Kept } else { Deleted };
            if registered {
                let record = json!({"client_id": name, "client_secret": self.token("cs_", 43), "created_at": self.now - 900 * DAY});
                self.put(&owner, "mcp_clients", &name, &dumps(&record), None, Kept);
            }
            self.put(OAUTH_OWNER, &index, &name, &dumps(&json!(owner)), None, fate);
        }
    }

    /// Buckets that 3.10 to 3.13 added.
    fn newer_buckets(&mut self) {
        let now = self.now;
        for (exp, ttl, fate) in [
            (now - 60 - SLACK, Some(now + HOUR), Deleted),
            (now - 59 - SLACK, Some(now + HOUR), Kept),
            (now + 600, Some(now + 2 * HOUR), Kept),
            (0, Some(now + HOUR), Kept),
            (0, Some(now - 1), Deleted),
        ] {
            let name = self.hex(64);
            self.put(
                OAUTH_OWNER,
                "_id_token_replay",
                &name,
                &dumps(&json!({"seen_at": now - 300, "exp": exp})),
                ttl,
                fate,
            );
        }
        for (expires, ttl, fate) in [
            (Some(now + 100), Some(now + HOUR), Kept),
            (Some(now - SLACK - 1), Some(now + HOUR), Deleted),
            (None, Some(now + HOUR), Kept),
            (None, Some(now - 1), Deleted),
            (None, None, Kept),
        ] {
            let name = self.token("", 43);
            let mut ticket =
                json!({"code": self.token("", 30), "redirect_uri": "https://app.example.com/cb", "provider": "apple"});
            if let Some(at) = expires {
                ticket["expires_at"] = json!(at);
            }
            self.put(OAUTH_OWNER, "_apple_exchange_tickets", &name, &dumps(&ticket), ttl, fate);
        }
        let payload = dumps(&json!({"state": self.token("", 20)}));
        let actor = self.actor.clone();
        for (ttl, fate) in [(Some(now), Kept), (Some(now - 1), Deleted), (None, Kept)] {
            let (nonce, verify) = (self.token("", 43), self.token("", 43));
            self.put(OAUTH_OWNER, "_oauth_state_nonces", &nonce, &payload, ttl, fate);
            self.put(SYSTEM_OWNER, "_email_verify_tokens", &verify, &dumps(&json!(actor)), ttl, fate);
            let tombstone = self.hex(32);
            self.put(
                DELETED_OWNER,
                "_deleted_actors",
                &tombstone,
                &dumps(&json!({"deleted_at": now - 31 * DAY})),
                ttl,
                fate,
            );
        }
    }

    /// Foreign rows, some of which resemble ours. All of them look long dead.
    fn foreign(&mut self) {
        let (actor, dead) = (self.actor.clone(), self.now - DAY);
        let data = dumps(&json!({"created_at": 1, "expires_at": 1, "used": false}));
        let peer = self.hex(32);
        for (owner, bucket, name) in [
            (actor.as_str(), "_internal", format!("oauth_tokens:{peer}")),
            (actor.as_str(), "trust_permissions", peer.clone()),
            (actor.as_str(), "_peer_profiles", peer.clone()),
            (actor.as_str(), "_callback_state", peer.clone()),
            (actor.as_str(), &format!("remote:{peer}"), "list:notes:1".to_owned()),
            // Our names under other owners.
            (actor.as_str(), "oauth_sessions", self.token("", 43)),
            ("_actingweb_other", "spa_access_tokens", self.hex(40)),
            ("_mcp_system", "access_token_index", self.token("aw_", 43)),
            // Keys with our prefixes in foreign buckets.
            (OAUTH_OWNER, &format!("_oauth_sessions:{peer}"), "x".to_owned()),
            (OAUTH_OWNER, &format!("spa_refresh_tokens:{peer}"), "y".to_owned()),
            (OAUTH_OWNER, &format!("_access_token_index:{peer}"), "z".to_owned()),
            (OAUTH_OWNER, &format!("_oauth_sessions_archive_{peer}"), "x".to_owned()),
        ] {
            self.put(owner, bucket, &name, &data, Some(dead), Kept);
        }
    }
}
