//! Malformed rows must not stop a run, cause the deletion of a live row, or reach a terminal unescaped.
//!
//! The oracle is Python (`tests/python/oracle.py`): a row means what the writer's own JSON reader reads.

use bed::Invocations as _;
use std::collections::{BTreeMap, BTreeSet};

use bed::Testbed;
use bed::attack::{Figures, amount, seed};
use bed::engine::{EngineKind, shared as engine};
use bed::items::{self, Item, OracleVerdict, judge};
use bed::janitor::{Ended, janitor};
use bed::malformed_rows::{SECRET, malformed_rows, strange_data};
use bed::proxy::{Fate, Proxy, with_ttl_on};
use bed::tables::{random_table, specimens};
use jobs::run::report::{Outcome, RunReport};
use model::rows::NOW;
use model::{Key, ModelRow, daily_cleanup, index_repair};
use serde_json::json;
use shared::bucket::JANITOR_OWNER;
use shared::time::EpochSeconds;

/// The rows of a random table, one per key.
fn written(rows: &[ModelRow]) -> Vec<ModelRow> {
    let by_key: BTreeMap<Key, &ModelRow> = rows.iter().map(|row| (row.key(), row)).collect();
    by_key.into_values().cloned().collect()
}

fn items(rows: &[ModelRow]) -> BTreeMap<Key, String> {
    let item = |row: bed::fixture::Specimen| -> Item {
        let text = |text: &str| aws_sdk_dynamodb::types::AttributeValue::S(text.to_owned());
        let sort = format!("{}:{}", row.bucket, row.name);
        let fixed = [("id", text(&row.owner)), ("bucket_name", text(&sort)), ("bucket", text(&row.bucket))];
        let more = [("data", row.data), ("ttl_timestamp", row.ttl)];
        let more = more.into_iter().filter_map(|(name, value)| Some((name, value?)));
        fixed.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value)).collect()
    };
    specimens(rows).into_iter().map(item).map(|item| (items::key(&item), items::line(&item))).collect()
}

#[test]
fn the_oracle_agrees_with_the_model() {
    let tables: Vec<Vec<ModelRow>> = (0..400).map(|seed| written(&random_table(seed, NOW))).collect();
    let lines: Vec<BTreeMap<Key, String>> = tables.iter().map(|rows| items(rows)).collect();
    let sentences = judge(&lines.iter().collect::<Vec<_>>(), NOW);
    assert_eq!(sentences.len(), tables.len());
    let mut dead = 0;
    for (seed, (rows, sentence)) in tables.iter().zip(sentences).enumerate() {
        let daily = daily_cleanup(rows, NOW);
        let left: Vec<ModelRow> = rows.iter().filter(|row| !daily.contains(&row.key())).cloned().collect();
        assert_eq!(sentence.daily, daily, "seed {seed}: the daily run");
        assert_eq!(sentence.repair, index_repair(&left, NOW), "seed {seed}: the repair");
        dead += sentence.daily.len() + sentence.repair.len();
    }
    assert!(dead > 2_000, "{dead} dead rows are too few");
}

#[derive(Clone, Copy, Debug)]
enum Which {
    Cleanup,
    Repair,
}

/// A table of malformed rows on an engine, and the oracle's verdict.
struct Attacked {
    bed: Testbed,
    before: BTreeMap<Key, String>,
    sentence: OracleVerdict,
    now: EpochSeconds,
    figures: Figures,
}

impl Attacked {
    async fn new(kind: EngineKind, items: &[Item]) -> Self {
        let bed = Testbed::new(kind).await;
        items::write(&bed.function.client, &bed.table, items).await;
        let before = items::scan(&bed.function.client, &bed.table).await;
        let sentence = judge(&[&before], NOW).remove(0);
        Self { bed, before, sentence, now: EpochSeconds::new(NOW), figures: Figures::default() }
    }

    async fn table(&self) -> BTreeMap<Key, String> {
        items::scan(&self.bed.function.client, &self.bed.table).await
    }

    async fn run(&mut self, which: Which, mode: &str) -> RunReport {
        let event = json!({"mode": mode, "max_write_units_per_second": 1e6, "max_read_units_per_second": 1e6});
        let (function, now) = (&self.bed.function, self.now);
        let result = match which {
            Which::Cleanup => function.daily_cleanup(event, now, None).await,
            Which::Repair => function.index_repair(event, now, None).await,
        };
        let report = result.unwrap_or_else(|error| panic!("{which:?}: {error}"));
        let answer = match which {
            Which::Cleanup => bed::cleanup_answer(&report),
            Which::Repair => bed::repair_answer(&report),
        };
        self.figures.attempts += 1;
        self.figures.secrets += secrets(&format!("{answer} {report:?}"));
        assert_eq!(
            (report.outcome, report.counts.rows_skipped()),
            (Outcome::Complete, 0),
            "{which:?}: {:?}",
            report.notes
        );
        assert_eq!(report.counts.lost_races(), 0, "{which:?}: there was no other writer");
        report
    }

    /// A dry run and a real run: both match each other and the oracle.
    async fn clean(&mut self, which: Which) {
        let before = self.table().await;
        let dry = self.run(which, "dry-run").await;
        assert_eq!(self.table().await, before, "{which:?}: the dry run wrote");
        let real = self.run(which, "delete").await;
        for (bucket, counts) in dry.counts.buckets() {
            assert_eq!(
                Some(counts),
                real.counts.buckets().get(bucket),
                "{which:?}: the dry run reported something else for {bucket}"
            );
        }
        assert_eq!(dry.counts.rows_deleted(), real.counts.rows_deleted());
        self.figures.add_run(&real);
        let after = self.table().await;
        let gone: BTreeSet<Key> = before.keys().filter(|key| !after.contains_key(*key)).cloned().collect();
        let dead = match which {
            Which::Cleanup => &self.sentence.daily,
            Which::Repair => &self.sentence.repair,
        };
        let lost: Vec<&String> =
            gone.difference(dead).filter(|key| !self.sentence.may.contains(*key)).map(|key| &before[key]).collect();
        let left: Vec<&String> = dead.difference(&gone).filter_map(|key| before.get(key)).collect();
        print_rows(&format!("{which:?}: live rows lost"), &lost);
        print_rows(&format!("{which:?}: dead rows left"), &left);
        self.figures.live_lost += lost.len() as u64;
        self.figures.dead_left += left.len() as u64;
        assert_eq!(real.counts.rows_deleted(), gone.len() as u64, "{which:?}: the count is wrong");
        let changed: Vec<&String> =
            after.iter().filter(|(key, line)| before.get(*key) != Some(*line)).map(|(_, line)| line).collect();
        assert!(changed.is_empty(), "{which:?}: rewritten: {changed:?}");
    }

    /// Runs that retire, until one has nothing to do. Rows that one run ends make others dead for the next.
    async fn retire(&mut self, client: &aws_sdk_dynamodb::Client) {
        let table = self.bed.table.clone();
        let before = items::all(client, &table).await;
        for which in [Which::Cleanup, Which::Repair, Which::Cleanup, Which::Repair] {
            let report = self.run(which, "delete").await;
            self.figures.add_run(&report);
        }
        let after = items::all(client, &table).await;
        for which in [Which::Cleanup, Which::Repair] {
            assert_eq!(self.run(which, "delete").await.counts.rows_retired(), 0, "{which:?} retired a row twice");
        }
        assert!(items::all(client, &table).await == after, "a run after the last one wrote");
        let new = after.keys().filter(|key| !before.contains_key(*key));
        assert_eq!(new.filter(|key| key.0 != JANITOR_OWNER).count(), 0, "a run wrote a row that is not its state");
        for (key, mut old) in before.into_iter().filter(|(key, _)| key.0 != JANITOR_OWNER) {
            let mut new = after.get(&key).expect("a run that retires deletes nothing").clone();
            let is_dead = self.sentence.daily.contains(&key) || self.sentence.repair.contains(&key);
            if new.remove("retired_from").is_some() {
                old.remove("ttl_timestamp");
                new.remove("ttl_timestamp");
                let is_lost = !is_dead && !self.sentence.may.contains(&key);
                is_lost.then(|| print_rows("a live row is retired", &[&self.before[&key]]));
                self.figures.live_lost += u64::from(is_lost);
            }
            assert!(old == new, "rewritten: {}", self.before[&key]);
        }
    }

    /// Both runs, twice: the second time they find nothing to do.
    async fn attack(&mut self) {
        self.clean(Which::Cleanup).await;
        self.clean(Which::Repair).await;
        let once = self.table().await;
        let mut later = 0;
        for which in [Which::Cleanup, Which::Repair] {
            later += self.run(which, "delete").await.counts.rows_deleted();
        }
        let twice = self.table().await;
        let second: Vec<&Key> = once.keys().filter(|key| !twice.contains_key(*key)).collect();
        assert_eq!(second.len() as u64, later);
        assert!(second.iter().all(|key| self.sentence.may.contains(*key)), "the second runs deleted rows: {second:?}");
        let left = judge(&[&twice], NOW).remove(0);
        let is_index = |key: &&Key| key.0 == shared::bucket::OAUTH_OWNER && key.1.contains("_index:");
        self.figures.dangling += left.repair.iter().filter(is_index).count() as u64;
        self.figures.dead_left += (left.daily.len() + left.repair.iter().filter(|key| !is_index(key)).count()) as u64;
    }
}

const DAY: i64 = 86_400;

/// Whether DynamoDB removes a row by `end`: it ignores a TTL of more than five years ago.
fn is_removed(item: &Item, end: i64) -> bool {
    let ttl = item.get("ttl_timestamp").and_then(|ttl| ttl.as_n().ok()).and_then(|ttl| ttl.parse::<f64>().ok());
    #[expect(clippy::cast_possible_truncation, reason = "seconds; the cast saturates")]
    ttl.is_some_and(|ttl| (NOW - 5 * 365 * DAY..=end).contains(&(ttl.ceil() as i64)))
}

/// Runs that retire mark dead rows and write nothing else. A near TTL is removed before, so that each dead row has to be
/// written.
async fn retire(kind: EngineKind, items: &[Item]) -> Figures {
    let mut items = items.to_vec();
    for item in items.iter_mut().filter(|item| is_removed(item, NOW + 8 * DAY)) {
        item.remove("ttl_timestamp");
    }
    let mut attacked = Attacked::new(kind, &items).await;
    let proxy = Proxy::start(engine(kind).endpoint(), |request| with_ttl_on(request, Fate::Forward));
    attacked.bed.function = attacked.bed.through(&proxy).await;
    attacked.bed.function.environment.insert("EXPIRED_ROWS".to_owned(), "retire".to_owned());
    let client = bed::tables::client(engine(kind).endpoint()).await;
    // Rows that are dead because of other rows are found after TTL has removed those.
    for _ in 0..2 {
        attacked.retire(&client).await;
        remove_retired(&client, &attacked.bed.table).await;
    }
    // A repair that retires does not know why a provider row lost its tokens. Without a TTL, a later repair has to find it again.
    attacked.now = EpochSeconds::new(NOW + 2 * 3_600);
    attacked.run(Which::Repair, "delete").await;
    remove_retired(&client, &attacked.bed.table).await;
    let dead = |key: &&Key| attacked.sentence.daily.contains(*key) || attacked.sentence.repair.contains(*key);
    let left = items::all(&client, &attacked.bed.table).await;
    for key in left.keys().filter(dead) {
        print_rows("a dead row is left", &[&attacked.before[key]]);
        attacked.figures.dead_left += 1;
    }
    assert!(attacked.figures.deleted * 5 > items.len() as u64, "{:?}", attacked.figures);
    attacked.figures
}

async fn remove_retired(client: &aws_sdk_dynamodb::Client, table: &str) {
    let items = items::all(client, table).await.into_values();
    for item in items.filter(|item| item.contains_key("retired_from")) {
        let delete = client.delete_item().table_name(table).key("id", item["id"].clone());
        delete.key("bucket_name", item["bucket_name"].clone()).send().await.unwrap();
    }
}

fn secrets(text: &str) -> u64 {
    text.matches(SECRET).count() as u64
}

/// Prints the first few rows, shortened.
fn print_rows(what: &str, rows: &[&String]) {
    for row in rows.iter().take(12) {
        println!("{what} ({}): {}", rows.len(), row.chars().take(700).collect::<String>());
    }
}

#[tokio::test]
async fn malformed_rows_are_judged_as_python_reads_them() {
    let items = malformed_rows(seed(), NOW, amount(3_000, 24_000), amount(6, 60));
    let mut figures = Figures::default();
    for kind in [EngineKind::Embedded, EngineKind::DynamoDbLocal] {
        let mut attacked = Attacked::new(kind, &items).await;
        assert_eq!(attacked.before.len(), items.len(), "{kind:?}: rows are missing");
        let dead = attacked.sentence.daily.len() + attacked.sentence.repair.len();
        assert!(
            dead * 5 > items.len() && dead * 5 < items.len() * 4,
            "{dead} of {} are dead: too few or too many",
            items.len()
        );
        attacked.attack().await;
        figures.add(attacked.figures);
    }
    figures.report("malformed rows");
    let mut figures = Figures::default();
    for kind in [EngineKind::Embedded, EngineKind::DynamoDbLocal] {
        figures.add(retire(kind, &items).await);
    }
    figures.report("malformed rows, retire");
}

/// With a malformed state row a run starts from the beginning, and completes.
#[tokio::test]
async fn malformed_state_rows_do_not_stop_a_run() {
    let beds = [Testbed::new(EngineKind::Embedded).await, Testbed::new(EngineKind::DynamoDbLocal).await];
    let text = |text: &str| aws_sdk_dynamodb::types::AttributeValue::S(text.to_owned());
    let (now, mut stopped) = (EpochSeconds::new(NOW), Vec::new());
    let names = ["lease", "daily-cleanup", "index-repair", "index-repair-seen-07"];
    // All names on the embedded engine; on the other only the lease, which every run writes conditionally.
    let cases = names.map(|name| (&beds[0], name)).into_iter().chain([(&beds[1], names[0])]);
    for (bed, name) in cases {
        for data in strange_data() {
            let sort = format!("state:{name}");
            let fixed =
                [("id", "_actingweb_janitor"), ("bucket_name", sort.as_str()), ("bucket", "state"), ("name", name)];
            let mut item: Item = fixed.map(|(attribute, value)| (attribute.to_owned(), text(value))).into();
            item.extend(data.clone().map(|data| ("data".to_owned(), data)));
            items::write(&bed.function.client, &bed.table, &[item]).await;
            let daily = bed.function.daily_cleanup(json!({}), now, None).await;
            let repair = bed.function.index_repair(json!({}), now, None).await;
            for result in [daily, repair] {
                if !result.as_ref().is_ok_and(|report| report.outcome.is_complete()) {
                    let data = format!("{data:?}").chars().take(80).collect::<String>();
                    stopped.push(format!("{name} {data}: {:?}", result.map(|report| (report.outcome, report.notes))));
                }
            }
        }
    }
    assert!(stopped.is_empty(), "{} runs: {stopped:#?}", stopped.len());
}

/// The first character that may not be printed: a control character other than a newline, or one that reverses or hides text.
fn unprintable(text: &str) -> Option<char> {
    let is_hidden = |c: char| matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    text.chars().find(|c| *c != '\n' && (c.is_control() || is_hidden(*c)))
}

fn check_output(what: &str, ended: &Ended) {
    let printed = format!("{}{}", ended.out, ended.err);
    assert!((0..=3).contains(&ended.code), "{what}: {ended:?}");
    assert!(!printed.contains("panicked"), "{what}: {printed}");
    assert_eq!(unprintable(&printed), None, "{what}: {printed:?}");
    assert_eq!(secrets(&printed), 0, "{what}: {printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_shows_malformed_rows_without_control_characters() {
    let items = malformed_rows(seed() + 1, NOW, amount(1_200, 6_000), 1);
    let kind = EngineKind::Embedded;
    let bed = Testbed::new(kind).await;
    items::write(&bed.function.client, &bed.table, &items).await;
    let before = items::scan(&bed.function.client, &bed.table).await;
    let endpoint = engine(kind).endpoint();
    for command in
        [&["cleanup"][..], &["repair"], &["audit"], &["audit", "--json"], &["cleanup", "--json"], &["repair", "--json"]]
    {
        check_output(&format!("{command:?}"), &janitor(endpoint, &bed.table, command, ""));
    }
    // Keys with unprintable characters first, then some of the rest.
    let now = NOW.to_string();
    let odd = |item: &&Item| {
        let (owner, sort) = items::key(item);
        unprintable(&format!("{owner}{sort}")).is_some()
    };
    let (odd, rest): (Vec<&Item>, Vec<&Item>) = items.iter().partition(odd);
    let few = amount(60, 400);
    for (i, item) in odd.into_iter().take(few).chain(rest.into_iter().take(few)).enumerate() {
        let (owner, sort) = items::key(item);
        let Some((bucket, name)) = sort.split_once(':') else { continue };
        // An argument cannot contain a NUL, and standard input ends at the first line.
        if [owner.as_str(), bucket].iter().any(|text| text.contains('\0')) || name.contains(['\n', '\r']) {
            continue;
        }
        let json = if i % 4 == 0 { &["--json"][..] } else { &[] };
        let arguments = [&["explain", "--now", &now][..], json, &["--", &owner, bucket, "-"]].concat();
        let ended = run_explain(endpoint, &bed.table, &arguments, name);
        check_output(&format!("{arguments:?} {name:?}"), &ended);
        assert!(ended.code < 2, "{arguments:?} {name:?}: {ended:?}");
    }
    assert_eq!(items::scan(&bed.function.client, &bed.table).await, before, "nothing was written");
}

/// Runs `explain` with the options before its arguments.
fn run_explain(endpoint: &str, table: &str, arguments: &[&str], name: &str) -> Ended {
    let mut all = vec![arguments[0], "--endpoint", endpoint, "--table", table];
    all.extend(&arguments[1..]);
    bed::janitor::Janitor::default().run_with(&all, &format!("{name}\n"))
}
