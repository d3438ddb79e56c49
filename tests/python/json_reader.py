#!/usr/bin/env python3
"""Reads JSON as ActingWeb does, for the fuzzer: each input line is a text as a JSON string, each output line how Python reads it."""
import json
import sys

TIMES = ["created_at", "expires_at", "exp", "used_at", "seen_at", "retrieved_at"]


def time(value):
    """Missing, malformed or a number, by docs/rows.md. Python's bool is an int, but not a time."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < -(2**63):
        return "malformed"
    return min(value, 2**63 - 1)


def text(value):
    return value if isinstance(value, str) and value else None


def read(line):
    try:
        data = json.loads(json.loads(line))
    except (ValueError, RecursionError):
        return {"kind": "unreadable"}
    if isinstance(data, str):
        return {"kind": "string", "text": data}
    if not isinstance(data, dict):
        return {"kind": "other"}
    used = data.get("used")
    return {
        "kind": "object",
        "times": [time(data.get(name)) for name in TIMES],
        "used": used if used is None or isinstance(used, bool) else "malformed",
        "names": [text(data.get(name)) for name in ("google_token_key", "access_token")],
    }


for line in sys.stdin:
    print(json.dumps(read(line)), flush=True)
