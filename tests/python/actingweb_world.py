"""The seeder's actors and clients, and its clock; see actingweb_seed.py."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MINUTE, HOUR, DAY = 60, 3600, 86400
REUSE_WINDOW = 2 * DAY
SYSTEM_ACTOR = "_actingweb_oauth2"
ACTORS = 150

# --- the clock ------------------------------------------------------------------------------------

real_time = time.time
_clock = threading.local()


def patch_clock() -> None:
    """Makes time.time() follow `ago`; `real_time` is not changed."""
    time.time = lambda: real_time() - getattr(_clock, "age", 0)


def freeze_clock() -> None:
    """Freezes time.time() at the current second; it still follows `ago`.

    The library reads the time once for a row's `created_at` and again for its TTL. The backfill's test computes one from the
    other, so both must be in the same second.
    """
    moment = int(real_time())
    time.time = lambda: moment - getattr(_clock, "age", 0)


@contextmanager
def ago(age: float) -> Iterator[None]:
    """Run a block as it would have run `age` seconds ago (this thread only).

    The library reads time.time(). Request signing reads datetime, which is not patched.
    """
    before, _clock.age = getattr(_clock, "age", 0), age
    try:
        yield
    finally:
        _clock.age = before


# --- the world ------------------------------------------------------------------------------------


class World:
    """The library's managers, their actors and clients, and the credentials that must be kept."""

    def __init__(self, config: Any, seed: int) -> None:
        from actingweb.oauth2_replay import IdTokenReplayCache
        from actingweb.oauth2_server.client_registry import MCPClientRegistry
        from actingweb.oauth2_server.token_manager import ActingWebTokenManager
        from actingweb.oauth_session import OAuth2SessionManager
        from actingweb.oauth_state_store import MobileTicketStore, StateNonceStore

        self.config = config
        self.spa = OAuth2SessionManager(config)
        self.mcp = ActingWebTokenManager(config)
        self.registry = MCPClientRegistry(config)
        self.nonces = StateNonceStore(config)
        self.tickets = MobileTicketStore(config)
        self.replay = IdTokenReplayCache(config)
        rng = random.Random(seed)
        self.people = [new_actor(rng) for _ in range(ACTORS)]
        self.clients: list[dict[str, str]] = []
        self.kept: dict[str, list[Any]] = defaultdict(list)  # list.append is atomic

    def person(self, rng: random.Random) -> tuple[str, str]:
        """An actor id and its e-mail address."""
        number = rng.randrange(ACTORS)
        return self.people[number], f"visitor.{number}@mail.example.org"

    def client(self, rng: random.Random) -> str:
        return rng.choice(self.clients)["client_id"]

    def bucket(self, owner: str, bucket: str) -> Any:
        from actingweb.attribute import Attributes

        return Attributes(actor_id=owner, bucket=bucket, config=self.config)


def new_actor(rng: random.Random) -> str:
    return f"{rng.getrandbits(128):032x}"


def provider_answer() -> dict[str, Any]:
    """A token response of Google; its secrets must never reach a log."""
    return {
        "access_token": "ya29." + secrets.token_urlsafe(96),
        "refresh_token": "1//0" + secrets.token_urlsafe(48),
        "id_token": "eyJ" + secrets.token_urlsafe(120),
        "expires_in": 3599,
        "scope": "openid email profile",
        "token_type": "Bearer",
    }


def must(answer: Any) -> Any:
    """Raises on None or False, with which the library refuses an operation."""
    if not answer:
        raise RuntimeError("the library refused an operation that must succeed")
    return answer


def pick(rng: random.Random, *spans: tuple[float, float]) -> int:
    """An age within one of the spans."""
    return round(rng.uniform(*rng.choice(spans)))
