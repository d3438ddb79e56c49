#!/usr/bin/env python3
"""Checks the environment that `sam local invoke` and `sam local start-lambda` give each function, with SAM's own code and the committed files.

SAM silently drops a variable of the environment file that a function does not declare. So this checks that every function gets every
variable of events/local-env.json, that build, local runs and deployment use the same architecture, and that the guide's lines that need
Docker are those of `make sam-local`.
"""

import json
import logging
import os
import re
import subprocess
import sys
from unittest import mock

os.environ.update(SAM_CLI_TELEMETRY="0", AWS_DEFAULT_REGION="us-east-1", AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="local")

import sam_local  # noqa: E402
from sam_template import ROOT, binaries  # noqa: E402
from samcli.cli.types import CfnParameterOverridesType  # noqa: E402
from samcli.commands.local.lib.local_lambda import LocalLambdaRunner  # noqa: E402
from samcli.lib.config.samconfig import SamConfig  # noqa: E402
from samcli.lib.providers.sam_function_provider import SamFunctionProvider  # noqa: E402
from samcli.lib.providers.sam_stack_provider import SamLocalStackProvider  # noqa: E402

logging.getLogger("samcli").setLevel(logging.ERROR)
COMMANDS = {"build": ["build"], "deploy": ["deploy"], "invoke": ["local", "invoke"], "start-lambda": ["local", "start-lambda"]}

# enable-ttl gets its table from the event, and deletes nothing.
NOT_TAKEN = {"EnableTtl": {"ATTRIBUTES_TABLE", "MODE"}}


def settings(command):
    return SamConfig(str(ROOT)).get_all(COMMANDS[command], "parameters")


def overrides(command):
    return CfnParameterOverridesType().convert(settings(command)["parameter_overrides"], None, None)


def environments(parameters, env_vars):
    """Each function and its environment, as SAM's runner computes it before it starts a container."""
    stacks, _ = SamLocalStackProvider.get_stacks(str(ROOT / "template.yaml"), parameter_overrides=parameters)
    provider = SamFunctionProvider(stacks)
    runner = LocalLambdaRunner(mock.Mock(), provider, str(ROOT), env_vars_values=env_vars, real_path=str(ROOT))
    for function in provider.get_all():
        yield function, runner._make_env_vars(function).resolve()


def guide_failures():
    """Lines of docs/local.md that differ from tests/python/sam_local.py and the files that it uses."""
    guide = (ROOT / "docs/local.md").read_text()
    invoked = re.findall(r"^sam local invoke (\w+) --event events/(\S+)$", guide, re.M)
    known = {(function, event) for function, event, _ in sam_local.INVOCATIONS}
    wrong = [f"make sam-local does not invoke {function} with {event}" for function, event in invoked if (function, event) not in known]
    given = settings("invoke")
    endpoint = json.loads((ROOT / given["env_vars"]).read_text())["Parameters"]["AWS_ENDPOINT_URL_DYNAMODB"]
    expected = [f"docker network create {given['docker_network']}\n", f"--network {given['docker_network']} --network-alias"]
    expected += [f"--network-alias {endpoint.split('/')[2].split(':')[0]} ", " ".join(sam_local.JAR), "\nsam build\n"]
    wrong += [f"docs/local.md does not have {line.strip()!r}" for line in expected if line not in guide]
    return wrong if invoked else [*wrong, "docs/local.md has no `sam local invoke`"]


def engine_failures():
    """Runs `make sam-local` without Docker's engine."""
    nowhere = {**os.environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock"}
    done = subprocess.run([sys.executable, sam_local.__file__], env=nowhere, capture_output=True, text=True)
    is_clear = done.returncode == 1 and done.stderr.startswith("sam-local: Docker's engine does not answer") and not done.stdout
    return [] if is_clear else [f"make sam-local without Docker's engine ends with {done.returncode}: {done.stdout}{done.stderr}"]


def main():
    failures = guide_failures() + engine_failures()
    parameters = overrides("build")
    for command in COMMANDS:
        if overrides(command) != parameters:
            failures.append(f"sam {' '.join(COMMANDS[command])} and sam build have different parameters")
    if list(parameters) != ["AttributesTable", "Mode", "Architecture"] or parameters["AttributesTable"]:
        failures.append(f"samconfig.toml has {parameters}: all three parameters must be there, and the table must be empty")
    for command in ("invoke", "start-lambda"):
        given = settings(command)
        env_vars = json.loads((ROOT / given["env_vars"]).read_text())
        if not given.get("docker_network"):
            failures.append(f"sam local {command} has no Docker network")
        seen = {}
        for function, environment in environments(parameters, env_vars):
            seen[function.name] = function
            for name, value in {**env_vars["Parameters"], "MODE": "dry-run"}.items():
                expected = None if name in NOT_TAKEN.get(function.name, ()) else value
                if environment.get(name) != expected:
                    failures.append(f"{command}: {function.name} gets {name}={environment.get(name)!r}, not {expected!r}")
            if function.architecture != parameters["Architecture"]:
                failures.append(f"{command}: {function.name} is for {function.architecture}")
        if set(seen) != set(binaries()):
            failures.append(f"{command}: functions {sorted(set(seen) ^ set(binaries()))}")
    if failures:
        sys.exit("\n".join(f"local_run.py: {failure}" for failure in failures))
    print(f"local runs: {len(seen)} functions get every variable of the environment file that they take")


if __name__ == "__main__":
    main()
