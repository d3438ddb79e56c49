#!/usr/bin/env python3
"""Runs `cargo mutants` on the decision modules alone.

They use nothing but each other, so they and the tests that need no engine are copied into a workspace of their own, under
target/: without the AWS SDK to compile and to link, a mutant takes a second or two and not half a minute. The copy is made
anew every time; what it was made from is in the lists below, and a module that begins to need more does not compile there.

What survives has to be what docs/dev/mutations.md explains, no more and no less, and so has what runs for ever: a mutant that
nobody has explained is a failure, and so is an explanation that nothing needs.

    decisions.py [arguments of cargo mutants: --list, --file shared/src/expiry.rs, --iterate to leave out what was caught]
"""
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "target" / "decisions"
DOCS = ROOT / "docs" / "dev" / "mutations.md"
MODULES = [
    "bucket", "cascade/judge", "config", "expiry", "index", "integrity", "mask", "pyjson", "pyread", "row", "segment", "time",
]
# What cargo mutants itself says of a whole run: all were caught, some were missed, some ran out of time.
RAN = {0, 2, 3}
TEST_MODULES = ["model", "random", "rows"]
TESTS = ["boundaries", "judge", "rules", "settings"]
WORKSPACE = """[workspace]
resolver = "3"
members = ["shared", "tests"]

[profile.dev]
debug = false
incremental = true

[profile.dev.package."*"]
opt-level = 1
"""
PACKAGE = """[package]
name = "{name}"
version = "0.0.0"
edition = "2024"
publish = false

[lib]
path = "src/lib.rs"
doctest = false

[dependencies]
{dependencies}
"""
DEPENDENCIES = """fastrand = "2"
proptest = { version = "1", default-features = false, features = ["std"] }
serde_json = { version = "1", features = ["preserve_order"] }
serde = { version = "1", features = ["derive"] }
sha2 = "0.10"
thiserror = "2"
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def declared(module):
    *folders, name = module.split("/")
    inside = f"pub mod {name};\n"
    return "".join(f"pub mod {folder} {{ " for folder in folders) + inside + "}\n" * len(folders)


def assemble():
    for part in ("shared", "tests"):
        shutil.rmtree(WORK / part, ignore_errors=True)
    write(WORK / "Cargo.toml", WORKSPACE)
    write(WORK / "shared/Cargo.toml", PACKAGE.format(name="shared", dependencies=DEPENDENCIES))
    write(WORK / "shared/src/lib.rs", "#![allow(dead_code)]\n" + "".join(declared(name) for name in MODULES))
    write(WORK / "tests/Cargo.toml", PACKAGE.format(
        name="tests", dependencies=DEPENDENCIES + 'shared = { path = "../shared" }\n')
        + '\n[[test]]\nname = "decisions"\npath = "decisions.rs"\n')
    # One binary: linking is most of what a mutant costs.
    write(WORK / "tests/decisions.rs", "".join(f"mod {name};\n" for name in TESTS))
    write(WORK / "tests/src/lib.rs", "".join(f"pub mod {name};\n" for name in TEST_MODULES))
    copies = [f"shared/src/{name}.rs" for name in MODULES]
    copies += [f"tests/src/{name}.rs" for name in TEST_MODULES] + [f"tests/{name}.rs" for name in TESTS]
    copies += ["Cargo.lock", "rust-toolchain.toml", ".cargo/mutants.toml"]
    for path in copies:
        write(WORK / path, (ROOT / path).read_text())


def explained():
    """The survivors that the page explains, and how many mutants of each file run for ever."""
    page = DOCS.read_text()
    survivors = collections.Counter(re.findall(r"^\| `(\S+\.rs: [^`]+)` \|", page, re.MULTILINE))
    endless = {file: int(count) for file, count in re.findall(r"^\| `(\S+\.rs)` \| (\d+) \|", page, re.MULTILINE)}
    return survivors, collections.Counter(endless)


def found(name):
    """The mutants in one of cargo mutants' lists, without the lines that they were on: those move."""
    lines = (WORK / "mutants.out" / name).read_text().splitlines()
    return collections.Counter(re.sub(r"^(\S+?\.rs):\d+:\d+: ", r"\1: ", line) for line in lines if line.strip())


def compared(whole):
    """What is not as the page says. Of a part of the mutants only what the page does not know."""
    survivors, endless = explained()
    seen = found("missed.txt"), collections.Counter()
    for mutant, count in found("timeout.txt").items():
        seen[1][mutant.split(": ")[0]] += count
    wrong = []
    for what, known, now in (("survived", survivors, seen[0]), ("run for ever", endless, seen[1])):
        wrong += [f"not explained: {count} {what}: {mutant}" for mutant, count in (now - known).items()]
        wrong += [f"explained for nothing: {count} {what}: {mutant}" for mutant, count in (known - now).items() if whole]
    return wrong


def main():
    assemble()
    environment = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    environment |= {"PATH": f"{ROOT / '.tools/bin'}{os.pathsep}{os.environ['PATH']}", "PROPTEST_CASES": "200"}
    command = ["cargo", "mutants", "--in-place", "--no-shuffle", "--colors", "never", *sys.argv[1:]]
    code = subprocess.run(command, cwd=WORK, env=environment).returncode
    if code not in RAN or "--list" in sys.argv:
        return code
    wrong = compared(whole=len(sys.argv) == 1)
    print("\n".join(wrong) or "what survived is what docs/dev/mutations.md explains")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
