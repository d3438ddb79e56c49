"""One process of an application that is in use while its table is cleaned.

Through the real library's own managers people sign in, rotate, are robbed, sign out, register and
delete clients and are deleted, all at once in several of these processes. Half of what is issued dies
within seconds, and is used until then. What was done and what was answered goes into a log
(actingweb_live_log.py), which is the judge: something that was alive by the log and was refused has
been lost.

How something comes to die soon, in descending order of preference:
- the library takes a lifetime (SPA tokens, tickets);
- the library's constants are shortened (MCP tokens): their rows say when they were made, so that they
  are as young as they look to a repair, which leaves young rows alone;
- the clock is moved (actingweb_world.ago), for rows that no repair judges by their age, and for codes:
  a code made 9 minutes ago is still far from the hour of a repair's grace.

    --prepare                                     make the tables: the library waits seconds for each
    --log FILE --seconds N --operations N         be one of the processes
      --number N --seed N
    --last                                        read what must still be alive from standard input as a
                                                  JSON list, use it, and print a list of answers
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

PEOPLE = 8
GRACE = 60  # seconds in which a consumed refresh token may be presented again
SPA_REFRESH = "spa_refresh_tokens"


def short_lived_manager(config: Any) -> Any:
    """The library's token manager with lifetimes that can be shortened, and the name of its last chain."""
    from actingweb import constants
    from actingweb.oauth2_server.token_manager import ActingWebTokenManager

    class Manager(ActingWebTokenManager):
        last_chain = ""

        def _new_chain_id(self) -> str:  # type: ignore[override]
            self.last_chain = ActingWebTokenManager._new_chain_id()
            return self.last_chain

        def _store_google_token_data(self, *args: Any) -> None:
            # A provider row has no time but its TTL, from which a repair computes its age: it keeps the library's.
            shortened, constants.MCP_ACCESS_TOKEN_TTL = constants.MCP_ACCESS_TOKEN_TTL, HOUR
            try:
                super()._store_google_token_data(*args)
            finally:
                constants.MCP_ACCESS_TOKEN_TTL = shortened

        @contextmanager
        def living(self, access: int, refresh: int) -> Iterator[None]:
            """Tokens of these lifetimes, in their rows and in their TTLs."""
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
    """Presents whatever the log knows to the library, using up nothing that can be looked at."""

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
            case "spa_consumed":  # known, if only as used: that is the tripwire
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
            case "replay":  # a token that was seen is refused
                return not self.replay.check_and_record(entry.more["claims"])
            case "tombstone":
                return get_deletion_status(name, self.config) == DeletionStatus.DELETED
            case "verify":
                return self.rows("_actingweb_system", "_email_verify_tokens").get_attr(name=name) is not None
        raise SystemExit(f"unknown kind {entry.kind!r}")

    def use_up(self, entry: Entry) -> bool:
        """The last use of what is used up by it."""
        match entry.kind:
            case "spa_refresh":
                return self.spa.try_mark_refresh_token_used(entry.name)[0]
            case "mcp_refresh":
                return self.mcp.refresh_access_token(entry.name, entry.client) is not None
            case "mcp_code":
                return self.mcp.exchange_authorization_code(entry.name, entry.client) is not None
        return True

    def last(self, entries: list[Entry]) -> list[bool]:
        """Everything is looked at before anything is used up: a rotation deletes its access token."""
        seen = [self.present(entry) for entry in entries]
        return [seen and self.use_up(entry) for seen, entry in zip(seen, entries, strict=True)]


class Living(Presenter):
    """One process. Its people, clients and tokens are its own; the table and its owners are everybody's."""

    def __init__(self, log: Log, number: int, seed: int) -> None:
        super().__init__()
        self.log = log
        self.rng = random.Random(f"{seed}:{number}")
        # With a grace a token that is presented twice is rotated twice; without one it is a theft.
        self.thefts = number % 2 == 1
        self.config.refresh_token_grace_period = 0 if self.thefts else GRACE
        self.pool = ThreadPoolExecutor(2)
        self.people = [self.new_person() for _ in range(PEOPLE)]
        self.clients: dict[str, str] = {}
        self.reused: list[str] = []  # names of markers that have died, to be made again

    # --- helpers ----------------------------------------------------------------------------------

    def new_person(self) -> str:
        from actingweb.actor import Actor

        actor = Actor(config=self.config)
        must(actor.create(url="https://living.example.org/", creator=self.email(), passphrase=""))
        return must(actor.id)

    def email(self) -> str:
        """The random part first: a leak is looked for by its first characters."""
        return f"{self.rng.getrandbits(64):016x}@mail.example.org"

    def soon(self) -> int | None:
        return self.rng.randint(2, 6) if self.rng.random() < 0.5 else None

    def pick(self, *kinds: str, among: int = 2) -> Entry | None:
        """One of these kinds (of all, if none is given): of so many the one that dies next."""
        now = real_time()
        living = [e for e in self.log.alive.values() if (not kinds or e.kind in kinds) and not e.is_due(now)]
        if not living:
            return None
        return min(self.rng.sample(living, min(len(living), among)), key=lambda entry: entry.dies or now + DAY)

    def client(self) -> tuple[str, str]:
        """A client and the actor that it belongs to and works for."""
        if len(self.clients) < 4:
            self.register()
        return self.rng.choice(list(self.clients.items()))

    def use(self, entry: Entry) -> bool:
        began = real_time()
        answer = self.log.used(entry, began, self.present(entry))
        if entry.kind in ("nonce", "ticket"):
            self.log.ended("name", entry.name)
        return answer

    # --- what people do ---------------------------------------------------------------------------

    def look(self) -> None:
        """Mostly at what has only seconds left."""
        for _ in range(4):
            if entry := self.pick(among=20):
                self.use(entry)

    def look_back(self) -> None:
        """What was revoked or used up must stay so."""
        now = real_time()
        if gone := [entry for entry in self.log.left if not entry.is_due(now)]:
            entry = self.rng.choice(gone)
            began = real_time()
            self.log.used(entry, began, self.present(entry))

    def session(self) -> None:
        soon, email, answer = self.soon(), self.email(), provider_answer()
        with ago(600 - soon if soon else 0):
            began = int(time.time())
            name = self.spa.store_session(token_data=answer, user_info={"email": email}, provider="google")
        self.log.made(Entry("session", name, began + 601), email, *secret_values(answer))

    def claim_session(self) -> None:
        if entry := self.pick("session"):
            began = real_time()
            self.log.used(entry, began, self.spa.try_claim_session(entry.name))
            self.log.ended("name", entry.name)

    def issue_spa(self, actor: str, chain: str) -> None:
        email, began, access = self.email(), int(real_time()), self.config.new_token()
        soon, later = self.soon(), self.soon()
        self.spa.store_access_token(access, actor, email, ttl=soon, chain_id=chain)
        refresh = self.spa.create_refresh_token(actor, email, ttl=later, chain_id=chain)
        self.log.made(Entry("spa_access", access, began + (soon or HOUR) + 1, actor, chain), email)
        self.log.made(Entry("spa_refresh", refresh, began + (later or 14 * DAY) + 1, actor, chain), email)

    def sign_in(self) -> None:
        self.issue_spa(self.rng.choice(self.people), self.spa.new_chain_id())

    def rotate_spa(self) -> None:
        """Two at once: the compare-and-swap lets exactly one of them through."""
        if entry := self.pick("spa_refresh"):
            began = real_time()
            tries = [self.pool.submit(self.spa.try_mark_refresh_token_used, entry.name) for _ in range(2)]
            won = sum(attempt.result()[0] for attempt in tries)
            if won > 1:
                raise RuntimeError("a refresh token was consumed twice")
            if self.log.used(entry, began, won == 1):
                self.log.ended("name", entry.name)
                self.log.made(Entry("spa_consumed", entry.name, entry.dies, entry.actor, entry.chain))
                self.issue_spa(entry.actor, entry.chain)

    def sign_out(self) -> None:
        if entry := self.pick("spa_access", "spa_refresh"):
            began = real_time()
            self.log.over(self.log.used(entry, began, self.spa.revoke_session(entry.name)), "chain", entry.chain)

    def rob_spa(self) -> None:
        """As handlers/oauth2_spa.py answers a consumed token: the whole chain goes."""
        if (entry := self.pick("spa_consumed")) and self.use(entry):
            self.spa.revoke_token_chain(entry.actor, entry.chain, anchor=(SPA_REFRESH, entry.name))
            self.log.ended("chain", entry.chain)

    # --- what clients do --------------------------------------------------------------------------

    def register(self) -> None:
        actor = self.rng.choice(self.people)
        wanted = {"client_name": "Living", "redirect_uris": ["https://client.example.org/cb"]}
        made = self.registry.register_client(actor, wanted)
        self.clients[made["client_id"]] = actor
        self.log.made(Entry("client", made["client_id"], None, actor, "", made["client_id"]), made["client_secret"])

    def unregister(self) -> None:
        client, _ = self.client()
        if (entry := self.log.alive.get(client)) is None:
            return
        began = real_time()
        gone = self.log.used(entry, began, self.registry.delete_client(client))
        self.log.ending("client", client)  # codes too: nobody can exchange them any more, but the library keeps them
        self.log.over(gone, "client", client, ("client", "mcp_access", "mcp_refresh", "mcp_consumed"))
        del self.clients[client]

    def code(self) -> None:
        client, actor = self.client()
        soon, email, answer = self.soon(), self.email(), provider_answer()
        with ago(600 - soon if soon else 0):
            began = int(time.time())
            name = self.mcp.create_authorization_code(actor, client, answer, user_email=email)
        self.log.made(Entry("mcp_code", name, began + 601, actor, "", client), email, *secret_values(answer))

    def issue_mcp(self, old: Entry, call: Callable[[], Any], chain: str | None) -> Any:
        """Have `call` issue a pair for what `old` stands for, and write it down."""
        access, refresh = self.soon() or HOUR, self.soon() or 30 * DAY
        began = real_time()
        with self.mcp.living(access, refresh):
            pair = call()
        if not self.log.used(old, began, pair):
            return None
        if old.kind != "mcp_consumed":
            self.log.ended("name", old.name)
        chain = chain or self.mcp.last_chain
        whose = {"actor": old.actor, "chain": chain, "client": old.client}
        named = pair["access_token"]
        self.log.made(Entry("mcp_access", named, int(began) + access + 1, **whose))
        self.log.made(
            Entry("mcp_refresh", pair["refresh_token"], int(began) + refresh + 1, **whose, more={"access": named})
        )
        return pair

    def exchange(self) -> None:
        if entry := self.pick("mcp_code"):
            self.issue_mcp(entry, lambda: self.mcp.exchange_authorization_code(entry.name, entry.client), None)

    def rotate_mcp(self) -> None:
        if entry := self.pick("mcp_refresh"):
            began = real_time()
            rotate = lambda: self.mcp.refresh_access_token(entry.name, entry.client)  # noqa: E731
            if self.issue_mcp(entry, rotate, entry.chain):
                self.log.ended("name", entry.more["access"])
                whose = {"actor": entry.actor, "chain": entry.chain, "client": entry.client}
                when = {"used": [began, real_time()]}
                self.log.made(Entry("mcp_consumed", entry.name, entry.dies, **whose, more=when))

    def rob_mcp(self) -> None:
        """A consumed token again: within the grace it rotates, and after it, or without one, its chain must go."""
        if (entry := self.pick("mcp_consumed")) is None:
            return
        earliest, latest = (real_time() - used for used in entry.more["used"])
        if not self.thefts and earliest > GRACE - 20 and latest < GRACE + 2:
            return  # the grace might end while it is asked for
        present = lambda: self.mcp.refresh_access_token(entry.name, entry.client)  # noqa: E731
        if not self.thefts and earliest <= GRACE - 20:
            self.issue_mcp(entry, present, entry.chain)
            return
        heads = [e for e in self.log.alive.values() if e.chain == entry.chain and e.kind in ("mcp_access", "mcp_refresh")]
        if not heads:
            return  # nothing would show whether the theft was noticed
        began = real_time()
        if present():
            raise RuntimeError("a consumed refresh token was rotated past its grace")
        noticed = not any(self.present(head) for head in heads)
        self.log.over(self.log.used(entry, began, noticed), "chain", entry.chain)

    def revoke_mcp(self) -> None:
        if entry := self.pick("mcp_access", "mcp_refresh"):
            by, value = ("chain", entry.chain) if entry.chain else ("name", entry.name)
            began = real_time()
            self.log.over(self.log.used(entry, began, self.mcp.revoke_token(entry.name)), by, value)

    def application_token(self) -> None:
        client, actor = self.client()
        life, began = self.soon() or HOUR, int(real_time())
        with self.mcp.living(life, 30 * DAY):
            token = must(self.mcp.create_access_token(actor, client))["access_token"]
        self.log.made(Entry("mcp_access", token, began + life + 1, actor, "", client))

    def revoke_half(self) -> None:
        """An old grant whose revocation is cut off after its index row: unindexed, and never to be used again."""
        from actingweb import single_use

        client, actor = self.client()
        with ago(self.rng.randint(2, 20) * DAY):
            token = self.mcp._create_refresh_token(actor, client, "aw_gone", chain_id="c")["token"]
        # Old and, for a moment, without its index row: what only a moved clock can bring about. So it is not alive.
        self.log.ending("name", self.log.made(Entry("mcp_refresh", token, None, actor, "", client)).name)
        real, single_use.delete_confirmed = single_use.delete_confirmed, lambda *_: False
        try:
            self.mcp._remove_refresh_token_row(actor, token)
        finally:
            single_use.delete_confirmed = real
        self.log.ended("name", token)

    # --- actors and markers -----------------------------------------------------------------------

    def delete_person(self) -> None:
        from actingweb.actor import Actor

        actor = self.rng.choice(self.people)
        began = int(real_time())
        Actor(actor_id=actor, config=self.config).delete()
        self.log.ended("actor", actor, (*MCP, "client"))  # SPA tokens are not the actor's rows: they stay
        self.log.made(Entry("tombstone", actor, began + 30 * DAY + HOUR))
        self.clients = {client: owner for client, owner in self.clients.items() if owner != actor}
        self.people[self.people.index(actor)] = self.new_person()

    def tombstone(self) -> None:
        """Of an actor id that is used again and again."""
        from actingweb.deletion import mark_actor_deleted

        name = self.reuse("tombstone:") or f"{self.rng.getrandbits(128):032x}"
        soon = self.soon() or 60
        with ago(30 * DAY + HOUR - soon):
            began = int(time.time())
            must(mark_actor_deleted(name, self.config))
        self.log.made(Entry("tombstone", name, began + 30 * DAY + HOUR))

    def seen_token(self) -> None:
        """An id_token is recorded; when its marker has died, the next one of the same name."""
        jti = self.reuse("replay:") or secrets.token_urlsafe(16)
        exp = int(real_time()) - 60 + (self.soon() or 120)
        claims = {"jti": jti, "exp": exp}
        name = self.replay._key_for_claims(claims)
        must(self.replay.check_and_record(claims))
        self.log.made(Entry("replay", name, exp + 60, more={"claims": claims}))

    def reuse(self, kind: str) -> str | None:
        for number, name in enumerate(self.reused):
            if name.startswith(kind):
                return self.reused.pop(number).removeprefix(kind)
        return None

    def nonce(self) -> None:
        soon = self.soon()
        with ago(600 + HOUR - soon if soon else 0):
            began = int(time.time())
            name = self.nonces.create({"csrf": secrets.token_urlsafe(16)})
        self.log.made(Entry("nonce", name, began + 600 + HOUR + 1))

    def ticket(self) -> None:
        soon, code, began = self.soon(), secrets.token_urlsafe(32), int(real_time())
        name = self.tickets.create(code=code, redirect_uri="https://r.example.org", provider="apple", ttl=soon)
        # The one time that is compared with its fraction: it is refused from the second in which it expires.
        self.log.made(Entry("ticket", name, began + (soon or 300)), code)

    def verify(self) -> None:
        soon, name = self.soon(), secrets.token_urlsafe(32)
        with ago(DAY + HOUR - soon if soon else 0):
            began = int(time.time())
            rows = self.rows("_actingweb_system", "_email_verify_tokens")
            must(rows.set_attr(name=name, data=self.rng.choice(self.people), ttl_seconds=DAY))
        self.log.made(Entry("verify", name, began + DAY + HOUR + 1))

    # --- a life -----------------------------------------------------------------------------------

    def forget_the_dead(self) -> None:
        """What has died is the janitor's: the library deletes what it finds expired, and would do its work."""
        now = real_time()
        for entry in [entry for entry in self.log.alive.values() if entry.is_due(now)]:
            del self.log.alive[entry.name]
            if entry.kind == "replay":
                self.reused.append("replay:" + entry.more["claims"]["jti"])
                self.seen_token()  # at once: the janitor may be about to delete the one that has just died
            elif entry.kind == "tombstone":
                self.reused.append("tombstone:" + entry.name)
                self.tombstone()

    def live(self, seconds: float, operations: int) -> None:
        """So long, and on a busy machine longer, until so much has been done."""
        deeds = {
            self.look: 24, self.look_back: 4, self.sign_in: 10, self.code: 12, self.exchange: 10, self.session: 6,
            self.rotate_spa: 6, self.rotate_mcp: 6, self.application_token: 4, self.seen_token: 4, self.tombstone: 4,
            self.claim_session: 2, self.sign_out: 3, self.rob_spa: 2, self.rob_mcp: 3, self.revoke_mcp: 3,
            self.nonce: 3, self.ticket: 3, self.verify: 3, self.register: 1, self.unregister: 1,
            self.revoke_half: 2, self.delete_person: 1,
        }  # fmt: skip
        end = real_time() + seconds
        while real_time() < end or self.log.operations < operations:
            (deed,) = self.rng.choices(list(deeds), list(deeds.values()))
            try:
                deed()
                self.forget_the_dead()
            except Exception as error:
                self.log.line("raised", deed=deed.__name__, error=f"{type(error).__name__}: {error}")


def prepare() -> None:
    """Every table of a deployment that is not there yet."""
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
    parser.add_argument("--prepare", action="store_true", help="make the tables")
    parser.add_argument("--last", action="store_true", help="use what must still be alive")
    parser.add_argument("--log", help="where the lines go")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--operations", type=int, default=0, help="how many at least")
    parser.add_argument("--number", type=int, default=0, help="which of the processes this is")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.prepare:
        prepare()
        return
    if args.last:
        wanted = ("kind", "name", "dies", "actor", "chain", "client", "more")
        entries = [Entry(**{name: entry[name] for name in wanted}) for entry in json.load(sys.stdin)]
        print(json.dumps(Presenter().last(entries)))
        return
    if not args.log:
        parser.error("--log is missing")
    log = Log(args.log, real_time)
    living = Living(log, args.number, args.seed)
    world.move_the_clock()
    living.live(args.seconds, args.operations)


if __name__ == "__main__":
    main()
