"""The cleanup that an experienced engineer would write instead of the documented handler, for the benchmarks.

It reads each bucket with Query and a projection, reads tokens in batches of 100 with BatchGetItem and
deletes rows in batches of 25 with BatchWriteItem, both in threads. Like most such scripts it deletes by
key alone, so it also deletes a row that changed after it was read.

It cleans the current buckets: sessions, SPA tokens, MCP codes and tokens with their index and provider rows.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import actingweb_env as env
import boto3
from botocore.config import Config
from library_cleanup import Meter

OWNER = "_actingweb_oauth2"
THREADS = 8
IN_FLIGHT = 4 * THREADS  # batches; more would only use memory
REUSE_WINDOW = 172_800

SESSIONS, SPA_ACCESS, SPA_REFRESH = "_oauth_sessions", "spa_access_tokens", "spa_refresh_tokens"
INDEXES = {
    "_auth_code_index": "mcp_auth_codes",
    "_access_token_index": "mcp_tokens",
    "_refresh_token_index": "mcp_refresh_tokens",
}
INDEX_OUTLIVES = 7_200 + 3_600  # its target, plus the hour of clock skew that every TTL allows

Key = tuple[str, str]


class Script:
    def __init__(self, client: Any, table: str, now: int) -> None:
        self.client, self.table, self.now = client, table, now
        self.deleted: Counter[str] = Counter()

    # --- reading ----------------------------------------------------------------------------------

    def rows(self, bucket: str) -> Iterator[dict[str, Any]]:
        """The needed attributes of a bucket's rows."""
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="id = :id AND begins_with(bucket_name, :prefix)",
            # Another bucket's name may start with this one's.
            FilterExpression="#bucket = :bucket",
            ProjectionExpression="#name, #data, ttl_timestamp",
            ExpressionAttributeNames={"#bucket": "bucket", "#name": "name", "#data": "data"},
            ExpressionAttributeValues={
                ":id": {"S": OWNER},
                ":prefix": {"S": bucket + ":"},
                ":bucket": {"S": bucket},
            },
            ReturnConsumedCapacity="TOTAL",
        )
        for page in pages:
            yield from page["Items"]

    def look_up(self, keys: list[Key]) -> dict[Key, Any]:
        """The tokens that index rows point at; absent ones are left out."""
        found: dict[Key, Any] = {}
        pending = [{"id": {"S": owner}, "bucket_name": {"S": sort}} for owner, sort in keys]
        while pending:
            request = {
                "Keys": pending,
                "ConsistentRead": True,
                "ProjectionExpression": "id, bucket_name, #data",
                "ExpressionAttributeNames": {"#data": "data"},
            }
            answer = self.client.batch_get_item(RequestItems={self.table: request}, ReturnConsumedCapacity="TOTAL")
            for item in answer["Responses"][self.table]:
                found[item["id"]["S"], item["bucket_name"]["S"]] = json.loads(item["data"]["S"])
            pending = answer["UnprocessedKeys"].get(self.table, {}).get("Keys", [])
        return found

    # --- judging ----------------------------------------------------------------------------------

    def session_is_dead(self, data: dict[str, Any]) -> bool:
        return self.now - data["created_at"] > 600

    def token_is_dead(self, data: dict[str, Any]) -> bool:
        if data.get("used"):  # a tripwire: kept while it can detect theft
            return self.now > data.get("used_at", self.now) + REUSE_WINDOW and self.now > data["expires_at"]
        return self.now > data["expires_at"]

    # --- deleting ---------------------------------------------------------------------------------

    def delete(self, keys: list[Key]) -> int:
        requests = [
            {"DeleteRequest": {"Key": {"id": {"S": owner}, "bucket_name": {"S": sort}}}} for owner, sort in keys
        ]
        while requests:
            answer = self.client.batch_write_item(
                RequestItems={self.table: requests}, ReturnConsumedCapacity="TOTAL"
            )
            requests = answer["UnprocessedItems"].get(self.table, [])
        return len(keys)

    def delete_all(self, keys: list[Key]) -> int:
        unique = list(dict.fromkeys(keys))  # a batch may not name a key twice
        return sum(self.delete(unique[i : i + 25]) for i in range(0, len(unique), 25))

    # --- the jobs ---------------------------------------------------------------------------------

    def dead_rows(self, bucket: str, is_dead: Callable[[dict[str, Any]], bool]) -> Iterator[Key]:
        for row in self.rows(bucket):
            ttl = int(row.get("ttl_timestamp", {"N": "0"})["N"])
            if is_dead(json.loads(row["data"]["S"])) or 0 < ttl < self.now:
                yield OWNER, f"{bucket}:{row['name']['S']}"

    def due_index_rows(self, index: str) -> Iterator[tuple[str, str]]:
        """Name and actor of the tokens that may be dead, by the index row's TTL."""
        for row in self.rows(index):
            ttl = int(row.get("ttl_timestamp", {"N": "0"})["N"])
            if ttl - INDEX_OUTLIVES < self.now:
                yield row["name"]["S"], json.loads(row["data"]["S"])

    def clean_tokens(self, index: str, pointers: list[tuple[str, str]]) -> int:
        """Deletes dead tokens with their provider and index rows, and dangling index rows."""
        target = INDEXES[index]
        found = self.look_up([(actor, f"{target}:{name}") for name, actor in pointers])
        dead: list[Key] = []
        for name, actor in pointers:
            token = found.get((actor, f"{target}:{name}"))
            if token is not None and not self.token_is_dead(token):
                continue
            if token is not None:
                if key := token.get("google_token_key"):
                    dead.append((actor, f"mcp_google_tokens:{key}"))
                dead.append((actor, f"{target}:{name}"))
            dead.append((OWNER, f"{index}:{name}"))
        return self.delete_all(dead)

    def run(self) -> dict[str, int]:
        with ThreadPoolExecutor(THREADS) as pool:
            in_flight: deque[tuple[str, Future[int]]] = deque()

            def submit(bucket: str, job: Callable[..., int], *arguments: Any) -> None:
                in_flight.append((bucket, pool.submit(job, *arguments)))
                while len(in_flight) > IN_FLIGHT:
                    finish_one()

            def finish_one() -> None:
                bucket, job = in_flight.popleft()
                self.deleted[bucket] += job.result()

            for bucket, is_dead in (
                (SESSIONS, self.session_is_dead),
                (SPA_ACCESS, self.token_is_dead),
                (SPA_REFRESH, self.token_is_dead),
            ):
                for keys in batches(self.dead_rows(bucket, is_dead), 25):
                    submit(bucket, self.delete, keys)
            for index in INDEXES:
                for pointers in batches(self.due_index_rows(index), 100):
                    submit(index, self.clean_tokens, index, pointers)
            while in_flight:
                finish_one()
        return dict(self.deleted)


def batches(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def main() -> None:
    settings = Config(max_pool_connections=THREADS + 1)
    client = boto3.client("dynamodb", endpoint_url=env.setting("AWS_DB_HOST"), config=settings)
    meter = Meter(client)
    script = Script(client, env.table_name(), int(time.time()))
    print(json.dumps(meter.answer(script.run()), indent=1))


if __name__ == "__main__":
    main()
