#!/usr/bin/env python3
"""Takes the README's screenshots, docs/img/*.png; with FOLDER, writes those and others there, for review.

    screenshots.py JANITOR CHROMIUM [FOLDER]

Runs `janitor demo --keep` in a pseudo-terminal, adds rows of the last weeks to its table, and runs other commands on it.
Chromium renders their output, and the page of `janitor audit --html`. Needs boto3.
"""

import html
import json
import os
import pty
import random
import re
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import boto3

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "img"
LARGEST_BYTES = 200_000
TIMEOUT_SECONDS = 120
COLUMNS = 110
COMMANDS = {"status": ["status"], "doctor": ["doctor"],
            "list": ["cleanup", "--list", "--bucket", "spa_refresh_tokens", "--limit", "12"]}
NIGHT = 20 * 3_600
OAUTH = "_actingweb_oauth2"
CREDENTIALS = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
COLORS = {"1": "font-weight:bold", "2": "color:#8b949e", "31": "color:#ff7b72", "32": "color:#7ee787", "33": "color:#e3b341",
          "34": "color:#79c0ff", "35": "color:#d2a8ff", "36": "color:#76e3ea"}
PAGE = """<!doctype html><meta charset="utf-8"><body style="margin:0;background:#0d1117">
<pre style="margin:0;padding:18px 22px;color:#e6edf3;font:13px/1.4 'DejaVu Sans Mono',monospace">{}</pre>"""


def start(program, environment):
    """The process id and the terminal's file descriptor."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(program[0], program, {**environment, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"})
    return pid, terminal


def read_until(terminal, wanted=None):
    """The program's output up to the wanted text, or to its end."""
    seen, end = "", time.monotonic() + TIMEOUT_SECONDS
    while wanted is None or wanted not in seen:
        if time.monotonic() > end:
            sys.exit(f"screenshots.py: {wanted!r} was not printed:\n{seen}")
        if select.select([terminal], [], [], 1)[0]:
            try:
                seen += os.read(terminal, 65_536).decode()
            except OSError:
                break
    return seen.replace("\r\n", "\n")


def colored(text):
    """ANSI colors as HTML."""
    opened = 0
    parts = []
    for part in re.split(r"(\x1b\[[0-9;]*m)", text):
        if not part.startswith("\x1b["):
            parts.append(html.escape(part))
            continue
        styles = [COLORS[code] for code in part[2:-1].split(";") if code in COLORS]
        if styles:
            opened += 1
            parts.append(f'<span style="{";".join(styles)}">')
        else:
            parts.append("</span>" * opened)
            opened = 0
    return "".join(parts)


def add_rows(endpoint):
    """As after a night: the demo's run was yesterday, and rows have come and died since."""
    dice, now = random.Random(7), int(time.time())
    table = boto3.resource("dynamodb", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="local",
                           aws_secret_access_key="local").Table("demo_attributes")
    key = {"id": "_actingweb_janitor", "bucket_name": "state:daily-cleanup"}
    state = table.get_item(Key=key)["Item"]["data"]
    earlier = re.sub(r"\b1\d{9}\b", lambda moment: str(int(moment[0]) - NIGHT), state)
    table.update_item(Key=key, UpdateExpression="SET #d = :d", ExpressionAttributeNames={"#d": "data"},
                      ExpressionAttributeValues={":d": earlier})
    with table.batch_writer() as batch:

        def put(owner, bucket, name, data, ttl):
            batch.put_item(Item={"id": owner, "bucket_name": f"{bucket}:{name}", "bucket": bucket, "name": name,
                                 "data": json.dumps(data), "ttl_timestamp": ttl})

        def token(owner, bucket, name, lifetime, more):
            """A row that was alive at the last run, or came since."""
            expires = now - NIGHT + dice.randrange(lifetime + NIGHT)
            data = {**more, "created_at": expires - lifetime, "expires_at": expires}
            put(owner, bucket, name, data, expires + 3_600)
            return expires

        for number in range(900):
            actor = f"actor{dice.randrange(60)}"
            who = {"actor_id": actor, "identifier": "demo"}
            token(OAUTH, "spa_access_tokens", secrets.token_hex(20), 3_600, who)
            if number % 2 == 0:
                token(OAUTH, "spa_refresh_tokens", secrets.token_urlsafe(48), 1_209_600, {**who, "used": False})
                name = f"rt_{secrets.token_urlsafe(32)}"
                expires = token(actor, "mcp_refresh_tokens", name, 2_592_000, {"token": name, **who, "used": False})
                put(OAUTH, "_refresh_token_index", name, actor, expires + 10_800)
            if number % 4 == 0:
                token(OAUTH, "_oauth_sessions", secrets.token_urlsafe(32), 600, {"token_data": {}})


def take(chromium, page, picture, size):
    subprocess.run([chromium, "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={size[0]},{size[1]}",
                    f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)
    if picture.stat().st_size > LARGEST_BYTES:
        sys.exit(f"screenshots.py: {picture.name} has more than {LARGEST_BYTES} bytes")
    print(f"written: {picture}, {picture.stat().st_size} bytes")


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    janitor, chromium = sys.argv[1:3]
    images = Path(sys.argv[3]) if len(sys.argv) == 4 else IMAGES
    images.mkdir(parents=True, exist_ok=True)
    commands = COMMANDS if len(sys.argv) == 4 else {"status": COMMANDS["status"]}
    screens = {}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "audit.html"
        pid, terminal = start([janitor, "demo", "--keep"], os.environ)
        try:
            output = read_until(terminal, "Ctrl-C")
            endpoint = re.search(r"AWS_ENDPOINT_URL_DYNAMODB=(\S+)", re.sub(r"\x1b\[[0-9;]*m", "", output))[1]
            add_rows(endpoint)
            # Up to the check's result, without the engine's address.
            screens["demo"] = "\n\n".join(output.split("\n\n")[:-1])
            environment = {**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL_DYNAMODB": endpoint, "AWS_DB_PREFIX": "demo"}
            subprocess.run([janitor, "audit", "--quiet", "--html", str(report)], env=environment, capture_output=True)
            for name, arguments in commands.items():
                process, screen = start([janitor, *arguments, "--quiet"], environment)
                screens[name] = read_until(screen)
                os.waitpid(process, 0)
        finally:
            os.kill(pid, signal.SIGINT)
        for name, shown in screens.items():
            typed = " ".join(COMMANDS.get(name, ["demo"]))
            text = Path(folder) / f"{name}.html"
            text.write_text(PAGE.format(f"$ janitor {typed}\n{colored(shown.rstrip())}"), encoding="utf-8")
            name = "terminal" if name == "demo" else name
            take(chromium, text, images / f"{name}.png", (920, 36 + 18 * (shown.rstrip().count("\n") + 3)))
        take(chromium, report, images / "audit.png", (1_100, 1_000))


if __name__ == "__main__":
    main()
