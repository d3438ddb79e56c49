"""Runs the cleanup of ActingWeb's documentation, and prints its result and its cost.

Makes the three calls of the documented scheduled handler, unchanged, on the table in the environment.
Requests are counted in botocore's events, so that none is missed.
"""

from __future__ import annotations

import json
import resource
import threading
import time
from collections import Counter
from typing import Any

import actingweb_env as env

READS = {"GetItem", "Query", "Scan", "BatchGetItem"}


class Meter:
    """Counts HTTP requests, including retries, and consumed capacity.

    Also measures this process's CPU time from here on, without Python's start and its imports, and its peak memory.
    """

    def __init__(self, client: Any) -> None:
        self.lock = threading.Lock()
        self.started, self.cpu = time.monotonic(), time.process_time()
        self.requests: Counter[str] = Counter()
        self.units: Counter[str] = Counter()
        client.meta.events.register("before-send.dynamodb", self.sent)
        client.meta.events.register("after-call.dynamodb", self.answered)

    def sent(self, event_name: str, **_: Any) -> None:
        with self.lock:
            self.requests[event_name.rsplit(".", 1)[-1]] += 1

    def answered(self, parsed: dict[str, Any], model: Any, **_: Any) -> None:
        capacity = parsed.get("ConsumedCapacity")  # pynamodb always requests it
        side = "read" if model.name in READS else "write"
        with self.lock:
            for table in capacity if isinstance(capacity, list) else [capacity or {}]:  # a batch has a list
                self.units[side] += table.get("CapacityUnits", 0)

    def answer(self, body: Any) -> dict[str, Any]:
        return {
            "body": body,
            "seconds": round(time.monotonic() - self.started, 3),
            "cpu_seconds": round(time.process_time() - self.cpu, 3),
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "requests": sum(self.requests.values()),
            "requests_by_operation": dict(self.requests),
            "capacity": {"read_units": self.units["read"], "write_units": self.units["write"]},
        }


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
    # Import before measuring: a warm Lambda has done so.
    import actingweb.oauth2_server.token_manager
    import actingweb.oauth_session  # noqa: F401
    from actingweb.db.dynamodb.attribute import Attribute

    meter = Meter(Attribute._get_connection().connection.client)
    print(json.dumps(meter.answer(documented_handler(config)), indent=1))


if __name__ == "__main__":
    main()
