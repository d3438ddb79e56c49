"""One process of a live application, which uses its table while the janitor cleans it.

Several of these processes run concurrently. Through the real library's managers, users sign in, rotate
tokens, replay consumed ones and sign out, clients are registered and deleted, and actors are deleted.
Half of the credentials expire within seconds, and are used until then. Each operation and its answer is
logged (actingweb_live_log.py). A credential that is alive by the log and was refused is a lost row.

How a credential gets a short lifetime, in order of preference:
- the library takes a lifetime (SPA tokens, tickets);
- the library's constants are shortened (MCP tokens): `created_at` is then true, and a repair keeps
  young rows;
- the clock is moved (actingweb_world.ago), for rows whose age no repair uses, and for codes: a code
  created 9 minutes ago is far from the repair's grace period of an hour.

    --prepare                                     create the tables, without the library's wait for each
    --log FILE --seconds N --operations N         run as one of the processes
      --number N --seed N
    --last                                        read a JSON list of live credentials from standard input,
                                                  use them, and print a list of answers
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import actingweb_env as env
import actingweb_world as world
from actingweb_grants import Library
from actingweb_live_log import MCP, Entry, Log
from actingweb_world import DAY, HOUR, ago, must, provider_answer, real_time

USERS = 8
GRACE = 60  # seconds in which a consumed refresh token may be presented again
SPA_REFRESH = "spa_refresh_tokens"


def short_lived_manager(config: Any) -> Any:
    """The library's token manager with adjustable lifetimes, and the id of its last chain."""
    from actingweb import constants
    from actingweb.oauth2_server.token_manager import ActingWebTokenManager

    class Manager(ActingWebTokenManager):
        last_chain = ""

        def _new_chain_id(self) -> str:  # type: ignore[override]
            self.last_chain = ActingWebTokenManager._new_chain_id()
            return self.last_chain

        def _store_google_token_data(self, *args: Any) -> None:
            # A repair computes a provider row's age from its TTL, so the TTL must be the library's own.
            shortened, constants.MCP_ACCESS_TOKEN_TTL = constants.MCP_ACCESS_TOKEN_TTL, HOUR
            try:
                super()._store_google_token_data(*args)
            finally:
                constants.MCP_ACCESS_TOKEN_TTL = shortened

        @contextmanager
        def lifetimes(self, access: int, refresh: int) -> Iterator[None]:
            """Issue tokens with these lifetimes, in their data and in their TTLs."""
            before = self.default_expires_in, self.refresh_token_expires_in
            self.default_expires_in, self.refresh_token_expires_in = access, refresh
            constants.MCP_ACCESS_TOKEN_TTL, constants.MCP_REFRESH_TOKEN_TTL = access, refresh
            try:
                yield
            finally:
                self.default_expires_in, self.refresh_token_expires_in = before
                constants.MCP_ACCESS_TOKEN_TTL, constants.MCP_REFRESH_TOKEN_TTL = before

    return Manager(config)


class Presenter(Library):
    """Presents logged credentials to the library, without consuming them where the library allows that."""

    def __init__(self) -> None:
        super().__init__()
        from actingweb.oauth2_replay import IdTokenReplayCache
        from actingweb.oauth_state_store import MobileTicketStore, StateNonceStore

        self.mcp = short_lived_manager(self.config)
        self.nonces = StateNonceStore(self.config)
        self.tickets = MobileTicketStore(self.config)
        self.replay = IdTokenReplayCache(self.config)

    def rows(self, owner: str, bucket: str) -> Any:
        from actingweb.attribute import Attributes

        return Attributes(actor_id=owner, bucket=bucket, config=self.config)

    def present(self, entry: Entry) -> bool:
        from actingweb.deletion import DeletionStatus, get_deletion_status

        name = entry.name
        match entry.kind:
            case "session":
                return self.spa.get_session(name) is not None
            case "spa_access":
                return self.spa.validate_access_token(name) is not None
            case "spa_refresh":
                return self.spa.validate_refresh_token(name) is not None
            case "spa_consumed":  # known, as consumed: the tripwire
                consumed, data = self.spa.try_mark_refresh_token_used(name)
                return not consumed and data is not None
            case "mcp_access":
                found = self.mcp.validate_access_token(name)
                key = found[2].get("google_token_key") if found else None
                return bool(found) and (key is None or bool(self.mcp._load_google_token_data(found[0], key)))
            case "mcp_refresh":
                return self.mcp._load_refresh_token(name) is not None
            case "mcp_consumed":
                found = self.mcp._load_refresh_token(name)
                return found is not None and found["used"]
            case "mcp_code":
                return self.mcp._load_auth_code(name) is not None
            case "client":
                return self.registry.load_client_strict(name) is not None
            case "nonce":
                return self.nonces.consume(name) is not None
            case "ticket":
                return self.tickets.consume(name) is not None
            case "replay":  # a recorded token is refused
                return not self.replay.check_and_record(entry.more["claims"])
            case "tombstone":
                return get_deletion_status(name, self.config) == DeletionStatus.DELETED
            case "verify":
                return self.rows("_actingweb_system", "_email_verify_tokens").get_attr(name=name) is not None
        raise SystemExit(f"unknown kind {entry.kind!r}")

    def consume(self, entry: Entry) -> bool:
        """The last use of a single-use credential; true for every other kind."""
        match entry.kind:
            case "spa_refresh":
                return self.spa.try_mark_refresh_token_used(entry.name)[0]
            case "mcp_refresh":
                return self.mcp.refresh_access_token(entry.name, entry.client) is not None
            case "mcp_code":
                return self.mcp.exchange_authorization_code(entry.name, entry.client) is not None
        return True

    def last(self, entries: list[Entry]) -> list[bool]:
        """Presents everything before consuming anything: a rotation deletes its access token."""
        accepted = [self.present(entry) for entry in entries]
        return [good and self.consume(entry) for good, entry in zip(accepted, entries, strict=True)]


class LiveApplication(Presenter):
    """One process. It has its own users, clients and tokens; all processes share the table and the system actors."""

    def __init__(self, log: Log, number: int, seed: int) -> None:
        super().__init__()
        self.log = log
        self.rng = random.Random(f"{seed}:{number}")
        # With a grace period, a second presentation rotates the token again; without one it is a theft.
        self.thefts = number % 2 == 1
        self.config.refresh_token_grace_period = 0 if self.thefts else GRACE
        self.pool = ThreadPoolExecutor(2)
        self.users = [self.new_user() for _ in range(USERS)]
        self.clients: dict[str, str] = {}
        self.reusable: list[str] = []  # names of expired markers, to be created again

    # --- helpers ----------------------------------------------------------------------------------

    def new_user(self) -> str:
        from actingweb.actor import Actor

        actor = Actor(config=self.config)
        must(actor.create(url="https://living.example.org/", creator=self.email(), passphrase=""))
        return must(actor.id)

    def email(self) -> str:
        """The random part first: the search for leaks compares the first characters."""
        return f"{self.rng.getrandbits(64):016x}@mail.example.org"

    def soon(self) -> int | None:
        return self.rng.randint(2, 6) if self.rng.random() < 0.5 else None

    def pick(self, *kinds: str, among: int = 2) -> Entry | None:
        """Of a sample of `among` live entries of these kinds (default: all), the one that expires first."""
        now = real_time()
        alive = [e for e in self.log.alive.values() if (not kinds or e.kind in kinds) and not e.is_due(now)]
        if not alive:
            return None
        return min(self.rng.sample(alive, min(len(alive), among)), key=lambda entry: entry.dies or now + DAY)

    def client(self) -> tuple[str, str]:
        """A client and the actor that owns it."""
        if len(self.clients) < 4:
            self.register()
        return self.rng.choice(list(self.clients.items()))

    def use(self, entry: Entry) -> bool:
        started = real_time()
        answer = self.log.used(entry, started, self.present(entry))
        if entry.kind in ("nonce", "ticket"):
            self.log.ended("name", entry.name)
        return answer

    # --- users ------------------------------------------------------------------------------------

    def use_some(self) -> None:
        """Mostly credentials with only seconds left."""
        for _ in range(4):
            if entry := self.pick(among=20):
                self.use(entry)

    def retry_ended(self) -> None:
        """A revoked or consumed credential must still be refused."""
        now = real_time()
        if ended := [entry for entry in self.log.ended_early if not entry.is_due(now)]:
            entry = self.rng.choice(ended)
            started = real_time()
            self.log.used(entry, started, self.present(entry))

    def session(self) -> None:
        soon, email, answer = self.soon(), self.email(), provider_answer()
        with ago(600 - soon if soon else 0):
            started = int(time.time())
            name = self.spa.store_session(token_data=answer, user_info={"email": email}, provider="google")
        self.log.made(Entry("session", name, started + 601), email, *secret_values(answer))

    def claim_session(self) -> None:
        if entry := self.pick("session"):
            started = real_time()
            self.log.used(entry, started, self.spa.try_claim_session(entry.name))
            self.log.ended("name", entry.name)

    def issue_spa(self, actor: str, chain: str) -> None:
        email, started, access = self.email(), int(real_time()), self.config.new_token()
        soon, later = self.soon(), self.soon()
        self.spa.store_access_token(access, actor, email, ttl=soon, chain_id=chain)
        refresh = self.spa.create_refresh_token(actor, email, ttl=later, chain_id=chain)
        self.log.made(Entry("spa_access", access, started + (soon or HOUR) + 1, actor, chain), email)
        self.log.made(Entry("spa_refresh", refresh, started + (later or 14 * DAY) + 1, actor, chain), email)

    def sign_in(self) -> None:
        self.issue_spa(self.rng.choice(self.users), self.spa.new_chain_id())

    def rotate_spa(self) -> None:
        """Two concurrent attempts: the compare-and-swap lets exactly one succeed."""
        if entry := self.pick("spa_refresh"):
            started = real_time()
            tries = [self.pool.submit(self.spa.try_mark_refresh_token_used, entry.name) for _ in range(2)]
            won = sum(attempt.result()[0] for attempt in tries)
            if won > 1:
                raise RuntimeError("a refresh token was consumed twice")
            if self.log.used(entry, started, won == 1):
                self.log.ended("name", entry.name)
                self.log.made(Entry("spa_consumed", entry.name, entry.dies, entry.actor, entry.chain))
                self.issue_spa(entry.actor, entry.chain)

    def sign_out(self) -> None:
        if entry := self.pick("spa_access", "spa_refresh"):
            started = real_time()
            self.log.over(self.log.used(entry, started, self.spa.revoke_session(entry.name)), "chain", entry.chain)

    def replay_spa(self) -> None:
        """As handlers/oauth2_spa.py answers a consumed token: revoke the whole chain."""
        if (entry := self.pick("spa_consumed")) and self.use(entry):
            self.spa.revoke_token_chain(entry.actor, entry.chain, anchor=(SPA_REFRESH, entry.name))
            self.log.ended("chain", entry.chain)

    # --- clients ----------------------------------------------------------------------------------

    def register(self) -> None:
        actor = self.rng.choice(self.users)
        metadata = {"client_name": "Living", "redirect_uris": ["https://client.example.org/cb"]}
        made = self.registry.register_client(actor, metadata)
        self.clients[made["client_id"]] = actor
        self.log.made(Entry("client", made["client_id"], None, actor, "", made["client_id"]), made["client_secret"])

    def unregister(self) -> None:
        client, _ = self.client()
        if (entry := self.log.alive.get(client)) is None:
            return
        started = real_time()
        deleted = self.log.used(entry, started, self.registry.delete_client(client))
        self.log.ending("client", client)  # codes too: the library keeps them, but they cannot be exchanged
        self.log.over(deleted, "client", client, ("client", "mcp_access", "mcp_refresh", "mcp_consumed"))
        del self.clients[client]

    def code(self) -> None:
        client, actor = self.client()
        if entry := self.log.alive.get(client):
            self.use(entry)  # as every authorisation does
        soon, email, answer = self.soon(), self.email(), provider_answer()
        with ago(600 - soon if soon else 0):
            started = int(time.time())
            name = self.mcp.create_authorization_code(actor, client, answer, user_email=email)
        self.log.made(Entry("mcp_code", name, started + 601, actor, "", client), email, *secret_values(answer))

    def issue_mcp(self, old: Entry, call: Callable[[], Any], chain: str | None) -> Any:
        """Issues a pair of tokens with `call`, in exchange for `old`, and logs it."""
        access, refresh = self.soon() or HOUR, self.soon() or 30 * DAY
        started = real_time()
        with self.mcp.lifetimes(access, refresh):
            pair = call()
        if not self.log.used(old, started, pair):
            return None
        if old.kind != "mcp_consumed":
            self.log.ended("name", old.name)
        chain = chain or self.mcp.last_chain
        ids = {"actor": old.actor, "chain": chain, "client": old.client}
        named = pair["access_token"]
        self.log.made(Entry("mcp_access", named, int(started) + access + 1, **ids))
        self.log.made(
            Entry("mcp_refresh", pair["refresh_token"], int(started) + refresh + 1, **ids, more={"access": named})
        )
        return pair

    def exchange(self) -> None:
        if entry := self.pick("mcp_code"):
            self.issue_mcp(entry, lambda: self.mcp.exchange_authorization_code(entry.name, entry.client), None)

    def rotate_mcp(self) -> None:
        if entry := self.pick("mcp_refresh"):
            started = real_time()
            rotate = lambda: self.mcp.refresh_access_token(entry.name, entry.client)  # noqa: E731
            if self.issue_mcp(entry, rotate, entry.chain):
                self.log.ended("name", entry.more["access"])
                ids = {"actor": entry.actor, "chain": entry.chain, "client": entry.client}
                when = {"used": [started, real_time()]}
                self.log.made(Entry("mcp_consumed", entry.name, entry.dies, **ids, more=when))

    def replay_mcp(self) -> None:
        """Presents a consumed token: within the grace period it rotates, otherwise its chain must be revoked."""
        if (entry := self.pick("mcp_consumed")) is None:
            return
        earliest, latest = (real_time() - used for used in entry.more["used"])
        if not self.thefts and earliest > GRACE - 20 and latest < GRACE + 2:
            return  # the grace period might end during the request
        present = lambda: self.mcp.refresh_access_token(entry.name, entry.client)  # noqa: E731
        if not self.thefts and earliest <= GRACE - 20:
            self.issue_mcp(entry, present, entry.chain)
            return
        heads = [e for e in self.log.alive.values() if e.chain == entry.chain and e.kind in ("mcp_access", "mcp_refresh")]
        if not heads:
            return  # without a live token of the chain, detection cannot be observed
        started = real_time()
        if present():
            raise RuntimeError("a consumed refresh token was rotated after its grace period")
        detected = not any(self.present(head) for head in heads)
        self.log.over(self.log.used(entry, started, detected), "chain", entry.chain)

    def revoke_mcp(self) -> None:
        if entry := self.pick("mcp_access", "mcp_refresh"):
            by, value = ("chain", entry.chain) if entry.chain else ("name", entry.name)
            started = real_time()
            self.log.over(self.log.used(entry, started, self.mcp.revoke_token(entry.name)), by, value)

    def application_token(self) -> None:
        client, actor = self.client()
        life, started = self.soon() or HOUR, int(real_time())
        with self.mcp.lifetimes(life, 30 * DAY):
            token = must(self.mcp.create_access_token(actor, client))["access_token"]
        self.log.made(Entry("mcp_access", token, started + life + 1, actor, "", client))

    def revoke_half(self) -> None:
        """An old grant whose revocation stops after its index row: it is unindexed, and must never be accepted."""
        from actingweb import single_use

        client, actor = self.client()
        with ago(self.rng.randint(2, 20) * DAY):
            token = self.mcp._create_refresh_token(actor, client, "aw_gone", chain_id="c")["token"]
        # Not logged as alive: with the moved clock it was old before it had its index row, so a repair may have deleted it.
        self.log.ending("name", self.log.made(Entry("mcp_refresh", token, None, actor, "", client)).name)
        real, single_use.delete_confirmed = single_use.delete_confirmed, lambda *_: False
        try:
            self.mcp._remove_refresh_token_row(actor, token)
        finally:
            single_use.delete_confirmed = real
        self.log.ended("name", token)

    # --- actors and markers -----------------------------------------------------------------------

    def delete_user(self) -> None:
        from actingweb.actor import Actor

        actor = self.rng.choice(self.users)
        started = int(real_time())
        Actor(actor_id=actor, config=self.config).delete()
        self.log.ended("actor", actor, (*MCP, "client"))  # SPA tokens are not the actor's rows: they are kept
        self.log.made(Entry("tombstone", actor, started + 30 * DAY + HOUR))
        self.clients = {client: owner for client, owner in self.clients.items() if owner != actor}
        self.users[self.users.index(actor)] = self.new_user()

    def tombstone(self) -> None:
        """For an actor id that is reused."""
        from actingweb.deletion import mark_actor_deleted

        name = self.reuse("tombstone:") or f"{self.rng.getrandbits(128):032x}"
        soon = self.soon() or 60
        with ago(30 * DAY + HOUR - soon):
            started = int(time.time())
            must(mark_actor_deleted(name, self.config))
        self.log.made(Entry("tombstone", name, started + 30 * DAY + HOUR))

    def seen_token(self) -> None:
        """Records an id_token; after its marker expires, another one with the same name."""
        jti = self.reuse("replay:") or secrets.token_urlsafe(16)
        exp = int(real_time()) - 60 + (self.soon() or 120)
        claims = {"jti": jti, "exp": exp}
        name = self.replay._key_for_claims(claims)
        must(self.replay.check_and_record(claims))
        self.log.made(Entry("replay", name, exp + 60, more={"claims": claims}))

    def reuse(self, kind: str) -> str | None:
        for number, name in enumerate(self.reusable):
            if name.startswith(kind):
                return self.reusable.pop(number).removeprefix(kind)
        return None

    def nonce(self) -> None:
        soon = self.soon()
        with ago(600 + HOUR - soon if soon else 0):
            started = int(time.time())
            name = self.nonces.create({"csrf": secrets.token_urlsafe(16)})
        self.log.made(Entry("nonce", name, started + 600 + HOUR + 1))

    def ticket(self) -> None:
        soon, code, started = self.soon(), secrets.token_urlsafe(32), int(real_time())
        name = self.tickets.create(code=code, redirect_uri="https://r.example.org", provider="apple", ttl=soon)
        # Unlike the others, it is refused from the second in which it expires: the library compares fractions.
        self.log.made(Entry("ticket", name, started + (soon or 300)), code)

    def verify(self) -> None:
        soon, name = self.soon(), secrets.token_urlsafe(32)
        with ago(DAY + HOUR - soon if soon else 0):
            started = int(time.time())
            rows = self.rows("_actingweb_system", "_email_verify_tokens")
            must(rows.set_attr(name=name, data=self.rng.choice(self.users), ttl_seconds=DAY))
        self.log.made(Entry("verify", name, started + DAY + HOUR + 1))

    # --- the loop ---------------------------------------------------------------------------------

    def forget_expired(self) -> None:
        """Leaves expired rows to the janitor: the library deletes the expired rows that it reads."""
        now = real_time()
        for entry in [entry for entry in self.log.alive.values() if entry.is_due(now)]:
            del self.log.alive[entry.name]
            if entry.kind == "replay":
                self.reusable.append("replay:" + entry.more["claims"]["jti"])
                self.seen_token()  # at once: the janitor may be about to delete the expired one
            elif entry.kind == "tombstone":
                self.reusable.append("tombstone:" + entry.name)
                self.tombstone()

    def run(self, seconds: float, operations: int) -> None:
        """For at least this many seconds and operations."""
        actions = {
            self.use_some: 24, self.retry_ended: 4, self.sign_in: 10, self.code: 12, self.exchange: 10, self.session: 6,
            self.rotate_spa: 6, self.rotate_mcp: 6, self.application_token: 4, self.seen_token: 4, self.tombstone: 4,
            self.claim_session: 2, self.sign_out: 3, self.replay_spa: 2, self.replay_mcp: 3, self.revoke_mcp: 3,
            self.nonce: 3, self.ticket: 3, self.verify: 3, self.register: 1, self.unregister: 1,
            self.revoke_half: 2, self.delete_user: 1,
        }  # fmt: skip
        end = real_time() + seconds
        while real_time() < end or self.log.operations < operations:
            (action,) = self.rng.choices(list(actions), list(actions.values()))
            try:
                action()
                self.forget_expired()
            except Exception as error:
                self.log.line("raised", action=action.__name__, error=f"{type(error).__name__}: {error}")


def prepare() -> None:
    """Creates the tables of a deployment that do not exist yet."""
    env.library_config()
    import actingweb.db.dynamodb as models
    from pynamodb.models import Model

    for module in pkgutil.iter_modules(models.__path__, models.__name__ + "."):
        for model in vars(importlib.import_module(module.name)).values():
            if isinstance(model, type) and issubclass(model, Model) and hasattr(model, "Meta") and not model.exists():
                model.create_table(wait=False)


def secret_values(answer: dict[str, Any]) -> list[str]:
    return [answer[name] for name in ("access_token", "refresh_token", "id_token")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prepare", action="store_true", help="create the tables")
    parser.add_argument("--last", action="store_true", help="use the credentials that must still be alive")
    parser.add_argument("--log", help="file to write the log to")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--operations", type=int, default=0, help="minimum number of operations")
    parser.add_argument("--number", type=int, default=0, help="number of this process")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.prepare:
        prepare()
        return
    if args.last:
        fields = ("kind", "name", "dies", "actor", "chain", "client", "more")
        entries = [Entry(**{name: entry[name] for name in fields}) for entry in json.load(sys.stdin)]
        print(json.dumps(Presenter().last(entries)))
        return
    if not args.log:
        parser.error("--log is missing")
    log = Log(args.log, real_time)
    application = LiveApplication(log, args.number, args.seed)
    world.patch_clock()
    application.run(args.seconds, args.operations)


if __name__ == "__main__":
    main()
