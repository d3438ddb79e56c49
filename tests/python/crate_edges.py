#!/usr/bin/env python3
"""Checks the direction of the crates' edges: which member of the workspace may use which, and which must not see the AWS SDK or tokio.

The compiler enforces the layers only as long as no manifest adds an edge; this refuses the edge.
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
# These two name the type of their job, which the runtime is generic over.
LAYERS |= dict.fromkeys(["daily-cleanup", "index-repair"], {"runtime", "jobs"})
# Crates that may name the AWS SDK in their own manifests: the adapter, and the testbed, which reads and breaks tables behind its back.
SDK_USERS = {"dynamo", "bed", "tests"}
SEES_NOT = {"shared": ("tokio", "aws"), "model": ("tokio", "aws"), "jobs": ("aws",)}


def is_sdk(name):
    return name.startswith("aws-")


def reachable(graph, start, kinds):
    """The names of the packages that `start` is built with: its own edges of the kinds, and normal edges from there on."""
    found, open_ = set(), [(start, kinds)]
    while open_:
        package, kinds = open_.pop()
        for dependency in graph[package]["deps"]:
            if dependency["pkg"] in found or not any(kind["kind"] in kinds for kind in dependency["dep_kinds"]):
                continue
            found.add(dependency["pkg"])
            open_.append((dependency["pkg"], {None}))
    return found


def main():
    metadata = json.loads(subprocess.check_output(["cargo", "metadata", "--locked", "--format-version", "1"]))
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    members = {names[member]: member for member in metadata["workspace_members"]}
    graph = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    wrong = [f"{name} is not a crate of the list in {sys.argv[0]}" for name in members.keys() - LAYERS.keys()]
    wrong += [f"{name} is no longer a crate" for name in LAYERS.keys() - members.keys()]
    for package in (package for package in metadata["packages"] if package["id"] in members.values()):
        name = package["name"]
        used = {one["name"] for one in package["dependencies"] if one["kind"] is None}
        wrong += [f"{name} depends on {other}" for other in sorted((used & members.keys()) - LAYERS.get(name, set()))]
        every = {one["name"] for one in package["dependencies"]}
        if name not in SDK_USERS:
            wrong += [f"{name} depends on {other} itself" for other in sorted(filter(is_sdk, every))]
    for name, unseen in SEES_NOT.items():
        for package in reachable(graph, members[name], {None, "dev"} if name != "jobs" else {None}):
            if names[package] == "tokio" and "tokio" in unseen or is_sdk(names[package]) and "aws" in unseen:
                wrong.append(f"{name} sees {names[package]}")
    print("\n".join(sorted(set(wrong))) or f"{len(members)} crates, each depends only on the crates below it")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
