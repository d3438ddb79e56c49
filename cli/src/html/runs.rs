//! The last run of each job, from its state row.

use maud::{Markup, html};

use super::ages::bar_table;
use super::chart::parts;
use super::facts;
use super::markup::{Answer, clean, step};
use crate::screen::grouped;

pub(super) fn section(answer: Answer) -> Markup {
    let body = html! {
        div class="runs" {
            @for name in answer.names("/report/runs") {
                @let job = format!("/report/runs/{}", step(name));
                article {
                    h3 { (clean(name)) }
                    @if answer.at(&format!("{job}/last_run")).is_null() {
                        p class="none" { "No run is recorded on this table yet." }
                    } @else {
                        (last_run(answer, &job))
                    }
                }
            }
        }
    };
    super::section("runs", "Last runs", &body)
}

fn last_run(answer: Answer, job: &str) -> Markup {
    let at = |name: &str| format!("{job}/last_run/{name}");
    let outcome = answer.text(&at("outcome"));
    let (read, deleted) = (answer.count(&at("read")), answer.count(&at("deleted")));
    let left = read.saturating_sub(deleted);
    let label = format!("{} of {} rows read were deleted, {} kept", grouped(deleted), grouped(read), grouped(left));
    let buckets = answer.largest_first(&at("deleted_in"), "");
    let text = |text: &str| html! { (text) };
    html! {
        p class="run" {
            span class={ "badge " (if outcome == "complete" { "good" } else { "bad" }) } data-text=(at("outcome")) {
                (outcome.replace('-', " "))
            }
            " " (answer.time(&at("at")))
        }
        (parts(&label, &[("dead", deleted), ("rows", left)]))
        (facts(&[
            (text("Read"), answer.number(&at("read"))),
            (html! { span class="dead key" { "Deleted" } }, answer.number(&at("deleted"))),
            (html! { span class="rows key" { "Kept" } }, html! { data value=(left) { (grouped(left)) } }),
            (text("Changed in the meantime, and kept"), answer.number(&at("lost_race"))),
            (text("Skipped: not read or not deleted"), answer.number(&at("skipped"))),
            (text("Last complete run"), if answer.at(&format!("{job}/last_complete_at")).is_i64() {
                html! { (answer.span(&format!("{job}/last_complete_age_seconds"))) " ago" }
            } else {
                html! { "never yet" }
            }),
            (text("Consecutive incomplete runs"), answer.number(&format!("{job}/consecutive_incomplete_runs"))),
        ]))
        @if !buckets.is_empty() {
            h4 { "Deleted, by bucket" }
            (bar_table(answer, "chart buckets", "dead", ["Bucket", "Deleted"], &buckets))
        }
    }
}
