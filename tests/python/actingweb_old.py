"""Writes rows with an old release of the library, and later checks which credentials it still accepts.

Runs in the release's own environment. The library is not changed, only the clock (actingweb_world.ago).

    --write  prints lists of what was written: `alive`, `dead` and `late` credentials, and `secrets`
    --judge  reads a list of credentials from standard input, uses each, and prints the answers

`late`: from 3.7.4 to 3.14.7 a rotation stores the same refresh token again with the same expiry, but with a new TTL, also
for its index row. The token dies before its index row is due.

The lists hold whole tokens; only the calling test reads them.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import actingweb_env as env
from actingweb_world import DAY, HOUR, MINUTE, ago, must, patch_clock, provider_answer


class Release:
    """A release's managers, and lists of what they wrote."""

    def __init__(self) -> None:
        self.config = env.library_config()
        from actingweb import constants
        from actingweb.oauth2_server.client_registry import MCPClientRegistry
        from actingweb.oauth2_server.token_manager import ActingWebTokenManager

        self.mcp = ActingWebTokenManager(self.config)
        self.registry = MCPClientRegistry(self.config)
        self.spa = self.has("oauth_session", "OAuth2SessionManager")
        self.nonces = self.has("oauth_state_store", "StateNonceStore")
        # Its name in 3.11 was AppleTicketStore.
        self.tickets = self.has("oauth_state_store", "MobileTicketStore", "AppleTicketStore")
        self.replay = self.has("oauth2_replay", "IdTokenReplayCache")
        self.has_ttl = hasattr(constants, "MCP_REFRESH_TOKEN_TTL")  # from 3.7.4
        self.lists: dict[str, list[Any]] = {"alive": [], "dead": [], "late": [], "secrets": []}

    def has(self, module: str, *names: str) -> Any:
        """A manager from a newer module, or None if the release does not have the module."""
        if find_spec(f"actingweb.{module}") is None:
            return None
        found = __import__(f"actingweb.{module}", fromlist=names)
        for name in names:
            if hasattr(found, name):
                return getattr(found, name)(self.config)
        raise SystemExit(f"actingweb.{module} has none of {names}")

    def note(self, fate: str, kind: str, name: str, **more: Any) -> None:
        self.lists[fate].append({"kind": kind, "name": name, **more})
        if kind not in ("client", "replay", "tombstone"):
            self.lists["secrets"].append(name)

    def by_age(self, kind: str, make: Callable[[], str], alive: tuple[int, ...], dead: tuple[int, ...]) -> None:
        for fate, ages in (("alive", alive), ("dead", dead)):
            for age in ages:
                with ago(age):
                    self.note(fate, kind, make())

    # --- writing ----------------------------------------------------------------------------------

    def email(self) -> str:
        address = f"{secrets.token_hex(8)}@mail.example.org"
        self.lists["secrets"].append(address)
        return address

    def provider(self) -> dict[str, Any]:
        answer = provider_answer()
        self.lists["secrets"] += [answer["access_token"], answer["refresh_token"], answer["id_token"]]
        return answer

    def write_spa(self) -> None:
        def session() -> str:
            return self.spa.store_session(token_data=self.provider(), user_info={"email": self.email()})

        def access() -> str:
            token = self.config.new_token()
            self.spa.store_access_token(token, actor, self.email())
            return token

        def refresh() -> str:
            return self.spa.create_refresh_token(actor, self.email())

        actor = secrets.token_hex(16)
        self.by_age("session", session, (0, 2 * MINUTE), (18 * MINUTE, 2 * HOUR, 9 * DAY))
        self.by_age("spa_access", access, (0, 40 * MINUTE), (68 * MINUTE, 3 * HOUR, 50 * DAY))
        self.by_age("spa_refresh", refresh, (0, 13 * DAY), (15 * DAY, 60 * DAY))
        # A consumed token is kept as long as it is a tripwire. After its window, but before its expiry, its TTL decides,
        # which some releases write and some remove: the model judges those.
        for fate, made, used in (("alive", DAY, HOUR), ("dead", 40 * DAY, 39 * DAY), (None, 9 * DAY, 5 * DAY)):
            with ago(made):
                token = refresh()
            with ago(used):
                must(self.consume(token))
            if fate:
                self.note(fate, "spa_consumed", token)

    def consume(self, token: str) -> bool:
        if hasattr(self.spa, "try_mark_refresh_token_used"):
            return self.spa.try_mark_refresh_token_used(token)[0]
        return self.spa.mark_refresh_token_used(token)

    def new_client(self) -> tuple[str, str]:
        actor = secrets.token_hex(16)
        made = self.registry.register_client(
            actor, {"client_name": "Old", "redirect_uris": ["https://client.example.org/cb"]}
        )
        self.lists["secrets"].append(made["client_secret"])
        return actor, made["client_id"]

    def grant(self, actor: str, client: str) -> dict[str, Any]:
        code = self.mcp.create_authorization_code(actor, client, self.provider(), user_email=self.email())
        self.lists["secrets"].append(code)
        return must(self.mcp.exchange_authorization_code(code, client))

    def write_mcp(self) -> None:
        actor, client = self.new_client()
        self.note("alive", "client", client)
        for fate, ages in (("alive", (0, 2 * MINUTE)), ("dead", (18 * MINUTE, 3 * HOUR, 9 * DAY))):
            for age in ages:
                with ago(age):
                    code = self.mcp.create_authorization_code(actor, client, self.provider(), user_email=self.email())
                    self.note(fate, "mcp_code", code, client=client)
        for age in (10 * MINUTE, 3 * HOUR, 20 * DAY, 33 * DAY, 60 * DAY):
            with ago(age):
                pair = self.grant(actor, client)
            self.note("alive" if age < HOUR else "dead", "mcp_access", pair["access_token"])
            self.note("alive" if age < 30 * DAY else "dead", "mcp_refresh", pair["refresh_token"], client=client)
        self.write_rotated(actor, client)
        for fate, age in (("alive", 10 * MINUTE), ("dead", 3 * HOUR)):
            with ago(age):
                token = must(self.mcp.create_access_token(actor, client))["access_token"]
            self.note(fate, "mcp_access", token)
        with ago(2 * DAY):
            revoked = self.grant(actor, client)
        must(self.mcp.revoke_token(revoked["refresh_token"]))
        self.note("dead", "mcp_refresh", revoked["refresh_token"], client=client)

    def write_rotated(self, actor: str, client: str) -> None:
        for first, second in ((5 * DAY, 10 * MINUTE), (29 * DAY, DAY), (33 * DAY, 20 * DAY)):
            with ago(first):
                old = self.grant(actor, client)
            with ago(second):
                new = must(self.mcp.refresh_access_token(old["refresh_token"], client))
            self.note("alive" if second < HOUR else "dead", "mcp_access", new["access_token"])
            if new["refresh_token"] == old["refresh_token"]:
                fate = "alive" if first < 30 * DAY else "late" if self.has_ttl else "dead"
                self.note(fate, "mcp_refresh", old["refresh_token"], client=client)
            else:
                self.note("alive", "mcp_refresh", new["refresh_token"], client=client)
                fate = "alive" if second < 2 * DAY else "dead"
                self.note(fate, "mcp_consumed", old["refresh_token"])

    def write_deleted_actor(self) -> None:
        """Deletes an actor with its rows; the index rows that point at them are kept."""
        from actingweb.attribute import Buckets

        actor, client = self.new_client()
        pair = self.grant(actor, client)
        code = self.mcp.create_authorization_code(actor, client, self.provider())
        Buckets(actor_id=actor, config=self.config).delete()
        self.note("dead", "client", client)
        self.note("dead", "mcp_code", code, client=client)
        self.note("dead", "mcp_access", pair["access_token"])
        self.note("dead", "mcp_refresh", pair["refresh_token"], client=client)

    def write_newer(self) -> None:
        """Rows that only 3.10 and later write."""

        def ticket() -> str:
            return self.tickets.create(code=secrets.token_urlsafe(32), redirect_uri="https://r", provider="apple")

        if self.nonces:
            self.by_age("nonce", lambda: self.nonces.create({"csrf": "x"}), (0, MINUTE), (2 * HOUR, 9 * DAY))
        if self.tickets:
            # In older releases a ticket has no expiry of its own, only a TTL.
            self.by_age("ticket", ticket, (0,), (2 * HOUR, 9 * DAY))
        if self.replay:
            for fate, age in (("alive", 0), ("alive", MINUTE), ("dead", 2 * HOUR)):
                with ago(age):
                    claims = {"jti": secrets.token_urlsafe(16), "exp": int(time.time()) + 15 * MINUTE}
                    must(self.replay.check_and_record(claims))
                self.note(fate, "replay", self.replay._key_for_claims(claims), claims=claims)
        if find_spec("actingweb.deletion"):
            from actingweb.deletion import mark_actor_deleted

            for fate, age in (("alive", 29 * DAY), ("dead", 31 * DAY)):
                name = secrets.token_hex(16)
                with ago(age):
                    must(mark_actor_deleted(name, self.config))
                self.note(fate, "tombstone", name)

    # --- judging ----------------------------------------------------------------------------------

    def accepts(self, entry: dict[str, Any]) -> bool:
        name = entry["name"]
        match entry["kind"]:
            case "session":
                return self.spa.get_session(name) is not None
            case "spa_access":
                return self.spa.validate_access_token(name) is not None
            case "spa_refresh":
                found = self.spa.validate_refresh_token(name)
                return found is not None and not found["used"] and self.consume(name)
            case "spa_consumed":
                found = self.spa.validate_refresh_token(name)
                return found is not None and found["used"]
            case "mcp_access":
                found = self.mcp.validate_access_token(name)
                key = found[2].get("google_token_key") if found else None
                return bool(found) and (key is None or bool(self.mcp._load_google_token_data(found[0], key)))
            case "mcp_refresh":
                return self.mcp.refresh_access_token(name, entry["client"]) is not None
            case "mcp_consumed":
                found = self.mcp._load_refresh_token(name)
                return found is not None and found["used"]
            case "mcp_code":
                return self.mcp.exchange_authorization_code(name, entry["client"]) is not None
            case "client":
                return self.registry._load_client(name) is not None
            case "nonce":
                return self.nonces.consume(name) is not None
            case "ticket":
                return self.tickets.consume(name) is not None
            case "replay":
                return not self.replay.check_and_record(entry["claims"])
            case "tombstone":
                from actingweb.deletion import DeletionStatus, get_deletion_status

                return get_deletion_status(name, self.config) == DeletionStatus.DELETED
        raise SystemExit(f"unknown kind {entry['kind']!r}")

    def judge(self, entries: list[dict[str, Any]]) -> list[bool]:
        """Refresh tokens last: a rotation deletes its access token."""
        order = sorted(range(len(entries)), key=lambda number: entries[number]["kind"] == "mcp_refresh")
        answers = {number: self.accepts(entries[number]) for number in order}
        return [answers[number] for number in range(len(entries))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--judge", action="store_true")
    parser.add_argument("--copies", type=int, default=1, help="write everything N times")
    args = parser.parse_args()
    release = Release()
    if args.judge:
        print(json.dumps(release.judge(json.load(sys.stdin))))
        return
    patch_clock()
    for _ in range(args.copies):
        if release.spa:
            release.write_spa()
        release.write_mcp()
        release.write_deleted_actor()
        release.write_newer()
    print(json.dumps(release.lists))


if __name__ == "__main__":
    main()
