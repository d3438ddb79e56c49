#!/usr/bin/env python3
"""Runs `cargo mutants` on the decision modules alone.

They use nothing but each other, so they and the tests that need no engine are copied into a workspace of their own, under
target/: without the AWS SDK to compile and to link, a mutant takes a second or two and not half a minute. The copy is made
anew every time; what it was made from is in the lists below, and a module that begins to need more does not compile there.

    decisions.py [arguments of cargo mutants: --list, --file shared/src/expiry.rs, --iterate to leave out what was caught]
"""
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "target" / "decisions"
MODULES = ["bucket", "config", "expiry", "index", "integrity", "mask", "pyjson", "pyread", "row", "time"]
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


def assemble():
    for part in ("shared", "tests"):
        shutil.rmtree(WORK / part, ignore_errors=True)
    write(WORK / "Cargo.toml", WORKSPACE)
    write(WORK / "shared/Cargo.toml", PACKAGE.format(name="shared", dependencies=DEPENDENCIES))
    write(WORK / "shared/src/lib.rs", "#![allow(dead_code)]\n" + "".join(f"pub mod {name};\n" for name in MODULES))
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


def main():
    assemble()
    environment = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    environment |= {"PATH": f"{ROOT / '.tools/bin'}{os.pathsep}{os.environ['PATH']}", "PROPTEST_CASES": "200"}
    command = ["cargo", "mutants", "--in-place", "--no-shuffle", "--colors", "never", *sys.argv[1:]]
    return subprocess.run(command, cwd=WORK, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
