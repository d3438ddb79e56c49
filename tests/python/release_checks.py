#!/usr/bin/env python3
"""Puts a release together twice, of stand-ins for the binaries, and looks at it: the same bytes, complete, and deployable without a toolchain.

`make release` does it with real binaries; whether the compiler gives the same bytes twice is seen by the release workflow.
"""

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from release import ROOT, VERSION, packaged_template

JANITOR = "#!/bin/sh\necho completions for $2\n"


def expect(truth, text):
    if not truth:
        sys.exit(f"release_checks.py: {text}")


def make(work, number, binaries):
    """A release of the same binaries, made at another time and in another place."""
    built, janitor, folder = work / f"built-{number}", work / f"janitor-{number}", work / f"made-{number}" / "x86_64"
    # As `sam build` leaves it: one folder for functions that share a binary.
    for logical, binary in {binary: (logical, binary) for logical, binary in binaries.items()}.values():
        (built / logical).mkdir(parents=True)
        (built / logical / "bootstrap").write_bytes(b"\x7fELF " + binary.encode())
        os.utime(built / logical / "bootstrap", (10**9 + number, 10**9 + number))
    janitor.write_text(JANITOR)
    janitor.chmod(0o755)
    subprocess.run([sys.executable, ROOT / "tests/python/release.py", built, janitor, "x86_64", folder], check=True, stdout=subprocess.DEVNULL)
    return folder


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def main():
    text, binaries = packaged_template("x86_64")
    with tempfile.TemporaryDirectory() as place:
        first, second = (make(Path(place), number, binaries) for number in (1, 2))
        expect(contents(first.parent) == contents(second.parent), "two releases of the same binaries differ")
        for name, content in contents(first).items():
            expect(str(ROOT).encode() not in content, f"{name} holds a path of this machine")
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=first, check=True)
        zips = set(re.findall(r"^      CodeUri: (\S+)$", text, re.M))
        expect(zips == {path.name for path in first.glob("*.zip")}, f"the template names {sorted(zips)}")
        for name in zips:
            with zipfile.ZipFile(first / name) as archive:
                (entry,) = archive.infolist()
                expect(entry.filename == "bootstrap" and entry.external_attr >> 16 & 0o111, f"{name} holds no program")
        for name in re.findall(r"(?:TemplateURL|DefinitionUri|LicenseUrl|ReadmeUrl): (\S+)", text):
            expect((first / name).is_file(), f"the template names {name}, and the release does not have it")
        given = {**os.environ, "SAM_CLI_TELEMETRY": "0", "AWS_DEFAULT_REGION": "us-east-1"}
        subprocess.run([ROOT / ".tools/venv-sam/bin/sam", "validate", "--lint"], cwd=first, env=given, check=True, stdout=subprocess.DEVNULL)
        number = len(contents(first))
    print(f"release {VERSION}: {number} files, twice the same bytes; its template is valid and names only them")


if __name__ == "__main__":
    main()
