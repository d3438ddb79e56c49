"""Run the cleanup that ActingWeb's documentation gives, and say what it did and what it cost.

The three calls of the documented scheduled handler, unchanged, on the table in the environment.
The requests are counted by botocore itself, below anything that the library could leave out.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import actingweb_env as env

READS = {"GetItem", "Query", "Scan", "BatchGetItem"}


class Meter:
    """Counts each HTTP request sent (retries too), and adds up the capacity that is answered."""

    def __init__(self, client: Any) -> None:
        self.requests: Counter[str] = Counter()
        self.units: Counter[str] = Counter()
        client.meta.events.register("before-send.dynamodb", self.sent)
        client.meta.events.register("after-call.dynamodb", self.answered)

    def sent(self, event_name: str, **_: Any) -> None:
        self.requests[event_name.rsplit(".", 1)[-1]] += 1

    def answered(self, parsed: dict[str, Any], model: Any, **_: Any) -> None:
        capacity = parsed.get("ConsumedCapacity")  # pynamodb always asks for it
        if isinstance(capacity, dict):
            side = "read" if model.name in READS else "write"
            self.units[side] += capacity.get("CapacityUnits", 0)


def documented_handler(config: Any) -> dict[str, Any]:
    from actingweb.oauth2_server.token_manager import get_actingweb_token_manager
    from actingweb.oauth_session import get_oauth2_session_manager

    sessions = get_oauth2_session_manager(config)
    return {
        "oauth_sessions": sessions.clear_expired_sessions(),
        "spa_tokens": sessions.cleanup_expired_tokens(),
        "mcp_tokens": get_actingweb_token_manager(config).cleanup_expired_tokens(),
    }


def main() -> None:
    config = env.library_config()
    from actingweb.db.dynamodb.attribute import Attribute

    meter = Meter(Attribute._get_connection().connection.client)
    started = time.monotonic()
    body = documented_handler(config)
    answer = {
        "body": body,
        "seconds": round(time.monotonic() - started, 3),
        "requests": sum(meter.requests.values()),
        "requests_by_operation": dict(meter.requests),
        "capacity": {"read_units": meter.units["read"], "write_units": meter.units["write"]},
    }
    print(json.dumps(answer, indent=1))


if __name__ == "__main__":
    main()
