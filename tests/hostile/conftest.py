"""Fixtures of tests on damaged tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pennon.index.cache import SHARED_CACHE
from pennon.testing.engines import in_process


@pytest.fixture
def no_spark() -> Iterator[None]:
    """Jobs run in this process, and nothing is known of other tables."""
    SHARED_CACHE.clear()
    with in_process():
        yield
