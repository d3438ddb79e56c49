#!/usr/bin/env python3
"""Looks at what `sam build` made: every function of the template, for one processor, each small enough when zipped."""

import io
import sys
import zipfile

from sam_template import ROOT, binaries, built

# What is uploaded, and what a cold start has to fetch.
MOST_BYTES = 6_000_000
MACHINES = {0x3E: "x86_64", 0xB7: "arm64"}


def main():
    problems, machines, made = [], set(), built()
    for logical, binary in binaries().items():
        if not (ROOT / "functions" / binary).is_dir():
            problems.append(f"functions/{binary} is not there, and the template has {logical}")
        bootstrap = made[logical]
        if not bootstrap.is_file():
            problems.append(f"{bootstrap.relative_to(ROOT)} is not there: did `sam build` end well?")
            continue
        code = bootstrap.read_bytes()
        machine = MACHINES.get(int.from_bytes(code[18:20], "little")) if code[:4] == b"\x7fELF" else None
        if machine is None:
            problems.append(f"{binary} is no program for Lambda")
        machines.add(machine)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("bootstrap", code)
        size = len(packed.getvalue())
        print(f"{binary:16} {machine}  {len(code):>10,} bytes, zipped {size:>10,}")
        if size >= MOST_BYTES:
            problems.append(f"{binary} is {size} bytes zipped, {MOST_BYTES} is the limit")
    if len(machines) > 1:
        problems.append(f"built for {', '.join(map(str, machines))}: one of them was not built again")
    for problem in problems:
        print(f"package_sizes.py: {problem}", file=sys.stderr)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
