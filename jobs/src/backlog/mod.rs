//! An execution: many runs of a job, one after another in each of many segments, under one lease.
//!
//! What drives it (the state machine of `template.yaml`) knows no row and no cursor: it sends `start`, sends each `next`
//! back until there is none, and sends the segments' results with `finish`.

pub mod segment_run;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::backlog::segment_run::{SegmentRun, Totals, check_lease};
use crate::run::clock::RunClock;
use crate::run::lease::Lease;
use crate::run::state::JobState;
use crate::store::{OwnState, Result as StoreResult};
use shared::segment::Segment;
use shared::settings::{ConfigError, Mode, Settings, shown};

/// The settings that an event brings.
pub type Overrides = Map<String, Value>;

/// What an event asks of a function that works in parts as well.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// A whole run, as on its schedule.
    Run(Overrides),
    Start(Start),
    Segment(Box<SegmentRun>, Segment, Overrides),
    Finish(Finish),
}

/// The first step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The execution's name, which the lease is in.
    pub lease: String,
    pub input: Input,
    /// How many parts may run side by side, if there is a limit: as many as the function has been given.
    #[serde(default)]
    pub max_concurrency: Option<u16>,
}

/// What the execution was started with, all of it: a field that nobody knows must not be a silent default, least of all a
/// mistyped `settings` or a `mode` beside them.
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

/// What the last step has to know of the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Started {
    pub lease: String,
    pub segments: u16,
    pub started_at: i64,
    pub settings: Overrides,
}

/// The last step, after success with every part, after a failure with none.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finish {
    pub started: Started,
    pub segments: Vec<SegmentRun>,
}

/// # Errors
/// When the event is none of these, or says something that cannot be.
pub fn parse(mut fields: Overrides) -> Result<Request, ConfigError> {
    let steps = ["start", "segment", "finish"].map(|step| fields.remove(step).map(|value| (step, value)));
    let mut steps = steps.into_iter().flatten();
    let Some((step, value)) = steps.next() else { return Ok(Request::Run(fields)) };
    if let Some((other, _)) = steps.next() {
        return Err(wrong(step, &format!("it comes with {other}")));
    }
    if step != "segment" && !fields.is_empty() {
        return Err(wrong(step, "settings belong into it"));
    }
    match step {
        "start" => {
            let unknown =
                value["input"].as_object().and_then(|input| input.keys().find(|key| !INPUTS.contains(&key.as_str())));
            if let Some(unknown) = unknown {
                let known = INPUTS.join(", ");
                let problem = format!(
                    "{} is not a field of its input ({known}); a setting such as mode goes into settings",
                    shown(unknown)
                );
                return Err(wrong(step, &problem));
            }
            let start: Start = read(step, value)?;
            start.check().map_err(|problem| wrong(step, &problem))?;
            Ok(Request::Start(start))
        }
        "segment" => {
            let part: SegmentRun = read(step, value)?;
            let segment = part.segment().map_err(|problem| wrong(step, &problem))?;
            Ok(Request::Segment(Box::new(part.sharing()), segment, fields))
        }
        _ => {
            let finish: Finish = read(step, value)?;
            finish.check().map_err(|problem| wrong(step, &problem))?;
            Ok(Request::Finish(finish))
        }
    }
}

fn read<T: for<'de> Deserialize<'de>>(step: &str, value: Value) -> Result<T, ConfigError> {
    // What serde says of a wrong value quotes it.
    serde_json::from_value(value).map_err(|_| wrong(step, "its fields are not those that docs/scaling.md names"))
}

fn wrong(step: &str, problem: &str) -> ConfigError {
    ConfigError::Event { problem: format!("{step}: {problem}") }
}

/// The event that goes on with a part.
pub fn next_event(part: &SegmentRun, overrides: &Overrides) -> Value {
    if part.done {
        return Value::Null;
    }
    let mut event = overrides.clone();
    event.insert("segment".to_owned(), json!(part));
    Value::Object(event)
}

/// Whether a whole run of these settings may hand over: an execution has those of the stack, and would lose what an event
/// brought for that run, be it a slower pace or a longer reuse window.
pub fn may_start_backlog(overrides: &Overrides) -> bool {
    overrides.is_empty()
}

impl Start {
    fn check(&self) -> Result<(), String> {
        check_lease(&self.lease)?;
        self.part(0).segment()?;
        match self.max_concurrency {
            Some(most) if self.input.concurrency > most => {
                Err(format!("concurrency is above the {most} segments that an execution may run at a time"))
            }
            _ => Ok(()),
        }
    }

    /// # Errors
    /// When it is another job's.
    pub fn check_job(&self, name: &str) -> Result<(), ConfigError> {
        match &self.input.job {
            Some(job) if job != name => Err(wrong("start", &format!("its job is {}, and this is {name}", shown(job)))),
            _ => Ok(()),
        }
    }

    fn part(&self, segment: u16) -> SegmentRun {
        let Input { segments, concurrency, .. } = self.input;
        let lease = Some(self.lease.clone());
        SegmentRun { index: segment, count: segments, concurrency: Some(concurrency), lease, ..SegmentRun::default() }
    }

    /// The answer: what to ask first, once for each segment.
    pub fn answer(&self, now: i64) -> Value {
        let Input { segments, settings, .. } = &self.input;
        let parts = (0..*segments).map(|segment| json!({"next": next_event(&self.part(segment).sharing(), settings)}));
        let parts: Vec<Value> = parts.collect();
        let started =
            Started { lease: self.lease.clone(), segments: *segments, started_at: now, settings: settings.clone() };
        json!({"statusCode": 200, "started": started, "segments": parts})
    }
}

impl Finish {
    fn check(&self) -> Result<(), String> {
        let Started { lease, segments, .. } = &self.started;
        check_lease(lease)?;
        SegmentRun { count: *segments, ..SegmentRun::default() }.segment()?;
        self.segments.iter().try_for_each(|part| part.segment().map(drop))?;
        if self.segments.iter().any(|part| part.count != *segments) {
            return Err("a part is one of another number of segments".to_owned());
        }
        Ok(())
    }

    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.segments.iter().for_each(|part| totals.add(&part.totals));
        totals
    }

    /// Whether each segment was gone through once, with nothing skipped.
    pub fn is_complete(&self) -> bool {
        self.is_through() && self.totals().skipped == 0
    }

    /// Whether each segment was gone through once, so that no part is at work any more.
    fn is_through(&self) -> bool {
        let once = |segment| self.segments.iter().filter(|part| part.index == segment && part.done).count() == 1;
        let all = (0..self.started.segments).all(once);
        all && self.segments.len() == usize::from(self.started.segments)
    }

    pub fn answer(&self, name: &str, mode: Mode) -> Value {
        json!({
            "statusCode": 200,
            "job": name,
            "mode": mode.name(),
            "complete": self.is_complete(),
            "started_at": self.started.started_at,
            "segments": self.started.segments,
            "totals": self.totals(),
        })
    }

    /// Writes down that the job was complete, if it was, and gives the lease back; or takes it from the parts that may still be
    /// at work after another one failed.
    ///
    /// # Errors
    /// When the state row could not be read or written.
    pub async fn close<S: OwnState>(
        &self,
        store: &S,
        name: &str,
        settings: &Settings,
        clock: &RunClock,
    ) -> StoreResult<()> {
        if settings.mode == Mode::DryRun {
            return Ok(());
        }
        let lease = Lease::shared(store, clock, &self.started.lease);
        if !self.is_through() {
            return lease.recall().await;
        }
        if self.is_complete() {
            let stored = store.read_state(name).await?;
            let state = JobState::from_json(&stored.map_or(Value::Null, |stored| stored.value));
            let Started { lease, started_at, .. } = &self.started;
            if let Some(state) = state.after_execution(lease, *started_at, &self.totals()) {
                store.write_state(name, &json!(state)).await?;
            }
        }
        lease.release().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use shared::settings::ConfigError;

    use super::{Finish, Request, next_event};
    use crate::backlog::segment_run::SegmentRun;
    use crate::run::state::JobState;

    fn parse(event: Value) -> Result<Request, ConfigError> {
        let Value::Object(fields) = event else { panic!("{event}") };
        super::parse(fields)
    }

    fn started() -> Value {
        json!({"lease": "run-1", "segments": 2, "started_at": 100, "settings": {"mode": "dry-run"}})
    }

    fn part(segment: u16, skipped: u64) -> Value {
        json!({"index": segment, "count": 2, "done": true, "totals": {"skipped": skipped, "deleted": 3, "runs": 1}})
    }

    fn end(parts: &[Value]) -> Finish {
        match parse(json!({"finish": {"started": started(), "segments": parts}})) {
            Ok(Request::Finish(finish)) => finish,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_begins_hands_out_each_segment_once_and_what_ends_adds_them_up() {
        let input = json!({"segments": 2, "concurrency": 3, "settings": {"mode": "dry-run"}});
        let Ok(Request::Start(start)) = parse(json!({"start": {"lease": "run-1", "input": input}})) else { panic!() };
        let answer = start.answer(100);
        assert_eq!(answer["started"], started());
        for (number, item) in answer["segments"].as_array().unwrap().iter().enumerate() {
            let Ok(Request::Segment(part, _, overrides)) = parse(item["next"].clone()) else { panic!("{item}") };
            assert_eq!((usize::from(part.index), part.count), (number, 2));
            assert_eq!((part.lease.as_deref(), &overrides["mode"]), (Some("run-1"), &json!("dry-run")));
            assert_eq!(part.concurrency, Some(2), "two segments share the pace, however many might");
        }
        let all = end(&[part(1, 0), part(0, 0)]);
        assert!(all.is_complete());
        assert_eq!((all.totals().deleted, all.totals().runs), (6, 2));
    }

    #[test]
    fn only_every_segment_once_with_nothing_skipped_is_complete() {
        let unfinished = json!({"segment": 1, "segments": 2});
        for parts in [
            vec![],
            vec![part(0, 0)],
            vec![part(0, 0), part(0, 0)],
            vec![part(0, 0), part(1, 1)],
            vec![part(0, 0), unfinished],
        ] {
            assert!(!end(&parts).is_complete(), "{parts:?}");
        }
    }

    /// A setting beside `settings`, or a mistyped `settings`, would otherwise start an execution that deletes.
    #[test]
    fn an_input_with_a_field_that_nobody_knows_begins_nothing() {
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
            (json!({"segments": "2"}), "its fields are not those"),
        ] {
            let error = start(&more).expect_err(&more.to_string()).to_string();
            assert!(error.contains(said), "{error}");
        }
        let Ok(Request::Start(start)) = start(&json!({})) else { panic!() };
        assert!(start.check_job("daily-cleanup").is_ok());
        assert!(start.check_job("index-repair").is_err());
    }

    #[test]
    fn an_end_that_does_not_fit_its_beginning_is_refused() {
        let ended = |started: Value, parts: &[Value]| parse(json!({"finish": {"started": started, "segments": parts}}));
        let segments = |n: u16| json!({"lease": "run-1", "segments": n, "started_at": 100, "settings": {}});
        assert!(ended(segments(2), &[part(0, 0), part(1, 0)]).is_ok());
        for (started, parts) in [
            (segments(0), vec![]),
            (segments(65), vec![]),
            (segments(3), vec![part(0, 0), part(1, 0)]),
            (segments(2), vec![part(0, 0), part(2, 0)]),
        ] {
            assert!(ended(started.clone(), &parts).is_err(), "{started} {parts:?}");
        }
    }

    #[test]
    fn a_last_step_that_is_asked_twice_counts_once() {
        let totals = serde_json::from_value(json!({"deleted": 7, "deleted_in": {"spa_access_tokens": 7}})).unwrap();
        let once = JobState::default().after_execution("run-1", 7_200, &totals).unwrap();
        assert_eq!(json!(once.deleted_in_hour), json!({"2": 7}));
        let stored = JobState::from_json(&json!(once));
        assert_eq!(stored.after_execution("run-1", 7_200, &totals), None);
        let again = stored.after_execution("run-1", 7_300, &totals).unwrap();
        assert_eq!(json!(again.deleted_in_hour), json!({"2": 14}), "another one of the same name");
    }

    #[test]
    fn a_part_that_is_done_asks_for_nothing_more() {
        let done = SegmentRun { count: 1, done: true, ..SegmentRun::default() };
        assert_eq!(next_event(&done, &super::Overrides::new()), Value::Null);
    }

    #[test]
    fn what_cannot_be_is_refused_without_being_repeated() {
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
            // No more of it than the mask shows.
            assert!(!error.contains(&secret[..7]), "{error}");
        }
    }
}
