"""Issues credentials of every kind through the real library, and later checks which it still accepts.

    --seed   prints a JSON list of credentials: kind, actor, client, chain and name
    --try    reads such a list from standard input, presents each to the library, and prints a list
             of true (accepted) and false

Presenting a refresh token or a code consumes it: try a list once. The lists hold whole tokens; only
the calling test reads them.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import actingweb_env as env
from actingweb_world import SYSTEM_ACTOR, must, provider_answer

PEOPLE = ("ada", "bea", "cyd")


class Library:
    """The managers that an application's handlers call."""

    def __init__(self) -> None:
        from actingweb.oauth2_server.client_registry import MCPClientRegistry
        from actingweb.oauth2_server.token_manager import ActingWebTokenManager
        from actingweb.oauth_session import OAuth2SessionManager

        self.config = env.library_config()
        self.spa = OAuth2SessionManager(self.config)
        self.mcp = ActingWebTokenManager(self.config)
        self.registry = MCPClientRegistry(self.config)

    # --- issuing ----------------------------------------------------------------------------------

    def client(self, owner: str, name: str) -> str:
        metadata = {"client_name": name, "redirect_uris": ["https://client.example.org/cb"]}
        return self.registry.register_client(owner, metadata)["client_id"]

    def mcp_grants(self, actor: str, client: str) -> list[dict[str, Any]]:
        """A grant rotated once, one never rotated, and a code that is not exchanged yet."""
        email = f"{actor}@mail.example.org"
        code = self.mcp.create_authorization_code(actor, client, provider_answer(), user_email=email)
        first = must(self.mcp.exchange_authorization_code(code, client))
        second = must(self.mcp.refresh_access_token(first["refresh_token"], client))
        chain = must(self.mcp._load_refresh_token(second["refresh_token"]))["chain_id"]
        waiting = self.mcp.create_authorization_code(actor, client, provider_answer(), user_email=email)
        # Never rotated: it has its provider row.
        fresh = self.mcp.create_authorization_code(actor, client, provider_answer(), user_email=email)
        third = must(self.mcp.exchange_authorization_code(fresh, client))
        other = must(self.mcp._load_refresh_token(third["refresh_token"]))["chain_id"]
        ids = {"actor": actor, "client": client}
        return [
            {"kind": "mcp_consumed", **ids, "chain": chain, "name": first["refresh_token"]},
            {"kind": "mcp_refresh", **ids, "chain": chain, "name": second["refresh_token"]},
            {"kind": "mcp_access", **ids, "chain": chain, "name": second["access_token"]},
            {"kind": "mcp_refresh", **ids, "chain": other, "name": third["refresh_token"]},
            {"kind": "mcp_access", **ids, "chain": other, "name": third["access_token"]},
            {"kind": "mcp_code", **ids, "chain": None, "name": waiting},
        ]

    def spa_sign_in(self, actor: str) -> list[dict[str, Any]]:
        """As handlers/oauth2_callback.py and oauth2_spa.py do: a pending session, and one rotation."""
        email, chain = f"{actor}@mail.example.org", self.spa.new_chain_id()
        ids = {"actor": actor, "client": None, "chain": chain}

        def issue() -> tuple[str, str]:
            access = self.config.new_token()
            self.spa.store_access_token(access, actor, email, chain_id=chain)
            return access, self.spa.create_refresh_token(actor, email, chain_id=chain)

        access, refresh = issue()
        tokens = {"access_token": access, "refresh_token": refresh, "actor_id": actor, "email": email}
        session = self.spa.store_session(token_data=tokens, user_info={"email": email}, provider="google")
        must(self.spa.try_mark_refresh_token_used(refresh)[0])
        second_access, second_refresh = issue()
        return [
            {"kind": "session", **ids, "name": session},
            {"kind": "spa_consumed", **ids, "name": refresh},
            {"kind": "spa_access", **ids, "name": access},
            {"kind": "spa_access", **ids, "name": second_access},
            {"kind": "spa_refresh", **ids, "name": second_refresh},
        ]

    def seed(self) -> list[dict[str, Any]]:
        """Two clients that every actor uses: one registered dynamically, one under an actor."""
        owners = {self.client(SYSTEM_ACTOR, "Shared"): SYSTEM_ACTOR, self.client("ada", "Own"): "ada"}
        issued: list[dict[str, Any]] = []
        for client, owner in owners.items():
            issued.append({"kind": "client", "actor": None, "client": client, "chain": None, "name": client})
            app = must(self.mcp.create_access_token(owner, client))["access_token"]
            issued.append({"kind": "mcp_access", "actor": owner, "client": client, "chain": None, "name": app})
            for actor in PEOPLE:
                issued += self.mcp_grants(actor, client)
        for actor in PEOPLE:
            issued += self.spa_sign_in(actor) + self.spa_sign_in(actor)
        pending = self.spa.store_session(token_data=provider_answer(), user_info={}, provider="google")
        issued.append({"kind": "pending", "actor": None, "client": None, "chain": None, "name": pending})
        return issued

    # --- presenting -------------------------------------------------------------------------------

    def accepts_all(self, entries: list[dict[str, Any]]) -> list[bool]:
        """Validates first: a rotation deletes its access token, and a theft its whole chain."""

        def rank(number: int) -> int:
            kind = entries[number]["kind"]
            return 2 if kind.endswith("consumed") else int(kind.endswith("refresh"))

        answers = {number: self.accepts(entries[number]) for number in sorted(range(len(entries)), key=rank)}
        return [answers[number] for number in range(len(entries))]

    def accepts(self, entry: dict[str, Any]) -> bool:
        name = entry["name"]
        match entry["kind"]:
            case "mcp_access":
                return self.mcp.validate_access_token(name) is not None
            case "mcp_refresh" | "mcp_consumed":  # within the grace period a consumed token still rotates
                return self.mcp.refresh_access_token(name, entry["client"]) is not None
            case "mcp_code":
                return self.mcp.exchange_authorization_code(name, entry["client"]) is not None
            case "spa_access":
                return self.spa.validate_access_token(name) is not None
            case "spa_refresh":
                return self.spa.validate_refresh_token(name) is not None and self.spa.try_mark_refresh_token_used(name)[0]
            case "spa_consumed":  # known, as consumed
                return self.spa.try_mark_refresh_token_used(name)[1] is not None
            case "session":
                return self.spa.retrieve_spa_session(name) is not None
            case "pending":
                return self.spa.get_session(name) is not None
            case "client":
                return self.registry.load_client_strict(name) is not None
        raise SystemExit(f"unknown kind {entry['kind']!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--seed", action="store_true")
    mode.add_argument("--try", dest="present", action="store_true")
    args = parser.parse_args()
    library = Library()
    if args.seed:
        print(json.dumps(library.seed()))
    else:
        print(json.dumps(library.accepts_all(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
