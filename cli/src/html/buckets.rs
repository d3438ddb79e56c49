//! The table of buckets, with bars.

use maud::{Markup, html};

use super::chart::{Scale, axis, bars};
use super::markup::{Answer, clean, name, rows_in_words};
use crate::screen::grouped;

/// Kinds of owners in the document, and their titles on the page.
const OWNERS: [(&str, &str); 5] = [
    ("system", "System actors"),
    ("actor", "Actors"),
    ("legacy", "Legacy: read by ActingWeb 3.2.1 only"),
    ("janitor", "The janitor\u{2019}s own state"),
    ("unknown", "Unknown buckets: never touched"),
];

const PARTS: [&str; 3] = ["rows", "dead", "due"];

pub(super) fn section(answer: Answer) -> Markup {
    let buckets = |owner: &str| answer.largest_first(&format!("/report/owners/{owner}/buckets"), "/rows");
    let mut owners = OWNERS.map(|(owner, title)| (owner, title, buckets(owner))).to_vec();
    owners.retain(|(_, _, buckets)| !buckets.is_empty());
    if owners.is_empty() {
        return super::section("buckets", "Rows by bucket", &html! { p class="none" { "No row was counted." } });
    }
    let counts = |at: &str| PARTS.map(|part| answer.count(&format!("{at}/{part}")));
    let scale = Scale::of(owners.iter().flat_map(|(_, _, buckets)| buckets.iter().flat_map(|(_, at)| counts(at))));
    let scale_note = match scale {
        Scale::Linear { .. } => "The bars have a linear scale: twice as long is twice as many.",
        Scale::Log { .. } => "The bars have a log scale: read their ends against the numbers above.",
    };
    let head = |class: &str, name: Markup| html! { th role="columnheader" scope="col" class=(class) { (name) } };
    let body = html! {
        p class="lead" {
            "Dead rows wait for the cleanup. Due rows are index rows past their TTL: their targets decide whether they are dead. "
            (scale_note)
        }
        @if answer.count("/body/retired_rows") > 0 {
            p class="lead" {
                "Retired: " (answer.rows("/body/retired_rows")) ", not among the dead. TTL removes the last of them after "
                (answer.time("/body/retired_rows_gone_by")) "; until then " code { "janitor restore" } " can restore them."
            }
        }
        table role="table" class="chart buckets wide" {
            thead role="rowgroup" {
                tr role="row" {
                    (head("name", html! { "Bucket" }))
                    (head("bar", axis(scale)))
                    (head("rows key", html! { "Rows" }))
                    (head("dead key", html! { "Dead" }))
                    (head("due key", html! { "Due" }))
                    (head("age", html! { "Longest dead" }))
                    (head("size", html! { "Size" }))
                }
            }
            @for (owner, title, buckets) in &owners {
                tbody role="rowgroup" {
                    tr role="row" class="group" { th role="rowheader" scope="rowgroup" colspan="7" { (title) } }
                    @for (bucket, at) in buckets {
                        (row(answer, scale, owner, bucket, at, counts(at)))
                    }
                }
            }
            tfoot role="rowgroup" {
                tr role="row" {
                    th role="rowheader" scope="row" { "All" }
                    td role="cell" class="bar" {}
                    (numbers(answer, "/report/rows"))
                }
            }
        }
    };
    super::section("buckets", "Rows by bucket", &body)
}

fn row(answer: Answer, scale: Scale, owner: &str, bucket: &str, at: &str, [rows, dead, due]: [u64; 3]) -> Markup {
    let label = format!("{bucket}: {}, {} dead, {} due", rows_in_words(rows), grouped(dead), grouped(due));
    html! {
        tr role="row" data-owner=(owner) data-bucket=(clean(bucket)) data-rows=(rows) data-dead=(dead) data-due=(due) {
            th role="rowheader" scope="row" { (name(bucket)) }
            td role="cell" class="bar" { (bars(scale, &label, &[("rows", rows), ("dead", dead), ("due", due)])) }
            (numbers(answer, at))
        }
    }
}

fn numbers(answer: Answer, at: &str) -> Markup {
    let oldest = format!("{at}/oldest_dead_age_seconds");
    html! {
        @for part in PARTS {
            @let at = format!("{at}/{part}");
            td role="cell" class={ (part) @if answer.count(&at) == 0 { " zero" } } data-label=(part) { (answer.number(&at)) }
        }
        td role="cell" class={ "age" @if answer.at(&oldest).is_null() { " zero" } } data-label="longest dead" {
            (answer.span(&oldest))
        }
        td role="cell" class="size" data-label="size" { (answer.size(&format!("{at}/bytes"))) }
    }
}
