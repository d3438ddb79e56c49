"""Rows of the real library whose TTL can be computed back to the second, for the backfill's test.

The scenes are the seeder's (actingweb_seed.py). The clock stands still besides being moved: the
library asks for the time once for a row's `created_at` and once for its TTL, and a second that
begins in between would be in one of them only. Prints what must still work afterwards.
"""

from __future__ import annotations

import argparse
import json
import random
import time

import actingweb_env as env
import actingweb_world as world
from actingweb_scenes import bystanders, register_clients
from actingweb_seed import plan, play


def stop_the_clock() -> None:
    moment = int(world.real_time())
    time.time = lambda: moment - getattr(world._clock, "age", 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    w = world.World(env.library_config(), args.seed)
    stop_the_clock()
    rng = random.Random(args.seed)
    register_clients(w, rng)
    bystanders(w, rng)
    first, last = plan(args.rows)
    play(w, first + last, f"{args.seed}")
    kinds = ("live_spa_refresh", "live_mcp_refresh", "live_spa_access", "live_mcp_access")
    print(json.dumps({kind: w.kept[kind] for kind in kinds}))


if __name__ == "__main__":
    main()
