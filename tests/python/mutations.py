#!/usr/bin/env python3
"""Makes one deliberate mistake at a time in the program, and checks that the named test fails.

Each tests/mutations/NN-name.mutation has the mistake in one line, a line `Caught-by: cargo test ...` with the exact name of a
test, and the change: lines that start with `-` or a space must be in the sources exactly once, whatever their indentation;
lines that start with `+` or a space replace them. So a mutation still applies after its code moved to another file.

For each mutation, a scratch worktree of HEAD is changed and built with its binaries, and the test must fail. All tests must
pass on the unchanged tree first. Every other result is an error:

    SURVIVED         the test passed
    did not compile  the mutation proves nothing
    does not apply   the code has changed: update the mutation
    no such test     the name is wrong

    mutations.py [--check | --table] [NN ...]

`--check` only checks that every mutation applies and names an existing test, and that the guides do not repeat the list: quick
enough for `make check`. `--table` prints the list. The scratch worktree and its build are kept in target/mutations, so that a
mutation costs one incremental build.
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
MUTATIONS = ROOT / "tests" / "mutations"
SCRATCH = ROOT / "target" / "mutations"
TREE = SCRATCH / "tree"
LONGEST_SECONDS = 900
PAGE = ROOT / "docs/dev/mutations.md"


class Mutation:
    def __init__(self, file):
        self.name = file.stem
        head, _, change = file.read_text().partition("\n\n")
        self.mistake, _, command = head.partition("\nCaught-by: cargo test ")
        self.command = shlex.split(command)
        if not self.command or not change:
            sys.exit(f"{file.name}: needs a mistake, a `Caught-by: cargo test ...`, an empty line and a change")
        lines = change.rstrip("\n").splitlines()
        self.find = [line[1:].strip() for line in lines if line[:1] != "+"]
        self.put = [line[1:].strip() for line in lines if line[:1] != "-"]
        self.test = self.command[-1]

    def targets(self):
        """In the whole workspace: `-p` would build other features."""
        return ["--workspace", *self.command[2:-1]]

    def places(self, tree):
        for name in git("ls-files", "*/src/*.rs", ":!tests", tree=tree).stdout.splitlines():
            source = tree / name
            lines = source.read_text().splitlines()
            stripped = [line.strip() for line in lines]
            for start in range(len(lines) - len(self.find) + 1):
                if stripped[start : start + len(self.find)] == self.find:
                    yield source, lines, start

    def apply(self, tree):
        places = list(self.places(tree))
        if len(places) != 1:
            return False
        [(source, lines, start)] = places
        lines[start : start + len(self.find)] = self.put
        source.write_text("\n".join(lines) + "\n")
        return True

    def test_exists(self):
        """Whether the test is a function in the module of its name."""
        *modules, name = self.test.split("::")
        if "--test" in self.command:
            folder = ROOT / self.command[1] / self.command[self.command.index("--test") + 1]
            sources = [folder / f"{modules[0]}.rs"]
        else:
            sources = (ROOT / self.command[1] / "src").rglob("*.rs")
        return any(re.search(rf"\bfn {name}\(", source.read_text()) for source in sources if source.exists())


def git(*arguments, tree=ROOT):
    return subprocess.run(["git", "-C", str(tree), *arguments], capture_output=True, text=True)


def check(mutations):
    wrong = []
    for mutation in mutations:
        found = len(list(mutation.places(ROOT)))
        if found != 1:
            wrong.append(f"{mutation.name}: its lines are in the sources {found} times, not once")
        if not mutation.test_exists():
            wrong.append(f"{mutation.name}: no such test: {mutation.test}")
    if re.search(r"^\| \d\d-", PAGE.read_text(), re.MULTILINE):
        wrong.append(f"{PAGE.relative_to(ROOT)}: repeats the list of mutations, which `mutations.py --table` prints")
    print("\n".join(wrong) or f"{len(mutations)} mutations apply, and their tests exist")
    return bool(wrong)


def table(mutations):
    print("| mutation | mistake | caught by |\n|---|---|---|")
    for mutation in mutations:
        print(f"| {mutation.name} | {mutation.mistake.rstrip('.')} | `{shlex.join(mutation.command)}` |")


def cargo(*arguments):
    target = os.environ.get("CARGO_TARGET_DIR", str(SCRATCH / "build"))
    environment = os.environ | {"CARGO_TARGET_DIR": target, "RUST_BACKTRACE": "0", "CARGO_TERM_COLOR": "never"}
    try:
        command = ["cargo", *arguments]
        return subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True, timeout=LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def build(targets):
    """Builds the tests, and the binaries that they start: an old binary would not have the mutation."""
    built = cargo("build", "--locked", *targets, "--bins")
    return built is not None and built.returncode == 0


def outcome(mutation):
    """`ok`, `FAILED`, or why the test has no result."""
    run = cargo("test", "--locked", *mutation.targets(), "--", "--exact", mutation.test)
    if run is None:
        return "hangs"
    ran = re.search(rf"^test {re.escape(mutation.test)}( - should panic)? \.\.\. (ok|FAILED)$", run.stdout, re.MULTILINE)
    return ran[2] if ran else "no such test"


def scratch():
    if not (TREE / ".git").exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        git("worktree", "prune")
        added = git("worktree", "add", "--detach", str(TREE), "HEAD")
        if added.returncode:
            sys.exit(added.stderr)
        (TREE / ".tools").symlink_to(ROOT / ".tools")
    reset = git("reset", "--hard", git("rev-parse", "HEAD").stdout.strip(), tree=TREE)
    if reset.returncode:
        sys.exit(reset.stderr)


def baseline(mutations):
    """Without a mutation every test must pass: a test that always fails catches nothing."""
    if not build(["--workspace", "--all-targets"]):
        sys.exit("the unchanged tree does not compile")
    tests = {mutation.test: mutation for mutation in mutations}
    failed = [test for test, mutation in tests.items() if outcome(mutation) != "ok"]
    if failed:
        sys.exit("these tests fail on the unchanged tree: " + ", ".join(failed))
    print(f"baseline: {len(tests)} tests pass on the unchanged tree", flush=True)


def attempt(mutation):
    if not mutation.apply(TREE):
        return "does not apply"
    try:
        if not build(mutation.targets()):
            return "did not compile"
        return {"FAILED": "caught", "hangs": "caught (it hangs)", "ok": "SURVIVED"}.get(outcome(mutation), "no such test")
    finally:
        git("checkout", "--", ".", tree=TREE)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true")
    arguments.add_argument("--table", action="store_true")
    arguments.add_argument("only", nargs="*", help="numbers of mutations")
    options = arguments.parse_args()
    mutations = [Mutation(file) for file in sorted(MUTATIONS.glob("*.mutation"))]
    if options.only:
        mutations = [mutation for mutation in mutations if mutation.name.split("-")[0] in options.only]
    if not mutations:
        sys.exit("no mutations found")
    if options.check:
        return check(mutations)
    if options.table:
        return table(mutations)
    scratch()
    baseline(mutations)
    survived = 0
    for number, mutation in enumerate(mutations, 1):
        started = time.monotonic()
        result = attempt(mutation)
        survived += not result.startswith("caught")
        took = f"{time.monotonic() - started:4.0f} s"
        print(f"{number:>2}/{len(mutations)} {mutation.name:<45} {result:<18} {took}  {mutation.test}", flush=True)
    print(f"{len(mutations) - survived} of {len(mutations)} mutations were caught")
    return bool(survived)


if __name__ == "__main__":
    sys.exit(main())
