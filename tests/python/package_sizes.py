#!/usr/bin/env python3
"""Checks the result of `sam build`: every function of the template, for one architecture, each small enough when zipped."""

import io
import sys
import zipfile

from sam_template import ROOT, binaries, built

# Of the zip that is uploaded, and that a cold start loads.
MOST_BYTES = 6_000_000
MACHINES = {0x3E: "x86_64", 0xB7: "arm64"}


def main():
    problems, machines, made = [], set(), built()
    for logical, binary in binaries().items():
        if not (ROOT / "functions" / binary).is_dir():
            problems.append(f"functions/{binary}, the binary of {logical}, does not exist")
        bootstrap = made[logical]
        if not bootstrap.is_file():
            problems.append(f"{bootstrap.relative_to(ROOT)} does not exist: did `sam build` succeed?")
            continue
        code = bootstrap.read_bytes()
        machine = MACHINES.get(int.from_bytes(code[18:20], "little")) if code[:4] == b"\x7fELF" else None
        if machine is None:
            problems.append(f"{binary} is not a program for Lambda")
        machines.add(machine)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("bootstrap", code)
        size = len(packed.getvalue())
        print(f"{binary:16} {machine}  {len(code):>10,} bytes, zipped {size:>10,}")
        if size >= MOST_BYTES:
            problems.append(f"{binary} has {size} bytes zipped, more than {MOST_BYTES}")
    if len(machines) > 1:
        problems.append(f"built for {', '.join(map(str, machines))}: one of them is from an older build")
    if problems:
        sys.exit("\n".join(f"package_sizes.py: {problem}" for problem in problems))


if __name__ == "__main__":
    main()
