"""Checks of arguments that several verbs share."""

from __future__ import annotations

from typing import Any, get_args

from pennon.errors import InvalidArgument

KIND_WORDS: dict[Any, str] = {bool: "True or False", int: "a whole number", float: "a number", str: "text"}


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


def check_type(label: str, value: object, hint: Any) -> None:
    """Whether a value is of a declared type: one of bool, int, float and str, or that and None.

    Raises:
        InvalidArgument: it is of another type, or a negative number.
    """
    kinds: tuple[Any, ...] = get_args(hint) or (hint,)
    accepted = (*kinds, int) if float in kinds else kinds
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in kinds):
        words = " or ".join(KIND_WORDS.get(kind, "None") for kind in kinds)
        raise InvalidArgument(f"{label} must be {words}, not {value!r}")
    if isinstance(value, int | float) and value < 0:
        raise InvalidArgument(f"{label} must not be negative, but is {value}")
