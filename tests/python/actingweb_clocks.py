"""A server of the real library whose clock stands where the test sets it: one JSON line in, one out.

    {"do": "issue", "until": SECOND}   one of everything that the library issues, each alive up to and including this
                                       second of the server's clock: made so long before as it lives
    {"do": "look", "at": SECOND}       present everything that is not used up by it
    {"do": "use", "at": SECOND}        present everything, use up what can be used once, then replay all of that

Answers are lists of kinds: `lost` was refused, `replayed` was accepted a second time, `used` worked. No token is printed.
"""

from __future__ import annotations

import json
import random
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from actingweb_live import SPA_REFRESH, Presenter
from actingweb_live_log import Entry
from actingweb_world import DAY, HOUR, MINUTE, REUSE_WINDOW, must, new_actor, provider_answer

USED_UP_BY_LOOKING = ("nonce", "ticket")
USED_ONCE = ("spa_refresh", "mcp_refresh", "mcp_code")


class Server(Presenter):
    def __init__(self) -> None:
        super().__init__()
        self.config.refresh_token_grace_period = 0
        self.rng = random.Random(1)
        self.now = time.time()
        # The library reads time.time(). Request signing reads datetime, which stays true.
        time.time = lambda: self.now
        self.entries: list[Entry] = []
        self.heads: dict[str, Entry] = {}  # a consumed token -> the one that was rotated from it

    @contextmanager
    def at(self, moment: float) -> Iterator[None]:
        self.now = moment
        yield

    def made(self, kind: str, name: str, **whose: Any) -> Entry:
        self.entries.append(Entry(kind, name, None, **whose))
        return self.entries[-1]

    # --- issuing ----------------------------------------------------------------------------------

    def issue(self, until: int) -> None:
        self.entries, self.heads = [], {}
        actor, email = new_actor(self.rng), f"{self.rng.getrandbits(64):016x}@mail.example.org"
        with self.at(until - 60 * DAY):
            client = self.client(actor, "Clocks")
            self.made("client", client)
        with self.at(until - 10 * MINUTE):
            session = self.spa.store_session(token_data=provider_answer(), user_info={"email": email}, provider="google")
            self.made("session", session)
            code = self.mcp.create_authorization_code(actor, client, provider_answer(), user_email=email)
            self.made("mcp_code", code, actor=actor, client=client)
            self.made("nonce", self.nonces.create({"csrf": secrets.token_urlsafe(16)}))
        with self.at(until - 5 * MINUTE):
            ticket = self.tickets.create(code=secrets.token_urlsafe(32), redirect_uri="https://r.example.org", provider="apple")
            self.made("ticket", ticket)
        with self.at(until - HOUR):
            access = self.config.new_token()
            self.spa.store_access_token(access, actor, email, chain_id=self.spa.new_chain_id())
            self.made("spa_access", access)
            self.made("mcp_access", self.grant(actor, client)["access_token"])
        with self.at(until - DAY):
            verify = secrets.token_urlsafe(32)
            must(self.rows("_actingweb_system", "_email_verify_tokens").set_attr(name=verify, data=actor, ttl_seconds=DAY))
            self.made("verify", verify)
        with self.at(until - 14 * DAY):
            self.made("spa_refresh", self.spa.create_refresh_token(actor, email, chain_id=self.spa.new_chain_id()))
        with self.at(until - 30 * DAY):
            from actingweb.deletion import mark_actor_deleted

            self.made("mcp_refresh", self.grant(actor, client)["refresh_token"], actor=actor, client=client)
            gone = new_actor(self.rng)
            must(mark_actor_deleted(gone, self.config))
            self.made("tombstone", gone)
        self.seen_tokens(until)
        self.consumed(until, actor, email, client)

    def grant(self, actor: str, client: str) -> dict[str, str]:
        code = self.mcp.create_authorization_code(actor, client, provider_answer(), user_email="a@mail.example.org")
        return must(self.mcp.exchange_authorization_code(code, client))

    def seen_tokens(self, until: int) -> None:
        """The library takes an id_token for a minute after its `exp`; one without is remembered for a quarter of an hour."""
        for age, exp in ((10 * MINUTE, {"exp": until - 59}), (15 * MINUTE, {})):
            claims = {"jti": secrets.token_urlsafe(16), **exp}
            with self.at(until - age):
                must(self.replay.check_and_record(claims))
            self.made("replay", claims["jti"], more={"claims": claims})

    def consumed(self, until: int, actor: str, email: str, client: str) -> None:
        """Theft is answered up to the last second of the reuse window, which here is the last of the token as well, and takes
        what was rotated from it with it."""
        chain = self.spa.new_chain_id()
        with self.at(until - 14 * DAY):
            spa = self.spa.create_refresh_token(actor, email, chain_id=chain)
        with self.at(until - 30 * DAY):
            mcp = self.grant(actor, client)["refresh_token"]
        with self.at(until - REUSE_WINDOW):
            must(self.spa.try_mark_refresh_token_used(spa)[0])
            head = self.spa.create_refresh_token(actor, email, chain_id=chain)
            rotated = must(self.mcp.refresh_access_token(mcp, client))["refresh_token"]
        self.made("spa_consumed", spa, actor=actor, chain=chain)
        self.made("mcp_consumed", mcp, actor=actor, client=client)
        self.heads = {spa: Entry("spa_refresh", head, None), mcp: Entry("mcp_refresh", rotated, None)}

    # --- using ------------------------------------------------------------------------------------

    def look(self, moment: int) -> dict[str, list[str]]:
        with self.at(moment):
            seen = [entry for entry in self.entries if entry.kind not in USED_UP_BY_LOOKING]
            return {"lost": [entry.kind for entry in seen if not self.present(entry)]}

    def use(self, moment: int) -> dict[str, list[str]]:
        with self.at(moment):
            # Everything is looked at before anything is used up: a rotation deletes its access token.
            lost = [entry.kind for entry in self.entries if not self.present(entry)]
            lost += [f"{entry.kind} used" for entry in self.entries if entry.kind in USED_ONCE and not self.use_up(entry)]
            replayed = [entry.kind for entry in self.entries if entry.kind in USED_UP_BY_LOOKING and self.present(entry)]
            replayed += [entry.kind for entry in self.entries if entry.kind in USED_ONCE and self.use_up(entry)]
            replayed += [entry.kind for entry in self.entries if entry.name in self.heads and not self.theft(entry)]
            return {"lost": lost, "replayed": replayed, "used": sorted({entry.kind for entry in self.entries})}

    def theft(self, entry: Entry) -> bool:
        """A consumed token is presented again: it is refused, and its chain has to go."""
        head = self.heads[entry.name]
        if not self.present(head):
            return False  # nothing would show whether the theft was noticed
        if entry.kind == "mcp_consumed":
            refused = self.mcp.refresh_access_token(entry.name, entry.client) is None
        else:
            refused = self.spa_theft(entry)
        return refused and not self.present(head)

    def spa_theft(self, entry: Entry) -> bool:
        """The ladder of handlers/oauth2_spa.py, which keeps it inside an HTTP handler."""
        from actingweb.constants import SPA_REFRESH_TOKEN_REUSE_WINDOW
        from actingweb.single_use import classify_reuse

        consumed, data = self.spa.try_mark_refresh_token_used(entry.name)
        if consumed or data is None:
            return False
        age = int(time.time()) - data["used_at"]
        if classify_reuse(age, 0, SPA_REFRESH_TOKEN_REUSE_WINDOW) != "theft":
            return False
        return self.spa.revoke_token_chain(entry.actor, entry.chain, anchor=(SPA_REFRESH, entry.name)) > 0


def main() -> None:
    server = Server()
    for line in sys.stdin:
        asked = json.loads(line)
        match asked["do"]:
            case "issue":
                server.issue(asked["until"])
                answer: dict[str, list[str]] = {}
            case "look":
                answer = server.look(asked["at"])
            case "use":
                answer = server.use(asked["at"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
