#!/usr/bin/env python3
"""Assembles a release twice from stub binaries, and checks it: the same bytes, complete, and deployable without a toolchain.

`make release` uses real binaries; the release workflow checks that the compiler gives the same bytes twice.
"""

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from release import ROOT, VERSION, packaged_template

JANITOR = '#!/bin/sh\nmkdir "$2/man" && echo "$1" > "$2/man/janitor.1"\n'


def expect(truth, text):
    if not truth:
        sys.exit(f"release_checks.py: {text}")


def make(work, number, binaries):
    """A release of the same binaries, with other timestamps and in another folder."""
    built, janitor, folder = work / f"built-{number}", work / f"janitor-{number}", work / f"made-{number}" / "x86_64"
    # As `sam build` does: one folder for functions that share a binary.
    for binary in set(binaries.values()):
        first, *others = [logical for logical, other in binaries.items() if other == binary]
        bootstrap = built / (f"{first}-Shared" if others else first) / "bootstrap"
        bootstrap.parent.mkdir(parents=True)
        bootstrap.write_bytes(b"\x7fELF " + binary.encode())
        os.utime(bootstrap, (10**9 + number, 10**9 + number))
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
            expect(str(ROOT).encode() not in content, f"{name} contains a path of this machine")
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=first, check=True)
        zips = set(re.findall(r"^      CodeUri: (\S+)$", text, re.M))
        expect(zips == {path.name for path in first.glob("*.zip")}, f"the template names {sorted(zips)}")
        for name in zips:
            with zipfile.ZipFile(first / name) as archive:
                (entry,) = archive.infolist()
                expect(entry.filename == "bootstrap" and entry.external_attr >> 16 & 0o111, f"{name} does not contain a program")
        for name in re.findall(r"(?:TemplateURL|DefinitionUri|LicenseUrl|ReadmeUrl): (\S+)", text):
            expect((first / name).is_file(), f"the template names {name}, which the release does not have")
        given = {**os.environ, "SAM_CLI_TELEMETRY": "0", "AWS_DEFAULT_REGION": "us-east-1"}
        subprocess.run([ROOT / ".tools/venv-sam/bin/sam", "validate", "--lint"], cwd=first, env=given, check=True, stdout=subprocess.DEVNULL)
        number = len(contents(first))
    print(f"release {VERSION}: {number} files, the same bytes twice; its template is valid and names only them")


if __name__ == "__main__":
    main()
