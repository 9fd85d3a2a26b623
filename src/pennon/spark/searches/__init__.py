"""The searches behind the functions of SQL, a module each, imported when it is used: kernels take long to load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pennon.query.catalog import Catalog

Given = Mapping[str, Any]


@dataclass(frozen=True)
class Search:
    """What a search computes, the options it takes, and how it runs: by a catalog, the arguments, k and the options.
    `vector` is the name of the argument that is one."""

    computed: tuple[str, ...]
    check_options: Callable[[Iterable[str]], None]
    run: Callable[[Catalog, Given, int, Given], pa.Table]
    vector: str | None = None
