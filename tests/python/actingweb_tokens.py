"""Have the real library write tokens that TTL would remove, with all that hangs on them, and some that live.

The rows are the library's own; only their way into the table is not one request each: a row that the library saves is
kept, and they are written by pynamodb's own batches. Prints which token rows a TTL removes, what has to go with them, and
what has to stay: from what the library was asked to do, not from any rule of the janitor's.
"""

from __future__ import annotations

import argparse
import json
import random

import actingweb_env as env
from actingweb_world import DAY, HOUR, SYSTEM_ACTOR, ago, move_the_clock, new_actor, provider_answer

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

    # Makes the table, as the library does.
    Attributes(actor_id="nobody", bucket="notes", config=config).set_attr("a", data={"b": 1})
    mcp = ActingWebTokenManager(config)
    move_the_clock()
    rng = random.Random(args.seed)
    actors = [new_actor(rng) for _ in range(ACTORS)]
    saved: list[Attribute] = []
    Attribute.save = lambda self, *_, **__: saved.append(self)

    rows: dict[str, list[list[str]]] = {"removed": [], "goes": [], "stays": []}
    secrets: set[str] = set()

    def label(tokens: str, index: str, provider: str) -> None:
        """What becomes of the rows that were just saved, and writes them."""
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
        # The access token has run out, the refresh token that was issued with it lives and names its provider row.
        with ago(rng.randint(3 * HOUR, 20 * DAY)):
            access = mcp._create_access_token(actor, client, provider_answer())
            label("removed", "goes", "stays")
            mcp._create_refresh_token(actor, client, access["token"], google_token_key=access["google_token_key"])
            label("stays", "stays", "stays")
        # Both have.
        with ago(rng.randint(31 * DAY, 60 * DAY)):
            access = mcp._create_access_token(actor, client, provider_answer())
            mcp._create_refresh_token(actor, client, access["token"], google_token_key=access["google_token_key"])
            label("removed", "goes", "goes")
        # A code that nobody exchanged.
        with ago(rng.randint(3 * HOUR, 20 * DAY)):
            mcp.create_authorization_code(actor, client, provider_answer(), user_email="visitor@mail.example.org")
            label("removed", "goes", "goes")
        # Minted from a refresh token, which has no provider row; some by a client that registered itself.
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
