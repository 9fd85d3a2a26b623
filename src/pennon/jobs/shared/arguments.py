"""Checks of arguments that several verbs share."""

from __future__ import annotations

from pennon.errors import InvalidArgument


def check_at_least_one(**sizes: int | None) -> None:
    """Raises InvalidArgument unless every value is None or a whole number above 0."""
    check_integers(**sizes)
    for label, value in sizes.items():
        if value is not None and value < 1:
            raise InvalidArgument(f"{label} must be at least 1, not {value}")


def check_integers(**values: object) -> None:
    """Raises InvalidArgument unless every value is None or a whole number."""
    for label, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | None):
            raise InvalidArgument(f"{label} must be a whole number, not {value!r}")
