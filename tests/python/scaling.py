#!/usr/bin/env python3
"""How long a backlog takes and what it costs, for ten thousand to a billion rows: the model behind docs/scaling.md.

    scaling.py            write its tables into docs/scaling.md
    scaling.py --check    only say whether they are what the model gives

Everything it assumes is a constant below. What was measured comes from docs/benchmarks.json, which `make bench` writes.
"""

import json
import math
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "scaling.md"
FIGURES = DOCS / "benchmarks.json"

# DynamoDB's own limits for one partition.
PARTITION_WRITE, PARTITION_READ, PARTITION_BYTES = 1_000, 3_000, 10 * 2**30
# The defaults of shared/src/dynamo/pace.rs on demand.
PACE_WRITE, PACE_READ = 500, 1_500
# Of the real library's rows, as `make bench` writes them (docs/benchmarks.json has the census).
DEAD = 0.70
# Of the dead rows, those in the OAuth system actor's one item collection; the others are spread over the actors.
IN_COLLECTION = 0.78
ROW_BYTES = 400
# Units for a row read, and for a row deleted: measured on 5,500 rows of the real library.
READ_UNITS, WRITE_UNITS = 0.25, 1.0
# A run of 15 minutes, less what it keeps back for its last words.
RUN_SECONDS = 885
# A function of 256 MB has this share of a processor; AWS gives a whole one at 1,769 MB.
PROCESSOR = 256 / 1_769
# us-east-1 list prices, as in docs/costs.md: a million write units, a million read units, a GB-second, a transition.
WRITE_PRICE, READ_PRICE, LAMBDA_PRICE, TRANSITION_PRICE = 0.625, 0.125, 0.0000133, 0.000025
MEMORY_GB = 0.25
# The template's defaults.
SEGMENTS, SIDE_BY_SIDE = 16, 4
# With defer-to-ttl the rows that TTL takes are only read; this share of the units is left, measured.
DEFERRED_UNITS = 1 / 40

SIZES = [10**power for power in range(4, 10)]


def partitions(rows):
    """How many the collection has by its size alone. Splitting for heat comes on top, and nobody promises when."""
    return max(1, math.ceil(rows * ROW_BYTES * IN_COLLECTION / PARTITION_BYTES))


def deletes_a_second(rows, pace=PACE_WRITE, read_pace=PACE_READ, application=0, splits=None, cpu=None, functions=1):
    """The slowest of: the pace, what the collection's partitions have left, reading, and the function's processor."""
    room = max(0, (splits or partitions(rows)) * PARTITION_WRITE - application)
    bounds = {
        "pace": pace / WRITE_UNITS,
        "partition": room / WRITE_UNITS / IN_COLLECTION,
        "reading": read_pace / (READ_UNITS / DEAD),
    }
    if cpu:
        bounds["processor"] = functions * PROCESSOR / cpu
    which = min(bounds, key=bounds.get)
    return bounds[which], which


def money(rows, seconds, functions=1):
    dead = rows * DEAD
    units = dead * WRITE_UNITS * WRITE_PRICE / 1e6 + rows * READ_UNITS * READ_PRICE / 1e6
    return units + seconds * functions * MEMORY_GB * LAMBDA_PRICE


def transitions(seconds):
    """Of the state machine: a handful, and four for each run of a segment."""
    runs = max(SEGMENTS, math.ceil(seconds * SIDE_BY_SIDE / RUN_SECONDS))
    return 10 + 4 * runs


def spoken(seconds):
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:,.0f} s" if seconds >= 1 else "under a second"


def dollars(amount):
    return "under a cent" if amount < 0.01 else f"${amount:,.2f}"


def power(rows):
    return f"{rows:,}"


def backlog_table(cpu):
    lines = [
        "| rows, 70 % dead | daily runs of 15 min | state machine, default pace | the same at nine tenths of the partitions' ceiling | bound by | "
        "deleting it costs | left to TTL |",
        "|---:|---:|---:|---:|---|---:|---:|",
    ]
    for rows in SIZES:
        rate, bound = deletes_a_second(rows, cpu=cpu, functions=1)
        seconds = rows * DEAD / rate
        runs = math.ceil(seconds / RUN_SECONDS)
        ceiling = 0.9 * partitions(rows)
        fast, fast_bound = deletes_a_second(
            rows, ceiling * PARTITION_WRITE, ceiling * PARTITION_READ, cpu=cpu, functions=SIDE_BY_SIDE)
        machine, _ = deletes_a_second(rows, cpu=cpu, functions=SIDE_BY_SIDE)
        machine_seconds = rows * DEAD / machine
        cost = money(rows, machine_seconds, SIDE_BY_SIDE) + transitions(machine_seconds) * TRANSITION_PRICE
        # What TTL takes costs nothing; one pass still looks at the rows, at the price of reading.
        ttl = money(rows, rows * READ_UNITS / PACE_READ) * DEFERRED_UNITS
        took = spoken(seconds) if runs == 1 else f"{runs:,} runs"
        lines.append(
            f"| {power(rows)} | {took} | {spoken(machine_seconds)} | {spoken(rows * DEAD / fast)} | {bound}, {fast_bound} | "
            f"{dollars(cost)} | {dollars(ttl)} |")
    return lines


def traffic_table():
    lines = [
        "| the application writes, units a second | 1 partition | 2 | 4 | 8 |",
        "|---:|---:|---:|---:|---:|",
    ]
    for application in (0, 250, 500, 750, 900):
        cells = []
        for splits in (1, 2, 4, 8):
            # Half of what is left: the application's own peaks are higher than its mean.
            pace = max(0, splits * PARTITION_WRITE - application) / 2
            rate, _ = deletes_a_second(10**7, pace=pace, read_pace=PARTITION_READ * splits / 2, application=application, splits=splits)
            cells.append(f"{pace:,.0f}: {spoken(10**7 * DEAD / rate)}")
        lines.append(f"| {application} | " + " | ".join(cells) + " |")
    return lines


def measured():
    """Of each engine and size: rows, dead rows, and what the cleanup took."""
    if not FIGURES.exists():
        return []
    sections = json.loads(FIGURES.read_text())["sections"]
    found = []
    for name in ("local", "embedded"):
        for table in sections.get(name, {}).get("tables", []):
            ours = table["contestants"].get("daily-cleanup")
            if ours:
                found.append((sections[name]["engine"], table["rows"], table["dead"], ours))
    return found


def prediction_table():
    """Requests and units from the rows alone; seconds from the same engine's table of 10,000 rows, by the row."""
    lines = [
        "| engine | rows | dead | requests: model, measured | read units: model, measured | write units: model, measured | "
        "seconds: model, measured |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    figures = measured()
    base = {engine: ours["seconds"] / dead for engine, rows, dead, ours in figures if rows == 10_000}
    for engine, rows, dead, ours in figures:
        reads = rows * READ_UNITS
        # A page of a thousand rows of a collection; a lookup of a hundred targets; a batch of 25 deletes.
        requests = 30 + rows * IN_COLLECTION / 1_000 + rows * 0.2 / 50 + dead / 22
        seconds = dead * base[engine] if engine in base else None
        told = "the base" if rows == 10_000 else f"{seconds:,.2f}" if seconds else "–"
        lines.append(
            f"| {engine} | {rows:,} | {dead:,} | {requests:,.0f}, {ours['requests']:,.0f} | "
            f"{reads:,.0f}, {ours['read_units']:,.0f} | {dead * WRITE_UNITS + 4:,.0f}, {ours['write_units']:,.0f} | "
            f"{told}, {ours['seconds']:,.2f} |")
    return lines


def cpu_a_delete():
    """Processor seconds of the function for a deleted row, from the largest table measured."""
    figures = [(rows, ours["cpu_seconds"] / dead) for _, rows, dead, ours in measured() if ours.get("cpu_seconds")]
    return max(figures)[1] if figures else None


def page():
    text = PAGE.read_text()
    cpu = cpu_a_delete()
    for name, lines in (
        ("backlog", backlog_table(cpu)),
        ("traffic", traffic_table()),
        ("predictions", prediction_table()),
    ):
        begin, end = f"<!-- {name}: written by tests/python/scaling.py -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = before + begin + "\n".join(lines) + "\n" + end + after
    return text


def main():
    new = page()
    if sys.argv[1:] == ["--check"]:
        if new != PAGE.read_text():
            sys.exit("scaling.py: docs/scaling.md is not what the model gives: run tests/python/scaling.py")
        print("docs/scaling.md is what the model gives")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        PAGE.write_text(new)


if __name__ == "__main__":
    main()
