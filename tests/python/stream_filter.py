"""Which records the mapping's filter passes to the cascade, by the pattern of template.yaml after the SAM transform.

Reads a JSON list of records from standard input and prints a list of true and false. By its guide, Lambda's filters are
EventBridge's event patterns. moto's implementation of those reads the patterns; it is first checked with the examples of
the guide.
"""

import json
import sys

from moto.events.models import EventPattern, EventPatternParser
from sam_template import TABLE, Deployment


def matches(pattern, record):
    return EventPattern(pattern, EventPatternParser(pattern).parse()).matches_event(record)


# From "Filter rule syntax" in Lambda's guide: a pattern, a record, and whether it passes.
RULES = [
    ({"a": ["x"]}, {"a": "x"}, True),
    ({"a": ["x"]}, {"a": "X"}, False),
    ({"a": ["x"]}, {"a": "xy"}, False),
    ({"a": ["x"]}, {"b": "x"}, False),
    ({"a": ["x"]}, {"a": None}, False),
    ({"a": ["x", "y"]}, {"a": "y"}, True),
    ({"a": ["x"], "b": ["y"]}, {"a": "x", "b": "y"}, True),
    ({"a": ["x"], "b": ["y"]}, {"a": "x", "b": "z"}, False),
    ({"a": ["x"], "b": ["y"]}, {"a": "x"}, False),
    ({"a": {"b": ["x"]}}, {"a": {"b": "x"}, "c": 1}, True),
    ({"a": {"b": ["x"]}}, {"a": "x"}, False),
    ({"a": {"b": ["x"]}}, {"a": None}, False),
    ({"a": {"b": {"S": ["x"]}}}, {"a": {"b": {"S": "x"}}}, True),
    ({"a": {"b": {"S": ["x"]}}}, {"a": {"b": {"N": "x"}}}, False),
    ({"a": [None]}, {"a": None}, True),
    ({"a": [""]}, {"a": ""}, True),
    ({"a": [{"prefix": "x"}]}, {"a": "xy"}, True),
    ({"a": [{"exists": True}]}, {"a": "x"}, True),
    ({"a": [{"exists": True}]}, {"b": "x"}, False),
    ({"a": [{"anything-but": ["x"]}]}, {"a": "y"}, True),
    ({"a": [{"numeric": [">", 10]}]}, {"a": 11}, True),
]


def main():
    wrong = [rule for rule in RULES if matches(json.dumps(rule[0]), rule[1]) != rule[2]]
    if wrong:
        sys.exit(f"stream_filter.py: moto's patterns differ from Lambda's guide: {wrong}")
    (mapping,) = (
        properties
        for _, properties in Deployment({"AttributesTable": TABLE, "Mode": "delete", "TimeToLive": "enable-with-cascade"}).resources(
            "AWS::Lambda::EventSourceMapping")
    )
    patterns = [rule["Pattern"] for rule in mapping["FilterCriteria"]["Filters"]]
    if not 1 <= len(patterns) <= 5 or any(len(pattern) > 4096 for pattern in patterns):
        sys.exit("stream_filter.py: Lambda accepts one to five patterns of at most 4096 characters")
    # A record passes if it matches any filter.
    print(json.dumps([any(matches(pattern, record) for pattern in patterns) for record in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
