#!/usr/bin/env python3
"""Compares the documents with the template and the code: links, parameters, alarms, metrics, settings, buckets, examples,
commands, the names in answers. Also checks the guides' word budget.

Needs only PyYAML. Sources are read as text; a list that is shorter than expected is an error, so that no check is empty.
"""

import json
import re
import sys
from pathlib import Path

import yaml

from measured import between

ROOT = Path(__file__).resolve().parents[2]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DEVELOPER_PAGES = sorted((ROOT / "docs" / "dev").glob("*.md"))
ROOT_PAGES = [ROOT / name for name in ("CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md")]
PAGES = [*GUIDES, *DEVELOPER_PAGES, *ROOT_PAGES]
# As `wc -w` counts, README.md and docs/*.md together.
MOST_GUIDE_WORDS = 15_000
# `docs_check.py --write-parameters` writes its table of parameters.
DEPLOYING = "docs/deploying.md"
# The table of settings: `make docs` writes it, tests/engines/cli.rs compares it with the program.
SETTINGS = json.loads((ROOT / "tests/golden/settings.json").read_text(encoding="utf-8"))

failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)


def same(where, documented, real):
    for name in sorted(real - documented):
        failures.append(f"{where} does not have {name}")
    for name in sorted(documented - real):
        failures.append(f"{where} has {name}, which does not exist")


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def some(what, found, least):
    if len(found) < least:
        sys.exit(f"docs_check.py: only {len(found)} {what} found: their format has changed")
    return found


def template(path="template.yaml"):
    class Loader(yaml.SafeLoader):
        """Ignores CloudFormation's tags: `!Sub x` is x."""

    def plain(loader, _, node):
        if isinstance(node, yaml.ScalarNode):
            return loader.construct_scalar(node)
        build = loader.construct_sequence if isinstance(node, yaml.SequenceNode) else loader.construct_mapping
        return build(node, deep=True)

    Loader.add_multi_constructor("!", plain)
    return yaml.load(read(path), Loader)


def section(text, title):
    """The text below a heading, up to the next heading of the same or a higher level."""
    match = re.search(rf"^(#+) {re.escape(title)}\n", text, re.M)
    if match is None:
        sys.exit(f"docs_check.py: no heading {title!r}")
    rest = text[match.end():]
    end = re.search(rf"^#{{1,{len(match[1])}}} ", rest, re.M)
    return rest[: end.start()] if end else rest


def rows(text):
    """The cells of each row of each table, without the header."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if line.startswith("|") and not line.startswith("|---") and not following.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def tables_of(text):
    """The rows of each table, by table."""
    return [found for block in text.split("\n\n") if (found := list(rows(block)))]


def names(cell):
    return re.findall(r"`([^`]+)`", cell)


def first_names(text):
    return {name for cells in rows(text) for name in names(cells[0])}


# ---- Links


def anchors(text):
    """The anchors of a page's headings, as GitHub derives them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def check_links(page, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or ROOT not in [file, *file.parents]:
            failures.append(f"{page.name}: the link {target} is broken")
        elif anchor:
            expect(anchor in anchors(file.read_text(encoding="utf-8")), f"{page.name}: no heading for the link {target}")


# ---- Every page


def check_examples(page, text):
    for language, block in re.findall(r"^```(json|yaml)\n(.*?)^```", text, re.M | re.S):
        try:
            json.loads(block) if language == "json" else yaml.safe_load(block)
        except (ValueError, yaml.YAMLError) as problem:
            failures.append(f"{page.name}: an example is not valid {language}: {problem}")


def check_words(page, text, parameters):
    for name in re.findall(r"\b((?:events|tests|docs)/[\w./-]+\.\w+)", text):
        expect((ROOT / name).is_file(), f"{page.name}: {name} does not exist")
    for name in re.findall(r"(?<![\w/])((?:shared|jobs|dynamo|functions|cli)/[\w./-]+\.rs)", text):
        expect((ROOT / name).is_file(), f"{page.name}: {name} does not exist")
    for line in re.findall(r"--parameter-overrides((?:[ ']+\w+=(?:\"[^\"]*\"|[^\s'`]*)'?)+)", text):
        for name in re.findall(r"(?:^|[ '])([A-Z]\w+)=", line):
            expect(name in parameters, f"{page.name}: {name} is not a parameter of the template")
    for name, value in re.findall(r"`([A-Z][A-Za-z_]+)=([\w.-]+)`", text):
        if name.isupper():
            expect(name in {setting["name"] for setting in SETTINGS}, f"{page.name}: {name} is not a setting")
            continue
        expect(name in parameters, f"{page.name}: {name} is not a parameter of the template")
        allowed = parameters.get(name, {}).get("AllowedValues")
        expect(allowed is None or value in map(str, allowed), f"{page.name}: {name} cannot be {value}")
    commands = some("commands", set(re.findall(r"^    ([A-Z]\w+)(?:\([\w<>]+\)| \{|,$)", section_of_commands(), re.M)), 5)
    known = {command.lower() for command in commands}
    shell = "\n".join(re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.M | re.S) + re.findall(r"`(make [^`\n]+)`", text))
    for target in re.findall(r"(?:^|[;&|] ?|\w+=\S+ )make ([a-z][a-z-]*)", shell, re.M):
        expect(re.search(rf"^{target}:", read("Makefile"), re.M), f"{page.name}: make {target} is not a target")
    typed = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) + re.findall(r"`(janitor [^`\n]+)`", text))
    for command, rest in re.findall(r"(?:^|--bin )janitor (?:-- )?([a-z]+)([^\n]*)", typed, re.M):
        expect(command in known, f"{page.name}: janitor {command} is not a command")
        # `ttl` has subcommands with their own flags; a pipe or a semicolon ends the command.
        words = re.split(r"[|;#]", rest)[0].split()
        full = "-".join([command, *words[:1]]) if command == "ttl" and words and words[0].isalpha() else command
        for flag in re.findall(r"(?<!\S)--([a-z-]+)", " ".join(words)):
            expect(flag in flags_of(full), f"{page.name}: janitor {full.replace('-', ' ')} has no --{flag}")


def flags_of(command):
    """The flags of a command's help text, and older spellings of its settings."""
    file = ROOT / "tests/golden/cli" / f"help-{command}.txt"
    if not file.is_file():
        return set()
    listed = set(re.findall(r"^ +(?:-\w, )?--([a-z-]+)", file.read_text(encoding="utf-8"), re.M))
    older = {flag for setting in SETTINGS if set(setting["flags"]) & listed for flag in setting["flags"]}
    return some(f"flags of janitor {command}", listed | older, 3)


def check_paths(page, text):
    local_path = re.search(r"(?<![\w.])/(?:home|work|root|Users)/", text)
    expect(local_path is None, f"{page.name}: a path of a developer's machine")


def section_of_commands():
    source = read("cli/src/args.rs")
    return source[source.index("pub enum Command {"):].split("\n}\n", 1)[0]


# ---- Single pages


def page_with_parameters(parameters):
    """The guide to deploying, with the template's parameters as a table."""
    table = ["| parameter | meaning | default |", "|---|---|---|"]
    for name, parameter in parameters.items():
        default = parameter.get("Default", "required")
        default = default if default in ("", "required") else f"`{default}`"
        meaning = parameter["Description"].rstrip(".")
        if default == "" and ". Empty " in meaning:
            meaning, default = meaning.split(". Empty ")
            default = f"empty: {default.removeprefix('for ')}"
        table.append(f"| `{name}` | {meaning} | {default} |")
    return between(read(DEPLOYING), "<!-- parameters:start -->", "<!-- parameters:end -->", "\n".join(table))


def check_alarms():
    alarms = {
        resource["Properties"]["AlarmName"].removeprefix("${Name}-")
        for resource in template("stack/alarms.yaml")["Resources"].values()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
    }
    documented = first_names(section(read("docs/monitoring.md"), "Alarms"))
    same("docs/monitoring.md, Alarms", documented, some("alarms", alarms, 8))


def check_overdue():
    """Days after which a job is overdue: its period plus a day (`overdue_after`)."""
    words = {2: "two", 8: "eight"}
    periods = [re.search(r"const PERIOD: i64 = (?:(\d+) \* )?86_400;", read(f"jobs/src/{job}/mod.rs")) for job in ("cleanup", "repair")]
    cleanup, repair = (words[int(period[1] or 1) + 1] for period in periods)
    for path, text in (("docs/monitoring.md", read("docs/monitoring.md")), ("stack/alarms.yaml", read("stack/alarms.yaml"))):
        phrase = f"complete cleanup is older than {cleanup} days, or the last repair than {repair}"
        expect(phrase in text, f"{path} does not have {phrase!r}")


def check_metrics():
    real = dict(re.findall(r'^\s+[A-Z0-9_]+ = "(\w+)", "(\w+)";', read("jobs/src/metric.rs"), re.M))
    documented = {names(cells[0])[0]: cells[1] for cells in rows(section(read("docs/monitoring.md"), "Metrics"))}
    same("docs/monitoring.md, Metrics", set(documented), set(some("metrics", real, 6)))
    for name in set(real) & set(documented):
        expect(real[name] == documented[name], f"docs/monitoring.md: {name} is in {real[name]}, not {documented[name]}")


def check_settings():
    real = {setting["name"] for setting in SETTINGS}
    found = re.search(r"<!-- settings:start -->\n(.*?)<!-- settings:end -->", section(read("README.md"), "Settings"), re.S)
    if found is None:
        sys.exit("docs_check.py: README.md, Settings: no markers settings:start and settings:end")
    same("README.md, Settings", first_names(found[1]), some("settings", real, 10))


def check_buckets():
    buckets = set(re.findall(r'^    row\("(\w+)",', read("shared/src/bucket.rs"), re.M))
    text = read("docs/rows.md")
    documented = first_names(section(text, "Owner `_actingweb_oauth2`")) | first_names(section(text, "Each actor"))
    for cells in rows(section(text, "Other system owners")):
        documented |= set(names(cells[1]))
    same("docs/rows.md", documented - {"state"}, some("buckets", buckets, 20))


def check_reports():
    """The names in answers: findings, outcomes, reasons."""
    text = read("docs/monitoring.md")
    finding = re.sub(r"#\[.*\]", "", read("jobs/src/metrics/finding.rs"))
    kinds = set(re.findall(r'"([a-z]+(?:-[a-z]+)+|clock|overdue|paused|skipped)"', finding))
    same("docs/monitoring.md, Findings", first_names(section(text, "Findings")), some("findings", kinds, 10))
    outcomes = derived_names("jobs/src/run/report.rs", "Outcome", "kebab-case")
    deleted = derived_names("shared/src/expiry.rs", "DeleteReason", "snake_case")
    kept = derived_names("shared/src/expiry.rs", "KeepReason", "snake_case")
    tables = [{names(cells[0])[0] for cells in table} for table in tables_of(section(text, "An answer"))]
    for what, real, least in (("outcomes", outcomes, 5), ("reasons to delete", deleted, 8), ("reasons to keep", kept, 15)):
        table = max(tables, key=lambda table: len(table & real))
        same(f"docs/monitoring.md, An answer, {what}", table, some(what, real, least))


def check_log_messages():
    """Every message that the functions log, without a placeholder at its start."""
    documented = section(read("docs/monitoring.md"), "A log line")
    logged = set()
    for path in sorted(path for crate in ("jobs", "dynamo", "functions", "shared") for path in (ROOT / crate).rglob("src/**/*.rs")):
        code = path.read_text(encoding="utf-8").split("#[cfg(test)]")[0]
        for call in re.finditer(r"tracing::(debug|info|warn|error)!\(", code):
            # Not trace, which is for developers. The message is the last string of the call.
            rest, depth, message = code[call.end():], 1, ""
            for token in re.finditer(r'"((?:[^"\\]|\\.)*)"|[()]', rest):
                depth += {"(": 1, ")": -1}.get(token[0], 0)
                message = token[1] if token[1] is not None and depth == 1 else message
                if depth == 0:
                    break
            logged.add(re.sub(r"^\{\w+\} ?", "", message))
    for message in sorted(some("log messages", logged - {""}, 12)):
        expect(message in documented, f"docs/monitoring.md, A log line, does not have {message!r}")


def derived_names(path, enum, case):
    """The names that strum derives from an enum's variants, which must be plain names."""
    found = re.search(rf"((?:^#\[.*\]\n)+)pub enum {enum} \{{\n(.*?)^\}}", read(path), re.M | re.S)
    if found is None or f'serialize_all = "{case}"' not in found[1]:
        sys.exit(f"docs_check.py: {path}: {enum} is not an enum whose names strum derives in {case}")
    variants = [line.strip() for line in found[2].splitlines() if not line.strip().startswith("///")]
    odd = [line for line in variants if not re.fullmatch(r"([A-Z][a-z]+)+,", line)]
    if odd:
        sys.exit(f"docs_check.py: {path}: {enum}: not a plain variant: {odd}")
    joint = "-" if case == "kebab-case" else "_"
    return {joint.join(re.findall(r"[A-Z][a-z]+", variant)).lower() for variant in variants}


def check_length():
    counts = {page: len(page.read_text(encoding="utf-8").split()) for page in GUIDES}
    words = sum(counts.values())
    longest = ", ".join(f"{page.name} {counts[page]:,}" for page in sorted(counts, key=counts.get, reverse=True)[:4])
    expect(words <= MOST_GUIDE_WORDS, f"the guides have {words:,} words, more than {MOST_GUIDE_WORDS:,}; the longest: {longest}")
    return words


def main():
    document = template()
    parameters = some("parameters", document["Parameters"], 20)
    if sys.argv[1:] == ["--write-parameters"]:
        (ROOT / DEPLOYING).write_text(page_with_parameters(parameters), encoding="utf-8")
        return
    readme = read("README.md")
    for page in PAGES:
        path = page.relative_to(ROOT)
        if not page.is_file():
            failures.append(f"{path} does not exist")
            continue
        text = page.read_text(encoding="utf-8")
        check_links(page, text)
        check_examples(page, text)
        check_paths(page, text)
        # The changelog names things that no longer exist.
        if path.name != "CHANGELOG.md":
            check_words(page, text, parameters)
        expect(path.name == "README.md" or f"]({path})" in readme, f"README.md does not link to {path}")
    words = check_length()
    expect(read(DEPLOYING) == page_with_parameters(parameters), f"{DEPLOYING}: other parameters than the template's: run `make docs`")
    check_alarms()
    check_metrics()
    check_overdue()
    check_settings()
    check_buckets()
    check_reports()
    check_log_messages()
    if failures:
        sys.exit("\n".join(f"docs_check.py: {failure}" for failure in failures))
    print(f"docs: {len(PAGES)} pages agree with template and code; the guides have {words:,} words")


if __name__ == "__main__":
    main()
