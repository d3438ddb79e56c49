//! How long rows have been dead, or past their TTL.

use maud::{Markup, html};
use shared::row::TtlFault;

use super::chart::{Scale, axis, bars};
use super::markup::{Answer, clean, name, step};
use super::section;
use crate::screen::grouped;

/// A chart of names, bars and numbers. Each row is a name and the pointer to its number.
pub(super) fn bar_table(answer: Answer, class: &str, bar: &str, head: [&str; 2], rows: &[(String, String)]) -> Markup {
    let scale = Scale::of(rows.iter().map(|(_, at)| answer.count(at)));
    html! {
        table class=(class) {
            thead {
                tr { th scope="col" { (head[0]) } th scope="col" class="bar" { (axis(scale)) } th scope="col" class="n" { (head[1]) } }
            }
            tbody {
                @for (of, at) in rows {
                    @let n = answer.count(at);
                    tr data-rows=(n) {
                        th scope="row" { (name(of)) }
                        td class="bar" { (bars(scale, &format!("{of}: {}", grouped(n)), &[(bar, n)])) }
                        td class={ "n" @if n == 0 { " zero" } } { (answer.number(at)) }
                    }
                }
            }
        }
    }
}

/// Readable names of the document's age groups, and the pointers to their counts.
fn ages(answer: Answer, at: &str) -> Vec<(String, String)> {
    let mut from = 0;
    let mut cells = Vec::new();
    for i in 0..answer.list(at).len() {
        let up_to = answer.at(&format!("{at}/{i}/up_to_seconds")).as_u64();
        let name = match up_to {
            Some(to) if from == 0 => format!("up to {} h", to / 3_600),
            Some(to) if to <= 86_400 => format!("{}\u{2013}{} h", from / 3_600, to / 3_600),
            Some(to) => format!("{}\u{2013}{} days", from / 86_400, to / 86_400),
            None => format!("over {} days", from / 86_400),
        };
        cells.push((name, format!("{at}/{i}/rows")));
        from = up_to.unwrap_or(from);
    }
    cells
}

pub(super) fn backlog(answer: Answer) -> Markup {
    let body = html! {
        @if answer.count("/report/rows/dead") == 0 {
            p class="well" { "There are no dead rows." }
        } @else {
            p class="lead" { "How long dead rows have been dead, in every bucket counted." }
            (bar_table(answer, "chart", "dead", ["Dead for", "Rows"], &ages(answer, "/report/dead_age")))
        }
    };
    section("backlog", "Age of the backlog", &body)
}

pub(super) fn ttl(answer: Answer) -> Markup {
    let span = |name: &str| answer.span(&format!("/report/ttl/lag/{name}_seconds"));
    let body = html! {
        @if answer.count("/report/ttl/lag/rows") == 0 {
            p class="well" { "No row is past its TTL." }
        } @else {
            p class="lead" {
                "Rows past their TTL that still exist: " (answer.rows("/report/ttl/lag/rows"))
                " (median " (span("median")) ", 95th percentile " (span("p95")) ", maximum " (span("oldest")) ")."
            }
            (bar_table(answer, "chart", "due", ["Past it for", "Rows"], &ages(answer, "/report/ttl/lag_age")))
        }
    };
    section("ttl", "TTL lag", &body)
}

/// Rows that only the cleanup can remove.
pub(super) fn never_removed(answer: Answer) -> Markup {
    let reasons = answer.names("/report/ttl/never_removed");
    let why = |name: &str| match name.parse::<TtlFault>() {
        Ok(fault) => format!("the TTL is {}", fault.description()),
        Err(_) if name == "absent" => "there is no TTL, though ActingWeb gives such rows one".to_owned(),
        Err(_) => clean(name),
    };
    let body = html! {
        @if reasons.is_empty() {
            p class="well" { "There are none." }
        } @else {
            table class="plain" {
                thead { tr { th scope="col" { "Why" } th scope="col" class="n" { "Rows" } } }
                tbody {
                    @for reason in reasons {
                        tr {
                            th scope="row" { (why(reason)) }
                            td class="n" { (answer.number(&format!("/report/ttl/never_removed/{}", step(reason)))) }
                        }
                    }
                }
            }
        }
    };
    section("never", "Rows that TTL will never remove", &body)
}
