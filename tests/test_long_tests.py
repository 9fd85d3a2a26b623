"""The list of tests that `make check` leaves out names tests that exist."""

from __future__ import annotations

from pathlib import Path

from tests.support.long_tests import LONG_TESTS

HERE = Path(__file__).parent


def test_every_name_is_that_of_a_test() -> None:
    unknown = [
        f"{file}::{name}"
        for file, names in LONG_TESTS.items()
        for name in names
        if not (HERE / file).exists() or f"def {name}(" not in (HERE / file).read_text("utf-8")
    ]
    assert not unknown, "rename or remove them in tests/support/long_tests.py"
