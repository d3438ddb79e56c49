#!/usr/bin/env python3
"""Reads the transformed template and holds it to what it promises: references, roles, metrics, alarms, dashboard.

    template_checks.py                      compare metrics with the names in jobs/src/metric.rs
    template_checks.py --emitted FILE       compare them with what the functions printed: one embedded-metric-format
                                            document a line; `-` is standard input, other lines are passed over
    template_checks.py --actions            print what each function's role may do on DynamoDB, as JSON, and stop
    template_checks.py --set Mode=dry-run   with --actions: the parameters to deploy with
"""

import argparse
import json
import re
import sys

from sam_template import ACCOUNT, REGION, ROOT, STACK, STREAM, TABLE, VARIANTS, Deployment, Unresolved, binaries

NAMESPACE = "ActingWeb/Janitor"
STATE_OWNER = "_actingweb_janitor"
TABLE_ARN = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{TABLE}"
STREAM_ARN = STREAM.format(region=REGION, account=ACCOUNT)
# The mapping reads the stream with the function's role. Looking for streams knows the table only, as in SAM's own policy.
OF_STREAM = {f"dynamodb:{action}": STREAM_ARN for action in ("DescribeStream", "GetRecords", "GetShardIterator")}
OF_STREAM["dynamodb:ListStreams"] = f"{TABLE_ARN}/stream/*"
ONLY_OWN_STATE = {
    "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [STATE_OWNER]},
    "Null": {"dynamodb:LeadingKeys": "false"},
}
READS = {f"dynamodb:{action}" for action in (
    "DescribeTable", "DescribeTimeToLive", "Query", "Scan", "BatchGetItem", "GetItem")}
# Closed lists: what is on none of them fails, so that a new action is a decision.
CLEANERS = {"daily-cleanup", "index-repair"}
UNBOUND = {
    "daily-cleanup": READS - {"dynamodb:GetItem"} | {"dynamodb:PartiQLDelete"},
    "index-repair": READS - {"dynamodb:GetItem"} | {"dynamodb:PartiQLDelete"},
    "metrics-emitter": READS - {"dynamodb:GetItem", "dynamodb:BatchGetItem"},
    "enable-ttl": {
        "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive", "dynamodb:UpdateTimeToLive", "dynamodb:UpdateTable"},
    "ttl-cascade": {
        "dynamodb:DescribeTable", "dynamodb:Query", "dynamodb:BatchGetItem", "dynamodb:PartiQLDelete"},
}
# The table of settings: `make docs` writes it, tests/cli.rs compares it with the program.
SETTINGS = json.loads((ROOT / "tests/golden/settings.json").read_text(encoding="utf-8"))
JOBS = {"daily-cleanup": "cleanup", "index-repair": "repair", "metrics-emitter": "metrics", "ttl-cascade": "cascade"}
# Closed lists: a setting that is on none of them needs a parameter. The table has one name in the template, and no local endpoint.
BY_EVENT_ONLY = {"AWS_DB_PREFIX", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_DB_HOST", "REUSE_WINDOW_SECONDS", "GRACE_SECONDS",
                 "RESTORE_CLIENTS", "REMOVE_LEGACY", "SCOPE"}
NOT_GIVEN = {
    "metrics-emitter": {"MAX_WRITE_UNITS_PER_SECOND", "MAX_AUDIT_UNITS"},  # writes nothing; the audit is scheduled with its own input
    "ttl-cascade": {"MAX_DELETES"},  # a limit for a batch would only delay the batch
    "BacklogCleanup": {"BACKLOG_AFTER_INCOMPLETE_RUNS"},  # is the backlog execution
}
# The same binaries once more, for the state machine.
BACKLOG = {"BacklogCleanup": "DailyCleanup", "BacklogRepair": "IndexRepair"}
MACHINE = f"{STACK}-backlog"
EVENT_BUS = f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/default"
OWN_STATE = {"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:DeleteItem"}
OF_ACTORS = {"dynamodb:Scan", "dynamodb:BatchGetItem"}

SCHEDULES = {
    "DailyCleanupDaily": "CleanupSchedule",
    "IndexRepairWeekly": "RepairSchedule",
    "MetricsEmitterHourly": "MetricsSchedule",
    "MetricsEmitterAudit": "AuditSchedule",
}

# Metrics of AWS's own that are used, with the dimensions AWS publishes them under.
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
# The sets of dimensions that metric.rs describes; which metric has which, only --emitted can tell.
DIMENSIONS = {
    ("Table",), ("Bucket", "Table"), ("Owner", "Table"), ("Function", "Table"), ("Bucket", "Function", "Table")}
OWNERS = {"system", "actor", "legacy", "unknown", "janitor"}

failures = []


def expect(truth, words):
    if not truth and words not in failures:
        failures.append(words)


def as_list(value):
    return value if isinstance(value, list) else [value]


# ---- Roles


def statements(properties):
    for policy in properties.get("Policies", []):
        for statement in policy["PolicyDocument"]["Statement"]:
            yield {**statement, "Action": as_list(statement["Action"]), "Resource": as_list(statement["Resource"])}


def role_of(deployment, logical):
    (name, _), = deployment.template["Resources"][logical]["Properties"]["Role"].values()
    return name


def actions(deployment):
    """What each function may do on DynamoDB: on any row, on the janitor's own rows only, and on the table of actors.

    What Lambda does with the role, reading the stream, is not the function's and not told.
    """
    found = {}
    for logical in binaries():
        if not deployment.has(logical):
            continue
        properties = deployment.resolve(deployment.template["Resources"][role_of(deployment, logical)]["Properties"])
        may = {"table": set(), "own_state": set(), "actors": set()}
        for statement in statements(properties):
            of_table = [action for action in statement["Action"] if action.startswith("dynamodb:")]
            if not of_table or set(of_table) <= set(OF_STREAM):
                continue
            if statement["Resource"] != [TABLE_ARN]:
                may["actors"].update(of_table)
            else:
                may["own_state" if "Condition" in statement else "table"].update(of_table)
        found[logical] = {on: sorted(may[on]) for on in may}
    return found


def check_twins(deployment, variant):
    """The same binary, whoever starts it, asks for the same."""
    may = actions(deployment)
    for logical, twin in BACKLOG.items():
        expect(may.get(logical, may[twin]) == may[twin], f"{variant}: {logical} may do other things than {twin}")


def check_roles(deployment, variant):
    used = {}
    for logical, binary in binaries().items():
        if not deployment.has(logical):
            continue
        role = role_of(deployment, logical)
        expect(role not in used, f"{role} is the role of {used.get(role)} and of {logical}: one each")
        used[role] = logical
        check_role(deployment, variant, logical, binary, role)
    check_twins(deployment, variant)
    for role, properties in deployment.resources("AWS::IAM::Role"):
        expect("ManagedPolicyArns" not in properties, f"{role} has managed policies, which allow more than it needs")
        if role == "BacklogRole":
            check_backlog_role(deployment, properties)
        elif role == "HandOverRole":
            check_hand_over_role(deployment, properties)
        elif role not in used:
            check_scheduler_role(deployment, role, properties)
    check_hand_over(deployment)
    expect(not list(deployment.resources("AWS::IAM::Policy")), "policies belong into the roles")


def log_group(logical, binary):
    return f"/aws/lambda/{STACK}/{binary}{'-backlog' if logical in BACKLOG else ''}"


def check_role(deployment, variant, logical, binary, role):
    properties = deployment.resolve(deployment.template["Resources"][role]["Properties"])
    service = properties["AssumeRolePolicyDocument"]["Statement"][0]["Principal"]
    expect(service == {"Service": "lambda.amazonaws.com"}, f"{role} may be assumed by {service}")
    logs = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{log_group(logical, binary)}:*"
    dry = deployment.parameters["Mode"] == "dry-run"
    for statement in statements(properties):
        where = f"{variant}: {role}, {statement.get('Sid')}"
        expect(statement["Effect"] == "Allow", f"{where}: not an Allow")
        expect("NotAction" not in statement and "NotResource" not in statement, f"{where}: allows all but something")
        condition = statement.get("Condition")
        for action in statement["Action"]:
            expect("*" not in action, f"{where}: {action} is a wildcard")
            for resource in statement["Resource"]:
                check_permission(deployment, where, binary, action, resource, condition, logs, dry)


def check_permission(deployment, where, binary, action, resource, condition, logs, dry):
    service = action.split(":")[0]
    if service == "xray":
        expect(deployment.parameters["Tracing"] == "Active", f"{where}: {action} though tracing is off")
        expect(action in {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}, f"{where}: {action}")
        return
    if service == "logs":
        expect(action in {"logs:CreateLogStream", "logs:PutLogEvents"}, f"{where}: {action}")
        expect(resource == logs, f"{where}: {action} on {resource}, which is not its own log group")
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
        hands_over = binary == "daily-cleanup" and deployment.has("HandOver")
        expect(hands_over and (action, resource) == ("events:PutEvents", EVENT_BUS), f"{where}: {action} on {resource}")
        return
    expect(service == "dynamodb", f"{where}: {action} is of a service nobody needs")
    if resource != TABLE_ARN:
        actors = deployment.parameters["ActorsTable"]
        expect(
            binary == "index-repair" and actors and resource.endswith(f":table/{actors}") and action in OF_ACTORS,
            f"{where}: {action} on {resource}, another table",
        )
        return
    if dry:
        expect(action in READS | UNBOUND["enable-ttl"], f"{where}: {action} in a stack that is deployed dry")
    if condition is None:
        expect(action in UNBOUND[binary], f"{where}: {action} on any row of the table")
    else:
        expect(condition == ONLY_OWN_STATE, f"{where}: its condition is not the one on {STATE_OWNER}")
        expect(binary in CLEANERS and action in OWN_STATE, f"{where}: {action} on state rows")


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
    if deployment.parameters["Tracing"] == "Active":
        allowed |= {("xray:PutTraceSegments", "*"), ("xray:PutTelemetryRecords", "*")}
    may = {(action, resource) for statement in statements(properties)
           for action in statement["Action"] for resource in statement["Resource"]}
    expect(may == allowed, f"BacklogRole may do {sorted(may ^ allowed)}")


def check_hand_over_role(deployment, properties):
    trust = properties["AssumeRolePolicyDocument"]["Statement"][0]
    expect(trust["Principal"] == {"Service": "events.amazonaws.com"}, f"HandOverRole is for {trust['Principal']}")
    expect("aws:SourceAccount" in trust.get("Condition", {}).get("StringEquals", {}), "HandOverRole is for anybody")
    may = [(statement["Action"], statement["Resource"]) for statement in statements(properties)]
    expect(may == [(["states:StartExecution"], [deployment.id_of("Backlog")])], f"HandOverRole may do {may}")


def check_hand_over(deployment):
    """What a rule could not start is told where every other failure is; the queue takes it from that rule only."""
    queue = deployment.resolve({"Fn::GetAtt": "FailureQueue.Arn"})
    policies = [properties for _, properties in deployment.resources("AWS::SQS::QueuePolicy")]
    expect(len(policies) == deployment.has("HandOver"), f"{len(policies)} policies of the queue")
    for _, rule in deployment.resources("AWS::Events::Rule"):
        for target in rule["Targets"]:
            expect(target.get("DeadLetterConfig") == {"Arn": queue}, "HandOver: no dead-letter queue")
            expect(target.get("RetryPolicy", {}).get("MaximumRetryAttempts", 185) <= 5, "HandOver: unbounded retry")
    for policy in policies:
        (statement,) = policy["PolicyDocument"]["Statement"]
        rule = deployment.resolve({"Fn::GetAtt": "HandOver.Arn"})
        expect(statement["Principal"] == {"Service": "events.amazonaws.com"}, "the queue takes from others")
        expect(statement["Condition"] == {"ArnEquals": {"aws:SourceArn": rule}}, "the queue takes from other rules")
        may = statement["Effect"], statement["Action"], statement["Resource"]
        expect(may == ("Allow", "sqs:SendMessage", queue), f"the queue lets do {may}")


def check_scheduler_role(deployment, role, properties):
    trust = properties["AssumeRolePolicyDocument"]["Statement"][0]
    service = trust["Principal"]
    expect(service == {"Service": "scheduler.amazonaws.com"}, f"{role} may be assumed by {service}")
    bound = trust.get("Condition", {}).get("StringEquals", {})
    expect("aws:SourceArn" in bound, f"{role} may be assumed for anybody's schedule")
    mine = {deployment.resolve({"Fn::GetAtt": f"{logical}.Arn"}) for logical in binaries() if deployment.has(logical)}
    queue = deployment.resolve({"Fn::GetAtt": "FailureQueue.Arn"})
    for statement in statements(properties):
        for resource in statement["Resource"]:
            allowed = (statement["Action"] == ["lambda:InvokeFunction"] and resource in mine) or (
                statement["Action"] == ["sqs:SendMessage"] and resource == queue)
            expect(allowed, f"{role}: {statement['Action']} on {resource}")


# ---- Metrics


def names_in_source():
    text = (ROOT / "jobs/src/metric.rs").read_text()
    names = set(re.findall(r'^\s+[A-Z0-9_]+ = "(\w+)", "\w+";', text, re.M))
    if len(names) < 20:
        sys.exit("template_checks.py: jobs/src/metric.rs is not written as it was: no names found in it")
    return names


def read_emitted(path):
    """Name and dimensions of each metric that was printed, and the values seen for each dimension but the table's."""
    metrics, values = set(), set()
    with sys.stdin if path == "-" else open(path, encoding="utf-8") as lines:
        for line in lines:
            if '"_aws"' not in line:
                continue
            document = json.loads(line)
            for directive in document["_aws"]["CloudWatchMetrics"]:
                if directive["Namespace"] != NAMESPACE:
                    continue
                for dimensions in directive["Dimensions"]:
                    key = tuple(sorted(dimensions))
                    for metric in directive["Metrics"]:
                        metrics.add((metric["Name"], key))
                        values.update((metric["Name"], key, name, document[name]) for name in dimensions)
    if not metrics:
        sys.exit(f"template_checks.py: {path} holds no embedded-metric-format document of {NAMESPACE}")
    return metrics, values


class Metrics:
    """What the functions tell CloudWatch, by whichever source."""

    def __init__(self, emitted):
        self.names = names_in_source()
        self.emitted, self.values = read_emitted(emitted) if emitted else (None, None)
        self.functions = set(binaries().values())

    def check(self, where, namespace, name, dimensions):
        key = tuple(sorted(dimensions))
        if namespace != NAMESPACE:
            expect((namespace, name, key) in OF_AWS, f"{where}: {namespace} {name} by {key} is not a metric of AWS's")
            return
        expect(name in self.names, f"{where}: {name} is not a metric of jobs/src/metric.rs")
        expect(key in DIMENSIONS, f"{where}: {name} by {key}: no metric has these dimensions")
        expect(dimensions.get("Table") == TABLE, f"{where}: {name} is of table {dimensions.get('Table')}")
        function, owner = dimensions.get("Function"), dimensions.get("Owner")
        expect(function is None or function in self.functions, f"{where}: {name} of {function}, which is no function")
        expect(owner is None or owner in OWNERS, f"{where}: {name} of owner {owner}, which is no kind of owner")
        if self.emitted is None:
            return
        expect((name, key) in self.emitted, f"{where}: no function emitted {name} by {key}")
        for dimension, value in dimensions.items():
            if dimension != "Table" and value is not None:
                seen = (name, key, dimension, value) in self.values
                expect(seen, f"{where}: no function emitted {name} with {dimension}={value}")


SEARCH = re.compile(r"""SEARCH\('\{([^}]+)\} MetricName="(\w+)" Table="([^"]+)"', '\w+', \d+\)""")


def searched(expression):
    match = SEARCH.fullmatch(expression)
    if match is None:
        return None
    schema, name, table = match.groups()
    namespace, *dimensions = schema.split(",")
    return namespace, name, {dimension: table if dimension == "Table" else None for dimension in dimensions}


def check_alarms(deployment, metrics, topic):
    for logical, alarm in deployment.resources("AWS::CloudWatch::Alarm"):
        expect("TreatMissingData" in alarm, f"{logical} does not say what a missing point means")
        description = alarm.get("AlarmDescription", "")
        expect(80 < len(description) <= 1024, f"{logical}: a description of {len(description)} characters")
        expect(alarm["AlarmActions"] == [topic], f"{logical} tells {alarm['AlarmActions']}")
        periods = set()
        if "Metrics" in alarm:
            ids = {part["Id"] for part in alarm["Metrics"]}
            shown = [part for part in alarm["Metrics"] if part.get("ReturnData", True)]
            expect(len(shown) == 1, f"{logical} returns {len(shown)} series")
            for part in alarm["Metrics"]:
                if "Expression" in part:
                    words = set(re.findall(r"\b[a-z][a-z_]*\b", part["Expression"]))
                    expect(words <= ids, f"{logical}: {words - ids} in its expression is no metric of it")
                    expect(words == ids - {part["Id"]}, f"{logical}: its expression leaves out a metric")
                else:
                    one = part["MetricStat"]["Metric"]
                    periods.add(int(part["MetricStat"]["Period"]))
                    metrics.check(logical, one["Namespace"], one["MetricName"],
                                  {d["Name"]: d["Value"] for d in one["Dimensions"]})
        else:
            periods.add(int(alarm["Period"]))
            metrics.check(logical, alarm["Namespace"], alarm["MetricName"],
                          {d["Name"]: d["Value"] for d in alarm["Dimensions"]})
        expect(len(periods) == 1, f"{logical} mixes periods")
        # CloudWatch's own limits on how far an alarm looks back.
        reach = max(periods) * int(alarm["EvaluationPeriods"])
        expect(reach <= (604_800 if min(periods) >= 3600 else 86_400), f"{logical} looks back {reach} s")


def check_dashboard(deployment, metrics):
    for logical, dashboard in deployment.resources("AWS::CloudWatch::Dashboard"):
        body = json.loads(dashboard["DashboardBody"])
        taken = set()
        alarms = set()
        for widget in body["widgets"]:
            where = f"{logical}, {widget['properties'].get('title', widget['type'])}"
            cells = {(x, y) for x in range(widget["x"], widget["x"] + widget["width"])
                     for y in range(widget["y"], widget["y"] + widget["height"])}
            expect(not cells & taken and widget["x"] + widget["width"] <= 24, f"{where} lies over another widget")
            taken |= cells
            alarms.update(widget["properties"].get("alarms", []))
            if widget["type"] == "log":
                check_query(deployment, where, widget["properties"]["query"])
            for row in widget["properties"].get("metrics", []):
                check_row(where, row, metrics)
        there = {f"arn:aws:cloudwatch:{REGION}:{ACCOUNT}:alarm:{alarm['AlarmName']}"
                 for _, alarm in deployment.resources("AWS::CloudWatch::Alarm")}
        expect(alarms == there, f"{logical} does not show exactly the alarms there are: {alarms ^ there}")


def check_query(deployment, where, query):
    sources = re.findall(r"SOURCE '([^']+)'", query)
    there = [properties["LogGroupName"] for _, properties in deployment.resources("AWS::Logs::LogGroup")]
    expect(sorted(sources) == sorted(there), f"{where}: not every function's lines: {set(sources) ^ set(there)}")
    for field in ("error.kind", "error.text", "finding.kind", "finding.text"):
        expect(f"`{field}`" in query, f"{where}: no {field}")


def check_row(where, row, metrics):
    if isinstance(row[0], dict):
        found = searched(row[0]["expression"])
        if found is None:
            expect(False, f"{where}: this is no search that is understood: {row[0]['expression']}")
        else:
            metrics.check(where, *found)
        return
    words = [word for word in row if isinstance(word, str)]
    metrics.check(where, words[0], words[1], dict(zip(words[2::2], words[3::2], strict=True)))


# ---- Functions and schedules


def check_functions(deployment, variant):
    queue = deployment.resolve({"Fn::GetAtt": "FailureQueue.Arn"})
    invoked = {properties["FunctionName"]: properties for _, properties in
               deployment.resources("AWS::Lambda::EventInvokeConfig")}
    for logical, function in deployment.resources("AWS::Lambda::Function"):
        binary = binaries()[logical]
        expect(function["Runtime"] == "provided.al2023", f"{logical}: runtime {function['Runtime']}")
        expect(function["Architectures"] == [deployment.parameters["Architecture"]], f"{logical}: architecture")
        expect(function["LoggingConfig"]["LogFormat"] == "JSON", f"{logical}: logs are not JSON")
        expect(function["LoggingConfig"]["LogGroup"] == log_group(logical, binary), f"{logical}: another's logs")
        # The alarms look for the function by this name, so it must be the one that CloudFormation gives.
        expect("FunctionName" not in function, f"{logical} has a fixed name: two stacks could not be")
        reserves = deployment.parameters["ReserveConcurrency"] == "true"
        reserved = {"ttl-cascade": 2, **dict.fromkeys(CLEANERS, 1)}.get(binary) if reserves else None
        if logical in BACKLOG and reserves:
            reserved = deployment.parameters["BacklogSideBySide"]
        expect(function.get("ReservedConcurrentExecutions") == reserved, f"{variant}: {logical}: concurrency")
        if binary == "ttl-cascade":
            check_mapping(deployment, variant, logical, queue)
        elif logical not in BACKLOG:
            success = {"Destination": EVENT_BUS} if logical == "DailyCleanup" and deployment.has("HandOver") else None
            check_invocations(logical, invoked.get(deployment.id_of(logical), {}), queue, success)
        given = function.get("Environment", {}).get("Variables", {})
        check_settings(logical, binary, set(given))
        expect(binary == "enable-ttl" or given.get("ATTRIBUTES_TABLE") == TABLE, f"{logical}: no table")


def check_settings(logical, binary, given):
    """A function is given each setting that its job takes, and nothing that is not one."""
    takes = {setting["name"] for setting in SETTINGS if JOBS.get(binary) in setting["jobs"]}
    expect(given <= takes, f"{logical}: {given - takes} is no setting of {JOBS.get(binary)}")
    missing = takes - given - BY_EVENT_ONLY - NOT_GIVEN.get(logical, set()) - NOT_GIVEN.get(binary, set())
    expect(not missing, f"{logical}: the template does not pass {missing}")


def check_invocations(logical, config, queue, success):
    destinations = config.get("DestinationConfig", {})
    expect(destinations.get("OnFailure") == {"Destination": queue}, f"{logical}: failures vanish")
    expect(destinations.get("OnSuccess") == success, f"{logical}: answers go to {destinations.get('OnSuccess')}")
    expect(config.get("MaximumRetryAttempts", 9) <= 2, f"{logical}: retries")


def check_mapping(deployment, variant, logical, queue):
    """What wakes the cascade: the table's stream, bounded in every direction, and nothing lost without a trace."""
    mappings = [properties for _, properties in deployment.resources("AWS::Lambda::EventSourceMapping")]
    expect(len(mappings) == 1, f"{variant}: {len(mappings)} mappings")
    for mapping in mappings:
        wanted = {
            "EventSourceArn": STREAM_ARN,
            "FunctionName": deployment.id_of(logical),
            "StartingPosition": "TRIM_HORIZON",
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "BisectBatchOnFunctionError": True,
            "ParallelizationFactor": 1,
            "DestinationConfig": {"OnFailure": {"Destination": queue}},
        }
        for name, value in wanted.items():
            expect(mapping.get(name) == value, f"{variant}: the mapping's {name} is {mapping.get(name)}")
        expect(0 < mapping.get("MaximumBatchingWindowInSeconds", 0) <= 300, "the mapping gathers nothing, or too long")
        expect(0 < mapping.get("MaximumRetryAttempts", -1) <= 100, "the mapping tries for ever, or never again")
        # The stream itself forgets after a day.
        expect(60 <= mapping.get("MaximumRecordAgeInSeconds", -1) < 86_400, "the mapping's records never age")
        for one in mapping["FilterCriteria"]["Filters"]:
            json.loads(one["Pattern"])


def check_schedules(deployment, variant):
    queue = deployment.resolve({"Fn::GetAtt": "FailureQueue.Arn"})
    schedules = dict(deployment.resources("AWS::Scheduler::Schedule"))
    expect(len(schedules) == 4, f"{variant}: {len(schedules)} schedules")
    for logical, schedule in schedules.items():
        target = schedule["Target"]
        parameter = SCHEDULES.get(logical)
        written = deployment.template["Resources"][logical]["Properties"]
        expect(written["ScheduleExpression"] == {"Ref": parameter}, f"{logical} is not at {parameter}")
        expect(written["State"] == {"Ref": f"{parameter}State"}, f"{logical} is not switched by {parameter}State")
        expect(target.get("DeadLetterConfig") == {"Arn": queue}, f"{logical}: no dead-letter queue")
        expect(target.get("RetryPolicy", {}).get("MaximumRetryAttempts", 185) <= 5, f"{logical}: unbounded retry")
        expect(schedule["FlexibleTimeWindow"]["Mode"] == "FLEXIBLE", f"{logical}: no flexible window")
        expect(schedule.get("GroupName") == STACK, f"{logical}: in a group that others share")
        json.loads(target.get("Input", "{}"))


def check_table(deployment, variant):
    tables = [properties for _, properties in deployment.resources("AWS::DynamoDB::Table")]
    custom = [properties for _, properties in deployment.resources("Custom::EnableTtl")]
    creates = deployment.parameters["CreateTable"] == "true"
    # A stack that is deployed dry changes nothing; a table that it makes has TTL from the beginning.
    enables = deployment.parameters["TimeToLive"] == "enable"
    wants = enables and deployment.parameters["Mode"] == "delete"
    cascades = deployment.parameters["TtlCascade"] == "true" and deployment.parameters["Mode"] == "delete"
    expect(len(tables) == int(creates), f"{variant}: {len(tables)} tables")
    expect(len(custom) == int((wants or cascades) and not creates), f"{variant}: {len(custom)} custom resources")
    expect(deployment.has("Cascade") == cascades, f"{variant}: the cascade")
    expect(deployment.has("EnableTtl") == bool(custom), f"{variant}: the function without its custom resource")
    for properties in custom:
        expect(properties["TableName"] == TABLE, "the custom resource is given another table")
        asked = properties["TimeToLive"] == "enable", properties["Stream"] == "true"
        expect(asked == (wants, cascades), f"{variant}: the custom resource is asked for {properties}")
        function = deployment.resolve(deployment.template["Resources"]["EnableTtl"]["Properties"])
        expect(int(properties["ServiceTimeout"]) > function["Timeout"], "CloudFormation gives up before the function")
    for table in tables:
        ttl = {"AttributeName": "ttl_timestamp", "Enabled": True} if enables else None
        expect(table.get("TimeToLiveSpecification") == ttl, f"{variant}: TTL is {table.get('TimeToLiveSpecification')}")
        stream = {"StreamViewType": "OLD_IMAGE"} if cascades else None
        expect(table.get("StreamSpecification") == stream, f"{variant}: stream {table.get('StreamSpecification')}")
        keys = [(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]]
        expect(keys == [("id", "HASH"), ("bucket_name", "RANGE")], "the new table is not ActingWeb's")
        expect(table["DeletionProtectionEnabled"] is True, "the new table can be deleted")
        expect(table["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True, "no recovery")
    for resource in deployment.template["Resources"].values():
        if resource["Type"] == "AWS::DynamoDB::Table":
            kept = {resource.get("DeletionPolicy"), resource.get("UpdateReplacePolicy")}
            expect(kept == {"Retain"}, "a table goes with its stack")


def told():
    for failure in failures:
        print(f"template_checks.py: {failure}", file=sys.stderr)
    return int(bool(failures))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emitted", metavar="FILE", help="embedded-metric-format documents, one a line; - is stdin")
    parser.add_argument("--actions", action="store_true", help="print the roles' DynamoDB actions as JSON and stop")
    parser.add_argument("--set", action="append", default=[], metavar="PARAMETER=VALUE", help="with --actions")
    arguments = parser.parse_args()
    if arguments.actions:
        given = {"AttributesTable": TABLE, **dict(pair.split("=", 1) for pair in arguments.set)}
        deployment = Deployment(given)
        check_roles(deployment, "as given")
        print(json.dumps(actions(deployment), indent=2))
        sys.exit(told())

    metrics = Metrics(arguments.emitted)
    resources = set()
    for variant, given in VARIANTS.items():
        try:
            deployment = Deployment(given)
            # Resolving is the check: a reference that leads nowhere raises.
            resources.update(logical for logical, _ in deployment.resources())
            dict(deployment.outputs())
            check_roles(deployment, variant)
            check_functions(deployment, variant)
            check_schedules(deployment, variant)
            check_table(deployment, variant)
            if deployment.parameters["Alarms"] == "true":
                made = deployment.parameters["AlarmTopicArn"] == ""
                topic = deployment.id_of("AlarmTopic") if made else deployment.parameters["AlarmTopicArn"]
                check_alarms(deployment, metrics, topic)
            check_dashboard(deployment, metrics)
        except Unresolved as problem:
            failures.append(f"{variant}: {problem}")
    never = set(deployment.template["Resources"]) - resources
    expect(not never, f"no variant has {', '.join(sorted(never))}: it is not checked")
    if told():
        sys.exit(1)
    source = "what the functions emitted" if arguments.emitted else "jobs/src/metric.rs"
    print(f"template: {len(resources)} resources in {len(VARIANTS)} variants hold; metrics compared with {source}")


if __name__ == "__main__":
    main()
