#!/usr/bin/env python3
"""The figures of docs/dev/proof.md: `make proof` collects them, docs/dev/proof.json keeps them.

    proof.py FIGURES.jsonl    note what was collected, and write the page
    proof.py --check          the page has the figures of the JSON file
"""
import json
import sys

from measured import ROOT, provenance

PAGE, FIGURES = ROOT / "docs/dev/proof.md", ROOT / "docs/dev/proof.json"
HEAD = """# Proof

Written by `make proof`; `make test` runs the same tests.

"""
CASES = """## Every case of the decisions

`shared/tests/every_case` makes every row of the classes of values (missing, malformed, extremes, and each boundary with the second
before and after it) for every bucket and policy. Each verdict is compared with the model in `tests/model/src/verdict.rs`, which
shares no code with the decisions, and with these rules:

- No verdict deletes a row before the last second in which a release of ActingWeb finds it alive, plus the slack.
- More time never turns a delete into a keep, except that a TTL more than five years past counts for nothing.
- `dead_from` is exactly the first second in which a row is dead.
- A dry verdict equals a real one: no decision knows the mode.
- Leaving rows to TTL and deleting them agree on which rows are dead.
- A TTL that the backfill sets ends no row that is alive.

The test explains why the classes are complete, and checks it with random rows outside of them.

| decisions | cases | seconds |
|---|---:|---:|
"""
INTERLEAVINGS = """
## Every interleaving of the writers

`tests/model/tests/interleavings` is a model for [stateright](https://docs.rs/stateright) of the rows of one token. The application
creates, consumes, revokes and deletes them; TTL removes them; two runs read and delete, retire or restore them. Every read and write is one step,
reads may be stale, and a run may be killed or sleep at any step. The model calls the decisions of `shared`.

It assumes that the application finishes a write within the grace period or never, that an eventually consistent read is at
most five minutes behind, and that the name of a token is never used again. In every state:

- No live row is deleted, and none is made unreachable.
- A revoked token never works again.
- When the writers have stopped, the next runs leave no dead row.
- The next cleanup finishes what a killed cleanup began.

| rows | concurrent runs | states | depth | seconds |
|---|---|---:|---:|---:|
"""
STORIES = """
## Counterexamples

Each mistake below breaks a rule of the model. The last one is no mistake of the code: it is the window that
[TTL cascade](../cascade.md#what-it-deletes) warns of. The restore of a backup is the only way to it: without one, the same rows and runs keep
every rule.
"""
FUZZ = """
## Fuzzing

`shared/tests/fuzz` mutates the texts of a corpus (`shared/tests/fuzz/corpus`). JSON is read by this project and by Python,
and both must agree.

| reader | inputs | seconds |
|---|---:|---:|
"""


def page_with(measured):
    figures = measured["figures"]
    of = lambda part: [figure for figure in figures if figure["part"] == part]
    page = HEAD + f"Measured at commit {measured['commit']} on {measured['date']} ({measured['machine']}).\n\n" + CASES
    for figure in sorted(of("cases"), key=lambda figure: figure["what"]):
        page += f"| {figure['what']} | {figure['cases']:,} | {figure['seconds']} |\n"
    page += f"| **all** | **{sum(figure['cases'] for figure in of('cases')):,}** | |\n"
    page += INTERLEAVINGS
    for figure in of("interleavings"):
        page += f"| {figure['rows']} | {figure['runs']} | {figure['states']:,} | {figure['depth']} | {figure['seconds']} |\n"
    page += f"| **all** | | **{sum(figure['states'] for figure in of('interleavings')):,}** | | |\n"
    page += STORIES
    for figure in of("stories"):
        steps = "\n".join(f"{n}. {step}" for n, step in enumerate(figure["steps"], 1))
        page += f"\n**{figure['what']}.** Broken: {figure['promise']}.\n\n{steps}\n"
    if of("fuzz"):
        page += FUZZ
        for figure in of("fuzz"):
            page += f"| {figure['what']} | {figure['inputs']:,} | {figure['seconds']} |\n"
    return page


def main():
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text() != page_with(json.loads(FIGURES.read_text())):
            sys.exit(f"proof.py: {PAGE.name} does not have the figures of {FIGURES.name}")
        print("proof: the page has the figures of the last `make proof`")
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    measured = provenance() | {"figures": [json.loads(line) for line in open(sys.argv[1])]}
    FIGURES.write_text(json.dumps(measured, indent=1) + "\n")
    PAGE.write_text(page_with(measured))
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main()
