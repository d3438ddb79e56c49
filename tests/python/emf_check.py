"""Reads embedded metric format documents, one per line, as CloudWatch would, and prints the metrics.

Checks each line against the format's JSON schema and the rules of the specification, and its names, units and
dimensions against the limits in AWS's own library for the format. Then puts the metrics into moto's CloudWatch and
reads them back. Prints one JSON object, or an error with the line that CloudWatch would not accept.

No package was found that reads the format: AWS's library writes it, and moto does not parse log events.
"""

import datetime
import json
import pathlib
import sys

import boto3
import jsonschema
from aws_embedded_metrics import validator
from aws_embedded_metrics.storage_resolution import StorageResolution
from moto import mock_aws

SCHEMA = json.loads((pathlib.Path(__file__).parent.parent / "schemas" / "embedded-metric-format.json").read_text())
MOST_BYTES = 256 * 1024


def datums(line: str):
    """The metrics in one document: namespace, name, unit, dimensions, value, timestamp."""
    assert len(line.encode()) <= MOST_BYTES, "larger than the limit of a log event"
    document = json.loads(line)
    jsonschema.Draft7Validator(SCHEMA).validate(document)
    metadata = document["_aws"]
    for directive in metadata["CloudWatchMetrics"]:
        validator.validate_namespace(directive["Namespace"])
        names = [metric["Name"] for metric in directive["Metrics"]]
        assert len(names) == len(set(names)), "a metric is named twice"
        for dimension_set in directive["Dimensions"]:
            # A reference must name a member of the document's root whose value is a string.
            dimensions = {name: document[name] for name in dimension_set}
            validator.validate_dimension_set(dimensions)
            assert all(isinstance(value, str) and value.strip() for value in dimensions.values()), dimensions
            for metric in directive["Metrics"]:
                value = document[metric["Name"]]
                values = value if isinstance(value, list) else [value]
                assert len(values) <= 100
                for number in values:
                    assert isinstance(number, int | float) and not isinstance(number, bool), metric
                    resolution = StorageResolution.STANDARD
                    validator.validate_metric(metric["Name"], number, metric.get("Unit", "None"), resolution, {})
                    yield (
                        directive["Namespace"],
                        metric["Name"],
                        metric.get("Unit", "None"),
                        tuple(sorted(dimensions.items())),
                        float(number),
                        metadata["Timestamp"],
                    )


@mock_aws
def through_cloudwatch(metrics: list) -> int:
    """Puts the metrics into moto's CloudWatch and reads each back."""
    client = boto3.client("cloudwatch", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    stored = {}
    for namespace, name, unit, dimensions, value, timestamp in metrics:
        at = datetime.datetime.fromtimestamp(timestamp / 1000, datetime.UTC)
        shown = [{"Name": key, "Value": text} for key, text in dimensions]
        client.put_metric_data(
            Namespace=namespace,
            MetricData=[{"MetricName": name, "Dimensions": shown, "Unit": unit, "Value": value, "Timestamp": at}],
        )
        stored.setdefault((namespace, name, unit, dimensions), []).append((value, at))
    # Not get_metric_statistics: in moto it also returns metrics with additional dimensions.
    for (namespace, name, unit, dimensions), points in stored.items():
        metric = {
            "Namespace": namespace,
            "MetricName": name,
            "Dimensions": [{"Name": key, "Value": text} for key, text in dimensions],
        }
        answer = client.get_metric_data(
            MetricDataQueries=[
                {"Id": "m", "MetricStat": {"Metric": metric, "Period": 86_400, "Stat": "Sum", "Unit": unit}}
            ],
            StartTime=min(at for _, at in points) - datetime.timedelta(minutes=1),
            EndTime=max(at for _, at in points) + datetime.timedelta(minutes=1),
        )
        total = sum(answer["MetricDataResults"][0]["Values"])
        assert abs(total - sum(value for value, _ in points)) < 1e-6 * (1 + abs(total)), (name, dimensions, answer)
    return len(stored)


def main() -> None:
    lines = [line for line in sys.stdin.read().splitlines() if line.strip()]
    metrics = []
    for number, line in enumerate(lines, 1):
        try:
            metrics.extend(datums(line))
        except Exception as error:  # any error is reported with its line
            sys.exit(f"document {number}: {type(error).__name__}: {error}\n{line[:400]}")
    seen = {}
    for _, name, unit, dimensions, _, _ in metrics:
        seen.setdefault(name, [unit, set()])[1].add(",".join(key for key, _ in dimensions))
    print(
        json.dumps(
            {
                "documents": len(lines),
                "datums": len(metrics),
                "in_cloudwatch": through_cloudwatch(metrics),
                "namespaces": sorted({metric[0] for metric in metrics}),
                "metrics": {name: {"unit": unit, "dimensions": sorted(sets)} for name, (unit, sets) in seen.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
