//! Events of an execution: mutations of a corpus (`events.txt`, one per line).

use model::mutate::{Corpus, Fuzz};
use serde_json::{Value, json};
use shared::bucket::BUCKETS;
use shared::segment::Segment;
use shared::settings::Mode;

use super::{Request, SegmentRun, parse};
use crate::cleanup::Cleanup;

/// Whatever an event contains, every step has a valid segment, and only known names from the event reach an answer.
#[test]
fn any_event_is_a_step_of_an_execution_or_refused() {
    let fuzz = Fuzz::start("events of an execution", 20_000);
    let mut corpus = Corpus::of(include_str!("events.txt"), fuzz.seed);
    let mut steps = [0; 4];
    let mut check = |text: &str| {
        let Ok(Value::Object(fields)) = serde_json::from_str(text) else { return false };
        let Ok(request) = parse::<Cleanup>(fields) else { return false };
        let step = match request {
            Request::Run(_) => 0,
            Request::Start(start) => {
                let answer = json!(start.answer(100, false));
                let next = answer["segments"].as_array().expect("segments");
                assert_eq!(next.len(), usize::from(start.input.segments), "{text}");
                for event in next {
                    let Value::Object(event) = event["next"].clone() else { panic!("{text}") };
                    assert!(matches!(parse::<Cleanup>(event), Ok(Request::Segment(..))), "{text}");
                }
                1
            }
            Request::Segment(run, _) => {
                known(&run, text);
                2
            }
            Request::Finish(finish) => {
                finish.segments.iter().for_each(|run| known(run, text));
                let answer = json!(finish.answer::<Cleanup>(Mode::Delete));
                assert_eq!(answer["complete"], finish.is_complete(), "{text}");
                3
            }
        };
        steps[step] += 1;
        steps[step] % 64 == 1
    };
    let mut seeds = include_str!("events.txt").lines();
    for _ in 0..fuzz.rounds {
        let text = seeds.next().map_or_else(|| corpus.next_text(), str::to_owned);
        if check(&text) {
            corpus.keep(text);
        }
    }
    assert!(steps.iter().all(|met| *met > 20), "{steps:?}: the corpus is too far from an event");
    fuzz.end();
}

fn known(run: &SegmentRun, text: &str) {
    assert!(run.index < run.count && run.count <= Segment::MOST && run.segment().is_ok(), "{text}");
    assert!(run.totals.deleted_in.keys().all(|name| BUCKETS.iter().any(|bucket| bucket.name == name)), "{text}");
    assert!(!run.totals.found.contains_key("x"), "{text}");
}
