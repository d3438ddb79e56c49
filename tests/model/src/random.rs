//! Random tables: rows of the library at every age, some missing or malformed. Needs no engine.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};
use shared::pyjson::dumps;

use crate::{ModelRow, ModelTtl};

const OAUTH: &str = "_actingweb_oauth2";
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

/// A random table as of `now`; the same seed gives the same table.
#[must_use]
pub fn random_table(seed: u64, now: i64) -> Vec<ModelRow> {
    let mut table = Random { random: fastrand::Rng::with_seed(seed), now, rows: Vec::new(), serial: 0 };
    let actors: Vec<String> = (0..table.random.usize(1..4)).map(|i| format!("actor{i}")).collect();
    for _ in 0..table.random.usize(1..40) {
        let actor = actors[table.random.usize(..actors.len())].clone();
        match table.random.u8(..10) {
            0 | 1 => table.session(),
            2 | 3 => table.spa(),
            4 => table.newer(),
            5 => table.code(&actor),
            6..=8 => table.tokens(&actor),
            _ => table.foreign(&actor),
        }
    }
    table.rows
}

/// Members of `data` that are secret; the names of rows are too.
pub const SECRET_MEMBERS: [&str; 4] = ["access_token", "refresh_token", "email", "identifier"];

/// A unique provider secret, derived from the row's name so that it does not change the random sequence.
fn secret_of(name: &str) -> String {
    format!("1//{:016x}", hashed(name))
}

fn email_of(name: &str) -> String {
    format!("{:016x}@mail.example.org", hashed(name))
}

fn hashed(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

struct Random {
    random: fastrand::Rng,
    now: i64,
    rows: Vec<ModelRow>,
    serial: u32,
}

impl Random {
    fn name(&mut self, prefix: &str) -> String {
        self.serial += 1;
        format!("{prefix}{:08x}{:04}", self.random.u32(..), self.serial)
    }

    /// An age near the end of a life: long dead, just dead, inside the slack, this second, just alive, fresh, in the future.
    fn age(&mut self, life: i64) -> i64 {
        match self.random.u8(..10) {
            0 => life + 40 * DAY,
            1 => life + 5 * HOUR,
            2 => life + 1 + [0, 300][self.random.usize(..2)],
            7 => life + 300,
            8 => life + 361,
            3 => life,
            4 => life - 1,
            5 => life / 2,
            6 => -HOUR,
            _ => self.random.i64(0..life + 3 * DAY),
        }
    }

    fn generation(&mut self, bucket: &str) -> String {
        if self.random.bool() { bucket.to_owned() } else { format!("_{bucket}") }
    }

    /// The TTL that the library sets, or sometimes none or a malformed one.
    fn ttl(&mut self, created: i64, storage: i64) -> ModelTtl {
        let at = created + storage + HOUR;
        match self.random.u8(..12) {
            0 | 1 => ModelTtl::Absent,
            2 => ModelTtl::Number(at * 1_000),
            3 => ModelTtl::Text(at.to_string()),
            4 => ModelTtl::Number([0, -1, self.now - 6 * 366 * DAY][self.random.usize(..3)]),
            5 => ModelTtl::Number(self.now + self.random.i64(-1..2)),
            _ => ModelTtl::Number(at),
        }
    }

    fn put(&mut self, owner: &str, bucket: &str, name: &str, data: Option<String>, ttl: ModelTtl) {
        self.rows.push(ModelRow {
            owner: owner.to_owned(),
            bucket: bucket.to_owned(),
            name: name.to_owned(),
            data,
            ttl,
        });
    }

    /// The text of `value`, or sometimes an unreadable one.
    fn text(&mut self, value: &Value) -> Option<String> {
        match self.random.u8(..20) {
            0 => None,
            1 => Some("not json".to_owned()),
            2 => Some("[1, 1, 1, true, 1]".to_owned()),
            3 => Some("{\"expires_at\": \"1\", \"created_at\": 1.5}".to_owned()),
            _ => Some(dumps(value)),
        }
    }

    fn session(&mut self) {
        let created = self.now - self.age(600);
        let (bucket, name, ttl) = (self.generation("oauth_sessions"), self.name("s"), self.ttl(created, 600));
        let token = json!({"access_token": secret_of(&name)});
        let data = self.text(&json!({"token_data": token, "email": email_of(&name), "created_at": created}));
        self.put(OAUTH, &bucket, &name, data, ttl);
    }

    fn refresh_fields(&mut self, life: i64) -> (i64, Value) {
        let created = self.now - self.age(life);
        let mut fields = json!({"created_at": created, "expires_at": created + life, "used": false});
        match self.random.u8(..6) {
            0..=2 => {}
            3 => {
                fields["used"] = json!(true);
            }
            _ => {
                fields["used"] = json!(true);
                fields["used_at"] = json!(self.now - self.age(172_800));
            }
        }
        (created, fields)
    }

    fn spa(&mut self) {
        if self.random.bool() {
            let created = self.now - self.age(HOUR);
            let (name, ttl) = (self.name("a"), self.ttl(created, HOUR));
            let data = self.text(&json!({"actor_id": "x", "identifier": email_of(&name), "created_at": created,
                "expires_at": created + HOUR}));
            self.put(OAUTH, "spa_access_tokens", &name, data, ttl);
        } else {
            let (created, fields) = self.refresh_fields(14 * DAY);
            let (name, ttl) = (self.name("r"), self.ttl(created, 14 * DAY));
            let data = self.text(&fields);
            self.put(OAUTH, "spa_refresh_tokens", &name, data, ttl);
        }
    }

    fn newer(&mut self) {
        let created = self.now - self.age(300);
        let name = self.name("n");
        let (owner, bucket, storage, value) = match self.random.u8(..5) {
            0 => {
                let exp = if self.random.bool() { 0 } else { created + 240 };
                (OAUTH, "_id_token_replay", 900, json!({"seen_at": created, "exp": exp}))
            }
            1 => (OAUTH, "_oauth_state_nonces", 600, json!({"state": "s"})),
            2 if self.random.bool() => (OAUTH, "_apple_exchange_tickets", 300, json!({"code": "c"})),
            2 => (OAUTH, "_apple_exchange_tickets", 300, json!({"code": "c", "expires_at": created + 300})),
            3 => ("_actingweb_system", "_email_verify_tokens", DAY, json!("actor0")),
            _ => ("_actingweb_deleted", "_deleted_actors", 30 * DAY, json!({"deleted_at": created})),
        };
        let (data, ttl) = (self.text(&value), self.ttl(created, storage));
        self.put(owner, bucket, &name, data, ttl);
    }

    fn code(&mut self, actor: &str) {
        let created = self.now - self.age(600);
        let name = self.name("ac_");
        let key = format!("google_token_{name}");
        self.provider(actor, &key, created);
        let data = json!({"code": name, "actor_id": actor, "google_token_key": key, "created_at": created,
            "expires_at": created + 600, "used": self.random.u8(..8) == 0});
        self.token_row(actor, "mcp_auth_codes", &name, &data, created, 600);
        self.index_row(actor, "auth_code_index", &name, created, 600);
    }

    /// An access token and, sometimes, the refresh token that was issued with it and names the same provider row.
    fn tokens(&mut self, actor: &str) {
        let life = if self.random.bool() { HOUR } else { 30 * DAY };
        let created = self.now - self.age(life);
        let (access, refresh) = (self.name("aw_"), self.name("rt_"));
        let key = format!("google_token_access_{}", self.name(""));
        let with_provider = self.random.u8(..3) > 0;
        if with_provider {
            self.provider(actor, &key, created);
        }
        let google = if with_provider { json!(key) } else { Value::Null };
        if self.random.u8(..6) > 0 {
            let data = json!({"token": access, "actor_id": actor, "created_at": created, "expires_at": created + HOUR,
                "google_token_key": google});
            self.token_row(actor, "mcp_tokens", &access, &data, created, HOUR);
            self.index_row(actor, "access_token_index", &access, created, HOUR);
        }
        if self.random.bool() {
            let mut data = json!({"token": refresh, "actor_id": actor, "access_token": access, "google_token_key": google,
                "used": false, "created_at": created, "expires_at": created + 30 * DAY});
            if self.random.u8(..3) == 0 && created < self.now - 4 * DAY {
                data["used"] = json!(true);
                data["used_at"] = json!((self.now - self.age(172_800)).max(created));
            }
            self.token_row(actor, "mcp_refresh_tokens", &refresh, &data, created, 30 * DAY);
            self.index_row(actor, "refresh_token_index", &refresh, created, 30 * DAY);
        }
        if self.random.u8(..4) == 0 {
            let client = self.name("mcp_");
            if self.random.bool() {
                self.put(actor, "mcp_clients", &client, Some(dumps(&json!({"client_id": client}))), ModelTtl::Absent);
            }
            let bucket = self.generation("client_index");
            self.put(OAUTH, &bucket, &client, Some(dumps(&json!(actor))), ModelTtl::Absent);
        }
    }

    fn provider(&mut self, actor: &str, key: &str, created: i64) {
        if self.random.u8(..10) > 0 {
            let ttl = if self.random.u8(..6) == 0 { ModelTtl::Absent } else { ModelTtl::Number(created + 2 * HOUR) };
            let answer = json!({"refresh_token": secret_of(key), "email": email_of(key)});
            self.put(actor, "mcp_google_tokens", key, Some(dumps(&answer)), ttl);
        }
    }

    /// Sometimes the row is missing: its actor was deleted, or TTL removed it.
    fn token_row(&mut self, actor: &str, bucket: &str, name: &str, data: &Value, created: i64, life: i64) {
        if self.random.u8(..8) > 0 {
            let ttl = if self.random.u8(..6) == 0 { ModelTtl::Absent } else { ModelTtl::Number(created + life + HOUR) };
            self.put(actor, bucket, name, Some(dumps(data)), ttl);
        }
    }

    /// Sometimes the row is missing: the token was revoked. Sometimes there is one per generation.
    fn index_row(&mut self, actor: &str, bucket: &str, name: &str, created: i64, life: i64) {
        let pointer = match self.random.u8(..24) {
            0 => "{}".to_owned(),
            _ => dumps(&json!(actor)),
        };
        let ttl = match self.random.u8(..6) {
            0 => ModelTtl::Absent,
            _ => ModelTtl::Number(created + life + 3 * HOUR),
        };
        let both = self.random.u8(..12) == 0;
        for (generation, bucket) in [bucket.to_owned(), format!("_{bucket}")].into_iter().enumerate() {
            if both || self.random.bool() == (generation == 0) {
                self.put(OAUTH, &bucket, name, Some(pointer.clone()), ttl.clone());
            }
        }
    }

    fn foreign(&mut self, actor: &str) {
        let name = self.name("x");
        let dead = ModelTtl::Number(self.now - DAY);
        let data = Some(dumps(&json!({"created_at": 1, "expires_at": 1})));
        let (owner, bucket) = match self.random.u8(..5) {
            0 => (actor, "_internal".to_owned()),
            1 => (actor, "remote:peer".to_owned()),
            2 => (OAUTH, "_oauth_sessions:peer".to_owned()),
            3 => (OAUTH, "access_token_index:peer".to_owned()),
            _ => ("_actingweb_other", "spa_access_tokens".to_owned()),
        };
        self.put(owner, &bucket, &name, data, dead);
    }
}
