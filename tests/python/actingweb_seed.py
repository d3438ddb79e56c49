"""Fills a table as months of a real deployment would, through ActingWeb's own managers.

The library is not changed, only the clock: each block runs at an earlier time, so every row (spelling,
TTL, index and provider rows) is exactly what 3.15.1 would have written then. About 70 % of the rows are
dead. The manifest lists what a cleanup must keep; `actingweb_judge.py` reads it.

The seed fixes the mix, the owners and the ages; token names come from the library and are random.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import actingweb_env as env
from actingweb_scenes import CLIENTS, LAST, SCENES, Scene, bystanders, register_clients
from actingweb_world import MINUTE, REUSE_WINDOW, World, freeze_clock, real_time

THREADS = 8
# No verdict may change between seeding and judging: nothing expired in the last 30 seconds, and
# nothing alive expires within nine minutes.
SETTLED, STABLE = 30, 9 * MINUTE
SLACK = 300


def plan(rows: int) -> tuple[list[Scene], list[Scene]]:
    """The scenes to run for a table of `rows` rows; dead sessions make up the remainder."""
    total = sum(scene.weight for scene in SCENES + LAST)

    def repeat(scenes: tuple[Scene, ...]) -> list[Scene]:
        return [s for s in scenes for _ in range(max(1, int(rows * s.weight / total / s.rows)))]

    first, last = repeat(SCENES), repeat(LAST)
    missing = rows - sum(scene.rows for scene in first + last)
    return first + [SCENES[0]] * missing, last


def run(w: World, scenes: list[Scene], seed: str) -> None:
    """Runs the scenes concurrently. Each has its own generator, so threads do not change the mix."""
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = [pool.submit(scene.run, w, random.Random(f"{seed}:{n}")) for n, scene in enumerate(scenes)]
        for job in jobs:
            job.result()


# --- the manifest ---------------------------------------------------------------------------------

NAMES_ARE_SECRET = {
    "_oauth_sessions", "spa_access_tokens", "spa_refresh_tokens", "mcp_auth_codes", "mcp_tokens",
    "mcp_refresh_tokens", "_oauth_state_nonces", "_apple_exchange_tickets", "_email_verify_tokens",
}  # fmt: skip
FIELDS_ARE_SECRET = {
    "access_token", "refresh_token", "id_token", "token", "code", "client_secret", "pkce_verifier",
    "email", "identifier", "user_email", "verified_emails", "csrf",
}  # fmt: skip


def secrets_in(value: Any, secret: bool = False) -> Iterator[str]:
    """The strings of a row that must not appear in a log."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from secrets_in(inner, key in FIELDS_ARE_SECRET)
    elif isinstance(value, list):
        for inner in value:
            yield from secrets_in(inner, secret)
    elif secret and isinstance(value, str) and value:
        yield value


def boundaries(bucket: str, data: Any, ttl: int) -> Iterator[int]:
    """Every time at which a verdict on the row might change."""
    if bucket.endswith("_index"):
        return  # an index row has its target's verdict
    yield ttl
    if isinstance(data, dict):
        own = [data.get("expires_at", 0), (data.get("exp") or 0) + 60, (data.get("used_at") or 0) + REUSE_WINDOW]
        own.append(data["created_at"] + 600 if bucket == "_oauth_sessions" else 0)
        # The library's verdict changes at these times, the cleanup's after the slack for clocks.
        yield from own
        yield from (moment + SLACK for moment in own)


class Survey(NamedTuple):
    by_bucket: Counter[str]
    secrets: set[str]
    fingerprints: dict[str, str]


def survey(now: float) -> Survey:
    """Reads the whole table, and fails if a verdict is about to change."""
    counts: Counter[str] = Counter()
    found: set[str] = set()
    prints: dict[str, str] = {}
    for item in env.scan(env.dynamodb()):
        bucket, name, data = item["bucket"]["S"], item["name"]["S"], json.loads(item["data"]["S"])
        counts[bucket] += 1
        prints.update([env.fingerprint(item)])
        found.update(secrets_in(data))
        if bucket in NAMES_ARE_SECRET:
            found.add(name)
        ttl = int(item.get("ttl_timestamp", {"N": "0"})["N"])
        if any(now - SETTLED < moment < now + STABLE for moment in boundaries(bucket, data, ttl)):
            raise SystemExit(f"the verdict on {bucket} {env.mask(name)} would change during the test")
    return Survey(counts, found, prints)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5500, help="rows to write (default 5500)")
    parser.add_argument("--seed", type=int, default=1, help="fixes the mix, the owners and the ages")
    parser.add_argument("--manifest", required=True, help="file to write the judge's JSON to")
    args = parser.parse_args()

    started = real_time()
    w = World(env.library_config(), args.seed)
    freeze_clock()
    rng = random.Random(args.seed)
    register_clients(w, rng)
    untouched = 2 * CLIENTS + bystanders(w, rng)
    first, last = plan(args.rows - untouched)
    run(w, first, f"{args.seed}")
    # Rows that live for minutes only.
    freeze_clock()
    run(w, last, f"{args.seed}:last")

    now = real_time()
    seen, scenes = survey(now), first + last
    written = untouched + sum(scene.rows for scene in scenes)
    if seen.by_bucket.total() != written:
        raise SystemExit(f"{seen.by_bucket.total()} rows in the table, {written} expected (was it empty before?)")
    rows = {
        "total": written,
        "dead": sum(scene.dead for scene in scenes),
        "optional": sum(scene.optional for scene in scenes),
        "by_bucket": dict(sorted(seen.by_bucket.items())),
    }
    manifest = {"table": env.table_name(), "seed": args.seed, "seeded_at": int(now), "rows": rows}
    manifest["judge_before"] = int(now) + STABLE - MINUTE
    manifest |= {kind: w.kept[kind] for kind in sorted(w.kept)}
    manifest |= {"secrets": sorted(seen.secrets), "fingerprints": seen.fingerprints}
    with open(args.manifest, "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
    print(f"rows: {written}, dead: {rows['dead']}, optional: {rows['optional']}, seconds: {now - started:.1f}")


if __name__ == "__main__":
    main()
