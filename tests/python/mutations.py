#!/usr/bin/env python3
"""Breaks the program on purpose, one mistake at a time, and asks that the test which must see it sees it.

Each tests/mutations/NN-what.patch begins with a line `Caught-by: cargo test ...` that names one test by its exact name. For
each: a scratch worktree of HEAD is patched, built, and that test is run. It must fail; everything else is a finding:

    survived        the test passed
    did not compile a patch that proves nothing
    does not apply  the code has moved on: the patch has to follow
    no such test    the name is wrong

    mutations.py [--check] [NN ...]

`--check` only asks whether every patch applies, is in docs/dev/mutations.md and names a test that is there, and whether
docs/dev/reliability.md tells how many there are: quick enough for `make check`. The scratch
worktree and its build are kept under target/mutations, so that a mutation costs one incremental build.
"""
import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATCHES = ROOT / "tests" / "mutations"
SCRATCH = ROOT / "target" / "mutations"
TREE = SCRATCH / "tree"
LONGEST_SECONDS = 600


def git(*arguments, tree=ROOT):
    return subprocess.run(["git", "-C", str(tree), *arguments], capture_output=True, text=True)


def caught_by(patch):
    """The command of the header, as a list."""
    found = re.search(r"^Caught-by: (cargo test .+)$", patch.read_text(), re.MULTILINE)
    if not found:
        sys.exit(f"{patch.name}: no `Caught-by: cargo test ...` in its header")
    return shlex.split(found[1])


def test_is_there(command):
    """Whether the test's own name is a function in the sources of its package."""
    name = command[-1].split("::")[-1]
    package = command[command.index("-p") + 1]
    if "--test" in command:
        sources = [ROOT / package / f"{command[command.index('--test') + 1]}.rs"]
    else:
        sources = (ROOT / package / "src").rglob("*.rs")
    return any(re.search(rf"\bfn {name}\(", source.read_text()) for source in sources if source.exists())


def check(patches):
    wrong = []
    for patch in patches:
        applied = git("apply", "--check", str(patch))
        if applied.returncode:
            wrong.append(f"{patch.name}: does not apply: {applied.stderr.strip().splitlines()[0]}")
        if not test_is_there(caught_by(patch)):
            wrong.append(f"{patch.name}: no such test: {caught_by(patch)[-1]}")
        if f"| {patch.stem} |" not in (ROOT / "docs" / "dev" / "mutations.md").read_text():
            wrong.append(f"{patch.name}: not in docs/dev/mutations.md")
    told = re.search(r"(\d+) deliberate mistakes", (ROOT / "docs" / "dev" / "reliability.md").read_text())
    there = len(list(PATCHES.glob("*.patch")))
    if not told or int(told[1]) != there:
        wrong.append(f"docs/dev/reliability.md: does not say that there are {there} deliberate mistakes")
    print("\n".join(wrong) or f"{len(patches)} mutations apply, and the tests that must catch them are there")
    return bool(wrong)


def cargo(command, environment):
    try:
        return subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True, timeout=LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def scratch():
    if not (TREE / ".git").exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        git("worktree", "prune")
        added = git("worktree", "add", "--detach", str(TREE), "HEAD")
        if added.returncode:
            sys.exit(added.stderr)
        (TREE / ".tools").symlink_to(ROOT / ".tools")
    head = git("rev-parse", "HEAD").stdout.strip()
    reset = git("reset", "--hard", head, tree=TREE)
    if reset.returncode:
        sys.exit(reset.stderr)


def attempt(patch, environment):
    command = caught_by(patch)
    if git("apply", str(patch), tree=TREE).returncode:
        return "does not apply"
    try:
        # Everything up to the name builds the test; the name alone must be what fails.
        built = cargo([*command[:-1], "--no-run"], environment)
        if built is None or built.returncode:
            return "did not compile"
        run = cargo([*command, "--", "--exact"], environment)
        if run is None:
            return "caught (it hangs)"
        ran = re.search(r"^test result: .*?(\d+) passed; (\d+) failed", run.stdout, re.MULTILINE)
        if not ran or ran.groups() == ("0", "0"):
            return "no such test"
        return "caught" if f"test {command[-1]} ... FAILED" in run.stdout else "SURVIVED"
    finally:
        git("checkout", "--", ".", tree=TREE)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true")
    arguments.add_argument("only", nargs="*", help="numbers of mutations")
    options = arguments.parse_args()
    patches = sorted(PATCHES.glob("*.patch"))
    if options.only:
        patches = [patch for patch in patches if patch.name.split("-")[0] in options.only]
    if not patches:
        sys.exit("no mutations: nothing was proved")
    if options.check:
        return check(patches)
    scratch()
    target = os.environ.get("CARGO_TARGET_DIR", str(SCRATCH / "build"))
    environment = os.environ | {"CARGO_TARGET_DIR": target, "RUST_BACKTRACE": "0", "CARGO_TERM_COLOR": "never"}
    survived = 0
    for patch in patches:
        began = time.monotonic()
        result = attempt(patch, environment)
        survived += not result.startswith("caught")
        print(f"{patch.stem:<45} {result:<18} {time.monotonic() - began:4.0f} s  {caught_by(patch)[-1]}", flush=True)
    print(f"{len(patches) - survived} of {len(patches)} mutations were caught")
    return bool(survived)


if __name__ == "__main__":
    sys.exit(main())
