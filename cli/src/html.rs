//! The audit as one page: complete in itself, no script, nothing from elsewhere. Pure: from the answer that `--json`
//! prints, so that no number can be another one.

#![expect(clippy::format_collect, reason = "a page is a few hundred elements: what reads well wins")]

mod ages;
mod buckets;
mod chart;
mod markup;
mod runs;
mod save;

use serde_json::Value;

use markup::Answer;
pub use save::Place;

const STYLE: &str = include_str!("html/page.css");

/// The page for an answer of the audit.
pub fn page(answer: &Value) -> String {
    let answer = Answer::new(answer);
    let title = answer.text("/report/table");
    let body = [
        header(answer),
        "<main>".to_owned(),
        findings(answer),
        buckets::section(answer),
        "<div class=\"pair\">".to_owned(),
        ages::backlog(answer),
        ages::ttl(answer),
        "</div>".to_owned(),
        runs::section(answer),
        "<div class=\"pair\">".to_owned(),
        forecast(answer),
        ages::never_removed(answer),
        "</div><div class=\"pair\">".to_owned(),
        figures(answer),
        cost(answer),
        "</div></main>".to_owned(),
    ]
    .concat();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"robots\" content=\"noindex\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>Audit of {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
}

fn header(answer: Answer) -> String {
    let scope = match answer.at("/report/scope").as_str() {
        Some("all") => "every row of the table",
        Some("system") => "the system actors\u{2019} rows",
        _ => "an unknown scope",
    };
    let ttl = answer.text("/body/ttl").replace('-', " ");
    let tile = |class: &str, name: &str, value: String, says: &str| {
        format!("<div class=\"{class}\"><dt>{name}</dt><dd>{value}</dd><dd class=\"note\">{says}</dd></div>")
    };
    let alarm = |is_so: bool, class| if is_so { class } else { "" };
    let tiles = [
        tile("", "Rows", answer.number("/body/rows"), &format!("{} in all", answer.size("/body/bytes"))),
        tile(
            alarm(answer.count("/body/dead_rows") > 0, "dead"),
            "Dead rows",
            answer.number("/body/dead_rows"),
            &match answer.at("/body/oldest_dead_age_seconds") {
                Value::Null => "none to clean up".to_owned(),
                _ => format!("the oldest for {}", answer.span("/body/oldest_dead_age_seconds")),
            },
        ),
        tile(
            alarm(answer.count("/body/due_index_rows") > 0, "due"),
            "Due index rows",
            answer.number("/body/due_index_rows"),
            "past their TTL; their targets decide",
        ),
        tile("", "Backlog", answer.number("/body/backlog"), "of the system actors, dead or due"),
        tile(
            alarm(answer.at("/body/ttl") != "on", "due"),
            "TTL",
            format!("<span data-text=\"/body/ttl\">{ttl}</span>"),
            "of <code>ttl_timestamp</code>",
        ),
    ]
    .concat();
    let unfinished = if answer.at("/report/complete") == &Value::Bool(true) {
        String::new()
    } else {
        format!(
            "<p class=\"alert\"><strong>Not all rows were counted</strong> ({}). The numbers below are of a part of \
             the table, and are no counts of it.</p>",
            answer.text("/report/outcome").replace('-', " ")
        )
    };
    format!(
        "<header><p class=\"eyebrow\">ActingWeb janitor: audit</p><h1>{}</h1>\
         <p class=\"when\">{} <span>{scope}</span></p>{unfinished}<dl class=\"tiles\">{tiles}</dl></header>",
        markup::name(answer.at("/report/table").as_str().unwrap_or_default()),
        answer.time("/report/now"),
    )
}

fn section(id: &str, title: &str, body: &str) -> String {
    format!("<section id=\"{id}\" aria-labelledby=\"{id}-h\"><h2 id=\"{id}-h\">{title}</h2>{body}</section>")
}

fn findings(answer: Answer) -> String {
    let found = answer.list("/report/findings");
    if found.is_empty() {
        return section("findings", "Findings", "<p class=\"well\">None: everything looked at is as it should be.</p>");
    }
    let items: String = (0..found.len())
        .map(|i| {
            let (kind, text) = (format!("/report/findings/{i}/kind"), format!("/report/findings/{i}/text"));
            format!(
                "<li data-kind=\"{0}\"><span class=\"kind\">{0}</span> <span data-text=\"{text}\">{1}</span></li>",
                answer.text(&kind),
                answer.text(&text)
            )
        })
        .collect();
    let title = format!("Findings <span class=\"count\">{}</span>", answer.number("/body/findings"));
    section("findings", &title, &format!("<ul class=\"findings\">{items}</ul>"))
}

/// Names and values, one a line.
fn facts(facts: &[(&str, String)]) -> String {
    let lines: String =
        facts.iter().map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>")).collect();
    format!("<dl class=\"facts\">{lines}</dl>")
}

fn forecast(answer: Answer) -> String {
    let at = |name: &str| format!("/report/forecast/{name}");
    let days = answer.decimal(&at("days_until_clear"));
    let trend = match answer.at(&at("trend")).as_str() {
        Some("clears-with-next-run") => format!("The next run clears it, in {days} days."),
        Some("left-to-ttl") => "The last run left its dead rows to the table's TTL, as it was asked to.".to_owned(),
        Some("shrinks") => format!("It shrinks, and is clear in {days} days."),
        Some("grows") => "It grows: more rows die than are deleted.".to_owned(),
        _ => "Where it is going cannot be told yet: too few runs.".to_owned(),
    };
    let numbers = facts(&[
        ("Arrived since the last run", answer.change(&at("arrived_since_last_run"))),
        ("Died since the last run", answer.number(&at("died_since_last_run"))),
        ("Deleted lately", answer.number(&at("deleted_lately"))),
        ("Die a day", answer.decimal(&at("died_per_day"))),
        ("Deleted a day", answer.decimal(&at("deleted_per_day"))),
    ]);
    let body = format!(
        "<p class=\"lead\"><strong>Backlog: {} of the system actors. {trend}</strong></p>{numbers}",
        answer.rows(&at("backlog"))
    );
    section("forecast", "Forecast", &body)
}

fn figures(answer: Answer) -> String {
    let at = |name: &str| format!("/report/table_figures/{name}");
    let mut figures = vec![
        ("Rows", answer.number(&at("rows"))),
        ("Size", answer.size(&at("bytes"))),
        ("Billing", answer.text(&at("billing")).replace('-', " ")),
    ];
    if !answer.at(&at("read_units")).is_null() {
        figures.push(("Provisioned read units", answer.decimal(&at("read_units"))));
        figures.push(("Provisioned write units", answer.decimal(&at("write_units"))));
    }
    let body = format!("<p class=\"lead\">By DynamoDB\u{2019}s own count, up to six hours old.</p>{}", facts(&figures));
    section("table", "The table", &body)
}

fn cost(answer: Answer) -> String {
    let body = facts(&[
        ("Read units", answer.decimal("/report/capacity/read_units")),
        ("Read units expected", answer.number("/report/capacity/expected_read_units")),
        ("Write units", answer.decimal("/report/capacity/write_units")),
        ("Requests", answer.number("/report/requests")),
        ("Retries", answer.number("/report/retries")),
        ("Throttled", answer.number("/report/throttles")),
        ("Time", answer.milliseconds("/report/elapsed_ms")),
    ]);
    section("cost", "What this audit cost", &body)
}
