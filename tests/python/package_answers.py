#!/usr/bin/env python3
"""Runs each function that `sam build` built under the Lambda Runtime Interface Emulator, with a file of events/.

    package_answers.py [FOLDER]     the folder of the functions, by default .aws-sam/build

Checks only that the release binaries start, accept the event and answer. Other tests check what they do to a table.
"""

import contextlib
import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import boto3
from sam_template import ROOT, binaries, built

TABLE = "packaged_attributes"
EVENTS = {
    "daily-cleanup": "scheduler.json",
    "index-repair": "scheduled.json",
    "metrics-emitter": "audit.json",
    "enable-ttl": "cloudformation-create.json",
    "ttl-cascade": "ttl-cascade.json",
}
LOCAL = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def dynamodb_local():
    port = free_port()
    command = ["java", "-Djava.library.path=./DynamoDBLocal_lib", "-jar", "DynamoDBLocal.jar"]
    command += ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(port)]
    home = ROOT / ".tools" / "dynamodb-local"
    engine = subprocess.Popen(command, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        engine.kill()
        engine.wait()


def wait_for(port):
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    sys.exit(f"package_answers.py: no server listens on port {port}")


def make_table(endpoint):
    dynamodb = boto3.client(
        "dynamodb",
        endpoint_url=endpoint,
        region_name=LOCAL["AWS_REGION"],
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    keys = [("id", "HASH"), ("bucket_name", "RANGE")]
    dynamodb.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in keys],
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
    )
    for name, created in [("dead", 1), ("alive", int(time.time()) + 86_400)]:
        row = {"id": "_actingweb_oauth2", "bucket_name": f"_oauth_sessions:{name}", "bucket": "_oauth_sessions"}
        row |= {"name": name, "data": json.dumps({"created_at": created})}
        dynamodb.put_item(TableName=TABLE, Item={key: {"S": value} for key, value in row.items()})


@contextlib.contextmanager
def response_server(received, host="127.0.0.1"):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_PUT(self):  # noqa: N802, the name is the base class's
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer((host, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{host}:{server.server_port}/answer?signature=x"
    finally:
        server.shutdown()


def invoke(bootstrap, event, environment):
    port, runtime = free_port(), free_port()
    command = [
        str(ROOT / ".tools" / "aws-lambda-rie"),
        "--runtime-interface-emulator-address",
        f"127.0.0.1:{port}",
        "--runtime-api-address",
        f"127.0.0.1:{runtime}",
        str(bootstrap),
    ]
    limits = {"AWS_LAMBDA_FUNCTION_NAME": bootstrap.parent.name, "AWS_LAMBDA_FUNCTION_TIMEOUT": "60"}
    emulator = subprocess.Popen(
        command, env={**os.environ, **LOCAL, **limits, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        url = f"http://127.0.0.1:{port}/2015-03-31/functions/function/invocations"
        with urllib.request.urlopen(url, json.dumps(event).encode(), timeout=90) as answer:
            return json.loads(answer.read())
    finally:
        emulator.kill()
        emulator.wait()


def main():
    made = built(*map(pathlib.Path, sys.argv[1:]))
    with dynamodb_local() as endpoint:
        make_table(endpoint)
        for logical, binary in binaries().items():
            event = json.loads((ROOT / "events" / EVENTS[binary]).read_text())
            environment = {"ATTRIBUTES_TABLE": TABLE, "AWS_ENDPOINT_URL_DYNAMODB": endpoint, "MODE": "delete"}
            received = []
            with response_server(received) as url:
                if "ResponseURL" in event:
                    event["ResponseURL"] = url
                    event["ResourceProperties"]["TableName"] = TABLE
                for record in event.get("Records", []):
                    record["eventSourceARN"] = record["eventSourceARN"].replace("myapp_attributes", TABLE)
                answer = invoke(made[logical], event, environment)
            reply = received[0] if received else answer
            good = reply.get("Status") == "SUCCESS" or reply.get("report", {}).get("complete") is True
            good = good or reply == {"batchItemFailures": []}
            print(f"{binary:16} {EVENTS[binary]:28} {'answers' if good else json.dumps(reply)[:600]}")
            if not good:
                sys.exit(f"package_answers.py: unexpected answer of {binary}")


if __name__ == "__main__":
    main()
