"""Kernels in numba's cache: a change of a module that a kernel calls into makes it compile again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pennon.index import compiled
from pennon.index.fragment_reuse import reading
from pennon.index.inverted.postings import decode_kernels
from pennon.index.inverted.search import any_kernels, batch_kernels

CALLED = "pennon.index.inverted.postings.pack_kernels"


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    compiled.sources_digest.cache_clear()
    yield
    compiled.sources_digest.cache_clear()


def test_the_digest_of_a_kernel_follows_the_modules_it_calls_into(monkeypatch: pytest.MonkeyPatch) -> None:
    # Direct and indirect callers; the last is of another family.
    callers = [decode_kernels.__name__, any_kernels.__name__, batch_kernels.__name__]
    other = reading.__name__
    before = [compiled.sources_digest(name) for name in (*callers, other)]
    compiled.sources_digest.cache_clear()
    assert [compiled.sources_digest(name) for name in (*callers, other)] == before
    compiled.sources_digest.cache_clear()
    real = compiled.source_of
    monkeypatch.setattr(compiled, "source_of", lambda name: real(name) + ("# changed" if name == CALLED else ""))
    after = [compiled.sources_digest(name) for name in (*callers, other)]
    assert all(new != old for new, old in zip(after[:3], before[:3], strict=True))
    assert after[3] == before[3]


def test_every_kernel_is_cached_under_the_digest() -> None:
    for kernel in (any_kernels.search_any, batch_kernels.search_each, decode_kernels.decode_block):
        stamp = kernel._cache._cache_file._source_stamp  # type: ignore[attr-defined]
        assert stamp == compiled.sources_digest(kernel.__module__)
