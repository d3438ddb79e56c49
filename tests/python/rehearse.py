#!/usr/bin/env python3
"""Rehearses the deployment: the template through the SAM transform, as a stack in a moto server, variant by variant.

What moto's stacks know is created by the stack and read back. What they pass over (alarms, schedules and a few more)
is created through moto's own API of that service from the same properties, so that at least the request is one that
AWS's SDK and moto accept. What moto does not model at all is printed, line by line; a gap that nobody has written down
here is a failure.
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
from stream_filter import matches  # noqa: E402

REHEARSED = [
    "dry run", "existing table", "new table", "new table, dry run", "new table with cascade", "everything given", "everything off"]

# What moto is known not to model. Exactly these: one more is a failure, and so is one that it has learned meanwhile.
PASSED_OVER = "passed over by moto's stacks; created here through the service's own API"
LOST = "not given back by moto"
NULLS = "AWS::NoValue in a list: left by moto as a null; left out here"
NO_COLON = "Fn::GetAtt of AWS::Logs::LogGroup.Arn: moto leaves out the `:*` at its end"
NO_ALARM = "Fn::GetAtt of AWS::CloudWatch::Alarm: refused by moto's stacks, which do not know it; resolved here"
NO_FUNCTION = "Custom::EnableTtl: moto would run the function in a container; answered here in the function's place"
NO_WAITING = "Fn::GetAtt of Custom::EnableTtl: moto's stacks do not wait for its answer; resolved here"
NESTED = "AWS::CloudFormation::Stack: the nested stacks are created here as stacks of their own, with the parameters that they are given"
FROM_FILE = "AWS::StepFunctions::StateMachine.DefinitionS3Location: moto reads no file; the definition is given in line"
KNOWN_GAPS = {
    NESTED,
    FROM_FILE,
    NO_WAITING,
    NULLS,
    NO_COLON,
    NO_ALARM,
    NO_FUNCTION,
    f"AWS::CloudWatch::Alarm: {PASSED_OVER}",
    f"AWS::Lambda::EventInvokeConfig: {PASSED_OVER}",
    f"AWS::SNS::Subscription: {PASSED_OVER}",
    f"AWS::SNS::TopicPolicy: {PASSED_OVER}",
    f"AWS::SQS::QueuePolicy: {PASSED_OVER}",
    f"AWS::Scheduler::Schedule: {PASSED_OVER}",
    f"AWS::Scheduler::ScheduleGroup: {PASSED_OVER}",
    f"AWS::DynamoDB::Table.PointInTimeRecoverySpecification: {LOST}",
    f"AWS::DynamoDB::Table.SSESpecification: {LOST}",
    f"AWS::DynamoDB::Table.TimeToLiveSpecification: {LOST}",
    f"AWS::IAM::Role.ManagedPolicyArns: {LOST}",
    f"AWS::Lambda::Function.Architectures: {LOST}",
    f"AWS::Lambda::Function.LoggingConfig: {LOST}",
}

# Kinds that moto's stacks pass over or that are created beside them: a Ref of one is resolved here.
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

    def gap(self, words):
        self.gaps.add(words)

    def read_back(self, what, wanted, got):
        if wanted != got:
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
            # As the function behind the custom resource would leave it: moto does not run it.
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
        """The template as moto takes it: without nested stacks, and with the state machine's definition in line."""
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
        """moto leaves AWS::NoValue in a list as a null, which it then refuses in a managed policy."""
        if not isinstance(item, dict) or set(item) != {"Fn::If"}:
            return False
        condition, yes, no = item["Fn::If"]
        if (yes if planned.holds(condition) else no) != {"Ref": "AWS::NoValue"}:
            return False
        self.gap(NULLS)
        return True

    def without_unknown_attributes(self, planned, value):
        """moto refuses an attribute of a resource that its stacks pass over: it is given the resolved one instead."""
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
                # It works out both branches of an Fn::If, so what is in the one not taken must be something, too.
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
            # An empty type, as CloudFormation's own example sends it; and moto finds the region in a signature's scope.
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
        self.look_at(variant, made)
        for name in [*(child.name for _, child in made.children()), STACK]:
            stacks.delete_stack(StackName=name)
        tables = self.client("dynamodb").list_tables()["TableNames"]
        assert tables == [TABLE], f"{variant}: after the stack is gone the tables are {tables}"
        print(f"  {variant}: CREATE_COMPLETE, {by_stack} resources by the stacks, {by_api} by API; the table outlives the stack")

    def physical(self, stack):
        listed = self.client("cloudformation").describe_stack_resources(StackName=stack)["StackResources"]
        # What its stacks pass over, and what a condition leaves out, is a row without a name.
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
            assert create, f"moto's stacks do not know {kind}, and neither does this script"
            self.gap(f"{kind}: {PASSED_OVER}")
            for logical, properties in by_api[kind]:
                create(logical, properties)
        return sum(map(len, by_api.values()))

    # ---- What moto's stacks pass over

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

    # ---- What must be there

    def look_at(self, variant, made):
        self.look_at_functions(variant, made)
        self.look_at_backlog(variant, made)
        self.look_at_table(variant, made)
        self.look_at_schedules(variant, made)
        self.look_at_alarms(variant, made)
        self.look_at_dashboard(variant, made)
        outputs = self.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"][0].get("Outputs", [])
        got = {output["OutputKey"] for output in outputs}
        wanted = {name for name, _ in made.outputs()}
        assert got == wanted, f"{variant}: outputs {sorted(got ^ wanted)}"

    def look_at_functions(self, variant, made):
        functions = self.client("lambda")
        there = {row["FunctionName"] for row in functions.list_functions()["Functions"]}
        wanted = {made.physical[logical] for logical in binaries() if made.has(logical)}
        assert there == wanted, f"{variant}: functions {there ^ wanted}"
        with_ttl = variant in ("existing table", "everything given")
        with_cascade = variant in ("new table with cascade", "everything given")
        assert len(there) == 5 + with_ttl + with_cascade, f"{variant}: {len(there)} functions"
        for logical, properties in made.resources("AWS::Lambda::Function"):
            name = made.physical[logical]
            got = functions.get_function(FunctionName=name)
            config = got["Configuration"]
            timeout = 300 if logical in ("Cascade", "EnableTtl") else 900
            for wanted, key in (("provided.al2023", "Runtime"), (256, "MemorySize"), (timeout, "Timeout")):
                assert config[key] == wanted, f"{variant}: {logical} has {key} {config[key]}"
            self.read_back("AWS::Lambda::Function.Role", properties["Role"], config["Role"])
            # moto gives a parameter of type Number as one; CloudFormation knows texts only.
            environment = {name: str(value) for name, value in config.get("Environment", {}).get("Variables", {}).items()}
            assert environment == properties.get("Environment", {}).get("Variables", {}), f"{logical}: {environment}"
            self.read_back("AWS::Lambda::Function.Architectures", properties["Architectures"], config["Architectures"])
            self.read_back("AWS::Lambda::Function.LoggingConfig", properties["LoggingConfig"],
                           config.get("LoggingConfig"))
            queue = made.resolve({"Fn::GetAtt": "FailureQueue.Arn"})
            if logical == "Cascade":
                self.look_at_mapping(variant, made, name)
                continue
            if logical in ("BacklogCleanup", "BacklogRepair", "EnableTtl"):
                # The state machine invokes these and waits. A failed event of EnableTtl holds a pre-signed URL and is kept nowhere.
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

    def look_at_backlog(self, variant, made):
        """The state machine, and the rule that starts it when the daily cleanup's answer says so."""
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

    def look_at_mapping(self, variant, made, function):
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
        """The statements as moto keeps them, less what it does in its own way; each way is a gap."""
        if isinstance(document, str):
            # As Python writes it, not as JSON.
            document = ast.literal_eval(document)
        kept = [statement for statement in document["Statement"] if statement is not None]
        if len(kept) < len(document["Statement"]):
            self.gap(NULLS)
        for statement in kept:
            if statement["Sid"] == "WriteOwnLogs" and not statement["Resource"].endswith(":*"):
                self.gap(NO_COLON)
                statement["Resource"] += ":*"
        return kept

    def look_at_table(self, variant, made):
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

    def look_at_schedules(self, variant, made):
        rows = self.client("scheduler").list_schedules(GroupName=STACK)["Schedules"]
        wanted = [] if variant == "everything off" else ["audit", "cleanup", "metrics", "repair"]
        assert sorted(row["Name"] for row in rows) == wanted, f"{variant}: {rows}"

    def look_at_alarms(self, variant, made):
        alarms = self.client("cloudwatch").describe_alarms()["MetricAlarms"]
        wanted = {properties["AlarmName"] for _, properties in made.everything("AWS::CloudWatch::Alarm")}
        assert {alarm["AlarmName"] for alarm in alarms} == wanted, variant
        topics = self.client("sns").list_topics()["Topics"]
        assert len(topics) == int(variant not in ("everything given", "everything off")), f"{variant}: {topics}"
        number = {"everything off": 0, "dry run": 3, "new table, dry run": 3, "existing table": 6, "everything given": 8}.get(variant, 7)
        assert len(wanted) == number, f"{variant}: {sorted(wanted)}"

    def look_at_dashboard(self, variant, made):
        boards = self.client("cloudwatch").list_dashboards()["DashboardEntries"]
        assert len(boards) == (0 if variant == "everything off" else 1), f"{variant}: {boards}"
        for logical, properties in made.everything("AWS::CloudWatch::Dashboard"):
            got = self.client("cloudwatch").get_dashboard(DashboardName=properties["DashboardName"])
            body, wanted = json.loads(got["DashboardBody"]), json.loads(properties["DashboardBody"])
            for widget in body["widgets"]:
                alarms = widget["properties"].get("alarms", [])
                if "None" in alarms:
                    self.gap(NULLS)
                    alarms[:] = [alarm for alarm in alarms if alarm != "None"]
            other = [got for got, widget in zip(body["widgets"], wanted["widgets"], strict=True) if got != widget]
            assert not other, f"{variant}: the dashboard has other widgets: {other}"
            assert len(body["widgets"]) >= 12, f"{variant}: a dashboard of {len(body['widgets'])} widgets"


def answered(function, report):
    """What Lambda puts on the event bus after an asynchronous invocation, as its documentation shows it."""
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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryFile("w+") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        # Its own port, for the address that a custom resource is to answer to.
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
    began = time.monotonic()
    print("rehearsal in a moto server:")
    with moto_server() as endpoint:
        rehearsal = Rehearsal(endpoint)
        for variant in REHEARSED:
            rehearsal.rehearse(variant, VARIANTS[variant])
    print("what moto does not model, and this rehearsal therefore does not show:")
    for gap in sorted(rehearsal.gaps):
        print(f"  {gap}")
    print("  nor does it enforce a role's resources and conditions, evaluate an alarm, or start a schedule")
    if rehearsal.gaps != KNOWN_GAPS:
        sys.exit(f"rehearse.py: KNOWN_GAPS is not up to date: {sorted(rehearsal.gaps ^ KNOWN_GAPS)}")
    print(f"rehearsed in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
