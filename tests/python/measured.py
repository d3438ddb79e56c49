"""The provenance of measured figures (commit, date, machine), with which each JSON file of figures begins, and their pages."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def provenance() -> dict[str, str]:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    # Pages and figures may be new: the last measurement wrote them.
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", ":!*.md")
    return {
        "commit": git("rev-parse", "--short", "HEAD") + (" with changes" if changed else ""),
        "date": str(datetime.date.today()),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def between(page: str, begin: str, end: str, text: str) -> str:
    """The page with this text between its two markers."""
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n{text}\n{end}{after}"
