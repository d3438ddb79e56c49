#!/usr/bin/env python3
"""The seconds of each phase of `make test`: tests/phase.sh measures them, docs/dev/phases.json stores those of CONTRIBUTING.

    phases.py            print the table of the last `make test`
    phases.py --write    store it, and write it into CONTRIBUTING
    phases.py --check    check that CONTRIBUTING has the figures of the JSON file
"""

from __future__ import annotations

import json
import sys

from measured import ROOT, between, provenance

PAGE, FIGURES = ROOT / "CONTRIBUTING.md", ROOT / "docs/dev/phases.json"
NOTES = ROOT / "target/phases.tsv"
BEGIN, END = "<!-- phases: written by tests/python/phases.py -->", "<!-- end of phases -->"
# `make test` before issue 21, one phase after another; `make demo` had compiled most of the build.
BEFORE = {"check": 59, "cargo-deny": 144, "tools": 65, "template": 35, "build": 173, "tests": 1641, "all": 2120}

# What `make repeat` measures, and how the page says it.
REPEATED = {"repeated": "in a row", "loaded": "while another process kept every core busy"}


def measured() -> list[dict]:
    """Each phase, and all of them; its notes are its name, when it began, its seconds, and its user and system CPU seconds."""
    notes = [line.split("\t") for line in NOTES.read_text(encoding="utf-8").splitlines()]
    (_, began), *notes = notes
    phases = [
        {"phase": name, "begins": int(at) - int(began), "seconds": int(seconds), "cpu": round(sum(map(float, cpu.split())))}
        for name, at, seconds, cpu in notes
    ]
    last = max(phase["begins"] + phase["seconds"] for phase in phases)
    return [*phases, {"phase": "**all**", "begins": 0, "seconds": last, "cpu": sum(phase["cpu"] for phase in phases)}]


def table(phases: list[dict]) -> str:
    head = ["| phase | start | seconds | CPU seconds |", "|---|---:|---:|---:|"]
    return "\n".join([*head, *("| {phase} | {begins:,} | {seconds:,} | {cpu:,} |".format(**phase) for phase in phases)])


def runs_of(repeated: dict, when: str) -> str:
    """A sentence about repeated runs (tests/python/repeat.py, which stops at the first that fails)."""
    seconds, passed = ([run[name] for run in repeated["runs"]] for name in ("seconds", "passed"))
    runs = f"{len(seconds)} runs" if len(seconds) > 1 else "One run"
    took = f"{min(seconds):,} to {max(seconds):,}" if len(seconds) > 1 else f"{seconds[0]:,}"
    return f"{runs} of all {min(passed)} tests {when}, at commit {repeated['commit']} on {repeated['date']}: all passed, in {took} seconds."


def page_with(figures: dict) -> str:
    before = ", ".join(f"{name} {seconds:,}" for name, seconds in figures["before"].items())
    repeated = [runs_of(figures[name], when) for name, when in REPEATED.items() if name in figures]
    text = (
        f"{table(figures['phases'])}\n\n"
        f"A first `make test` in a fresh clone, at commit {figures['commit']} on {figures['date']} ({figures['machine']}). DynamoDB Local is not in the"
        f" CPU seconds. Before the phases ran concurrently, they took, in seconds: {before}."
    )
    text = "\n\n".join([text, *repeated])
    return between(PAGE.read_text(encoding="utf-8"), BEGIN, END, text)


def main() -> None:
    match sys.argv[1:]:
        case []:
            print(table(measured()))
        case ["--write"]:
            figures = json.loads(FIGURES.read_text(encoding="utf-8")) | provenance() | {"phases": measured(), "before": BEFORE}
            FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
            PAGE.write_text(page_with(figures), encoding="utf-8")
        case ["--check"]:
            if PAGE.read_text(encoding="utf-8") != page_with(json.loads(FIGURES.read_text(encoding="utf-8"))):
                sys.exit(f"phases.py: {PAGE.name} does not have the figures of {FIGURES.name}")
            print("phases: CONTRIBUTING has the figures of docs/dev/phases.json")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
