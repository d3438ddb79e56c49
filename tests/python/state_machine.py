#!/usr/bin/env python3
"""The backlog state machine: its definition, and an execution with the real functions as its tasks.

    state_machine.py definition                 print stack/backlog.asl.json with the template's substitutions
    state_machine.py run PORT... < INPUT        run it in moto's States Language interpreter; the functions listen on these
                                                ports of 127.0.0.1, each under Lambda's Runtime Interface Emulator
    state_machine.py run-inline PORT... < INPUT the same with the Map's mode INLINE: in DISTRIBUTED, moto takes a failed
                                                item as null, where Step Functions fails the Map

A run prints one line of JSON: the status, the output, each task's request and answer, and the maximum number of concurrent
tasks. With THROTTLES=n in the environment, Lambda throttles the first n tasks. Waits before a retry are a hundredth of those
in the definition.
"""

import io
import json
import os
import queue
import sys
import threading
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

from botocore.exceptions import ClientError

from sam_template import ACCOUNT, REGION, ROOT, TABLE, Deployment, source

os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_EC2_METADATA_DISABLED="true")

SPEEDUP = 100
MODES = {"run": "DISTRIBUTED", "run-inline": "INLINE"}
TOO_MANY = {
    "Error": {"Code": "TooManyRequestsException", "Message": "Rate Exceeded."},
    "ResponseMetadata": {"HTTPStatusCode": 429, "RequestId": "1"},
}
# The input sets segments and concurrency.
GIVEN = {"AttributesTable": TABLE}


def definition():
    deployment = Deployment(GIVEN)
    (_, machine), = deployment.resources("AWS::StepFunctions::StateMachine")
    text = (ROOT / source()["Resources"]["Backlog"]["Properties"]["DefinitionUri"]).read_text()
    for name, value in machine["DefinitionSubstitutions"].items():
        text = text.replace("${" + name + "}", str(value))
    assert "${" not in text, "a substitution is missing"
    return json.loads(text)


class Pool:
    """The part of Lambda that the interpreter uses: each invocation goes to a free emulator."""

    def __init__(self, ports, functions, throttles):
        self.free = queue.Queue()
        self.throttles = throttles
        self.functions = functions
        self.tasks = []
        self.lock = threading.Lock()
        # Counts callers, including those that wait for a free emulator: the state machine limits the callers.
        self.at_once = self.most_at_once = 0
        for port in ports:
            self.free.put(port)

    def invoke(self, FunctionName, Payload, **_):
        assert FunctionName in self.functions, FunctionName
        with self.lock:
            if self.throttles > 0:
                self.throttles -= 1
                raise ClientError(TOO_MANY, "Invoke")
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        port = self.free.get()
        try:
            answer = self.post(port, Payload)
        finally:
            self.free.put(port)
        failed = "errorType" in answer
        with self.lock:
            self.at_once -= 1
            self.tasks.append({"asked": json.loads(Payload), "answered": answer, "failed": failed})
        response = {"StatusCode": 200, "ExecutedVersion": "$LATEST", "Payload": io.BytesIO(json.dumps(answer).encode())}
        return {**response, "FunctionError": "Unhandled"} if failed else response

    @staticmethod
    def post(port, payload):
        """The function's answer or error. The emulator reports a timeout as text, and an exited process as an HTTP status."""
        path = f"http://127.0.0.1:{port}/2015-03-31/functions/function/invocations"
        body = payload if isinstance(payload, bytes) else payload.encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(path, data=body, method="POST"), timeout=960) as response:
                text = response.read().decode()
        except urllib.error.HTTPError as error:
            return {"errorType": "Runtime.ExitError", "errorMessage": f"HTTP {error.code} from the emulator"}
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return {"errorType": "Sandbox.Timedout", "errorMessage": text}


def run(ports, given, mode):
    import boto3
    from moto import mock_aws
    from moto.stepfunctions.parser.asl.component.common.retry import retrier_decl
    from moto.stepfunctions.parser.asl.component.state.exec.state_task import lambda_eval_utils

    deployment = Deployment(GIVEN)
    functions = {deployment.resolve({"Fn::GetAtt": f"{logical}.Arn"}) for logical in ("BacklogCleanup", "BacklogRepair")}
    pool = Pool(ports, functions, int(os.environ.get("THROTTLES", "0")))
    lambda_eval_utils.boto_client_for = lambda **_: pool
    retrier_decl.time = SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / SPEEDUP))
    with mock_aws(config={"stepfunctions": {"execute_state_machine": True}}):
        states = boto3.client("stepfunctions", region_name=REGION)
        document = definition()
        document["States"]["Segments"]["ItemProcessor"]["ProcessorConfig"]["Mode"] = mode
        machine = states.create_state_machine(
            name="backlog", definition=json.dumps(document), roleArn=f"arn:aws:iam::{ACCOUNT}:role/backlog"
        )["stateMachineArn"]
        # Step Functions generates a missing name; moto does not.
        execution = states.start_execution(stateMachineArn=machine, name="execution-1", input=json.dumps(given))
        while (ended := states.describe_execution(executionArn=execution["executionArn"]))["status"] == "RUNNING":
            time.sleep(0.2)
    return {
        "status": ended["status"],
        "output": json.loads(ended["output"]) if ended.get("output") else None,
        "error": ended.get("error"),
        "cause": ended.get("cause"),
        "tasks": pool.tasks,
        "most_at_once": pool.most_at_once,
    }


def main():
    if sys.argv[1:] == ["definition"]:
        print(json.dumps(definition(), indent=2))
    elif len(sys.argv) > 2 and sys.argv[1] in MODES:
        print(json.dumps(run([int(port) for port in sys.argv[2:]], json.load(sys.stdin), MODES[sys.argv[1]])))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
