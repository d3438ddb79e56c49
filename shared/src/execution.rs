//! An execution: many runs of a job, one after another in each of many segments, under one lease.
//!
//! What drives it (the state machine of `template.yaml`) knows no row and no cursor: it asks to begin, hands each `next` that
//! it is given back until there is none, and hands over what the parts came to at the end.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::clock::RunClock;
use crate::config::{ConfigError, Mode, Settings};
use crate::event;
use crate::lease::Lease;
use crate::part::{Part, Totals, check_lease};
use crate::segment::Segment;
use crate::state::JobState;
use crate::store::{OwnState, Result as StoreResult};

/// The settings that an event brings.
pub type Overrides = Map<String, Value>;

/// What an event asks of a function that works in parts as well.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// A whole run, as on its schedule.
    Run(Overrides),
    Begin(Begin),
    Part(Box<Part>, Segment, Overrides),
    End(End),
}

/// The first step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    /// The execution's name, which the lease is in.
    pub lease: String,
    pub segments: u16,
    pub side_by_side: u16,
    #[serde(default)]
    pub settings: Overrides,
}

/// What the last step has to know of the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Begun {
    pub lease: String,
    pub segments: u16,
    pub began: i64,
    pub settings: Overrides,
}

/// The last step, after success with every part, after a failure with none.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub begun: Begun,
    pub parts: Vec<Part>,
}

/// # Errors
/// When the event is none of these, or says something that cannot be.
pub fn asked(event: Value) -> Result<Asked, ConfigError> {
    let mut fields = event::overrides(event)?;
    let steps = ["begin", "part", "end"].map(|step| fields.remove(step).map(|value| (step, value)));
    let mut steps = steps.into_iter().flatten();
    let Some((step, value)) = steps.next() else { return Ok(Asked::Run(fields)) };
    if let Some((other, _)) = steps.next() {
        return Err(wrong(step, &format!("it comes with {other}")));
    }
    if step != "part" && !fields.is_empty() {
        return Err(wrong(step, "settings belong into it"));
    }
    match step {
        "begin" => {
            let begin: Begin = read(step, value)?;
            let part = Part { segments: begin.segments, side_by_side: Some(begin.side_by_side), ..Part::default() };
            part.segment().and_then(|_| check_lease(&begin.lease)).map_err(|problem| wrong(step, &problem))?;
            Ok(Asked::Begin(begin))
        }
        "part" => {
            let part: Part = read(step, value)?;
            let segment = part.segment().map_err(|problem| wrong(step, &problem))?;
            Ok(Asked::Part(Box::new(part), segment, fields))
        }
        _ => {
            let end: End = read(step, value)?;
            check_lease(&end.begun.lease).map_err(|problem| wrong(step, &problem))?;
            Ok(Asked::End(end))
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
#[must_use]
pub fn next_event(part: &Part, overrides: &Overrides) -> Value {
    if part.done {
        return Value::Null;
    }
    let mut event = overrides.clone();
    event.insert("part".to_owned(), json!(part));
    Value::Object(event)
}

impl Begin {
    /// The answer: what to ask first, once for each segment.
    #[must_use]
    pub fn answer(&self, now: i64) -> Value {
        let parts: Vec<Value> = (0..self.segments)
            .map(|segment| Part {
                segment,
                segments: self.segments,
                side_by_side: Some(self.side_by_side),
                lease: Some(self.lease.clone()),
                ..Part::default()
            })
            .map(|part| json!({"next": next_event(&part, &self.settings)}))
            .collect();
        let (lease, segments, settings) = (self.lease.clone(), self.segments, self.settings.clone());
        json!({"statusCode": 200, "begun": Begun { lease, segments, began: now, settings }, "parts": parts})
    }
}

impl End {
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.parts.iter().for_each(|part| totals.add(&part.totals));
        totals
    }

    /// Whether each segment was gone through once, with nothing skipped.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let once = |segment| self.parts.iter().filter(|part| part.segment == segment && part.done).count() == 1;
        let all = (0..self.begun.segments).all(once);
        all && self.parts.len() == usize::from(self.begun.segments) && self.totals().skipped == 0
    }

    #[must_use]
    pub fn answer(&self, name: &str, mode: Mode) -> Value {
        json!({
            "statusCode": 200,
            "job": name,
            "mode": mode.name(),
            "complete": self.is_complete(),
            "began": self.begun.began,
            "segments": self.begun.segments,
            "totals": self.totals(),
        })
    }

    /// Writes down that the job was complete, if it was, and gives the lease back.
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
        if self.is_complete() {
            let stored = store.read_state(name).await?;
            let state = JobState::from_json(&stored.map_or(Value::Null, |stored| stored.value));
            store.write_state(name, &json!(state.after_execution(self.begun.began, &self.totals()))).await?;
        }
        Lease::shared(store, clock, &self.begun.lease).release().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Asked, End, asked, next_event};
    use crate::part::Part;

    fn begun() -> Value {
        json!({"lease": "run-1", "segments": 2, "began": 100, "settings": {"mode": "dry-run"}})
    }

    fn part(segment: u16, skipped: u64) -> Value {
        json!({"segment": segment, "segments": 2, "done": true, "totals": {"skipped": skipped, "deleted": 3, "runs": 1}})
    }

    fn end(parts: &[Value]) -> End {
        match asked(json!({"end": {"begun": begun(), "parts": parts}})) {
            Ok(Asked::End(end)) => end,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_begins_hands_out_each_segment_once_and_what_ends_adds_them_up() {
        let event =
            json!({"begin": {"lease": "run-1", "segments": 2, "side_by_side": 2, "settings": {"mode": "dry-run"}}});
        let Ok(Asked::Begin(begin)) = asked(event) else { panic!() };
        let answer = begin.answer(100);
        assert_eq!(answer["begun"], begun());
        for (number, item) in answer["parts"].as_array().unwrap().iter().enumerate() {
            let Ok(Asked::Part(part, _, overrides)) = asked(item["next"].clone()) else { panic!("{item}") };
            assert_eq!((usize::from(part.segment), part.segments), (number, 2));
            assert_eq!((part.lease.as_deref(), &overrides["mode"]), (Some("run-1"), &json!("dry-run")));
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

    #[test]
    fn a_part_that_is_done_asks_for_nothing_more() {
        let done = Part { segments: 1, done: true, ..Part::default() };
        assert_eq!(next_event(&done, &super::Overrides::new()), Value::Null);
    }

    #[test]
    fn what_cannot_be_is_refused_without_being_repeated() {
        let secret = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
        for event in [
            json!({"part": {"segment": 2, "segments": 2}}),
            json!({"part": {"segment": 0, "segments": 65}}),
            json!({"part": {"segment": 0}}),
            json!({"part": {"segment": 0, "segments": 1, "side_by_side": 0}}),
            json!({"part": {"segment": 0, "segments": 1, "lease": secret.repeat(2)}}),
            json!({"part": {"segment": secret, "segments": 1}}),
            json!({"part": {"segment": 0, "segments": 1, (secret): 1}}),
            json!({"part": {"segment": 0, "segments": 1}, "end": {}}),
            json!({"part": secret}),
            json!({"begin": {"lease": "", "segments": 1, "side_by_side": 1}}),
            json!({"begin": {"lease": "x", "segments": 0, "side_by_side": 1}}),
            json!({"begin": {"lease": "x", "segments": 1, "side_by_side": 1}, "mode": "dry-run"}),
            json!({"end": {"begun": begun(), "parts": [secret]}}),
        ] {
            let error = asked(event.clone()).expect_err(&event.to_string()).to_string();
            assert!(!error.contains(&secret[..6]), "{error}");
        }
    }
}
