#!/usr/bin/env python3
"""Puts the figures that `make torture` collected into docs/reliability.md, between its two markers.

    reliability.py FIGURES.jsonl

An attack that ran on both engines is one line. The table says where and when it was made.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = next(page for page in (ROOT / "docs/dev/reliability.md", ROOT / "docs/reliability.md") if page.exists())
BEGIN, END = "<!-- figures: written by make torture -->", "<!-- end of figures -->"
COLUMNS = {
    "attempts": "runs",
    "faults": "faults",
    "judged": "rows judged",
    "deleted": "deleted",
    "lost_races": "lost races",
    "live_lost": "**live rows lost**",
    "dead_left": "**dead rows left**",
    "dangling": "**index rows without target**",
    "secrets": "**secrets out**",
}


def added_up(lines: list[str]) -> dict[str, dict]:
    attacks: dict[str, dict] = {}
    for line in lines:
        one = json.loads(line)
        sums = attacks.setdefault(one["attack"], {**one, **dict.fromkeys(COLUMNS, 0)})
        for column in COLUMNS:
            sums[column] += one[column]
    return attacks


def table(attacks: dict[str, dict]) -> str:
    rows = [["attack", *COLUMNS.values(), "again, alone"], ["---", *["---:"] * len(COLUMNS), "---"]]
    for name, figures in attacks.items():
        numbers = [f"{figures[column]:,}" for column in COLUMNS]
        rows.append([name, *numbers, f"`--test {figures['file']} {figures['test']}`"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def where(attacks: dict[str, dict]) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    seeds = sorted({figures["seed"] for figures in attacks.values()})
    return (
        f"Made by `TORTURE_SEED={seeds[0]} make torture` on {datetime.date.today()}, at commit {commit.stdout.strip()}, on"
        f" {platform.system()} {platform.machine()} with {os.cpu_count()} cores."
    )


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    attacks = added_up(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    made = f"{BEGIN}\n{where(attacks)}\n\n{table(attacks)}\n{END}"
    PAGE.write_text(before + made + after, encoding="utf-8")
    print(f"{where(attacks)}\n\n{table(attacks)}")


if __name__ == "__main__":
    main()
