"""Options of index types. A type has one frozen dataclass of options, whose fields include their documentation and
allowed values. Signatures, the command line, help texts and the tables of the documentation are generated from these
classes; no other module lists an option.
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from importlib import import_module
from types import NoneType
from typing import Any, ClassVar, Self, TypeVar, cast, get_args, get_origin, get_type_hints

from pennon.display import DisplayedFields
from pennon.errors import IgnoredOptionWarning, InvalidArgument

T = TypeVar("T")
C = TypeVar("C", bound="IndexOptions")

# The types that a field may have, apart from None, and their names in messages. A field of type Any takes arrays.
TYPE_WORDS: dict[type, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    tuple: "a list of strings",
    object: "an array",
}


def option(
    default: T,
    help: str,
    *,
    unset: str | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: Sequence[Any] = (),
) -> T:
    """A documented field of an options class.

    Args:
        default: the default value; None if it is derived from the table or from other options.
        help: a description of the option in one or two sentences.
        unset: the meaning of None.
        at_least: the smallest value.
        at_most: the largest value.
        choices: the allowed values.
    """
    about = {"help": help, "unset": unset, "at_least": at_least, "at_most": at_most, "choices": tuple(choices)}
    return field(default=default, metadata=about)


@dataclass(frozen=True, kw_only=True)
class IndexOptions(DisplayedFields):
    """The options of one index type. Values are checked when an object is created: InvalidArgument if one has the wrong
    type, is out of bounds or contradicts another."""

    index_type: ClassVar[str]

    def __post_init__(self) -> None:
        for each in options_of(type(self)):
            each.check(getattr(self, each.name))
        self.check()

    def check(self) -> None:
        """Rules between several options."""

    def overridden(self) -> Mapping[str, str]:
        """Options that have no effect together with the other given ones, and why."""
        return {}

    @classmethod
    def ignored(cls) -> Mapping[str, str]:
        """Options of other types that pylance accepts for this type and ignores, and why they have no effect."""
        return {}

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Options from keyword arguments; None means not given. Options without effect are dropped with an
        IgnoredOptionWarning. Raises InvalidArgument for unknown ones."""
        known = {each.name for each in options_of(cls)}
        ignored = cls.ignored()
        given = {name: value for name, value in given.items() if value is not None}
        unknown = [name for name in given if name not in known and name not in ignored]
        if unknown:
            raise _unknown_options(cls.index_type, unknown, sorted(known))
        _warn(cls.index_type, {name: why for name, why in ignored.items() if name in given})
        return cls(**{name: value for name, value in given.items() if name in known}).settled()

    def settled(self) -> Self:
        """A copy without overridden options, each of which causes an IgnoredOptionWarning."""
        overridden = self.overridden()
        _warn(self.index_type, overridden)
        return replace(self, **dict.fromkeys(overridden)) if overridden else self


@dataclass(frozen=True)
class Option:
    """One field of an options class. `type` is one of TYPE_WORDS."""

    name: str
    type: type
    optional: bool  # whether None is allowed
    default: Any
    help: str
    unset: str | None
    at_least: float | None
    at_most: float | None
    choices: tuple[Any, ...]

    @property
    def default_text(self) -> str:
        if self.default is None:
            return self.unset or "none"
        return str(self.default)

    @property
    def values_text(self) -> str:
        """The allowed values; empty if any value of the type is allowed."""
        low, high = (None if bound is None else f"{bound:,}" for bound in (self.at_least, self.at_most))
        if self.choices:
            return either(self.choices)
        if low is not None and high is not None:
            return f"{low} to {high}"
        if low is not None:
            return f"at least {low}"
        return "" if high is None else f"at most {high}"

    def check(self, value: Any) -> None:
        """Raises InvalidArgument if a value has another type or is out of bounds."""
        if self.type is object or (self.optional and value is None):
            return
        if not _is_of(self.type, value):
            raise InvalidArgument(f"{self.name} must be {TYPE_WORDS[self.type]}, not {value!r}")
        if self.choices and value not in self.choices:
            raise InvalidArgument(f"{self.name} must be {either(self.choices)}, not {value!r}")
        # Written so that NaN is out of bounds.
        low, high = self.at_least, self.at_most
        if low is not None and not low <= value:
            raise InvalidArgument(f"{self.name} must be at least {low:,}, not {value:,}")
        if high is not None and not high >= value:
            raise InvalidArgument(f"{self.name} must be at most {high:,}, not {value:,}")


@cache
def options_of(cls: type[IndexOptions]) -> tuple[Option, ...]:
    """All options of a type, those of its base classes first."""
    hints = get_type_hints(cls)
    return tuple(_described(each.name, hints[each.name], each.default, each.metadata) for each in fields(cls))


def by_type(*classes: type[C]) -> dict[str, type[C]]:
    """Options classes by the names of their index types."""
    return {cls.index_type: cls for cls in classes}


class OptionsByType(Mapping[str, type[IndexOptions]]):
    """Options classes by the names of their index types, like `by_type`. Their module is imported when one of them is
    used: queries need none."""

    def __init__(self, module: str, **classes: str) -> None:
        self._module, self._classes = module, classes

    def __getitem__(self, index_type: str) -> type[IndexOptions]:
        return getattr(import_module(self._module), self._classes[index_type])

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)


def either(values: Iterable[Any]) -> str:
    *others, last = map(str, values)
    return f"{', '.join(others)} or {last}" if others else last


def _described(name: str, hint: Any, default: Any, about: Mapping[str, Any]) -> Option:
    allowed = set(get_args(hint) or (hint,)) if get_origin(hint) is not tuple else {hint}
    optional = NoneType in allowed
    (one,) = allowed - {NoneType}
    plain = object if one is Any else get_origin(one) or one
    if plain not in TYPE_WORDS or default is MISSING or "help" not in about:
        raise TypeError(f"{name} must be one of {list(TYPE_WORDS.values())} and created by option()")
    return Option(name, plain, optional or plain is object, default, **about)


def _is_of(type_: type, value: Any) -> bool:
    if type_ is tuple:
        return isinstance(value, list | tuple) and all(isinstance(item, str) for item in cast(Sequence[Any], value))
    if isinstance(value, bool):  # bool is a subclass of int
        return type_ is bool
    return isinstance(value, int | float if type_ is float else type_)


def _unknown_options(index_type: str, unknown: Sequence[str], known: Sequence[str]) -> InvalidArgument:
    what = f"options {', '.join(sorted(unknown))}" if len(unknown) > 1 else f"option {unknown[0]!r}"
    near = [match for name in unknown for match in difflib.get_close_matches(name, known, n=1)]
    meant = f"Did you mean {either(near)}? " if near else ""
    return InvalidArgument(f"{index_type} indices take no {what}", f"{meant}They take: {', '.join(known) or 'none'}")


def _warn(index_type: str, ignored: Mapping[str, str]) -> None:
    for name, why in ignored.items():
        warning = IgnoredOptionWarning(f"{name} has no effect on this {index_type} index: {why}")
        warnings.warn(warning, stacklevel=_levels_to_caller())


def _levels_to_caller() -> int:
    """The `stacklevel`, for the function that calls this one, of the first frame outside of this package."""
    frame, levels = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "pennon":
        frame, levels = frame.f_back, levels + 1
    return levels
