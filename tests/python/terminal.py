"""Runs a program in a pseudo-terminal, as a person would, and prints what was on the screen.

    terminal.py [--columns N] [--reply SEEN=ANSWER]... [--interrupt-at SEEN] [--env NAME=VALUE]... -- PROGRAM...

Each reply is typed once its text has been seen; with --interrupt-at, Ctrl-C is. Prints {"output": ..., "code": ...}.
"""

import argparse
import fcntl
import json
import os
import pty
import select
import struct
import sys
import termios
import time

PATIENCE = 120


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--reply", action="append", default=[])
    parser.add_argument("--interrupt-at")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    replies = [reply.split("=", 1) for reply in options.reply]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(options.program[0], options.program)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, options.columns, 0, 0))
    seen, end = b"", time.monotonic() + PATIENCE
    while time.monotonic() < end:
        readable, _, _ = select.select([terminal], [], [], 0.2)
        if readable:
            try:
                chunk = os.read(terminal, 65536)
            except OSError:
                break
            if not chunk:
                break
            seen += chunk
        if replies and replies[0][0].encode() in seen:
            os.write(terminal, replies.pop(0)[1].encode() + b"\n")
        if options.interrupt_at and options.interrupt_at.encode() in seen:
            os.write(terminal, b"\x03")
            options.interrupt_at = None
    else:
        os.kill(pid, 9)
        sys.exit(f"no end after {PATIENCE} s: {seen.decode(errors='replace')}")
    _, status = os.waitpid(pid, 0)
    print(json.dumps({"output": seen.decode(errors="replace"), "code": os.waitstatus_to_exitcode(status)}))


if __name__ == "__main__":
    main()
