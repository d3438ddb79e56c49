//! How long rows have been dead, or past their TTL.

use super::chart::{Scale, axis, bars};
use super::markup::{Answer, escape, name, step};
use super::section;
use crate::screen::grouped;

/// A chart of names, bars and numbers: of each name the pointer to its number.
pub(super) fn bar_table(
    answer: Answer,
    class: &str,
    bar: &'static str,
    head: [&str; 2],
    rows: &[(String, String)],
) -> String {
    let scale = Scale::of(rows.iter().map(|(_, at)| answer.count(at)));
    let body: String = rows
        .iter()
        .map(|(of, at)| {
            let n = answer.count(at);
            let says = format!("{of}: {}", grouped(n));
            let none = if n == 0 { " zero" } else { "" };
            format!(
                "<tr data-rows=\"{n}\"><th scope=\"row\">{}</th><td class=\"bar\">{}</td><td class=\"n{none}\">{}</td></tr>",
                name(of),
                bars(scale, &says, &[(bar, n)]),
                answer.number(at)
            )
        })
        .collect();
    format!(
        "<table class=\"{class}\"><thead><tr><th scope=\"col\">{}</th><th scope=\"col\" class=\"bar\">\
         {}</th><th scope=\"col\" class=\"n\">{}</th></tr></thead>\
         <tbody>{body}</tbody></table>",
        head[0],
        axis(scale),
        head[1]
    )
}

/// The cells of ages in the answer, with names for people.
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

pub(super) fn backlog(answer: Answer) -> String {
    let body = if answer.count("/report/rows/dead") == 0 {
        "<p class=\"well\">No dead row was counted.</p>".to_owned()
    } else {
        let chart = bar_table(answer, "chart", "dead", ["Dead for", "Rows"], &ages(answer, "/report/dead_age"));
        format!("<p class=\"lead\">How long dead rows have been dead, in every bucket counted.</p>{chart}")
    };
    section("backlog", "Age of the backlog", &body)
}

pub(super) fn ttl(answer: Answer) -> String {
    let lag = if answer.count("/report/ttl/lag/rows") == 0 {
        "<p class=\"well\">No row was counted that is past its TTL.</p>".to_owned()
    } else {
        format!(
            "<p class=\"lead\">Still there past their TTL: {}, half of them for {} or less, 95 % for {}, the oldest for {}.\
             </p>{}",
            answer.rows("/report/ttl/lag/rows"),
            answer.span("/report/ttl/lag/median_seconds"),
            answer.span("/report/ttl/lag/p95_seconds"),
            answer.span("/report/ttl/lag/oldest_seconds"),
            bar_table(answer, "chart", "due", ["Past it for", "Rows"], &ages(answer, "/report/ttl/lag_age"))
        )
    };
    section("ttl", "TTL lag", &lag)
}

/// Rows that only the cleanup can remove.
pub(super) fn never_removed(answer: Answer) -> String {
    let never: String = answer
        .names("/report/ttl/never_removed")
        .into_iter()
        .map(|why| {
            let words = match why {
                "absent" => "has no TTL, though ActingWeb gives such rows one",
                "not_a_number" => "its TTL is not a Number",
                "not_whole_seconds" => "its TTL is no whole number of seconds",
                "milliseconds" => "its TTL is in milliseconds",
                "too_old" => "its TTL is more than five years past",
                other => other,
            };
            let number = answer.number(&format!("/report/ttl/never_removed/{}", step(why)));
            format!("<tr><th scope=\"row\">{}</th><td class=\"n\">{number}</td></tr>", escape(words))
        })
        .collect();
    let never = if never.is_empty() {
        "<p class=\"well\">None was counted.</p>".to_owned()
    } else {
        format!(
            "<table class=\"plain\"><thead><tr><th scope=\"col\">Why</th>\
             <th scope=\"col\" class=\"n\">Rows</th></tr></thead><tbody>{never}</tbody></table>"
        )
    };
    section("never", "Rows that TTL will never remove", &never)
}
