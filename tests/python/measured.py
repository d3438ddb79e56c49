"""What measured figures are of: commit, day and machine. Each page of figures has a JSON file that begins with it."""

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

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return {
        "commit": git("rev-parse", "--short", "HEAD") + (" with changes" if changed else ""),
        "date": str(datetime.date.today()),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def between(page: Path, begin: str, end: str, text: str) -> str:
    """The page with this text between its two markers."""
    before, rest = page.read_text(encoding="utf-8").split(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"
