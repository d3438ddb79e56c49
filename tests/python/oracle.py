#!/usr/bin/env python3
"""Which rows of a table are dead: docs/rows.md in Python, the language that writes the rows, for malformed rows.

Reads items (DynamoDB's JSON with types, one per line, an empty line between two tables) and prints for each table the keys
that each of two runs must delete. The standard library's `json` reads `data`, as in ActingWeb. Shares no code with the
program.

    oracle.py --now 2400000000 < items.jsonl
    {"daily": [[id, bucket_name], ...], "repair": [...], "may": [...]}

`repair` is what a repair must delete after `daily` is deleted. `may` is what either run may delete or leave to a later run.
A test requires that all of the first two is deleted, and nothing beyond the three.

Where docs/rows.md leaves a choice, the row is kept:
- JSON of any depth and integers of any length are read: the limits of a Python release do not count.
- A time is an integer (not a boolean, not a float). One below -2**63 is malformed; one above 2**63 is far in the future.
- `used` is true, false or null; with any other value only its TTL ends the row.
- A token with unreadable `data` may name any provider row whose name is in its text; without text, any provider row.
- A pointer to a key that DynamoDB cannot store is malformed, not dangling.
"""
import argparse
import decimal
import json
import sys
import threading

OAUTH, SYSTEM, DELETED = "_actingweb_oauth2", "_actingweb_system", "_actingweb_deleted"
LEGACY = ("_mcp_system", "_mcp_global")
FIVE_YEARS = 5 * 365 * 86_400
HOUR = 3_600

# (owner, bucket) of the rows that are judged by their own fields and TTL, and the rule.
ALONE = {
    (OAUTH, "oauth_sessions"): "session", (OAUTH, "_oauth_sessions"): "session",
    (OAUTH, "spa_access_tokens"): "expires", (OAUTH, "spa_refresh_tokens"): "refresh",
    (OAUTH, "_id_token_replay"): "replay", (OAUTH, "_oauth_state_nonces"): "ttl",
    (OAUTH, "_apple_exchange_tickets"): "expires", (SYSTEM, "_email_verify_tokens"): "ttl",
    (DELETED, "_deleted_actors"): "ttl",
}
TOKENS = {"mcp_auth_codes": "expires", "mcp_tokens": "expires", "mcp_refresh_tokens": "refresh"}
PROVIDERS = "mcp_google_tokens"
INDEXES = {
    "auth_code_index": "mcp_auth_codes", "access_token_index": "mcp_tokens",
    "refresh_token_index": "mcp_refresh_tokens", "client_index": "mcp_clients",
}
INDEXES |= {f"_{index}": target for index, target in INDEXES.items()}


def is_actor(owner):
    """Client-credentials tokens belong to the OAuth actor; rows of ActingWeb's other system actors are not judged here."""
    return owner == OAUTH or not owner.startswith("_actingweb_") and owner not in LEGACY


def holds(key):
    """Whether DynamoDB can store a row under this key."""
    try:
        owner, sort = (part.encode() for part in key)
    except UnicodeEncodeError:
        return False
    return 1 <= len(owner) <= 2_048 and 1 <= len(sort) <= 1_024


class Unreadable(Exception):
    pass


class Row:
    def __init__(self, item):
        self.owner, self.sort = item["id"]["S"], item["bucket_name"]["S"]
        self.key = (self.owner, self.sort)
        bucket = item.get("bucket", {}).get("S")
        # The attribute `bucket` and the sort key must agree.
        self.bucket = bucket if bucket is not None and self.sort.startswith(bucket + ":") else None
        self.name = self.sort[len(bucket) + 1:] if self.bucket is not None else None
        self.text = item.get("data", {}).get("S")
        self.ttl = item.get("ttl_timestamp")
        try:
            self.data = json.loads(self.text) if self.text is not None else None
        except ValueError:
            self.data = None
        self.fields = self.data if isinstance(self.data, dict) else None

    def time(self, name):
        value = self.fields.get(name)
        if type(value) is not int or value < -(2**63):
            raise Unreadable(name)
        return value

    def valid_ttl(self, now):
        """Its TTL, if DynamoDB acts on it."""
        digits = (self.ttl or {}).get("N")
        if digits is None:
            return None
        at = decimal.Decimal(digits)
        if at != at.to_integral_value() or at <= 0 or at >= 10**11 or at < now - FIVE_YEARS:
            return None
        return int(at)

    def ttl_past(self, now):
        at = self.valid_ttl(now)
        return at is not None and now > at

    def rule(self):
        if (self.owner, self.bucket) in ALONE:
            return ALONE[self.owner, self.bucket]
        return TOKENS.get(self.bucket) if is_actor(self.owner) else None

    def dead(self, now):
        """Dead by its own fields; by its TTL where they do not decide."""
        rule, past = self.rule(), self.ttl_past(now)
        if rule is None:
            return False
        if rule == "ttl" or self.fields is None:
            return past
        used, unused = self.fields.get("used"), self.unused()
        # The application's clock may be five minutes behind the table's.
        now -= 300
        try:
            if rule == "session":
                return now - self.time("created_at") > 600
            if rule == "replay":
                exp = self.time("exp")
                return past if exp == 0 else exp + 60 <= now
            if rule == "refresh" and used is True:
                used_at, expires_at = self.time("used_at"), self.time("expires_at")
                return past or now > used_at + 172_800 and now > expires_at
            if rule == "refresh" and not unused:
                return past
            # A row that is alive by its own fields outlives its TTL only while it is unused.
            return now > self.time("expires_at") or past and not unused
        except Unreadable:
            return past

    def unused(self):
        """By identity: 0 equals False in Python, but is malformed here."""
        used = self.fields.get("used") if self.fields is not None else None
        return used is None or used is False

    def is_token(self):
        return self.bucket in TOKENS and is_actor(self.owner)

    def is_provider(self):
        return self.bucket == PROVIDERS and is_actor(self.owner)

    def names(self):
        """The provider row that a token names, or None."""
        name = self.fields.get("google_token_key") if self.fields is not None and self.is_token() else None
        return name if isinstance(name, str) and name else None

    def may_name(self, name):
        if self.fields is not None:
            return self.names() == name
        return self.text is None or name in self.text

    def target(self):
        """The key that an index row points at, or None."""
        if self.owner != OAUTH or self.bucket not in INDEXES or not isinstance(self.data, str) or not self.data:
            return None
        key = (self.data, f"{INDEXES[self.bucket]}:{self.name}")
        return key if holds(key) else None


class Table:
    def __init__(self, rows, now):
        self.rows, self.now = {row.key: row for row in rows}, now
        self.by_owner = {}
        for row in rows:
            self.by_owner.setdefault(row.owner, []).append(row)

    def without(self, keys):
        return Table([row for key, row in self.rows.items() if key not in keys], self.now)

    def tokens(self, owner):
        return [row for row in self.by_owner.get(owner, ()) if row.is_token()]

    def provider(self, token):
        row = self.rows.get((token.owner, f"{PROVIDERS}:{token.names()}")) if token.names() else None
        return row if row is not None and row.is_provider() else None

    def daily(self):
        now, gone, may = self.now, set(), set()
        for row in self.rows.values():
            if (row.owner, row.bucket) in ALONE and row.dead(now):
                gone.add(row.key)
            target = row.target()
            if target is None:
                continue
            # Its token cannot expire more than three hours before the index row's TTL. A client's index row has no TTL.
            at = row.valid_ttl(now)
            due = at is None or now - 300 > at - 3 * HOUR
            found = self.rows.get(target)
            if found is None:
                # Before it is due, the daily run need not read the target; the repair does.
                if due and (at is None or now > at or "client" not in row.bucket):
                    gone.add(row.key)
                else:
                    may.add(row.key)
            elif due and found.is_token() and found.bucket == INDEXES[row.bucket] and found.dead(now):
                gone |= {row.key, found.key}
        for token in [self.rows[key] for key in gone]:
            provider = self.provider(token)
            if provider is None:
                continue
            needed = any(not other.dead(now) and other.may_name(provider.name) for other in self.tokens(token.owner))
            if provider.ttl_past(now) or not needed:
                gone.add(provider.key)
        return gone, may - gone

    def repair(self):
        """A first repair: it keeps all rows of unknown age."""
        now, gone, may = self.now, set(), set()
        for row in self.rows.values():
            if row.target() is not None and row.target() not in self.rows:
                gone.add(row.key)
            if row.is_token():
                indexes = [index for index, target in INDEXES.items() if target == row.bucket]
                found = [self.rows.get((OAUTH, f"{index}:{row.name}")) for index in indexes]
                # An index row that points at another row does not count; a malformed one may point at this row.
                if any(index_row and index_row.target() in (None, row.key) for index_row in found):
                    continue
                may_be_consumed = row.bucket == "mcp_refresh_tokens" and not row.unused()
                created = (row.fields or {}).get("created_at")
                old = type(created) is int and -(2**63) <= created and now - 300 - created > HOUR
                if row.dead(now) or old and not may_be_consumed:
                    gone.add(row.key)
        for row in [row for row in self.rows.values() if row.is_provider()]:
            tokens = self.tokens(row.owner)
            kept = [token for token in tokens if token.key not in gone]
            needed = any(token.may_name(row.name) and (token.fields is not None or not token.dead(now)) for token in kept)
            released = any(token.names() == row.name for token in tokens if token.key in gone)
            at = row.valid_ttl(now)
            old = at is not None and now - 300 - (at - 2 * HOUR) > HOUR
            if row.ttl_past(now) or not needed and (old or released):
                gone.add(row.key)
            # The OAuth actor has many rows, and no release writes a provider row of it. The repair judges each of its rows
            # alone, so a provider row of a deleted or dead token may be deleted now or by a later run.
            alive = any(token.may_name(row.name) and not token.dead(now) for token in kept)
            if row.owner == OAUTH and not row.ttl_past(now) and not alive and any(t.may_name(row.name) for t in tokens):
                gone.discard(row.key)
                may.add(row.key)
        return gone, may


def judge(lines, now):
    before = Table([Row(json.loads(line)) for line in lines], now)
    daily, may = before.daily()
    repair, more = before.without(daily).repair()
    return {name: sorted(map(list, keys)) for name, keys in
            {"daily": daily, "repair": repair, "may": may | more}.items()}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--now", type=int, required=True)
    now = arguments.parse_args().now
    table = []
    for line in [*sys.stdin, "\n"]:
        if line.strip():
            table.append(line)
        elif table:
            print(json.dumps(judge(table, now)))
            table = []


if __name__ == "__main__":
    # Read JSON of any depth.
    sys.setrecursionlimit(1_000_000)
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    threading.stack_size(1 << 29)
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
