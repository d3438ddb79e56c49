#!/usr/bin/env python3
"""Assembles a release: everything that `sam deploy` needs without a toolchain, `janitor`, checksums and an SBOM.

    release.py BUILT JANITOR ARCHITECTURE FOLDER     BUILT: output of `sam build`; FOLDER: replaced, with an archive next to it

The same binaries give the same bytes: archives have no timestamps, and the SBOM has the commit's.
"""

import argparse
import hashlib
import json
import re
import shutil
import stat
import subprocess
import sys
import tomllib
import uuid
import zipfile
from datetime import datetime, timezone
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
TARGETS = {"x86_64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}
FUNCTION = re.compile(
    r"^  (?P<logical>\w+):\n    Type: AWS::Serverless::Function\n(?P<condition>    Condition: \w+\n)?"
    r"    Metadata:\n      BuildMethod: rust-cargolambda\n      BuildProperties:\n        Binary: (?P<binary>[\w-]+)\n    Properties:\n"
    r"      CodeUri: functions/(?P=binary)\n", re.M)


def fail(text):
    sys.exit(f"release.py: {text}")


def replaced(text, old, new):
    if text.count(old) != 1:
        fail(f"{old.strip()!r} was found {text.count(old)} times, expected once")
    return text.replace(old, new)


def packaged_template(architecture):
    """The template with zips instead of build instructions, for one architecture; and the binary of each function."""
    binaries = {}

    def with_zip(match):
        binaries[match["logical"]] = match["binary"]
        kept = f"  {match['logical']}:\n    Type: AWS::Serverless::Function\n{match['condition'] or ''}    Properties:\n"
        return f"{kept}      CodeUri: {match['binary']}.zip\n"

    source = (ROOT / "template.yaml").read_text()
    text = FUNCTION.sub(with_zip, source)
    if len(binaries) != source.count("Type: AWS::Serverless::Function") or "BuildMethod" in text:
        fail("a function of template.yaml does not have the expected form")
    allowed = f"    Default: {architecture}\n    AllowedValues: [{architecture}]\n"
    return replaced(text, "    Default: arm64\n    AllowedValues: [arm64, x86_64]\n", allowed), binaries


def packaged_samconfig(architecture):
    text = (ROOT / "samconfig.toml").read_text()
    text = replaced(text, "then: sam build && sam deploy", "then: sam deploy")
    text = replaced(text, '"Architecture=arm64"', f'"Architecture={architecture}"')
    return replaced(text, "The architecture to build for, to run locally and to deploy: arm64 or x86_64.", "The architecture of these functions.")


def write_zip(path, files):
    """Writes the files without timestamps and owners; programs are executable."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name)
            is_program = content.startswith(b"\x7fELF")
            entry.external_attr = (stat.S_IFREG | (0o755 if is_program else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content, compresslevel=9)


def output_of(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        fail(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def checksums():
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    return {(package["name"], package["version"]): package.get("checksum") for package in packages}


def sbom(architecture, roots):
    """CycloneDX: the crates that are linked into the binaries, and their dependencies."""
    metadata = json.loads(output_of("cargo", "metadata", "--locked", "--format-version=1", "--filter-platform", TARGETS[architecture]))
    packages = {package["id"]: package for package in metadata["packages"]}
    needs = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    named = {packages[member]["name"]: member for member in metadata["workspace_members"]}
    pending, seen, sums = [named[root] for root in roots], {}, checksums()
    while pending:
        package = pending.pop()
        if package not in seen:
            name, version, licence = (packages[package].get(key) for key in ("name", "version", "license"))
            checksum = sums.get((name, version))
            seen[package] = Component(
                name=name, version=version, type=ComponentType.LIBRARY, bom_ref=f"{name}@{version}",
                purl=PackageURL("cargo", name=name, version=version) if packages[package]["source"] else None,
                licenses=[LicenseFactory().make_from_string(licence)] if licence else [],
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else [])
            pending += needs[package]
    bom = Bom(components=seen.values())
    bom.metadata.component = Component(name="actingweb-janitor", version=VERSION, type=ComponentType.APPLICATION, bom_ref="actingweb-janitor")
    bom.metadata.timestamp = datetime.fromtimestamp(int(output_of("git", "log", "-1", "--format=%ct")), timezone.utc)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"actingweb-janitor {VERSION} {architecture} {bom.metadata.timestamp}")
    bom.register_dependency(bom.metadata.component, [seen[named[root]] for root in roots])
    for package, component in seen.items():
        bom.register_dependency(component, [seen[other] for other in needs[package]])
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2) + "\n"
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem:
        fail(f"the SBOM is not valid CycloneDX: {problem}")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("built", type=Path)
    parser.add_argument("janitor", type=Path)
    parser.add_argument("architecture", choices=sorted(TARGETS))
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    folder = given.folder
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "stack").mkdir(parents=True)
    template, binaries = packaged_template(given.architecture)
    (folder / "template.yaml").write_text(template)
    (folder / "samconfig.toml").write_text(packaged_samconfig(given.architecture))
    for name in ("LICENSE", "README.md", *(f"stack/{path.name}" for path in (ROOT / "stack").iterdir())):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    for logical, binary in binaries.items():
        # `sam build` puts a binary that two functions share into a folder named after one of them.
        for code in (given.built / name / "bootstrap" for name in (logical, f"{logical}-Shared")):
            if code.is_file():
                write_zip(folder / f"{binary}.zip", {"bootstrap": code.read_bytes()})
    missing = {f"{binary}.zip" for binary in binaries.values()} - {path.name for path in folder.glob("*.zip")}
    if missing:
        fail(f"{given.built} has no function for {', '.join(sorted(missing))}")
    shutil.copyfile(given.janitor, folder / "janitor")
    (folder / "janitor").chmod(0o755)
    # man/ and completions/
    output_of(str(given.janitor.resolve()), "generate", str(folder.resolve()))
    (folder / "sbom.cdx.json").write_text(sbom(given.architecture, [*sorted(set(binaries.values())), "janitor"]))
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(sums))
    archive = folder.parent / f"actingweb-janitor-{VERSION}-{given.architecture}.zip"
    inside = {f"{archive.stem}/{name}": (folder / name).read_bytes() for name in [*names, "SHA256SUMS"]}
    write_zip(archive, inside)
    print(f"{archive.name}: {len(inside)} files, {archive.stat().st_size:,} bytes, sha256 {hashlib.sha256(archive.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
