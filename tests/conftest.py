"""Fixtures every test may use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pennon.engine import Engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """One embedded Spark session for the whole run; tables attach to it by themselves."""
    attached = Engine.attach()
    yield attached
    attached.stop()
