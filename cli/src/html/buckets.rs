//! The table of buckets, with bars.

use super::chart::{Scale, axis, bars};
use super::markup::{Answer, escape, name, rows_in_words, step};
use crate::screen::grouped;

/// Kinds of owners in the answer, and what they are called on the page.
const OWNERS: [(&str, &str); 5] = [
    ("system", "System actors"),
    ("actor", "Actors"),
    ("legacy", "Legacy: read by ActingWeb 3.2.1 only"),
    ("janitor", "The janitor\u{2019}s own state"),
    ("unknown", "Not ours: never touched"),
];

/// The pointers to one kind of owner's buckets, the largest first.
fn largest_first(answer: Answer, owner: &str) -> Vec<(String, String)> {
    let at = format!("/report/owners/{owner}/buckets");
    let mut buckets: Vec<(String, String)> =
        answer.names(&at).into_iter().map(|name| (name.to_owned(), format!("{at}/{}", step(name)))).collect();
    buckets.sort_by_key(|(_, at)| std::cmp::Reverse(answer.count(&format!("{at}/rows"))));
    buckets
}

const PARTS: [&str; 3] = ["rows", "dead", "due"];

pub(super) fn section(answer: Answer) -> String {
    let owners = OWNERS.map(|(owner, title)| (owner, title, largest_first(answer, owner)));
    let counts = |at: &str| PARTS.map(|part| answer.count(&format!("{at}/{part}")));
    let scale = Scale::of(owners.iter().flat_map(|(_, _, buckets)| buckets.iter().flat_map(|(_, at)| counts(at))));
    let numbers = |at: &str| {
        let number = |part: &str, name: &str| {
            let none = if answer.count(&format!("{at}/{part}")) == 0 { " zero" } else { "" };
            format!(
                "<td role=\"cell\" class=\"{part}{none}\" data-label=\"{name}\">{}</td>",
                answer.number(&format!("{at}/{part}"))
            )
        };
        let oldest = format!("{at}/oldest_dead_age_seconds");
        let none = if answer.at(&oldest).is_null() { " zero" } else { "" };
        format!(
            "{}{}{}<td role=\"cell\" class=\"age{none}\" data-label=\"oldest dead for\">{}</td>\
             <td role=\"cell\" class=\"size\" data-label=\"size\">{}</td>",
            number("rows", "rows"),
            number("dead", "dead"),
            number("due", "due"),
            answer.span(&oldest),
            answer.size(&format!("{at}/bytes"))
        )
    };
    let row = |owner: &str, bucket: &str, at: &str| {
        let [rows, dead, due] = counts(at);
        let says = format!("{bucket}: {}, {} dead, {} due", rows_in_words(rows), grouped(dead), grouped(due));
        format!(
            "<tr role=\"row\" data-owner=\"{owner}\" data-bucket=\"{0}\" data-rows=\"{rows}\" data-dead=\"{dead}\" \
             data-due=\"{due}\"><th role=\"rowheader\" scope=\"row\">{1}</th><td role=\"cell\" class=\"bar\">{2}</td>{3}</tr>",
            escape(bucket),
            name(bucket),
            bars(scale, &says, &[("rows", rows), ("dead", dead), ("due", due)]),
            numbers(at)
        )
    };
    let groups: String = owners
        .iter()
        .filter(|(_, _, buckets)| !buckets.is_empty())
        .map(|(owner, title, buckets)| {
            let rows: String = buckets.iter().map(|(name, at)| row(owner, name, at)).collect();
            format!(
                "<tbody role=\"rowgroup\"><tr role=\"row\" class=\"group\"><th role=\"rowheader\" scope=\"rowgroup\" \
                 colspan=\"7\">{title}</th></tr>{rows}</tbody>"
            )
        })
        .collect();
    let head =
        |class: &str, name: &str| format!("<th role=\"columnheader\" scope=\"col\" class=\"{class}\">{name}</th>");
    let scale_note = match scale {
        Scale::Linear { .. } => "The bars have a linear scale: twice as long is twice as many.",
        Scale::Log { .. } => "The bars have a log scale: read their ends against the numbers above.",
    };
    let table = format!(
        "<p class=\"lead\">Dead rows wait for the cleanup. Due ones are index rows past their TTL: whether they are dead, \
         their targets say. {scale_note}</p><table role=\"table\" class=\"chart buckets wide\"><thead role=\"rowgroup\">\
         <tr role=\"row\">{}{}{}{}{}{}{}</tr></thead>{groups}<tfoot role=\"rowgroup\"><tr role=\"row\">\
         <th role=\"rowheader\" scope=\"row\">All</th><td role=\"cell\" class=\"bar\"></td>{}</tr></tfoot></table>",
        head("name", "Bucket"),
        head("bar", &axis(scale)),
        head("rows key", "Rows"),
        head("dead key", "Dead"),
        head("due key", "Due"),
        head("age", "Oldest dead for"),
        head("size", "Size"),
        numbers("/report/rows")
    );
    let body = if groups.is_empty() { "<p class=\"none\">No row was counted.</p>" } else { table.as_str() };
    super::section("buckets", "Rows by bucket", body)
}
