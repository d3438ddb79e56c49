#!/usr/bin/env python3
"""Checks the transformed template: references in every combination of conditions, roles, metrics, alarms, dashboard, local runs.

    template_checks.py                      compare metrics with the names in metric.rs
    template_checks.py --emitted FILE       compare them with the functions' output: one embedded-metric-format
                                            document per line; `-` is standard input, other lines are skipped
    template_checks.py --actions            print the DynamoDB actions that each function's role allows, as JSON
    template_checks.py --set Mode=dry-run   with --actions: a parameter of the deployment
"""

import argparse
import json
import re
import sys
import tomllib

from sam_template import (
    ACCOUNT, KEY, REGION, ROOT, STACK, STREAM, TABLE, VARIANTS, Deployment, Unresolved, binaries, combinations, source,
    transformed,
)

NAMESPACE = "ActingWeb/Janitor"
STATE_OWNER = "_actingweb_janitor"
TABLE_ARN = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{TABLE}"
STREAM_ARN = STREAM.format(region=REGION, account=ACCOUNT)
# The mapping reads the stream with the function's role. ListStreams is allowed on the table's streams, as in SAM's own policy.
OF_STREAM = {f"dynamodb:{action}": STREAM_ARN for action in ("DescribeStream", "GetRecords", "GetShardIterator")}
OF_STREAM["dynamodb:ListStreams"] = f"{TABLE_ARN}/stream/*"
ONLY_OWN_STATE = {
    "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [STATE_OWNER]},
    "Null": {"dynamodb:LeadingKeys": "false"},
}
READS = {f"dynamodb:{action}" for action in (
    "DescribeTable", "DescribeTimeToLive", "Query", "Scan", "BatchGetItem", "GetItem")}
# Closed lists: an action that is on none of them fails, so that a new action is a decision.
CLEANERS = {"daily-cleanup", "index-repair"}
UNBOUND = {
    "daily-cleanup": READS - {"dynamodb:GetItem"} | {"dynamodb:PartiQLDelete", "dynamodb:PartiQLUpdate"},
    "index-repair": READS - {"dynamodb:GetItem"} | {"dynamodb:PartiQLDelete", "dynamodb:PartiQLUpdate"},
    "metrics-emitter": READS - {"dynamodb:GetItem", "dynamodb:BatchGetItem"},
    "enable-ttl": {
        "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive", "dynamodb:UpdateTimeToLive", "dynamodb:UpdateTable"},
    "ttl-cascade": {
        "dynamodb:DescribeTable", "dynamodb:Query", "dynamodb:BatchGetItem", "dynamodb:PartiQLDelete"},
}
# The table of settings: `make docs` writes it, tests/engines/cli.rs compares it with the program.
SETTINGS = json.loads((ROOT / "tests/golden/settings.json").read_text(encoding="utf-8"))
JOBS = {"daily-cleanup": "cleanup", "index-repair": "repair", "metrics-emitter": "metrics", "ttl-cascade": "cascade"}
# Closed lists: a setting that is on none of them needs a parameter. The template names the table once, and has no local endpoint.
BY_EVENT_ONLY = {"AWS_DB_PREFIX", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_DB_HOST", "REUSE_WINDOW_SECONDS", "GRACE_SECONDS", "RETIRE_DAYS",
                 "RESTORE_CLIENTS", "REMOVE_LEGACY", "SCOPE"}
# Settings that the runtime reads in every function, also in enable-ttl, which gets its table from CloudFormation's event.
OF_THE_EDGE = {"AWS_ENDPOINT_URL_DYNAMODB", "ALLOW_AWS"}
NOT_GIVEN = {
    "metrics-emitter": {"MAX_WRITE_UNITS_PER_SECOND", "MAX_AUDIT_UNITS"},  # writes nothing; the audit's schedule has its own input
    "ttl-cascade": {"MAX_DELETES"},  # a limit per batch would only delay the batch
    "BacklogCleanup": {"BACKLOG_AFTER_INCOMPLETE_RUNS"},  # is the backlog execution itself
}
# Further functions with the same binaries, for the state machine.
BACKLOG = {"BacklogCleanup": "DailyCleanup", "BacklogRepair": "IndexRepair"}
MACHINE = f"{STACK}-backlog"
EVENT_BUS = f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/default"
NO_QUEUE = {"Effect": "Deny", "Action": ["sqs:SendMessage"], "Resource": ["*"]}
OWN_STATE = {"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:DeleteItem"}
IN_VPC = {f"ec2:{action}" for action in (
    "CreateNetworkInterface", "DescribeNetworkInterfaces", "DescribeSubnets", "DeleteNetworkInterface",
    "AssignPrivateIpAddresses", "UnassignPrivateIpAddresses")}

SCHEDULES = {
    "CleanupTimer": ("CleanupSchedule", "DailyCleanup"),
    "RepairTimer": ("RepairSchedule", "IndexRepair"),
    "MetricsTimer": ("MetricsSchedule", "MetricsEmitter"),
    "AuditTimer": ("AuditSchedule", "MetricsEmitter"),
}
# Roles that are not for a function.
SERVICES = {"BacklogRole", "StartBacklogRole", "SchedulerRole"}
MOST_PARAMETERS, MOST_LINES, MOST_DASHBOARD_METRICS = 24, 1300, 50
# AWS's own metrics that are used, with the dimensions under which AWS publishes them.
OF_AWS = {
    ("AWS/DynamoDB", "ConsumedReadCapacityUnits", ("TableName",)),
    ("AWS/DynamoDB", "ConsumedWriteCapacityUnits", ("TableName",)),
    ("AWS/DynamoDB", "ReadThrottleEvents", ("TableName",)),
    ("AWS/DynamoDB", "WriteThrottleEvents", ("TableName",)),
    ("AWS/DynamoDB", "SuccessfulRequestLatency", ("Operation", "TableName")),
    ("AWS/DynamoDB", "TimeToLiveDeletedItemCount", ("TableName",)),
    ("AWS/Lambda", "Errors", ("FunctionName",)),
    ("AWS/Lambda", "IteratorAge", ("FunctionName",)),
    ("AWS/States", "ExecutionsFailed", ("StateMachineArn",)),
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible", ("QueueName",)),
}
failures = []


def expect(condition, message):
    if not condition and message not in failures:
        failures.append(message)


def as_list(value):
    return value if isinstance(value, list) else [value]


# ---- Roles


def documents(properties):
    for policy in properties.get("Policies", []):
        yield policy["PolicyDocument"]


def statements(deployment, properties):
    """The statements of the role and of its managed policies, which must be the stack's own."""
    managed = {deployment.id_of(logical): policy["PolicyDocument"]
               for logical, policy in deployment.resources("AWS::IAM::ManagedPolicy")}
    attached = []
    for arn in properties.get("ManagedPolicyArns", []):
        expect(arn in managed, f"{arn} is not a policy of this stack")
        attached.append(managed.get(arn, {"Statement": []}))
    for document in [*documents(properties), *attached]:
        for statement in document["Statement"]:
            yield {**statement, "Action": as_list(statement["Action"]), "Resource": as_list(statement["Resource"])}


def role_of(deployment, logical):
    (name, _), = deployment.template["Resources"][logical]["Properties"]["Role"].values()
    return name


def actions(deployment):
    """The DynamoDB actions that each function may use on any row, and on the janitor's own rows only.

    Those on the stream are not listed: Lambda uses them, with the function's role.
    """
    found = {}
    for logical in binaries():
        if not deployment.has(logical):
            continue
        properties = deployment.resolve(deployment.template["Resources"][role_of(deployment, logical)]["Properties"])
        may = {"table": set(), "own_state": set()}
        for statement in statements(deployment, properties):
            of_table = [action for action in statement["Action"] if action.startswith("dynamodb:")]
            if of_table and not set(of_table) <= set(OF_STREAM):
                may["own_state" if "Condition" in statement else "table"].update(of_table)
        found[logical] = {on: sorted(may[on]) for on in may}
    return found


def check_roles(deployment, variant):
    used = {}
    boundary = deployment.parameters["PermissionsBoundary"]
    for logical, binary in binaries().items():
        if not deployment.has(logical):
            continue
        role = role_of(deployment, logical)
        expect(used.setdefault(role, binary) == binary, f"{role} is the role of both {used[role]} and {binary}")
        check_role(deployment, variant, binary, role)
    for role, properties in deployment.resources("AWS::IAM::Role"):
        expect(properties.get("PermissionsBoundary", "") == boundary, f"{variant}: {role} has no boundary")
        expect(role in used or role in SERVICES, f"{variant}: {role} is not used")
        if role == "BacklogRole":
            check_backlog_role(deployment, properties)
        elif role == "StartBacklogRole":
            check_start_backlog_role(deployment, properties)
        elif role == "SchedulerRole":
            check_scheduler_role(deployment, role, properties)
    check_start_backlog(deployment)
    expect(not list(deployment.resources("AWS::IAM::Policy")), "policies belong in the roles")


def log_group(binary):
    return f"/aws/lambda/{STACK}/{binary}"


def check_role(deployment, variant, binary, role):
    properties = deployment.resolve(deployment.template["Resources"][role]["Properties"])
    service = properties["AssumeRolePolicyDocument"]["Statement"][0]["Principal"]
    expect(service == {"Service": "lambda.amazonaws.com"}, f"{role} may be assumed by {service}")
    logs = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{log_group(binary)}:*"
    dry = deployment.parameters["Mode"] == "dry-run"
    no_queue = False
    for statement in statements(deployment, properties):
        where = f"{variant}: {role}, {statement.get('Sid')}"
        if binary == "enable-ttl" and {**statement, "Sid": ""} == {**NO_QUEUE, "Sid": ""}:
            no_queue = True
            continue
        expect(statement["Effect"] == "Allow", f"{where}: not an Allow")
        expect("NotAction" not in statement and "NotResource" not in statement, f"{where}: NotAction or NotResource")
        condition = statement.get("Condition")
        for action in statement["Action"]:
            expect("*" not in action, f"{where}: {action} is a wildcard")
            for resource in statement["Resource"]:
                check_permission(deployment, where, binary, action, resource, condition, logs, dry)
                # A stack that retires may not delete, apart from the cascade, whose tokens are already deleted.
                retires = deployment.parameters["ExpiredRows"] == "retire"
                expect(action != "dynamodb:PartiQLUpdate" or retires, f"{where}: {action} without ExpiredRows=retire")
                deletes = action == "dynamodb:PartiQLDelete" and binary != "ttl-cascade"
                expect(not (deletes and retires), f"{where}: {action} with ExpiredRows=retire")
    # Its events contain CloudFormation's pre-signed URL.
    expect(no_queue == (binary == "enable-ttl"), f"{variant}: {role} may send the function's events to a queue")


def check_permission(deployment, where, binary, action, resource, condition, logs, dry):
    service = action.split(":")[0]
    if service == "ec2":
        expect(deployment.parameters["SubnetIds"] and action in IN_VPC, f"{where}: {action} without a VPC")
        return
    if service == "kms":
        expect(deployment.parameters["TableKeyArn"] == KEY == resource, f"{where}: {action} on {resource}")
        expect(action in {"kms:Decrypt", "kms:DescribeKey"}, f"{where}: {action}")
        via = {"StringEquals": {"kms:ViaService": f"dynamodb.{REGION}.amazonaws.com"}}
        expect(condition == via, f"{where}: the key is usable outside DynamoDB")
        return
    if service == "logs":
        expect(action in {"logs:CreateLogStream", "logs:PutLogEvents"}, f"{where}: {action}")
        expect(resource == logs, f"{where}: {action} on {resource}, not its own log group")
        return
    if action in OF_STREAM:
        expect(binary == "ttl-cascade" and resource == OF_STREAM[action], f"{where}: {action} on {resource}")
        return
    expect("*" not in resource, f"{where}: {action} on {resource}, a wildcard")
    if service == "sqs":
        queue = deployment.resolve({"Fn::GetAtt": "FailureQueue.Arn"})
        expect((action, resource) == ("sqs:SendMessage", queue), f"{where}: {action} on {resource}")
        return
    if service == "events":
        starts = binary == "daily-cleanup" and deployment.has("StartBacklog")
        expect(starts and (action, resource) == ("events:PutEvents", EVENT_BUS), f"{where}: {action} on {resource}")
        return
    expect(service == "dynamodb", f"{where}: {action} is for a service that is not needed")
    expect(resource == TABLE_ARN, f"{where}: {action} on {resource}, another table")
    if dry:
        expect(action in READS | UNBOUND["enable-ttl"], f"{where}: {action} in a dry-run stack")
    if condition is None:
        expect(action in UNBOUND[binary], f"{where}: {action} on any row of the table")
    else:
        expect(condition == ONLY_OWN_STATE, f"{where}: its condition does not limit it to {STATE_OWNER}")
        reads_pause = (binary, action) == ("enable-ttl", "dynamodb:BatchGetItem")
        expect(reads_pause or binary in CLEANERS and action in OWN_STATE, f"{where}: {action} on state rows")


def check_backlog_role(deployment, properties):
    trust = properties["AssumeRolePolicyDocument"]["Statement"][0]
    states = f"arn:aws:states:{REGION}:{ACCOUNT}"
    expect(trust["Principal"] == {"Service": "states.amazonaws.com"}, f"BacklogRole is for {trust['Principal']}")
    bound = trust["Condition"]["ArnLike"]["aws:SourceArn"]
    expect(bound == f"{states}:stateMachine:{MACHINE}*", "BacklogRole may be assumed for another state machine")
    mine = {deployment.resolve({"Fn::GetAtt": f"{logical}.Arn"}) for logical in BACKLOG}
    allowed = {("lambda:InvokeFunction", function) for function in mine}
    allowed.add(("states:StartExecution", f"{states}:stateMachine:{MACHINE}"))
    allowed |= {(f"states:{action}Execution", f"{states}:execution:{MACHINE}*") for action in ("Describe", "Stop")}
    may = {(action, resource) for statement in statements(deployment, properties)
           for action in statement["Action"] for resource in statement["Resource"]}
    expect(may == allowed, f"BacklogRole may do {sorted(may ^ allowed)}")


def check_start_backlog_role(deployment, properties):
    trust = properties["AssumeRolePolicyDocument"]["Statement"][0]
    expect(trust["Principal"] == {"Service": "events.amazonaws.com"}, f"StartBacklogRole is for {trust['Principal']}")
    expect("aws:SourceAccount" in trust.get("Condition", {}).get("StringEquals", {}), "StartBacklogRole may be assumed from any account")
    may = [(statement["Action"], statement["Resource"]) for statement in statements(deployment, properties)]
    expect(may == [(["states:StartExecution"], [deployment.id_of("Backlog")])], f"StartBacklogRole may do {may}")


def check_start_backlog(deployment):
    """A rule that could not start the state machine reports to the failure queue, which accepts that rule only."""
    queue = deployment.resolve({"Fn::GetAtt": "FailureQueue.Arn"})
    policies = [properties for _, properties in deployment.resources("AWS::SQS::QueuePolicy")]
    expect(len(policies) == deployment.has("StartBacklog"), f"the queue has {len(policies)} policies")
    for _, rule in deployment.resources("AWS::Events::Rule"):
        for target in rule["Targets"]:
            expect(target.get("DeadLetterConfig") == {"Arn": queue}, "StartBacklog: no dead-letter queue")
            expect(target.get("RetryPolicy", {}).get("MaximumRetryAttempts", 185) <= 5, "StartBacklog: unbounded retry")
    for policy in policies:
        (statement,) = policy["PolicyDocument"]["Statement"]
        rule = deployment.resolve({"Fn::GetAtt": "StartBacklog.Arn"})
        expect(statement["Principal"] == {"Service": "events.amazonaws.com"}, "the queue accepts messages from other services")
        expect(statement["Condition"] == {"ArnEquals": {"aws:SourceArn": rule}}, "the queue accepts messages from other rules")
        may = statement["Effect"], statement["Action"], statement["Resource"]
        expect(may == ("Allow", "sqs:SendMessage", queue), f"the queue allows {may}")


def check_scheduler_role(deployment, role, properties):
    trust = properties["AssumeRolePolicyDocument"]["Statement"][0]
    service = trust["Principal"]
    expect(service == {"Service": "scheduler.amazonaws.com"}, f"{role} may be assumed by {service}")
    bound = trust.get("Condition", {}).get("StringEquals", {})
    expect("aws:SourceArn" in bound, f"{role} may be assumed for any schedule")
    mine = {deployment.resolve({"Fn::GetAtt": f"{logical}.Arn"}) for logical in binaries() if deployment.has(logical)}
    queue = deployment.resolve({"Fn::GetAtt": "FailureQueue.Arn"})
    for statement in statements(deployment, properties):
        for resource in statement["Resource"]:
            allowed = (statement["Action"] == ["lambda:InvokeFunction"] and resource in mine) or (
                statement["Action"] == ["sqs:SendMessage"] and resource == queue)
            expect(allowed, f"{role}: {statement['Action']} on {resource}")


# ---- Metrics


def names_in_source():
    (path,) = [path for path in ROOT.glob("*/**/metric.rs") if "target" not in path.parts]
    names = set(re.findall(r'^\s+[A-Z0-9_]+ = "(\w+)", "\w+";', path.read_text(), re.M))
    if len(names) < 6:
        sys.exit(f"template_checks.py: {path} has fewer than 6 metric names: its format has changed")
    return names


def fields(value, path=""):
    """The paths of a log document's fields, as Logs Insights names them."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from fields(inner, f"{path}.{name}" if path else name)
    else:
        yield path


def read_emitted(path):
    """Name and dimensions of each emitted metric, and the fields of their documents."""
    metrics, seen = set(), set()
    with sys.stdin if path == "-" else open(path, encoding="utf-8") as lines:
        for line in lines:
            if '"_aws"' not in line:
                continue
            document = json.loads(line)
            seen.update(fields(document))
            for directive in document["_aws"]["CloudWatchMetrics"]:
                if directive["Namespace"] != NAMESPACE:
                    continue
                for dimensions in directive["Dimensions"]:
                    metrics.update((metric["Name"], tuple(sorted(dimensions))) for metric in directive["Metrics"])
    if not metrics:
        sys.exit(f"template_checks.py: {path} has no embedded-metric-format document of {NAMESPACE}")
    return metrics, seen


class Metrics:
    """The metrics of the functions, from their source and, if given, from their output."""

    def __init__(self, emitted):
        self.names = names_in_source()
        self.emitted, self.fields = read_emitted(emitted) if emitted else (None, None)

    def check(self, where, namespace, name, dimensions):
        key = tuple(sorted(dimensions))
        if namespace != NAMESPACE:
            expect((namespace, name, key) in OF_AWS, f"{where}: {namespace} {name} by {key} is not in OF_AWS")
            return
        expect(name in self.names, f"{where}: {name} is not a metric of metric.rs")
        expect(dimensions == {"Table": TABLE}, f"{where}: {name} by {dimensions}")
        if self.emitted is not None:
            expect((name, key) in self.emitted, f"{where}: no function emitted {name} by {key}")


def check_alarms(deployment, metrics, topic):
    for logical, alarm in deployment.everything("AWS::CloudWatch::Alarm"):
        expect("TreatMissingData" in alarm, f"{logical} has no TreatMissingData")
        description = alarm.get("AlarmDescription", "")
        expect(80 < len(description) <= 1024, f"{logical}: a description of {len(description)} characters")
        expect(alarm["AlarmActions"] == [topic], f"{logical} notifies {alarm['AlarmActions']}")
        expect(alarm["AlarmName"].startswith(f"{STACK}-"), f"{logical}: the topic's policy does not allow {alarm['AlarmName']}")
        # An OK action also sends a message at creation, and a second one after each failure.
        expect(("OKActions" in alarm) == (logical == "Overdue"), f"{logical}: OKActions")
        expect("Metrics" not in alarm, f"{logical} uses metric math, which alarms.py does not evaluate")
        metrics.check(logical, alarm["Namespace"], alarm["MetricName"],
                      {d["Name"]: d["Value"] for d in alarm["Dimensions"]})
        # CloudWatch's own limits on how far an alarm looks back.
        reach = int(alarm["Period"]) * int(alarm["EvaluationPeriods"])
        expect(reach <= (604_800 if int(alarm["Period"]) >= 3600 else 86_400), f"{logical} looks back {reach} s")


def check_dashboard(deployment, metrics):
    for logical, dashboard in deployment.everything("AWS::CloudWatch::Dashboard"):
        body = json.loads(dashboard["DashboardBody"])
        taken, alarms, shown = set(), set(), 0
        for widget in body["widgets"]:
            where = f"{logical}, {widget['properties'].get('title', widget['type'])}"
            cells = {(x, y) for x in range(widget["x"], widget["x"] + widget["width"])
                     for y in range(widget["y"], widget["y"] + widget["height"])}
            expect(not cells & taken and widget["x"] + widget["width"] <= 24, f"{where} overlaps another widget or is too wide")
            taken |= cells
            alarms.update(widget["properties"].get("alarms", []))
            if widget["type"] == "log":
                check_query(deployment, where, widget["properties"]["query"], metrics)
            for row in widget["properties"].get("metrics", []):
                texts = [text for text in row if isinstance(text, str)]
                metrics.check(where, texts[0], texts[1], dict(zip(texts[2::2], texts[3::2], strict=True)))
                shown += 1
        existing = {f"arn:aws:cloudwatch:{REGION}:{ACCOUNT}:alarm:{alarm['AlarmName']}"
                    for _, alarm in deployment.everything("AWS::CloudWatch::Alarm")}
        expect(alarms == existing, f"{logical} does not show exactly the existing alarms: {alarms ^ existing}")
        expect(0 < shown <= MOST_DASHBOARD_METRICS, f"{logical} shows {shown} metrics: none, or more than the free tier has")


def check_query(deployment, where, query, metrics):
    sources = set(re.findall(r"SOURCE '([^']+)'", query))
    groups = {properties["LogGroupName"] for _, properties in deployment.resources("AWS::Logs::LogGroup")}
    expect(sources and sources <= groups, f"{where}: {sources - groups} is not a log group of this stack")
    if "errors" in where:
        expect(sources == groups, f"{where}: misses the log groups {groups - sources}")
    if metrics.fields is not None and "message = 'counts'" in query:
        used = set(re.findall(r"max\(([\w.]+)\)", query)) | {"message", "scope"}
        expect(used <= metrics.fields, f"{where}: no document has {sorted(used - metrics.fields)}")


# ---- Functions and schedules


def check_functions(deployment, variant):
    queue = deployment.resolve({"Fn::GetAtt": "FailureQueue.Arn"})
    invoked = {properties["FunctionName"]: properties for _, properties in
               deployment.resources("AWS::Lambda::EventInvokeConfig")}
    in_vpc = bool(deployment.parameters["SubnetIds"])
    for logical, function in deployment.resources("AWS::Lambda::Function"):
        binary = binaries()[logical]
        expect(function["Runtime"] == "provided.al2023", f"{logical}: runtime {function['Runtime']}")
        expect(function["Architectures"] == [deployment.parameters["Architecture"]], f"{logical}: architecture")
        expect(function["LoggingConfig"]["LogFormat"] == "JSON", f"{logical}: logs are not JSON")
        expect(function["LoggingConfig"]["LogGroup"] == log_group(binary), f"{logical}: not its own log group")
        # A fixed name would prevent a second stack in the account.
        expect("FunctionName" not in function, f"{logical} has a fixed name")
        # A new account has a limit of 10 and cannot reserve any of it.
        expect("ReservedConcurrentExecutions" not in function, f"{logical} reserves concurrency")
        expect(("VpcConfig" in function) == in_vpc, f"{variant}: {logical}: VPC")
        # Failed events go only to the destination of the EventInvokeConfig.
        expect("DeadLetterConfig" not in function, f"{logical} has its own dead-letter queue")
        config = invoked.get(deployment.id_of(logical), {})
        if binary == "ttl-cascade":
            check_mapping(deployment, variant, logical, queue)
        elif binary == "enable-ttl":
            # An event contains CloudFormation's pre-signed URL, and a destination would get the whole event.
            expect(config and not config.get("DestinationConfig"), f"{logical}: its events have a destination")
        elif logical not in BACKLOG:
            success = {"Destination": EVENT_BUS} if logical == "DailyCleanup" and deployment.has("StartBacklog") else None
            check_invocations(logical, config, queue, success)
        given = function.get("Environment", {}).get("Variables", {})
        # `check_settings` checks which functions have a table and a mode.
        expected = {"ATTRIBUTES_TABLE": TABLE, "MODE": deployment.parameters["Mode"]}
        for name in expected.keys() & given.keys():
            expect(given[name] == expected[name], f"{logical}: {name} is {given[name]!r}")
        # Declared for `sam local`, which passes only declared variables.
        for name in OF_THE_EDGE:
            expect(given.get(name) == "", f"{logical}: {name} is {given.get(name)!r} in AWS")
        check_settings(logical, binary, set(given))


def check_settings(logical, binary, given):
    """The template passes each setting of a function's job, and nothing else."""
    takes = {setting["name"] for setting in SETTINGS if JOBS.get(binary) in setting["jobs"]} | OF_THE_EDGE
    expect(given <= takes, f"{logical}: {given - takes} is not a setting of {JOBS.get(binary)}")
    missing = takes - given - BY_EVENT_ONLY - NOT_GIVEN.get(logical, set()) - NOT_GIVEN.get(binary, set())
    expect(not missing, f"{logical}: the template does not pass {missing}")


def check_invocations(logical, config, queue, success):
    destinations = config.get("DestinationConfig", {})
    expect(destinations.get("OnFailure") == {"Destination": queue}, f"{logical}: failures do not go to the failure queue")
    expect(destinations.get("OnSuccess") == success, f"{logical}: answers go to {destinations.get('OnSuccess')}")
    expect(config.get("MaximumRetryAttempts", 9) <= 2, f"{logical}: retries")


def check_mapping(deployment, variant, logical, queue):
    """The cascade's mapping: the table's stream, with every limit set, and failed records in the failure queue."""
    mappings = [properties for _, properties in deployment.resources("AWS::Lambda::EventSourceMapping")]
    expect(len(mappings) == 1, f"{variant}: {len(mappings)} mappings")
    for mapping in mappings:
        expected = {
            "EventSourceArn": STREAM_ARN,
            "FunctionName": deployment.id_of(logical),
            "StartingPosition": "TRIM_HORIZON",
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "BisectBatchOnFunctionError": True,
            "ParallelizationFactor": 1,
            "DestinationConfig": {"OnFailure": {"Destination": queue}},
        }
        for name, value in expected.items():
            expect(mapping.get(name) == value, f"{variant}: the mapping's {name} is {mapping.get(name)}")
        expect(0 < mapping.get("MaximumBatchingWindowInSeconds", 0) <= 300, "the mapping's batching window is not 1 to 300 s")
        expect(0 < mapping.get("MaximumRetryAttempts", -1) <= 100, "the mapping's retries are not 1 to 100")
        # The stream itself keeps records for a day.
        expect(60 <= mapping.get("MaximumRecordAgeInSeconds", -1) < 86_400, "the mapping's maximum record age is not 60 s to a day")
        for rule in mapping["FilterCriteria"]["Filters"]:
            json.loads(rule["Pattern"])


def check_schedules(deployment, variant):
    queue = deployment.resolve({"Fn::GetAtt": "FailureQueue.Arn"})
    schedules = dict(deployment.resources("AWS::Scheduler::Schedule"))
    expected = {logical for logical, (parameter, _) in SCHEDULES.items() if deployment.parameters[parameter]}
    expect(set(schedules) == expected, f"{variant}: schedules {sorted(schedules)}")
    for logical, schedule in schedules.items():
        target = schedule["Target"]
        parameter, function = SCHEDULES[logical]
        expect(schedule["ScheduleExpression"] == deployment.parameters[parameter], f"{logical} does not use {parameter}")
        expect(target["Arn"] == deployment.resolve({"Fn::GetAtt": f"{function}.Arn"}), f"{logical} starts another function")
        expect(target.get("DeadLetterConfig") == {"Arn": queue}, f"{logical}: no dead-letter queue")
        expect(target.get("RetryPolicy", {}).get("MaximumRetryAttempts", 185) <= 5, f"{logical}: unbounded retry")
        expect(schedule["FlexibleTimeWindow"]["Mode"] == "FLEXIBLE", f"{logical}: no flexible window")
        expect(schedule.get("GroupName") == STACK, f"{logical}: not in the stack's group")
        json.loads(target.get("Input", "{}"))


def named_by(value):
    """Logical ids that a value refers to."""
    if isinstance(value, list):
        return set().union(*map(named_by, value))
    if not isinstance(value, dict):
        return set()
    if set(value) == {"Ref"}:
        return {value["Ref"]}
    if set(value) == {"Fn::GetAtt"}:
        argument = value["Fn::GetAtt"]
        return {argument.split(".")[0] if isinstance(argument, str) else argument[0]}
    if set(value) == {"Fn::Sub"}:
        argument = value["Fn::Sub"]
        text, given = argument if isinstance(argument, list) else (argument, {})
        return {name.split(".")[0] for name in re.findall(r"\$\{([^!}]+)\}", text)} | named_by(list(given.values()))
    if set(value) == {"Fn::If"}:
        return named_by(value["Fn::If"][1:])
    return named_by(list(value.values()))


def check_order(template):
    """TTL cannot be undone: it depends on every other resource, and no DependsOn names a resource that a condition may leave out."""
    resources = template["Resources"]

    def before(logical):
        resource = resources[logical]
        found = (named_by(resource.get("Properties", {})) | set(as_list(resource.get("DependsOn", [])))) & set(resources)
        return found.union(*map(before, found))

    # Except the table: a stack that creates it has no TableTtl.
    expect(set(resources) - before("TableTtl") == {"TableTtl", "Table"} - before("TableTtl"),
           f"TableTtl does not wait for {sorted(set(resources) - before('TableTtl') - {'TableTtl', 'Table'})}")
    for logical, resource in resources.items():
        for other in as_list(resource.get("DependsOn", [])):
            condition = resources[other].get("Condition")
            expect(condition in (None, resource.get("Condition")) or (logical, other) == ("TableStream", "EnableTtlLogs"),
                   f"{logical} depends on {other}, which a condition may leave out")


def check_size():
    document = source()
    parameters = document["Parameters"]
    expect(len(parameters) <= MOST_PARAMETERS, f"{len(parameters)} parameters, more than {MOST_PARAMETERS}")
    required = [name for name, parameter in parameters.items() if "Default" not in parameter]
    expect(required == ["AttributesTable"], f"required: {required}")
    lines = (ROOT / "template.yaml").read_text().count("\n")
    expect(lines <= MOST_LINES, f"template.yaml has {lines} lines, more than {MOST_LINES}")
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    expect(document["Metadata"]["AWS::ServerlessRepo::Application"]["SemanticVersion"] == version, f"SemanticVersion is not {version}")
    # A new release, and the parameter that the guide names, make CloudFormation update the stream's resource.
    deployment = document["Resources"]["TableStream"]["Properties"]["Deployment"]
    expect(deployment[0] == version and {"Ref": "LogLevel"} in deployment, f"TableStream is not updated: {deployment}")
    for path in ("template.yaml", "stack/alarms.yaml", "stack/dashboard.yaml"):
        for line in (ROOT / path).read_text().splitlines():
            # CloudFormation does not support aliases.
            expect(not re.search(r": [&*][A-Za-z]", line), f"{path}: an alias: {line.strip()}")


def check_combinations():
    """Every reference resolves in every combination of conditions."""
    template = transformed(VARIANTS["existing table"])
    number = 0
    for given in combinations():
        deployment = Deployment(given, template=template)
        try:
            for _ in deployment.everything():
                pass
            dict(deployment.outputs())
        except Unresolved as problem:
            given = {name: value for name, value in given.items() if name != "AttributesTable"}
            expect(False, f"{problem}, for example with {given}")
        number += 1
    return number


def check_table(deployment, variant):
    tables = [properties for _, properties in deployment.resources("AWS::DynamoDB::Table")]
    custom = dict(deployment.resources("Custom::EnableTtl"))
    creates = deployment.parameters["CreateTable"] == "true"
    # A dry-run stack changes no existing table; a table that it creates has TTL from the beginning.
    enables = deployment.parameters["TimeToLive"] != "leave"
    deletes = deployment.parameters["Mode"] == "delete"
    cascades = deployment.parameters["TimeToLive"] == "enable-with-cascade" and deletes
    expect(len(tables) == int(creates), f"{variant}: {len(tables)} tables")
    expected = {"TableTtl": enables and deletes and not creates, "TableStream": cascades and not creates}
    expect(set(custom) == {name for name in expected if expected[name]}, f"{variant}: custom resources {sorted(custom)}")
    expect(deployment.has("Cascade") == cascades, f"{variant}: the cascade")
    expect(deployment.has("EnableTtl") == bool(custom), f"{variant}: the function without its custom resource")
    for logical, properties in custom.items():
        expect(properties["TableName"] == TABLE, "the custom resource has another table")
        enabled = properties["TimeToLive"] == "enable", properties["Stream"] == "true"
        expect(enabled == (logical == "TableTtl", logical == "TableStream"), f"{variant}: {logical} has {properties}")
        function = deployment.resolve(deployment.template["Resources"]["EnableTtl"]["Properties"])
        expect(int(properties["ServiceTimeout"]) > function["Timeout"], "CloudFormation's timeout is shorter than the function's")
    for table in tables:
        # Always set: CloudFormation refuses to remove the specification.
        ttl = {"AttributeName": "ttl_timestamp", "Enabled": enables}
        expect(table.get("TimeToLiveSpecification") == ttl, f"{variant}: TTL is {table.get('TimeToLiveSpecification')}")
        stream = {"StreamViewType": "OLD_IMAGE"} if cascades else None
        expect(table.get("StreamSpecification") == stream, f"{variant}: stream {table.get('StreamSpecification')}")
        keys = [(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]]
        expect(keys == [("id", "HASH"), ("bucket_name", "RANGE")], "the new table does not have ActingWeb's keys")
        expect(table["DeletionProtectionEnabled"] is True, "the new table can be deleted")
        expect(table["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True, "the new table has no point-in-time recovery")
        key = deployment.parameters["TableKeyArn"]
        expect(table["SSESpecification"].get("KMSMasterKeyId", "") == key, f"{variant}: another key")
    for resource in deployment.template["Resources"].values():
        if resource["Type"] == "AWS::DynamoDB::Table":
            kept = {resource.get("DeletionPolicy"), resource.get("UpdateReplacePolicy")}
            expect(kept == {"Retain"}, "deleting the stack deletes the table")


def exit_on_failure():
    if failures:
        sys.exit("\n".join(f"template_checks.py: {failure}" for failure in failures))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emitted", metavar="FILE", help="embedded-metric-format documents, one per line; - is stdin")
    parser.add_argument("--actions", action="store_true", help="print the roles' DynamoDB actions as JSON and exit")
    parser.add_argument("--set", action="append", default=[], metavar="PARAMETER=VALUE", help="with --actions")
    arguments = parser.parse_args()
    if arguments.actions:
        given = {"AttributesTable": TABLE, **dict(pair.split("=", 1) for pair in arguments.set)}
        deployment = Deployment(given)
        check_roles(deployment, "as given")
        print(json.dumps(actions(deployment), indent=2))
        exit_on_failure()
        return

    metrics = Metrics(arguments.emitted)
    resources = set()
    for variant, given in VARIANTS.items():
        try:
            deployment = Deployment(given)
            # Resolving is a check: a broken reference raises.
            resources.update(logical for logical, _ in deployment.resources())
            dict(deployment.outputs())
            check_roles(deployment, variant)
            check_functions(deployment, variant)
            check_schedules(deployment, variant)
            check_table(deployment, variant)
            if deployment.has("Alarms"):
                check_alarms(deployment, metrics, dict(deployment.outputs())["AlarmTopic"])
            expect(deployment.has("Alarms") == (deployment.parameters["Monitoring"] != "none"), f"{variant}: alarms")
            check_dashboard(deployment, metrics)
        except Unresolved as problem:
            failures.append(f"{variant}: {problem}")
    check_order(deployment.template)
    check_size()
    number = check_combinations()
    never = set(deployment.template["Resources"]) - resources
    expect(not never, f"no variant has {', '.join(sorted(never))}")
    exit_on_failure()
    compared = "what the functions emitted" if arguments.emitted else "metric.rs"
    print(f"template: {len(resources)} resources in {len(VARIANTS)} variants are correct, {number} combinations resolve;"
          f" metrics compared with {compared}")


if __name__ == "__main__":
    main()
