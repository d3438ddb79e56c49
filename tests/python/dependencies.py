#!/usr/bin/env python3
"""Checks the dependencies: the direction of the edges between the workspace's crates, and the licence, the source and the name of every other crate.

The compiler enforces the layers only as long as no manifest adds an edge; this script rejects the edge. Not cargo-deny, which does the rest as well:
it takes two minutes to compile, for rules that are a few lines over `cargo metadata`.
"""
import json
import re
import subprocess
import sys

LAYERS = {  # a crate and the members that it may depend on
    "shared": set(),
    "jobs": {"shared"},
    "dynamo": {"shared", "jobs"},
    "runtime": {"shared", "jobs", "dynamo"},
    "janitor": {"shared", "jobs", "dynamo", "bed"},
    "model": {"shared"},
    "bed": {"shared", "jobs", "dynamo", "runtime", "model"},
    "tests": {"shared", "jobs", "dynamo", "runtime", "janitor", "bed", "model"},
} | dict.fromkeys(["daily-cleanup", "index-repair", "metrics-emitter", "enable-ttl", "ttl-cascade"], {"runtime"})
# The runtime is generic over the job, so these two name their job's type.
LAYERS |= dict.fromkeys(["daily-cleanup", "index-repair"], {"runtime", "jobs"})
# Crates that may have the AWS SDK in their manifests: the adapter, and the tests, which read and change tables without it.
SDK_USERS = {"dynamo", "bed", "tests"}
FORBIDDEN = {"shared": ("tokio", "aws"), "model": ("tokio", "aws"), "jobs": ("aws",)}

# What the functions and `janitor` are deployed on.
PLATFORMS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
LICENCES = {"Apache-2.0", "BSD-3-Clause", "BSL-1.0", "ISC", "MIT", "Unicode-3.0", "Zlib"}
# One TLS stack, the small one, and no OpenSSL of whatever version the build machine has.
BANNED = {"openssl-sys", "aws-lc-sys", "native-tls"}


def is_sdk(name):
    return name.startswith("aws-")


def reachable(graph, start, kinds):
    """The packages that `start` is built with: its own dependencies of these kinds, and their normal dependencies."""
    found, pending = set(), [(start, kinds)]
    while pending:
        package, kinds = pending.pop()
        for dependency in graph[package]["deps"]:
            if dependency["pkg"] in found or not any(kind["kind"] in kinds for kind in dependency["dep_kinds"]):
                continue
            found.add(dependency["pkg"])
            pending.append((dependency["pkg"], {None}))
    return found


def is_licensed(expression):
    """Whether an SPDX expression can be met with the allowed licences alone. `/` is an old spelling of OR."""
    terms = re.sub(r"\b(?!OR\b|AND\b)[\w.+-]+( WITH [\w.-]+)?", lambda one: str(one[0] in LICENCES), (expression or "none").replace("/", " OR "))
    if not re.fullmatch(r"(True|False|OR|AND|[() ])+", terms):
        return False
    return eval(terms.replace("OR", "or").replace("AND", "and"))  # noqa: S307: nothing but True, False, or, and, parentheses


def foreign(package):
    """What is wrong with a crate from outside of the workspace."""
    name = f"{package['name']} {package['version']}"
    if package["name"] in BANNED:
        yield f"{name} is banned"
    if not is_licensed(package["license"]):
        yield f"{name} has the licence {package['license']}"


def main():
    platforms = [f"--filter-platform={platform}" for platform in PLATFORMS]
    metadata = json.loads(subprocess.check_output(["cargo", "metadata", "--locked", "--format-version=1", *platforms]))
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    members = {names[member]: member for member in metadata["workspace_members"]}
    graph = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    wrong = [f"{name} is not in the list of {sys.argv[0]}" for name in members.keys() - LAYERS.keys()]
    wrong += [f"{name} is no longer a crate" for name in LAYERS.keys() - members.keys()]
    for package in (package for package in metadata["packages"] if package["id"] in members.values()):
        name = package["name"]
        used = {dependency["name"] for dependency in package["dependencies"] if dependency["kind"] is None}
        wrong += [f"{name} depends on {other}" for other in sorted((used & members.keys()) - LAYERS.get(name, set()))]
        if name not in SDK_USERS:
            listed = {dependency["name"] for dependency in package["dependencies"]}
            wrong += [f"{name} depends on {other} itself" for other in sorted(filter(is_sdk, listed))]
    for name, forbidden in FORBIDDEN.items():
        for package in reachable(graph, members[name], {None, "dev"} if name != "jobs" else {None}):
            if names[package] == "tokio" and "tokio" in forbidden or is_sdk(names[package]) and "aws" in forbidden:
                wrong.append(f"{name} depends on {names[package]} indirectly")
    others = [package for package in metadata["packages"] if package["id"] in graph and package["id"] not in members.values()]
    wrong += [what for package in others for what in foreign(package)]
    sources = {package["source"] for package in others}
    if len(sources) != 1 or not all(source and source.startswith("registry+") for source in sources):
        wrong.append(f"crates come from other places than one registry: {sources}")
    print("\n".join(sorted(set(wrong))) or f"{len(members)} crates, each depends only on the crates below it; {len(others)} dependencies with allowed licences")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
