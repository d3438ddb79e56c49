#!/usr/bin/env python3
"""The figures of docs/cascade.md: `make cascade-month` measures them, docs/cascade-month.json stores them.

    cascade_month.py FIGURES.json    store the measured figures, and write the page's table
    cascade_month.py --check         check that the page has the figures of the JSON file
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from measured import ROOT, between, provenance

PAGE, FIGURES = ROOT / "docs/cascade.md", ROOT / "docs/cascade-month.json"
BEGIN, END = "<!-- figures: written by make cascade-month -->", "<!-- end of figures -->"
NAMES = {"delete": "delete daily", "retire": "retire"}


def average(figure: str, month: dict) -> str:
    return f"{month[figure]:.1f}" if month[figure] else "**0**"


def table(figures: dict) -> str:
    months = figures["months"]
    names = [NAMES[month["expired_rows"]] + (", with the cascade" if month["cascade"] else "") for month in months]
    rows = [
        ["", *names],
        ["---"] * (len(months) + 1),
        ["dangling index rows, average", *(average("dangling", month) for month in months)],
        ["unreferenced provider rows, average", *(average("unreferenced", month) for month in months)],
        ["requests", *(f"{month['requests']:,}" for month in months)],
        ["DynamoDB, us-east-1 list prices", *(f"${month['dollars']:.4f}" for month in months)],
    ]
    return "\n".join("|" + "|".join(row) + "|" if row[0] == "---" else "| " + " | ".join(row) + " |" for row in rows)


def page_with(figures: dict) -> str:
    return between(PAGE.read_text(encoding="utf-8"), BEGIN, END, table(figures))


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text(encoding="utf-8") != page_with(json.loads(FIGURES.read_text(encoding="utf-8"))):
            sys.exit(f"cascade_month.py: {PAGE.name} does not have the figures of {FIGURES.name}")
        print("cascade: the page has the figures of the last `make cascade-month`")
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    figures = provenance() | json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page_with(figures), encoding="utf-8")
    print(table(figures))


if __name__ == "__main__":
    main()
