"""Checks a table after a cleanup: every dead row is deleted, and every live credential works.

First it reads the table with plain boto3 and judges every row by its own rules, which share no code
with the cleanup, the seeder or the library. Then it uses everything that the manifest lists as alive
through the real ActingWeb library: it reads sessions, validates and rotates tokens, exchanges codes,
and expects that a replayed refresh token still revokes its chain.

Using a token changes the table, so the judge restores every row: it can run repeatedly, before a
cleanup and after it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

import actingweb_env as env

SYSTEM_ACTOR = "_actingweb_oauth2"
REUSE_WINDOW = 172800
# How far a server's clock may be behind the table's; a row is kept this long after it expires.
SLACK = 300
FIVE_YEARS = 5 * 365 * 86400
THEFTS = 5  # chains of each kind that a replay revokes


class Findings:
    """Number checked and masked names of failures, by kind."""

    def __init__(self) -> None:
        self.checked: dict[str, int] = {}
        self.failed: dict[str, list[str]] = {}

    def add(self, kind: str, name: str, good: bool) -> None:
        self.checked[kind] = self.checked.get(kind, 0) + 1
        failed = self.failed.setdefault(kind, [])
        if not good:
            failed.append(env.mask(name))

    def ok(self) -> bool:
        return not any(self.failed.values())

    def report(self) -> dict[str, Any]:
        kinds = {}
        for kind, count in self.checked.items():
            kinds[kind] = {"checked": count, "failed": len(self.failed[kind]), "names": self.failed[kind]}
        return {"ok": self.ok(), "kinds": kinds}

    def show(self) -> None:
        for kind, count in self.checked.items():
            failed = self.failed[kind]
            names = f"  ({', '.join(failed[:5])}{', ...' if len(failed) > 5 else ''})" if failed else ""
            print(f"{kind}: checked {count}, failed {len(failed)}{names}")


# --- judging the table ----------------------------------------------------------------------------

INDEX_OF = {
    "auth_code_index": "mcp_auth_codes",
    "access_token_index": "mcp_tokens",
    "refresh_token_index": "mcp_refresh_tokens",
    "client_index": "mcp_clients",
}
INDEX_OF |= {"_" + old: target for old, target in INDEX_OF.items()}  # renamed in 3.10; a table can hold both
ACTOR_BUCKETS = {"mcp_auth_codes", "mcp_tokens", "mcp_refresh_tokens", "mcp_google_tokens"}
OAUTH2_BUCKETS = {
    "oauth_sessions", "_oauth_sessions", "spa_access_tokens", "spa_refresh_tokens",
    "_id_token_replay", "_oauth_state_nonces", "_apple_exchange_tickets", *INDEX_OF,
}  # fmt: skip
KNOWN_BUCKETS = {
    # A client_credentials token of a dynamically registered client belongs to the system actor.
    SYSTEM_ACTOR: OAUTH2_BUCKETS | ACTOR_BUCKETS,
    "_actingweb_system": {"_email_verify_tokens"},
    "_actingweb_deleted": {"_deleted_actors"},
    "_mcp_system": {"auth_code_index", "access_token_index", "client_index"},
    "_mcp_global": {"auth_code_index", "access_token_index", "client_index"},
}


class Row(NamedTuple):
    owner: str
    bucket: str
    name: str
    data: Any  # None when it is not JSON
    ttl: int | None  # None when absent, or when DynamoDB would never act on it

    def field(self, name: str) -> int | None:
        """A time in the row's data, or None if it is missing or malformed."""
        value = self.data.get(name) if isinstance(self.data, dict) else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_row(item: dict[str, Any], now: int) -> Row:
    try:
        data = json.loads(item["data"]["S"])
    except (KeyError, ValueError):
        data = None
    try:
        ttl: int | None = int(item["ttl_timestamp"]["N"])
    except (KeyError, ValueError):
        ttl = None
    if ttl is not None and not now - FIVE_YEARS <= ttl < 10**11:  # the upper end: milliseconds
        ttl = None
    return Row(item["id"]["S"], item["bucket"]["S"], item["name"]["S"], data, ttl)


def is_known(row: Row) -> bool:
    """Rows elsewhere are not the janitor's, however old they look."""
    if row.owner in KNOWN_BUCKETS:
        return row.bucket in KNOWN_BUCKETS[row.owner]
    return not row.owner.startswith("_actingweb_") and row.bucket in ACTOR_BUCKETS


def dead_by_its_own_fields(row: Row, now: int) -> bool | None:
    """Whether the row is dead by its own fields; None when they do not tell."""
    now -= SLACK
    if row.bucket.endswith("oauth_sessions"):
        created_at = row.field("created_at")
        return None if created_at is None else now - created_at > 600
    if row.bucket == "_id_token_replay":
        exp = row.field("exp")
        return None if not exp else exp + 60 <= now
    expires_at = row.field("expires_at")
    return None if expires_at is None else now > expires_at


def is_dead(row: Row, now: int) -> bool:
    """By time alone, for every bucket except index and provider rows."""
    past_ttl = row.ttl is not None and now > row.ttl
    if row.bucket.endswith("refresh_tokens") and isinstance(row.data, dict) and row.data.get("used"):
        used_at, expires_at = row.field("used_at"), row.field("expires_at")
        if used_at is None or expires_at is None:
            return past_ttl
        return past_ttl or (now - SLACK > used_at + REUSE_WINDOW and now - SLACK > expires_at)
    dead = dead_by_its_own_fields(row, now)
    # A row that is alive by its own fields outlives its TTL: some deployments have longer lifetimes.
    return past_ttl if dead is None else dead


def judge_table(rows: list[Row], now: int, ttl_within: int, findings: Findings) -> None:
    present = {(row.owner, row.bucket, row.name) for row in rows}
    named = {
        (row.owner, row.data.get("google_token_key"))
        for row in rows
        if row.bucket in ACTOR_BUCKETS and row.bucket != "mcp_google_tokens" and isinstance(row.data, dict)
    }
    for row in filter(is_known, rows):
        if ttl_within and row.ttl is not None and row.ttl <= now + ttl_within:
            continue  # TTL removes it by then
        kind = f"no dead row left in {row.bucket}"
        if row.bucket in INDEX_OF:
            target = (row.data, INDEX_OF[row.bucket], row.name)
            good = not isinstance(row.data, str) or target in present
        elif row.bucket == "mcp_google_tokens":
            past_ttl = row.ttl is not None and now > row.ttl
            good = not past_ttl and (row.owner, row.name) in named
        else:
            good = not is_dead(row, now)
        findings.add(kind, row.name, good)


def judge_spelling(items: list[dict[str, Any]], seeded: dict[str, str], findings: Findings) -> None:
    """A kept row is unchanged byte for byte: a token with rewritten data can never be consumed."""
    for item in items:
        key, text = env.fingerprint(item)
        if key in seeded:
            findings.add("data is never rewritten", item["name"]["S"], seeded[key] == text)


# --- using live credentials through the library ---------------------------------------------------


def works(check: Callable[[Any], Any], entry: Any) -> bool:
    """The library refuses with None, False or an exception; all three are a failure."""
    try:
        return bool(check(entry))
    except Exception:
        return False


class Library:
    """The real managers, and one check for each kind of row that must be kept."""

    def __init__(
        self, config: Any, manifest: dict[str, Any], present: set[tuple[str, str, str]], findings: Findings
    ) -> None:
        from actingweb.oauth2_replay import IdTokenReplayCache
        from actingweb.oauth2_server.client_registry import MCPClientRegistry
        from actingweb.oauth2_server.token_manager import ActingWebTokenManager
        from actingweb.oauth_session import OAuth2SessionManager
        from actingweb.oauth_state_store import MobileTicketStore, StateNonceStore

        self.config, self.manifest, self.present, self.findings = config, manifest, present, findings
        self.spa = OAuth2SessionManager(config)
        self.mcp = ActingWebTokenManager(config)
        self.clients = MCPClientRegistry(config)
        self.nonces, self.tickets = StateNonceStore(config), MobileTicketStore(config)
        self.replay = IdTokenReplayCache(config)
        self.successor: dict[str, str] = {}  # a rotated token -> its replacement

    def each(self, kind: str, check: Callable[[Any], Any], name: Callable[[Any], str] = str) -> None:
        entries = self.manifest[kind]
        with ThreadPoolExecutor(8) as pool:  # the entries of one kind never share a row
            answers = pool.map(works, repeat(check), entries)
            for entry, good in zip(entries, answers, strict=True):
                self.findings.add(kind, name(entry), good)

    def check_all(self) -> None:
        token, code, client_id, claimed = map(itemgetter, ("token", "code", "client_id", "sub"))
        # First checks that only read, then those that consume a token, last those that revoke chains.
        self.each("bystanders", self.untouched, itemgetter(2))
        self.each("consumed_kept", lambda entry: tuple(entry) in self.present, itemgetter(2))
        self.each("mcp_tripwires", self.mcp_tripwire, token)
        self.each("spa_tripwires", self.spa_tripwire, token)
        self.each("live_clients", self.client, client_id)
        self.each("live_tombstones", self.tombstone)
        self.each("live_verify_tokens", self.verify_token, itemgetter(0))
        self.each("live_replay_claims", lambda claims: not self.replay.check_and_record(claims), claimed)
        self.each("live_sessions", self.spa.get_session)
        self.each("live_spa_access", self.spa.validate_access_token)
        self.each("live_mcp_access", self.mcp.validate_access_token)
        self.each("live_nonces", self.nonces.consume)
        self.each("live_tickets", self.tickets.consume)
        self.each("live_spa_refresh", self.spa_rotation)
        self.each("live_mcp_refresh", self.mcp_rotation, token)
        self.each("live_mcp_codes", self.mcp_exchange, code)
        self.thefts("mcp_thefts", "mcp_tripwires", self.mcp_theft)
        self.thefts("spa_thefts", "spa_tripwires", self.spa_theft)

    def attribute(self, owner: str, bucket: str, name: str) -> Any:
        from actingweb.attribute import Attributes

        row = Attributes(actor_id=owner, bucket=bucket, config=self.config).get_attr(name=name)
        return row and row["data"]

    def untouched(self, entry: list[Any]) -> bool:
        return self.attribute(*entry[:3]) == entry[3]

    def tombstone(self, actor_id: str) -> bool:
        from actingweb.deletion import DeletionStatus, get_deletion_status

        return get_deletion_status(actor_id, self.config) is DeletionStatus.DELETED

    def verify_token(self, entry: list[str]) -> bool:
        return self.attribute("_actingweb_system", "_email_verify_tokens", entry[0]) == entry[1]

    def client(self, entry: dict[str, str]) -> bool:
        return bool(
            self.clients.validate_client(entry["client_id"], entry["client_secret"])
            and self.clients.load_client_strict(entry["client_id"])
        )

    def mcp_tripwire(self, entry: dict[str, str]) -> bool:
        """Both rows: without its index row the library cannot find a replayed token."""
        return (entry["actor_id"], "mcp_refresh_tokens", entry["token"]) in self.present and (
            SYSTEM_ACTOR, "_refresh_token_index", entry["token"]
        ) in self.present  # fmt: skip

    def spa_tripwire(self, entry: dict[str, str]) -> bool:
        """A replay is recognised as consumed, not as unknown."""
        consumed, data = self.spa.try_mark_refresh_token_used(entry["token"])
        return not consumed and bool(data and data["used_at"])

    def spa_rotation(self, token: str) -> bool:
        data = self.spa.validate_refresh_token(token)
        consumed, _ = self.spa.try_mark_refresh_token_used(token)
        if not data or not consumed:
            return False
        self.successor[token] = self.spa.create_refresh_token(
            data["actor_id"], data["identifier"], chain_id=data["chain_id"]
        )
        return self.spa.validate_refresh_token(self.successor[token]) is not None

    def mcp_rotation(self, entry: dict[str, str]) -> bool:
        grant = self.mcp.refresh_access_token(entry["token"], entry["client_id"])
        if not grant:
            return False
        self.successor[entry["token"]] = grant["refresh_token"]
        return self.mcp.validate_access_token(grant["access_token"]) is not None

    def mcp_exchange(self, entry: dict[str, str]) -> bool:
        grant = self.mcp.exchange_authorization_code(entry["code"], entry["client_id"])
        return bool(grant) and self.mcp.validate_access_token(grant["access_token"]) is not None

    def thefts(self, kind: str, tripwires: str, check: Callable[[dict[str, str]], bool]) -> None:
        """Present a few consumed tokens, one per chain: the whole chain must be revoked."""
        chains = {entry["head"]: entry for entry in self.manifest[tripwires]}
        for entry in list(chains.values())[:THEFTS]:
            self.findings.add(kind, entry["token"], works(check, entry))

    def mcp_theft(self, entry: dict[str, str]) -> bool:
        chain = (entry["token"], self.successor[entry["head"]], entry["head"])  # the replay first
        return [self.mcp.refresh_access_token(token, entry["client_id"]) for token in chain] == [None] * 3

    def spa_theft(self, entry: dict[str, str]) -> bool:
        """The steps of handlers/oauth2_spa.py, which has them inside an HTTP handler."""
        from actingweb.constants import SPA_REFRESH_TOKEN_REUSE_WINDOW
        from actingweb.single_use import classify_reuse, refresh_token_grace

        successor = self.successor[entry["head"]]
        _, data = self.spa.try_mark_refresh_token_used(entry["token"])
        age = int(time.time()) - data["used_at"]
        if classify_reuse(age, refresh_token_grace(self.config), SPA_REFRESH_TOKEN_REUSE_WINDOW) != "theft":
            return False
        anchor = ("spa_refresh_tokens", entry["token"])
        revoked = self.spa.revoke_token_chain(data["actor_id"], data["chain_id"], anchor=anchor)
        return revoked > 0 and self.spa.validate_refresh_token(successor) is None


# --- restoring the table --------------------------------------------------------------------------


def key_of(item: dict[str, Any]) -> tuple[str, str]:
    return item["id"]["S"], item["bucket_name"]["S"]


def restore(client: Any, before: list[dict[str, Any]]) -> None:
    expected = {key_of(item): item for item in before}
    found = {key_of(item): item for item in env.scan(client)}
    writes = [
        {"DeleteRequest": {"Key": {"id": {"S": owner}, "bucket_name": {"S": name}}}}
        for owner, name in found.keys() - expected.keys()
    ]
    writes += [{"PutRequest": {"Item": item}} for key, item in expected.items() if found.get(key) != item]
    while writes:
        answer = client.batch_write_item(RequestItems={env.table_name(): writes[:25]})
        writes = answer["UnprocessedItems"].get(env.table_name(), []) + writes[25:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--manifest", required=True, help="the file that actingweb_seed.py wrote")
    parser.add_argument("--ttl-within", type=int, default=0, help="dead rows may have a TTL up to N seconds ahead")
    parser.add_argument("--report", help="also write the findings to this file, as JSON")
    args = parser.parse_args()
    with open(args.manifest, encoding="utf-8") as file:
        manifest = json.load(file)
    if manifest["table"] != env.table_name():
        raise SystemExit(f"the manifest is for {manifest['table']}, the environment names {env.table_name()}")

    if time.time() > manifest["judge_before"]:
        raise SystemExit("the seeded live rows may have expired: seed again")

    config, client, findings = env.library_config(), env.dynamodb(), Findings()
    now = int(time.time())
    items = list(env.scan(client))
    rows = [read_row(item, now) for item in items]
    judge_table(rows, now, args.ttl_within, findings)
    judge_spelling(items, manifest["fingerprints"], findings)
    present = {(row.owner, row.bucket, row.name) for row in rows}
    try:
        Library(config, manifest, present, findings).check_all()
    finally:
        restore(client, items)

    findings.show()
    if args.report:
        with open(args.report, "w", encoding="utf-8") as file:
            json.dump({"rows": len(rows)} | findings.report(), file, indent=1)
    sys.exit(0 if findings.ok() else 1)


if __name__ == "__main__":
    main()
