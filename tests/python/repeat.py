#!/usr/bin/env python3
"""Runs all tests of `make test` several times in a row, and stores the seconds for CONTRIBUTING (docs/dev/phases.json).

    repeat.py RUNS           one run after another; stops at the first that fails
    repeat.py RUNS --load    the same beside a process that keeps every core busy

The output of each run is in target/repeat/N.log.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from measured import ROOT, provenance
from phases import FIGURES, NOTES, PAGE, page_with

LOGS = ROOT / "target/repeat"
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)


def spin() -> None:
    while True:
        pass


@contextmanager
def busy_cores() -> Iterator[None]:
    """Until the block ends, one spinning process per core, at the priority of the tests."""
    spinning = [multiprocessing.Process(target=spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in spinning:
        process.start()
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.join()


def run(number: int) -> dict[str, int]:
    """One run: its seconds, and how many tests passed; the program exits if one failed, or was ignored."""
    log, began = LOGS / f"{number}.log", time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        status = subprocess.run(["make", "integration"], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT).returncode
    seconds = round(time.monotonic() - began)
    results = [tuple(map(int, found)) for found in RESULT.findall(log.read_text(encoding="utf-8"))]
    passed, failed, ignored = (sum(column) for column in zip(*results, strict=True)) if results else (0, 0, 0)
    print(f"run {number}: {passed} passed, {failed} failed, {ignored} ignored, in {seconds} s", flush=True)
    if status or failed or ignored or not passed:
        sys.exit(f"repeat.py: run {number} failed with status {status}; its output is in {log.relative_to(ROOT)}")
    return {"seconds": seconds, "passed": passed}


def main() -> None:
    match sys.argv[1:]:
        case [runs]:
            name, beside = "repeated", nullcontext()
        case [runs, "--load"]:
            name, beside = "loaded", busy_cores()
        case _:
            sys.exit(__doc__)
    LOGS.mkdir(parents=True, exist_ok=True)
    NOTES.unlink(missing_ok=True)  # The phases of a `make test`; of these runs, only the seconds count.
    made = provenance()
    with beside:
        made |= {"runs": [run(number) for number in range(1, int(runs) + 1)]}
    figures = json.loads(FIGURES.read_text(encoding="utf-8")) | {name: made}
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page_with(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
