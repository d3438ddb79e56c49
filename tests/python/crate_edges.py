#!/usr/bin/env python3
"""Checks the dependencies between the workspace's crates, and that lower layers do not depend on the AWS SDK or tokio.

The compiler enforces the layers only until a manifest adds a dependency; this script refuses the dependency.
"""
import json
import subprocess
import sys

LAYERS = {  # a crate and the members that it may depend on
    "shared": set(),
    "jobs": {"shared"},
    "dynamo": {"shared", "jobs"},
    "runtime": {"shared", "jobs", "dynamo"},
    "janitor": {"shared", "jobs", "dynamo", "runtime", "bed"},
    "model": {"shared"},
    "bed": {"shared", "jobs", "dynamo", "runtime", "model"},
    "tests": {"shared", "jobs", "dynamo", "runtime", "janitor", "bed", "model"},
} | dict.fromkeys(["daily-cleanup", "index-repair", "metrics-emitter", "enable-ttl", "ttl-cascade"], {"runtime"})
# The runtime is generic over the job, so these two name their job's type.
LAYERS |= dict.fromkeys(["daily-cleanup", "index-repair"], {"runtime", "jobs"})
# Crates that may have the AWS SDK in their manifests: the adapter, and the tests, which read and change tables without it.
SDK_USERS = {"dynamo", "bed", "tests"}
FORBIDDEN = {"shared": ("tokio", "aws"), "model": ("tokio", "aws"), "jobs": ("aws",)}


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


def main():
    metadata = json.loads(subprocess.check_output(["cargo", "metadata", "--locked", "--format-version", "1"]))
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
    print("\n".join(sorted(set(wrong))) or f"{len(members)} crates, each depends only on the crates below it")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
