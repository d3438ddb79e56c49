"""Writes tokens through the real library: tokens that TTL would remove, with their index and provider rows, and live ones.

The library's saves are collected and written in pynamodb's batches instead of one request each. Prints which token rows
TTL removes, which rows must be deleted with them, and which must be kept. These lists follow from the calls to the
library, not from a rule of the janitor.
"""

from __future__ import annotations

import argparse
import json
import random

import actingweb_env as env
from actingweb_world import DAY, HOUR, SYSTEM_ACTOR, ago, new_actor, patch_clock, provider_answer

TOKENS = {"mcp_auth_codes", "mcp_tokens", "mcp_refresh_tokens"}
ACTORS = 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--removals", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    config = env.library_config()
    from actingweb.attribute import Attributes
    from actingweb.db.dynamodb.attribute import Attribute
    from actingweb.oauth2_server.token_manager import ActingWebTokenManager

    # Creates the table, as the library does.
    Attributes(actor_id="nobody", bucket="notes", config=config).set_attr("a", data={"b": 1})
    mcp = ActingWebTokenManager(config)
    patch_clock()
    rng = random.Random(args.seed)
    actors = [new_actor(rng) for _ in range(ACTORS)]
    saved: list[Attribute] = []
    Attribute.save = lambda self, *_, **__: saved.append(self)

    rows: dict[str, list[list[str]]] = {"removed": [], "goes": [], "stays": []}
    secrets: set[str] = set()

    def label(tokens: str, index: str, provider: str) -> None:
        """Assigns the rows that were just saved to the lists."""
        for row in saved[marks[-1]:]:
            fate = tokens if row.bucket in TOKENS else provider if row.bucket == "mcp_google_tokens" else index
            rows[fate].append([row.id, row.bucket_name])
            if row.bucket in TOKENS:
                secrets.add(row.name)
            elif row.bucket == "mcp_google_tokens":
                secrets.update([row.data["access_token"], row.data["refresh_token"]])
        marks.append(len(saved))

    marks = [0]
    share = args.removals // 5
    for n in range(share):
        actor, client = rng.choice(actors), "mcp_client"
        # The access token has expired; its refresh token is alive and names the provider row.
        with ago(rng.randint(3 * HOUR, 20 * DAY)):
            access = mcp._create_access_token(actor, client, provider_answer())
            label("removed", "goes", "stays")
            mcp._create_refresh_token(actor, client, access["token"], google_token_key=access["google_token_key"])
            label("stays", "stays", "stays")
        # Both have expired.
        with ago(rng.randint(31 * DAY, 60 * DAY)):
            access = mcp._create_access_token(actor, client, provider_answer())
            mcp._create_refresh_token(actor, client, access["token"], google_token_key=access["google_token_key"])
            label("removed", "goes", "goes")
        # A code that was never exchanged.
        with ago(rng.randint(3 * HOUR, 20 * DAY)):
            mcp.create_authorization_code(actor, client, provider_answer(), user_email="visitor@mail.example.org")
            label("removed", "goes", "goes")
        # Issued from a refresh token, without a provider row; some to a dynamically registered client.
        with ago(rng.randint(3 * HOUR, 20 * DAY)):
            mcp._create_access_token_from_refresh(SYSTEM_ACTOR if n % 10 == 0 else actor, client)
            label("removed", "goes", "goes")
        if n % 4 == 0:
            access = mcp._create_access_token(actor, client, provider_answer())
            mcp._create_refresh_token(actor, client, access["token"], google_token_key=access["google_token_key"])
            label("stays", "stays", "stays")
    with Attribute.batch_write() as batch:
        for row in saved:
            batch.save(row)
    print(json.dumps({**rows, "secrets": sorted(secrets)}))


if __name__ == "__main__":
    main()
