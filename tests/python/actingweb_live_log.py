"""The log of a process of the live application; see actingweb_live.py.

One JSON line per event, in the order of this process:

    made    a credential that the library accepts from now until `dies` (None: for ever)
    used    it was presented between `at` and `until`, with this `answer`
    ending  from now on it may be refused: its end was requested (`by` name, chain, client or actor)
    ended   from now on it must be refused: the library confirmed the end
    raised  the library raised an exception, which is an error

`dies` is the first moment at which the library may refuse it: most times are whole seconds, and a token
is still valid in the second in which it expires. The lines hold whole tokens; only the calling test
reads them.
"""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

MCP = ("mcp_access", "mcp_refresh", "mcp_consumed", "mcp_code")


@dataclass
class Entry:
    """A credential that this process knows to be alive."""

    kind: str
    name: str
    dies: float | None
    actor: str = ""
    chain: str = ""
    client: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    def is_due(self, now: float) -> bool:
        return self.dies is not None and self.dies <= now


class Log:
    """The log, and the credentials that are alive by it."""

    def __init__(self, path: str, real_time: Any = time.time) -> None:
        self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115 (open until the process ends)
        self.now = real_time
        self.operations = 0
        self.alive: dict[str, Entry] = {}
        self.ended_early: deque[Entry] = deque(maxlen=300)  # revoked or consumed before they expired

    def line(self, did: str, **fields: Any) -> None:
        self.operations += did in ("made", "used")
        self.file.write(json.dumps({"did": did, "at": self.now()} | fields) + "\n")
        self.file.flush()

    def made(self, entry: Entry, *secrets: str) -> Entry:
        self.alive[entry.name] = entry
        ids = {"actor": entry.actor, "chain": entry.chain, "client": entry.client}
        self.line("made", kind=entry.kind, name=entry.name, dies=entry.dies, more=entry.more, secrets=secrets, **ids)
        return entry

    def used(self, entry: Entry, started: float, answer: Any) -> bool:
        self.line("used", at=started, until=self.now(), kind=entry.kind, name=entry.name, answer=bool(answer))
        return bool(answer)

    def ending(self, by: str, value: str, kinds: tuple[str, ...] = ()) -> None:
        self.line("ending", by=by, value=value, kinds=kinds)
        for entry in list(self.alive.values()):
            if getattr(entry, by) == value and (not kinds or entry.kind in kinds):
                self.ended_early.append(self.alive.pop(entry.name))

    def ended(self, by: str, value: str, kinds: tuple[str, ...] = ()) -> None:
        self.ending(by, value, kinds)
        self.line("ended", by=by, value=value, kinds=kinds)

    def over(self, confirmed: bool, by: str, value: str, kinds: tuple[str, ...] = ()) -> None:
        """After a requested end, which the library may have confirmed."""
        (self.ended if confirmed else self.ending)(by, value, kinds)
