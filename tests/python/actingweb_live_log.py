"""What a process of the live application writes down; see actingweb_live.py.

One JSON line an event, in the order in which things happened to this process:

    made    something that the library accepts from now until `dies` (None: for ever)
    used    it was presented between `at` and `until`, and this was the `answer`
    ending  from here on it may be refused: its end was asked for (`by` name, chain, client or actor)
    ended   from here on it must be refused: the library said that it is done
    raised  the library raised, which it must not

`dies` is the first moment at which the library may refuse: most times are whole seconds, and a token
is still good in the second in which it expires. The lines hold whole tokens: they are for the test
that asked.
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
    """Something that works, by this process's own knowledge."""

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
    """The lines, and what is alive by them."""

    def __init__(self, path: str, real_time: Any = time.time) -> None:
        self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115 (it stays open as long as the process)
        self.now = real_time
        self.operations = 0
        self.alive: dict[str, Entry] = {}
        self.left: deque[Entry] = deque(maxlen=300)  # no longer alive, but not because they died

    def line(self, did: str, **fields: Any) -> None:
        self.operations += did in ("made", "used")
        self.file.write(json.dumps({"did": did, "at": self.now()} | fields) + "\n")
        self.file.flush()

    def made(self, entry: Entry, *secrets: str) -> Entry:
        self.alive[entry.name] = entry
        whose = {"actor": entry.actor, "chain": entry.chain, "client": entry.client}
        self.line("made", kind=entry.kind, name=entry.name, dies=entry.dies, more=entry.more, secrets=secrets, **whose)
        return entry

    def used(self, entry: Entry, began: float, answer: Any) -> bool:
        self.line("used", at=began, until=self.now(), kind=entry.kind, name=entry.name, answer=bool(answer))
        return bool(answer)

    def ending(self, by: str, value: str, kinds: tuple[str, ...] = ()) -> None:
        self.line("ending", by=by, value=value, kinds=kinds)
        for entry in list(self.alive.values()):
            if getattr(entry, by) == value and (not kinds or entry.kind in kinds):
                self.left.append(self.alive.pop(entry.name))

    def ended(self, by: str, value: str, kinds: tuple[str, ...] = ()) -> None:
        self.ending(by, value, kinds)
        self.line("ended", by=by, value=value, kinds=kinds)

    def over(self, done: bool, by: str, value: str, kinds: tuple[str, ...] = ()) -> None:
        """After an end was asked for, and perhaps confirmed."""
        (self.ended if done else self.ending)(by, value, kinds)
