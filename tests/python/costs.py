#!/usr/bin/env python3
"""Computes what the stack costs: the tables of docs/costs.md.

    costs.py            write the tables into docs/costs.md
    costs.py --check    only check that the tables are up to date

Metrics are counted in the golden documents of the tests; alarms, schedules and the dashboard's metrics in the transformed
template. Prices are us-east-1 list prices. Every assumption is a constant below.
"""

import json
import re
import sys

from measured import between
from sam_template import ROOT, TABLE, Deployment

PAGE = ROOT / "docs/costs.md"
GOLDEN = ROOT / "tests/golden"
HOURS, DAYS, WEEKS = 730, 365 / 12, 365 / 12 / 7

# ---- List prices, us-east-1: a metric, an alarm on one metric, a dashboard; a million write and read units; a GB-second and a million requests of
# Lambda on arm64; a GB of logs ingested; a million invocations of Scheduler.
METRIC, ALARM, DASHBOARD = 0.30, 0.10, 3.00
WRITE, READ = 0.625, 0.125
GB_SECOND, REQUESTS = 0.0000133334, 0.20
LOG_GB, SCHEDULER = 0.50, 1.00
FREE_DASHBOARDS, FREE_METRICS = 3, 50

# ---- The rows: bytes of a row; the share of the system actors; of rows that die per day; of index rows whose targets are read.
ROW_BYTES, SYSTEM_SHARE, DEAD_A_DAY, INDEX_SHARE = 400, 0.6, 0.1, 0.5
PAGE_UNIT = 8_192
# jobs/src/metrics/sample.rs: up to EXACT_ROWS rows are counted exactly; of larger tables at most SAMPLED_ROWS are read.
EXACT_ROWS, SAMPLED_ROWS = 20_000, 20_000 + 18 * 400
# Memory of a function; seconds per count, per row that a run reads or deletes, and per run (docs/dev/benchmarks.md, on another machine); the timeout.
MEMORY_GB, COUNT_SECONDS, SECONDS_A_ROW, RUN_SECONDS, MOST_SECONDS = 0.25, 5, 0.0012, 2, 900
# Bytes of log per run. A count logs three times the bytes of the golden documents, whose tables have few buckets.
LINES_OF_A_RUN, BUCKETS_FACTOR = 3_000, 3


def documents(name):
    return [json.loads(line) for line in (GOLDEN / name).read_text().splitlines()]


def metrics_of(name):
    """The metrics of a document, as CloudWatch counts them: one per name and set of dimensions."""
    found = set()
    for document in documents(name):
        for directive in document["_aws"]["CloudWatchMetrics"]:
            for dimensions in directive["Dimensions"]:
                values = tuple((dimension, document[dimension]) for dimension in dimensions)
                found |= {(metric["Name"], values) for metric in directive["Metrics"]}
    return found


def per_month(expression):
    """How often a schedule runs per month; reads only the forms that the template's defaults use."""
    minute, hour, day, _, weekday, _ = re.fullmatch(r"cron\((.+)\)", expression)[1].split()
    assert minute.isdigit() and day in "*?", expression
    times = {"*": 24}.get(hour) or (24 // int(hour.split("/")[1]) if "/" in hour else 1)
    return times * (WEEKS if weekday not in "*?" else DAYS)


class Stack:
    """Counts from the template and from the golden documents."""

    def __init__(self, cascade):
        given = {"AttributesTable": TABLE, "Mode": "delete"}
        deployment = Deployment({**given, "TimeToLive": "enable-with-cascade"} if cascade else given)
        self.alarms = sum(1 for _ in deployment.everything("AWS::CloudWatch::Alarm"))
        (_, dashboard), = deployment.everything("AWS::CloudWatch::Dashboard")
        widgets = json.loads(dashboard["DashboardBody"])["widgets"]
        self.shown = sum(len(widget["properties"].get("metrics", [])) for widget in widgets)
        expressions = {properties["Name"]: properties["ScheduleExpression"]
                       for _, properties in deployment.resources("AWS::Scheduler::Schedule")}
        self.schedules = len(expressions)
        self.often = {name: per_month(expression) for name, expression in expressions.items()}
        self.counts = metrics_of("metrics.jsonl")
        self.runs = metrics_of("cleanup-metrics.jsonl") | metrics_of("repair-metrics.jsonl")
        assert not (GOLDEN / "cascade-metrics.jsonl").exists(), "the cascade emits metrics, which cost in every hour"
        self.all = self.counts | self.runs


def dollars(amount):
    return f"${amount:,.2f}" if amount >= 0.005 else "under a cent"


def bill(rows, cascade=False):
    """The lines of a month's bill: item, arithmetic, dollars."""
    stack = Stack(cascade)
    system, dead = rows * SYSTEM_SHARE, rows * DEAD_A_DAY
    lines = []

    def line(what, arithmetic, amount):
        lines.append((what, arithmetic, amount))

    # A metric costs for each hour in which it is sent.
    count_hours = stack.often["metrics"] + stack.often["audit"]
    run_hours = stack.often["cleanup"] + stack.often["repair"]
    line("metrics of the counts", f"{len(stack.counts)} × ${METRIC:.2f} × {count_hours:.0f} of {HOURS} hours",
         len(stack.counts) * METRIC * count_hours / HOURS)
    line("metrics of the runs", f"{len(stack.runs)} × ${METRIC:.2f} × {run_hours:.0f} of {HOURS} hours",
         len(stack.runs) * METRIC * run_hours / HOURS)
    line("alarms", f"{stack.alarms} on one metric each × ${ALARM:.2f}", stack.alarms * ALARM)
    assert stack.shown <= FREE_METRICS
    line("dashboard", f"{stack.shown} metrics: free as one of an account's first {FREE_DASHBOARDS} with up to {FREE_METRICS}; otherwise ${DASHBOARD:.2f}", 0.0)

    deletes = dead * DAYS
    line("DynamoDB, writes", f"{deletes:,.0f} deletes × ${WRITE} per million", deletes * WRITE / 1e6)
    units = ROW_BYTES / PAGE_UNIT
    counted = min(system, SAMPLED_ROWS if system > EXACT_ROWS else EXACT_ROWS)
    reads = {
        "counts": counted * units * stack.often["metrics"],
        # A pass over the system actors; half a unit for each target and provider row found, one more for each absent target.
        "cleanup": (system * units + dead * INDEX_SHARE) * stack.often["cleanup"],
        "audit": rows * units * stack.often["audit"],
        # A Scan, and at most a unit for each index row's target.
        "repair": (rows * units + system * INDEX_SHARE) * stack.often["repair"],
    }
    if cascade:
        # For each dead token: two index rows, the provider row and the token.
        reads["cascade"] = 4 * deletes * INDEX_SHARE
    words = ", ".join(f"{name} {amount / 1e6:,.2f}" for name, amount in reads.items())
    line("DynamoDB, reads", f"million units: {words}; × ${READ}", sum(reads.values()) * READ / 1e6)

    seconds = (stack.often["metrics"] * COUNT_SECONDS
               + stack.often["cleanup"] * min(MOST_SECONDS, RUN_SECONDS + (system + dead) * SECONDS_A_ROW)
               + (stack.often["repair"] + stack.often["audit"]) * min(MOST_SECONDS, RUN_SECONDS + rows * SECONDS_A_ROW))
    calls = sum(stack.often.values())
    if cascade:
        # A batch has a hundred records, or those of a minute.
        batches = max(deletes * INDEX_SHARE / 100, min(deletes * INDEX_SHARE, HOURS * 60))
        seconds, calls = seconds + batches * 0.5, calls + batches
    line("Lambda", f"{seconds * MEMORY_GB:,.0f} GB-seconds, {calls:,.0f} invocations",
         seconds * MEMORY_GB * GB_SECOND + calls * REQUESTS / 1e6)
    bytes_of_counts = BUCKETS_FACTOR * len((GOLDEN / "metrics.jsonl").read_text()) * (stack.often["metrics"] + stack.often["audit"])
    log = bytes_of_counts + LINES_OF_A_RUN * calls
    line("logs", f"{log / 1e6:,.0f} MB × ${LOG_GB} a GB", log / 1e9 * LOG_GB)
    line("Scheduler, SQS, SNS, Step Functions", f"{stack.schedules} schedules", sum(stack.often.values()) * SCHEDULER / 1e6)
    return lines


def table():
    """The example with its arithmetic, and the large table."""
    lines = [f"| | arithmetic of the example | {EXAMPLE:,} rows | {LARGE:,} rows |", "|---|---|---:|---:|"]
    for (what, arithmetic, amount), (_, _, large) in zip(bill(EXAMPLE), bill(LARGE), strict=True):
        cells = ("free", "free") if what == "dashboard" else (dollars(amount), dollars(large))
        lines.append(f"| {what} | {arithmetic} | {cells[0]} | {cells[1]} |")
    return [*lines, f"| **all** | | **{dollars(total(EXAMPLE))}** | **{dollars(total(LARGE))}** |"]


def total(rows, cascade=False):
    return sum(amount for _, _, amount in bill(rows, cascade))


EXAMPLE, LARGE = 50_000, 10_000_000


def summary():
    stack = Stack(cascade=False)
    return [
        "| | rows | a month |",
        "|---|---:|---:|",
        f"| the example | {EXAMPLE:,} | {dollars(total(EXAMPLE))} |",
        f"| the example, with the cascade | {EXAMPLE:,} | {dollars(total(EXAMPLE, True))} |",
        f"| ten million rows, a tenth of which dies every day | {LARGE:,} | {dollars(total(LARGE))} |",
        "",
        f"The stack has {len(stack.all)} metrics, {stack.alarms} alarms, {stack.schedules} schedules, and a dashboard of {stack.shown} metrics.",
    ]


def page():
    text = PAGE.read_text()
    for name, lines in (("summary", summary()), ("example", table())):
        text = between(text, f"<!-- {name}: written by tests/python/costs.py -->", f"<!-- end of {name} -->", "\n".join(lines))
    return text


def main():
    if total(EXAMPLE) > 3.00:
        sys.exit(f"costs.py: the example costs {dollars(total(EXAMPLE))}, more than $3.00")
    if total(EXAMPLE, True) - total(EXAMPLE) > 0.50:
        sys.exit("costs.py: the cascade adds more than $0.50 a month")
    new = page()
    if sys.argv[1:] == ["--check"]:
        if new != PAGE.read_text():
            sys.exit("costs.py: docs/costs.md is not up to date: run tests/python/costs.py")
        print(f"docs/costs.md agrees with the template and the golden documents: {dollars(total(EXAMPLE))} for the example")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        PAGE.write_text(new)


if __name__ == "__main__":
    main()
