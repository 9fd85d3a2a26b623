"""A process that reads a table through a disk cache, again and again: writes the answers that were wrong."""

from __future__ import annotations

import json
import sys

import pennon
from pennon.index.cache import SHARED_CACHE


def main(uri: str, rounds: int, options: str) -> None:
    given = json.loads(options)
    wrong: list[object] = []
    for number in range(rounds):
        SHARED_CACHE.clear()
        found = pennon.open(uri, engine="local", **given).scan(f"k = {number % 50}").num_rows
        if found != 20:
            wrong.append((number, found))
    sys.stdout.write(json.dumps(wrong))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
