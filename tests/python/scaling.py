#!/usr/bin/env python3
"""The model of docs/scaling.md: how long a backlog takes and what it costs, for ten thousand to a billion rows.

    scaling.py            write the tables of docs/scaling.md and docs/dev/benchmarks.md
    scaling.py --check    only compare the tables with the model

Every assumption is a constant below. Measured figures come from docs/dev/benchmarks.json, which `make bench-report` writes; without
that file the ASSUMED constants are used.
"""

import json
import math
import sys

from measured import ROOT, between

DOCS = ROOT / "docs"
PAGE = DOCS / "scaling.md"
BENCHMARKS = DOCS / "dev" / "benchmarks.md"
FIGURES = DOCS / "dev" / "benchmarks.json"

# DynamoDB's limits for one partition.
PARTITION_WRITE, PARTITION_READ, PARTITION_BYTES = 1_000, 3_000, 10 * 2**30
# The defaults of dynamo/src/pace.rs for tables on demand.
PACE_WRITE, PACE_READ = 500, 1_500
# The share of dead rows among the real library's rows, as `make bench` writes them (docs/dev/benchmarks.json has the census).
DEAD = 0.70
# The share of the dead rows in the OAuth actor's item collection; the others are spread over the actors.
IN_COLLECTION = 0.78
ROW_BYTES = 400
WRITE_UNITS = 1.0
# Shares of all rows, in the same census: index rows that are due, and dead tokens whose provider row is not decided by its TTL, so
# that a Query reads the actor's token rows (counted by a proxy).
DUE, UNDECIDED = 0.114, 0.010
# Rows per request of each kind, and the requests of every run: for its table, lease and state, and a page of each bucket.
PAGED, LOOKED_UP, DELETED, EVERY_RUN = 1_000, 100, 25, 28
# Requests for a hundred due index rows in addition to full batches: one that reads targets, a second one for absent targets (two
# times in three), one for provider rows; and a half-empty batch each of provider, token and index rows.
A_PIECE = 1 + 2 / 3 + 1 + 3 / 2
# Read units per row of the table, when dead rows are deleted and when they are left to TTL; and CPU seconds per row of a run that
# leaves them. Used only without docs/dev/benchmarks.json: see `Measured`.
ASSUMED_READ_UNITS, ASSUMED_LEFT_READ_UNITS, ASSUMED_LEFT_CPU = 0.25, 0.05, 0.00001
# A run of 15 minutes, less the time reserved for its report and state.
RUN_SECONDS = 885
# A function of 256 MB has this share of a processor; one of 1,769 MB has a whole one.
PROCESSOR = 256 / 1_769
# us-east-1 list prices, as in docs/costs.md: a million write units, a million read units, a GB-second, a transition.
WRITE_PRICE, READ_PRICE, LAMBDA_PRICE, TRANSITION_PRICE = 0.625, 0.125, 0.0000133, 0.000025
MEMORY_GB = 0.25
# The template's defaults.
SEGMENTS, CONCURRENCY = 16, 4
# Sections of the benchmarks: the one that leaves rows to TTL, and those that delete.
DYNAMODB_LOCAL = "DynamoDB Local"
RETIRING, DELETING = "retire", ("local", "million-local", "embedded", "million-embedded")

# The size of the table from which read units and seconds of the others are predicted.
BASE = 10_000

SIZES = [10**power for power in range(4, 10)]


class Measured:
    """The figures of docs/dev/benchmarks.json, or the assumptions without it."""

    def __init__(self, sections):
        self.tables = list(self.results(sections, DELETING, "daily-cleanup"))
        left = list(self.results(sections, (RETIRING,), "daily-cleanup, retire"))
        # DynamoDB Local counts units more like AWS than the embedded engine does.
        local = [table for table in self.tables if sections[table[0]]["engine"] == DYNAMODB_LOCAL]
        self.read_units = self.per_row(local or self.tables, "read_units") or ASSUMED_READ_UNITS
        self.left_read_units = self.per_row(left, "read_units") or ASSUMED_LEFT_READ_UNITS
        self.left_cpu = self.per_row(left, "cpu_seconds") or ASSUMED_LEFT_CPU
        # CPU seconds per deleted row, from the largest table and the slower engine.
        figures = [(rows, ours["cpu_seconds"] / dead) for _, rows, dead, ours in self.tables if ours.get("cpu_seconds")]
        self.cpu = max(figures)[1] if figures else None

    @staticmethod
    def results(sections, names, contestant):
        """For each table: its section, rows, dead rows, and the cleanup's figures."""
        for name in (name for name in names if name in sections):
            for table in sections[name]["tables"]:
                # Today's applications write rows with a TTL.
                if not table.get("without_ttl") and (ours := table["contestants"].get(contestant)):
                    yield name, table["rows"], table["dead"], ours

    @staticmethod
    def per_row(tables, figure):
        """The best-fitting slope through the origin: large tables weigh more, because fixed costs matter less in them."""
        square = sum(rows * rows for _, rows, _, _ in tables)
        return sum(rows * ours[figure] for _, rows, _, ours in tables) / square if square else None


MEASURED = Measured(json.loads(FIGURES.read_text())["sections"] if FIGURES.exists() else {})


def partitions(rows):
    """The collection's partitions by its size alone. DynamoDB may also split for heat, at a time that is not documented."""
    return max(1, math.ceil(rows * ROW_BYTES * IN_COLLECTION / PARTITION_BYTES))


def deletes_a_second(rows, pace=PACE_WRITE, read_pace=PACE_READ, application=0, splits=None, functions=1):
    """The lowest limit of: the pace, the free capacity of the collection's partitions, reading, and the function's processor."""
    room = max(0, (splits or partitions(rows)) * PARTITION_WRITE - application)
    bounds = [pace / WRITE_UNITS, room / WRITE_UNITS / IN_COLLECTION, read_pace / (MEASURED.read_units / DEAD)]
    if MEASURED.cpu:
        bounds.append(functions * PROCESSOR / MEASURED.cpu)
    return min(bounds)


def money(rows, seconds, functions=1):
    dead = rows * DEAD
    units = dead * WRITE_UNITS * WRITE_PRICE / 1e6 + rows * MEASURED.read_units * READ_PRICE / 1e6
    return units + seconds * functions * MEMORY_GB * LAMBDA_PRICE


def money_with_ttl(rows):
    """One run that leaves every dead row to TTL: it still reads, limited by its pace and its processor."""
    units = rows * MEASURED.left_read_units
    seconds = max(units / PACE_READ, rows * MEASURED.left_cpu / PROCESSOR)
    return units * READ_PRICE / 1e6 + seconds * MEMORY_GB * LAMBDA_PRICE


def transitions(seconds):
    """Of the state machine: ten, and four for each run of a segment."""
    runs = max(SEGMENTS, math.ceil(seconds * CONCURRENCY / RUN_SECONDS))
    return 10 + 4 * runs


def spoken(seconds):
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:,.0f} s" if seconds >= 1 else "under a second"


def dollars(amount):
    return "under a cent" if amount < 0.01 else f"${amount:,.2f}"


def backlog_table():
    lines = [
        "| rows, 70 % dead | daily runs of 15 min | state machine, default rate | state machine, 90 % of the partitions' maximum | "
        "cost of deleting | cost with TTL |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for rows in SIZES:
        rate = deletes_a_second(rows)
        seconds = rows * DEAD / rate
        runs = math.ceil(seconds / RUN_SECONDS)
        ceiling = 0.9 * partitions(rows)
        fast = deletes_a_second(
            rows, ceiling * PARTITION_WRITE, ceiling * PARTITION_READ, functions=CONCURRENCY)
        machine = deletes_a_second(rows, functions=CONCURRENCY)
        machine_seconds = rows * DEAD / machine
        cost = money(rows, machine_seconds, CONCURRENCY) + transitions(machine_seconds) * TRANSITION_PRICE
        took = spoken(seconds) if runs == 1 else f"{runs:,} runs"
        lines.append(
            f"| {rows:,} | {took} | {spoken(machine_seconds)} | {spoken(rows * DEAD / fast)} | "
            f"{dollars(cost)} | {dollars(money_with_ttl(rows))} |")
    return lines


def traffic_table():
    lines = [
        "| application writes, units a second | 1 partition | 2 | 4 | 8 |",
        "|---:|---:|---:|---:|---:|",
    ]
    for application in (0, 250, 500, 750, 900):
        cells = []
        for splits in (1, 2, 4, 8):
            # Half of the free capacity: the application's peaks are higher than its average.
            pace = max(0, splits * PARTITION_WRITE - application) / 2
            rate = deletes_a_second(
                10**7, pace, PARTITION_READ * splits / 2, application, splits, functions=CONCURRENCY)
            cells.append(f"{pace:,.0f}: {spoken(10**7 * DEAD / rate)}")
        lines.append(f"| {application} | " + " | ".join(cells) + " |")
    return lines


def requests(rows, dead):
    """The requests of one run that deletes the dead rows."""
    return EVERY_RUN + rows * IN_COLLECTION / PAGED + dead / DELETED + rows * DUE / LOOKED_UP * A_PIECE + rows * UNDECIDED


def prediction_table():
    """Requests and write units from the number of rows; read units and seconds scaled from the same section's table of 10,000 rows."""
    lines = [
        "| section | rows | dead | requests: model, measured | read units: model, measured | write units: model, measured | "
        "seconds: model, measured |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    bases = {section: ours for section, rows, _, ours in MEASURED.tables if rows == BASE}
    for section, rows, dead, ours in MEASURED.tables:

        def scaled(figure, digits):
            if rows == BASE:
                return "base"
            base = bases.get(section)
            return f"{rows * base[figure] / BASE:,.{digits}f}" if base else "–"

        lines.append(
            f"| `{section}` | {rows:,} | {dead:,} | {requests(rows, dead):,.0f}, {ours['requests']:,.0f} | "
            f"{scaled('read_units', 0)}, {ours['read_units']:,.0f} | {dead * WRITE_UNITS + 4:,.0f}, {ours['write_units']:,.0f} | "
            f"{scaled('seconds', 2)}, {ours['seconds']:,.2f} |")
    return lines


def pages():
    """Each page with the model's tables."""
    texts = {page: page.read_text() for page in (PAGE, BENCHMARKS)}
    for page, name, lines in (
        (PAGE, "backlog", backlog_table()),
        (PAGE, "traffic", traffic_table()),
        (BENCHMARKS, "predictions", prediction_table()),
    ):
        begin, end = f"<!-- {name}: written by tests/python/scaling.py -->", f"<!-- end of {name} -->"
        texts[page] = between(texts[page], begin, end, "\n".join(lines))
    return texts


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    for page, text in pages().items():
        name = page.relative_to(DOCS.parent)
        if not sys.argv[1:]:
            page.write_text(text)
        elif text != page.read_text():
            sys.exit(f"scaling.py: {name} differs from the model: run tests/python/scaling.py")
        else:
            print(f"{name} agrees with the model")


if __name__ == "__main__":
    main()
