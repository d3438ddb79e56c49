//! A backlog execution: many runs of a job, one after another in each of many segments, under one lease.
//!
//! The state machine that drives it (`stack/backlog.asl.json`) does not interpret rows or cursors: it sends `start`,
//! sends each `next` back until there is none, and sends the segments' results with `finish`.

mod segment_run;
mod steps;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::run::Job;
pub use crate::run::report::Totals;
pub use segment_run::SegmentRun;
use shared::settings::{ConfigError, Mode, shown};
pub use steps::{finish, run_segment, start};

/// The settings in an event.
pub type Overrides = Map<String, Value>;

/// What an event requests from a function whose job can run as a backlog execution.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// A whole run, as on its schedule.
    Run(Overrides),
    Start(Start),
    Segment(Box<SegmentRun>, Overrides),
    Finish(Finish),
}

/// The first step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The execution's name or ARN, which is the holder in the lease.
    pub lease: String,
    pub input: Input,
    /// How many segments may run concurrently, if that is limited.
    #[serde(default)]
    pub max_concurrency: Option<u16>,
}

/// The whole input of an execution: an unknown field is an error, because a mistyped `settings`, or a `mode` beside it,
/// would otherwise be ignored and rows deleted.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    #[serde(default)]
    pub job: Option<String>,
    pub segments: u16,
    pub concurrency: u16,
    #[serde(default)]
    pub settings: Overrides,
}

const INPUTS: [&str; 4] = ["job", "segments", "concurrency", "settings"];

/// What the last step needs from the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Started {
    pub lease: String,
    pub segments: u16,
    pub started_at: i64,
    pub settings: Overrides,
    /// The janitor was paused: no segment was started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// The last step: with every segment after a success, with none after a failure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finish {
    pub started: Started,
    pub segments: Vec<SegmentRun>,
}

/// Reads an event for the job `J`.
pub fn parse<J: Job>(mut fields: Overrides) -> Result<Request, ConfigError> {
    let steps = ["start", "segment", "finish"].map(|step| fields.remove(step).map(|value| (step, value)));
    let mut steps = steps.into_iter().flatten();
    let Some((step, value)) = steps.next() else { return Ok(Request::Run(fields)) };
    let wrong = |problem: String| wrong(step, &problem);
    if let Some((other, _)) = steps.next() {
        return Err(wrong(format!("cannot be combined with {other}")));
    }
    if step != "segment" && !fields.is_empty() {
        return Err(wrong("settings belong inside it".to_owned()));
    }
    match step {
        "start" => {
            check_input(&value["input"]).map_err(wrong)?;
            let start: Start = read(step, value)?;
            start.check::<J>().map_err(wrong)?;
            Ok(Request::Start(start))
        }
        "segment" => {
            let mut segment_run: SegmentRun = read(step, value)?;
            segment_run.check::<J>().map_err(wrong)?;
            Ok(Request::Segment(Box::new(segment_run.sharing()), fields))
        }
        _ => {
            let mut finish: Finish = read(step, value)?;
            finish.check::<J>().map_err(wrong)?;
            Ok(Request::Finish(finish))
        }
    }
}

fn read<T: DeserializeOwned>(step: &str, value: Value) -> Result<T, ConfigError> {
    // serde's own message quotes the value, which may be a secret.
    serde_json::from_value(value).map_err(|_| wrong(step, "its fields do not match docs/scaling.md"))
}

fn wrong(step: &str, problem: &str) -> ConfigError {
    ConfigError::Event { problem: format!("{step}: {problem}") }
}

fn check_input(input: &Value) -> Result<(), String> {
    let unknown = input.as_object().and_then(|input| input.keys().find(|key| !INPUTS.contains(&key.as_str())));
    unknown.map_or(Ok(()), |unknown| {
        let (unknown, known) = (shown(unknown), INPUTS.join(", "));
        Err(format!("{unknown} is not a field of its input ({known}); a setting such as mode belongs in settings"))
    })
}

/// The event of a segment's next run.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct NextEvent {
    #[serde(flatten)]
    settings: Overrides,
    segment: SegmentRun,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Next {
    next: Option<NextEvent>,
}

impl Next {
    fn of(segment_run: &SegmentRun, settings: &Overrides) -> Self {
        let event = || NextEvent { settings: settings.clone(), segment: segment_run.clone() };
        Self { next: (!segment_run.done && !segment_run.paused).then(event) }
    }
}

/// The answer of the first step: the event of the first run of each segment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StartAnswer {
    #[serde(rename = "statusCode")]
    status_code: u16,
    started: Started,
    segments: Vec<Next>,
}

/// The answer of a segment's run: the job's own, the event of the next run, and the totals so far.
#[derive(Serialize)]
pub struct SegmentAnswer<A> {
    #[serde(flatten)]
    answer: A,
    #[serde(flatten)]
    next: Next,
    segment: SegmentRun,
}

impl<A> SegmentAnswer<A> {
    pub fn new(answer: A, segment: SegmentRun, settings: &Overrides) -> Self {
        Self { answer, next: Next::of(&segment, settings), segment }
    }
}

/// The answer of the last step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FinishAnswer {
    #[serde(rename = "statusCode")]
    status_code: u16,
    job: &'static str,
    mode: &'static str,
    pub complete: bool,
    /// Ended by a pause.
    paused: bool,
    started_at: i64,
    segments: u16,
    pub totals: Totals,
}

impl Start {
    fn check<J: Job>(&self) -> Result<(), String> {
        check_lease(&self.lease)?;
        self.segment_run(0).check::<J>()?;
        match (&self.input.job, self.max_concurrency) {
            (Some(job), _) if job != J::NAME => {
                Err(format!("the job is {}, but this function runs {}", shown(job), J::NAME))
            }
            (_, Some(most)) if self.input.concurrency > most => {
                Err(format!("concurrency is above the {most} segments that an execution may run concurrently"))
            }
            _ => Ok(()),
        }
    }

    fn segment_run(&self, index: u16) -> SegmentRun {
        let Input { segments, concurrency, .. } = self.input;
        let lease = Some(self.lease.clone());
        SegmentRun { index, count: segments, concurrency: Some(concurrency), lease, ..SegmentRun::default() }
    }

    /// While the janitor is paused, the execution has no segments.
    pub fn answer(&self, now: i64, paused: bool) -> StartAnswer {
        let Input { segments, settings, .. } = &self.input;
        let started = Started {
            lease: self.lease.clone(),
            segments: *segments,
            started_at: now,
            settings: settings.clone(),
            paused,
        };
        let runs = if paused { 0 } else { *segments };
        let segments = (0..runs).map(|index| Next::of(&self.segment_run(index).sharing(), settings)).collect();
        StartAnswer { status_code: 200, started, segments }
    }
}

impl Finish {
    fn check<J: Job>(&mut self) -> Result<(), String> {
        let Started { lease, segments, .. } = &self.started;
        check_lease(lease)?;
        SegmentRun { count: *segments, ..SegmentRun::default() }.segment()?;
        self.segments.iter_mut().try_for_each(SegmentRun::check::<J>)?;
        if self.segments.iter().any(|segment| segment.count != *segments) {
            return Err("a segment's count is not the number of segments that were started".to_owned());
        }
        Ok(())
    }

    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.segments.iter().for_each(|segment| totals.add(&segment.totals));
        totals
    }

    /// Every segment was completed once, with nothing skipped.
    pub fn is_complete(&self) -> bool {
        self.all_done() && !self.is_paused() && self.totals().skipped == 0
    }

    fn is_paused(&self) -> bool {
        self.started.paused || self.segments.iter().any(|segment| segment.paused)
    }

    /// Every segment was completed or paused once, so that no run is in progress any more.
    fn all_done(&self) -> bool {
        let ended = |segment: &&SegmentRun| segment.done || segment.paused;
        let once = |index| self.segments.iter().filter(|segment| segment.index == index).filter(ended).count() == 1;
        let all = (0..self.started.segments).all(once);
        all && self.segments.len() == usize::from(self.started.segments)
    }

    pub fn answer<J: Job>(&self, mode: Mode) -> FinishAnswer {
        FinishAnswer {
            status_code: 200,
            job: J::NAME,
            mode: mode.name(),
            complete: self.is_complete(),
            paused: self.is_paused(),
            started_at: self.started.started_at,
            segments: self.started.segments,
            totals: self.totals(),
        }
    }
}

/// An execution is logged and stored, so only the characters that Step Functions allows are accepted. Its ARN
/// identifies it; other state machines may have executions of the same name.
fn check_lease(lease: &str) -> Result<(), String> {
    let plain = |part: &str| {
        (1..=80).contains(&part.len())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
    };
    let parts: Vec<&str> = lease.split(':').collect();
    let is_execution = matches!(
        parts.as_slice(),
        [_] | ["arn", _, "states", _, _, "execution", _, _] | ["arn", _, "states", _, _, "express", _, _, _]
    );
    if is_execution && parts.into_iter().all(plain) && lease.len() <= 256 {
        Ok(())
    } else {
        Err("lease must be the ARN or the name of an execution: letters, digits, _ - . only".to_owned())
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use shared::settings::ConfigError;

    use super::steps::state_after;
    use super::{Finish, Next, Overrides, Request, SegmentRun};
    use crate::cleanup::Cleanup;
    use crate::repair::Repair;
    use crate::run::state::JobState;

    fn parse(event: Value) -> Result<Request, ConfigError> {
        let Value::Object(fields) = event else { panic!("{event}") };
        super::parse::<Cleanup>(fields)
    }

    fn started() -> Value {
        json!({"lease": "run-1", "segments": 2, "started_at": 100, "settings": {"mode": "dry-run"}})
    }

    fn segment(index: u16, skipped: u64) -> Value {
        json!({"index": index, "count": 2, "done": true, "totals": {"skipped": skipped, "deleted": 3, "runs": 1}})
    }

    fn finish(segments: &[Value]) -> Finish {
        match parse(json!({"finish": {"started": started(), "segments": segments}})) {
            Ok(Request::Finish(finish)) => finish,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lease_is_an_execution_by_its_name_or_its_arn() {
        let arn = "arn:aws:states:eu-north-1:123456789012:execution:app-backlog:run-1";
        let express = "arn:aws-cn:states:cn-north-1:123456789012:express:app_b:run.1:5f0c2a7e-0000";
        for good in ["run-1", "a.b_C-9", arn, express, &"n".repeat(80)] {
            assert_eq!(super::check_lease(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "run 1",
            "a:b",
            "arn:aws:s3:::bucket",
            "arn:aws:states:eu-north-1:123456789012:stateMachine:app",
            "arn:aws:states:eu-north-1:123456789012:execution:app:",
            "arn:aws:states:eu-north-1:123456789012:execution:app:run:x y",
            &format!("{arn}{}", "n".repeat(300)),
            &"n".repeat(81),
        ] {
            assert!(super::check_lease(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn start_hands_out_each_segment_once_and_finish_adds_them_up() {
        let input = json!({"segments": 2, "concurrency": 3, "settings": {"mode": "dry-run"}});
        let Ok(Request::Start(start)) = parse(json!({"start": {"lease": "run-1", "input": input}})) else { panic!() };
        let answer = json!(start.answer(100, false));
        assert_eq!(answer["started"], started());
        for (number, item) in answer["segments"].as_array().unwrap().iter().enumerate() {
            let Ok(Request::Segment(run, overrides)) = parse(item["next"].clone()) else { panic!("{item}") };
            assert_eq!((usize::from(run.index), run.count), (number, 2));
            assert_eq!((run.lease.as_deref(), &overrides["mode"]), (Some("run-1"), &json!("dry-run")));
            assert_eq!(run.concurrency, Some(2), "two segments share the pace, however many might");
        }
        let all = finish(&[segment(1, 0), segment(0, 0)]);
        assert!(all.is_complete());
        assert_eq!((all.totals().deleted, all.totals().runs), (6, 2));
    }

    #[test]
    fn only_every_segment_once_with_nothing_skipped_is_complete() {
        let unfinished = json!({"index": 1, "count": 2});
        for segments in [
            vec![],
            vec![segment(0, 0)],
            vec![segment(0, 0), segment(0, 0)],
            vec![segment(0, 0), segment(1, 1)],
            vec![segment(0, 0), unfinished],
        ] {
            assert!(!finish(&segments).is_complete(), "{segments:?}");
        }
    }

    /// A setting beside `settings`, or a mistyped `settings`, would otherwise start an execution that deletes.
    #[test]
    fn an_input_with_an_unknown_field_starts_nothing() {
        let start = |more: &Value| {
            let mut input = json!({"job": "daily-cleanup", "segments": 2, "concurrency": 2, "settings": {}});
            input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            parse(json!({"start": {"lease": "run-1", "input": input, "max_concurrency": 4}}))
        };
        assert!(start(&json!({})).is_ok());
        for (more, said) in [
            (json!({"mode": "dry-run"}), "mode is not a field of its input"),
            (json!({"setings": {"mode": "dry-run"}}), "setings is not a field of its input"),
            (json!({"lease": "run-2"}), "lease is not a field of its input"),
            (json!({"function": "another"}), "function is not a field of its input"),
            (json!({"concurrency": 5}), "concurrency is above the 4"),
            (json!({"segments": "2"}), "its fields do not match"),
        ] {
            let error = start(&more).expect_err(&more.to_string()).to_string();
            assert!(error.contains(said), "{error}");
        }
        let input = json!({"job": "daily-cleanup", "segments": 2, "concurrency": 2});
        let Value::Object(fields) = json!({"start": {"lease": "run-1", "input": input}}) else { panic!() };
        assert!(super::parse::<Repair>(fields).is_err(), "another function's job");
    }

    #[test]
    fn a_finish_that_does_not_match_its_start_is_refused() {
        let finish = |started: Value, runs: &[Value]| parse(json!({"finish": {"started": started, "segments": runs}}));
        let segments = |n: u16| json!({"lease": "run-1", "segments": n, "started_at": 100, "settings": {}});
        assert!(finish(segments(2), &[segment(0, 0), segment(1, 0)]).is_ok());
        for (started, runs) in [
            (segments(0), vec![]),
            (segments(65), vec![]),
            (segments(3), vec![segment(0, 0), segment(1, 0)]),
            (segments(2), vec![segment(0, 0), segment(2, 0)]),
        ] {
            assert!(finish(started.clone(), &runs).is_err(), "{started} {runs:?}");
        }
    }

    #[test]
    fn a_last_step_that_is_retried_counts_once() {
        let run = |started_at: i64| {
            let started = json!({"lease": "run-1", "segments": 1, "started_at": started_at, "settings": {}});
            let totals = json!({"deleted": 7, "deleted_in": {"spa_access_tokens": 7}});
            let segments = json!([{"index": 0, "count": 1, "done": true, "totals": totals}]);
            match parse(json!({"finish": {"started": started, "segments": segments}})) {
                Ok(Request::Finish(finish)) => finish,
                other => panic!("{other:?}"),
            }
        };
        let once = state_after(&JobState::default(), &run(7_200)).unwrap();
        assert_eq!(json!(once.deleted_in_hour), json!({"2": 7}));
        let stored = JobState::from_json(&json!(once));
        assert_eq!(state_after(&stored, &run(7_200)), None);
        let again = state_after(&stored, &run(7_300)).unwrap();
        assert_eq!(json!(again.deleted_in_hour), json!({"2": 14}), "another one of the same name");
    }

    #[test]
    fn a_segment_that_is_done_has_no_next_event() {
        let done = SegmentRun { count: 1, done: true, ..SegmentRun::default() };
        assert_eq!(json!(Next::of(&done, &Overrides::new())), json!({"next": null}));
    }

    /// The names appear in logs and in the state: only those of the job's findings and of the buckets are kept.
    #[test]
    fn only_known_names_are_kept() {
        let secret = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
        let totals = json!({"deleted_in": {(secret): 1, "mcp_tokens": 2}, "found": {(secret): 1, "legacy_rows": 3}});
        let fields = json!({"segment": {"index": 0, "count": 1, "totals": totals}});
        let parsed = [super::parse::<Repair>, super::parse::<Cleanup>].map(|parse| {
            let Ok(Request::Segment(run, _)) = parse(fields.as_object().unwrap().clone()) else { panic!() };
            (json!(run.totals.deleted_in), json!(run.totals.found))
        });
        assert_eq!(parsed[0], (json!({"mcp_tokens": 2}), json!({"legacy_rows": 3})));
        assert_eq!(parsed[1], (json!({"mcp_tokens": 2}), json!({})));
        let finish = json!({"started": started(), "segments": [{"index": 0, "count": 2, "totals": totals}]});
        let fields = json!({"finish": finish}).as_object().unwrap().clone();
        let Ok(Request::Finish(finish)) = super::parse::<Repair>(fields) else { panic!() };
        assert!(!json!(finish.totals()).to_string().contains(secret));
    }

    #[test]
    fn a_malformed_event_is_refused_without_being_quoted() {
        let secret = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
        for event in [
            json!({"segment": {"index": 2, "count": 2}}),
            json!({"segment": {"index": 0, "count": 65}}),
            json!({"segment": {"index": 0}}),
            json!({"segment": {"index": 0, "count": 1, "concurrency": 0}}),
            json!({"segment": {"index": 0, "count": 1, "lease": secret.repeat(2)}}),
            json!({"segment": {"index": secret, "count": 1}}),
            json!({"segment": {"index": 0, "count": 1, (secret): 1}}),
            json!({"segment": {"index": 0, "count": 1}, "finish": {}}),
            json!({"segment": secret}),
            json!({"start": {"lease": "", "input": {"segments": 1, "concurrency": 1}}}),
            json!({"start": {"lease": "x", "input": {"segments": 0, "concurrency": 1}}}),
            json!({"start": {"lease": "x", "input": {"segments": 1, "concurrency": 1}}, "mode": "dry-run"}),
            json!({"start": {"lease": "x", "input": {"segments": 1, "concurrency": 1, (secret): 1}}}),
            json!({"start": {"lease": "x", "input": secret}}),
            json!({"finish": {"started": started(), "segments": [secret]}}),
        ] {
            let error = parse(event.clone()).expect_err(&event.to_string()).to_string();
            // No more of it than the mask allows.
            assert!(!error.contains(&secret[..7]), "{error}");
        }
    }
}
