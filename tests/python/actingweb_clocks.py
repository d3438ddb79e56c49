"""A server of the real library with a clock that the test sets: one JSON line in, one out.

    {"do": "issue", "until": SECOND}   issue one credential of each kind; each is valid up to and including this
                                       second of the server's clock
    {"do": "look", "at": SECOND}       present each credential that presenting does not consume
    {"do": "use", "at": SECOND}        present each credential, consume the single-use ones, then replay those

Answers are lists of kinds: `lost` was refused, `replayed` was accepted a second time, `used` is every kind that was tried.
No token is printed.
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

CONSUMED_BY_PRESENTING = ("nonce", "ticket")
SINGLE_USE = ("spa_refresh", "mcp_refresh", "mcp_code")


class Server(Presenter):
    def __init__(self) -> None:
        super().__init__()
        self.config.refresh_token_grace_period = 0
        self.rng = random.Random(1)
        self.now = time.time()
        # The library reads time.time(). Request signing reads datetime, which is not patched.
        time.time = lambda: self.now
        self.entries: list[Entry] = []
        self.heads: dict[str, Entry] = {}  # a consumed token -> its successor

    @contextmanager
    def at(self, moment: float) -> Iterator[None]:
        self.now = moment
        yield

    def made(self, kind: str, name: str, **ids: Any) -> Entry:
        self.entries.append(Entry(kind, name, None, **ids))
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
        """The library accepts an id_token until a minute after its `exp`; it records one without `exp` for 15 minutes."""
        for age, exp in ((10 * MINUTE, {"exp": until - 59}), (15 * MINUTE, {})):
            claims = {"jti": secrets.token_urlsafe(16), **exp}
            with self.at(until - age):
                must(self.replay.check_and_record(claims))
            self.made("replay", claims["jti"], more={"claims": claims})

    def consumed(self, until: int, actor: str, email: str, client: str) -> None:
        """Consumed tokens whose reuse window ends in the second in which they expire. Until then a replay is a theft, which
        revokes the successor."""
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
            reusable = [entry for entry in self.entries if entry.kind not in CONSUMED_BY_PRESENTING]
            return {"lost": [entry.kind for entry in reusable if not self.present(entry)]}

    def use(self, moment: int) -> dict[str, list[str]]:
        with self.at(moment):
            # Present everything before consuming anything: a rotation deletes its access token.
            lost = [entry.kind for entry in self.entries if not self.present(entry)]
            lost += [f"{entry.kind} used" for entry in self.entries if entry.kind in SINGLE_USE and not self.consume(entry)]
            replayed = [entry.kind for entry in self.entries if entry.kind in CONSUMED_BY_PRESENTING and self.present(entry)]
            replayed += [entry.kind for entry in self.entries if entry.kind in SINGLE_USE and self.consume(entry)]
            replayed += [entry.kind for entry in self.entries if entry.name in self.heads and not self.theft(entry)]
            return {"lost": lost, "replayed": replayed, "used": sorted({entry.kind for entry in self.entries})}

    def theft(self, entry: Entry) -> bool:
        """Present a consumed token again: it must be refused, and its chain revoked."""
        head = self.heads[entry.name]
        if not self.present(head):
            return False  # without a live successor, detection cannot be observed
        if entry.kind == "mcp_consumed":
            refused = self.mcp.refresh_access_token(entry.name, entry.client) is None
        else:
            refused = self.spa_theft(entry)
        return refused and not self.present(head)

    def spa_theft(self, entry: Entry) -> bool:
        """The steps of handlers/oauth2_spa.py, which has them inside an HTTP handler."""
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
        request = json.loads(line)
        match request["do"]:
            case "issue":
                server.issue(request["until"])
                answer: dict[str, list[str]] = {}
            case "look":
                answer = server.look(request["at"])
            case "use":
                answer = server.use(request["at"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
