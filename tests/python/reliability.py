#!/usr/bin/env python3
"""The figures of docs/dev/reliability.md: `make torture` collects them, docs/dev/reliability.json stores them.

    reliability.py FIGURES.jsonl SECONDS   sum the figures of the attacks, and write the JSON file and the page
    reliability.py --check                 check that the page has the figures of the JSON file, and that its tests exist

An attack that ran on both engines is one line.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from measured import ROOT, between, provenance

PAGE, FIGURES = ROOT / "docs/dev/reliability.md", ROOT / "docs/dev/reliability.json"
BEGIN, END = "<!-- figures: written by make torture -->", "<!-- end of figures -->"
COLUMNS = {
    "attempts": "runs",
    "faults": "faults",
    "judged": "rows judged",
    "deleted": "deleted",
    "lost_races": "lost races",
    "live_lost": "**live rows lost**",
    "dead_left": "**dead rows left**",
    "dangling": "**dangling index rows**",
    "secrets": "**secrets printed**",
}


def summed(lines: list[str]) -> list[dict]:
    attacks: dict[str, dict] = {}
    for line in lines:
        figures = json.loads(line)
        sums = attacks.setdefault(figures["attack"], {**figures, **dict.fromkeys(COLUMNS, 0)})
        for column in COLUMNS:
            sums[column] += figures[column]
    return [attacks[name] for name in sorted(attacks)]


def measured(lines: list[str], seconds: int) -> dict:
    form = {"form": os.environ.get("TORTURE", "short"), "minutes": round(seconds / 60, 1)}
    return provenance() | form | {"attacks": summed(lines)}


def section(figures: dict) -> str:
    """The text between the page's two markers."""
    attacks = figures["attacks"]
    seeds = sorted({attack["seed"] for attack in attacks})
    rows = [["attack", *COLUMNS.values(), "command"], ["---", *["---:"] * len(COLUMNS), "---"]]
    for attack in attacks:
        numbers = [f"{attack[column]:,}" for column in COLUMNS]
        rows.append([attack["attack"], *numbers, f"`--test {attack['file']} {attack['test']}`"])
    return "\n".join([
        f"Made by `make torture TORTURE={figures['form']} TORTURE_SEED={seeds[0]}` at commit {figures['commit']} on"
        f" {figures['date']}, in {figures['minutes']} minutes ({figures['machine']}).",
        "",
        *("| " + " | ".join(row) + " |" for row in rows),
    ])


def page_with(figures: dict) -> str:
    return between(PAGE.read_text(encoding="utf-8"), BEGIN, END, section(figures))


def check() -> list[str]:
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    wrong = []
    if PAGE.read_text(encoding="utf-8") != page_with(figures):
        wrong.append(f"{PAGE.relative_to(ROOT)} does not have the figures of {FIGURES.relative_to(ROOT)}")
    tests = set()
    for source in [*(ROOT / "tests/engines").glob("*.rs"), *(ROOT / "tests/library").glob("*.rs")]:
        tests |= {(source.parent.name, name) for name in re.findall(r"\bfn (\w+)\(", source.read_text(encoding="utf-8"))}
    for attack in figures["attacks"]:
        if (attack["file"], attack["test"]) not in tests:
            wrong.append(f"{attack['attack']}: no test {attack['test']} in tests/{attack['file']}")
        if any(attack[column] for column in ("live_lost", "dead_left", "dangling", "secrets")):
            wrong.append(f"{attack['attack']}: a guarantee was broken")
    return wrong


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if wrong := check():
            sys.exit("reliability.py: " + "\n".join(wrong))
        print("reliability: the page has the figures of the last `make torture`")
        return
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    figures = measured(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines(), int(sys.argv[2]))
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page_with(figures), encoding="utf-8")
    print(section(figures))


if __name__ == "__main__":
    main()
