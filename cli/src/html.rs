//! The audit as one self-contained page, without scripts or external resources. It is made from the document that `--json`
//! prints, so that no number can differ.

mod ages;
mod buckets;
mod chart;
mod markup;
mod runs;
mod save;

use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use markup::{Answer, name};
pub use save::OutputPath;

const STYLE: &str = include_str!("html/page.css");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The page for a document of the audit.
pub fn page(answer: &Value) -> String {
    let answer = Answer(answer);
    let page = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                meta name="robots" content="noindex";
                link rel="icon" href="data:,";
                title { "Audit of " (answer.text("/report/table")) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (header(answer))
                main {
                    (findings(answer))
                    @if answer.is_counted() {
                        (buckets::section(answer))
                        div class="pair" { (ages::backlog(answer)) (ages::ttl(answer)) }
                    }
                    (runs::section(answer))
                    @if answer.is_counted() {
                        div class="pair" { (forecast(answer)) (ages::never_removed(answer)) }
                    }
                    @if answer.count("/report/clients/clients") > 0 { (clients(answer)) }
                    div class="pair" { (figures(answer)) (cost(answer)) }
                }
            }
        }
        "\n"
    };
    page.into_string()
}

fn header(answer: Answer) -> Markup {
    let scope = match answer.at("/report/scope").as_str() {
        Some("all") => "every row of the table",
        Some("system") => "the system actors\u{2019} rows",
        _ => "an unknown scope",
    };
    let tile = |class: &str, name: &str, value: Markup, note: Markup| {
        html! { div class=(class) { dt { (name) } dd { (value) } dd class="note" { (note) } } }
    };
    let alarm = |is_so: bool, class| if is_so { class } else { "" };
    html! {
        header {
            p class="eyebrow" { "ActingWeb janitor: audit" }
            h1 { (name(answer.at("/report/table").as_str().unwrap_or_default())) }
            p class="when" { (answer.time("/report/now")) " " span { (scope) } }
            @if !answer.is_counted() {
                p class="alert" {
                    strong { "Not all rows were counted" }
                    " (" (answer.text("/report/outcome").replace('-', " ")) "), so no row counts are shown."
                }
            }
            dl class="tiles" {
                (tile("", "Rows", answer.number("/body/rows"), html! { (answer.size("/body/bytes")) " in all" }))
                (tile(
                    alarm(answer.count("/body/dead_rows") > 0, "dead"),
                    "Dead rows",
                    answer.number("/body/dead_rows"),
                    if !answer.is_counted() {
                        html! { "not counted" }
                    } else if answer.at("/body/oldest_dead_age_seconds").is_null() {
                        html! { "none to clean up" }
                    } else {
                        html! { "the oldest for " (answer.span("/body/oldest_dead_age_seconds")) }
                    },
                ))
                (tile(
                    alarm(answer.count("/body/due_index_rows") > 0, "due"),
                    "Due index rows",
                    answer.number("/body/due_index_rows"),
                    html! { "past their TTL; their targets decide" },
                ))
                (tile("", "Backlog", answer.number("/body/backlog"), html! { "of the system actors, dead or due" }))
                (tile(
                    alarm(answer.at("/body/ttl") != "on", "due"),
                    "TTL",
                    html! { span data-text="/body/ttl" { (answer.text("/body/ttl").replace('-', " ")) } },
                    html! { "of " code { "ttl_timestamp" } },
                ))
            }
        }
    }
}

fn section(id: &str, title: impl maud::Render, body: &Markup) -> Markup {
    let heading = format!("{id}-h");
    html! { section id=(id) aria-labelledby=(heading) { h2 id=(heading) { (title) } (body) } }
}

fn findings(answer: Answer) -> Markup {
    let found = answer.list("/report/findings");
    if found.is_empty() {
        return section("findings", "Findings", &html! { p class="well" { "None: no problem was found." } });
    }
    let body = html! {
        ul class="findings" {
            @for i in 0..found.len() {
                @let kind = answer.text(&format!("/report/findings/{i}/kind"));
                @let text = format!("/report/findings/{i}/text");
                li data-kind=(kind) { span class="kind" { (kind) } " " span data-text=(text) { (answer.text(&text)) } }
            }
        }
    };
    section("findings", html! { "Findings " span class="count" { (answer.number("/body/findings")) } }, &body)
}

/// Names and values, one pair per line.
fn facts<N: maud::Render>(facts: &[(N, Markup)]) -> Markup {
    html! { dl class="facts" { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } } }
}

fn forecast(answer: Answer) -> Markup {
    let at = |name: &str| format!("/report/forecast/{name}");
    let days = answer.decimal(&at("days_until_clear"));
    let trend = match answer.at(&at("trend")).as_str() {
        Some(_) if answer.count(&at("backlog")) == 0 => html! { "No rows are waiting to be deleted." },
        Some("clears-with-next-run") => html! { "The next run will clear it, in " (days) " days." },
        Some("left-to-ttl") => html! { "The last run left its dead rows to the table's TTL, as configured." },
        Some("shrinks") => html! { "It is shrinking and will be clear in " (days) " days." },
        Some("grows") => html! { "It is growing: more rows expire than are deleted." },
        _ => html! { "There is no forecast yet: too few runs." },
    };
    let body = html! {
        p class="lead" { strong { "Backlog: " (answer.rows(&at("backlog"))) " of the system actors. " (trend) } }
        (facts(&[
            ("Arrived since the last run", answer.change(&at("arrived_since_last_run"))),
            ("Died since the last run", answer.number(&at("died_since_last_run"))),
            ("Deleted recently", answer.number(&at("deleted_lately"))),
            ("Died per day", answer.decimal(&at("died_per_day"))),
            ("Deleted per day", answer.decimal(&at("deleted_per_day"))),
        ]))
    };
    section("forecast", "Forecast", &body)
}

fn figures(answer: Answer) -> Markup {
    let at = |name: &str| format!("/report/table_figures/{name}");
    let mut figures = vec![
        ("Rows", answer.number(&at("rows"))),
        ("Size", answer.size(&at("bytes"))),
        ("Billing", html! { (answer.text(&at("billing")).replace('-', " ")) }),
    ];
    if !answer.at(&at("read_units")).is_null() {
        figures.push(("Provisioned read units", answer.decimal(&at("read_units"))));
        figures.push(("Provisioned write units", answer.decimal(&at("write_units"))));
    }
    let body = html! {
        p class="lead" { "By DynamoDB\u{2019}s own count, up to six hours old." }
        (facts(&figures))
    };
    section("table", "The table", &body)
}

fn clients(answer: Answer) -> Markup {
    let at = |name: &str| format!("/report/clients/{name}");
    let facts = facts(&[
        ("All", answer.number(&at("clients"))),
        ("Unused for 30 days", answer.number(&at("unused"))),
        ("Registered themselves, with live tokens", answer.number(&at("registered_themselves/with_live_tokens"))),
        ("with dead tokens only", answer.number(&at("registered_themselves/with_dead_tokens_only"))),
        ("without tokens", answer.number(&at("registered_themselves/without_tokens"))),
    ]);
    let body = html! {
        p class="lead" { code { "janitor clients" } " lists the unused ones, and removes them on request." }
        (facts)
    };
    section("clients", "Registered clients", &body)
}

fn cost(answer: Answer) -> Markup {
    let body = facts(&[
        ("Read units", answer.decimal("/report/capacity/read_units")),
        ("Read units expected", answer.number("/report/capacity/expected_read_units")),
        ("Write units", answer.decimal("/report/capacity/write_units")),
        ("Requests", answer.number("/report/requests")),
        ("Retries", answer.number("/report/retries")),
        ("Throttled", answer.number("/report/throttles")),
        ("Time", answer.milliseconds("/report/elapsed_ms")),
    ]);
    section("cost", "Cost of this audit", &body)
}
