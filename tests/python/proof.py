#!/usr/bin/env python3
"""The figures of docs/dev/proof.md: `make proof` collects them, docs/dev/proof.json stores them.

    proof.py FIGURES.jsonl    store the collected figures, and write the page
    proof.py --check          check that the page has the figures of the JSON file
"""
import json
import sys

from measured import ROOT, provenance

PAGE, FIGURES = ROOT / "docs/dev/proof.md", ROOT / "docs/dev/proof.json"
HEAD = """# Proof

Written by `make proof`; `make test` runs the same tests.

"""
CASES = """## Every case of the decisions

`shared/tests/every_case` generates a row for every combination of value classes (missing, malformed, extremes, and each boundary with
the second before and after it), for every bucket and policy. Fields that a decision does not read vary in turn. Each verdict is compared
with the model in `tests/model/src/verdict.rs`, which shares no code with the decisions, and with these rules:

- No verdict deletes a row before the last second in which a release of ActingWeb finds it alive, plus the slack.
- Later times never turn a delete into a keep, except that a TTL more than five years in the past is ignored.
- `dead_from` is exactly the first second in which a row is dead.
- A dry run has the same verdicts as a real run: no decision knows the mode.
- Retiring, leaving to TTL and deleting agree on which rows are dead.
- A retired row is still dead, and its TTL is set once.
- A TTL that the backfill sets never removes a live row.

The test explains why the classes are complete and which fields a decision does not read, and checks both with random rows outside the
classes.

| decisions | cases | seconds |
|---|---:|---:|
"""
INTERLEAVINGS = """
## Every interleaving of the writers

`tests/model/tests/interleavings` is a model for [stateright](https://docs.rs/stateright) of the rows of one token. The application
creates, consumes, revokes and deletes them; TTL removes them; two runs read and delete, retire or restore them. Every read and write is one step,
reads may be stale, and a run may be killed or sleep at any step. The model calls the decisions of `shared`.

Cleanup, repair and restore acquire a lease. In the table it is *none* (the runs do not acquire it), *kept* (a holder that cannot renew it
ends before it expires), or *lapses* (it expires at any time, and its holder wakes up late and continues). A test compares the last with the
first: rows and runs reach exactly the same states.

It assumes that the application finishes a write within the grace period or never, that its clock and an eventually consistent
read are at most five minutes behind, and that the name of a token is never used again. In every state:

- No live row is deleted, and none is made unreachable.
- A revoked token never works again.
- When the writers have stopped, the next runs leave no dead row.
- The next cleanup finishes the work of a killed cleanup.
- With a lease that is kept, only one run works at a time.

| rows | concurrent runs | lease | states | depth | seconds |
|---|---|---|---:|---:|---:|
"""
STORIES = """
## Counterexamples

Each case below breaks a rule of the model. The last two are not mistakes in the code. A lease that expires lets two runs work at the
same time, and harms no row. The other is the window that [TTL cascade](../cascade.md#what-it-deletes) warns of: only restoring a backup
opens it; without a restore, the same rows and runs keep every rule.
"""
LAST = ["A lease that lapses while its holder sleeps", "A backup restored while the cascade runs"]
FUZZ = """
## Fuzzing

Each parser gets mutations of a corpus, which is next to its test (`tests/model/tests/fuzz/corpus`, `dynamo/src/convert/items.txt`,
`jobs/src/backlog/events.txt`). This project and Python read the same JSON and must agree. Items are also generated at random: values of
every type, nested and too long.

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
    for figure in sorted(of("interleavings"), key=lambda figure: (figure["lease"] != "none", figure["rows"], figure["runs"], figure["lease"])):
        page += f"| {figure['rows']} | {figure['runs']} | {figure['lease']} | {figure['states']:,} | {figure['depth']} | {figure['seconds']} |\n"
    page += f"| **all** | | | **{sum(figure['states'] for figure in of('interleavings')):,}** | | |\n"
    page += STORIES
    for figure in sorted(of("stories"), key=lambda figure: (LAST.index(figure["what"]) if figure["what"] in LAST else -1, figure["what"])):
        steps = "\n".join(f"{n}. {step}" for n, step in enumerate(figure["steps"], 1))
        page += f"\n**{figure['what']}.** Broken: {figure['promise']}.\n\n{steps}\n"
    if of("fuzz"):
        page += FUZZ
        for figure in sorted(of("fuzz"), key=lambda figure: figure["what"]):
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
