#!/usr/bin/env python3
"""Invokes every function with `sam local invoke` and its events, against DynamoDB Local on its own Docker network.

Needs Docker's engine; stops everything that it starts. Without a registry, set SAM_LOCAL_IMAGE to an image for the functions and
for DynamoDB Local, which then runs with the jar of .tools and the machine's own Java. SAM_LOCAL_BUILT=1 uses the
functions of the last `sam build` and target/debug/janitor without building them.
"""

import contextlib
import glob
import json
import os
import platform
import subprocess
import sys
import tempfile

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from package_answers import LOCAL, free_port, response_server, wait_for
from sam_template import ROOT, binaries

TABLE = json.loads((ROOT / "events/local-env.json").read_text())["Parameters"]["ATTRIBUTES_TABLE"]
ARCHITECTURE = "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
OVERRIDES = ["--parameter-overrides", f"Architecture={ARCHITECTURE}", f"AttributesTable={TABLE}", "Mode=dry-run"]
JAR = ["-jar", "DynamoDBLocal.jar", "-inMemory", "-sharedDb", "-disableTelemetry"]
IMAGE = os.environ.get("SAM_LOCAL_IMAGE")
# In this order: function, event, whether it deletes rows.
INVOCATIONS = [
    ("MetricsEmitter", "audit.json", False),
    ("DailyCleanup", "dry-run.json", False),
    ("DailyCleanup", "scheduled.json", False),
    ("DailyCleanup", "scheduler.json", False),
    ("BacklogCleanup", "segment.json", False),
    ("BacklogRepair", "segment.json", False),
    ("IndexRepair", "dry-run.json", False),
    ("IndexRepair", "restore-clients.json", False),
    ("DailyCleanup", "delete.json", True),
    ("IndexRepair", "delete.json", True),
    ("DailyCleanup", "capped.json", False),
    ("MetricsEmitter", "empty.json", False),
    ("Cascade", "ttl-cascade.json", False),
    # Last, because DynamoDB Local removes expired rows once TTL is on.
    ("EnableTtl", "cloudformation-create.json", None),
]
# Written by this script: the committed events do not set a mode, and the template's default is a dry run.
OWN_EVENTS = {"delete.json": {"mode": "delete"}}


def fail(text):
    sys.exit(f"sam-local: {text}")


def run(*command, **options):
    done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, **options)
    if done.returncode:
        fail(f"{' '.join(command)} ended with status {done.returncode}")
    return done.stdout.strip()


def require_docker():
    try:
        done = subprocess.run(["docker", "version"], capture_output=True, text=True)
        reason = done.stderr.strip().splitlines()[-1:] if done.returncode else None
    except FileNotFoundError:
        reason = ["there is no docker command"]
    if reason is not None:
        fail(f"Docker's engine does not answer ({' '.join(reason)}). Start it, or use `make local`, which needs no Docker.")


@contextlib.contextmanager
def dynamodb_local():
    """The network, and the engine's address on the host; the functions reach it as `dynamodb`."""
    network = f"janitor-{os.getpid()}"
    port = free_port()
    run("docker", "network", "create", network)
    try:
        command = ["docker", "run", "--rm", "--detach", "--network", network, "--network-alias", "dynamodb"]
        command += ["--publish", f"127.0.0.1:{port}:8000"]
        if IMAGE:
            java = os.path.realpath(run("sh", "-c", "command -v java"))
            # Debian keeps Java's configuration in /etc.
            for folder in ("/usr/lib/jvm", *glob.glob("/etc/java-*")):
                command += ["--volume", f"{folder}:{folder}:ro"]
            command += ["--volume", f"{(ROOT / '.tools/dynamodb-local').resolve()}:/db:ro"]
            command += ["--workdir", "/db", IMAGE, java, "-Djava.library.path=./DynamoDBLocal_lib", *JAR]
        else:
            command += ["amazon/dynamodb-local", *JAR]
        container = run(*command)
        try:
            wait_for(port)
            # Docker listens on the port whether or not the engine does.
            client(f"http://127.0.0.1:{port}").list_tables()
            yield network, f"http://127.0.0.1:{port}"
        except BotoCoreError as problem:
            fail(f"DynamoDB Local does not answer: {problem}")
        finally:
            subprocess.run(["docker", "rm", "--force", container], capture_output=True)
    finally:
        run("docker", "network", "rm", network)


def client(endpoint):
    retries = Config(retries={"max_attempts": 8, "mode": "standard"})
    return boto3.client(
        "dynamodb", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="local", aws_secret_access_key="local", config=retries)


def rows(endpoint):
    pages = client(endpoint).get_paginator("scan").paginate(TableName=TABLE, ConsistentRead=True)
    keys = {(item["id"]["S"], item["bucket_name"]["S"]) for page in pages for item in page["Items"]}
    return {key for key in keys if key[0] != "_actingweb_janitor"}


def event_file(folder, name, response_url):
    event = OWN_EVENTS.get(name) or json.loads((ROOT / "events" / name).read_text().replace("myapp_attributes", TABLE))
    if "ResponseURL" in event:
        event["ResponseURL"] = response_url
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(event, file)
    return path


def invoke(function, event, network, *more):
    command = ["sam", "local", "invoke", function, "--event", event, "--docker-network", network]
    command += [*OVERRIDES, *more] + (["--skip-pull-image", "--invoke-image", IMAGE] if IMAGE else [])
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **LOCAL}, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        fail(f"{function} with {event} did not answer JSON:\n{done.stdout}\n{done.stderr}")


def succeeded(answer, received):
    report = answer.get("report") or {}
    return (
        answer == {"batchItemFailures": []}
        or [reply.get("Status") for reply in received] == ["SUCCESS"]
        or report.get("complete") is True
        or "segment" in answer
    )


def main():
    require_docker()
    os.environ.update(SAM_CLI_TELEMETRY="0", AWS_DEFAULT_REGION="us-east-1", **LOCAL)
    os.environ["PATH"] = f"{ROOT / '.tools/venv/bin'}:{ROOT / '.tools/venv-sam/bin'}:{os.environ['PATH']}"
    os.environ.pop("CARGO_TARGET_DIR", None)
    if not os.environ.get("SAM_LOCAL_BUILT"):
        run("sam", "build", *OVERRIDES)
        run("cargo", "build", "--quiet", "--locked", "--bin", "janitor")
    if {function for function, _, _ in INVOCATIONS} != set(binaries()):
        fail("INVOCATIONS leaves out a function of the template")
    with dynamodb_local() as (network, endpoint), tempfile.TemporaryDirectory() as folder:
        print(run("target/debug/janitor", "demo", "--quiet", "--endpoint", endpoint), flush=True)
        gateway = run("docker", "network", "inspect", network, "--format", "{{(index .IPAM.Config 0).Gateway}}")
        without = os.path.join(folder, "without-endpoint.json")
        with open(without, "w", encoding="utf-8") as file:
            json.dump({"Parameters": {"ATTRIBUTES_TABLE": TABLE}}, file)
        for function in binaries():
            answer = invoke(function, event_file(folder, "empty.json", None), network, "--env-vars", without)
            if "needs a local endpoint" not in answer.get("errorMessage", ""):
                fail(f"{function} without an endpoint answered {json.dumps(answer)[:600]}")
            print(f"{function:16} {'(without an endpoint)':28} refuses", flush=True)
        for number, (function, event, deletes) in enumerate(INVOCATIONS, 1):
            before, received = rows(endpoint), []
            with response_server(received, gateway) as url:
                answer = invoke(function, event_file(folder, event, url), network)
            after = rows(endpoint)
            if not succeeded(answer, received):
                fail(f"{function} with {event} answered {json.dumps(answer)[:600]}")
            deleted = len(before - after)
            as_reported = not deletes or deleted == answer["report"]["rows"]["deleted"]
            if after - before or deletes not in (None, deleted > 0) or not as_reported:
                fail(f"{function} with {event}: {deleted} rows deleted, {len(after - before)} written; {json.dumps(answer)[:600]}")
            print(f"{number:>2}/{len(INVOCATIONS)} {function:16} {event:28} answers; {len(after)} rows, {deleted} deleted", flush=True)
    print("sam local: every function answered, and the table agrees with the answers")


if __name__ == "__main__":
    main()
