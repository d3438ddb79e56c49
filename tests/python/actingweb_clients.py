"""Registers clients with the real library, issues codes and tokens to some of them, and later checks which still work.

    --seed N   registers N clients and prints them: {"unused": [...], "others": [...]}
    --judge    reads that document from standard input; uses each of `others` with the library's own server, and checks
               that a sample of `unused` is unknown to it

The document holds secrets; only the calling test reads it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from actingweb_grants import Library
from actingweb_world import DAY, HOUR, SYSTEM_ACTOR, ago, must, new_actor, patch_clock, provider_answer

REDIRECT = "https://client.example.org/cb"
# The example of RFC 7636.
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
PKCE = {"code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM", "code_challenge_method": "S256"}
# Every 20th client has one of these kinds; all others were never used.
KINDS = ("code", "expired-code", "tokens", "expired-tokens", "consumed", "client-credentials", "young", "actors-own")


class Clients(Library):
    def register(self, owner: str, number: int) -> dict[str, Any]:
        method = "none" if number % 3 == 0 else "client_secret_post"
        metadata = {"client_name": f"Tool {number % 7} ë", "redirect_uris": [REDIRECT],
                    "token_endpoint_auth_method": method}
        return self.registry.register_client(owner, metadata)

    def seed_one(self, number: int) -> dict[str, Any]:
        rng = random.Random(number)
        kind = KINDS[number // 20 % len(KINDS)] if number % 20 == 0 else "unused"
        actor = new_actor(rng)
        owner = actor if kind == "actors-own" else SYSTEM_ACTOR
        age = rng.uniform(0, 29 * DAY) if kind == "young" else rng.uniform(31 * DAY, 300 * DAY)
        with ago(age):
            client = self.register(owner, number)
        client_id = client["client_id"]
        match kind:
            case "code":
                self.code(actor, client_id, 0)
            case "expired-code":
                self.code(actor, client_id, 2 * DAY)
            case "tokens" | "consumed":
                grant = self.grant(actor, client_id, 2 * HOUR)
                if kind == "consumed":
                    with ago(HOUR):
                        must(self.mcp.refresh_access_token(grant["refresh_token"], client_id))
            case "expired-tokens":
                self.grant(actor, client_id, 31 * DAY)
            case "client-credentials":
                with ago(2 * DAY):
                    must(self.mcp.create_access_token(owner, client_id))
        return {"kind": kind, "client_id": client_id, "secret": client.get("client_secret")}

    def code(self, actor: str, client_id: str, age: float) -> str:
        with ago(age):
            return self.mcp.create_authorization_code(actor, client_id, provider_answer(), redirect_uri=REDIRECT)

    def grant(self, actor: str, client_id: str, age: float) -> dict[str, Any]:
        code = self.code(actor, client_id, age)
        with ago(age):
            return must(self.mcp.exchange_authorization_code(code, client_id, redirect_uri=REDIRECT))

    # --- judging ----------------------------------------------------------------------------------

    def server(self) -> Any:
        from actingweb.oauth2_server.oauth2_server import ActingWebOAuth2Server

        return ActingWebOAuth2Server(self.config)

    def failed_step(self, server: Any, client: dict[str, Any]) -> str | None:
        """Load, authorise, exchange, rotate: the first step that fails, or None."""
        client_id = client["client_id"]
        if self.registry.load_client_strict(client_id) is None:
            return "load"
        request = {"client_id": client_id, "redirect_uri": REDIRECT, "response_type": "code", "state": "s", **PKCE}
        if server.handle_authorization_request(request, "GET").get("action") != "show_form":
            return "authorise"
        actor = new_actor(random.Random(client_id))
        credentials = {"client_id": client_id}
        if client["secret"]:
            credentials["client_secret"] = client["secret"]
        answer = provider_answer()
        code = self.mcp.create_authorization_code(actor, client_id, answer, redirect_uri=REDIRECT, **PKCE)
        token = server.handle_token_request(
            {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT,
             "code_verifier": VERIFIER, **credentials})
        if "access_token" not in token:
            return f"exchange: {token}"
        token = server.handle_token_request(
            {"grant_type": "refresh_token", "refresh_token": token["refresh_token"], **credentials})
        return None if "access_token" in token else f"rotate: {token}"

    def wrongly_accepted(self, server: Any, client: dict[str, Any]) -> str | None:
        client_id = client["client_id"]
        if self.registry.load_client_strict(client_id) is not None:
            return "still loads"
        answer = server.handle_token_request(
            {"grant_type": "refresh_token", "refresh_token": "rt_x", "client_id": client_id,
             "client_secret": client["secret"] or "x"})
        return None if answer.get("error") == "invalid_client" else f"token endpoint: {answer}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--judge", action="store_true")
    options = parser.parse_args()
    library = Clients()
    if options.seed:
        patch_clock()
        # The first one creates the table.
        first = library.seed_one(0)
        with ThreadPoolExecutor(8) as pool:
            seeded = [first, *pool.map(library.seed_one, range(1, options.seed))]
        unused = [client for client in seeded if client["kind"] == "unused"]
        print(json.dumps({"unused": unused, "others": [client for client in seeded if client["kind"] != "unused"]}))
        return
    world = json.load(sys.stdin)
    server = library.server()
    wrong = [(client["kind"], library.failed_step(server, client)) for client in world["others"]]
    wrong += [("unused", library.wrongly_accepted(server, client)) for client in world["unused"][::200]]
    wrong = [entry for entry in wrong if entry[1]]
    print(json.dumps({"wrong": wrong}))


main()
