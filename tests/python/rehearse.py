#!/usr/bin/env python3
"""Rehearses the deployment: creates a stack from the transformed template in a moto server, for each variant.

Resources that moto's stacks support are created by the stack and read back. Those that they ignore (alarms, schedules
and a few more) are created through moto's API of that service from the same properties, so that at least AWS's SDK and
moto accept the request. What moto does not model at all is printed; a gap that is not in KNOWN_GAPS is a failure.
"""

import ast
import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import zipfile

from sam_template import CODE, REGION, ROOT, STACK, TABLE, VARIANTS, Deployment, binaries

os.environ.update(AWS_ACCESS_KEY_ID="rehearsal", AWS_SECRET_ACCESS_KEY="rehearsal", AWS_EC2_METADATA_DISABLED="true")

import boto3  # noqa: E402
from botocore.config import Config  # noqa: E402
from package_answers import free_port  # noqa: E402
from stream_filter import matches  # noqa: E402

REHEARSED = [
    "dry run", "existing table", "new table", "new table, dry run", "new table with cascade", "everything given", "everything off"]

# What moto does not model. The list is exact: a missing gap is a failure, and so is one that moto models now.
IGNORED = "ignored by moto's stacks; created here through the service's own API"
LOST = "not returned by moto"
NULLS = "AWS::NoValue in a list: a null in moto; removed here"
NO_COLON = "Fn::GetAtt of AWS::Logs::LogGroup.Arn: moto omits the `:*` at its end"
NO_ALARM = "Fn::GetAtt of AWS::CloudWatch::Alarm: not supported by moto's stacks; resolved here"
NO_FUNCTION = "Custom::EnableTtl: moto would run the function in a container; answered here instead"
NO_WAITING = "Fn::GetAtt of Custom::EnableTtl: moto's stacks do not wait for its answer; resolved here"
NESTED = "AWS::CloudFormation::Stack: created here as separate stacks, with the same parameters"
FROM_FILE = "AWS::StepFunctions::StateMachine.DefinitionS3Location: moto does not read the file; the definition is inlined"
KNOWN_GAPS = {
    NESTED,
    FROM_FILE,
    NO_WAITING,
    NULLS,
    NO_COLON,
    NO_ALARM,
    NO_FUNCTION,
    f"AWS::CloudWatch::Alarm: {IGNORED}",
    f"AWS::Lambda::EventInvokeConfig: {IGNORED}",
    f"AWS::SNS::Subscription: {IGNORED}",
    f"AWS::SNS::TopicPolicy: {IGNORED}",
    f"AWS::SQS::QueuePolicy: {IGNORED}",
    f"AWS::Scheduler::Schedule: {IGNORED}",
    f"AWS::Scheduler::ScheduleGroup: {IGNORED}",
    f"AWS::DynamoDB::Table.PointInTimeRecoverySpecification: {LOST}",
    f"AWS::DynamoDB::Table.SSESpecification: {LOST}",
    f"AWS::DynamoDB::Table.TimeToLiveSpecification: {LOST}",
    f"AWS::IAM::Role.ManagedPolicyArns: {LOST}",
    f"AWS::Lambda::Function.Architectures: {LOST}",
    f"AWS::Lambda::Function.LoggingConfig: {LOST}",
}

# Kinds that moto's stacks ignore or that are created outside them: a Ref to one is resolved here.
BY_API = {
    "AWS::CloudFormation::Stack", "AWS::Scheduler::Schedule", "AWS::Scheduler::ScheduleGroup", "AWS::SQS::QueuePolicy",
    "AWS::Lambda::EventInvokeConfig",
}


class Rehearsal:
    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.gaps = set()

    def client(self, service):
        retries = Config(retries={"max_attempts": 1}, read_timeout=60)
        return boto3.client(service, endpoint_url=self.endpoint, region_name=REGION, config=retries)

    def reset(self):
        urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/moto-api/reset", method="POST")).close()

    def gap(self, text):
        self.gaps.add(text)

    def read_back(self, what, expected, got):
        if expected != got:
            self.gap(f"{what}: {LOST}")

    def upload_code(self):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("bootstrap", "#!/bin/sh\n")
        s3 = self.client("s3")
        s3.create_bucket(Bucket=CODE["bucket"], CreateBucketConfiguration={"LocationConstraint": REGION})
        s3.put_object(Bucket=CODE["bucket"], Key=CODE["key"], Body=packed.getvalue())

    def create_table(self, stream):
        self.client("dynamodb").create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("id", "bucket_name")],
            KeySchema=[
                {"AttributeName": "id", "KeyType": "HASH"},
                {"AttributeName": "bucket_name", "KeyType": "RANGE"},
            ],
            # As the custom resource's function would set it; moto does not run the function.
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "OLD_IMAGE"} if stream else {"StreamEnabled": False},
        )

    def deploy(self, variant, given):
        self.reset()
        self.upload_code()
        planned = Deployment(given)
        if given.get("CreateTable") != "true":
            self.create_table(planned.has("TableStream"))
        stacks = self.client("cloudformation")
        parameters = [{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()]
        stack = stacks.create_stack(
            StackName=STACK,
            TemplateBody=json.dumps(self.for_moto(planned)),
            Parameters=parameters,
            Capabilities=["CAPABILITY_IAM"],
        )["StackId"]
        self.answer_custom_resources(planned, stack)
        status = stacks.describe_stacks(StackName=STACK)["Stacks"][0]["StackStatus"]
        assert status == "CREATE_COMPLETE", f"{variant}: the stack is {status}"
        return planned

    def for_moto(self, planned):
        """The template for moto: without nested stacks, and with the state machine's definition inlined."""
        template = self.without_unknown_attributes(planned, planned.template)
        for logical, resource in list(template["Resources"].items()):
            if resource["Type"] == "AWS::CloudFormation::Stack":
                del template["Resources"][logical]
                self.gap(NESTED)
            if resource["Type"] == "AWS::StepFunctions::StateMachine":
                del resource["Properties"]["DefinitionS3Location"]
                resource["Properties"]["DefinitionString"] = (ROOT / "stack/backlog.asl.json").read_text()
                self.gap(FROM_FILE)
        return template

    def is_left_out(self, planned, item):
        """moto turns AWS::NoValue in a list into a null, which it then refuses in a managed policy."""
        if not isinstance(item, dict) or set(item) != {"Fn::If"}:
            return False
        condition, yes, no = item["Fn::If"]
        if (yes if planned.holds(condition) else no) != {"Ref": "AWS::NoValue"}:
            return False
        self.gap(NULLS)
        return True

    def without_unknown_attributes(self, planned, value):
        """moto refuses an attribute of a resource that its stacks ignore: it gets the resolved value instead."""
        if isinstance(value, list):
            kept = [item for item in value if not self.is_left_out(planned, item)]
            return [self.without_unknown_attributes(planned, item) for item in kept]
        if not isinstance(value, dict):
            return value
        if set(value) == {"Ref"} and planned.template["Resources"].get(value["Ref"], {}).get("Type") in BY_API:
            return planned.resolve(value) if planned.has(value["Ref"]) else "not in this deployment"
        if set(value) == {"Fn::GetAtt"}:
            argument = value["Fn::GetAtt"]
            logical, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
            kind = planned.template["Resources"][logical]["Type"]
            if kind == "AWS::CloudFormation::Stack":
                return planned.resolve(value) if planned.has(logical) else "not in this deployment"
            if kind == "Custom::EnableTtl" and attribute == "StreamArn":
                self.gap(NO_WAITING)
                stream = self.client("dynamodb").describe_table(TableName=TABLE)["Table"] if planned.has(logical) else {}
                return stream.get("LatestStreamArn", "not in this deployment")
            if kind == "AWS::CloudWatch::Alarm":
                self.gap(NO_ALARM)
                # moto evaluates both branches of an Fn::If, so the other branch needs a value, too.
                return planned.resolve(value) if planned.has(logical) else "not in this deployment"
        return {key: self.without_unknown_attributes(planned, item) for key, item in value.items()}

    def answer_custom_resources(self, planned, stack):
        stacks = self.client("cloudformation")
        for logical, properties in planned.resources("Custom::EnableTtl"):
            before = stacks.describe_stacks(StackName=STACK)["Stacks"][0]["StackStatus"]
            assert before == "CREATE_IN_PROGRESS", f"the stack is {before} before its custom resource has answered"
            assert properties["TableName"] == TABLE
            self.gap(NO_FUNCTION)
            table = self.client("dynamodb").describe_table(TableName=TABLE)["Table"]
            data = {"StreamArn": table["LatestStreamArn"]} if properties["Stream"] == "true" else {}
            answer = {"Status": "SUCCESS", "StackId": stack, "RequestId": "rehearsal", "LogicalResourceId": logical,
                      "PhysicalResourceId": f"ttl:{TABLE}", "Data": data}
            url = f"{self.endpoint}/cloudformation_{REGION}/cfnresponse?stack={urllib.parse.quote(stack)}"
            # An empty type, as in CloudFormation's own example; moto reads the region from the signature's scope.
            scope = f"Credential=rehearsal/20260101/{REGION}/cloudformation/aws4_request"
            headers = {"Content-Type": "", "Authorization": f"AWS4-HMAC-SHA256 {scope}, Signature=none"}
            request = urllib.request.Request(url, json.dumps(answer).encode(), headers, method="PUT")
            urllib.request.urlopen(request).close()

    def rehearse(self, variant, given):
        planned = self.deploy(variant, given)
        stacks = self.client("cloudformation")
        account = self.client("sts").get_caller_identity()["Account"]
        stream = self.client("dynamodb").describe_table(TableName=TABLE)["Table"].get("LatestStreamArn")
        made = Deployment(given, account=account, physical=self.physical(STACK), stream=stream)
        absent = [logical for logical in made.physical if not planned.has(logical)]
        assert not absent, f"{variant}: the stack has {absent}, whose conditions do not hold"
        by_stack, by_api = len(made.physical), self.create_by_api(made)
        for logical, child in made.children():
            self.create_child(logical, child)
            child.physical = self.physical(child.name)
            by_stack += len(child.physical)
            by_api += self.create_by_api(child)
        self.check(variant, made)
        for name in [*(child.name for _, child in made.children()), STACK]:
            stacks.delete_stack(StackName=name)
        tables = self.client("dynamodb").list_tables()["TableNames"]
        assert tables == [TABLE], f"{variant}: after the stack was deleted, the tables are {tables}"
        print(f"  {variant}: CREATE_COMPLETE, {by_stack} resources by the stacks, {by_api} by API; the table outlives the stack")

    def physical(self, stack):
        listed = self.client("cloudformation").describe_stack_resources(StackName=stack)["StackResources"]
        # A resource that its stacks ignore, or that a condition leaves out, has no logical id here.
        return {row["LogicalResourceId"]: row["PhysicalResourceId"] for row in listed if row.get("LogicalResourceId")}

    def create_child(self, logical, child):
        stacks = self.client("cloudformation")
        stacks.create_stack(
            StackName=child.name,
            TemplateBody=json.dumps(self.without_unknown_attributes(child, child.template)),
            Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in child.given.items()],
        )
        status = stacks.describe_stacks(StackName=child.name)["Stacks"][0]["StackStatus"]
        assert status == "CREATE_COMPLETE", f"{logical}: the stack is {status}"

    def create_by_api(self, made):
        by_api = {}
        for logical, properties in made.resources():
            kind = made.template["Resources"][logical]["Type"]
            if logical not in made.physical and kind != "AWS::CloudFormation::Stack":
                by_api.setdefault(kind, []).append((logical, properties))
        # A group before the schedules in it.
        for kind in sorted(by_api, key=lambda kind: (kind != "AWS::Scheduler::ScheduleGroup", kind)):
            create = getattr(self, "create_" + kind.replace("AWS::", "").replace("::", "_").lower(), None)
            assert create, f"neither moto's stacks nor this script can create {kind}"
            self.gap(f"{kind}: {IGNORED}")
            for logical, properties in by_api[kind]:
                create(logical, properties)
        return sum(map(len, by_api.values()))

    # ---- Resources that moto's stacks ignore

    def create_cloudwatch_alarm(self, logical, properties):
        typed = dict(properties)
        for name in ("Threshold", "EvaluationPeriods", "DatapointsToAlarm", "Period"):
            if name in typed:
                typed[name] = float(typed[name]) if name == "Threshold" else int(typed[name])
        self.client("cloudwatch").put_metric_alarm(**typed)

    def create_scheduler_schedulegroup(self, logical, properties):
        self.client("scheduler").create_schedule_group(**properties)

    def create_scheduler_schedule(self, logical, properties):
        self.client("scheduler").create_schedule(**properties)

    def create_lambda_eventinvokeconfig(self, logical, properties):
        given = {name: value for name, value in properties.items() if name != "Qualifier"}
        self.client("lambda").put_function_event_invoke_config(**given)

    def create_sns_topicpolicy(self, logical, properties):
        for topic in properties["Topics"]:
            self.client("sns").set_topic_attributes(
                TopicArn=topic, AttributeName="Policy", AttributeValue=json.dumps(properties["PolicyDocument"]))

    def create_sqs_queuepolicy(self, logical, properties):
        for queue in properties["Queues"]:
            self.client("sqs").set_queue_attributes(
                QueueUrl=queue, Attributes={"Policy": json.dumps(properties["PolicyDocument"])})

    def create_sns_subscription(self, logical, properties):
        self.client("sns").subscribe(**properties)

    # ---- Checks

    def check(self, variant, made):
        self.check_functions(variant, made)
        self.check_backlog(variant, made)
        self.check_table(variant, made)
        self.check_schedules(variant, made)
        self.check_alarms(variant, made)
        self.check_dashboard(variant, made)
        outputs = self.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"][0].get("Outputs", [])
        got = {output["OutputKey"] for output in outputs}
        expected = {name for name, _ in made.outputs()}
        assert got == expected, f"{variant}: outputs {sorted(got ^ expected)}"

    def check_functions(self, variant, made):
        functions = self.client("lambda")
        there = {row["FunctionName"] for row in functions.list_functions()["Functions"]}
        expected = {made.physical[logical] for logical in binaries() if made.has(logical)}
        assert there == expected, f"{variant}: functions {there ^ expected}"
        with_ttl = variant in ("existing table", "everything given")
        with_cascade = variant in ("new table with cascade", "everything given")
        assert len(there) == 5 + with_ttl + with_cascade, f"{variant}: {len(there)} functions"
        for logical, properties in made.resources("AWS::Lambda::Function"):
            name = made.physical[logical]
            got = functions.get_function(FunctionName=name)
            config = got["Configuration"]
            timeout = 300 if logical in ("Cascade", "EnableTtl") else 900
            for expected, key in (("provided.al2023", "Runtime"), (256, "MemorySize"), (timeout, "Timeout")):
                assert config[key] == expected, f"{variant}: {logical} has {key} {config[key]}"
            self.read_back("AWS::Lambda::Function.Role", properties["Role"], config["Role"])
            # In moto a parameter of type Number is a number; in CloudFormation all values are strings.
            environment = {name: str(value) for name, value in config.get("Environment", {}).get("Variables", {}).items()}
            assert environment == properties.get("Environment", {}).get("Variables", {}), f"{logical}: {environment}"
            self.read_back("AWS::Lambda::Function.Architectures", properties["Architectures"], config["Architectures"])
            self.read_back("AWS::Lambda::Function.LoggingConfig", properties["LoggingConfig"],
                           config.get("LoggingConfig"))
            queue = made.resolve({"Fn::GetAtt": "FailureQueue.Arn"})
            if logical == "Cascade":
                self.check_mapping(variant, made, name)
                continue
            if logical in ("BacklogCleanup", "BacklogRepair", "EnableTtl"):
                # The state machine invokes the first two synchronously. A failed event of EnableTtl has a pre-signed URL and is not stored.
                continue
            on_failure = functions.get_function_event_invoke_config(FunctionName=name)["DestinationConfig"]
            assert on_failure["OnFailure"]["Destination"] == queue, f"{variant}: {logical}: {on_failure}"
        groups = {row["logGroupName"]: row for row in self.client("logs").describe_log_groups()["logGroups"]}
        for logical, properties in made.resources("AWS::Logs::LogGroup"):
            group = groups[properties["LogGroupName"]]
            assert int(group["retentionInDays"]) == 30, f"{variant}: {group}"
        queue = self.client("sqs").get_queue_attributes(
            QueueUrl=made.physical["FailureQueue"], AttributeNames=["All"])["Attributes"]
        self.read_back("AWS::SQS::Queue.SqsManagedSseEnabled", "true", queue.get("SqsManagedSseEnabled"))
        for logical, properties in made.resources("AWS::IAM::Role"):
            (policy,) = properties["Policies"]
            attached = self.client("iam").list_attached_role_policies(RoleName=made.physical[logical])["AttachedPolicies"]
            self.read_back("AWS::IAM::Role.ManagedPolicyArns", sorted(properties.get("ManagedPolicyArns", [])),
                           sorted(row["PolicyArn"] for row in attached))
            got = self.client("iam").get_role_policy(RoleName=made.physical[logical], PolicyName=policy["PolicyName"])
            allowed = self.stored_policy(got["PolicyDocument"])
            assert allowed == policy["PolicyDocument"]["Statement"], f"{variant}: {logical} may do {allowed}"
        for logical, properties in made.resources("AWS::IAM::ManagedPolicy"):
            got = self.client("iam").get_policy_version(PolicyArn=made.physical[logical], VersionId="v1")["PolicyVersion"]
            allowed = self.stored_policy(got["Document"])
            assert allowed == properties["PolicyDocument"]["Statement"], f"{variant}: {logical} may do {allowed}"

    def check_backlog(self, variant, made):
        """The state machine, and the rule that starts it when the daily cleanup's answer requests it."""
        machines = self.client("stepfunctions").list_state_machines()["stateMachines"]
        assert len(machines) == made.has("Backlog"), f"{variant}: {machines}"
        rules = self.client("events").list_rules()["Rules"]
        assert len(rules) == made.has("StartBacklog"), f"{variant}: {rules}"
        for rule in rules:
            targets = self.client("events").list_targets_by_rule(Rule=rule["Name"])["Targets"]
            assert [target["Arn"] for target in targets] == [made.physical["Backlog"]], f"{variant}: {targets}"
            queue = made.resolve({"Fn::GetAtt": "FailureQueue.Arn"})
            assert [target["DeadLetterConfig"] for target in targets] == [{"Arn": queue}], f"{variant}: {targets}"
            pattern = rule["EventPattern"]
            function = made.resolve({"Fn::GetAtt": "DailyCleanup.Arn"})
            incomplete = {"complete": False, "outcome": "out-of-time", "consecutive_incomplete_runs": 3}
            start = {**incomplete, "start_backlog": True}
            assert matches(pattern, answered(function, start)), f"{variant}: {rule}"
            for other in (incomplete, {**incomplete, "start_backlog": False}):
                assert not matches(pattern, answered(function, other)), f"{variant}: {rule}"
            assert not matches(pattern, answered(function + "x", start)), f"{variant}: {rule}"

    def check_mapping(self, variant, made, function):
        """The mapping from the table's stream to the cascade."""
        mappings = self.client("lambda").list_event_source_mappings(FunctionName=function)["EventSourceMappings"]
        assert len(mappings) == 1, f"{variant}: {mappings}"
        (_, properties), = made.resources("AWS::Lambda::EventSourceMapping")
        for name in ("BatchSize", "StartingPosition", "FilterCriteria", "FunctionResponseTypes", "DestinationConfig",
                     "MaximumBatchingWindowInSeconds", "MaximumRetryAttempts", "MaximumRecordAgeInSeconds",
                     "BisectBatchOnFunctionError", "ParallelizationFactor"):
            self.read_back(f"AWS::Lambda::EventSourceMapping.{name}", properties[name], mappings[0].get(name))
        table = self.client("dynamodb").describe_table(TableName=TABLE)["Table"]
        assert mappings[0]["EventSourceArn"] == table["LatestStreamArn"], f"{variant}: {mappings[0]['EventSourceArn']}"
        assert table["StreamSpecification"]["StreamViewType"] == "OLD_IMAGE", f"{variant}: {table}"

    def stored_policy(self, document):
        """The statements that moto stored, with its own changes undone; each change is a gap."""
        if isinstance(document, str):
            # A Python literal, not JSON.
            document = ast.literal_eval(document)
        kept = [statement for statement in document["Statement"] if statement is not None]
        if len(kept) < len(document["Statement"]):
            self.gap(NULLS)
        for statement in kept:
            if statement["Sid"] == "WriteOwnLogs" and not statement["Resource"].endswith(":*"):
                self.gap(NO_COLON)
                statement["Resource"] += ":*"
        return kept

    def check_table(self, variant, made):
        dynamodb = self.client("dynamodb")
        table = dynamodb.describe_table(TableName=TABLE)["Table"]
        if not made.has("Table"):
            return
        assert [key["AttributeName"] for key in table["KeySchema"]] == ["id", "bucket_name"]
        assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        ttl = dynamodb.describe_time_to_live(TableName=TABLE)["TimeToLiveDescription"]
        self.read_back("AWS::DynamoDB::Table.TimeToLiveSpecification", "ENABLED", ttl["TimeToLiveStatus"])
        recovery = dynamodb.describe_continuous_backups(TableName=TABLE)["ContinuousBackupsDescription"]
        self.read_back("AWS::DynamoDB::Table.PointInTimeRecoverySpecification", "ENABLED",
                       recovery["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"])
        self.read_back("AWS::DynamoDB::Table.DeletionProtectionEnabled", True, table.get("DeletionProtectionEnabled"))
        encryption = table.get("SSEDescription", {}).get("Status")
        self.read_back("AWS::DynamoDB::Table.SSESpecification", "ENABLED", encryption)

    def check_schedules(self, variant, made):
        rows = self.client("scheduler").list_schedules(GroupName=STACK)["Schedules"]
        expected = [] if variant == "everything off" else ["audit", "cleanup", "metrics", "repair"]
        assert sorted(row["Name"] for row in rows) == expected, f"{variant}: {rows}"

    def check_alarms(self, variant, made):
        alarms = self.client("cloudwatch").describe_alarms()["MetricAlarms"]
        expected = {properties["AlarmName"] for _, properties in made.everything("AWS::CloudWatch::Alarm")}
        assert {alarm["AlarmName"] for alarm in alarms} == expected, variant
        topics = self.client("sns").list_topics()["Topics"]
        assert len(topics) == int(variant not in ("everything given", "everything off")), f"{variant}: {topics}"
        number = {"everything off": 0, "dry run": 3, "new table, dry run": 3, "existing table": 6, "everything given": 8}.get(variant, 7)
        assert len(expected) == number, f"{variant}: {sorted(expected)}"

    def check_dashboard(self, variant, made):
        boards = self.client("cloudwatch").list_dashboards()["DashboardEntries"]
        assert len(boards) == (0 if variant == "everything off" else 1), f"{variant}: {boards}"
        for logical, properties in made.everything("AWS::CloudWatch::Dashboard"):
            got = self.client("cloudwatch").get_dashboard(DashboardName=properties["DashboardName"])
            body, expected = json.loads(got["DashboardBody"]), json.loads(properties["DashboardBody"])
            for widget in body["widgets"]:
                alarms = widget["properties"].get("alarms", [])
                if "None" in alarms:
                    self.gap(NULLS)
                    alarms[:] = [alarm for alarm in alarms if alarm != "None"]
            other = [got for got, widget in zip(body["widgets"], expected["widgets"], strict=True) if got != widget]
            assert not other, f"{variant}: the dashboard has other widgets: {other}"
            assert len(body["widgets"]) >= 12, f"{variant}: a dashboard of {len(body['widgets'])} widgets"


def answered(function, report):
    """The event that Lambda sends to the event bus after an asynchronous invocation, as in its documentation."""
    context = {"requestId": "1", "functionArn": f"{function}:$LATEST", "condition": "Success", "approximateInvokeCount": 1}
    return {
        "version": "0", "id": "1", "detail-type": "Lambda Function Invocation Result - Success", "source": "lambda",
        "account": "123456789012", "time": "2026-11-16T03:15:00Z", "region": REGION,
        "resources": ["arn:aws:events:eu-west-1:123456789012:event-bus/default", f"{function}:$LATEST"],
        "detail": {
            "version": "1.0", "timestamp": "2026-11-16T03:15:00Z", "requestContext": context, "requestPayload": {},
            "responseContext": {"statusCode": 200, "executedVersion": "$LATEST"},
            "responsePayload": {"statusCode": 200, "body": {}, "report": report},
        },
    }


def wait_for(port, server):
    for _ in range(300):
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError("moto_server did not start; its last lines are above")


@contextlib.contextmanager
def moto_server():
    port = free_port()
    with tempfile.TemporaryFile("w+") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        # The port of the address to which a custom resource answers.
        environment = {**os.environ, "MOTO_PORT": str(port), "DOCKER_HOST": "unix:///nonexistent"}
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            wait_for(port, server)
            yield f"http://127.0.0.1:{port}"
        except Exception:
            log.seek(0)
            print(log.read()[-3000:], file=sys.stderr)
            raise
        finally:
            server.terminate()
            server.wait()


def main():
    started = time.monotonic()
    print("rehearsal in a moto server:")
    with moto_server() as endpoint:
        rehearsal = Rehearsal(endpoint)
        for variant in REHEARSED:
            rehearsal.rehearse(variant, VARIANTS[variant])
    print("moto does not model these, so the rehearsal does not check them:")
    for gap in sorted(rehearsal.gaps):
        print(f"  {gap}")
    print("  it also does not enforce a role's resources and conditions, evaluate alarms or start schedules")
    if rehearsal.gaps != KNOWN_GAPS:
        sys.exit(f"rehearse.py: KNOWN_GAPS is not up to date: {sorted(rehearsal.gaps ^ KNOWN_GAPS)}")
    print(f"rehearsed in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
