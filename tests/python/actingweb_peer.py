"""Runs single operations of the real ActingWeb library, for the tests in Rust.

Reads a JSON list of operations, and prints a JSON list of their answers in the same order:

    [{"op": "set_attr", "owner": "a", "bucket": "b", "name": "n", "data": {"x": 1}, "ttl_seconds": 60},
     {"op": "get_attr", "owner": "a", "bucket": "b", "name": "n"}]
    -> [true, {"data": {"x": 1}}]

The answer of an operation that raises is {"error": "..."}; the others still run, and the exit status is 1.
Answers can hold whole tokens; only the calling test reads them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import actingweb_env as env

Op = dict[str, Any]


class Peer:
    """One method per operation, with the operation's name."""

    def __init__(self, config: Any) -> None:
        from actingweb.oauth2_server.token_manager import ActingWebTokenManager
        from actingweb.oauth_session import OAuth2SessionManager

        self._config = config
        self._spa = OAuth2SessionManager(config)
        self._mcp = ActingWebTokenManager(config)

    def _rows(self, op: Op) -> Any:
        # A new one each time: Attributes caches, and the test writes in between.
        from actingweb.attribute import Attributes

        return Attributes(actor_id=op["owner"], bucket=op["bucket"], config=self._config)

    def get_attr(self, op: Op) -> Op | None:
        row = self._rows(op).get_attr(name=op["name"])
        return {"data": row["data"]} if row else None

    def get_bucket(self, op: Op) -> Op:
        rows = self._rows(op).get_bucket() or {}
        return {name: {"data": row["data"]} for name, row in rows.items()}

    def set_attr(self, op: Op) -> bool:
        return self._rows(op).set_attr(name=op["name"], data=op["data"], ttl_seconds=op.get("ttl_seconds"))

    def delete_attr(self, op: Op) -> bool:
        return self._rows(op).delete_attr(name=op["name"])

    def delete_bucket(self, op: Op) -> bool:
        return self._rows(op).delete_bucket()

    def conditional_update(self, op: Op) -> bool:
        return self._rows(op).conditional_update_attr(
            name=op["name"], old_data=op["old"], new_data=op["new"], ttl_seconds=op.get("ttl_seconds")
        )

    def spa_consume(self, op: Op) -> Op:
        consumed, data = self._spa.try_mark_refresh_token_used(op["token"])
        return {"consumed": consumed, "data": data}

    def spa_validate_access(self, op: Op) -> Op | None:
        return self._spa.validate_access_token(op["token"])

    def get_session(self, op: Op) -> Op | None:
        return self._spa.get_session(op["id"])

    def mcp_validate(self, op: Op) -> Op | None:
        found = self._mcp.validate_access_token(op["token"])
        return {"actor_id": found[0], "client_id": found[1], "data": found[2]} if found else None

    def mcp_refresh(self, op: Op) -> Op | None:
        return self._mcp.refresh_access_token(op["token"], op["client_id"])

    def mcp_exchange(self, op: Op) -> Op | None:
        return self._mcp.exchange_authorization_code(op["code"], op["client_id"])

    def mcp_create_access(self, op: Op) -> str:
        """An access token of a client-credentials grant."""
        return self._mcp.create_access_token(op["owner"], op["client_id"])["access_token"]

    def mcp_revoke_cut_off(self, op: Op) -> bool:
        """A revocation whose second half fails: the index row is deleted, the token row is kept."""
        from actingweb import single_use

        real, single_use.delete_confirmed = single_use.delete_confirmed, lambda *_: False
        try:
            return self._mcp._remove_access_token(op["token"], actor_id=op["owner"])
        finally:
            single_use.delete_confirmed = real

    def client_store(self, op: Op) -> bool:
        """A client row and its index row, as registration writes them, without the trust."""
        registry = self._registry()
        registry._store_client(op["owner"], op["client_id"], op["data"])
        registry._update_global_index(op["client_id"], op["owner"])
        return True

    def client_load(self, op: Op) -> Op | None:
        return self._registry().load_client_strict(op["client_id"])

    def _registry(self) -> Any:
        from actingweb.oauth2_server.client_registry import MCPClientRegistry

        return MCPClientRegistry(self._config)

    def dumps(self, op: Op) -> str:
        """The text that the library stores as `data`."""
        return json.dumps(op["value"])

    def ttl_deadline_constants(self, op: Op) -> dict[str, int]:
        """Every duration constant of the library, to compare copies with."""
        from actingweb import constants

        marks = ("TTL", "BUFFER", "WINDOW", "GRACE", "EXPIRY")
        found = vars(constants).items()
        return {name: value for name, value in found if isinstance(value, int) and any(m in name for m in marks)}


def answer(peer: Peer, op: Op) -> Any:
    name = op.get("op", "")
    method: Callable[[Op], Any] | None = None if name.startswith("_") else getattr(peer, name, None)
    if method is None:
        return {"error": f"unknown operation {name!r}"}
    try:
        return method(op)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def failed(result: Any) -> bool:
    return isinstance(result, dict) and result.keys() == {"error"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", default="-", help="a JSON file, or - for standard input (the default)")
    args = parser.parse_args()
    if args.ops == "-":
        ops = json.load(sys.stdin)
    else:
        with open(args.ops, encoding="utf-8") as file:
            ops = json.load(file)
    peer = Peer(env.library_config())
    results = [answer(peer, op) for op in ops]
    print(json.dumps(results))
    sys.exit(1 if any(map(failed, results)) else 0)


if __name__ == "__main__":
    main()
