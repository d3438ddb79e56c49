"""The scenes of a seeded table: a sign-in, a rotation, a code that was never exchanged.

Each scene writes a known number of rows, dead and alive, and records which must be kept. Its ages are
minutes away from every expiry (the seeder checks this), so no verdict changes during a test.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from actingweb_world import (
    DAY,
    HOUR,
    MINUTE,
    REUSE_WINDOW,
    SYSTEM_ACTOR,
    World,
    ago,
    must,
    new_actor,
    pick,
    provider_answer,
)

CLIENTS = 12

# --- sessions and SPA tokens ----------------------------------------------------------------------


def store_session(w: World, rng: random.Random) -> str:
    _, email = w.person(rng)
    return w.spa.store_session(
        token_data=provider_answer(),
        # Beyond ASCII and beyond the BMP: json.dumps spells these as \u escapes.
        user_info={"email": email, "name": rng.choice(["Zoë Ångström", "李小龍", "Ada 🦊"])},
        provider=rng.choice(["google", "github"]),
        verified_emails=[email] if rng.random() < 0.3 else None,
        pkce_verifier=secrets.token_urlsafe(48) if rng.random() < 0.3 else None,
    )


def session_dead(w: World, rng: random.Random) -> None:
    with ago(pick(rng, (17 * MINUTE, 58 * MINUTE), (75 * MINUTE, DAY), (DAY, 20 * DAY))):
        store_session(w, rng)


def session_live(w: World, rng: random.Random) -> None:
    w.kept["live_sessions"].append(store_session(w, rng))


class Chain(NamedTuple):
    """One sign-in and its rotations: the consumed tokens, and the current ones."""

    actor_id: str
    client_id: str
    consumed: list[str]
    refresh: str
    access: str


def spa_chain(w: World, rng: random.Random, *ages: float) -> Chain:
    """A sign-in at the first age, a rotation at each later one, as handlers/oauth2_spa.py does."""
    actor_id, email = w.person(rng)
    chain_id = w.spa.new_chain_id()
    consumed: list[str] = []
    refresh = access = ""
    for age in ages:
        with ago(age):
            if refresh:
                must(w.spa.try_mark_refresh_token_used(refresh)[0])
                consumed.append(refresh)
            access = w.config.new_token()
            w.spa.store_access_token(access, actor_id, email, chain_id=chain_id)
            refresh = w.spa.create_refresh_token(actor_id, email, chain_id=chain_id)
    return Chain(actor_id, "", consumed, refresh, access)


def spa_login_dead(w: World, rng: random.Random) -> None:
    soon_after = (14 * DAY + 7 * MINUTE, 14 * DAY + 45 * MINUTE)  # dead, before its TTL
    spa_chain(w, rng, pick(rng, soon_after, (15 * DAY, 40 * DAY), (40 * DAY, 90 * DAY)))


def spa_login_idle(w: World, rng: random.Random) -> None:
    """The access token is dead, the refresh token alive."""
    chain = spa_chain(w, rng, pick(rng, (67 * MINUTE, 105 * MINUTE), (3 * HOUR, 13 * DAY)))
    w.kept["live_spa_refresh"].append(chain.refresh)


def spa_login_live(w: World, rng: random.Random) -> None:
    chain = spa_chain(w, rng, pick(rng, (0, 40 * MINUTE)))
    w.kept["live_spa_access"].append(chain.access)
    w.kept["live_spa_refresh"].append(chain.refresh)


def spa_rotated_recently(w: World, rng: random.Random) -> None:
    """Three tripwires in a chain with a live head."""
    chain = spa_chain(w, rng, 40 * HOUR, *rotations_within_window(rng))
    w.kept["live_spa_access"].append(chain.access)
    w.kept["live_spa_refresh"].append(chain.refresh)
    for token in chain.consumed:
        w.kept["spa_tripwires"].append({"token": token, "head": chain.refresh})


def spa_rotated_long_ago(w: World, rng: random.Random) -> None:
    """Consumed rows past window and TTL, in a chain with a live head."""
    chain = spa_chain(w, rng, 12 * DAY, 9 * DAY, 6 * DAY, pick(rng, (3 * DAY, 4 * DAY)))
    w.kept["live_spa_refresh"].append(chain.refresh)


def spa_abandoned(w: World, rng: random.Random) -> None:
    last = pick(rng, (16 * DAY, 60 * DAY))
    spa_chain(w, rng, last + 12 * DAY, last + 5 * DAY, last)


def spa_consumed_lingering(w: World, rng: random.Random) -> None:
    """Past the window, but unexpired and within its TTL: kept."""
    keep_consumed_spa(w, spa_chain(w, rng, 5 * DAY, just_past_window(rng)))


def spa_consumed_in_window_expired(w: World, rng: random.Random) -> None:
    keep_consumed_spa(w, spa_chain(w, rng, 14 * DAY + 12 * HOUR, DAY))


def spa_consumed_expired(w: World, rng: random.Random) -> None:
    """Past the window and expired: dead, before its TTL."""
    used = just_past_window(rng)
    chain = spa_chain(w, rng, used + 13 * DAY, used)
    w.kept["live_spa_refresh"].append(chain.refresh)


def keep_consumed_spa(w: World, chain: Chain) -> None:
    w.kept["live_spa_refresh"].append(chain.refresh)
    for token in chain.consumed:
        w.kept["consumed_kept"].append([SYSTEM_ACTOR, "spa_refresh_tokens", token])


def rotations_within_window(rng: random.Random) -> list[int]:
    return [pick(rng, span) for span in ((24 * HOUR, 36 * HOUR), (2 * HOUR, 20 * HOUR), (5 * MINUTE, 40 * MINUTE))]


def just_past_window(rng: random.Random) -> int:
    return pick(rng, (REUSE_WINDOW + 7 * MINUTE, REUSE_WINDOW + 45 * MINUTE))


# --- MCP codes and tokens -------------------------------------------------------------------------


def mcp_code(w: World, rng: random.Random) -> tuple[str, str, str]:
    (actor_id, email), client_id = w.person(rng), w.client(rng)
    code = w.mcp.create_authorization_code(actor_id, client_id, provider_answer(), user_email=email)
    return code, client_id, actor_id


def mcp_chain(w: World, rng: random.Random, *ages: float) -> Chain:
    """A code exchanged at the first age, a rotation at each later one."""
    with ago(ages[0]):
        code, client_id, actor_id = mcp_code(w, rng)
        grant = must(w.mcp.exchange_authorization_code(code, client_id))
    consumed = []
    for age in ages[1:]:
        with ago(age):
            consumed.append(grant["refresh_token"])
            grant = must(w.mcp.refresh_access_token(grant["refresh_token"], client_id))
    return Chain(actor_id, client_id, consumed, grant["refresh_token"], grant["access_token"])


def keep_mcp_refresh(w: World, chain: Chain) -> None:
    w.kept["live_mcp_refresh"].append({"token": chain.refresh, "client_id": chain.client_id})


def mcp_code_dead(w: World, rng: random.Random) -> None:
    """Never exchanged. Dead for 15 minutes, hours or days; its provider row outlives it by an hour."""
    with ago(pick(rng, (23 * MINUTE, 27 * MINUTE), (3 * HOUR, 20 * HOUR), (DAY, 20 * DAY))):
        mcp_code(w, rng)


def mcp_code_live(w: World, rng: random.Random) -> None:
    code, client_id, _ = mcp_code(w, rng)
    w.kept["live_mcp_codes"].append({"code": code, "client_id": client_id})


def mcp_grant_dead(w: World, rng: random.Random) -> None:
    soon_after = (30 * DAY + 7 * MINUTE, 30 * DAY + 45 * MINUTE)
    mcp_chain(w, rng, pick(rng, soon_after, (31 * DAY, 60 * DAY)))


def mcp_grant_just_idle(w: World, rng: random.Random) -> None:
    """The access token expired 20 minutes ago. The live refresh row still names its provider row, which
    is within its TTL: a cleanup may delete the provider row or keep it."""
    keep_mcp_refresh(w, mcp_chain(w, rng, pick(rng, (76 * MINUTE, 84 * MINUTE))))


def mcp_grant_idle(w: World, rng: random.Random) -> None:
    keep_mcp_refresh(w, mcp_chain(w, rng, pick(rng, (130 * MINUTE, 20 * HOUR), (DAY, 29 * DAY))))


def mcp_grant_live(w: World, rng: random.Random) -> None:
    chain = mcp_chain(w, rng, pick(rng, (0, 40 * MINUTE)))
    keep_mcp_refresh(w, chain)
    w.kept["live_mcp_access"].append(chain.access)


def mcp_rotated_recently(w: World, rng: random.Random) -> None:
    chain = mcp_chain(w, rng, 3 * DAY, *rotations_within_window(rng))
    keep_mcp_refresh(w, chain)
    w.kept["live_mcp_access"].append(chain.access)
    for token in chain.consumed:
        w.kept["mcp_tripwires"].append(
            {"token": token, "actor_id": chain.actor_id, "client_id": chain.client_id, "head": chain.refresh}
        )


def mcp_rotated_long_ago(w: World, rng: random.Random) -> None:
    keep_mcp_refresh(w, mcp_chain(w, rng, 20 * DAY, 12 * DAY, 5 * DAY, pick(rng, (3 * DAY, 4 * DAY))))


def mcp_abandoned(w: World, rng: random.Random) -> None:
    last = pick(rng, (31 * DAY, 60 * DAY))
    mcp_chain(w, rng, last + 20 * DAY, last + 5 * DAY, last)


def mcp_consumed_lingering(w: World, rng: random.Random) -> None:
    keep_consumed_mcp(w, mcp_chain(w, rng, 10 * DAY, just_past_window(rng)))


def mcp_consumed_in_window_expired(w: World, rng: random.Random) -> None:
    keep_consumed_mcp(w, mcp_chain(w, rng, 30 * DAY + 12 * HOUR, DAY))


def mcp_consumed_expired(w: World, rng: random.Random) -> None:
    used = just_past_window(rng)
    keep_mcp_refresh(w, mcp_chain(w, rng, used + 29 * DAY, used))


def keep_consumed_mcp(w: World, chain: Chain) -> None:
    keep_mcp_refresh(w, chain)
    for token in chain.consumed:
        w.kept["consumed_kept"].append([chain.actor_id, "mcp_refresh_tokens", token])


def app_token(w: World, rng: random.Random) -> str:
    """The client_credentials grant: the token belongs to the client's own actor.

    For a dynamically registered client that is the system actor, so `mcp_tokens` rows live
    in its partition too.
    """
    client = rng.choice(w.clients)
    return must(w.mcp.create_access_token(client["actor_id"], client["client_id"]))["access_token"]


def app_token_dead(w: World, rng: random.Random) -> None:
    with ago(pick(rng, (76 * MINUTE, 84 * MINUTE), (130 * MINUTE, 20 * HOUR), (DAY, 20 * DAY))):
        app_token(w, rng)


def app_token_live(w: World, rng: random.Random) -> None:
    with ago(pick(rng, (0, 40 * MINUTE))):
        w.kept["live_mcp_access"].append(app_token(w, rng))


def actor_deleted(w: World, rng: random.Random) -> None:
    """Deleting an actor deletes its own partition only: two index rows dangle."""
    from actingweb.attribute import Buckets
    from actingweb.deletion import mark_actor_deleted

    actor_id, age = new_actor(rng), pick(rng, (31 * DAY, 60 * DAY))
    with ago(age):
        client_id = w.client(rng)
        code = w.mcp.create_authorization_code(actor_id, client_id, provider_answer())
        must(w.mcp.exchange_authorization_code(code, client_id))
    with ago(age - HOUR // 2):
        must(mark_actor_deleted(actor_id, w.config))
        must(Buckets(actor_id=actor_id, config=w.config).delete())


# --- the small stores -----------------------------------------------------------------------------


def nonce(w: World) -> str:
    return w.nonces.create({"provider": "apple", "csrf": secrets.token_urlsafe(16), "return_path": "/app"})


def nonce_dead(w: World, rng: random.Random) -> None:
    with ago(pick(rng, (75 * MINUTE, 10 * DAY))):
        nonce(w)


def nonce_live(w: World, rng: random.Random) -> None:
    with ago(pick(rng, (0, 50 * MINUTE))):  # it has no expiry of its own: alive until its TTL
        w.kept["live_nonces"].append(nonce(w))


def ticket(w: World, ttl: int | None = None) -> str:
    return w.tickets.create(
        code=secrets.token_urlsafe(40), redirect_uri="https://app.example.org/cb", provider="github", ttl=ttl
    )


def ticket_dead(w: World, rng: random.Random) -> None:
    with ago(pick(rng, (12 * MINUTE, 50 * MINUTE), (70 * MINUTE, 10 * DAY))):
        ticket(w)


def ticket_live(w: World, rng: random.Random) -> None:
    # The default of five minutes could end before the judge runs.
    w.kept["live_tickets"].append(ticket(w, ttl=30 * MINUTE))


def replay_marker(w: World, rng: random.Random, lifetime: int) -> dict[str, Any]:
    now = int(time.time())
    claims = {"iss": "https://accounts.example.org", "sub": new_actor(rng), "iat": now}
    if lifetime:
        claims |= {"jti": secrets.token_hex(12), "exp": now + lifetime}
    must(w.replay.check_and_record(claims))
    return claims


def replay_dead(w: World, rng: random.Random) -> None:
    with ago(pick(rng, (18 * MINUTE, 60 * MINUTE), (90 * MINUTE, 10 * DAY))):
        replay_marker(w, rng, 10 * MINUTE)


def replay_without_exp_dead(w: World, rng: random.Random) -> None:
    with ago(pick(rng, (90 * MINUTE, 10 * DAY))):
        replay_marker(w, rng, 0)


def replay_live(w: World, rng: random.Random) -> None:
    with ago(pick(rng, (0, 20 * MINUTE))):
        w.kept["live_replay_claims"].append(replay_marker(w, rng, rng.choice([0, HOUR])))


def verify_token(w: World, rng: random.Random) -> list[str]:
    """As handlers/oauth_email.py stores it; the library has no function for this alone."""
    from actingweb.constants import EMAIL_VERIFICATION_TOKEN_EXPIRY

    token, (actor_id, _) = secrets.token_urlsafe(32), w.person(rng)
    rows = w.bucket("_actingweb_system", "_email_verify_tokens")
    must(rows.set_attr(name=token, data=actor_id, ttl_seconds=EMAIL_VERIFICATION_TOKEN_EXPIRY))
    return [token, actor_id]


def verify_dead(w: World, rng: random.Random) -> None:
    with ago(pick(rng, (26 * HOUR, 20 * DAY))):
        verify_token(w, rng)


def verify_live(w: World, rng: random.Random) -> None:
    with ago(pick(rng, (0, 20 * HOUR))):
        w.kept["live_verify_tokens"].append(verify_token(w, rng))


def tombstone(w: World, rng: random.Random) -> str:
    from actingweb.deletion import mark_actor_deleted

    actor_id = new_actor(rng)
    must(mark_actor_deleted(actor_id, w.config))
    return actor_id


def tombstone_dead(w: World, rng: random.Random) -> None:
    with ago(pick(rng, (31 * DAY, 60 * DAY))):
        tombstone(w, rng)


def tombstone_live(w: World, rng: random.Random) -> None:
    with ago(pick(rng, (0, 29 * DAY))):
        w.kept["live_tombstones"].append(tombstone(w, rng))


# --- clients and bystanders -----------------------------------------------------------------------


def register_clients(w: World, rng: random.Random) -> None:
    """Two rows per client, which never expire. A third of the clients is registered dynamically."""
    for number in range(CLIENTS):
        owner = SYSTEM_ACTOR if number % 3 == 0 else rng.choice(w.people)
        with ago(pick(rng, (DAY, 200 * DAY))):
            answer = w.registry.register_client(
                owner, {"client_name": f"Client {number}", "redirect_uris": ["https://client.example.org/cb"]}
            )
        w.clients.append({key: answer[key] for key in ("client_id", "client_secret", "actor_id")})
    w.kept["live_clients"] = w.clients


def bystanders(w: World, rng: random.Random) -> int:
    """Rows that look dead but are not the janitor's: wrong owner, or a bucket with a similar name.

    The first has the key prefix of a real bucket: only the attribute `bucket` differs.
    """
    for number in range(3):
        actor_id = w.people[number]
        places = (
            (SYSTEM_ACTOR, "spa_access_tokens:archive", secrets.token_hex(20)),
            (SYSTEM_ACTOR, "_access_token_index_backup", "aw_" + secrets.token_urlsafe(32)),
            (actor_id, "mcp_tokens_archive", "aw_" + secrets.token_urlsafe(32)),
            (actor_id, "oauth_sessions", secrets.token_urlsafe(32)),
            (actor_id, "remote:mcp_tokens", f"list:notes:{number}"),
            (actor_id, "_internal", f"oauth_tokens:{new_actor(rng)}"),
            (actor_id, "trust_permissions", new_actor(rng)),
        )
        with ago(40 * DAY):
            long_gone = {"created_at": int(time.time()), "expires_at": int(time.time()) + HOUR, "used": False}
            for owner, bucket, name in places:
                must(w.bucket(owner, bucket).set_attr(name=name, data=long_gone, ttl_seconds=HOUR))
                w.kept["bystanders"].append([owner, bucket, name, long_gone])
    return len(w.kept["bystanders"])


# --- the table of scenes --------------------------------------------------------------------------


class Scene(NamedTuple):
    """The rows that one run of a scene writes, and its share of the table.

    dead: rows that a cleanup must delete. optional: rows that it may delete or keep.
    """

    run: Callable[[World, random.Random], None]
    rows: int
    dead: int
    weight: float
    optional: int = 0


SCENES = (
    Scene(session_dead, 1, 1, 14),
    Scene(spa_login_dead, 2, 2, 12),
    Scene(spa_login_idle, 2, 1, 6),
    Scene(spa_login_live, 2, 0, 3),
    Scene(spa_rotated_recently, 8, 3, 4),
    Scene(spa_rotated_long_ago, 8, 7, 6),
    Scene(spa_abandoned, 6, 6, 5),
    Scene(spa_consumed_lingering, 4, 2, 1.5),
    Scene(spa_consumed_in_window_expired, 4, 2, 1.5),
    Scene(spa_consumed_expired, 4, 3, 1.5),
    Scene(mcp_code_dead, 3, 3, 8),
    Scene(mcp_grant_dead, 5, 5, 8),
    Scene(mcp_grant_just_idle, 5, 2, 2, optional=1),
    Scene(mcp_grant_idle, 5, 3, 5),
    Scene(mcp_grant_live, 5, 0, 2.5),
    Scene(mcp_rotated_recently, 10, 0, 3),
    Scene(mcp_rotated_long_ago, 10, 8, 3),
    Scene(mcp_abandoned, 8, 8, 3),
    Scene(mcp_consumed_lingering, 6, 2, 1),
    Scene(mcp_consumed_in_window_expired, 6, 2, 1),
    Scene(mcp_consumed_expired, 6, 4, 1),
    Scene(app_token_dead, 2, 2, 3),
    Scene(app_token_live, 2, 0, 1),
    Scene(actor_deleted, 3, 3, 1),
    Scene(nonce_dead, 1, 1, 1),
    Scene(nonce_live, 1, 0, 1),
    Scene(ticket_dead, 1, 1, 1),
    Scene(ticket_live, 1, 0, 0.5),
    Scene(replay_dead, 1, 1, 1),
    Scene(replay_without_exp_dead, 1, 1, 0.5),
    Scene(replay_live, 1, 0, 1),
    Scene(verify_dead, 1, 1, 1),
    Scene(verify_live, 1, 0, 1),
    Scene(tombstone_dead, 1, 1, 1),
    Scene(tombstone_live, 1, 0, 1),
)
# They live for ten minutes and must live for nine, so they are written last.
LAST = (Scene(session_live, 1, 0, 3), Scene(mcp_code_live, 3, 0, 2))
