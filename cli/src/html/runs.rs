//! What each last run did, by its state row.

use super::ages::bar_table;
use super::chart::parts;
use super::facts;
use super::markup::{Answer, escape, step};
use crate::screen::grouped;

pub(super) fn section(answer: Answer) -> String {
    let cards: String = answer.names("/report/runs").into_iter().map(|name| card(answer, name)).collect();
    super::section("runs", "Last runs", &format!("<div class=\"runs\">{cards}</div>"))
}

fn card(answer: Answer, name: &str) -> String {
    let job = format!("/report/runs/{}", step(name));
    let run = format!("{job}/last_run");
    let body = if answer.at(&run).is_null() {
        "<p class=\"none\">No run is recorded on this table yet.</p>".to_owned()
    } else {
        last_run(answer, &job, &run)
    };
    format!("<article><h3>{}</h3>{body}</article>", escape(name))
}

fn last_run(answer: Answer, job: &str, run: &str) -> String {
    let count = |name: &str| answer.count(&format!("{run}/{name}"));
    let outcome = answer.text(&format!("{run}/outcome"));
    let good = if outcome == "complete" { "good" } else { "bad" };
    let (read, deleted) = (count("read"), count("deleted"));
    let left = read.saturating_sub(deleted);
    let says = format!("{} of {} rows read were deleted, {} left", grouped(deleted), grouped(read), grouped(left));
    let whole = match answer.at(&format!("{job}/last_complete_at")).as_i64() {
        None => "never yet".to_owned(),
        Some(_) => format!("{} ago", answer.span(&format!("{job}/last_complete_age_seconds"))),
    };
    let numbers = facts(&[
        ("Read", answer.number(&format!("{run}/read"))),
        ("<span class=\"dead key\">Deleted</span>", answer.number(&format!("{run}/deleted"))),
        (
            "<span class=\"rows key\">Left where they are</span>",
            format!("<data value=\"{left}\">{}</data>", grouped(left)),
        ),
        ("Changed in between, and left", answer.number(&format!("{run}/lost_race"))),
        ("Skipped: not read or not deleted", answer.number(&format!("{run}/skipped"))),
        ("Last one that reached the end", whole),
        ("Cut off, one after another", answer.number(&format!("{job}/consecutive_incomplete_runs"))),
    ]);
    let at = format!("{run}/deleted_in");
    let mut buckets: Vec<(String, String)> =
        answer.names(&at).into_iter().map(|name| (name.to_owned(), format!("{at}/{}", step(name)))).collect();
    buckets.sort_by_key(|(_, at)| std::cmp::Reverse(answer.count(at)));
    let by_bucket = if buckets.is_empty() {
        String::new()
    } else {
        format!(
            "<h4>Deleted, by bucket</h4>{}",
            bar_table(answer, "chart buckets", "dead", ["Bucket", "Deleted"], &buckets)
        )
    };
    format!(
        "<p class=\"run\"><span class=\"badge {good}\" data-text=\"{run}/outcome\">{}</span> {}</p>\
         {}{numbers}{by_bucket}",
        outcome.replace('-', " "),
        answer.time(&format!("{run}/at")),
        parts(&says, &[("dead", deleted), ("rows", left)]),
    )
}
