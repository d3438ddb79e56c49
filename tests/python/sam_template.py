"""template.yaml and its nested stacks as CloudFormation sees them: transformed, with parameters and conditions evaluated.

The checks and the rehearsal use it. A value that cannot be resolved is an error.
"""

import functools
import itertools
import logging
import os
import re
from pathlib import Path

os.environ.setdefault("AWS_DEFAULT_REGION", "eu-west-1")

from samtranslator.translator.transform import transform  # noqa: E402
from samtranslator.yaml_helper import yaml_parse  # noqa: E402

# At exit it warns about its own statistics, which are not collected here.
logging.getLogger("samtranslator").setLevel(logging.ERROR)

ROOT = Path(__file__).resolve().parents[2]
REGION = os.environ["AWS_DEFAULT_REGION"]
ACCOUNT = "123456789012"
STACK = "janitor"
TABLE = "myapp_attributes"
CODE = {"bucket": "artifacts", "key": "bootstrap.zip"}

DEFINITION = {"bucket": "artifacts", "key": "backlog.asl.json"}
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:operators"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/boundary"
SCHEDULES = ("CleanupSchedule", "RepairSchedule", "MetricsSchedule", "AuditSchedule")

# Realistic deployments; together they make every condition true and false.
VARIANTS = {
    "dry run": {"AttributesTable": TABLE, "TimeToLive": "enable-with-cascade"},
    "existing table": {"AttributesTable": TABLE, "Mode": "delete"},
    "new table": {
        "AttributesTable": TABLE,
        "Mode": "delete",
        "CreateTable": "true",
        "AlarmEmail": "operator@example.com",
        "MaxTableRows": "1000000",
    },
    "new table, TTL left alone": {
        "AttributesTable": TABLE,
        "Mode": "delete",
        "CreateTable": "true",
        "TimeToLive": "leave",
        "BacklogAfterIncompleteRuns": "0",
    },
    "new table, dry run": {"AttributesTable": TABLE, "CreateTable": "true", "TimeToLive": "enable-with-cascade"},
    "new table with cascade": {
        "AttributesTable": TABLE, "Mode": "delete", "CreateTable": "true", "TimeToLive": "enable-with-cascade"},
    "repair not scheduled": {"AttributesTable": TABLE, "Mode": "delete", "RepairSchedule": ""},
    "everything given": {
        "AttributesTable": TABLE,
        "TimeToLive": "enable-with-cascade",
        "TableKeyArn": KEY,
        "Mode": "delete",
        "ExpiredRows": "retire",
        "MaxDeletes": "1000",
        "MaxDeleteShare": "0.5",
        "MaxWriteUnitsPerSecond": "100",
        "MaxReadUnitsPerSecond": "200.5",
        "BacklogAfterIncompleteRuns": "5",
        "AlarmTopicArn": TOPIC,
        "MaxTableRows": "1000000",
        "Architecture": "x86_64",
        "PermissionsBoundary": BOUNDARY,
        "SubnetIds": "subnet-0123456789abcdef0,subnet-0123456789abcdef1",
        "SecurityGroupIds": "sg-0123456789abcdef0",
        "LogLevel": "DEBUG",
    },
    "everything off": {
        "AttributesTable": TABLE,
        "TimeToLive": "leave",
        "Monitoring": "none",
        "BacklogAfterIncompleteRuns": "0",
        **dict.fromkeys(SCHEDULES, ""),
    },
}


def combinations():
    """Every combination of the parameters in conditions; parameters that only add a property vary in turn."""
    schedules = [(), *((name,) for name in SCHEDULES), SCHEDULES]
    turns = itertools.cycle([
        {},
        {"TableKeyArn": KEY, "AlarmEmail": "operator@example.com", "MaxTableRows": "5"},
        {"PermissionsBoundary": BOUNDARY, "SubnetIds": "subnet-0123456789abcdef0", "SecurityGroupIds": "sg-0123456789abcdef0"},
    ])
    for create, ttl, mode, backlog, off, monitoring, topic in itertools.product(
        ("false", "true"), ("leave", "enable", "enable-with-cascade"), ("dry-run", "delete"), ("0", "3"), schedules,
        ("none", "alarms", "alarms-and-dashboard"), ("", TOPIC),
    ):
        yield {
            "AttributesTable": TABLE, "CreateTable": create, "TimeToLive": ttl, "Mode": mode,
            "BacklogAfterIncompleteRuns": backlog, "Monitoring": monitoring, "AlarmTopicArn": topic,
            **dict.fromkeys(off, ""), **next(turns),
        }


class Unresolved(Exception):
    """A reference to something that does not exist in this deployment."""


class _NoManagedPolicies:
    """The transform loads AWS's managed policies by name; the template must not use any."""

    def load(self):
        return {}


def source():
    return yaml_parse((ROOT / "template.yaml").read_text())


def transformed(given):
    """The template after the SAM transform, which, as in AWS, gets the values of the parameters."""
    document = source()
    # Instead of `sam build` and `sam package`, which upload the code and the files.
    for logical in binaries():
        document["Resources"][logical]["Properties"]["CodeUri"] = {"Bucket": CODE["bucket"], "Key": CODE["key"]}
    document["Resources"]["Backlog"]["Properties"]["DefinitionUri"] = {
        "Bucket": DEFINITION["bucket"], "Key": DEFINITION["key"], "Version": 1}
    return transform(document, dict(given), _NoManagedPolicies())


@functools.cache
def nested(path):
    """The template of a nested stack, which must not use a transform."""
    document = yaml_parse((ROOT / path).read_text())
    assert "Transform" not in document, f"{path} uses a transform, which requires another capability"
    return document


STREAM = f"arn:aws:dynamodb:{{region}}:{{account}}:table/{TABLE}/stream/2026-11-16T00:00:00.000"
# An attribute, derived from a resource's physical id.
ATTRIBUTES = {
    ("AWS::Lambda::Function", "Arn"): "arn:aws:lambda:{region}:{account}:function:{id}",
    ("AWS::CloudWatch::Dashboard", "Arn"): "arn:aws:cloudwatch::{account}:dashboard/{id}",
    ("AWS::IAM::Role", "Arn"): "arn:aws:iam::{account}:role/{id}",
    ("AWS::Logs::LogGroup", "Arn"): "arn:aws:logs:{region}:{account}:log-group:{id}:*",
    ("AWS::Events::Rule", "Arn"): "arn:aws:events:{region}:{account}:rule/{id}",
    ("AWS::SQS::Queue", "Arn"): "arn:aws:sqs:{region}:{account}:{name}",
    ("AWS::SQS::Queue", "QueueName"): "{name}",
    ("AWS::CloudWatch::Alarm", "Arn"): "arn:aws:cloudwatch:{region}:{account}:alarm:{id}",
    ("AWS::DynamoDB::Table", "Arn"): "arn:aws:dynamodb:{region}:{account}:table/{id}",
    ("AWS::DynamoDB::Table", "StreamArn"): STREAM,
    # From the function's answer, not derived from the id.
    ("Custom::EnableTtl", "StreamArn"): STREAM,
}
# The property that names a resource; Ref returns it where the template sets it.
NAMES = {
    "AWS::CloudWatch::Alarm": "AlarmName",
    "AWS::CloudWatch::Dashboard": "DashboardName",
    "AWS::DynamoDB::Table": "TableName",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::Scheduler::Schedule": "Name",
    "AWS::Scheduler::ScheduleGroup": "Name",
}
REF_IS_ARN = {
    "AWS::CloudFormation::Stack": "arn:aws:cloudformation:{region}:{account}:stack/{name}/1",
    "AWS::IAM::ManagedPolicy": "arn:aws:iam::{account}:policy/{name}",
    "AWS::SNS::Topic": "arn:aws:sns:{region}:{account}:{name}",
    "AWS::StepFunctions::StateMachine": f"arn:aws:states:{{region}}:{{account}}:stateMachine:{STACK}-backlog",
}
_NOTHING = object()


class Deployment:
    """One template with one set of parameters: its resources, with resolved properties."""

    def __init__(self, given, account=ACCOUNT, physical=None, stream=None, template=None, name=STACK):
        self.template = template or transformed(given)
        self.given = given
        self.account = account
        self.physical = physical or {}
        self.stream = stream
        self.name = name
        self.conditions = self.template.get("Conditions", {})
        self.parameters = {}
        for parameter_name, parameter in self.template["Parameters"].items():
            value = given.get(parameter_name, parameter.get("Default"))
            if value is None:
                raise Unresolved(f"parameter {parameter_name} has no value")
            self.parameters[parameter_name] = str(value)
            self._allowed(parameter_name, parameter)
        unknown = set(given) - set(self.parameters)
        if unknown:
            raise Unresolved(f"no such parameter: {', '.join(sorted(unknown))}")
        self._children = {}

    def child(self, logical):
        """A nested stack, with the parameters that this stack passes."""
        if not self.has(logical):
            raise Unresolved(f"a reference to {logical}, which this deployment does not have")
        if logical not in self._children:
            written = self.template["Resources"][logical]["Properties"]
            path = written["TemplateURL"]
            given = {name: self.resolve(value) for name, value in written["Parameters"].items()}
            self._children[logical] = Deployment(
                given, account=self.account, template=nested(path), name=f"{self.name}-{logical}",
                physical=self.physical.get(f"{logical}/", {}))
        return self._children[logical]

    def children(self):
        for logical, resource in self.template["Resources"].items():
            if resource["Type"] == "AWS::CloudFormation::Stack" and self.has(logical):
                yield logical, self.child(logical)

    def everything(self, kind=None):
        """Resources of this stack and of its nested stacks."""
        yield from self.resources(kind)
        for _, child in self.children():
            yield from child.resources(kind)

    def _allowed(self, name, parameter):
        value = self.parameters[name]
        if "AllowedValues" in parameter and value not in map(str, parameter["AllowedValues"]):
            raise Unresolved(f"parameter {name}={value} is not one of {parameter['AllowedValues']}")
        if "AllowedPattern" in parameter and not re.fullmatch(parameter["AllowedPattern"], value):
            raise Unresolved(f"parameter {name}={value} does not match its pattern")

    def has(self, logical):
        resource = self.template["Resources"].get(logical)
        return resource is not None and self.holds(resource.get("Condition"))

    def holds(self, condition):
        return condition is None or self._truth({"Condition": condition})

    def _truth(self, expression):
        (function, argument), = expression.items()
        if function == "Condition":
            if argument not in self.conditions:
                raise Unresolved(f"no condition {argument}")
            return self._truth(self.conditions[argument])
        if function == "Fn::Equals":
            left, right = (str(self.resolve(side)) for side in argument)
            return left == right
        if function == "Fn::Not":
            return not self._truth(argument[0])
        if function == "Fn::And":
            return all([self._truth(part) for part in argument])
        if function == "Fn::Or":
            return any([self._truth(part) for part in argument])
        raise Unresolved(f"condition function {function}")

    def resources(self, kind=None):
        """Logical id and resolved properties of each resource of this deployment."""
        for logical, resource in self.template["Resources"].items():
            if self.has(logical) and kind in (None, resource["Type"]):
                yield logical, self.resolve(resource.get("Properties", {}))

    def outputs(self):
        for name, output in self.template.get("Outputs", {}).items():
            if self.holds(output.get("Condition")):
                yield name, self.resolve(output["Value"])

    def resolve(self, value):
        resolved = self._resolve(value)
        return None if resolved is _NOTHING else resolved

    def _resolve(self, value):
        if isinstance(value, list):
            return [item for item in map(self._resolve, value) if item is not _NOTHING]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            (function, argument), = value.items()
            if function == "Ref":
                return self._ref(argument)
            if function == "Fn::GetAtt":
                return self._attribute(argument)
            if function == "Fn::Sub":
                return self._sub(argument)
            if function == "Fn::If":
                condition, yes, no = argument
                return self._resolve(yes if self.holds(condition) else no)
            if function == "Fn::Join":
                return argument[0].join(self._resolve(argument[1]))
            if function == "Fn::Split":
                return self._resolve(argument[1]).split(argument[0])
            if function == "Fn::FindInMap":
                name, first, second = (self._resolve(part) for part in argument)
                return self.template["Mappings"][name][first][second]
            if function.startswith("Fn::"):
                raise Unresolved(f"function {function}")
        items = ((key, self._resolve(item)) for key, item in value.items())
        return {key: item for key, item in items if item is not _NOTHING}

    def _ref(self, name):
        pseudo = {
            "AWS::Region": REGION,
            "AWS::AccountId": self.account,
            "AWS::Partition": "aws",
            "AWS::StackName": self.name,
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::NoValue": _NOTHING,
        }
        if name in pseudo:
            return pseudo[name]
        if name in self.parameters:
            return self.parameters[name]
        return self.id_of(name)

    def id_of(self, logical):
        if not self.has(logical):
            raise Unresolved(f"a reference to {logical}, which this deployment does not have")
        if logical in self.physical:
            return self.physical[logical]
        resource = self.template["Resources"][logical]
        kind, properties = resource["Type"], resource.get("Properties", {})
        if kind in NAMES and NAMES[kind] in properties:
            return self.resolve(properties[NAMES[kind]])
        return REF_IS_ARN.get(kind, "{name}").format(region=REGION, account=self.account, name=f"{self.name}-{logical}")

    def _attribute(self, argument):
        logical, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
        if attribute.startswith("Outputs."):
            outputs = dict(self.child(logical).outputs())
            if attribute.removeprefix("Outputs.") not in outputs:
                raise Unresolved(f"{logical} has no output {attribute.removeprefix('Outputs.')}")
            return outputs[attribute.removeprefix("Outputs.")]
        identity = self.id_of(logical)
        kind = self.template["Resources"][logical]["Type"]
        if (kind, attribute) not in ATTRIBUTES:
            raise Unresolved(f"{logical}.{attribute}: not a known attribute of {kind}")
        if attribute == "StreamArn" and self.stream:
            return self.stream
        # A queue's Ref is its URL.
        name = identity.rsplit("/", 1)[-1]
        return ATTRIBUTES[kind, attribute].format(region=REGION, account=self.account, id=identity, name=name)

    def _sub(self, argument):
        text, given = argument if isinstance(argument, list) else (argument, {})

        def replace(match):
            name = match[1]
            if name.startswith("!"):
                return "${" + name[1:] + "}"
            if name in given:
                return str(self._resolve(given[name]))
            return str(self._attribute(name) if "." in name else self._ref(name))

        return re.sub(r"\$\{([^}]+)\}", replace, text)


@functools.cache
def binaries():
    """Logical id of each function, and its binary."""
    return {
        logical: resource["Metadata"]["BuildProperties"]["Binary"]
        for logical, resource in source()["Resources"].items()
        if resource["Type"] == "AWS::Serverless::Function"
    }


def built(folder=ROOT / ".aws-sam" / "build"):
    """The program that `sam build` built for each function, by logical id. Functions with the same binary share it."""
    resources = yaml_parse((folder / "template.yaml").read_text())["Resources"]
    return {logical: folder / resources[logical]["Properties"]["CodeUri"] / "bootstrap" for logical in binaries()}
