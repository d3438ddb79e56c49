#!/usr/bin/env python3
"""Takes the README's screenshots: docs/img/terminal.png and docs/img/audit.png.

    screenshots.py JANITOR CHROMIUM

Runs `janitor demo --keep` in a pseudo-terminal, adds rows of the last weeks to its table, and runs `janitor audit --html`
on it. Chromium renders both. Needs boto3.
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
PATIENCE_SECONDS = 120
DAY = 86_400
OAUTH = "_actingweb_oauth2"
CREDENTIALS = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
COLORS = {"1": "font-weight:bold", "2": "color:#8b949e", "31": "color:#ff7b72", "32": "color:#7ee787", "33": "color:#e3b341",
          "34": "color:#79c0ff", "35": "color:#d2a8ff", "36": "color:#76e3ea"}
PAGE = """<!doctype html><meta charset="utf-8"><body style="margin:0;background:#0d1117">
<pre style="margin:0;padding:18px 22px;color:#e6edf3;font:13px/1.4 'DejaVu Sans Mono',monospace">{}</pre>"""


def read_until(terminal, wanted):
    """What the program prints, up to the wanted text."""
    seen, end = "", time.monotonic() + PATIENCE_SECONDS
    while wanted not in seen:
        if time.monotonic() > end:
            sys.exit(f"screenshots.py: {wanted!r} was not printed:\n{seen}")
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 65_536).decode()
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
    """Expired and live rows of the last weeks, so that the page has something to show."""
    dice, now = random.Random(7), int(time.time())
    table = boto3.resource("dynamodb", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="local",
                           aws_secret_access_key="local").Table("demo_attributes")
    with table.batch_writer() as batch:

        def put(owner, bucket, name, data, ttl):
            batch.put_item(Item={"id": owner, "bucket_name": f"{bucket}:{name}", "bucket": bucket, "name": name,
                                 "data": json.dumps(data), "ttl_timestamp": ttl})

        def token(owner, bucket, name, days, lifetime, more):
            at = now - dice.randrange(days * DAY)
            put(owner, bucket, name, {**more, "created_at": at, "expires_at": at + lifetime}, at + lifetime + 3_600)
            return at

        for number in range(900):
            actor = f"actor{dice.randrange(60)}"
            who = {"actor_id": actor, "identifier": "demo"}
            token(OAUTH, "spa_access_tokens", secrets.token_hex(20), 7, 3_600, who)
            if number % 2 == 0:
                token(OAUTH, "spa_refresh_tokens", secrets.token_urlsafe(48), 20, 1_209_600, {**who, "used": False})
                name = f"rt_{secrets.token_urlsafe(32)}"
                at = token(actor, "mcp_refresh_tokens", name, 40, 2_592_000, {"token": name, **who, "used": False})
                put(OAUTH, "_refresh_token_index", name, actor, at + 2_602_800)
            if number % 4 == 0:
                token(OAUTH, "_oauth_sessions", secrets.token_urlsafe(32), 3, 600, {"token_data": {}})


def take(chromium, page, name, size):
    picture = IMAGES / f"{name}.png"
    subprocess.run([chromium, "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={size[0]},{size[1]}",
                    f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)
    if picture.stat().st_size > LARGEST_BYTES:
        sys.exit(f"screenshots.py: {picture.name} has more than {LARGEST_BYTES} bytes")
    print(f"written: docs/img/{picture.name}, {picture.stat().st_size} bytes")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    janitor, chromium = sys.argv[1:]
    IMAGES.mkdir(exist_ok=True)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(COLUMNS="110", TERM="xterm-256color")
        os.execv(janitor, [janitor, "demo", "--keep"])
    with tempfile.TemporaryDirectory() as folder:
        try:
            said = read_until(terminal, "Ctrl-C")
            endpoint = re.search(r"AWS_ENDPOINT_URL_DYNAMODB=(\S+)", re.sub(r"\x1b\[[0-9;]*m", "", said))[1]
            add_rows(endpoint)
            report = Path(folder) / "audit.html"
            environment = {**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL_DYNAMODB": endpoint, "AWS_DB_PREFIX": "demo"}
            subprocess.run([janitor, "audit", "--quiet", "--html", str(report)], env=environment, capture_output=True)
        finally:
            os.kill(pid, signal.SIGINT)
        # Up to the check's result: the address of the engine is of no interest.
        lines = said.split("\n\n")
        shown = "\n\n".join(lines[:-1]).rstrip()
        text = Path(folder) / "terminal.html"
        text.write_text(PAGE.format(f"$ janitor demo\n{colored(shown)}"), encoding="utf-8")
        take(chromium, text, "terminal", (920, 36 + 18 * (shown.count("\n") + 3)))
        take(chromium, report, "audit", (1_100, 1_000))


if __name__ == "__main__":
    main()
