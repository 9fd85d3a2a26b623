"""Run the named measurements, all quick ones by default: `python -m bench build_int64 lookups`."""

from __future__ import annotations

import sys

from bench import build, lookup, query

BENCHES = {
    "build_int64": lambda: build.build_int64((1_000_000, 10_000_000)),
    "build_large": lambda: build.build_int64((100_000_000,)),
    "build_strings": build.build_strings,
    "build_lineitem": build.build_lineitem,
    "merge_lookups": lookup.merge_lookups,
    "points": query.points,
}
DEFAULT = [name for name in BENCHES if name != "build_large"]


def main() -> None:
    names = sys.argv[1:] or DEFAULT
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are: {', '.join(BENCHES)}")
    for name in names:
        BENCHES[name]()


if __name__ == "__main__":
    main()
