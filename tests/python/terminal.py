"""Runs a program in a pseudo-terminal, as a user would, and prints its output.

    terminal.py [--columns N] [--ahead TEXT] [--reply SEEN=ANSWER]... [--interrupt-at SEEN]... [--pipe TEXT] -- PROGRAM...

Types the TEXT of --ahead first, each ANSWER after SEEN was printed, and Ctrl-C after the SEEN of each --interrupt-at.
With --pipe, standard input is a pipe with TEXT. Prints {"output": ..., "code": ...}; a terminal left without echo is an error.
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

TIMEOUT = 120


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--reply", action="append", default=[])
    parser.add_argument("--ahead")
    parser.add_argument("--interrupt-at", action="append", default=[])
    parser.add_argument("--pipe")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    replies = [reply.split("=", 1) for reply in options.reply]
    reads, writes = os.pipe()
    if options.pipe is not None:
        os.write(writes, options.pipe.encode())
    os.close(writes)
    pid, terminal = pty.fork()
    if pid == 0:
        if options.pipe is not None:
            os.dup2(reads, 0)
        os.execvp(options.program[0], options.program)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, options.columns, 0, 0))
    if options.ahead:
        os.write(terminal, options.ahead.encode() + b"\n")
    seen, end = b"", time.monotonic() + TIMEOUT
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
        if options.interrupt_at and options.interrupt_at[0].encode() in seen:
            os.write(terminal, b"\x03")
            options.interrupt_at.pop(0)
    else:
        os.kill(pid, 9)
        sys.exit(f"the program did not exit within {TIMEOUT} s: {seen.decode(errors='replace')}")
    _, status = os.waitpid(pid, 0)
    if not termios.tcgetattr(terminal)[3] & termios.ECHO:
        sys.exit("the terminal was left without echo")
    print(json.dumps({"output": seen.decode(errors="replace"), "code": os.waitstatus_to_exitcode(status)}))


if __name__ == "__main__":
    main()
