//! A live application: several processes of the real library use a table while it is cleaned and repaired, with tokens that
//! expire within seconds of their use. The processes log the answers they got, and the logs are checked.

use bed::Invocations as _;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use bed::Testbed;
use bed::aftermath::{Aftermath, secrets_in};
use bed::attack::{Figures, amount, seed};
use bed::engine::{EngineKind, shared as engine};
use bed::janitor::Janitor;
use bed::process::Running;
use bed::python::Application;
use jobs::run::report::{Outcome, RunReport};
use runtime::lambda::Function;
use serde_json::{Value, json};
use shared::time::EpochSeconds;

const SCRIPT: &str = "actingweb_live.py";
const DAY: i64 = 86_400;
/// By then every row that can expire has expired; refresh tokens and tombstones live longest, 30 days and an hour.
const LATER: i64 = 45 * DAY;

static EMITTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn endpoint() -> &'static str {
    engine(EngineKind::DynamoDbLocal).endpoint()
}

/// An application with empty tables.
async fn application(retires: bool) -> (Testbed, Application) {
    let bed = Testbed::new(EngineKind::DynamoDbLocal).await;
    let bed = if retires { bed.retiring().await } else { bed };
    let application = Application::new(endpoint(), &bed.prefix);
    application.run(SCRIPT, &["--prepare"], "");
    (bed, application)
}

fn clock() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

fn now() -> EpochSeconds {
    EpochSeconds::from(SystemTime::now())
}

/// The janitor's runs, one after another: their figures, their output, and when they ran.
struct Runs {
    function: Function,
    janitor: Janitor,
    figures: Figures,
    output: String,
    periods: Vec<(f64, f64)>,
    random: fastrand::Rng,
    /// Seconds by which the janitor's clock is ahead.
    ahead: i64,
}

impl Runs {
    fn on(bed: &Testbed, ahead: i64) -> Self {
        let environment = bed.function.environment.clone();
        let expired_rows = environment.get("EXPIRED_ROWS").map_or("delete", String::as_str).to_owned();
        let function = Function::new(bed.function.client.clone(), environment);
        Self {
            function: function.with_metrics_output(|line| EMITTED.lock().unwrap().push(line.to_owned())),
            janitor: Janitor::on(endpoint(), &bed.prefix).with("EXPIRED_ROWS", &expired_rows),
            figures: Figures::default(),
            output: String::new(),
            periods: Vec::new(),
            random: fastrand::Rng::with_seed(seed()),
            ahead,
        }
    }

    /// Runs until the application has ended.
    async fn run_during(&mut self, processes: &Processes) {
        while !processes.have_started() && !processes.ended() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut turn = 0;
        while !processes.ended() {
            self.next(turn).await;
            turn += 1;
        }
    }

    /// The next run. All have the default grace period of an hour: a token that is being written looks like one whose
    /// revocation was interrupted, and only its age tells them apart. A grace period of seconds would be safe only if no
    /// writer were delayed for seconds, which a busy machine cannot guarantee. To give the repair work, the application
    /// leaves old half-revoked tokens, and index rows of deleted actors.
    async fn next(&mut self, turn: usize) {
        let (start, now) = (clock(), EpochSeconds::new(now().get() + self.ahead));
        match turn % 4 {
            1 if self.ahead == 0 => self.program("cleanup"),
            3 if self.ahead == 0 => self.program("repair"),
            2 => self.repair(now).await,
            _ => drop(self.daily(now).await),
        }
        self.periods.push((start, clock()));
        self.figures.attempts += 1;
        // A random delay, so that some runs judge a row in the second in which it expires.
        tokio::time::sleep(Duration::from_millis(self.random.u64(20..300))).await;
    }

    /// Returns the time by which it judged: the engine's clock, which lags on a busy machine.
    async fn daily(&mut self, now: EpochSeconds) -> i64 {
        let report = self.function.daily_cleanup(json!({}), now, None).await.unwrap();
        self.reported(&report);
        report.now
    }

    async fn repair(&mut self, now: EpochSeconds) {
        let report = self.function.index_repair(json!({}), now, None).await.unwrap();
        self.reported(&report);
    }

    fn reported(&mut self, report: &RunReport) {
        assert_eq!(report.outcome, Outcome::Complete, "{}", report.to_json());
        self.figures.add_run(report);
        self.output.push_str(&format!("{}\n", report.to_json()));
    }

    fn program(&mut self, command: &str) {
        let ended = self.janitor.run(&[command, "--apply", "--yes", "--json"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        let answer = ended.json();
        self.figures.add_answer(answer.get("report").unwrap_or(&answer));
        self.output.push_str(&ended.out);
        self.output.push_str(&ended.err);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Alive,
    /// Its end was requested and not confirmed: either answer is right.
    Ending,
    Ended,
}

/// The result of the logs.
#[derive(Default)]
struct Judged {
    /// Entries that are alive at the end.
    alive: Vec<Value>,
    lost: Vec<String>,
    revived: Vec<String>,
    raised: Vec<String>,
    secrets: Vec<String>,
    /// All operations, and those answered during a run of the janitor.
    operations: u64,
    raced: u64,
    /// Accepted uses by kind, accepted uses in the last two seconds of a life, and entries that expired.
    good: BTreeMap<String, u64>,
    just_in_time: u64,
    expired: u64,
}

impl Judged {
    fn of(processes: &Processes, runs: &Runs) -> Self {
        let mut judged = Self::default();
        for log in processes.logs() {
            judged.read(&log, &runs.periods);
        }
        judged
    }

    /// Reads the log of one process.
    fn read(&mut self, log: &str, periods: &[(f64, f64)]) {
        let mut known: HashMap<String, (Value, State)> = HashMap::new();
        let mut end = 0.0_f64;
        for line in log.lines() {
            let event: Value = serde_json::from_str(line).expect("a line of JSON");
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            let at = event["at"].as_f64().expect("a time");
            let until = event["until"].as_f64().unwrap_or(at);
            end = end.max(until);
            match event["did"].as_str() {
                Some("made") => {
                    self.operation(at, until, periods);
                    let secrets = event["secrets"].as_array().into_iter().flatten();
                    self.secrets.extend(secrets.filter_map(Value::as_str).map(str::to_owned));
                    if !["client", "tombstone", "replay"].contains(&text("kind").as_str()) {
                        self.secrets.push(text("name"));
                    }
                    known.insert(text("name"), (event, State::Alive));
                }
                Some("used") => {
                    self.operation(at, until, periods);
                    let (entry, state) = &known[&text("name")];
                    self.answered(&event, entry, *state, (at, until));
                }
                Some(did @ ("ending" | "ended")) => {
                    let kinds = event["kinds"].as_array().cloned().unwrap_or_default();
                    let by = text("by");
                    for (entry, state) in known.values_mut() {
                        if entry[&by] == event["value"] && (kinds.is_empty() || kinds.contains(&entry["kind"])) {
                            *state = if did == "ended" { State::Ended } else { (*state).max_ending() };
                        }
                    }
                }
                Some("raised") => self.raised.push(line.to_owned()),
                other => panic!("{other:?} in the log"),
            }
        }
        for (entry, state) in known.into_values() {
            let dies = entry["dies"].as_f64();
            self.expired += u64::from(state == State::Alive && dies.is_some_and(|dies| dies < end));
            if state == State::Alive && dies.is_none_or(|dies| dies >= end) {
                self.alive.push(entry);
            }
        }
    }

    fn operation(&mut self, at: f64, until: f64, periods: &[(f64, f64)]) {
        self.operations += 1;
        self.raced += u64::from(periods.iter().any(|(start, end)| at <= *end && until >= *start));
    }

    /// An answer is wrong if a credential that was alive during the whole request was refused, or one that had ended before
    /// the request was accepted. `dies` is the first moment at which the library itself may refuse, so only a request during
    /// which the credential expires is undecided.
    fn answered(&mut self, event: &Value, entry: &Value, state: State, (at, until): (f64, f64)) {
        let kind = entry["kind"].as_str().unwrap_or_default();
        let dies = entry["dies"].as_f64().unwrap_or(f64::INFINITY);
        match (event["answer"].as_bool().expect("an answer"), state) {
            (true, State::Ended) => self.revived.push(format!("{kind} at {at}")),
            (true, _) => {
                *self.good.entry(kind.to_owned()).or_default() += 1;
                self.just_in_time += u64::from(dies - at < 2.0);
            }
            (false, State::Alive) if until < dies => self.lost.push(format!("{kind} at {at}, dies {dies}")),
            (false, _) => {}
        }
    }
}

impl State {
    fn max_ending(self) -> Self {
        if self == Self::Ended { self } else { Self::Ending }
    }
}

/// The application's processes and the folder of their logs, which contain secrets and are deleted with the test.
struct Processes {
    running: Vec<Running>,
    folder: PathBuf,
}

impl Processes {
    /// Each runs for at least `seconds`, and until it has done `operations`.
    fn start(application: &Application, prefix: &str, count: usize, seconds: u32, operations: u32) -> Self {
        let folder = std::env::temp_dir().join(format!("live-{prefix}"));
        std::fs::create_dir_all(&folder).unwrap();
        let start = |number: usize| {
            let log = folder.join(number.to_string());
            let [number, seed] = [number.to_string(), seed().to_string()];
            let [seconds, operations] = [seconds.to_string(), operations.to_string()];
            let identity = ["--log", log.to_str().unwrap(), "--number", &number, "--seed", &seed];
            let amount = ["--seconds", &seconds, "--operations", &operations];
            application.start(SCRIPT, &[&identity[..], &amount[..]].concat())
        };
        Self { running: (0..count).map(start).collect(), folder }
    }

    /// Whether all processes have written: an empty table is nothing to attack.
    fn have_started(&self) -> bool {
        let wrote = |number: usize| std::fs::metadata(self.log(number)).is_ok_and(|log| log.len() > 0);
        (0..self.running.len()).all(wrote)
    }

    fn log(&self, number: usize) -> PathBuf {
        self.folder.join(number.to_string())
    }

    fn ended(&self) -> bool {
        self.running.iter().all(|process| process.output().contains("ended with status"))
    }

    fn logs(&self) -> Vec<String> {
        for process in &self.running {
            assert!(process.output().contains("ended with status 0"), "{}", process.tail());
        }
        let read = |number: usize| std::fs::read_to_string(self.log(number)).unwrap();
        (0..self.running.len()).map(read).collect()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test]
async fn a_live_application_loses_nothing_while_its_table_is_cleaned_and_repaired() {
    attack_live_application("live application", false).await;
}

#[tokio::test]
async fn a_live_application_loses_nothing_while_its_dead_rows_are_retired() {
    attack_live_application("live application, retire", true).await;
}

async fn attack_live_application(attack: &str, retires: bool) {
    let (bed, application) = application(retires).await;
    let mut runs = Runs::on(&bed, 0);
    let processes = Processes::start(&application, &bed.prefix, amount(3, 6), amount(25, 300), 500);
    runs.run_during(&processes).await;
    let mut judged = Judged::of(&processes, &runs);
    println!(
        "{} operations, {} during a run; {} expired, {} accepted in the last two seconds of a life; {:?}",
        judged.operations, judged.raced, judged.expired, judged.just_in_time, judged.good
    );

    // Without a writer, one cleanup and one repair leave no dead row.
    let end = now();
    let judged_at = runs.daily(end).await;
    assert!(end.get() - judged_at < 60, "judged at {judged_at}, at {end:?}");
    runs.repair(end).await;
    let aftermath = Aftermath::left(endpoint(), &bed.table, judged_at, retires).await;
    let (dead, dangling) = (aftermath.dead(judged_at), model::dangling(&aftermath.rows));
    assert!(dead.is_empty() && dangling.is_empty(), "dead: {dead:?}, dangling: {dangling:?}");

    // Credentials that are alive by the logs for another minute still work.
    let minute_left = |entry: &&Value| entry["dies"].as_f64().is_none_or(|dies| dies > clock() + 60.0);
    let alive: Vec<&Value> = judged.alive.iter().filter(minute_left).collect();
    let answers: Vec<bool> =
        serde_json::from_str(&application.run(SCRIPT, &["--last"], &json!(alive).to_string())).unwrap();
    assert_eq!(answers.len(), alive.len());
    for (entry, _) in alive.iter().zip(&answers).filter(|(_, works)| !**works) {
        judged.lost.push(format!("{} at the end", entry["kind"]));
    }
    println!("{} alive at the end", alive.len());

    // Much later, every row that can expire has expired.
    let later = EpochSeconds::new(now().get() + LATER);
    runs.daily(later).await;
    runs.repair(later).await;
    let aftermath = Aftermath::left(endpoint(), &bed.table, later.get(), retires).await;
    let (dead, dangling) = (aftermath.dead(later.get()), model::dangling(&aftermath.rows));
    let mut figures = runs.figures;
    figures.attempts += 4;
    // A fault is an operation that was answered during a run of the janitor.
    figures.faults = judged.raced;
    figures.live_lost = judged.lost.len() as u64;
    figures.dead_left = dead.len() as u64;
    figures.dangling = dangling.len() as u64;
    let output = [runs.output, EMITTED.lock().unwrap().join("\n"), aftermath.own].join("\n");
    figures.secrets = secrets_in(&output, judged.secrets.iter().map(String::as_str));
    assert!(judged.raised.is_empty(), "the library raised: {:#?}", judged.raised);
    assert!(judged.revived.is_empty(), "accepted after its end: {:#?}", judged.revived);
    assert!(judged.lost.is_empty(), "refused while alive: {:#?}", judged.lost);
    figures.report(attack);

    // The attack proves nothing if no credential expired, or none was used near its expiry.
    let kinds = judged.good.keys().map(String::as_str).collect::<Vec<_>>();
    for kind in "client mcp_access mcp_code mcp_consumed mcp_refresh nonce replay session spa_access spa_consumed \
                 spa_refresh ticket tombstone verify"
        .split_whitespace()
    {
        assert!(kinds.contains(&kind), "no {kind} was used");
    }
    assert!(judged.expired > 30 && judged.just_in_time > 50 && judged.raced > 200 && alive.len() > 50);
    // Most expired rows have a near TTL: a run that retires leaves them to it.
    assert!(figures.attempts > 12 && figures.deleted > if retires { 5 } else { judged.expired }, "{figures:?}");
}

/// The check can fail: runs whose clock is a few seconds ahead delete live rows, and the logs show it.
#[tokio::test]
async fn the_logs_show_live_rows_that_were_deleted() {
    // On a busy machine no run may coincide with the last seconds of a life: try again.
    for _ in 0..4 {
        let (bed, application) = application(false).await;
        let mut runs = Runs::on(&bed, 4);
        let processes = Processes::start(&application, &bed.prefix, 1, 8, 150);
        runs.run_during(&processes).await;
        let judged = Judged::of(&processes, &runs);
        println!("{} of {} operations were refused for a live credential", judged.lost.len(), judged.operations);
        if !judged.lost.is_empty() {
            return;
        }
    }
    panic!("live rows were deleted, and the logs do not show it");
}
